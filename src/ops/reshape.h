/* The shape that reshape gives, shared by the reference and the kernels. Header-only: a device plugin cannot call into the library. */
#ifndef SL_OPS_RESHAPE_H
#define SL_OPS_RESHAPE_H

#include "ops/op.h"

struct SL_ATTRS_TYPE sl_reshape_attrs {
    int64_t columns; /* of the result */
};
SL_ATTRS_OF(reshape)

#endif
