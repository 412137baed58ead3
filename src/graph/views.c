/*
 * Views: values that share other values' bytes. An op whose output is a contiguous part of its input (`view` of its descriptor)
 * need not run. Its output gets the input's storage and an offset, and its node is removed:
 *
 *     h [n, 4e]  -- reshape -->  h' [4n, e]        h' shares h's bytes: no task, no object, nothing to keep, move or recompute
 *
 * The pass runs after differentiation, which treats such ops like all others: reshape passes its gradient on, and the gradient
 * of a slice is added at its offset. Only forward values become views. They are written once, so a view's bytes never change,
 * while gradients accumulate. Context is excluded, because an operand of a sliced sequence is different rows of it in each chunk.
 * A view begins at a multiple of the alignment that kernels require; otherwise the op copies. Columns of a matrix are copied too,
 * because operands are dense.
 */
#include "graph/internal.h"

enum { VIEW_ALIGN = 256 };

static bool may_be_viewed(const sl_graph *graph, sl_value value)
{
    const sl_graph_value *of = &graph->values[value];
    return of->gradient_of == SL_NO_VALUE &&
           (of->class == SL_VALUE_ACTIVATION || of->class == SL_VALUE_PARAMETER || of->class == SL_VALUE_INPUT);
}

/* The offset at which the node's output lies in its input, or -1. */
static int64_t offset_of(const sl_graph *graph, const sl_node *node)
{
    const sl_op_def *def = sl_op(node->op);
    if (!def->view || node->accumulate || !may_be_viewed(graph, node->in[0]) || !may_be_viewed(graph, node->out[0]))
        return -1;
    int64_t offset = def->view(&node->attrs, &graph->values[node->in[0]].type);
    return offset % VIEW_ALIGN == 0 ? offset : -1;
}

sl_status sl_graph_make_views(sl_graph *graph)
{
    uint8_t *removed;
    SL_TRY(sl_region_alloc(graph->region, &removed, graph->n_nodes, sizeof *removed));
    for (int32_t i = 0; i < graph->n_nodes; i++) {
        int64_t offset = offset_of(graph, &graph->nodes[i]);
        if (offset < 0)
            continue;
        const sl_graph_value *of = &graph->values[graph->nodes[i].in[0]];
        sl_graph_value *view = &graph->values[graph->nodes[i].out[0]];
        view->storage = of->storage;
        view->offset = of->offset + (size_t) offset;
        view->is_view = true;
        removed[i] = 1;
    }
    sl_graph_remove_nodes(graph, removed);
    return SL_OK;
}
