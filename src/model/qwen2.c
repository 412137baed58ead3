/* Qwen2 and Qwen2.5: Llama's layers (llama.c) with biases of q, k and v, and windows in the upper layers if switched on. */
#include "model/internal.h"

static const char *const own_keys[] = {"use_sliding_window", "sliding_window", "max_window_layers", "layer_types",
                                       NULL};
static const sl_decoder_keys keys = {
    .architecture = "Qwen2ForCausalLM", .own = own_keys, .max_positions = 32768, .kv_heads_required = true};

static sl_status read_config(const char *file, const void *json_object, sl_model *model)
{
    SL_TRY(sl_decoder_read_config(file, json_object, &keys, model));
    model->qkv_bias = true;
    return sl_layers_read_last_windows(file, json_object, model);
}

static void write_config(const sl_model *model, void *json_writer)
{
    sl_decoder_write_config(model, &keys, json_writer);
    sl_layers_write_last_windows(model, json_writer);
}

const sl_model_family sl_family_qwen2 = {
    .name = "qwen2",
    .build = sl_llama_build,
    .read_config = read_config,
    .write_config = write_config,
    .parameters = sl_decoder_parameters,
    .ffn_matrices = 3,
};
