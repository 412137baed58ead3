/*
 * What decoders with RMSNorm, rotary positions and SwiGLU or GeGLU share: the parts around the attention of a layer, and everything
 * around the layers. Matrices have no bias, unless the model says so.
 *
 *     x = embedding[tokens]        layers        loss(rmsnorm(x) Whead^T)
 *
 * q_proj, k_proj, v_proj are rows of one matrix, gate_proj and up_proj of another: one wide multiply each. Some families have them
 * as one in files, too.
 */
#include <math.h>
#include <string.h>

#include "core/bf16.h"
#include "model/internal.h"
#include "ops/norm.h"
#include "ops/qk_norm.h"
#include "ops/scale.h"
#include "ops/swiglu.h"

/* Hugging Face's normal(0, initializer_range), or Glorot's variance 2/(in+out) cut at 3 sigma. */
static sl_value matrix(sl_forward *f, const char *name, int64_t out, int64_t in, float glorot, int n_parts,
                       const sl_param_part *parts)
{
    const float std = f->model->init_std;
    sl_forward_param param = {.name = name,
                              .rows = out,
                              .columns = in,
                              .init = std > 0 ? SL_INIT_NORMAL : SL_INIT_TRUNCATED,
                              .std = std > 0 ? std : glorot,
                              .decay = true,
                              .n_parts = n_parts};
    memcpy(param.parts, parts, (size_t) n_parts * sizeof *parts);
    return sl_forward_parameter(f, &param);
}

/* Of a matrix's outputs; SL_NO_VALUE unless `has`. */
static sl_value bias(sl_forward *f, const char *name, bool has, int64_t out, int n_parts, const sl_param_part *parts)
{
    sl_forward_param param = {.name = name, .rows = out, .init = SL_INIT_ZEROS, .n_parts = n_parts};
    if (!has)
        return SL_NO_VALUE;
    memcpy(param.parts, parts, (size_t) n_parts * sizeof *parts);
    return sl_forward_parameter(f, &param);
}

static float glorot(int64_t in, int64_t out)
{
    return (float) sqrt(2.0 / (double) (in + out));
}

/* So that norms multiply by 1 at first. */
static sl_value norm_weight(sl_forward *f, const char *name, const char *file_name, int64_t count)
{
    return sl_forward_vector(f, name, file_name, count,
                             f->model->family->norm_offset == 1 ? SL_INIT_ZEROS : SL_INIT_ONES);
}

sl_value sl_decoder_norm(sl_forward *f, const char *name, const char *file_name, sl_value x)
{
    sl_attrs attrs = {.raw = {0}};
    sl_norm_set(&attrs)->eps = f->model->norm_eps;
    sl_norm_set(&attrs)->offset = f->model->family->norm_offset;
    sl_value weight = norm_weight(f, name, file_name, f->model->dim);
    return sl_forward_op(f, SL_OP_RMSNORM, name, &attrs, (const sl_value[]){x, weight}, 2, NULL);
}

sl_value sl_decoder_qkv(sl_forward *f, sl_value x)
{
    const sl_model *model = f->model;
    int64_t d = model->dim, a = model->heads * model->head_dim, k = model->kv_heads * model->head_dim;
    int64_t pair_rows = model->rope_style == SL_ROPE_INTERLEAVED ? model->head_dim : 0;
    const sl_param_part apart[] = {{"self_attn.q_proj.weight", 0, a, false, pair_rows},
                                   {"self_attn.k_proj.weight", a, k, false, pair_rows},
                                   {"self_attn.v_proj.weight", a + k, k, false, 0}};
    const sl_param_part biases[] = {{"self_attn.q_proj.bias", 0, a, false, pair_rows},
                                    {"self_attn.k_proj.bias", a, k, false, pair_rows},
                                    {"self_attn.v_proj.bias", a + k, k, false, 0}};
    const sl_param_part fused = {"self_attn.qkv_proj.weight", 0, a + 2 * k, false, 0};
    const bool one = model->family->fused_files;
    sl_value qkv = matrix(f, "qkv", a + 2 * k, d, glorot(d, a), one ? 1 : 3, one ? &fused : apart);
    return sl_forward_linear(f, "qkv", x, qkv, bias(f, "qkv.bias", model->qkv_bias, a + 2 * k, 3, biases));
}

sl_value sl_decoder_qk_norm(sl_forward *f, sl_value qkv, bool whole)
{
    const sl_model *model = f->model;
    sl_attrs attrs = {.raw = {0}};
    *sl_qk_norm_set(&attrs) = *SL_ATTRS(qk_norm, .heads = (int32_t) model->heads, .kv_heads = (int32_t) model->kv_heads,
                                        .head_dim = (int32_t) model->head_dim, .eps = model->norm_eps,
                                        .offset = model->family->norm_offset, .whole = whole);
    const sl_qk_parts parts = sl_qk_norm_parts(&attrs);
    sl_value q = norm_weight(f, "q_norm", "self_attn.q_norm.weight", parts.dim[0]);
    sl_value k = norm_weight(f, "k_norm", "self_attn.k_norm.weight", parts.dim[1]);
    return sl_forward_op(f, SL_OP_QK_NORM, "qk_norm", &attrs, (const sl_value[]){qkv, q, k}, 3, NULL);
}

