/*
 * Llama: RMSNorm, rotary positions, grouped K/V heads, SwiGLU, no biases. Per layer, x (n, d):
 *
 *     h = rmsnorm(x)         qkv = h Wqkv^T  (n, a + 2k)      q, kv = rope(qkv)
 *     x = attention(q, kv) Wo^T + x
 *     h = rmsnorm(x)         gu = h Wgu^T  (n, 2f)            x = (silu(gate) * up) Wdown^T + x
 *
 * q_proj, k_proj, v_proj are rows of one matrix, gate_proj and up_proj of another: one wide multiply each.
 * A layer's parameters are two groups (attention, mlp), moved and updated apart.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/internal.h"
#include "ops/norm.h"

/* Hugging Face's normal(0, initializer_range), or Glorot's variance 2/(in+out) cut at 3 sigma. */
static void set_linear_init(const sl_model *model, int64_t in, int64_t out, sl_forward_param *param)
{
    param->init = model->init_std > 0 ? SL_INIT_NORMAL : SL_INIT_TRUNCATED;
    param->std = model->init_std > 0 ? model->init_std : (float) sqrt(2.0 / (double) (in + out));
    param->decay = true;
}

static sl_value norm(sl_forward *f, const sl_model *model, const char *name, const char *prefix, const char *file_name,
                     sl_value x)
{
    sl_attrs attrs = {.raw = {0}};
    sl_forward_param param = {.name = name, .rows = model->dim, .init = SL_INIT_ONES, .n_parts = 1, .prefix = prefix};
    param.parts[0] = (sl_param_part){file_name, 0, model->dim, false, 0};
    sl_norm_set(&attrs)->eps = model->norm_eps;
    sl_value weight = sl_forward_parameter(f, &param);
    return sl_forward_op(f, SL_OP_RMSNORM, name, &attrs, (const sl_value[]){x, weight}, 2, NULL);
}

static sl_value linear_weight(sl_forward *f, const sl_model *model, const char *name, const char *prefix, int64_t out,
                              int64_t in, int64_t init_out, int n_parts, const sl_param_part *parts)
{
    sl_forward_param param = {.name = name, .rows = out, .columns = in, .n_parts = n_parts, .prefix = prefix};
    memcpy(param.parts, parts, (size_t) n_parts * sizeof *parts);
    set_linear_init(model, in, init_out, &param);
    return sl_forward_parameter(f, &param);
}

static sl_value attention_half(sl_forward *f, const sl_model *model, const char *prefix, sl_value x)
{
    int64_t d = model->dim, a = model->heads * model->head_dim, k = model->kv_heads * model->head_dim;
    sl_value h = norm(f, model, "attention_norm", prefix, "input_layernorm.weight", x);
    int64_t pair_rows = model->rope_style == SL_ROPE_INTERLEAVED ? model->head_dim : 0;
    sl_value qkv = linear_weight(f, model, "qkv", prefix, a + 2 * k, d, a, 3,
                                 (const sl_param_part[]){{"self_attn.q_proj.weight", 0, a, false, pair_rows},
                                                         {"self_attn.k_proj.weight", a, k, false, pair_rows},
                                                         {"self_attn.v_proj.weight", a + k, k, false, 0}});
    sl_value o = linear_weight(f, model, "o", prefix, d, a, d, 1,
                               (const sl_param_part[]){{"self_attn.o_proj.weight", 0, d, false, 0}});
    h = sl_forward_linear(f, "qkv", h, qkv, SL_NO_VALUE, SL_NO_VALUE);
    h = sl_forward_attention(f, model, h);
    return sl_forward_linear(f, "o", h, o, SL_NO_VALUE, x);
}

