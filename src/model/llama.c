/*
 * Llama: RMSNorm, rotary positions, grouped K/V heads, SwiGLU; biases are optional. Per layer, x (n, d):
 *
 *     h = rmsnorm(x)         qkv = h Wqkv^T  (n, a + 2k)      q, kv = rope(qkv)
 *     x = attention(q, kv) Wo^T + x
 *     h = rmsnorm(x)         gu = h Wgu^T  (n, 2f)            x = (silu(gate) * up) Wdown^T + x
 *
 * A layer's parameters are two groups (attention, mlp), moved and updated apart.
 */
#include <string.h>

#include "model/internal.h"

static sl_value layer(sl_forward *f, sl_value x)
{
    sl_forward_group(f, "attention");
    sl_value h = sl_decoder_norm(f, "attention_norm", "input_layernorm.weight", x);
    h = sl_decoder_qkv(f, h);
    h = sl_forward_attention(f, h);
    x = sl_forward_add(f, "attention_add", x, sl_decoder_output(f, h));
    sl_forward_group(f, "mlp");
    return sl_decoder_mlp(f, x);
}

sl_status sl_llama_build(const sl_model *model, sl_graph *graph, sl_value *loss)
{
    return sl_decoder_build(model, graph, layer, loss);
}

/* ---- config.json ---- */

static const char *const own_keys[] = {"rope_interleaved", "sluice_rope_order", "attention_bias", "mlp_bias", NULL};
static const sl_decoder_keys keys = {.architecture = "LlamaForCausalLM", .own = own_keys};

/* Which rows of a head are turned together here. The function is the same, and the order in files is Hugging Face's either way;
 * but sums over a head run in another order, so the bits are others. "rope_interleaved" is what Sluice up to 0.1.0 wrote: the
 * order in files was ours, too (sl_tensors_in_pairs). */
static sl_status read_rope_order(const char *file, const sl_json *root, sl_model *model)
{
    bool old;
    const char *order;
    SL_TRY(sl_json_bool_or(file, root, "rope_interleaved", false, &old));
    SL_TRY(sl_json_string_or(file, root, "sluice_rope_order", old ? "interleaved" : "halves", &order));
    if (strcmp(order, "interleaved") != 0 && strcmp(order, "halves") != 0)
        return sl_fail(SL_E_FORMAT, "%s: \"sluice_rope_order\" is \"%s\"; \"halves\" and \"interleaved\" are known",
                       file, order);
    model->rope_style = strcmp(order, "interleaved") == 0 ? SL_ROPE_INTERLEAVED : SL_ROPE_HALF;
    if (old && model->rope_style != SL_ROPE_INTERLEAVED)
        return sl_fail(SL_E_FORMAT, "%s: \"rope_interleaved\" is true, \"sluice_rope_order\" is \"%s\"; remove one",
                       file, order);
    return SL_OK;
}

static sl_status read_config(const char *file, const void *json_object, sl_model *model)
{
    SL_TRY(sl_decoder_read_config(file, json_object, &keys, model));
    SL_TRY(sl_decoder_read_biases(file, json_object, true, model));
    return read_rope_order(file, json_object, model);
}

static void write_config(const sl_model *model, void *json_writer)
{
    sl_decoder_write_config(model, &keys, json_writer);
    if (model->qkv_bias || model->mlp_bias)
        sl_decoder_write_biases(model, true, json_writer);
}

const sl_model_family sl_family_llama = {
    .name = "llama",
    .build = sl_llama_build,
    .read_config = read_config,
    .write_config = write_config,
    .parameters = sl_decoder_parameters,
    .ffn_matrices = 3,
};
