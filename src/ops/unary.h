/* Attributes of unary and its backward: which function. */
#ifndef SL_OPS_UNARY_H
#define SL_OPS_UNARY_H

#include "ops/op.h"

typedef enum sl_unary_function {
    SL_UNARY_SINE,
    SL_UNARY_SIGMOID,
    SL_UNARY_SILU,
    SL_UNARY_TANH,
    SL_UNARY_RELU,
    SL_UNARY_COUNT
} sl_unary_function;

struct SL_ATTRS_TYPE sl_unary_attrs {
    int32_t function; /* sl_unary_function */
};
SL_ATTRS_OF(unary)

#endif
