/*
 * A parameter group as one flat buffer:
 *
 *     | decayed parameter | pad | decayed parameter | pad | undecayed parameter | pad | ...
 *       ^ 256 bytes             ^ 256 bytes               ^ groups[g].decayed elements
 *
 * Decayed parameters come first so that one number tells an update where decay ends. The alignment is the devices' own;
 * gradients, moments and master weights use the same element offsets. Everything is computed with overflow checks, since the
 * dimensions may come from an untrusted config.json.
 *
 * This file also determines which parameters are matrices between activations.
 */
#include "graph/internal.h"

enum { PARAM_ALIGN = 256 };

static sl_status place(const sl_graph *graph, sl_param *param, int64_t *end)
{
    int64_t count = 1, align = PARAM_ALIGN / (int64_t) sl_dtype_bytes(graph->dtype), padded;
    bool overflow = false;
    for (int32_t i = 0; i < param->type.rank; i++)
        overflow |= __builtin_mul_overflow(count, param->type.dim[i], &count);
    overflow |= __builtin_add_overflow(count, align - 1, &padded);
    padded = padded / align * align;
    param->offset = (size_t) *end * sl_dtype_bytes(graph->dtype);
    overflow |= __builtin_add_overflow(*end, padded, end);
    if (overflow || *end > INT64_MAX / 16)
        return sl_fail(SL_E_USAGE, "parameter group %s is too large to be addressed", param->group);
    return SL_OK;
}

sl_status sl_graph_layout(sl_graph *graph)
{
    for (int32_t g = 0; g < graph->n_groups; g++) {
        sl_param_group *group = &graph->groups[g];
        int64_t end = 0;
        for (int decay = 1; decay >= 0; decay--) {
            for (int32_t p = group->first_param; p < group->first_param + group->n_params; p++)
                if (graph->params[p].decay == (decay == 1))
                    SL_TRY(place(graph, &graph->params[p], &end));
            if (decay)
                group->decayed = end;
        }
        group->count = end;
    }
    return SL_OK;
}

/* Is the value a matrix between activations to every node that reads it, or a part of it? An embedding's rows are looked up, and a head's
 * are multiplied by a loss, so neither is. */
static bool maps_everywhere(const sl_graph *graph, sl_value value)
{
    for (int32_t i = 0; i < graph->n_nodes; i++) {
        const sl_node *node = &graph->nodes[i];
        for (int k = 0; k < node->n_in; k++)
            if (node->in[k] == value && !(sl_op(node->op)->maps_in >> k & 1u) &&
                !(k == 0 && sl_op(node->op)->view && maps_everywhere(graph, node->out[0])))
                return false;
    }
    return true;
}

void sl_graph_find_matrices(sl_graph *graph)
{
    for (sl_value v = 0; v < graph->n_values; v++) {
        const sl_graph_value *value = &graph->values[v];
        if (value->class == SL_VALUE_PARAMETER)
            graph->params[value->param].matrix = value->type.rank == 2 && maps_everywhere(graph, v);
    }
}
