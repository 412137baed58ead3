/*
 * Qwen3: Llama's layer (llama.c) with heads of a size of their own and an RMSNorm of every query and key head before the rotation,
 * with one weight [head_dim] for all query heads and one for all key heads:
 *
 *     h = rmsnorm(x)         qkv = qk_norm(h Wqkv^T)          q, kv = rope(qkv)
 *     x = attention(q, kv) Wo^T + x                           x = swiglu_mlp(rmsnorm(x)) + x
 */
#include "model/internal.h"

static sl_value layer(sl_forward *f, sl_value x)
{
    sl_forward_group(f, "attention");
    sl_value h = sl_decoder_norm(f, "attention_norm", "input_layernorm.weight", x);
    h = sl_decoder_qkv(f, h);
    h = sl_decoder_qk_norm(f, h, false);
    h = sl_forward_attention(f, h);
    x = sl_forward_add(f, "attention_add", x, sl_decoder_output(f, h));
    sl_forward_group(f, "mlp");
    return sl_decoder_mlp(f, x);
}

static sl_status build(const sl_model *model, sl_graph *graph, sl_value *loss)
{
    return sl_decoder_build(model, graph, layer, loss);
}

static int64_t parameters(const sl_model *model)
{
    return sl_decoder_parameters(model) + sl_decoder_qk_norm_parameters(model, false);
}

/* ---- config.json ---- */

static const char *const own_keys[] = {"attention_bias",    "use_sliding_window", "sliding_window",
                                       "max_window_layers", "layer_types",        NULL};
static const sl_decoder_keys keys = {.architecture = "Qwen3ForCausalLM",
                                     .own = own_keys,
                                     .head_dim = 128,
                                     .max_positions = 32768,
                                     .kv_heads_required = true};

static sl_status read_config(const char *file, const void *json_object, sl_model *model)
{
    SL_TRY(sl_decoder_read_config(file, json_object, &keys, model));
    SL_TRY(sl_decoder_read_biases(file, json_object, false, model));
    return sl_layers_read_last_windows(file, json_object, model);
}

static void write_config(const sl_model *model, void *json_writer)
{
    sl_decoder_write_config(model, &keys, json_writer);
    sl_decoder_write_biases(model, false, json_writer);
    sl_layers_write_last_windows(model, json_writer);
}

const sl_model_family sl_family_qwen3 = {
    .name = "qwen3",
    .build = build,
    .read_config = read_config,
    .write_config = write_config,
    .parameters = parameters,
    .ffn_matrices = 3,
};
