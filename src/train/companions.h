/*
 * Inside train: files that belong to a model and that training does not touch: its tokenizer and how to generate with it. A
 * checkpoint holds copies, so that it can be used like the model it came from.
 */
#ifndef SL_TRAIN_COMPANIONS_H
#define SL_TRAIN_COMPANIONS_H

#include "train/job.h"

/* Which of them lie beside the model or the weights now: a bit for each. */
uint32_t sl_companions_present(const sl_setup *setup);
/* What the bit stands for: "tokenizer.json"; NULL: nothing. */
const char *sl_companion_name(int bit);
/* Copies into `folder`, durably, each from the first that has it: the model's folder, that of --init-from, `before` (an earlier
 * checkpoint's folder; "": none). One that cannot be read, or was there when the run began and is gone, is a warning; a failed
 * write is an error. `buffer` is scratch. */
sl_status sl_companions_copy(const sl_setup *setup, const char *before, const char *folder, void *buffer,
                             size_t buffer_bytes);

#endif
