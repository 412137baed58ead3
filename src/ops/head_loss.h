/* How the head's ops cut a launch into blocks of tokens: gradients of the weights add up block by block, so this fixes bits. */
#ifndef SL_OPS_HEAD_LOSS_H
#define SL_OPS_HEAD_LOSS_H

#include "ops/op.h"

struct SL_ATTRS_TYPE sl_head_attrs {
    int32_t block;  /* tokens whose logits exist at once */
    int32_t ignore; /* target that counts for nothing */
    int32_t loss;   /* which of the model's losses it is */
    float cap;      /* logits are cap * tanh(logit / cap); 0: as they are */
};
SL_ATTRS_OF(head)

/* Tokens of a block: all where attrs say 0 or more than there are. */
static inline int64_t sl_head_block(const sl_launch *launch)
{
    int64_t n = launch->in[0].type.dim[0], block = sl_head_attrs(&launch->attrs)->block;
    return block > 0 && block < n ? block : n;
}

#endif
