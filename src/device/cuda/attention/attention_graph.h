/*
 * The cuDNN graphs of attention, one per shape, built when first asked for and kept with the device. attention.c binds their
 * tensors, by these ids, and runs them.
 */
#ifndef SL_DEVICE_CUDA_ATTENTION_GRAPH_H
#define SL_DEVICE_CUDA_ATTENTION_GRAPH_H

#include "device/cuda/runtime/dnn.h"

enum {
    SL_ID_Q = 1,
    SL_ID_K,
    SL_ID_V,
    SL_ID_O,
    SL_ID_STATS, /* lse, f32 */
    SL_ID_SCALE,
    SL_ID_MASKED,
    SL_ID_LEN_Q,
    SL_ID_LEN_KV,
    SL_ID_DO,
    SL_ID_DQ,
    SL_ID_DK,
    SL_ID_DV,
    SL_ID_SUM, /* D, f32 [heads, rows] */
    SL_ID_ONE,
    SL_ID_DQ_SUM /* nondeterministic: dQ in f32, [sequences, heads, rows, head_dim] */
};

/* What a graph depends on; the key of the cache, so zeroed before it is filled. */
typedef struct sl_graph_shape {
    int64_t batch, q_rows, kv_rows, rows; /* per sequence; rows = all queries of the chunk */
    int64_t width, o_width, kv_width;     /* elements from row to row of q, of o, of k and v; gradients too */
    int32_t heads, kv_heads;              /* of one run of the graph: all of them, or a group */
    int32_t head_dim, causal, backward, nondeterministic;
    int32_t bounds; /* documents: how long their list is; 0: each sequence is one. No graph takes them. */
} sl_graph_shape;

/* NULL in `out`: cuDNN does not take the shape. */
sl_status sl_attention_graph(sl_cuda *cuda, const sl_graph_shape *shape, sl_dnn_graph **out);

#endif
