/*
 * Attention in two ways on the same numbers: tiled, which is the op that models use and keeps no square matrix; and
 * naive, which writes scores and probabilities out (GEMM, softmax, GEMM), as in a textbook. Both are lists of
 * launches.
 */
#ifndef SL_BENCH_ATTENTION_CASE_H
#define SL_BENCH_ATTENTION_CASE_H

#include "bench/rig.h"
#include "core/mem.h"

typedef struct sl_attention_shape {
    int64_t batch, heads, seqlen, dim; /* dim: of a head */
    bool causal;
    sl_dtype dtype;
} sl_attention_shape;

typedef struct sl_attention_case {
    sl_attention_shape shape;
    bool naive;
    sl_launch *forward, *backward; /* lists */
    int64_t n_forward, n_backward;
    sl_operand q, kv, o, d_o, dq, dkv; /* tiled */
    sl_operand *items;                 /* naive: q, k, v, o, do, dq, dk, dv of each batch item and head */
    size_t bytes, workspace_bytes;     /* all that was taken; of it, the kernels' own */
} sl_attention_case;

enum { SL_ITEM_Q, SL_ITEM_K, SL_ITEM_V, SL_ITEM_O, SL_ITEM_DO, SL_ITEM_DQ, SL_ITEM_DK, SL_ITEM_DV, SL_ITEM_OPERANDS };

/* The values of all operands: [batch][heads][seqlen][dim] each, rounded to the shape's dtype. Owned by the caller's
 * region. */
typedef struct sl_attention_data {
    float *q, *k, *v, *d_o;
} sl_attention_data;
sl_status sl_attention_draw(sl_region *region, const sl_attention_shape *shape, uint64_t seed, sl_attention_data *data);

/* Takes memory from the rig (SL_E_DOES_NOT_FIT where there is not enough) and fills it. `rows` > 0: queries per launch,
 * batch 1. */
sl_status sl_attention_tiled(sl_rig *rig, sl_region *region, const sl_attention_shape *shape, int64_t rows,
                             const sl_attention_data *data, sl_attention_case *out);
sl_status sl_attention_naive(sl_rig *rig, sl_region *region, const sl_attention_shape *shape,
                             const sl_attention_data *data, sl_attention_case *out);

/* Results as [batch][heads][seqlen][dim] in f32: o, dq, dk or dv by SL_ITEM_*. */
sl_status sl_attention_read(sl_rig *rig, const sl_attention_case *c, int what, float *out);

/* Bytes by counting what each way must keep, workspaces apart. */
double sl_attention_account(const sl_attention_shape *shape, bool naive, bool backward);
/* Arithmetic: 4 T^2 d per head forward, half of it causal; 2.5 times that backward (scores are recomputed). */
double sl_attention_flops(const sl_attention_shape *shape, bool backward);
/* o and dq of one query in double, dim numbers each, from the operands' own values. p: room for seqlen numbers. */
void sl_attention_exact(const sl_attention_shape *shape, const sl_attention_data *data, int64_t item, int64_t row,
                        double *p, double *o, double *dq);
/* Largest error of o and dq over a few rows against exact arithmetic, relative to the largest value of those rows. */
sl_status sl_attention_check(sl_rig *rig, const sl_attention_case *c, const sl_attention_data *data, double *error);

#endif
