/* Whole tiny models: gradients against finite differences (dropout included), bit-equal gradients however chunks are grouped
 * into rounds and whether values are kept or rematerialized, slices against whole sequences, validation against training loss. */
#include "model/differences.h"
#include "model/internal.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/reshape.h"
#include "ops/slice.h"

static sl_model tiny_llama(bool tied, int32_t style)
{
    sl_model model;
    CHECK_OK(sl_model_find("byte-test", &model));
    model.dim = 16, model.heads = 4, model.kv_heads = 2, model.head_dim = 4, model.ffn = 24, model.vocab = 29;
    model.tied = tied;
    model.rope_style = style;
    return model;
}

static sl_model tiny_gpt2(float dropout)
{
    sl_model model;
    CHECK_OK(sl_model_find("gpt2", &model));
    model.layers = 2, model.dim = 16, model.heads = model.kv_heads = 2, model.head_dim = 8, model.ffn = 40,
    model.vocab = 29;
    model.max_seqlen = SEQLEN;
    model.dropout = dropout;
    return model;
}

/* ---- finite differences ---- */

/* A family of this test, in which views are rows of a weight, heads of a matrix, and the matrix again:
 *     x = x + heads(rmsnorm(heads(x W[half]^T + b)))     with the gradient of x from two sides */
static sl_status build_views(const sl_model *model, sl_graph *graph, sl_value *loss)
{
    sl_forward f = {.model = model, .graph = graph};
    int64_t d = model->dim;
    sl_attrs linear = {.raw = {0}}, part = {.raw = {0}}, heads = {.raw = {0}}, rows = {.raw = {0}}, norm = {.raw = {0}};
    *sl_slice_set(&part) = (struct sl_slice_attrs){16, 0, d, d}; /* 16 rows of 16 floats: 1024 bytes */
    sl_matmul_set(&linear)->trans_b = 1;
    sl_reshape_set(&heads)->columns = model->head_dim, sl_reshape_set(&rows)->columns = d;
    sl_norm_set(&norm)->eps = 1e-5f;
    sl_forward_param table = {.name = "table", .rows = model->vocab, .columns = d, .std = 1, .init = SL_INIT_NORMAL};
    sl_forward_param wide = {.name = "wide", .rows = 2 * d, .columns = d, .std = 1, .init = SL_INIT_NORMAL};
    sl_forward_block(&f, "embedding", "");
    sl_value w = sl_forward_parameter(&f, &table);
    sl_value x = sl_forward_op(&f, SL_OP_EMBEDDING, "embedding", NULL,
                               (const sl_value[]){w, sl_forward_input(&f, SL_INPUT_TOKENS)}, 2, NULL);
    sl_forward_block(&f, "middle", "");
    sl_value half = sl_forward_parameter(&f, &wide), bias = sl_forward_vector(&f, "bias", "", d, SL_INIT_ZEROS);
    half = sl_forward_op(&f, SL_OP_SLICE, "half", &part, &half, 1, NULL);
    sl_value h = sl_forward_op(&f, SL_OP_MATMUL, "linear", &linear, (const sl_value[]){x, half, bias}, 3, NULL);
    h = sl_forward_op(&f, SL_OP_RESHAPE, "heads", &heads, &h, 1, NULL);
    sl_value weight = sl_forward_vector(&f, "norm", "", model->head_dim, SL_INIT_ONES);
    h = sl_forward_op(&f, SL_OP_RMSNORM, "norm", &norm, (const sl_value[]){h, weight}, 2, NULL);
    h = sl_forward_op(&f, SL_OP_RESHAPE, "rows", &rows, &h, 1, NULL);
    x = sl_forward_op(&f, SL_OP_ADD, "add", NULL, (const sl_value[]){h, x}, 2, NULL);
    sl_forward_block(&f, "head", "");
    sl_forward_input(&f, SL_INPUT_POSITIONS), sl_forward_input(&f, SL_INPUT_SEGMENTS);
    *loss = sl_forward_head(&f, "loss", x, w);
    return f.status;
}

static int64_t count_views(const sl_model *model)
{
    return model->vocab * model->dim + 2 * model->dim * model->dim + model->dim + model->head_dim;
}

TEST(views)
{
    static const sl_model_family family = {.name = "views", .build = build_views, .parameters = count_views};
    sl_model model = tiny_llama(true, SL_ROPE_HALF);
    model.family = &family;
    check_differences(model, SEQLEN);
    check_differences(model, 5);
    interpreter it = start(&model, interpret_config(SEQLEN, SEQUENCES, SEQLEN, SL_PRECISION_F32));
    for (int32_t i = 0; i < it.program->n_tasks; i++)
        CHECK(it.program->tasks[i].op != SL_OP_SLICE && it.program->tasks[i].op != SL_OP_RESHAPE);
    interpret_destroy(&it);
}

