/* Finding, checking and counting models. Counts are closed formulas rather than a walk over a built graph, so that a test can
 * hold one against the other. */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/file.h"
#include "core/suggest.h"
#include "model/internal.h"

static sl_status no_such_model(const char *name)
{
    const sl_model *presets;
    int64_t count = sl_model_presets(&presets);
    const char *renamed = sl_model_renamed(name);
    if (renamed)
        return sl_fail(SL_E_USAGE, "no model \"%s\": %s", name, renamed);
    sl_suggestion suggestion = {.word = name};
    for (int64_t i = 0; i < count; i++)
        sl_suggest(&suggestion, presets[i].name);
    if (sl_suggested(&suggestion))
        return sl_fail(SL_E_USAGE,
                       "no model \"%s\": it is neither a preset nor a config.json or a folder with one; did you mean "
                       "\"%s\"? `sluice models` lists the presets",
                       name, sl_suggested(&suggestion));
    sl_text list = {0};
    for (int64_t i = 0; i < count; i++)
        sl_text_printf(&list, "%s%s", i ? ", " : "", presets[i].name);
    sl_status status = sl_fail(
        SL_E_USAGE, "no model \"%s\": it is neither a preset nor a config.json or a folder with one; presets are %s",
        name, list.data ? list.data : "");
    sl_text_free(&list);
    return status;
}

static const sl_model *find_preset(const char *name)
{
    const sl_model *presets;
    int64_t count = sl_model_presets(&presets);
    for (int64_t i = 0; i < count; i++)
        if (strcmp(presets[i].name, name) == 0)
            return &presets[i];
    return NULL;
}

bool sl_model_is_preset(const char *name)
{
    return find_preset(name) != NULL;
}

sl_status sl_model_find(const char *name_or_path, sl_model *model)
{
    char path[SL_MODEL_PATH_BYTES], config[SL_MODEL_PATH_BYTES + 16];
    const sl_model *preset = find_preset(name_or_path);
    if (preset) {
        *model = *preset;
        return SL_OK;
    }
    SL_TRY(sl_model_locate(name_or_path, path));
    if (sl_dir_exists(path)) {
        snprintf(config, sizeof config, "%s/config.json", path);
        return sl_model_read_config(config, model);
    }
    if (sl_file_exists(path))
        return sl_model_read_config(path, model);
    return no_such_model(name_or_path);
}

static sl_status check_range(const char *key, int64_t value, int64_t least, int64_t most)
{
    if (value < least || value > most)
        return sl_fail(SL_E_USAGE, "%s is %lld; it must lie between %lld and %lld", key, (long long) value,
                       (long long) least, (long long) most);
    return SL_OK;
}

int64_t sl_model_window(const sl_model *model, int64_t i)
{
    return model->layer_flags[i] & SL_LAYER_WINDOW ? model->window : 0;
}

const sl_model_rope *sl_model_rope_of(const sl_model *model, int64_t i)
{
    if (model->rope_style == SL_ROPE_NONE || model->layer_flags[i] & SL_LAYER_NO_ROPE)
        return NULL;
    return model->layer_flags[i] & SL_LAYER_WINDOW && model->local_rope.theta > 0 ? &model->local_rope : &model->rope;
}

/* Of what the op does not check: it comes from files. */
static sl_status check_rope(const sl_model *model, const sl_model_rope *rope)
{
    if (!(rope->theta >= 1 && isfinite(rope->theta)))
        return sl_fail(SL_E_USAGE, "rope_theta is %g; it must be at least 1", (double) rope->theta);
    if (rope->rotary % 2 || rope->rotary < 0 || rope->rotary > model->head_dim)
        return sl_fail(SL_E_USAGE,
                       "%d elements of a head are rotated; the number must be even and at most head_dim %lld",
                       rope->rotary, (long long) model->head_dim);
    return SL_OK;
}

static sl_status check_layers(const sl_model *model)
{
    bool windows = false;
    for (int64_t i = 0; i < model->layers; i++)
        windows |= (model->layer_flags[i] & SL_LAYER_WINDOW) != 0;
    if (windows)
        SL_TRY(check_range("the attention window", model->window, 1, INT32_MAX));
    if (model->rope_style == SL_ROPE_NONE)
        return SL_OK;
    SL_TRY(check_rope(model, &model->rope));
    return model->local_rope.theta > 0 ? check_rope(model, &model->local_rope) : SL_OK;
}

