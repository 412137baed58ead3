/* The public builder: gradients of what it builds, the same bits as a family's, and a message for every mistake. */
#include <stdio.h>

#include "core/text.h"
#include "model/differences.h"
#include "model/internal.h"
#include "sluice/model.h"

int own_model_main(int argc, char **argv);
#define main own_model_main
#include "../../examples/own_model.c"
#undef main

static sl_model model_of(sl_status (*callback)(void *, sl_builder *), void *user, int64_t vocab)
{
    sl_model model;
    sl_model_def def = SL_SIZED(sl_model_def);
    def.name = "mine", def.identity = "1", def.vocab = vocab, def.max_seqlen = SEQLEN, def.build = callback,
    def.user = user;
    CHECK_OK(sl_model_of(&def, &model));
    return model;
}

/* ---- gradients ---- */

static config tiny = {.layers = 2, .dim = 16, .ffn = 24, .vocab = 29, .heads = 4, .kv_heads = 2, .head_dim = 4};

TEST(example)
{
    sl_model model = model_of(build, &tiny, tiny.vocab);
    check_differences(model, SEQLEN);
    check_differences(model, 2 * SEQLEN);
    check_differences(model, 5);
    CHECK_OK(sl_model_count(&model, 7, 1));
    int64_t layer = 16 + 16 * 32 + 8 + 16 * 16 + 48 * 16 + 24 * 16;
    CHECK_I64(sl_model_parameters(&model), 2 * 29 * 16 + 16 + 2 * layer);
}

static sl_var vector(sl_builder *b, const char *name, int64_t count, sl_initializer init)
{
    return sl_build_parameter(b, SL_PARAMETER(.name = name, .rows = count, .init = init));
}

/* Every op, learned positions, a shared table, two losses. */
static sl_status build_everything(void *user, sl_builder *b)
{
    const int64_t d = 16, v = 29;
    const bool frozen = user != NULL;
    sl_build_block(b, "embedding", "");
    sl_var table = matrix(b, "tokens", v + 3, d), places = matrix(b, "positions", SEQLEN, d);
    sl_var x = sl_build_embedding(b, "tokens", table, sl_build_tokens(b));
    x = sl_build_add(b, "sum", x, sl_build_embedding(b, "positions", places, sl_build_positions(b)));
    x = sl_build_dropout(b, "dropout", x, 0.25f);
    sl_build_layer(b, 0, "h");
    sl_var h = sl_build_layernorm(b, "norm", x, vector(b, "norm.weight", d, SL_INIT_ONES),
                                  vector(b, "norm.bias", d, SL_INIT_ZEROS), 1e-5f);
    sl_var w = sl_build_parameter(b, SL_PARAMETER(.name = "qkv", .rows = 3 * d, .columns = d, .init = SL_INIT_NORMAL,
                                                  .std = 0.3f, .no_decay = 1, .frozen = frozen,
                                                  .parts = {{"q", d, 0}, {"kv", 2 * d, 1}}));
    h = sl_build_linear(b, "qkv", h, w, vector(b, "qkv.bias", 3 * d, SL_INIT_ZEROS));
    h = sl_build_attention(b, "attention", h,
                           SL_ATTENTION(.heads = 2, .kv_heads = 2, .head_dim = 8, .rope_theta = 100, .rope_elements = 4,
                                        .window = 5, .cap = 20, .scale = 0.3f));
    x = sl_build_add(b, "add", x, h);
    sl_build_group(b, "mlp");
    sl_var heads = sl_build_reshape(b, "heads", x, 4);
    heads = sl_build_rmsnorm(b, "head_norm", heads, vector(b, "head_norm", 4, SL_INIT_ONES), 1e-5f);
    heads = sl_build_reshape(b, "rows", heads, d);
    sl_var gate = sl_build_slice(b, "gate", heads, 4, 8), up = sl_build_slice(b, "up", heads, 0, 8);
    gate = sl_build_gelu(b, "gelu", gate, 1);
    h = sl_build_mul(b, "gated", gate, sl_build_gelu(b, "exact", up, 0));
    sl_var parts[] = {h, sl_build_scale(b, "scaled", up, 0.5f), gate};
    h = sl_build_concat(b, "parts", parts, 3);
    CHECK(sl_build_columns(b, h) == 24 && sl_build_columns(b, w) == d && sl_build_columns(b, table) == d);
    x = sl_build_add(b, "mlp_add", x, linear(b, "down", "down", sl_build_swiglu(b, "swiglu", h), d));
    sl_build_block(b, "head", "");
    sl_build_loss(b, "first", x, table, 0.75);
    sl_build_loss(b, "second", x, matrix(b, "head", v, d), 0.25);
    return SL_OK;
}