static sl_value mlp_half(sl_forward *f, const sl_model *model, const char *prefix, sl_value x)
{
    int64_t d = model->dim, ffn = model->ffn;
    sl_value h = norm(f, model, "mlp_norm", prefix, "post_attention_layernorm.weight", x);
    sl_value gate_up = linear_weight(f, model, "gate_up", prefix, 2 * ffn, d, ffn, 2,
                                     (const sl_param_part[]){{"mlp.gate_proj.weight", 0, ffn, false, 0},
                                                             {"mlp.up_proj.weight", ffn, ffn, false, 0}});
    sl_value down = linear_weight(f, model, "down", prefix, d, ffn, d, 1,
                                  (const sl_param_part[]){{"mlp.down_proj.weight", 0, d, false, 0}});
    h = sl_forward_linear(f, "gate_up", h, gate_up, SL_NO_VALUE, SL_NO_VALUE);
    h = sl_forward_op(f, SL_OP_SWIGLU, "swiglu", NULL, &h, 1, NULL);
    return sl_forward_linear(f, "down", h, down, SL_NO_VALUE, x);
}

static sl_value embedding_weight(sl_forward *f, const sl_model *model)
{
    sl_forward_param param = {.name = "embedding",
                              .rows = model->vocab,
                              .columns = model->dim,
                              .decay = true,
                              .n_parts = 1,
                              .prefix = "model"};
    param.parts[0] = (sl_param_part){"embed_tokens.weight", 0, model->vocab, false, 0};
    param.init = model->init_std > 0 ? SL_INIT_NORMAL : SL_INIT_TRUNCATED;
    param.std = model->init_std > 0 ? model->init_std : 1.0f;
    return sl_forward_parameter(f, &param);
}

static sl_status build(const sl_model *model, sl_graph *graph, sl_value *loss)
{
    char scope[32], prefix[48], group[48];
    sl_forward f = {.graph = graph, .scope = "", .group = "embedding"};
    sl_forward_block(&f, "embedding");
    sl_value table = embedding_weight(&f, model);
    sl_value x = sl_forward_op(&f, SL_OP_EMBEDDING, "embedding", NULL,
                               (const sl_value[]){table, sl_forward_input(&f, SL_INPUT_TOKENS)}, 2, NULL);
    for (int64_t layer = 0; layer < model->layers; layer++) {
        snprintf(scope, sizeof scope, "layers.%lld", (long long) layer);
        snprintf(prefix, sizeof prefix, "model.layers.%lld", (long long) layer);
        f.scope = scope;
        f.group = group;
        sl_forward_block(&f, scope);
        snprintf(group, sizeof group, "%s.attention", scope);
        x = attention_half(&f, model, prefix, x);
        snprintf(group, sizeof group, "%s.mlp", scope);
        x = mlp_half(&f, model, prefix, x);
    }
    f.scope = "", f.group = "head";
    sl_forward_block(&f, "head");
    x = norm(&f, model, "norm", "model", "norm.weight", x);
    if (!model->tied)
        table = linear_weight(&f, model, "head", "", model->vocab, model->dim, model->vocab, 1,
                              (const sl_param_part[]){{"lm_head.weight", 0, model->vocab, false, 0}});
    *loss = sl_forward_head(&f, model, x, table);
    return f.status;
}

static int64_t parameters(const sl_model *model)
{
    int64_t d = model->dim, a = model->heads * model->head_dim, k = model->kv_heads * model->head_dim;
    int64_t layer = d * (2 * a + 2 * k + 3 * model->ffn) + 2 * d;
    return model->vocab * d * (model->tied ? 1 : 2) + model->layers * layer + d;
}

/* ---- config.json ---- */

static const char *const known_keys[] = {"architectures",
                                         "model_type",
                                         "hidden_size",
                                         "intermediate_size",
                                         "num_hidden_layers",
                                         "num_attention_heads",
                                         "num_key_value_heads",
                                         "head_dim",
                                         "vocab_size",
                                         "max_position_embeddings",
                                         "tie_word_embeddings",
                                         "rms_norm_eps",
                                         "rope_theta",
                                         "rope_scaling",
                                         "rope_parameters",
                                         "rope_interleaved",
                                         "sluice_rope_order",
                                         "hidden_act",
                                         "initializer_range",
                                         "initializer_rule",
                                         NULL};

