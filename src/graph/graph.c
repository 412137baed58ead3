/*
 * Building a graph. Values and nodes are numbered in the order they are made, which is the order things run: node i reads only
 * values made by nodes before it, so no sorting is ever needed. Arrays grow by doubling inside the graph's region; the
 * abandoned copies take at most the same memory again and are freed with the region.
 */
#include "graph/graph.h"

#include <math.h>
#include <string.h>

#include "graph/internal.h"

const char *sl_phase_name(sl_phase phase)
{
    static const char *const names[] = {"forward", "backward", "optimizer"};
    return names[phase];
}

sl_status sl_graph_create(const sl_graph_config *config, sl_graph **out)
{
    sl_region *region;
    sl_graph *graph;
    if (config->tokens < 1 || config->max_segments < 1)
        return sl_fail(SL_E_USAGE, "a chunk needs at least one token and one segment, not %lld and %lld",
                       (long long) config->tokens, (long long) config->max_segments);
    SL_TRY(sl_region_create(&region));
    sl_status status = sl_region_alloc(region, &graph, 1, sizeof *graph);
    if (status != SL_OK) {
        sl_region_destroy(region);
        return status;
    }
    graph->region = region;
    graph->tokens = config->tokens;
    graph->samples = SL_MAX(config->samples, 1);
    graph->max_segments = config->max_segments;
    graph->dtype = config->dtype;
    graph->frozen = config->frozen;
    graph->training = config->training;
    graph->sliced = config->sliced;
    graph->cache_rows = config->cache_rows;
    graph->token_weights = config->token_weights;
    for (int kind = 0; kind < SL_INPUT_COUNT; kind++)
        graph->inputs[kind] = SL_NO_VALUE;
    *out = graph;
    return SL_OK;
}

void sl_graph_destroy(sl_graph *graph)
{
    if (graph)
        sl_region_destroy(graph->region);
}