TEST(every_op)
{
    sl_model model = model_of(build_everything, NULL, 29);
    check_differences(model, SEQLEN);
    check_differences(model, 3 * SEQLEN);
    check_differences(model, 5);
}

/* One layer of attention, rotated as the first sequence of a test case says. */
static sl_status build_rotated(void *user, sl_builder *b)
{
    const int64_t d = 16;
    sl_build_block(b, "embedding", "");
    sl_var table = matrix(b, "tokens", 29, d);
    sl_var x = sl_build_embedding(b, "tokens", table, sl_build_tokens(b));
    sl_build_layer(b, 0, "h");
    sl_var h = sl_build_linear(b, "qkv", x, matrix(b, "qkv", 3 * d, d), (sl_var){0});
    x = sl_build_add(b, "add", x, sl_build_attention(b, "attention", h, user));
    sl_build_block(b, "head", "");
    sl_build_loss(b, "loss", x, table, 1);
    return SL_OK;
}

/* Gradients of every rotation; and the lengths, factors and magnitudes matter. */
TEST(rotations)
{
    static const float factors[8] = {1, 1.5f, 2, 4, 1.5f, 3, 8, 30};
#define ROTATED .heads = 2, .kv_heads = 2, .head_dim = 8, .rope_theta = 100
    const sl_attention_def *const rotations[] = {
        SL_ATTENTION(ROTATED),
        SL_ATTENTION(ROTATED, .rope_scaling = SL_ROPE_LINEAR, .rope_factor = 4),
        SL_ATTENTION(ROTATED, .rope_scaling = SL_ROPE_DYNAMIC, .rope_factor = 4, .rope_original_context = 4),
        SL_ATTENTION(ROTATED, .rope_scaling = SL_ROPE_YARN, .rope_factor = 4, .rope_low_freq_factor = 1,
                     .rope_high_freq_factor = 4, .rope_original_context = 32),
        SL_ATTENTION(ROTATED, .rope_scaling = SL_ROPE_YARN, .rope_factor = 4, .rope_low_freq_factor = 1,
                     .rope_high_freq_factor = 4, .rope_original_context = 32, .rope_magnitude = 1.3f),
        SL_ATTENTION(ROTATED, .rope_scaling = SL_ROPE_YARN, .rope_factor = 4, .rope_low_freq_factor = 1,
                     .rope_high_freq_factor = 4, .rope_original_context = 32, .rope_exact_ramp = 1),
        SL_ATTENTION(ROTATED, .rope_scaling = SL_ROPE_LONG, .rope_original_context = 1000, .rope_factors = factors),
        SL_ATTENTION(ROTATED, .rope_scaling = SL_ROPE_LONG, .rope_original_context = 4, .rope_factors = factors),
    };
    double loss[SL_COUNT(rotations)];
    for (int64_t i = 0; i < SL_COUNT(rotations); i++) {
        sl_model model = model_of(build_rotated, (void *) (uintptr_t) rotations[i], 29);
        check_differences(model, SEQLEN);
        check_differences(model, 5);
        interpreter it = start(&model, interpret_config(SEQLEN, SEQUENCES, SEQLEN, SL_PRECISION_F32));
        interpret_step(&it, false);
        loss[i] = interpret_loss(&it);
        for (int64_t k = 0; k < i; k++)
            CHECK_MSG(fabs(loss[i] - loss[k]) > 1e-6, "rotations %d and %d are the same", (int) i, (int) k);
        interpret_destroy(&it);
    }
}

