/*
 * OLMo2: Llama's layer (llama.c) with the norms behind attention and MLP, inside the residual addition, and with an RMSNorm of queries
 * and keys over all their heads at once, in front of the rotation:
 *
 *     qkv = qk_norm(x Wqkv^T)         q, kv = rope(qkv)        x = rmsnorm(attention(q, kv) Wo^T) + x
 *                                                              x = rmsnorm(swiglu_mlp(x)) + x
 */
#include "model/internal.h"

static sl_value layer(sl_forward *f, sl_value x)
{
    sl_forward_group(f, "attention");
    sl_value h = sl_decoder_qkv(f, x);
    h = sl_decoder_qk_norm(f, h, true);
    h = sl_forward_attention(f, h);
    h = sl_decoder_norm(f, "attention_norm", "post_attention_layernorm.weight", sl_decoder_output(f, h));
    x = sl_forward_add(f, "attention_add", x, h);
    sl_forward_group(f, "mlp");
    h = sl_decoder_norm(f, "mlp_norm", "post_feedforward_layernorm.weight", sl_decoder_feed_forward(f, x));
    return sl_forward_add(f, "mlp_add", x, h);
}

static sl_status build(const sl_model *model, sl_graph *graph, sl_value *loss)
{
    return sl_decoder_build(model, graph, layer, loss);
}

static int64_t parameters(const sl_model *model)
{
    return sl_decoder_parameters(model) + sl_decoder_qk_norm_parameters(model, true);
}

/* ---- config.json ---- */

static const char *const own_keys[] = {"attention_bias", NULL};
static const sl_decoder_keys keys = {.architecture = "Olmo2ForCausalLM", .own = own_keys, .norm_eps = 1e-5f};

static sl_status read_config(const char *file, const void *json_object, sl_model *model)
{
    SL_TRY(sl_decoder_read_config(file, json_object, &keys, model));
    return sl_decoder_read_biases(file, json_object, false, model);
}

static void write_config(const sl_model *model, void *json_writer)
{
    sl_decoder_write_config(model, &keys, json_writer);
    sl_decoder_write_biases(model, false, json_writer);
}

const sl_model_family sl_family_olmo2 = {
    .name = "olmo2",
    .build = build,
    .read_config = read_config,
    .write_config = write_config,
    .parameters = parameters,
    .ffn_matrices = 3,
};
