/*
 * Frozen parameters. They have no gradient, no optimizer state and no update, so a step only reads them. States belong to whole groups;
 * a group with both kinds is therefore cut in two:
 *
 *     layers.3.mlp:  norm, gate_up (frozen), down     ->     layers.3.mlp:  norm, down     layers.3.mlp.frozen:  gate_up
 *
 * Without frozen parameters nothing changes. Only this file knows patterns: a model file or another builder of a graph may set
 * sl_param.frozen directly.
 */
#include <fnmatch.h>
#include <string.h>

#include "core/text.h"
#include "graph/internal.h"

enum { PATTERN_BYTES = 256 };

bool sl_graph_freezes(const sl_graph *graph, const char *name)
{
    char pattern[PATTERN_BYTES];
    for (const char *list = graph->frozen; sl_next_item(&list, pattern, sizeof pattern);)
        if (fnmatch(pattern, name, 0) == 0)
            return true;
    return false;
}

static bool matches_any(const sl_graph *graph, const char *pattern)
{
    for (int32_t p = 0; p < graph->n_params; p++)
        if (fnmatch(pattern, graph->params[p].name, 0) == 0)
            return true;
    return false;
}

static sl_status check_patterns(const sl_graph *graph)
{
    char pattern[PATTERN_BYTES];
    for (const char *list = graph->frozen; sl_next_item(&list, pattern, sizeof pattern);)
        if (!matches_any(graph, pattern))
            return sl_fail(
                SL_E_USAGE,
                "no parameter to freeze is called \"%s\"; the model's are called %s ... %s, and * stands for "
                "any characters",
                pattern, graph->params[0].name, graph->params[graph->n_params - 1].name);
    return SL_OK;
}

/* Appends the group's parameters of one kind, if there are any, to the new arrays. */
static sl_status take(sl_graph *graph, const sl_param_group *from, bool frozen, sl_param *params,
                      sl_param_group *groups, int32_t *n_params, int32_t *n_groups, int32_t *moved)
{
    sl_param_group to = {.name = from->name, .first_param = *n_params, .frozen = frozen};
    for (int32_t p = from->first_param; p < from->first_param + from->n_params; p++)
        if (graph->params[p].frozen == frozen) {
            moved[p] = (*n_params)++;
            params[moved[p]] = graph->params[p];
            params[moved[p]].group_index = *n_groups;
            to.n_params++;
        }
    if (to.n_params == 0)
        return SL_OK;
    if (frozen && to.n_params < from->n_params)
        SL_TRY(sl_region_printf(graph->region, &to.name, "%s.frozen", from->name));
    for (int32_t p = to.first_param; p < *n_params; p++)
        params[p].group = to.name;
    groups[(*n_groups)++] = to;
    return SL_OK;
}

sl_status sl_graph_split_frozen(sl_graph *graph)
{
    sl_param *params;
    sl_param_group *groups;
    int32_t n_params = 0, n_groups = 0, n_frozen = 0, *moved;
    SL_TRY(check_patterns(graph));
    for (int32_t p = 0; p < graph->n_params; p++)
        n_frozen += graph->params[p].frozen;
    if (n_frozen == 0)
        return SL_OK;
    if (n_frozen == graph->n_params && graph->training)
        return sl_fail(SL_E_USAGE, "all %d parameters are frozen; leave at least one to train", n_frozen);
    SL_TRY(sl_region_alloc(graph->region, &params, graph->n_params, sizeof *params));
    SL_TRY(sl_region_alloc(graph->region, &groups, 2 * graph->n_groups, sizeof *groups));
    SL_TRY(sl_region_alloc(graph->region, &moved, graph->n_params, sizeof *moved));
    for (int32_t g = 0; g < graph->n_groups; g++)
        for (int frozen = 0; frozen <= 1; frozen++)
            SL_TRY(take(graph, &graph->groups[g], frozen, params, groups, &n_params, &n_groups, moved));
    for (sl_value v = 0; v < graph->n_values; v++)
        if (graph->values[v].class == SL_VALUE_PARAMETER)
            graph->values[v].param = moved[graph->values[v].param];
    graph->params = params;
    graph->groups = groups;
    graph->n_groups = n_groups;
    graph->capacity_params = graph->n_params;
    graph->capacity_groups = 2 * n_groups;
    return SL_OK;
}
