/* Inside train: what a run is, as a list of facts that are written into a checkpoint and compared on resume. */
#ifndef SL_TRAIN_IDENTITY_H
#define SL_TRAIN_IDENTITY_H

#include "core/json.h"
#include "train/checkpoint.h"

void sl_identity_put(const sl_identity *identity, sl_json_writer *w);
/* `facts` is the object that sl_identity_put wrote. SL_E_USAGE names the first fact that must agree and does not; facts that
 * only move bits (chunking, kernels, the optimizer's options) are logged as warnings. `done`: steps at the checkpoint. */
sl_status sl_identity_compare(const sl_identity *identity, const char *name, const sl_json *facts, int64_t done);

#endif
