/* Inside train: whether a model's head is its embedding, by its weights. */
#ifndef SL_TRAIN_TIED_HEAD_H
#define SL_TRAIN_TIED_HEAD_H

#include "model/model.h"
#include "model/safetensors.h"

/* Corrects model->tied by the files that its weights come from ("": none). Files that cannot be opened change nothing: whoever loads
 * them reports why, and a plan or a resumed run does without them. Reads data only of a file that holds both tensors of a tied
 * model. */
sl_status sl_tied_head_resolve(const char *weights, sl_model *model);

#endif
