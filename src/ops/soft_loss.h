/* Attributes of soft_loss and its backward. */
#ifndef SL_OPS_SOFT_LOSS_H
#define SL_OPS_SOFT_LOSS_H

#include "ops/op.h"

struct SL_ATTRS_TYPE sl_soft_loss_attrs {
    int32_t loss; /* which of the model's losses it is */
};
SL_ATTRS_OF(soft_loss)

#endif
