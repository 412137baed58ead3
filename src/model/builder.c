/*
 * The public builder: the forward of forward.c behind functions that trust nothing. A variable is the index of a
 * value with the number of its graph, so that one of another graph is found out:
 *
 *     id = graph's number << 32 | value + 1                 0: none
 *
 * Weights are parameters and everything else is an activation. With that no op but attention looks beyond a row, so
 * that chunking cannot change what a model computes. Shapes are checked by the ops' own rules.
 */
#include "sluice/model.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/sized.h"
#include "model/internal.h"
#include "ops/attention.h"
#include "ops/dropout.h"
#include "ops/gelu.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/qk_norm.h"
#include "ops/reshape.h"
#include "ops/scale.h"
#include "ops/slice.h"

enum { MOST_NAME = 63 };

static const sl_var none = {0};

static void mistake(sl_builder *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void mistake(sl_builder *b, const char *format, ...)
{
    char message[1024];
    va_list arguments;
    if (b->status != SL_OK)
        return;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    b->status = sl_fail(SL_E_USAGE, "%s", message);
}

static bool good_name(sl_builder *b, const char *what, const char *name)
{
    size_t length = name ? strlen(name) : 0;
    if (length < 1 || length > MOST_NAME)
        mistake(b, "the name of %s has %zu bytes: give it 1 to %d", what, length, (int) MOST_NAME);
    return b->status == SL_OK;
}

/* ---- variables ---- */

static sl_var variable(const sl_builder *b, sl_value value)
{
    return b->status == SL_OK ? (sl_var){(uint64_t) b->id << 32 | (uint64_t) (value + 1)} : none;
}

typedef enum wanted { ACTIVATION, PARAMETER, INDICES } wanted;

static bool is(const sl_graph_value *value, wanted what)
{
    bool indices = value->class == SL_VALUE_INPUT;
    bool parameter = value->class == SL_VALUE_PARAMETER;
    return what == INDICES ? indices : what == PARAMETER ? parameter : !indices && !parameter;
}

/* The value behind an operand, or SL_NO_VALUE after a mistake. */
static sl_value operand(sl_builder *b, const char *op, const char *name, sl_var x, wanted what)
{
    static const char *const names[] = {"an activation", "a parameter", "sl_build_tokens or sl_build_positions"};
    sl_value value = (sl_value) (x.id & UINT32_MAX) - 1;
    if (b->status != SL_OK)
        return SL_NO_VALUE;
    if (!x.id)
        mistake(b, "%s: %s is missing", op, name);
    else if (x.id >> 32 != b->id || value < 0 || value >= b->graph->n_values)
        mistake(b, "%s: %s is no value of this graph", op, name);
    else if (!is(&b->graph->values[value], what))
        mistake(b, "%s: %s is not %s", op, name, names[what]);
    return b->status == SL_OK ? value : SL_NO_VALUE;
}

int64_t sl_build_columns(sl_builder *b, sl_var x)
{
    sl_value value = (sl_value) (x.id & UINT32_MAX) - 1;
    if (b->status == SL_OK && (x.id >> 32 != b->id || value < 0 || value >= b->graph->n_values))
        mistake(b, "sl_build_columns: x is no value of this graph");
    if (b->status != SL_OK)
        return 0;
    const sl_type *type = &b->graph->values[value].type;
    return type->rank == 2 ? type->dim[1] : 0;
}

/* ---- blocks and parameters ---- */

static void check_block(sl_builder *b)
{
    const sl_graph *graph = b->graph;
    const sl_block *last = graph->n_blocks ? &graph->blocks[graph->n_blocks - 1] : NULL;
    if (last && !last->n_forward)
        mistake(b, "block %s has no op", last->name);
}

void sl_build_block(sl_builder *b, const char *name, const char *prefix)
{
    if (!good_name(b, "a block", name))
        return;
    check_block(b);
    if (!prefix || strlen(prefix) > MOST_NAME)
        mistake(b, "block %s: the prefix is NULL or has more than %d bytes; \"\" is none", name, (int) MOST_NAME);
    if (b->graph->n_losses)
        mistake(b, "block %s comes after a loss, which belongs to the last block", name);
    for (int32_t i = 0; i < b->graph->n_blocks; i++)
        if (strcmp(b->graph->blocks[i].name, name) == 0)
            mistake(b, "there are two blocks called %s", name);
    if (b->status != SL_OK)
        return;
    sl_forward_block(b, name, prefix);
    snprintf(b->scope, sizeof b->scope, "%s", prefix);
}

void sl_build_layer(sl_builder *b, int64_t index, const char *prefix)
{
    char name[32], full[MOST_NAME + 32];
    snprintf(name, sizeof name, "layers.%lld", (long long) index);
    snprintf(full, sizeof full, "%.*s.%lld", (int) MOST_NAME, prefix ? prefix : "", (long long) index);
    sl_build_block(b, name, prefix ? full : NULL);
}

/* Ops and parameters belong to a block. */
static bool in_block(sl_builder *b, const char *what, const char *name)
{
    if (good_name(b, what, name) && !b->graph->n_blocks)
        mistake(b, "%s comes before the first block: begin with sl_build_block", name);
    return b->status == SL_OK;
}

void sl_build_group(sl_builder *b, const char *name)
{
    if (in_block(b, "a group of parameters", name))
        snprintf(b->group, sizeof b->group, "%s.%s", b->graph->blocks[b->graph->n_blocks - 1].name, name);
}

static bool check_parameter(sl_builder *b, const sl_parameter_def *p)
{
    const int64_t most = INT64_C(1) << 32;
    int64_t rows = 0;
    if (!in_block(b, "a parameter", p->name))
        return false;
    if (p->rows < 1 || p->rows > most || p->columns < 0 || p->columns > most)
        mistake(b, "parameter %s is %lld x %lld: give rows, and columns unless it is a vector", p->name,
                (long long) p->rows, (long long) p->columns);
    if ((int) p->init < SL_INIT_ZEROS || p->init > SL_INIT_UNIFORM)
        mistake(b, "parameter %s: there is no initializer %d", p->name, (int) p->init);
    if (!(p->std >= 0 && p->std <= 1e6f) || (p->init >= SL_INIT_NORMAL && p->std == 0))
        mistake(b, "parameter %s: its standard deviation is %g", p->name, (double) p->std);
    for (int i = 0; i < SL_PARAMETER_PARTS && p->parts[i].name; i++) {
        good_name(b, "a part of a parameter", p->parts[i].name);
        if (p->parts[i].rows < 1 || p->parts[i].rows > p->rows || (p->parts[i].transposed && !p->columns))
            mistake(b, "parameter %s: part %s has %lld rows of %lld", p->name, p->parts[i].name,
                    (long long) p->parts[i].rows, (long long) p->rows);
        rows += p->parts[i].rows;
    }
    if (rows && rows != p->rows)
        mistake(b, "parameter %s: its parts have %lld rows together, not %lld", p->name, (long long) rows,
                (long long) p->rows);
    return b->status == SL_OK;
}

/* Names stand for parameters in options, names of parts in files: a new parameter must have its own. */
static void check_names(sl_builder *b, const sl_forward_param *param)
{
    const sl_graph *graph = b->graph;
    char name[256], part[256];
    const char *dot = b->prefix[0] ? "." : "";
    snprintf(name, sizeof name, "%s%s%s", b->scope, dot, param->name);
    for (int i = 0; i < param->n_parts; i++) {
        snprintf(part, sizeof part, "%s%s%s", b->prefix, dot, param->parts[i].name);
        for (int32_t p = 0; p < graph->n_params; p++)
            for (int k = 0; k < graph->params[p].n_parts; k++)
                if (strcmp(graph->params[p].name, name) == 0 || strcmp(graph->params[p].parts[k].name, part) == 0)
                    mistake(b, "parameter %s is declared twice: use the first one's value again to share it", part);
        for (int k = 0; k < i; k++)
            if (strcmp(param->parts[k].name, param->parts[i].name) == 0)
                mistake(b, "parameter %s has two parts called %s", name, part);
    }
}

sl_var sl_build_parameter(sl_builder *b, const sl_parameter_def *caller)
{
    sl_parameter_def p;
    if (b->status == SL_OK)
        b->status = sl_sized_get(&p, caller, sizeof p, "sl_parameter_def");
    if (b->status != SL_OK || !check_parameter(b, &p))
        return none;
    sl_forward_param param = {.name = p.name,
                              .rows = p.rows,
                              .columns = p.columns,
                              .init = p.init,
                              .std = p.std,
                              .decay = p.columns && !p.no_decay,
                              .frozen = p.frozen,
                              .n_parts = 1,
                              .parts = {{p.name, 0, p.rows, false, 0}}};
    for (int64_t i = 0, row = 0; i < SL_PARAMETER_PARTS && p.parts[i].name; row += p.parts[i++].rows) {
        param.parts[i] = (sl_param_part){p.parts[i].name, row, p.parts[i].rows, p.parts[i].transposed, 0};
        param.n_parts = (int) i + 1;
    }
    check_names(b, &param);
    return variable(b, sl_forward_parameter(b, &param));
}

/* ---- ops ---- */

sl_var sl_build_tokens(sl_builder *b)
{
    return variable(b, sl_forward_input(b, SL_INPUT_TOKENS));
}

sl_var sl_build_positions(sl_builder *b)
{
    return variable(b, sl_forward_input(b, SL_INPUT_POSITIONS));
}

static sl_var append(sl_builder *b, sl_op_id op, const char *name, const sl_attrs *attrs, const sl_value *in, int n_in)
{
    if (!in_block(b, "an op", name))
        return none;
    return variable(b, sl_forward_op(b, op, name, attrs, in, n_in, NULL));
}

/* Rows are looked up unchecked, so the table has one for every index there can be. */
sl_var sl_build_embedding(sl_builder *b, const char *name, sl_var table, sl_var indices)
{
    const sl_value in[] = {operand(b, name, "table", table, PARAMETER), operand(b, name, "indices", indices, INDICES)};
    if (!in_block(b, "an op", name))
        return none;
    const sl_graph_value *rows = &b->graph->values[in[0]];
    bool tokens = b->graph->values[in[1]].input == SL_INPUT_TOKENS;
    const int64_t needed = tokens ? b->model->vocab : b->model->max_seqlen;
    if (needed == 0)
        mistake(b, "%s: positions are looked up, so sl_model_def.max_seqlen must say how many there are", name);
    if (rows->type.dim[0] < needed)
        mistake(b, "%s: table %s has %lld rows, but there are %lld %s", name, rows->name, (long long) rows->type.dim[0],
                (long long) needed, tokens ? "tokens" : "positions");
    return append(b, SL_OP_EMBEDDING, name, NULL, in, 2);
}

sl_var sl_build_linear(sl_builder *b, const char *name, sl_var x, sl_var weight, sl_var bias)
{
    sl_attrs attrs = {.raw = {0}};
    sl_matmul_set(&attrs)->trans_b = 1;
    const sl_value in[] = {operand(b, name, "x", x, ACTIVATION), operand(b, name, "weight", weight, PARAMETER),
                           bias.id ? operand(b, name, "bias", bias, PARAMETER) : SL_NO_VALUE};
    return append(b, SL_OP_MATMUL, name, &attrs, in, 3);
}

static bool good_eps(sl_builder *b, const char *name, float eps)
{
    if (!(eps >= 0 && eps <= 1))
        mistake(b, "%s: epsilon is %g; it must lie between 0 and 1", name, (double) eps);
    return b->status == SL_OK;
}

sl_var sl_build_rmsnorm(sl_builder *b, const char *name, sl_var x, sl_var weight, float eps)
{
    sl_attrs attrs = {.raw = {0}};
    sl_norm_set(&attrs)->eps = eps;
    const sl_value in[] = {operand(b, name, "x", x, ACTIVATION), operand(b, name, "weight", weight, PARAMETER)};
    return good_eps(b, name, eps) ? append(b, SL_OP_RMSNORM, name, &attrs, in, 2) : none;
}

sl_var sl_build_layernorm(sl_builder *b, const char *name, sl_var x, sl_var weight, sl_var bias, float eps)
{
    sl_attrs attrs = {.raw = {0}};
    sl_norm_set(&attrs)->eps = eps;
    const sl_value in[] = {operand(b, name, "x", x, ACTIVATION), operand(b, name, "weight", weight, PARAMETER),
                           operand(b, name, "bias", bias, PARAMETER)};
    return good_eps(b, name, eps) ? append(b, SL_OP_LAYERNORM, name, &attrs, in, 3) : none;
}

static bool good_heads(sl_builder *b, const char *name, int64_t heads, int64_t kv_heads, int64_t head_dim)
{
    const int64_t most = 256;
    if (heads < 1 || kv_heads < 1 || heads % kv_heads || head_dim < 1 || head_dim > most || heads > SL_MODEL_MAX_DIM)
        mistake(b,
                "%s: %lld heads of %lld and %lld of keys and values: heads is a multiple of kv_heads, head_dim is 1 to "
                "%lld",
                name, (long long) heads, (long long) head_dim, (long long) kv_heads, (long long) most);
    return b->status == SL_OK;
}

sl_var sl_build_qk_norm(sl_builder *b, const char *name, sl_var qkv, sl_var q_weight, sl_var k_weight, int32_t heads,
                        int32_t kv_heads, float eps)
{
    sl_attrs attrs = {.raw = {0}};
    const sl_value in[] = {operand(b, name, "qkv", qkv, ACTIVATION), operand(b, name, "q_weight", q_weight, PARAMETER),
                           operand(b, name, "k_weight", k_weight, PARAMETER)};
    if (!good_eps(b, name, eps))
        return none;
    const int64_t head_dim = b->graph->values[in[1]].type.dim[0];
    *sl_qk_norm_set(&attrs) =
        *SL_ATTRS(qk_norm, .heads = heads, .kv_heads = kv_heads, .head_dim = (int32_t) head_dim, .eps = eps);
    return good_heads(b, name, heads, kv_heads, head_dim) ? append(b, SL_OP_QK_NORM, name, &attrs, in, 3) : none;
}

/* NULL where the rotation has none. */
static const float *rope_factors(sl_builder *b, const char *name, const sl_attrs *rope, const float *factors)
{
    if (sl_rope_attrs(rope)->scaling != SL_ROPE_LONG || sl_rope_attrs(rope)->style == SL_ROPE_NONE)
        return NULL;
    if (!factors)
        mistake(b, "%s: SL_ROPE_LONG needs rope_factors, two for each rotated pair", name);
    for (int32_t i = 0; i < sl_rope_rotary(rope) && b->status == SL_OK; i++)
        if (!(factors[i] > 0 && isfinite(factors[i])))
            mistake(b, "%s: rope_factors[%d] is %g; give positive numbers", name, (int) i, (double) factors[i]);
    return factors;
}

sl_var sl_build_attention(sl_builder *b, const char *name, sl_var qkv, const sl_attention_def *caller)
{
    sl_attrs rope = {.raw = {0}}, attention = {.raw = {0}};
    char rope_name[MOST_NAME + 8];
    sl_attention_def a;
    const sl_value in = operand(b, name, "qkv", qkv, ACTIVATION);
    if (b->status == SL_OK)
        b->status = sl_sized_get(&a, caller, sizeof a, "sl_attention_def");
    if (!in_block(b, "an op", name) || !good_heads(b, name, a.heads, a.kv_heads, a.head_dim))
        return none;
    if (!(a.scale >= 0 && isfinite(a.scale)) || !isfinite(a.rope_theta) || !isfinite(a.cap))
        mistake(b, "%s: scale %g, rope_theta %g, cap %g: give positive numbers, or 0 for what is usual", name,
                (double) a.scale, (double) a.rope_theta, (double) a.cap);
    *sl_rope_set(&rope) = *SL_ATTRS(
        rope, .heads = a.heads, .kv_heads = a.kv_heads, .head_dim = a.head_dim,
        .style = a.rope_theta != 0 ? SL_ROPE_HALF : SL_ROPE_NONE, .theta = a.rope_theta, .factor = a.rope_factor,
        .low_freq_factor = a.rope_low_freq_factor, .high_freq_factor = a.rope_high_freq_factor,
        .original_context = a.rope_original_context, .rotary = a.rope_elements, .scaling = (int32_t) a.rope_scaling,
        .magnitude = a.rope_magnitude, .exact_ramp = a.rope_exact_ramp != 0);
    const float *factors = rope_factors(b, name, &rope, a.rope_factors);
    *sl_attention_set(&attention) = *SL_ATTRS(
        attention, .heads = a.heads, .kv_heads = a.kv_heads, .head_dim = a.head_dim, .causal = 1, .window = a.window,
        .cap = a.cap, .scale = a.scale > 0 ? a.scale : (float) (1.0 / sqrt((double) a.head_dim)));
    snprintf(rope_name, sizeof rope_name, "%s.rope", name);
    return variable(b, sl_forward_attend(b, rope_name, name, &rope, factors, &attention, in));
}

sl_var sl_build_swiglu(sl_builder *b, const char *name, sl_var gate_up)
{
    const sl_value in = operand(b, name, "gate_up", gate_up, ACTIVATION);
    return append(b, SL_OP_SWIGLU, name, NULL, &in, 1);
}

sl_var sl_build_gelu(sl_builder *b, const char *name, sl_var x, int tanh_approximation)
{
    sl_attrs attrs = {.raw = {0}};
    const sl_value in = operand(b, name, "x", x, ACTIVATION);
    sl_gelu_set(&attrs)->tanh = tanh_approximation != 0;
    return append(b, SL_OP_GELU, name, &attrs, &in, 1);
}

static sl_var append_two(sl_builder *b, sl_op_id op, const char *name, sl_var x, sl_var y)
{
    const sl_value in[] = {operand(b, name, "x", x, ACTIVATION), operand(b, name, "y", y, ACTIVATION)};
    return append(b, op, name, NULL, in, 2);
}

sl_var sl_build_add(sl_builder *b, const char *name, sl_var x, sl_var y)
{
    return append_two(b, SL_OP_ADD, name, x, y);
}

sl_var sl_build_mul(sl_builder *b, const char *name, sl_var x, sl_var y)
{
    return append_two(b, SL_OP_MUL, name, x, y);
}

sl_var sl_build_scale(sl_builder *b, const char *name, sl_var x, float factor)
{
    sl_attrs attrs = {.raw = {0}};
    const sl_value in = operand(b, name, "x", x, ACTIVATION);
    sl_scale_set(&attrs)->value = factor;
    if (!isfinite(factor))
        mistake(b, "%s: the factor is %g", name, (double) factor);
    return append(b, SL_OP_SCALE, name, &attrs, &in, 1);
}

sl_var sl_build_slice(sl_builder *b, const char *name, sl_var x, int64_t first, int64_t columns)
{
    sl_attrs attrs = {.raw = {0}};
    const sl_value in = operand(b, name, "x", x, ACTIVATION);
    const int64_t all = sl_build_columns(b, x);
    if (first < 0 || columns < 1 || columns > all || first > all - columns)
        mistake(b, "%s: x has %lld columns, not %lld from %lld on", name, (long long) all, (long long) columns,
                (long long) first);
    if (b->status == SL_OK)
        *sl_slice_set(&attrs) = (struct sl_slice_attrs){
            .first_column = first, .rows = b->graph->values[in].type.dim[0], .columns = columns};
    return append(b, SL_OP_SLICE, name, &attrs, &in, 1);
}

sl_var sl_build_concat(sl_builder *b, const char *name, const sl_var *x, int count)
{
    sl_value in[4] = {SL_NO_VALUE, SL_NO_VALUE, SL_NO_VALUE, SL_NO_VALUE};
    if (!x || count < 2 || count > SL_COUNT(in))
        mistake(b, "%s: %d values are not two to four", name ? name : "concat", x ? count : 0);
    for (int i = 0; i < count && b->status == SL_OK; i++)
        in[i] = operand(b, name, "x", x[i], ACTIVATION);
    return append(b, SL_OP_CONCAT, name, NULL, in, count);
}

sl_var sl_build_reshape(sl_builder *b, const char *name, sl_var x, int64_t columns)
{
    sl_attrs attrs = {.raw = {0}};
    const sl_value in = operand(b, name, "x", x, ACTIVATION);
    if (!in_block(b, "an op", name))
        return none;
    const int64_t each = sl_type_count(&b->graph->values[in].type) / b->graph->tokens; /* of a token */
    if (columns < 1 || each % columns)
        mistake(b, "%s: the %lld elements of a token do not fill rows of %lld", name, (long long) each,
                (long long) columns);
    sl_reshape_set(&attrs)->columns = columns;
    return append(b, SL_OP_RESHAPE, name, &attrs, &in, 1);
}

sl_var sl_build_dropout(sl_builder *b, const char *name, sl_var x, float probability)
{
    sl_attrs attrs = {.raw = {0}};
    sl_value in[] = {operand(b, name, "x", x, ACTIVATION), SL_NO_VALUE};
    if (!(probability >= 0 && probability < 1))
        mistake(b, "%s: the probability is %g; it must lie in [0, 1)", name ? name : "dropout", (double) probability);
    sl_dropout_set(&attrs)->probability = probability;
    if (b->status == SL_OK && b->graph->values[in[0]].type.dim[0] != b->graph->tokens)
        mistake(b, "%s: drop out before or after a reshape: noise is drawn by rows of tokens",
                name); /* `place` of the op */
    sl_dropout_set(&attrs)->stream = b->dropouts++;
    if (!b->graph->training || probability == 0)
        return variable(b, in[0]);
    in[1] = sl_forward_input(b, SL_INPUT_STEP);
    return append(b, SL_OP_DROPOUT, name, &attrs, in, 2);
}

void sl_build_loss(sl_builder *b, const char *name, sl_var x, sl_var weight, double share)
{
    const sl_value in = operand(b, name, "x", x, ACTIVATION), head = operand(b, name, "weight", weight, PARAMETER);
    if (!in_block(b, "a loss", name))
        return;
    const sl_type *type = &b->graph->values[head].type;
    if (type->rank != 2 || type->dim[0] < b->model->vocab)
        mistake(b, "%s: weight %s has %lld rows, but there are %lld tokens", name, b->graph->values[head].name,
                (long long) type->dim[0], (long long) b->model->vocab);
    const sl_value loss = sl_forward_head(b, name, in, head);
    if (b->status == SL_OK)
        b->status = sl_graph_loss(b->graph, loss, share, name);
}
