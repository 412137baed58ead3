/* Mistral: Llama's layers (llama.c), which may see a window of the last tokens only. */
#include "model/internal.h"

static const char *const own_keys[] = {"sliding_window", "layer_types", NULL};
static const sl_decoder_keys keys = {
    .architecture = "MistralForCausalLM", .own = own_keys, .max_positions = 131072, .kv_heads_required = true};

static sl_status read_config(const char *file, const void *json_object, sl_model *model)
{
    SL_TRY(sl_decoder_read_config(file, json_object, &keys, model));
    return sl_layers_read_same_window(file, json_object, 4096, model); /* absent is not null here */
}

static void write_config(const sl_model *model, void *json_writer)
{
    sl_decoder_write_config(model, &keys, json_writer);
    sl_layers_write_same_window(model, json_writer);
}

const sl_model_family sl_family_mistral = {
    .name = "mistral",
    .build = sl_llama_build,
    .read_config = read_config,
    .write_config = write_config,
    .parameters = sl_decoder_parameters,
    .ffn_matrices = 3,
};
