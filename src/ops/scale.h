/* Attributes of scale. */
#ifndef SL_OPS_SCALE_H
#define SL_OPS_SCALE_H

#include "ops/op.h"

struct SL_ATTRS_TYPE sl_scale_attrs {
    float value;
};
SL_ATTRS_OF(scale)

#endif