/* Weights that are declared frozen have no gradient; a part may be transposed in files. */
TEST(declared_parameters)
{
    bool frozen_too = true;
    sl_model model = model_of(build_everything, &frozen_too, 29);
    interpreter it = start(&model, interpret_config(SEQLEN, SEQUENCES, SEQLEN, SL_PRECISION_F32));
    int frozen = 0, decayed = 0;
    for (int32_t p = 0; p < it.program->n_params; p++) {
        const sl_param *param = &it.program->params[p];
        frozen += param->frozen;
        decayed += param->decay;
        CHECK(param->frozen == (strcmp(param->name, "h.0.qkv") == 0));
        if (param->frozen) {
            CHECK_I64(param->n_parts, 2);
            CHECK_STR(param->parts[1].name, "h.0.kv");
            CHECK(param->parts[1].row == 16 && param->parts[1].rows == 32 && param->parts[1].transposed);
        }
    }
    CHECK(frozen == 1 && decayed == 4); /* two tables, down, head */
    CHECK_STR(it.program->groups[it.program->n_groups - 2].name, "layers.0.mlp");
    interpret_destroy(&it);
}

/* ---- mistakes ---- */

static config usual = {.layers = 1, .dim = 8, .ffn = 8, .vocab = 11, .heads = 2, .kv_heads = 1, .head_dim = 4};

/* A model with one mistake. */
typedef struct wrong {
    const char *name;
    sl_var (*add)(sl_builder *b, sl_var x, sl_var w); /* within a layer: x [n, 8], w [8, 8] */
    const char *message;
} wrong;

static sl_var from_elsewhere;

static sl_status build_wrong(void *user, sl_builder *b)
{
    const wrong *one = user;
    sl_build_block(b, "embedding", "");
    sl_var x = sl_build_embedding(b, "embed", matrix(b, "embed", usual.vocab, 8), sl_build_tokens(b));
    sl_build_layer(b, 0, "h");
    sl_var w = matrix(b, "w", 8, 8);
    x = sl_build_linear(b, "linear", x, w, (sl_var){0});
    sl_var y = one->add(b, x, w);
    /* What follows a mistake does nothing. */
    sl_build_block(b, "head", "");
    sl_build_loss(b, "loss", y, matrix(b, "head", usual.vocab, 8), 1);
    return SL_OK;
}

#define WRONG(name, expression)                           \
    static sl_var name(sl_builder *b, sl_var x, sl_var w) \
    {                                                     \
        (void) b, (void) x, (void) w;                     \
        return expression;                                \
    }
#define ATTEND(...) sl_build_attention(b, "op", x, SL_ATTENTION(__VA_ARGS__))
#define DECLARE(...) (sl_build_parameter(b, SL_PARAMETER(__VA_ARGS__)), x)

