/* The data of a job, and what a plan has to know of it. A run keeps it; `sluice plan` closes it again. */
#ifndef SL_TRAIN_OPEN_DATA_H
#define SL_TRAIN_OPEN_DATA_H

#include "data/source.h"
#include "train/job.h"

/* Whether the job names data, or brings its own. */
bool sl_data_given(const sl_setup *setup);
/* Opens it, tokenized where it has to be, and completes the setup: segments, weights of tokens, sequences that there are not. */
sl_status sl_data_open(sl_setup *setup, sl_source **source);
/* But for a source of the job's own. */
void sl_data_close(const sl_setup *setup, sl_source *source);

#endif