static const char *const rope_keys[] = {"rope_type",
                                        "type",
                                        "rope_theta",
                                        "factor",
                                        "low_freq_factor",
                                        "high_freq_factor",
                                        "original_max_position_embeddings",
                                        NULL};

static sl_status read_rope_object(const char *file, const sl_json *object, sl_model *model)
{
    const char *type, *old_type;
    int64_t original;
    SL_TRY(sl_config_check_keys(file, object, rope_keys));
    SL_TRY(sl_json_string_or(file, object, "type", "default", &old_type));
    SL_TRY(sl_json_string_or(file, object, "rope_type", old_type, &type));
    SL_TRY(sl_config_number(file, object, "rope_theta", model->rope_theta, 1, 1e12, &model->rope_theta));
    if (strcmp(type, "default") == 0)
        return SL_OK;
    if (strcmp(type, "llama3") != 0)
        return sl_fail(SL_E_UNSUPPORTED, "%s: rope type \"%s\" is not known; \"default\" and \"llama3\" are", file,
                       type);
    SL_TRY(sl_config_number(file, object, "factor", 8, 1, 1e6, &model->rope_factor));
    SL_TRY(sl_config_number(file, object, "low_freq_factor", 1, 1e-3, 1e6, &model->rope_low_freq));
    SL_TRY(sl_config_number(file, object, "high_freq_factor", 4, 1e-3, 1e6, &model->rope_high_freq));
    SL_TRY(sl_config_count(file, object, "original_max_position_embeddings", 8192, INT32_MAX, &original));
    model->rope_original_context = (int32_t) original;
    if (!(model->rope_high_freq > model->rope_low_freq))
        return sl_fail(SL_E_FORMAT, "%s: \"high_freq_factor\" %g must be greater than \"low_freq_factor\" %g", file,
                       (double) model->rope_high_freq, (double) model->rope_low_freq);
    return SL_OK;
}

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

/* Old files have rope_theta and rope_scaling beside each other, new ones one object rope_parameters. */
static sl_status read_rope(const char *file, const sl_json *root, sl_model *model)
{
    SL_TRY(read_rope_order(file, root, model));
    SL_TRY(sl_config_number(file, root, "rope_theta", 10000, 1, 1e12, &model->rope_theta));
    for (int i = 0; i < 2; i++) {
        const char *key = i ? "rope_parameters" : "rope_scaling";
        const sl_json *object = sl_json_get(root, key);
        if (!object || object->kind == SL_JSON_NULL)
            continue;
        if (object->kind != SL_JSON_OBJECT)
            return sl_fail(SL_E_FORMAT, "%s: \"%s\" must be an object or null", file, key);
        SL_TRY(read_rope_object(file, object, model));
    }
    return SL_OK;
}

static sl_status read_init(const char *file, const sl_json *root, sl_model *model)
{
    const char *rule;
    SL_TRY(sl_config_number(file, root, "initializer_range", 0.02, 1e-8, 100, &model->init_std));
    SL_TRY(sl_json_string_or(file, root, "initializer_rule", "normal", &rule));
    if (strcmp(rule, "glorot") == 0)
        model->init_std = 0;
    else if (strcmp(rule, "normal") != 0)
        return sl_fail(SL_E_FORMAT, "%s: \"initializer_rule\" is \"%s\"; \"normal\" and \"glorot\" are known", file,
                       rule);
    return SL_OK;
}

/* hidden_size / num_attention_heads, unless it is given. Where that leaves a remainder, readers differ: some cut it off, some refuse. */
static sl_status read_head_dim(const char *file, const sl_json *root, sl_model *model)
{
    const sl_json *given = sl_json_get(root, "head_dim");
    if ((!given || given->kind == SL_JSON_NULL) && model->dim % model->heads)
        return sl_fail(
            SL_E_USAGE,
            "%s: \"hidden_size\" %lld is no multiple of \"num_attention_heads\" %lld; correct one of them, or "
            "give \"head_dim\"",
            file, (long long) model->dim, (long long) model->heads);
    return sl_config_count(file, root, "head_dim", SL_MAX(1, model->dim / model->heads), SL_MODEL_MAX_DIM,
                           &model->head_dim);
}