sl_status sl_model_check(const sl_model *model)
{
    SL_TRY(check_range("layers", model->layers, 1, SL_MODEL_MAX_LAYERS));
    SL_TRY(check_range("the model dimension", model->dim, 1, SL_MODEL_MAX_DIM));
    SL_TRY(check_range("heads", model->heads, 1, SL_MODEL_MAX_DIM));
    SL_TRY(check_range("key/value heads", model->kv_heads, 1, model->heads));
    SL_TRY(check_range("head_dim", model->head_dim, 1, SL_MODEL_MAX_HEAD_DIM));
    SL_TRY(check_range("heads x head_dim", model->heads * model->head_dim, 1, SL_MODEL_MAX_DIM));
    SL_TRY(check_range("the feed-forward dimension", model->ffn, 1, 4 * SL_MODEL_MAX_DIM));
    SL_TRY(check_range("the vocabulary", model->vocab, 2, SL_MODEL_MAX_DIM));
    if (model->heads % model->kv_heads)
        return sl_fail(SL_E_USAGE, "%lld heads are no multiple of %lld key/value heads", (long long) model->heads,
                       (long long) model->kv_heads);
    if (model->rope_style == SL_ROPE_NONE)
        SL_TRY(check_range("learned positions", model->max_seqlen, 1, SL_MODEL_MAX_DIM));
    if (model->rope_style != SL_ROPE_NONE && model->head_dim % 2)
        return sl_fail(SL_E_USAGE, "head_dim is %lld; rotary positions need an even one", (long long) model->head_dim);
    SL_TRY(check_layers(model));
    if (!(model->norm_eps >= 0 && model->norm_eps <= 1))
        return sl_fail(SL_E_USAGE, "the norm's epsilon is %g; it must lie between 0 and 1", (double) model->norm_eps);
    if (!(model->dropout >= 0 && model->dropout < 1))
        return sl_fail(SL_E_USAGE, "dropout is %g; it must lie in [0, 1)", (double) model->dropout);
    if (sl_model_parameters(model) > INT64_C(1) << 44)
        return sl_fail(SL_E_USAGE, "the model has %lld parameters, more than can be handled; check the dimensions",
                       (long long) sl_model_parameters(model));
    return SL_OK;
}

sl_status sl_model_build(const sl_model *model, sl_graph *graph)
{
    sl_value loss = SL_NO_VALUE;
    if (!model->custom)
        SL_TRY(sl_model_check(model));
    SL_TRY(model->family->build(model, graph, &loss));
    SL_TRY(sl_lora_check_targets(&model->lora, graph));
    return sl_graph_finish(graph, loss);
}

sl_status sl_build_model(void *model, sl_graph *graph)
{
    return sl_model_build(model, graph);
}

int64_t sl_model_parameters(const sl_model *model)
{
    return model->family->parameters(model);
}

/* Twice the pairs of tokens that see each other in a sequence of s, those on the diagonal counted half: s * s without a window. */
static double double_pairs(const sl_model *model, int64_t layer, double s)
{
    double window = (double) sl_model_window(model, layer), beyond = s - window;
    return window > 0 && beyond > 0 ? window * window + beyond * (2 * window - 1) : s * s;
}

double sl_model_step_flops(const sl_model *model, int64_t seqlen, int64_t sequences)
{
    double s = (double) seqlen, d = (double) model->dim, a = (double) (model->heads * model->head_dim);
    double k = (double) (model->kv_heads * model->head_dim), f = (double) model->ffn;
    double layer_matmul = 2 * s * d * (2 * a + 2 * k + model->family->ffn_matrices * f);
    double pairs = 0, head = 6 * s * d * (double) model->vocab;
    for (int64_t i = 0; i < model->layers; i++)
        pairs += double_pairs(model, i, s);
    return (double) sequences *
           ((double) model->layers * 3 * layer_matmul + 6 * pairs * a + head); /* 2 + 4 of attention */
}
