/*
 * The family of models that an embedding program builds itself: calls it back and checks what it left behind.
 * Differentiation expects a graph in which everything leads to a loss, as our own families write it; here it is made
 * sure.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/sized.h"
#include "model/internal.h"

/* From the losses back: every op and every parameter must be on the way. */
static sl_status check_use(const sl_graph *graph)
{
    uint8_t *reached;
    SL_TRY(sl_region_alloc(graph->region, &reached, graph->n_values, sizeof *reached));
    for (int32_t i = graph->n_nodes - 1; i >= 0; i--) {
        const sl_node *node = &graph->nodes[i];
        bool used = sl_op(node->op)->yields_loss;
        for (int k = 0; k < node->n_out; k++)
            used |= node->out[k] != SL_NO_VALUE && reached[node->out[k]];
        if (!used)
            return sl_fail(SL_E_USAGE, "nothing that leads to a loss uses the result of %s", node->name);
        for (int k = 0; k < node->n_in; k++)
            if (node->in[k] != SL_NO_VALUE)
                reached[node->in[k]] = 1;
    }
    for (sl_value v = 0; v < graph->n_values; v++)
        if (graph->values[v].class == SL_VALUE_PARAMETER && !reached[v])
            return sl_fail(SL_E_USAGE, "parameter %s is not used", graph->values[v].name);
    return SL_OK;
}

static sl_status finish(const sl_builder *b)
{
    const sl_graph *graph = b->graph;
    if (!graph->n_losses)
        return sl_fail(SL_E_USAGE, "there is no loss: end with sl_build_loss");
    if (!graph->n_params)
        return sl_fail(SL_E_USAGE, "there is no parameter");
    return check_use(graph);
}

/* What a callback returns by itself is its own; everything else is a mistake in what it built. */
static sl_status build(const sl_model *model, sl_graph *graph, sl_value *loss)
{
    static _Atomic uint32_t graphs;
    sl_builder b = {.model = model, .graph = graph, .id = atomic_fetch_add(&graphs, 1) + 1};
    sl_status status = model->custom(model->custom_user, &b);
    if (b.status == SL_OK && status != SL_OK)
        return status;
    if (b.status == SL_OK)
        b.status = finish(&b);
    *loss = SL_NO_VALUE; /* they are known to the graph */
    if (b.status == SL_OK || b.status == SL_E_MEMORY)
        return b.status;
    return sl_fail_at(b.status == SL_E_INTERNAL ? SL_E_USAGE : b.status, "model %s", model->name);
}

static sl_status check_text(const char *what, const char *text, size_t size)
{
    size_t length = text ? strlen(text) : 0;
    if (length < 1 || length >= size)
        return sl_fail(SL_E_USAGE, "the %s of sl_model_def has %zu bytes: give it 1 to %zu", what, length, size - 1);
    return SL_OK;
}

sl_status sl_model_of(const sl_model_def *caller, sl_model *out)
{
    sl_model_def def;
    SL_TRY(sl_sized_get(&def, caller, sizeof def, "sl_model_def"));
    SL_TRY(check_text("name", def.name, sizeof out->name));
    SL_TRY(check_text("identity", def.identity, sizeof out->identity));
    if (!def.build)
        return sl_fail(SL_E_USAGE, "sl_model_def needs a callback, `build`");
    if (def.vocab < 1 || def.vocab > INT32_MAX || def.max_seqlen < 0 || def.max_seqlen > INT32_MAX)
        return sl_fail(SL_E_USAGE, "sl_model_def has %lld tokens and %lld positions: give 1 to 2^31 - 1, and 0 to that",
                       (long long) def.vocab, (long long) def.max_seqlen);
    *out = (sl_model){.family = &sl_family_custom,
                      .custom = def.build,
                      .custom_user = def.user,
                      .vocab = def.vocab,
                      .max_seqlen = def.max_seqlen};
    snprintf(out->name, sizeof out->name, "%s", def.name);
    snprintf(out->identity, sizeof out->identity, "%s", def.identity);
    return SL_OK;
}

sl_status sl_model_count(sl_model *model, int64_t tokens, int64_t max_segments)
{
    sl_graph_config config = {.tokens = tokens, .max_segments = max_segments, .dtype = SL_F32};
    sl_graph *graph;
    if (!model->custom)
        return SL_OK;
    SL_TRY(sl_graph_create(&config, &graph));
    sl_status status = sl_model_build(model, graph);
    model->n_parameters = 0;
    for (int32_t p = 0; p < graph->n_params && status == SL_OK; p++)
        model->n_parameters += sl_type_count(&graph->params[p].type);
    sl_graph_destroy(graph);
    return status;
}

static int64_t parameters(const sl_model *model)
{
    return model->n_parameters;
}

/* A config.json that tells people, and readers that look for a family, what this is. */
static void write_config(const sl_model *model, void *json_writer)
{
    sl_json_writer *w = json_writer;
    sl_json_put_string(w, "model_type", "custom");
    sl_json_put_string(w, "name", model->name);
    sl_json_put_string(w, "identity", model->identity);
    sl_json_put_i64(w, "vocab_size", model->vocab);
}

const sl_model_family sl_family_custom = {
    .name = "custom", .build = build, .write_config = write_config, .parameters = parameters};