static sl_status grow(sl_graph *graph, void **array, int32_t count, int32_t *capacity, size_t size)
{
    void *larger;
    int32_t wanted = *capacity ? *capacity * 2 : 64;
    if (count < *capacity)
        return SL_OK;
    SL_TRY(sl_region_alloc(graph->region, &larger, wanted, size));
    if (count)
        memcpy(larger, *array, (size_t) count * size);
    *array = larger;
    *capacity = wanted;
    return SL_OK;
}
#define GROW(graph, array) \
    grow((graph), (void **) &(graph)->array, (graph)->n_##array, &(graph)->capacity_##array, sizeof *(graph)->array)

sl_status sl_graph_add_value(sl_graph *graph, const char *name, sl_value_class class, const sl_type *type,
                             sl_value *out)
{
    SL_TRY(GROW(graph, values));
    sl_value index = graph->n_values;
    sl_graph_value *value = &graph->values[index];
    *value = (sl_graph_value){
        .class = class, .type = *type, .param = -1, .gradient_of = SL_NO_VALUE, .loss = -1, .storage = index};
    value->block = graph->n_blocks - 1;
    SL_TRY(sl_region_strdup(graph->region, name, &value->name));
    graph->n_values++;
    *out = index;
    return SL_OK;
}

sl_status sl_graph_add_node(sl_graph *graph, const sl_node *node)
{
    SL_TRY(GROW(graph, nodes));
    graph->nodes[graph->n_nodes++] = *node;
    return SL_OK;
}

sl_status sl_graph_begin_block(sl_graph *graph, const char *name)
{
    SL_TRY(GROW(graph, blocks));
    sl_block *block = &graph->blocks[graph->n_blocks];
    *block = (sl_block){.first_forward = graph->n_nodes};
    SL_TRY(sl_region_strdup(graph->region, name, &block->name));
    graph->n_blocks++;
    return SL_OK;
}

static sl_type input_type(const sl_graph *graph, const sl_input_def *def, const int64_t *extents, int n_extents)
{
    const int64_t rows[] = {[SL_ROWS_TOKENS] = graph->tokens,
                            [SL_ROWS_SAMPLES] = graph->samples,
                            [SL_ROWS_BOUNDS] = graph->max_segments + 1,
                            [SL_ROWS_STEP] = SL_STEP_WORDS};
    sl_type type = {.dtype = def->dtype, .rank = 1 + n_extents, .dim = {rows[def->rows]}};
    for (int i = 0; i < n_extents; i++)
        type.dim[1 + i] = extents[i];
    return type;
}

sl_status sl_graph_input_of(sl_graph *graph, sl_input_kind kind, const int64_t *extents, int n_extents, sl_value *out)
{
    const sl_input_def *def = sl_input_of(kind);
    int64_t count = 1;
    bool good = n_extents >= def->least_extents && n_extents <= def->most_extents;
    for (int i = 0; good && i < n_extents; i++)
        good = extents[i] >= 1 && !__builtin_mul_overflow(count, extents[i], &count) && count <= INT64_C(1) << 40;
    if (!good)
        return sl_fail(SL_E_USAGE, "input %s: a row has %d to %d dimensions of at least 1 and 2^40 elements at most",
                       def->name, def->least_extents, def->most_extents);
    sl_type type = input_type(graph, def, extents, n_extents);
    sl_value value = graph->inputs[kind];
    if (value != SL_NO_VALUE && memcmp(&graph->values[value].type, &type, sizeof type) != 0)
        return sl_fail(SL_E_USAGE, "input %s is read twice, with rows of other dimensions", def->name);
    if (value == SL_NO_VALUE) {
        SL_TRY(sl_graph_add_value(graph, def->name, SL_VALUE_INPUT, &type, &value));
        graph->values[value].input = kind;
        graph->inputs[kind] = value;
    }
    *out = value;
    return SL_OK;
}

sl_status sl_graph_input(sl_graph *graph, sl_input_kind kind, sl_value *out)
{
    return sl_graph_input_of(graph, kind, NULL, 0, out);
}

static int32_t count_removed(const uint8_t *removed, int32_t first, int32_t count)
{
    int32_t sum = 0;
    for (int32_t i = first; i < first + count; i++)
        sum += removed[i];
    return sum;
}

void sl_graph_remove_nodes(sl_graph *graph, const uint8_t *removed)
{
    int32_t kept = 0;
    for (int32_t b = graph->n_blocks - 1; b >= 0; b--) {
        sl_block *block = &graph->blocks[b];
        block->n_forward -= count_removed(removed, block->first_forward, block->n_forward);
        block->n_backward -= count_removed(removed, block->first_backward, block->n_backward);
        block->first_forward -= count_removed(removed, 0, block->first_forward);
        block->first_backward -= count_removed(removed, 0, block->first_backward);
    }
    for (int32_t i = 0; i < graph->n_nodes; i++)
        if (!removed[i])
            graph->nodes[kept++] = graph->nodes[i];
    graph->n_nodes = kept;
}

/* ---- parameters ---- */

static sl_status find_group(sl_graph *graph, const char *name, int32_t *out)
{
    if (graph->n_groups && strcmp(graph->groups[graph->n_groups - 1].name, name) == 0) {
        *out = graph->n_groups - 1;
        return SL_OK;
    }
    for (int32_t g = 0; g < graph->n_groups; g++)
        if (strcmp(graph->groups[g].name, name) == 0)
            return sl_fail(SL_E_INTERNAL,
                           "parameter group %s is declared in two places; its parameters must follow each other", name);
    SL_TRY(GROW(graph, groups));
    sl_param_group *group = &graph->groups[graph->n_groups];
    *group = (sl_param_group){.first_param = graph->n_params};
    SL_TRY(sl_region_strdup(graph->region, name, &group->name));
    *out = graph->n_groups++;
    return SL_OK;
}

static sl_status copy_param(sl_graph *graph, const sl_param *from, sl_param *to)
{
    *to = *from;
    to->type.dtype = graph->dtype;
    SL_TRY(sl_region_strdup(graph->region, from->name, &to->name));
    for (int i = 0; i < from->n_parts; i++)
        SL_TRY(sl_region_strdup(graph->region, from->parts[i].name, &to->parts[i].name));
    return SL_OK;
}

/* The value of a parameter declared before, or SL_NO_VALUE. Only tied parameters are looked up twice. */
static sl_value known_param(const sl_graph *graph, const char *name)
{
    int32_t param = 0;
    while (param < graph->n_params && strcmp(graph->params[param].name, name) != 0)
        param++;
    for (sl_value v = 0; v < graph->n_values && param < graph->n_params; v++)
        if (graph->values[v].class == SL_VALUE_PARAMETER && graph->values[v].param == param)
            return v;
    return SL_NO_VALUE;
}

sl_status sl_graph_param(sl_graph *graph, const sl_param *param, sl_value *out)
{
    int32_t group = 0;
    sl_value value = known_param(graph, param->name);
    if (value != SL_NO_VALUE) {
        *out = value;
        return SL_OK;
    }
    SL_TRY(GROW(graph, params));
    SL_TRY(find_group(graph, param->group, &group));
    sl_param *copy = &graph->params[graph->n_params];
    SL_TRY(copy_param(graph, param, copy));
    copy->group = graph->groups[group].name;
    copy->group_index = group;
    copy->frozen = param->frozen || sl_graph_freezes(graph, param->name);
    SL_TRY(sl_graph_add_value(graph, param->name, SL_VALUE_PARAMETER, &copy->type, &value));
    graph->values[value].param = graph->n_params++;
    graph->groups[group].n_params++;
    *out = value;
    return SL_OK;
}

/* ---- ops ---- */

/* Further outputs get a number: "layers.3.attention" and "layers.3.attention.1". */
static sl_status add_output(sl_graph *graph, const sl_node *node, int k, const sl_type *type, sl_value *out)
{
    const char *name = node->name;
    const sl_op_def *def = sl_op(node->op);
    bool context = def->makes_context >> k & 1u, cache = def->makes_cache >> k & 1u;
    sl_value_class class = def->yields_loss               ? SL_VALUE_LOSS
                           : def->yields_result && k == 0 ? SL_VALUE_RESULT
                           : cache                        ? SL_VALUE_CACHE
                           : context                      ? SL_VALUE_CONTEXT
                                                          : SL_VALUE_ACTIVATION;
    if (k > 0)
        SL_TRY(sl_region_printf(graph->region, &name, cache ? "%s.cache" : context ? "%s.kv" : "%s.%d", node->name, k));
    return sl_graph_add_value(graph, name, class, type, out);
}

sl_status sl_graph_op(sl_graph *graph, sl_op_id op, const char *name, const sl_attrs *attrs, const sl_value *in,
                      int n_in, sl_value *out)
{
    const sl_op_def *def = sl_op(op);
    sl_type in_type[SL_MAX_IN] = {0}, out_type[SL_MAX_OUT] = {0};
    sl_node node = {.op = op, .n_in = def->n_in, .n_out = def->n_out, .block = graph->n_blocks - 1};
    SL_ASSERT(graph->n_blocks > 0 && n_in <= def->n_in);
    for (int i = 0; i < SL_MAX_IN; i++)
        node.in[i] = i < n_in ? in[i] : SL_NO_VALUE;
    for (int i = 0; i < n_in; i++)
        if (in[i] != SL_NO_VALUE)
            in_type[i] = graph->values[in[i]].type;
    if (attrs)
        node.attrs = *attrs;
    SL_TRY(sl_region_strdup(graph->region, name, &node.name));
    sl_status status = def->infer(&node.attrs, in_type, out_type);
    if (status != SL_OK)
        return sl_fail_at(status, "%s", name);
    for (int k = 0; k < SL_MAX_OUT; k++) {
        node.out[k] = SL_NO_VALUE;
        if (k < def->n_out && out_type[k].rank)
            SL_TRY(add_output(graph, &node, k, &out_type[k], &node.out[k]));
    }
    SL_TRY(sl_graph_add_node(graph, &node));
    graph->blocks[graph->n_blocks - 1].n_forward++;
    memcpy(out, node.out, (size_t) def->n_out * sizeof *out);
    return SL_OK;
}

sl_status sl_graph_constants(sl_graph *graph, const float *values, int64_t count)
{
    float *copy;
    SL_ASSERT(graph->n_nodes > 0);
    SL_TRY(sl_region_alloc(graph->region, &copy, count, sizeof *copy));
    memcpy(copy, values, (size_t) count * sizeof *copy);
    graph->nodes[graph->n_nodes - 1].constants = copy;
    return SL_OK;
}

/* ---- losses ---- */

static sl_node *node_of_loss(const sl_graph *graph, sl_value value)
{
    for (int32_t i = 0; i < graph->n_nodes; i++)
        if (sl_op(graph->nodes[i].op)->yields_loss && graph->nodes[i].out[0] == value)
            return &graph->nodes[i];
    return NULL;
}

/* A step counts targets and their weights before it runs, so they must be inputs. */
static bool is_input(const sl_graph *graph, sl_value value)
{
    return value != SL_NO_VALUE && graph->values[value].class == SL_VALUE_INPUT;
}

sl_status sl_graph_loss(sl_graph *graph, sl_value value, double weight, const char *name)
{
    sl_node *node = node_of_loss(graph, value);
    const sl_op_def *def = node ? sl_op(node->op) : NULL;
    if (!node || graph->values[value].loss >= 0 || graph->n_losses == SL_MAX_LOSSES || !isfinite(weight))
        return sl_fail(
            SL_E_USAGE,
            "loss %s of weight %g: a model has at most %d, each given once, the result of an op that yields one", name,
            weight, SL_MAX_LOSSES);
    sl_value targets = node->in[def->loss_targets], weights = node->in[def->loss_weights];
    if (!is_input(graph, targets) || (weights != SL_NO_VALUE && !is_input(graph, weights)))
        return sl_fail(SL_E_USAGE, "loss %s: its targets and weights must be inputs, so that a step can count them",
                       name);
    sl_loss *loss = &graph->losses[graph->n_losses];
    *loss = (sl_loss){.weight = weight, .value = value, .targets = graph->values[targets].input, .weights = -1};
    if (graph->sliced && sl_input_of(loss->targets)->scope != SL_PER_CHUNK)
        return sl_fail(SL_E_USAGE, "loss %s has a target for each sequence: use chunks of whole sequences", name);
    if (weights != SL_NO_VALUE)
        loss->weights = (int32_t) graph->values[weights].input;
    SL_TRY(sl_region_strdup(graph->region, name, &loss->name));
    def->number_loss(&node->attrs, graph->n_losses);
    graph->values[value].loss = graph->n_losses++;
    return SL_OK;
}

sl_status sl_graph_finish(sl_graph *graph, sl_value loss)
{
    const sl_node *last = graph->n_nodes ? &graph->nodes[graph->n_nodes - 1] : NULL;
    const bool result = last && sl_op(last->op)->yields_result;
    if (loss != SL_NO_VALUE && !result)
        SL_TRY(sl_graph_loss(graph, loss, 1, "loss"));
    for (sl_value v = 0; v < graph->n_values; v++)
        if (graph->values[v].class == SL_VALUE_LOSS && graph->values[v].loss < 0)
            return sl_fail(SL_E_INTERNAL, "%s is a loss without a weight", graph->values[v].name);
    if ((graph->training || graph->cache_rows == 0 || !result) && (!last || !sl_op(last->op)->yields_loss))
        return sl_fail(SL_E_INTERNAL, "a loss must be the last thing a model computes");
    SL_TRY(sl_graph_fuse(graph));
    SL_TRY(sl_graph_split_frozen(graph));
    SL_TRY(sl_graph_layout(graph));
    sl_graph_find_matrices(graph);
    if (graph->training)
        SL_TRY(sl_graph_differentiate(graph));
    return sl_graph_make_views(graph);
}
