/* Ops at the shapes a model gives them, for timing: each op's `shapes` lists the ways in which it occurs in a step. */
#ifndef SL_OPS_SHAPES_H
#define SL_OPS_SHAPES_H

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

struct sl_op_shapes {
    sl_op_id op;
    sl_dtype dtype;
    sl_op_sizes sizes;
    sl_op_variant variants[SL_MOST_VARIANTS];
    int count;
};

/* An op without `shapes` is taken at its largest test case of that dtype; with none at all there is no variant. */
sl_status sl_op_shapes_of(sl_op_id op, sl_dtype dtype, const sl_op_sizes *sizes, sl_op_shapes *shapes);

/* For `shapes` of an op. Output types come from the op's own rule. */
sl_status sl_shapes_add(sl_op_shapes *shapes, const char *suffix, const sl_op_case *op_case);
/* One variant of inputs and attributes alone; unused inputs are {0}. */
sl_type sl_shapes_matrix(const sl_op_shapes *shapes, int64_t rows, int64_t columns);
/* Activations [n, d], hidden activations [n, f]. */
sl_type sl_shapes_wide(const sl_op_shapes *shapes);
sl_type sl_shapes_hidden(const sl_op_shapes *shapes);
/* The variant of an op on activations alone: [n, d]; [n, d] twice. */
sl_status sl_shapes_unary(sl_op_shapes *shapes);
sl_status sl_shapes_binary(sl_op_shapes *shapes);

#endif
