/*
 * Gemma 3, the language model (also that of "gemma3", wrapper_config.c): Gemma 2's layer (gemma2.c) with a norm of every query and key head in front of the rotation, and without
 * soft caps, unless one on logits is given. Five of six layers see a window, and rotate by a theta of their own:
 *
 *     h = rmsnorm(x)         qkv = qk_norm(h Wqkv^T)          q, kv = rope(qkv)
 *     x = rmsnorm(attention(q, kv) Wo^T) + x                  x = rmsnorm(geglu_mlp(rmsnorm(x))) + x
 */
#include "model/internal.h"

static sl_value layer(sl_forward *f, sl_value x)
{
    sl_forward_group(f, "attention");
    sl_value h = sl_decoder_norm(f, "attention_norm", "input_layernorm.weight", x);
    h = sl_decoder_qkv(f, h);
    h = sl_decoder_qk_norm(f, h, false);
    h = sl_forward_attention(f, h);
    h = sl_decoder_norm(f, "attention_post_norm", "post_attention_layernorm.weight", sl_decoder_output(f, h));
    x = sl_forward_add(f, "attention_add", x, h);
    sl_forward_group(f, "mlp");
    h = sl_decoder_norm(f, "mlp_norm", "pre_feedforward_layernorm.weight", x);
    h = sl_decoder_norm(f, "mlp_post_norm", "post_feedforward_layernorm.weight", sl_decoder_feed_forward(f, h));
    return sl_forward_add(f, "mlp_add", x, h);
}

static sl_status build(const sl_model *model, sl_graph *graph, sl_value *loss)
{
    return sl_decoder_build(model, graph, layer, loss);
}

static int64_t parameters(const sl_model *model)
{
    return sl_decoder_parameters(model) + model->layers * 2 * model->dim + sl_decoder_qk_norm_parameters(model, false);
}

/* ---- config.json ---- */

/* Without "attn_logit_softcapping": transformers reads it and does not compute with it, so only null means one thing. */
static const char *const own_keys[] = {"attention_bias",          "hidden_activation",    "query_pre_attn_scalar",
                                       "sliding_window",          "layer_types",          "sliding_window_pattern",
                                       "final_logit_softcapping", "rope_local_base_freq", NULL};
static const sl_gemma_keys keys = {
    .decoder = {.architecture = "Gemma3ForCausalLM",
                .own = own_keys,
                .vocab = 262208,
                .max_positions = 131072,
                .rope = {.theta = 1e6, .local_theta = 1e4}},
    .pattern = 6,
};

static sl_status read_config(const char *file, const void *json_object, sl_model *model)
{
    return sl_gemma_read_config(file, json_object, &keys, model);
}

static void write_config(const sl_model *model, void *json_writer)
{
    sl_gemma_write_config(model, &keys, json_writer);
}

const sl_model_family sl_family_gemma3_text = {
    .name = "gemma3_text",
    .build = build,
    .read_config = read_config,
    .write_config = write_config,
    .parameters = parameters,
    .ffn_matrices = 3,
    .gelu_gate = true,
    .scaled_embedding = true,
    .norm_offset = 1,
};