TEST(finite_differences)
{
    check_differences(tiny_llama(false, SL_ROPE_HALF), SEQLEN);
    check_differences(tiny_llama(true, SL_ROPE_INTERLEAVED), 2 * SEQLEN);
    check_differences(tiny_llama(true, SL_ROPE_HALF), 5);
    check_differences(tiny_gpt2(0), 3 * SEQLEN);
    check_differences(tiny_gpt2(0.25f), SEQLEN);
    check_differences(tiny_gpt2(0.25f), 7);
}

/* ---- rounds, slices, precision ---- */

static void check_equal_gradients(const interpreter *a, const interpreter *b, const char *what)
{
    for (int32_t p = 0; p < a->program->n_params; p++) {
        const sl_param *param = &a->program->params[p];
        CHECK_MSG(memcmp(interpret_gradient(a, p), interpret_gradient(b, p), sl_type_bytes(&param->type)) == 0,
                  "%s: the gradient of %s differs", what, param->name);
    }
}

static void check_rounds(sl_model model, int64_t chunk_tokens, sl_precision precision)
{
    sl_program_config config = interpret_config(SEQLEN, SEQUENCES, chunk_tokens, precision);
    config.gated = true;
    interpreter all = start(&model, config);
    interpret_step(&all, true);
    for (int64_t chunks = 1; chunks <= 4; chunks *= 2) {
        config.chunks_per_round = chunks;
        interpreter some = start(&model, config);
        CHECK(chunk_tokens < SEQLEN || some.program->n_rounds == SL_DIV_UP(all.program->n_chunks, chunks));
        interpret_step(&some, true);
        check_equal_gradients(&all, &some, "rounds");
        for (int32_t g = 0; g < all.program->n_groups; g++) {
            int32_t a = all.program->param_object[g], b = some.program->param_object[g];
            CHECK(memcmp(all.memory[a], some.memory[b], all.program->objects[a].bytes) == 0);
        }
        CHECK(interpret_loss(&all) == interpret_loss(&some));
        interpret_destroy(&some);
    }
    interpret_destroy(&all);
}

TEST(rounds_change_no_bit)
{
    for (int precision = SL_PRECISION_F32; precision <= SL_PRECISION_BF16_MASTER; precision++) {
        check_rounds(tiny_llama(false, SL_ROPE_HALF), SEQLEN, (sl_precision) precision);
        check_rounds(tiny_llama(true, SL_ROPE_HALF), SEQLEN, (sl_precision) precision);
        check_rounds(tiny_llama(true, SL_ROPE_HALF), 5, (sl_precision) precision);
        check_rounds(tiny_gpt2(0.1f), SEQLEN, (sl_precision) precision);
    }
}

/* What backwards make again has the bits that were kept. */
static void check_rematerialize(sl_model model, int64_t chunk_tokens, sl_precision precision)
{
    sl_program_config config = interpret_config(SEQLEN, SEQUENCES, chunk_tokens, precision);
    interpreter kept = start(&model, config);
    config.rematerialize = true;
    interpreter made = start(&model, config);
    CHECK(made.program->n_tasks == kept.program->n_tasks);
    interpret_step(&kept, false);
    interpret_step(&made, false);
    check_equal_gradients(&kept, &made, "rematerialized");
    int32_t read_late = 0, asked = 0;
    for (int32_t t = 0; t < made.program->n_tasks; t++) {
        const sl_task *task = &made.program->tasks[t];
        asked += task->op == SL_OP_SWIGLU_BWD && task->out[1].object >= 0;
        for (int i = 0; i < SL_MAX_IN && task->phase == SL_PHASE_BACKWARD; i++) {
            int32_t maker = task->in[i].object >= 0 ? made.program->objects[task->in[i].object].producer : -1;
            read_late += maker >= 0 && made.program->tasks[maker].op == SL_OP_SWIGLU;
        }
    }
    CHECK(asked > 0);
    CHECK_I64(read_late, 0);
    interpret_destroy(&kept);
    interpret_destroy(&made);
}

TEST(rematerialization_changes_no_bit)
{
    sl_isa best;
    CHECK_OK(sl_isa_detect(&best));
    for (interpret_isa = -1; interpret_isa <= (int) best; interpret_isa++)
        for (int precision = SL_PRECISION_F32; precision <= SL_PRECISION_BF16_MASTER; precision++) {
            check_rematerialize(tiny_llama(false, SL_ROPE_HALF), SEQLEN, (sl_precision) precision);
            check_rematerialize(tiny_llama(true, SL_ROPE_HALF), 5, (sl_precision) precision);
        }
    interpret_isa = -1;
}