static sl_status read_config(const char *file, const void *json_object, sl_model *model)
{
    const sl_json *root = json_object;
    int64_t positions;
    SL_TRY(sl_config_check_keys(file, root, known_keys));
    SL_TRY(sl_config_count(file, root, "hidden_size", 0, SL_MODEL_MAX_DIM, &model->dim));
    SL_TRY(sl_config_count(file, root, "intermediate_size", 0, SL_MODEL_MAX_DIM, &model->ffn));
    SL_TRY(sl_config_count(file, root, "num_hidden_layers", 0, SL_MODEL_MAX_LAYERS, &model->layers));
    SL_TRY(sl_config_count(file, root, "num_attention_heads", 0, SL_MODEL_MAX_DIM, &model->heads));
    SL_TRY(sl_config_count(file, root, "num_key_value_heads", model->heads, SL_MODEL_MAX_DIM, &model->kv_heads));
    SL_TRY(read_head_dim(file, root, model));
    SL_TRY(sl_config_count(file, root, "vocab_size", 0, SL_MODEL_MAX_DIM, &model->vocab));
    SL_TRY(sl_config_count(file, root, "max_position_embeddings", 2048, INT32_MAX, &positions));
    if (sl_json_get(root, "max_position_embeddings"))
        model->max_positions = positions;
    SL_TRY(sl_json_bool_or(file, root, "tie_word_embeddings", false, &model->tied));
    SL_TRY(sl_config_number(file, root, "rms_norm_eps", 1e-6, 0, 1, &model->norm_eps));
    SL_TRY(read_rope(file, root, model));
    SL_TRY(read_init(file, root, model));
    return sl_config_must_be_string(file, root, "hidden_act", "silu");
}

static void write_config(const sl_model *model, void *json_writer)
{
    sl_json_writer *w = json_writer;
    sl_json_begin_array(w, "architectures");
    sl_json_put_string(w, NULL, "LlamaForCausalLM");
    sl_json_end_array(w);
    sl_json_put_string(w, "model_type", "llama");
    sl_json_put_i64(w, "hidden_size", model->dim);
    sl_json_put_i64(w, "intermediate_size", model->ffn);
    sl_json_put_i64(w, "num_hidden_layers", model->layers);
    sl_json_put_i64(w, "num_attention_heads", model->heads);
    sl_json_put_i64(w, "num_key_value_heads", model->kv_heads);
    sl_json_put_i64(w, "head_dim", model->head_dim);
    sl_json_put_i64(w, "vocab_size", model->vocab);
    if (model->max_positions)
        sl_json_put_i64(w, "max_position_embeddings", model->max_positions);
    sl_json_put_string(w, "hidden_act", "silu");
    sl_config_put(w, "rms_norm_eps", model->norm_eps);
    sl_json_put_bool(w, "tie_word_embeddings", model->tied);
    sl_config_put(w, "rope_theta", model->rope_theta);
    if (model->rope_factor > 0) {
        sl_json_begin_object(w, "rope_scaling");
        sl_json_put_string(w, "rope_type", "llama3");
        sl_config_put(w, "factor", model->rope_factor);
        sl_config_put(w, "low_freq_factor", model->rope_low_freq);
        sl_config_put(w, "high_freq_factor", model->rope_high_freq);
        sl_json_put_i64(w, "original_max_position_embeddings", model->rope_original_context);
        sl_json_end_object(w);
    }
    if (model->rope_style == SL_ROPE_INTERLEAVED)
        sl_json_put_string(w, "sluice_rope_order", "interleaved");
    if (model->init_std > 0)
        sl_config_put(w, "initializer_range", model->init_std);
    else
        sl_json_put_string(w, "initializer_rule", "glorot");
}

const sl_model_family sl_family_llama = {"llama", build, read_config, write_config, parameters, 3};
