/*
 * Fusion: replaces simple ops of model files by fewer ones where a descriptor allows it.
 *
 *     h = linear(..)   y = x + h          ->   y = linear(.., residual x)       `adds_in`: saves a rounding and a pass over y
 *     d = linear(..)   y = linear(.., residual d) + h    ->   d = linear(.., residual h)   y = linear(.., residual d)
 *     q, kv = split(qkv)  o = f(q, kv)    ->   o = f(qkv)                       `joined_in` and `splits`: saves the copy
 *
 * An intermediate value is removed if nothing else reads it and both nodes belong to one block: all chunks of a block run before the next
 * one. An addition moves up to the op that it joins, so its other operand has to exist by then. Parts of a
 * matrix that are context (sliced sequences) stay separate values.
 *
 * The pass runs before differentiation, so the gradient is that of the fused op.
 */
#include <string.h>

#include "graph/internal.h"

typedef struct fusion {
    sl_graph *graph;
    int32_t *maker;   /* by value: the node that makes it; -1: none */
    int32_t *readers; /* by value: operands */
    sl_value *same;   /* by value: its replacement */
    uint8_t *removed; /* by node */
} fusion;

/* The node that made `value`, if it is of the same block and `value` is made for one reader alone. */
static sl_node *only_maker(const fusion *f, const sl_node *reader, sl_value value)
{
    if (value == SL_NO_VALUE || f->maker[value] < 0 || f->readers[value] != 1)
        return NULL;
    sl_node *maker = &f->graph->nodes[f->maker[value]];
    return maker->block == reader->block ? maker : NULL;
}

/* An op that can add `other` to what it makes of `value`: the one that made it, or the one that made what that adds already. */
static sl_node *adder(const fusion *f, const sl_node *reader, sl_value value, sl_value other)
{
    for (sl_node *maker; (maker = only_maker(f, reader, value)) != NULL; reader = maker) {
        const int k = sl_op(maker->op)->adds_in;
        if (k == 0 || maker->out[0] != value || f->maker[other] >= f->maker[value])
            return NULL;
        if (maker->in[k] == SL_NO_VALUE)
            return maker;
        value = maker->in[k];
    }
    return NULL;
}

/* Fuses the addition into the op that made one of its operands. */
static bool absorb(fusion *f, const sl_node *add)
{
    for (int side = 0; side < 2; side++) {
        const sl_value sum = add->in[side], other = add->in[1 - side];
        sl_node *maker = adder(f, add, sum, other);
        if (!maker)
            continue;
        maker->in[sl_op(maker->op)->adds_in] = other;
        f->same[add->out[0]] = sum;
        f->readers[sum] = f->readers[add->out[0]];
        return true;
    }
    return false;
}

/* Passes the whole matrix to a node whose operands are its parts. */
static void join(fusion *f, sl_node *node, int k)
{
    const sl_node *split = only_maker(f, node, node->in[0]);
    if (!split || only_maker(f, node, node->in[k]) != split || f->graph->sliced || !sl_op(split->op)->splits ||
        !sl_op(split->op)->splits(&split->attrs) || split->out[0] != node->in[0] || split->out[1] != node->in[k])
        return;
    f->removed[split - f->graph->nodes] = 1;
    node->in[0] = split->in[0];
    node->in[k] = SL_NO_VALUE;
}

static void count(fusion *f)
{
    const sl_graph *graph = f->graph;
    for (sl_value v = 0; v < graph->n_values; v++)
        f->maker[v] = -1, f->same[v] = v;
    for (int32_t i = 0; i < graph->n_nodes; i++) {
        const sl_node *node = &graph->nodes[i];
        for (int k = 0; k < node->n_in; k++)
            if (node->in[k] != SL_NO_VALUE)
                f->readers[node->in[k]]++;
        for (int k = 0; k < node->n_out; k++)
            if (node->out[k] != SL_NO_VALUE)
                f->maker[node->out[k]] = i;
    }
}

sl_status sl_graph_fuse(sl_graph *graph)
{
    fusion f = {.graph = graph};
    SL_TRY(sl_region_alloc(graph->region, &f.maker, graph->n_values, sizeof *f.maker));
    SL_TRY(sl_region_alloc(graph->region, &f.readers, graph->n_values, sizeof *f.readers));
    SL_TRY(sl_region_alloc(graph->region, &f.same, graph->n_values, sizeof *f.same));
    SL_TRY(sl_region_alloc(graph->region, &f.removed, graph->n_nodes, sizeof *f.removed));
    count(&f);
    for (int32_t i = 0; i < graph->n_nodes; i++) {
        sl_node *node = &graph->nodes[i];
        const sl_op_def *def = sl_op(node->op);
        for (int k = 0; k < node->n_in; k++)
            if (node->in[k] != SL_NO_VALUE)
                node->in[k] = f.same[node->in[k]];
        if (def->role == SL_ROLE_ADD)
            f.removed[i] = absorb(&f, node);
        if (def->joined_in)
            join(&f, node, def->joined_in);
    }
    sl_graph_remove_nodes(graph, f.removed);
    return SL_OK;
}