WRONG(none_given, sl_build_gelu(b, "op", (sl_var){0}, 0))
WRONG(other_graph, sl_build_add(b, "op", x, from_elsewhere))
WRONG(beyond, sl_build_add(b, "op", x, (sl_var){x.id + 1000}))
WRONG(parameter_as_activation, sl_build_add(b, "op", x, w))
WRONG(activation_as_parameter, sl_build_linear(b, "op", x, x, (sl_var){0}))
WRONG(tokens_as_activation, sl_build_add(b, "op", x, sl_build_tokens(b)))
WRONG(activation_as_indices, sl_build_embedding(b, "op", w, x))
WRONG(few_rows, sl_build_embedding(b, "op", w, sl_build_tokens(b)))
WRONG(few_positions, sl_build_embedding(b, "op", w, sl_build_positions(b)))
WRONG(shapes, sl_build_add(b, "op", x, sl_build_slice(b, "part", x, 0, 4)))
WRONG(matmul_shapes, sl_build_linear(b, "op", x, matrix(b, "m", 8, 4), (sl_var){0}))
WRONG(bias_shape, sl_build_linear(b, "op", x, w, w))
WRONG(norm_shape, sl_build_rmsnorm(b, "op", x, w, 1e-5f))
WRONG(norm_eps, sl_build_rmsnorm(b, "op", x, vector(b, "v", 8, SL_INIT_ONES), -1))
WRONG(norm_nan, sl_build_layernorm(b, "op", x, vector(b, "v", 8, SL_INIT_ONES), vector(b, "u", 8, SL_INIT_ONES), NAN))
WRONG(slice_out, sl_build_slice(b, "op", x, 4, 5))
WRONG(slice_far, sl_build_slice(b, "op", x, INT64_MAX, 1))
WRONG(slice_none, sl_build_slice(b, "op", x, 0, 0))
WRONG(reshape_rest, sl_build_reshape(b, "op", x, 3))
WRONG(reshape_tokens, sl_build_reshape(b, "op", x, 16))
WRONG(reshape_none, sl_build_reshape(b, "op", x, 0))
WRONG(concat_one, sl_build_concat(b, "op", &x, 1))
WRONG(concat_five, sl_build_concat(b, "op", (sl_var[]){x, x, x, x, x}, 5))
WRONG(concat_null, sl_build_concat(b, "op", NULL, 2))
WRONG(swiglu_odd, sl_build_swiglu(b, "op", sl_build_slice(b, "part", x, 0, 3)))
WRONG(dropout_one, sl_build_dropout(b, "op", x, 1))
WRONG(dropout_rows, sl_build_dropout(b, "op", sl_build_reshape(b, "heads", x, 4), 0.5f))
WRONG(scale_nan, sl_build_scale(b, "op", x, NAN))
WRONG(heads_zero, ATTEND(.heads = 0, .kv_heads = 1, .head_dim = 2))
WRONG(heads_multiple, ATTEND(.heads = 3, .kv_heads = 2, .head_dim = 2))
WRONG(heads_width, ATTEND(.heads = 2, .kv_heads = 2, .head_dim = 2))
WRONG(heads_wide, ATTEND(.heads = 2, .kv_heads = 2, .head_dim = 100000))
WRONG(rope_odd, ATTEND(.heads = 2, .kv_heads = 1, .head_dim = 2, .rope_theta = 10, .rope_elements = 1))
WRONG(rope_negative, ATTEND(.heads = 2, .kv_heads = 1, .head_dim = 2, .rope_theta = -1))
WRONG(rope_nan, ATTEND(.heads = 2, .kv_heads = 1, .head_dim = 2, .rope_theta = NAN))
WRONG(rope_unknown,
      ATTEND(.heads = 2, .kv_heads = 1, .head_dim = 2, .rope_theta = 10, .rope_scaling = (sl_rope_scaling) 9))
WRONG(rope_no_factors, ATTEND(.heads = 2, .kv_heads = 1, .head_dim = 2, .rope_theta = 10, .rope_scaling = SL_ROPE_LONG,
                              .rope_original_context = 8))
WRONG(rope_bad_factors, ATTEND(.heads = 2, .kv_heads = 1, .head_dim = 2, .rope_theta = 10, .rope_scaling = SL_ROPE_LONG,
                               .rope_original_context = 8, .rope_factors = (const float[]){1, 0}))
WRONG(window_negative, ATTEND(.heads = 2, .kv_heads = 1, .head_dim = 2, .window = -1))
WRONG(cap_negative, ATTEND(.heads = 2, .kv_heads = 1, .head_dim = 2, .cap = -1))
WRONG(attention_null, sl_build_attention(b, "op", x, NULL))
WRONG(attention_size, sl_build_attention(b, "op", x, &(sl_attention_def){.struct_size = 1}))
WRONG(qk_heads, sl_build_qk_norm(b, "op", x, vector(b, "q", 2, SL_INIT_ONES), vector(b, "k", 2, SL_INIT_ONES), 3, 2, 0))
WRONG(qk_weights,
      sl_build_qk_norm(b, "op", x, vector(b, "q", 2, SL_INIT_ONES), vector(b, "k", 1, SL_INIT_ONES), 2, 1, 0))
WRONG(unnamed, sl_build_gelu(b, NULL, x, 0))
WRONG(nameless, sl_build_gelu(b, "", x, 0))
WRONG(long_name,
      sl_build_gelu(b, "a name of an op that is very much longer than the sixty-three bytes it may have", x, 0))
