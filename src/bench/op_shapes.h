/* Ops at the shapes a model gives them, for timing. */
#ifndef SL_BENCH_OP_SHAPES_H
#define SL_BENCH_OP_SHAPES_H

#include "ops/op.h"

/* n tokens in sequences of `sequence`, model dim d, h heads, g K/V heads of e, f hidden, V vocabulary, p parameters of
 * a group. */
typedef struct sl_op_sizes {
    int64_t n, sequence, d, h, g, e, f, v, p;
} sl_op_sizes;

enum { SL_MOST_VARIANTS = 4 };
typedef struct sl_op_variant {
    char name[48];    /* "matmul x W^T" */
    sl_launch launch; /* types and attributes */
} sl_op_variant;

/* The ways this op occurs in a step. An op that is not known here is taken at its largest conformance case of that
 * dtype; none at all: *count is 0. */
sl_status sl_op_variants(sl_op_id op, sl_dtype dtype, const sl_op_sizes *sizes, sl_op_variant out[SL_MOST_VARIANTS],
                         int *count);

#endif
