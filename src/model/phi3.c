/*
 * Phi-3 and Phi-4: Llama's layers (llama.c), with q, k, v in one tensor of the files, gate and up in another. A part of a head may
 * rotate, and frequencies have a factor each for long sequences (longrope).
 */
#include <string.h>

#include "model/internal.h"

static const char *const own_keys[] = {"sliding_window", "layer_types", "partial_rotary_factor", "auto_map", NULL};
static const sl_decoder_keys keys = {.architecture = "Phi3ForCausalLM",
                                     .own = own_keys,
                                     .max_positions = 4096,
                                     .norm_eps = 1e-5f,
                                     .rope = {.original_context = 4096, .partial = true, .yarn_is_long = true}};

/* Published files name the code that came with them before transformers had it: the same model. Other code may be another one. Code of
 * tokenizers does not matter. */
static sl_status check_code(const char *file, const sl_json *root)
{
    const sl_json *map = sl_json_get(root, "auto_map");
    for (const sl_json *item = map ? map->child : NULL; item; item = item->next) {
        const bool text = item->kind == SL_JSON_STRING,
                   tokenizer = item->key && strcmp(item->key, "AutoTokenizer") == 0;
        if (!tokenizer && (!text || (strncmp(item->string, "configuration_phi3.", 19) != 0 &&
                                     strncmp(item->string, "modeling_phi3.", 14) != 0)))
            return sl_fail(SL_E_UNSUPPORTED,
                           "%s:%d: \"auto_map\" names code other than Phi-3's own, which may compute something else",
                           file, item->line);
    }
    return SL_OK;
}

static sl_status read_config(const char *file, const void *json_object, sl_model *model)
{
    SL_TRY(check_code(file, json_object));
    SL_TRY(sl_decoder_read_config(file, json_object, &keys, model));
    return sl_layers_read_same_window(file, json_object, 0, model);
}

static void write_config(const sl_model *model, void *json_writer)
{
    sl_decoder_write_config(model, &keys, json_writer);
    sl_layers_write_same_window(model, json_writer);
}

const sl_model_family sl_family_phi3 = {
    .name = "phi3",
    .build = sl_llama_build,
    .read_config = read_config,
    .write_config = write_config,
    .parameters = sl_decoder_parameters,
    .ffn_matrices = 3,
    .fused_files = true,
};