WRONG(param_twice, (matrix(b, "w", 8, 8), x))
WRONG(param_in_part, DECLARE(.name = "u", .rows = 8, .columns = 8, .parts = {{"w", 8, 0}}))
WRONG(parts_twice, DECLARE(.name = "u", .rows = 8, .columns = 8, .parts = {{"p", 4, 0}, {"p", 4, 0}}))
WRONG(parts_rows, DECLARE(.name = "u", .rows = 8, .columns = 8, .parts = {{"p", 4, 0}, {"q", 3, 0}}))
WRONG(parts_negative, DECLARE(.name = "u", .rows = 8, .columns = 8, .parts = {{"p", 9, 0}, {"q", -1, 0}}))
WRONG(param_rows, DECLARE(.name = "u", .rows = 0))
WRONG(param_huge, DECLARE(.name = "u", .rows = INT64_MAX, .columns = INT64_MAX))
WRONG(param_init, DECLARE(.name = "u", .rows = 8, .init = (sl_initializer) 9))
WRONG(param_std, DECLARE(.name = "u", .rows = 8, .init = SL_INIT_NORMAL))
WRONG(param_nameless, DECLARE(.rows = 8))
WRONG(param_null, (sl_build_parameter(b, NULL), x))
WRONG(param_unused, DECLARE(.name = "u", .rows = 8))
WRONG(op_unused, (sl_build_gelu(b, "op", x, 0), x))
WRONG(group_split,
      (sl_build_group(b, "a"), vector(b, "u", 8, SL_INIT_ONES), sl_build_group(b, "c"), vector(b, "v", 8, SL_INIT_ONES),
       sl_build_group(b, "a"),
       sl_build_layernorm(b, "op", x, vector(b, "s", 8, SL_INIT_ONES), vector(b, "t", 8, SL_INIT_ONES), 0)))
WRONG(block_twice, (sl_build_block(b, "embedding", "e"), x))
WRONG(block_empty, (sl_build_block(b, "empty", "e"), x))
WRONG(block_prefix, (sl_build_block(b, "middle", NULL), x))
WRONG(block_nameless, (sl_build_block(b, NULL, ""), x))
WRONG(loss_early, (sl_build_loss(b, "early", x, matrix(b, "m", 11, 8), 1), x))
WRONG(loss_narrow, (sl_build_loss(b, "early", x, w, 1), x))
WRONG(loss_nan, (sl_build_loss(b, "early", x, matrix(b, "m", 11, 8), NAN), x))
WRONG(columns_of_none, (sl_build_columns(b, (sl_var){0}), x))

