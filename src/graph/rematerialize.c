/*
 * Rematerialization in the backward: a backward that can also yields its forward's output (`rematerialized_out` of its op), and the
 * gradients of parameters that are matmuls with that output move behind this backward.
 *
 *     before    dW = x^T * swiglu(u)     du       = swiglu_bwd(dy, u)
 *     after     du, again = swiglu_bwd(dy, u)     dW = x^T * again
 *
 * The forward's own value then ends with the forward. It is neither kept nor recomputed by a separate task that reads all inputs again.
 * A pass over the finished graph, not a part of autodiff: whether it pays depends on budgets, so a planner compares both graphs.
 */
#include <string.h>

#include "graph/internal.h"

static bool shares_bytes(const sl_graph *graph, sl_value a, sl_value b)
{
    return a != SL_NO_VALUE && b != SL_NO_VALUE && graph->values[a].storage == graph->values[b].storage;
}

static bool uses_bytes(const sl_graph *graph, const sl_value *operands, int count, sl_value value)
{
    for (int k = 0; k < count; k++)
        if (shares_bytes(graph, operands[k], value))
            return true;
    return false;
}

static bool is_written_after(const sl_graph *graph, int32_t i, int32_t last, sl_value value)
{
    for (int32_t j = i + 1; j <= last; j++)
        if (uses_bytes(graph, graph->nodes[j].out, graph->nodes[j].n_out, value))
            return true;
    return false;
}

static bool is_used_after(const sl_graph *graph, int32_t last, sl_value value)
{
    for (int32_t j = last + 1; j < graph->n_nodes; j++)
        if (uses_bytes(graph, graph->nodes[j].in, graph->nodes[j].n_in, value) ||
            uses_bytes(graph, graph->nodes[j].out, graph->nodes[j].n_out, value))
            return true;
    return false;
}

/* Whether node i may move to the end: it reads `made`, produces only gradients of parameters, and no node in between writes these or its
 * inputs. `place`, which will hold `made`, counts too. */
static bool may_come_last(const sl_graph *graph, int32_t i, int32_t last, sl_value made, sl_value place)
{
    const sl_node *node = &graph->nodes[i];
    bool reads = false;
    for (int k = 0; k < node->n_out; k++)
        if (node->out[k] != SL_NO_VALUE && (graph->values[node->out[k]].class != SL_VALUE_PARAMETER_GRADIENT ||
                                            is_written_after(graph, i, last, node->out[k])))
            return false;
    for (int k = 0; k < node->n_in; k++) {
        if (shares_bytes(graph, node->in[k], place) || is_written_after(graph, i, last, node->in[k]))
            return false;
        reads |= node->in[k] == made;
    }
    return reads;
}

/* Node i becomes node `last`, and reads `again` for `made`. */
static void read_last(sl_graph *graph, int32_t i, int32_t last, sl_value made, sl_value again)
{
    sl_node node = graph->nodes[i];
    for (int k = 0; k < node.n_in; k++)
        if (node.in[k] == made)
            node.in[k] = again;
    memmove(&graph->nodes[i], &graph->nodes[i + 1], (size_t) (last - i) * sizeof node);
    graph->nodes[last] = node;
}

/* Node `last`, a backward that reads `gradient`, also yields the value to which the gradient belongs, as output k, if a later node can
 * use it. The output takes the memory of the gradient if nothing else reads that. */
static sl_status make_again(sl_graph *graph, int32_t last, int k, sl_value gradient)
{
    const sl_value made = graph->values[gradient].gradient_of;
    const sl_graph_value source = graph->values[made];
    const int32_t block = graph->nodes[last].block;
    sl_value again = SL_NO_VALUE;
    for (int32_t i = graph->blocks[block].first_backward, backward = last; i < backward;) {
        if (!may_come_last(graph, i, last, made, gradient)) {
            i++;
            continue;
        }
        if (again == SL_NO_VALUE) {
            const char *name;
            SL_TRY(sl_region_printf(graph->region, &name, "again.%s", source.name));
            SL_TRY(sl_graph_add_value(graph, name, SL_VALUE_ACTIVATION, &source.type, &again));
            graph->values[again].block = block;
            if (!is_used_after(graph, last, gradient))
                graph->values[again].storage = graph->values[gradient].storage;
            graph->nodes[backward].out[k] = again;
        }
        read_last(graph, i, last, made, again);
        backward--;
    }
    return SL_OK;
}

/* Nodes and values of its own; the rest is shared. */
static sl_status copy_graph(const sl_graph *graph, sl_graph **out)
{
    sl_region *region;
    sl_graph *copy;
    SL_TRY(sl_region_create(&region));
    sl_status status;
    SL_TRY_GOTO(sl_region_alloc(region, &copy, 1, sizeof *copy), destroy_region);
    *copy = *graph;
    copy->region = region;
    copy->capacity_nodes = copy->n_nodes;
    copy->capacity_values = copy->n_values;
    SL_TRY_GOTO(sl_region_alloc(region, &copy->nodes, copy->n_nodes, sizeof *copy->nodes), destroy_region);
    SL_TRY_GOTO(sl_region_alloc(region, &copy->values, copy->n_values, sizeof *copy->values), destroy_region);
    memcpy(copy->nodes, graph->nodes, (size_t) copy->n_nodes * sizeof *copy->nodes);
    memcpy(copy->values, graph->values, (size_t) copy->n_values * sizeof *copy->values);
    *out = copy;
    return SL_OK;
destroy_region:
    sl_region_destroy(region);
    return status;
}

sl_status sl_graph_rematerialize(const sl_graph *graph, sl_graph **out)
{
    sl_graph *copy;
    SL_TRY(copy_graph(graph, &copy));
    sl_status status = SL_OK;
    for (int32_t i = 0; i < copy->n_nodes && status == SL_OK; i++) {
        const sl_node *node = &copy->nodes[i];
        const int k = sl_op(node->op)->rematerialized_out;
        if (!k || node->phase != SL_PHASE_BACKWARD || node->out[k] != SL_NO_VALUE)
            continue;
        int of = 0;
        while (of < node->n_in &&
               (node->in[of] == SL_NO_VALUE || copy->values[node->in[of]].gradient_of == SL_NO_VALUE))
            of++;
        if (of < node->n_in)
            status = make_again(copy, i, k, node->in[of]);
    }
    if (status == SL_OK)
        *out = copy;
    else
        sl_graph_destroy(copy);
    return status;
}
