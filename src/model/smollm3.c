/*
 * SmolLM3: Llama's layers (llama.c), of which every fourth does not rotate, so that it sees all distances alike. Where a window is
 * switched on, it is for those. (SmolLM2 is a Llama in its files, too.)
 */
#include "model/internal.h"

static const char *const own_keys[] = {"attention_bias",
                                       "mlp_bias",
                                       "no_rope_layers",
                                       "no_rope_layer_interval",
                                       "use_sliding_window",
                                       "sliding_window",
                                       "layer_types",
                                       "max_window_layers", /* in published files; nothing reads it */
                                       "pretraining_tp",    /* the same */
                                       NULL};
static const sl_decoder_keys keys = {.architecture = "SmolLM3ForCausalLM",
                                     .own = own_keys,
                                     .max_positions = 32768,
                                     .tied = true,
                                     .kv_heads_required = true,
                                     .rope = {.theta = 2000000}};

/* A list with 1 for layers that rotate; without it, every n-th does not. */
static sl_status read_no_rope(const char *file, const sl_json *root, sl_model *model)
{
    const sl_json *list = sl_json_get(root, "no_rope_layers"), *item;
    int64_t interval;
    SL_TRY(sl_config_count(file, root, "no_rope_layer_interval", 4, SL_MODEL_MAX_LAYERS, &interval));
    if (!list || list->kind == SL_JSON_NULL) {
        for (int64_t i = interval - 1; i < model->layers; i += interval)
            model->layer_flags[i] |= SL_LAYER_NO_ROPE;
        return SL_OK;
    }
    if (list->kind != SL_JSON_ARRAY || list->count < model->layers)
        return sl_fail(SL_E_FORMAT, "%s: \"no_rope_layers\" must be a list of %lld numbers, one for each layer", file,
                       (long long) model->layers);
    item = list->child;
    for (int64_t i = 0; i < model->layers; i++, item = item->next) {
        if (item->kind != SL_JSON_NUMBER || (item->number != 0 && item->number != 1))
            return sl_fail(SL_E_FORMAT, "%s:%d: \"no_rope_layers\" holds something else than 0 and 1", file,
                           item->line);
        model->layer_flags[i] |= item->number == 0 ? SL_LAYER_NO_ROPE : 0;
    }
    return SL_OK;
}

static sl_status read_config(const char *file, const void *json_object, sl_model *model)
{
    bool by_types;
    SL_TRY(sl_decoder_read_config(file, json_object, &keys, model));
    SL_TRY(sl_decoder_read_biases(file, json_object, true, model));
    SL_TRY(read_no_rope(file, json_object, model));
    SL_TRY(sl_layers_read_switched(file, json_object, 0, model, &by_types));
    for (int64_t i = 0; i < model->layers && model->window && !by_types; i++)
        if (model->layer_flags[i] & SL_LAYER_NO_ROPE)
            model->layer_flags[i] |= SL_LAYER_WINDOW;
    if (!sl_layers_windowed(model))
        model->window = 0;
    return SL_OK;
}

static void write_config(const sl_model *model, void *json_writer)
{
    sl_json_writer *w = json_writer;
    sl_decoder_write_config(model, &keys, w);
    sl_decoder_write_biases(model, true, w);
    sl_json_begin_array(w, "no_rope_layers");
    for (int64_t i = 0; i < model->layers; i++)
        sl_json_put_i64(w, NULL, model->layer_flags[i] & SL_LAYER_NO_ROPE ? 0 : 1);
    sl_json_end_array(w);
    sl_json_put_bool(w, "use_sliding_window", model->window != 0);
    if (model->window)
        sl_json_put_i64(w, "sliding_window", model->window);
    sl_layers_write_types(model, w);
}

const sl_model_family sl_family_smollm3 = {
    .name = "smollm3",
    .build = sl_llama_build,
    .read_config = read_config,
    .write_config = write_config,
    .parameters = sl_decoder_parameters,
    .ffn_matrices = 3,
};