static const wrong mistakes[] = {
    {"nothing for an operand", none_given, "op: x is missing"},
    {"a value of another graph", other_graph, "op: y is no value of this graph"},
    {"a value that is not there", beyond, "op: y is no value of this graph"},
    {"a parameter for an activation", parameter_as_activation, "op: y is not an activation"},
    {"an activation for a parameter", activation_as_parameter, "op: weight is not a parameter"},
    {"tokens for an activation", tokens_as_activation, "op: y is not an activation"},
    {"an activation for tokens", activation_as_indices, "op: indices is not sl_build_tokens"},
    {"fewer rows than tokens", few_rows, "table h.0.w has 8 rows, but there are 11 tokens"},
    {"fewer rows than positions", few_positions, "table h.0.w has 8 rows, but there are 12 positions"},
    {"other shapes", shapes, "h.0.op: add: operand b must be f32 [12, 8]"},
    {"other columns", matmul_shapes, "h.0.op: matmul"},
    {"a matrix for a bias", bias_shape, "h.0.op: matmul"},
    {"a matrix for a norm", norm_shape, "h.0.op: rmsnorm"},
    {"a negative epsilon", norm_eps, "epsilon is -1"},
    {"an epsilon that is NaN", norm_nan, "epsilon is nan"},
    {"a slice beyond", slice_out, "x has 8 columns, not 5 from 4 on"},
    {"a slice far beyond", slice_far, "x has 8 columns"},
    {"a slice of nothing", slice_none, "x has 8 columns, not 0"},
    {"rows of 3", reshape_rest, "8 elements of a token do not fill rows of 3"},
    {"rows of two tokens", reshape_tokens, "do not fill rows of 16"},
    {"rows of nothing", reshape_none, "do not fill rows of 0"},
    {"one part", concat_one, "1 values are not two to four"},
    {"five parts", concat_five, "5 values are not two to four"},
    {"no parts", concat_null, "0 values are not two to four"},
    {"an odd SwiGLU", swiglu_odd, "h.0.op: swiglu"},
    {"dropout of all", dropout_one, "the probability is 1"},
    {"dropout of heads", dropout_rows, "op: drop out before or after a reshape"},
    {"a factor that is NaN", scale_nan, "the factor is nan"},
    {"no heads", heads_zero, "op: 0 heads of 2"},
    {"heads that are no multiple", heads_multiple, "op: 3 heads of 2 and 2 of keys"},
    {"heads that do not fill qkv", heads_width, "h.0.op.rope: rope: operand qkv must be"},
    {"heads of 100000", heads_wide, "head_dim is 1 to 256"},
    {"an odd rotation", rope_odd, "even number of elements"},
    {"a negative theta", rope_negative, "positive theta"},
    {"a theta that is NaN", rope_nan, "rope_theta nan"},
    {"an unknown scaling", rope_unknown, "unknown scaling 9"},
    {"no factors", rope_no_factors, "needs rope_factors"},
    {"a factor of 0", rope_bad_factors, "rope_factors[1] is 0"},
    {"a negative window", window_negative, "window and soft cap"},
    {"a negative cap", cap_negative, "window and soft cap"},
    {"no attention", attention_null, "the pointer to sl_attention_def is NULL"},
    {"an attention without size", attention_size, "SL_SIZED(sl_attention_def)"},
    {"QK-norm of other heads", qk_heads, "op: 3 heads of 2 and 2"},
    {"QK-norm of two sizes", qk_weights, "h.0.op: qk_norm"},
    {"no name", unnamed, "the name of an op has 0 bytes"},
    {"an empty name", nameless, "the name of an op has 0 bytes"},
    {"a long name", long_name, "give it 1 to 63"},
    {"a name twice", param_twice, "parameter h.0.w is declared twice"},
    {"a name of a part twice", param_in_part, "parameter h.0.w is declared twice"},
    {"two parts of a name", parts_twice, "parameter h.0.u has two parts called h.0.p"},
    {"too few rows in parts", parts_rows, "its parts have 7 rows together, not 8"},
    {"parts of no rows", parts_negative, "part p has 9 rows of 8"},
    {"no rows", param_rows, "parameter u is 0 x 0"},
    {"too many rows", param_huge, "parameter u is 9223372036854775807"},
    {"no such initializer", param_init, "there is no initializer 9"},
    {"no deviation", param_std, "its standard deviation is 0"},
    {"no name of a parameter", param_nameless, "the name of a parameter has 0 bytes"},
    {"no parameter", param_null, "the pointer to sl_parameter_def is NULL"},
    {"a parameter without use", param_unused, "parameter h.0.u is not used"},
    {"an op without use", op_unused, "nothing that leads to a loss uses the result of h.0.op"},
    {"a group in two places", group_split, "parameter group layers.0.a is declared in two places"},
    {"a block twice", block_twice, "there are two blocks called embedding"},
    {"a block of nothing", block_empty, "block empty has no op"},
    {"a block without prefix", block_prefix, "block middle: the prefix is NULL"},
    {"a block without name", block_nameless, "the name of a block has 0 bytes"},
    {"a loss in a layer", loss_early, "block head comes after a loss"},
    {"a head of too few rows", loss_narrow, "weight h.0.w has 8 rows, but there are 11 tokens"},
    {"a weight that is NaN", loss_nan, "loss early of weight nan"},
    {"columns of nothing", columns_of_none, "sl_build_columns: x is no value"},
};

static void check_mistake(const sl_model *model, const char *name, const char *message)
{
    for (int training = 0; training <= 1; training++) {
        sl_graph_config chunk = {.tokens = 12, .max_segments = 1, .dtype = SL_F32, .training = training};
        sl_graph *graph;
        CHECK_OK(sl_graph_create(&chunk, &graph));
        sl_status status = sl_model_build(model, graph);
        CHECK_MSG(status == SL_E_USAGE, "%s: status %d", name, (int) status);
        CHECK_MSG(status == SL_OK || strstr(sl_error_message(), message), "%s: %s", name, sl_error_message());
        CHECK_CONTAINS(sl_error_message(), "model mine: ");
        sl_graph_destroy(graph);
    }
}

