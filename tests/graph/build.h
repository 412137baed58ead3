/* Graphs of a few ops, for tests. Blocks and parameters go by the names that the callers give. */
#ifndef SL_TESTS_GRAPH_BUILD_H
#define SL_TESTS_GRAPH_BUILD_H

#include "graph/graph.h"
#include "ops/head_loss.h"
#include "ops/matmul.h"
#include "test.h"

static inline sl_graph *new_graph(sl_dtype dtype, bool training)
{
    sl_graph *graph;
    sl_graph_config config = {.tokens = 4, .max_segments = 2, .dtype = dtype, .training = training};
    CHECK_OK(sl_graph_create(&config, &graph));
    return graph;
}

static inline sl_value param(sl_graph *graph, const char *group, const char *name, int64_t rows, int64_t columns,
                             bool decay)
{
    sl_param p = {.name = name, .group = group, .decay = decay, .init = SL_INIT_NORMAL, .init_std = 1};
    sl_value value;
    p.type = columns ? sl_type_2d(SL_F32, rows, columns) : sl_type_1d(SL_F32, rows);
    CHECK_OK(sl_graph_param(graph, &p, &value));
    return value;
}

static inline sl_value op(sl_graph *graph, sl_op_id id, const char *name, const sl_attrs *attrs, const sl_value *in,
                          int n_in)
{
    sl_value out[SL_MAX_OUT];
    CHECK_OK(sl_graph_op(graph, id, name, attrs, in, n_in, out));
    return out[0];
}

static inline sl_value biased(sl_graph *graph, const char *name, sl_value x, sl_value w, sl_value bias,
                              sl_value residual)
{
    sl_attrs attrs = {.raw = {0}};
    sl_matmul_set(&attrs)->trans_b = 1;
    return op(graph, SL_OP_MATMUL, name, &attrs, (const sl_value[]){x, w, bias, residual}, 4);
}

static inline sl_value linear(sl_graph *graph, const char *name, sl_value x, sl_value w, sl_value residual)
{
    return biased(graph, name, x, w, SL_NO_VALUE, residual);
}

static inline sl_value embedded(sl_graph *graph, int64_t dim)
{
    sl_value tokens;
    CHECK_OK(sl_graph_begin_block(graph, "embedding"));
    CHECK_OK(sl_graph_input(graph, SL_INPUT_TOKENS, &tokens));
    sl_value table = param(graph, "embedding", "table", 9, dim, true);
    return op(graph, SL_OP_EMBEDDING, "embedding", NULL, (const sl_value[]){table, tokens}, 2);
}

static inline sl_value loss_of(sl_graph *graph, sl_value x, sl_value w)
{
    sl_value targets;
    sl_attrs attrs = {.raw = {0}};
    sl_head_set(&attrs)->ignore = -100;
    CHECK_OK(sl_graph_input(graph, SL_INPUT_TARGETS, &targets));
    return op(graph, SL_OP_HEAD_LOSS, "loss", &attrs, (const sl_value[]){x, w, targets}, 3);
}

static inline int32_t count_ops(const sl_graph *graph, sl_op_id id)
{
    int32_t count = 0;
    for (int32_t i = 0; i < graph->n_nodes; i++)
        count += graph->nodes[i].op == id;
    return count;
}

#endif
