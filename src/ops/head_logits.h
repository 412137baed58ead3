/* The attributes of the head without a loss. */
#ifndef SL_OPS_HEAD_LOGITS_H
#define SL_OPS_HEAD_LOGITS_H

#include "ops/op.h"

struct SL_ATTRS_TYPE sl_head_logits_attrs {
    float cap; /* logits are cap * tanh(logit / cap); 0: as they are */
    int32_t unused;
};
SL_ATTRS_OF(head_logits)

#endif
