/*
 * config.json of Gemma 2 and 3. The activation has two keys: Gemma's own, "hidden_activation", and "hidden_act", which transformers
 * ignores in these families and others read.
 */
#include "model/internal.h"

static const char gelu[] = "gelu_pytorch_tanh";

/* What Gemma's families have in common, in transformers. */
static sl_decoder_keys decoder_keys(const sl_gemma_keys *keys)
{
    sl_decoder_keys all = keys->decoder;
    all.activation = gelu;
    all.head_dim = 256;
    all.tied = true;
    all.heads = 8;
    all.kv_heads = 4;
    return all;
}

/* Null is no cap, and absent is the family's. */
static sl_status read_cap(const char *file, const sl_json *root, const char *key, float otherwise, float *cap)
{
    const sl_json *member = sl_json_get(root, key);
    *cap = 0;
    if (member ? member->kind == SL_JSON_NULL : otherwise == 0)
        return SL_OK;
    return sl_config_number(file, root, key, (double) otherwise, 1e-3, 1e6, cap);
}

/* Which layers have the window: those of "layer_types", or all but the last of every `pattern`. */
static sl_status read_windows(const char *file, const sl_json *root, const sl_gemma_keys *keys, sl_model *model)
{
    bool by_types;
    int64_t pattern;
    SL_TRY(sl_layers_read_window(file, root, 4096, model));
    SL_TRY(sl_config_count(file, root, "sliding_window_pattern", keys->pattern, INT32_MAX, &pattern));
    SL_TRY(sl_layers_read_types(file, root, model, &by_types));
    for (int64_t i = 0; i < model->layers && !by_types; i++)
        model->layer_flags[i] |= (i + 1) % pattern ? SL_LAYER_WINDOW : 0;
    const int64_t windowed = sl_layers_windowed(model);
    if (windowed && !model->window)
        return sl_fail(SL_E_FORMAT, "%s: \"sliding_window\" is null, but %lld layers have one by %s; give a number",
                       file, (long long) windowed, by_types ? "\"layer_types\"" : "the family's pattern");
    if (!windowed)
        model->window = 0;
    return SL_OK;
}

sl_status sl_gemma_read_config(const char *file, const sl_json *root, const sl_gemma_keys *keys, sl_model *model)
{
    const sl_decoder_keys decoder = decoder_keys(keys);
    SL_TRY(sl_decoder_read_config(file, root, &decoder, model));
    SL_TRY(sl_decoder_read_biases(file, root, false, model));
    SL_TRY(sl_config_must_be_string(file, root, "hidden_activation", gelu));
    if (model->local_rope.scaling != SL_ROPE_LLAMA3 || model->local_rope.factor > 0)
        return sl_fail(SL_E_UNSUPPORTED,
                       "%s: \"rope_parameters\" scale the positions of \"sliding_attention\"; only those of "
                       "\"full_attention\" can be scaled",
                       file);
    SL_TRY(sl_config_number(file, root, "query_pre_attn_scalar", 256, 1e-3, 1e6, &model->query_scale));
    SL_TRY(read_cap(file, root, "attn_logit_softcapping", keys->attention_cap, &model->attention_cap));
    SL_TRY(read_cap(file, root, "final_logit_softcapping", keys->logit_cap, &model->logit_cap));
    return read_windows(file, root, keys, model);
}

static void put_cap(sl_json_writer *w, const char *key, float cap)
{
    if (cap > 0)
        sl_config_put(w, key, cap);
    else
        sl_json_put_null(w, key);
}

void sl_gemma_write_config(const sl_model *model, const sl_gemma_keys *keys, sl_json_writer *w)
{
    const sl_decoder_keys decoder = decoder_keys(keys);
    sl_decoder_write_config(model, &decoder, w);
    sl_decoder_write_biases(model, false, w);
    sl_json_put_string(w, "hidden_activation", gelu);
    if (model->query_scale == floorf(model->query_scale)) /* transformers has an integer here, as published files do */
        sl_json_put_i64(w, "query_pre_attn_scalar", (int64_t) model->query_scale);
    else
        sl_config_put(w, "query_pre_attn_scalar", model->query_scale);
    put_cap(w, "attn_logit_softcapping", model->attention_cap);
    put_cap(w, "final_logit_softcapping", model->logit_cap);
    if (model->window)
        sl_json_put_i64(w, "sliding_window", model->window);
    sl_layers_write_types(model, w);
}