int64_t sl_decoder_qk_norm_parameters(const sl_model *model, bool whole)
{
    return model->layers * model->head_dim * (whole ? model->heads + model->kv_heads : 2);
}

sl_value sl_decoder_output(sl_forward *f, sl_value x)
{
    int64_t d = f->model->dim, a = f->model->heads * f->model->head_dim;
    sl_value o =
        matrix(f, "o", d, a, glorot(a, d), 1, (const sl_param_part[]){{"self_attn.o_proj.weight", 0, d, false, 0}});
    const sl_param_part part = {"self_attn.o_proj.bias", 0, d, false, 0};
    return sl_forward_linear(f, "o", x, o, bias(f, "o.bias", f->model->o_bias, d, 1, &part));
}

sl_value sl_decoder_feed_forward(sl_forward *f, sl_value x)
{
    int64_t d = f->model->dim, ffn = f->model->ffn;
    sl_attrs gate = {.raw = {0}};
    const sl_param_part apart[] = {{"mlp.gate_proj.weight", 0, ffn, false, 0},
                                   {"mlp.up_proj.weight", ffn, ffn, false, 0}};
    const sl_param_part biases[] = {{"mlp.gate_proj.bias", 0, ffn, false, 0}, {"mlp.up_proj.bias", ffn, ffn, false, 0}};
    const sl_param_part fused = {"mlp.gate_up_proj.weight", 0, 2 * ffn, false, 0};
    const sl_param_part down_bias = {"mlp.down_proj.bias", 0, d, false, 0};
    const bool one = f->model->family->fused_files, biased = f->model->mlp_bias;
    sl_value gate_up = matrix(f, "gate_up", 2 * ffn, d, glorot(d, ffn), one ? 1 : 2, one ? &fused : apart);
    sl_value down =
        matrix(f, "down", d, ffn, glorot(ffn, d), 1, (const sl_param_part[]){{"mlp.down_proj.weight", 0, d, false, 0}});
    sl_value h = sl_forward_linear(f, "gate_up", x, gate_up, bias(f, "gate_up.bias", biased, 2 * ffn, 2, biases));
    sl_swiglu_set(&gate)->gelu = f->model->family->gelu_gate;
    h = sl_forward_op(f, SL_OP_SWIGLU, f->model->family->gelu_gate ? "geglu" : "swiglu", &gate, &h, 1, NULL);
    return sl_forward_linear(f, "down", h, down, bias(f, "down.bias", biased, d, 1, &down_bias));
}

sl_value sl_decoder_mlp(sl_forward *f, sl_value x)
{
    sl_value h = sl_decoder_norm(f, "mlp_norm", "post_attention_layernorm.weight", x);
    return sl_forward_add(f, "mlp_add", x, sl_decoder_feed_forward(f, h));
}

/* The factor is rounded to the weights' dtype, as in transformers. */
static sl_value scale_embedding(sl_forward *f, sl_value x)
{
    sl_attrs attrs = {.raw = {0}};
    float root = (float) sqrt((double) f->model->dim);
    sl_scale_set(&attrs)->value = f->graph->dtype == SL_BF16 ? sl_bf16_to_f32(sl_f32_to_bf16(root)) : root;
    return sl_forward_op(f, SL_OP_SCALE, "embedding_scale", &attrs, &x, 1, NULL);
}

sl_status sl_decoder_build(const sl_model *model, sl_graph *graph, sl_value (*layer)(sl_forward *f, sl_value x),
                           sl_value *loss)
{
    int64_t d = model->dim, v = model->vocab;
    sl_forward f = {.model = model, .graph = graph};
    sl_forward_block(&f, "embedding", "model");
    sl_value table =
        matrix(&f, "embedding", v, d, 1, 1, (const sl_param_part[]){{"embed_tokens.weight", 0, v, false, 0}});
    sl_value x = sl_forward_op(&f, SL_OP_EMBEDDING, "embedding", NULL,
                               (const sl_value[]){table, sl_forward_input(&f, SL_INPUT_TOKENS)}, 2, NULL);
    if (model->family->scaled_embedding)
        x = scale_embedding(&f, x);
    for (int64_t i = 0; i < model->layers; i++) {
        sl_forward_layer(&f, i, "model.layers");
        x = layer(&f, x);
    }
    sl_forward_block(&f, "head", "");
    x = sl_decoder_norm(&f, "norm", "model.norm.weight", x);
    if (!model->tied)
        table = matrix(&f, "head", v, d, glorot(d, v), 1, (const sl_param_part[]){{"lm_head.weight", 0, v, false, 0}});
    *loss = sl_forward_head(&f, "loss", x, table);
    return f.status;
}

int64_t sl_decoder_parameters(const sl_model *model)
{
    int64_t d = model->dim, a = model->heads * model->head_dim, k = model->kv_heads * model->head_dim;
    int64_t layer = d * (2 * a + 2 * k + 3 * model->ffn) + 2 * d;
    layer += (model->qkv_bias ? a + 2 * k : 0) + (model->o_bias ? d : 0) + (model->mlp_bias ? 2 * model->ffn + d : 0);
    return model->vocab * d * (model->tied ? 1 : 2) + model->layers * layer + d;
}