/* Leaves a value of another graph behind. */
static sl_var remember(sl_builder *b, sl_var x, sl_var w)
{
    (void) b, (void) w;
    from_elsewhere = x;
    return x;
}

TEST(mistakes)
{
    wrong right = {"nothing wrong", remember, ""};
    sl_model model = model_of(build_wrong, &right, usual.vocab);
    CHECK_OK(sl_model_count(&model, 12, 1));
    CHECK_I64(sl_model_parameters(&model), 11 * 8 * 2 + 64);
    for (int i = 0; i < SL_COUNT(mistakes); i++) {
        wrong one = mistakes[i];
        model = model_of(build_wrong, &one, usual.vocab);
        check_mistake(&model, one.name, one.message);
    }
}

static sl_status build_nothing(void *user, sl_builder *b)
{
    (void) user, (void) b;
    return SL_OK;
}

static sl_status build_before(void *user, sl_builder *b)
{
    (void) user;
    matrix(b, "m", 2, 2);
    return SL_OK;
}

static sl_status build_group_before(void *user, sl_builder *b)
{
    (void) user;
    sl_build_group(b, "g");
    return SL_OK;
}

static sl_status build_op_before(void *user, sl_builder *b)
{
    (void) user;
    sl_build_embedding(b, "op", sl_build_tokens(b), sl_build_tokens(b));
    return SL_OK;
}

static sl_status build_without_loss(void *user, sl_builder *b)
{
    (void) user;
    sl_build_block(b, "embedding", "");
    sl_build_embedding(b, "op", matrix(b, "m", usual.vocab, 2), sl_build_tokens(b));
    return SL_OK;
}

static sl_status build_own_failure(void *user, sl_builder *b)
{
    (void) user, (void) b;
    return sl_error_set(SL_E_IO, "the file with the layers is gone");
}

TEST(mistakes_of_the_whole)
{
    static const struct {
        sl_status (*build)(void *, sl_builder *);
        const char *message;
    } wholes[] = {{build_nothing, "there is no loss"},
                  {build_before, "comes before the first block"},
                  {build_group_before, "comes before the first block"},
                  {build_op_before, "table is not a parameter"},
                  {build_without_loss, "there is no loss"}};
    for (int i = 0; i < SL_COUNT(wholes); i++) {
        sl_model model = model_of(wholes[i].build, NULL, usual.vocab);
        check_mistake(&model, "whole", wholes[i].message);
    }
    sl_model model = model_of(build_own_failure, NULL, usual.vocab);
    CHECK_FAILS(sl_model_count(&model, 12, 1), SL_E_IO);
    CHECK_STR(sl_error_message(), "the file with the layers is gone");
}

/* An earlier header's struct lacks what came later; a later one's may not use it. */
TEST(struct_sizes)
{
    sl_model model;
    sl_model_def def = SL_SIZED(sl_model_def);
    struct {
        sl_model_def known;
        int64_t later;
    } later = {{.struct_size = sizeof later}, 0};
    CHECK_FAILS(sl_model_of(&def, &model), SL_E_USAGE);
    def.name = "mine", def.identity = "1", def.vocab = 11, def.build = build;
    CHECK_OK(sl_model_of(&def, &model));
    CHECK_I64(model.max_seqlen, 0);
    later.known = def;
    later.known.struct_size = sizeof later;
    CHECK_OK(sl_model_of(&later.known, &model));
    later.later = 1;
    CHECK_FAILS(sl_model_of(&later.known, &model), SL_E_UNSUPPORTED);
    CHECK_FAILS(sl_model_of(NULL, &model), SL_E_USAGE);
    sl_model_def bad[5] = {def, def, def, def, def};
    bad[0].name = "", bad[1].identity = NULL, bad[2].build = NULL, bad[3].vocab = 0, bad[4].max_seqlen = -1;
    for (int i = 0; i < SL_COUNT(bad); i++)
        CHECK_FAILS(sl_model_of(&bad[i], &model), SL_E_USAGE);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(example);
    RUN(every_op);
    RUN(rotations);
    RUN(declared_parameters);
    RUN(mistakes);
    RUN(mistakes_of_the_whole);
    RUN(struct_sizes);
    return test_end();
}