static double gradient_distance(const interpreter *a, const interpreter *b)
{
    double difference = 0, norm = 0;
    for (int32_t p = 0; p < a->program->n_params; p++) {
        const sl_param *param = &a->program->params[p];
        for (int64_t i = 0; i < sl_type_count(&param->type); i++) {
            double x = (double) interpret_get(interpret_gradient(a, p), param->type.dtype, i);
            double y = (double) interpret_get(interpret_gradient(b, p), param->type.dtype, i);
            difference += (x - y) * (x - y);
            norm += x * x;
        }
    }
    return sqrt(difference / norm);
}

static void check_slices(sl_model model, sl_precision precision, double tolerance)
{
    interpreter whole = start(&model, interpret_config(SEQLEN, SEQUENCES, SEQUENCES * SEQLEN, precision));
    interpret_step(&whole, false);
    const int64_t lengths[] = {1, 4, 5, 7, 11, SEQLEN, 3 * SEQLEN};
    for (int64_t i = 0; i < SL_COUNT(lengths); i++) {
        interpreter cut = start(&model, interpret_config(SEQLEN, SEQUENCES, lengths[i], precision));
        interpret_step(&cut, false);
        double off = gradient_distance(&whole, &cut);
        CHECK_MSG(off <= tolerance, "chunks of %lld tokens: gradients differ by %.3g", (long long) lengths[i], off);
        CHECK_NEAR(interpret_loss(&cut), interpret_loss(&whole), tolerance * interpret_loss(&whole));
        interpret_destroy(&cut);
    }
    interpret_destroy(&whole);
}

TEST(slices_agree)
{
    check_slices(tiny_llama(false, SL_ROPE_HALF), SL_PRECISION_F32, 1e-6);
    check_slices(tiny_llama(true, SL_ROPE_INTERLEAVED), SL_PRECISION_F32, 1e-6);
    check_slices(tiny_gpt2(0.1f), SL_PRECISION_F32, 1e-6);
    check_slices(tiny_llama(false, SL_ROPE_HALF), SL_PRECISION_BF16, 3e-2);
}

/* Documents packed into a sequence do not see each other: changing one leaves the others' loss alone. */
TEST(segments_are_apart)
{
    sl_model model = tiny_llama(false, SL_ROPE_HALF);
    for (int sliced = 0; sliced < 2; sliced++) {
        sl_program_config config = interpret_config(SEQLEN, 1, sliced ? 3 : SEQLEN, SL_PRECISION_F32);
        config.max_segments = 4;
        interpreter it = interpret_create(&model, &config);
        int32_t tokens[SEQLEN], targets[SEQLEN];
        double loss[2];
        interpret_init(&it, 11, 0.3f);
        for (int turn = 0; turn < 2; turn++) {
            for (int i = 0; i < SEQLEN; i++) {
                tokens[i] = i < 5 ? (turn ? 20 : 3) + i : i;
                targets[i] = i < 5 ? -100 : 1;
            }
            interpret_set_data(&it, tokens, targets);
            int32_t *segments = (int32_t *) (void *) it.memory[it.program->chunks[0].data[SL_INPUT_SEGMENTS]];
            segments[0] = 0, segments[1] = 5, segments[2] = segments[3] = segments[4] = SEQLEN;
            loss[turn] = loss_of(&it);
        }
        CHECK_MSG(loss[0] == loss[1], "loss %.9g became %.9g", loss[0], loss[1]);
        interpret_destroy(&it);
    }
}

TEST(validation_has_the_training_loss)
{
    for (int64_t chunk = 5; chunk <= 24; chunk += 19) {
        sl_model model = tiny_gpt2(0);
        sl_program_config config = interpret_config(SEQLEN, SEQUENCES, chunk, SL_PRECISION_F32);
        interpreter training = start(&model, config);
        config.forward_only = true;
        interpreter validation = start(&model, config);
        interpret_step(&training, false);
        interpret_step(&validation, false);
        CHECK_NEAR(interpret_loss(&validation), interpret_loss(&training), 1e-6);
        for (int32_t i = 0; i < validation.program->n_objects; i++)
            CHECK(validation.program->objects[i].class != SL_CLASS_OPTIMIZER);
        interpret_destroy(&training);
        interpret_destroy(&validation);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(finite_differences);
    RUN(views);
    RUN(rounds_change_no_bit);
    RUN(rematerialization_changes_no_bit);
    RUN(slices_agree);
    RUN(segments_are_apart);
    RUN(validation_has_the_training_loss);
    return test_end();
}
