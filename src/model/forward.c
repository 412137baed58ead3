/* Short forms for model files: names, parameters with their Hugging Face parts, and the compositions that families share. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/internal.h"
#include "ops/attention.h"
#include "ops/cached_attention.h"
#include "ops/head_logits.h"
#include "ops/head_loss.h"
#include "ops/matmul.h"
#include "ops/rope.h"

enum { NAME_BYTES = 256 };

static void join(const char *scope, const char *name, char out[NAME_BYTES])
{
    snprintf(out, NAME_BYTES, "%s%s%s", scope, scope[0] ? "." : "", name);
}

static void begin_block(sl_forward *f, const char *name)
{
    snprintf(f->group, sizeof f->group, "%s", name);
    if (f->status == SL_OK)
        f->status = sl_graph_begin_block(f->graph, name);
}

void sl_forward_block(sl_forward *f, const char *name, const char *prefix)
{
    f->scope[0] = 0;
    snprintf(f->prefix, sizeof f->prefix, "%s", prefix);
    begin_block(f, name);
}

void sl_forward_layer(sl_forward *f, int64_t layer, const char *prefix)
{
    snprintf(f->scope, sizeof f->scope, "layers.%lld", (long long) layer);
    snprintf(f->prefix, sizeof f->prefix, "%s.%lld", prefix, (long long) layer);
    f->layer = layer;
    begin_block(f, f->scope);
}

void sl_forward_group(sl_forward *f, const char *part)
{
    snprintf(f->group, sizeof f->group, "%s.%s", f->scope, part);
}

sl_value sl_forward_input(sl_forward *f, sl_input_kind kind)
{
    sl_value value = SL_NO_VALUE;
    if (f->status == SL_OK)
        f->status = sl_graph_input(f->graph, kind, &value);
    return value;
}

sl_value sl_forward_parameter(sl_forward *f, const sl_forward_param *param)
{
    char name[NAME_BYTES], parts[SL_MAX_PARTS][NAME_BYTES];
    sl_value value = SL_NO_VALUE;
    sl_param full = {.name = name,
                     .init = param->init,
                     .init_std = param->std,
                     .decay = param->decay,
                     .frozen = param->frozen || (f->model->lora.rank && !param->adapter),
                     .adapter = param->adapter,
                     .group = f->group};
    if (f->status != SL_OK)
        return value;
    join(f->scope, param->name, name);
    full.type = param->columns ? sl_type_2d(f->graph->dtype, param->rows, param->columns)
                               : sl_type_1d(f->graph->dtype, param->rows);
    full.n_parts = param->n_parts;
    for (int i = 0; i < param->n_parts; i++) {
        full.parts[i] = param->parts[i];
        join(f->prefix, param->parts[i].name, parts[i]);
        full.parts[i].name = parts[i];
    }
    f->status = sl_graph_param(f->graph, &full, &value);
    return value;
}

sl_value sl_forward_vector(sl_forward *f, const char *name, const char *file_name, int64_t count, sl_initializer init)
{
    return sl_forward_parameter(
        f, &(const sl_forward_param){
               .name = name, .rows = count, .init = init, .n_parts = 1, .parts = {{file_name, 0, count, false, 0}}});
}

sl_value sl_forward_op(sl_forward *f, sl_op_id op, const char *name, const sl_attrs *attrs, const sl_value *in,
                       int n_in, sl_value *second)
{
    char full[NAME_BYTES];
    sl_value out[SL_MAX_OUT] = {SL_NO_VALUE, SL_NO_VALUE, SL_NO_VALUE, SL_NO_VALUE};
    join(f->scope, name, full);
    if (f->status == SL_OK)
        f->status = sl_graph_op(f->graph, op, full, attrs, in, n_in, out);
    if (second)
        *second = out[1];
    return out[0];
}

sl_value sl_forward_linear(sl_forward *f, const char *name, sl_value x, sl_value weight, sl_value bias)
{
    sl_attrs attrs = {.raw = {0}};
    sl_matmul_set(&attrs)->trans_b = 1;
    const sl_value adapted = sl_forward_lora(f, name, x, weight);
    return sl_forward_op(f, SL_OP_MATMUL, name, &attrs, (const sl_value[]){x, weight, bias, adapted}, 4, NULL);
}

sl_value sl_forward_add(sl_forward *f, const char *name, sl_value a, sl_value b)
{
    return sl_forward_op(f, SL_OP_ADD, name, NULL, (const sl_value[]){a, b}, 2, NULL);
}

/* Attention over the K/V of the text so far, which the new tokens' joins. */
static sl_value attend_to_cache(sl_forward *f, const char *name, const sl_attrs *attention, sl_value q, sl_value kv)
{
    const struct sl_attention_attrs *a = sl_attention_attrs(attention);
    sl_attrs attrs = {.raw = {0}};
    *sl_cached_attention_set(&attrs) =
        *SL_ATTRS(cached_attention, .heads = a->heads, .kv_heads = a->kv_heads, .head_dim = a->head_dim,
                  .scale = a->scale, .rows = f->graph->cache_rows, .window = a->window, .cap = a->cap);
    return sl_forward_op(f, SL_OP_CACHED_ATTENTION, name, &attrs,
                         (const sl_value[]){q, kv, sl_forward_input(f, SL_INPUT_POSITIONS)}, 3, NULL);
}

