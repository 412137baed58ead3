/*
 * The graphs that a program repeats: one for full chunks, one for a shorter last chunk. The model makes them once. Programs derived from
 * one share them, and a pass over a graph makes a copy, so that what the model made stays as it is.
 */
#include <string.h>

#include "program/internal.h"

static sl_status build_graph(const builder *b, const sl_chunk *chunk, sl_graph_builder build, void *context,
                             sl_graph **graph)
{
    const sl_program_config *config = &b->program->config;
    sl_graph_config graph_config = {.tokens = chunk->tokens,
                                    .samples = chunk->n_sequences,
                                    .max_segments = config->max_segments,
                                    .dtype = b->dtype,
                                    .frozen = config->frozen,
                                    .training = !config->forward_only,
                                    .cache_rows = config->cache_rows,
                                    .sliced = b->sliced,
                                    .token_weights = config->token_weights};
    SL_TRY(sl_graph_create(&graph_config, graph));
    return build(context, *graph);
}

static sl_status build_graphs(const builder *b, sl_graph_builder build, void *context, sl_graph *graph[VARIANTS])
{
    const sl_program *p = b->program;
    int32_t last = p->n_chunks - 1;
    SL_TRY(build_graph(b, &p->chunks[0], build, context, &graph[0]));
    if (b->variant[last])
        SL_TRY(build_graph(b, &p->chunks[last], build, context, &graph[1]));
    const sl_graph *full = graph[0], *tail = graph[1];
    if (tail && (tail->n_nodes != full->n_nodes || tail->n_values != full->n_values))
        return sl_fail(SL_E_INTERNAL, "the model's graph has another shape for %lld tokens than for %lld",
                       (long long) tail->tokens, (long long) full->tokens);
    return SL_OK;
}

static void use_graphs(builder *b, sl_graph *const graph[VARIANTS])
{
    sl_program *p = b->program;
    const sl_graph *full = graph[0];
    memcpy(b->graph, graph, sizeof b->graph);
    b->n_values = full->n_values;
    b->n_nodes = full->n_nodes;
    p->groups = full->groups;
    p->n_groups = full->n_groups;
    p->params = full->params;
    p->n_params = full->n_params;
    p->losses = full->losses;
    p->n_losses = full->n_losses;
    p->blocks = full->blocks;
    p->n_blocks = full->n_blocks;
}

sl_status sl_program_find_graphs(builder *b, sl_program_owner *owner, const program_source *source)
{
    sl_graph *const *graph;
    if (source->base) {
        owner->graphs = ((const sl_program_owner *) source->base)->graphs;
        atomic_fetch_add(&owner->graphs->users, 1);
    } else {
        SL_TRY(sl_alloc(&owner->graphs, 1, sizeof *owner->graphs));
        atomic_init(&owner->graphs->users, 1);
        SL_TRY(build_graphs(b, source->build, source->context, owner->graphs->graph));
    }
    graph = owner->graphs->graph;
    if (b->program->config.rematerialize) {
        for (int v = 0; v < VARIANTS; v++)
            if (graph[v])
                SL_TRY(sl_graph_rematerialize(graph[v], &owner->passed[v]));
        graph = owner->passed;
    }
    use_graphs(b, graph);
    return SL_OK;
}

void sl_program_release_graphs(sl_program_owner *owner)
{
    for (int v = 0; v < VARIANTS; v++)
        sl_graph_destroy(owner->passed[v]);
    if (!owner->graphs || atomic_fetch_sub(&owner->graphs->users, 1) > 1)
        return;
    for (int v = 0; v < VARIANTS; v++)
        sl_graph_destroy(owner->graphs->graph[v]);
    sl_free(owner->graphs);
}