sl_value sl_forward_attend(sl_forward *f, const char *rope_name, const char *name, const sl_attrs *rope,
                           const float *factors, const sl_attrs *attention, sl_value qkv)
{
    sl_value kv, q = sl_forward_op(f, SL_OP_ROPE, rope_name, rope,
                                   (const sl_value[]){qkv, sl_forward_input(f, SL_INPUT_POSITIONS)}, 2, &kv);
    if (factors && f->status == SL_OK)
        f->status = sl_graph_constants(f->graph, factors, sl_rope_rotary(rope));
    if (f->graph->cache_rows)
        return attend_to_cache(f, name, attention, q, kv);
    return sl_forward_op(f, SL_OP_ATTENTION, name, attention,
                         (const sl_value[]){q, kv, sl_forward_input(f, SL_INPUT_SEGMENTS)}, 3, NULL);
}

static void set_rope(const sl_model *model, const sl_model_rope *rope, sl_attrs *attrs)
{
    struct sl_rope_attrs *a = sl_rope_set(attrs);
    a->style = model->rope_style;
    a->theta = rope->theta;
    a->factor = rope->factor;
    a->low_freq_factor = rope->low_freq;
    a->high_freq_factor = rope->high_freq;
    a->original_context = rope->original_context;
    a->rotary = rope->rotary;
    a->scaling = rope->scaling;
    a->magnitude = rope->magnitude;
    a->exact_ramp = rope->exact_ramp;
}

sl_value sl_forward_attention(sl_forward *f, sl_value qkv)
{
    const sl_model *model = f->model;
    const sl_model_rope *turn = sl_model_rope_of(model, f->layer);
    sl_attrs rope = {.raw = {0}}, attention = {.raw = {0}};
    sl_rope_set(&rope)->heads = sl_attention_set(&attention)->heads = (int32_t) model->heads;
    sl_rope_set(&rope)->kv_heads = sl_attention_set(&attention)->kv_heads = (int32_t) model->kv_heads;
    sl_rope_set(&rope)->head_dim = sl_attention_set(&attention)->head_dim = (int32_t) model->head_dim;
    if (turn)
        set_rope(model, turn, &rope);
    sl_attention_set(&attention)->window = sl_model_window(model, f->layer);
    sl_attention_set(&attention)->causal = 1;
    sl_attention_set(&attention)->scale =
        (float) (1.0 / sqrt(model->query_scale > 0 ? (double) model->query_scale : (double) model->head_dim));
    sl_attention_set(&attention)->cap = model->attention_cap;
    if (!turn || turn->scaling != SL_ROPE_LONG)
        return sl_forward_attend(f, "rope", "attention", &rope, NULL, &attention, qkv);
    float factors[SL_MODEL_MAX_HEAD_DIM]; /* short, long */
    const int32_t pairs = sl_rope_rotary(&rope) / 2;
    memcpy(factors, turn->short_factors, (size_t) pairs * sizeof *factors);
    memcpy(factors + pairs, turn->long_factors, (size_t) pairs * sizeof *factors);
    return sl_forward_attend(f, "rope", "attention", &rope, factors, &attention, qkv);
}

/*
 * Logits exist for `block` tokens at a time: enough that its products keep a large device busy, and no more than 2^28 logits.
 * Of the three products dx [block, d] has the fewest outputs, 2^22 at best: narrow models take more tokens.
 */
sl_value sl_forward_head(sl_forward *f, const char *name, sl_value x, sl_value weight)
{
    if (f->status != SL_OK)
        return SL_NO_VALUE;
    const int64_t *dim = f->graph->values[weight].type.dim;
    sl_attrs attrs = {.raw = {0}};
    if (f->graph->cache_rows) {
        sl_head_logits_set(&attrs)->cap = f->model->logit_cap;
        return sl_forward_op(f, SL_OP_HEAD_LOGITS, name, &attrs,
                             (const sl_value[]){x, weight, sl_forward_input(f, SL_INPUT_POSITIONS)}, 3, NULL);
    }
    int64_t block = 4096, most = SL_MAX(16, (INT64_C(1) << 28) / dim[0] / 16 * 16);
    while (block > 1024 && block * dim[1] > INT64_C(1) << 22)
        block /= 2;
    sl_head_set(&attrs)->block = SL_MIN(f->graph->tokens, SL_MIN(most, block));
    sl_head_set(&attrs)->ignore = SL_TARGET_IGNORED;
    sl_head_set(&attrs)->cap = f->model->logit_cap;
    sl_value targets = sl_forward_input(f, SL_INPUT_TARGETS);
    sl_value counts = f->graph->token_weights ? sl_forward_input(f, SL_INPUT_TOKEN_WEIGHTS) : SL_NO_VALUE;
    return sl_forward_op(f, SL_OP_HEAD_LOSS, name, &attrs, (const sl_value[]){x, weight, targets, counts}, 4, NULL);
}
