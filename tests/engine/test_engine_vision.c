/* Ops of vision models, from a graph to trained weights: a small classifier of images with a convolutional stem, a mixer and attention. A
 * sample is a sequence of 16 tokens, and has 64 rows in the stem. */
#include <math.h>

#include "core/rng.h"
#include "engine/engine.h"
#include "model/interpret.h"
#include "ops/attention.h"
#include "ops/drop_path.h"
#include "ops/grn.h"
#include "ops/image.h"
#include "ops/matmul.h"
#include "ops/mean_rows.h"
#include "ops/norm.h"
#include "ops/reshape.h"
#include "ops/rope_table.h"
#include "ops/unary.h"
#include "ops/window.h"
#include "plan/plan.h"

enum { SAMPLES = 22, SIDE = 8, TOKENS = SIDE * SIDE / 4, COLORS = 3, PIXELS = SIDE * SIDE * COLORS };
enum { WIDTH = 12, HEADS = 2, HEAD_DIM = 4, CLASSES = 5 };

/* ---- the classifier ---- */

typedef struct net {
    sl_graph *graph;
    sl_status status; /* the first mistake; what comes after it does nothing */
} net;

static sl_value op(net *n, sl_op_id id, const char *name, const sl_attrs *attrs, sl_value a, sl_value b, sl_value c)
{
    sl_value out[SL_MAX_OUT] = {SL_NO_VALUE};
    const int n_in = c != SL_NO_VALUE ? 3 : b != SL_NO_VALUE ? 2 : 1;
    if (n->status == SL_OK)
        n->status = sl_graph_op(n->graph, id, name, attrs, (const sl_value[]){a, b, c}, n_in, out);
    return out[0];
}

static sl_value unary_op(net *n, const char *name, int32_t function, sl_value x)
{
    sl_attrs attrs = {.raw = {0}};
    sl_unary_set(&attrs)->function = function;
    return op(n, SL_OP_UNARY, name, &attrs, x, SL_NO_VALUE, SL_NO_VALUE);
}

/* Windows of an image of `side`. */
static sl_attrs windows(int32_t side, int32_t kernel, int32_t stride, int32_t pad, sl_pool_mode mode)
{
    sl_attrs attrs = {.raw = {0}};
    *sl_window_set(&attrs) = *SL_ATTRS(window, side, side, kernel, kernel, stride, stride, pad, pad, (int32_t) mode);
    return attrs;
}

static sl_value param_of(net *n, const char *group, const char *name, int64_t rows, int64_t columns, bool frozen)
{
    sl_param p = {.name = name, .group = group, .init = SL_INIT_NORMAL, .init_std = 0.2f, .frozen = frozen};
    sl_value out = SL_NO_VALUE;
    p.type = columns ? sl_type_2d(SL_F32, rows, columns) : sl_type_1d(SL_F32, rows);
    if (n->status == SL_OK)
        n->status = sl_graph_param(n->graph, &p, &out);
    return out;
}

static sl_value param(net *n, const char *group, const char *name, int64_t rows, int64_t columns)
{
    return param_of(n, group, name, rows, columns, false);
}

static sl_value linear(net *n, const char *group, sl_value x, int64_t rows, int64_t columns)
{
    sl_attrs attrs = {.raw = {0}};
    sl_matmul_set(&attrs)->trans_b = 1;
    return op(n, SL_OP_MATMUL, group, &attrs, x, param(n, group, group, rows, columns), SL_NO_VALUE);
}

static void begin_block(net *n, const char *name)
{
    if (n->status == SL_OK)
        n->status = sl_graph_begin_block(n->graph, name);
}

static sl_value input(net *n, sl_input_kind kind, int64_t extent)
{
    sl_value out = SL_NO_VALUE;
    if (n->status == SL_OK)
        n->status = extent ? sl_graph_input_of(n->graph, kind, &extent, 1, &out) : sl_graph_input(n->graph, kind, &out);
    return out;
}

/* Bytes in HWC order to a row of colors for each pixel. */
static sl_value images(net *n)
{
    sl_attrs image = {.raw = {0}}, rows = {.raw = {0}};
    sl_image_set(&image)->dtype = (int32_t) n->graph->dtype;
    sl_image_set(&image)->scale[0] = 1 / 60.0f;
    sl_image_set(&image)->bias[0] = -2;
    sl_reshape_set(&rows)->columns = COLORS;
    const sl_value x = op(n, SL_OP_IMAGE, "image", &image, input(n, SL_INPUT_IMAGES_U8, PIXELS), -1, -1);
    return op(n, SL_OP_RESHAPE, "pixels", &rows, x, SL_NO_VALUE, SL_NO_VALUE);
}

/* x + drop_path(gamma grn(silu(depthwise x))) */
static sl_value mixer(net *n, sl_value x)
{
    sl_attrs conv = windows(SIDE / 2, 3, 1, 1, SL_POOL_MAX), grn = {.raw = {0}}, drop = {.raw = {0}};
    *sl_grn_set(&grn) = *SL_ATTRS(grn, TOKENS, 1e-6f, 0);
    *sl_drop_path_set(&drop) = *SL_ATTRS(drop_path, 0.25f, 1, TOKENS, 0);
    sl_value y = op(n, SL_OP_DEPTHWISE, "depthwise", &conv, x, param(n, "mixer", "kernel", 9, WIDTH), SL_NO_VALUE);
    y = unary_op(n, "silu", SL_UNARY_SILU, y);
    y = op(n, SL_OP_GRN, "grn", &grn, y, param(n, "mixer", "grn gamma", WIDTH, 0), param(n, "mixer", "beta", WIDTH, 0));
    y = op(n, SL_OP_SCALE_COLUMNS, "scale", NULL, y, param(n, "mixer", "gamma", WIDTH, 0), SL_NO_VALUE);
    y = op(n, SL_OP_DROP_PATH, "drop", &drop, y, input(n, SL_INPUT_STEP, 0), SL_NO_VALUE);
    return op(n, SL_OP_ADD, "residual", NULL, x, y, SL_NO_VALUE);
}

/* x + W attention(rope(qkv)), by a table of two axes */
static sl_value attention(net *n, sl_value x)
{
    sl_attrs rope = {.raw = {0}}, attrs = {.raw = {0}};
    sl_value out[SL_MAX_OUT] = {SL_NO_VALUE, SL_NO_VALUE};
    *sl_rope_table_set(&rope) = *SL_ATTRS(rope_table, HEADS, HEADS, HEAD_DIM, HEAD_DIM / 2);
    sl_attention_set(&attrs)->heads = sl_attention_set(&attrs)->kv_heads = HEADS;
    sl_attention_set(&attrs)->head_dim = HEAD_DIM;
    sl_attention_set(&attrs)->scale = 0.5f;
    const sl_value qkv = linear(n, "qkv", x, 3 * HEADS * HEAD_DIM, WIDTH);
    const sl_value in[] = {qkv, param_of(n, "table", "table", TOKENS, 2 * HEAD_DIM, true)};
    if (n->status == SL_OK)
        n->status = sl_graph_op(n->graph, SL_OP_ROPE_TABLE, "rope", &rope, in, 2, out);
    sl_value y = op(n, SL_OP_ATTENTION, "attention", &attrs, out[0], out[1], input(n, SL_INPUT_SEGMENTS, 0));
    y = linear(n, "proj", y, WIDTH, HEADS * HEAD_DIM);
    return op(n, SL_OP_ADD, "attended", NULL, x, y, SL_NO_VALUE);
}

static sl_status build(void *context, sl_graph *graph)
{
    net n = {.graph = graph};
    const sl_attrs conv = windows(SIDE, 3, 1, 1, SL_POOL_MAX), pool = windows(SIDE, 2, 2, 0, SL_POOL_MAX);
    sl_attrs norm = {.raw = {0}}, mean = {.raw = {0}};
    (void) context;
    sl_norm_set(&norm)->eps = 1e-12f;
    *sl_mean_rows_set(&mean) = *SL_ATTRS(mean_rows, TOKENS, 1, TOKENS - 1);
    begin_block(&n, "stem");
    sl_value x = op(&n, SL_OP_UNFOLD, "unfold", &conv, images(&n), SL_NO_VALUE, SL_NO_VALUE);
    x = unary_op(&n, "relu", SL_UNARY_RELU, linear(&n, "stem", x, WIDTH, 9 * COLORS));
    x = op(&n, SL_OP_POOL, "pool", &pool, x, SL_NO_VALUE, SL_NO_VALUE);
    begin_block(&n, "mixer");
    x = mixer(&n, x);
    begin_block(&n, "attention");
    x = attention(&n, x);
    begin_block(&n, "head");
    x = op(&n, SL_OP_L2_NORM, "norm", &norm, x, SL_NO_VALUE, SL_NO_VALUE);
    x = op(&n, SL_OP_MEAN_ROWS, "mean", &mean, x, SL_NO_VALUE, SL_NO_VALUE);
    x = linear(&n, "head", x, CLASSES, WIDTH);
    x = op(&n, SL_OP_SOFT_LOSS, "loss", NULL, x, input(&n, SL_INPUT_SOFT_TARGETS, CLASSES), SL_NO_VALUE);
    SL_TRY(n.status);
    SL_TRY(sl_graph_loss(graph, x, 1, "loss"));
    return sl_graph_finish(graph, SL_NO_VALUE);
}

/* ---- its data: a class is a color and a stripe ---- */

static uint8_t pixels[SAMPLES][PIXELS];
static float targets[SAMPLES][CLASSES];

static void make_samples(void)
{
    for (int64_t i = 0; i < SAMPLES; i++)
        for (int64_t j = 0; j < PIXELS; j++) {
            const int64_t class = i * 3 % CLASSES, stripe = j / COLORS % SIDE;
            const uint32_t noise = sl_philox(3, (uint64_t) (i * 1000 + j), 0).v[0] % 90;
            pixels[i][j] =
                (uint8_t) (noise + (j % COLORS == class % COLORS ? 60 : 0) + (stripe % CLASSES == class) * 100);
            targets[i][class] = 1;
        }
}

typedef sl_status (*write_fn)(void *to, int32_t object, const void *from, size_t bytes);

static void write_data(const sl_program *p, write_fn write, void *to)
{
    for (int32_t c = 0; c < p->n_chunks; c++) {
        const sl_chunk *chunk = &p->chunks[c];
        int32_t segments[SAMPLES + 1];
        for (int64_t i = 0; i <= SAMPLES; i++)
            segments[i] = (int32_t) (SL_MIN(i, chunk->n_sequences) * TOKENS);
        CHECK_OK(write(to, chunk->data[SL_INPUT_SEGMENTS], segments, sl_type_bytes(&chunk->input[SL_INPUT_SEGMENTS])));
        CHECK_OK(write(to, chunk->data[SL_INPUT_IMAGES_U8], pixels[chunk->first_sequence],
                       sl_type_bytes(&chunk->input[SL_INPUT_IMAGES_U8])));
        CHECK_OK(write(to, chunk->data[SL_INPUT_SOFT_TARGETS], targets[chunk->first_sequence],
                       sl_type_bytes(&chunk->input[SL_INPUT_SOFT_TARGETS])));
    }
}

static sl_step_params step_params(const sl_program *p, int step)
{
    sl_step_params params = {
        .learning_rate = 0.02f, .step = (uint32_t) step, .loss_scale = 1.0f / SAMPLES, .seed_lo = 77};
    sl_program_correct(p, step, &params);
    return params;
}

/* ---- by the reference kernels, or the CPU's one after the other ---- */

static sl_status write_memory(void *to, int32_t object, const void *from, size_t bytes)
{
    memcpy(((interpreter *) to)->memory[object], from, bytes);
    return SL_OK;
}

static interpreter run_once(int64_t each)
{
    sl_program_config config = interpret_config(TOKENS, SAMPLES, each * TOKENS, SL_PRECISION_F32);
    config.max_segments = each;
    interpreter it = interpret_graph(build, NULL, &config);
    interpret_init(&it, 5, 0.2f);
    write_data(it.program, write_memory, &it);
    *interpret_step_params(&it) = step_params(it.program, 1);
    interpret_step(&it, false);
    return it;
}

static double loss_of(const interpreter *it)
{
    const float *losses = (const float *) (const void *) it->memory[it->program->losses_object];
    double sum = 0;
    for (int32_t c = 0; c < it->program->n_chunks; c++)
        sum += (double) losses[c] / SAMPLES;
    return sum;
}

static void check_near(const interpreter *a, const interpreter *b)
{
    CHECK_MSG(fabs(loss_of(a) - loss_of(b)) <= 1e-6 * loss_of(a), "losses %.9g and %.9g", loss_of(a), loss_of(b));
    for (int32_t p = 0; p < a->program->n_params; p++) {
        if (a->program->params[p].frozen)
            continue;
        const float *x = (const float *) (const void *) interpret_gradient(a, p);
        const float *y = (const float *) (const void *) interpret_gradient(b, p);
        double largest = 0, difference = 0;
        for (int64_t i = 0; i < sl_type_count(&a->program->params[p].type); i++) {
            largest = fmax(largest, (double) fabsf(x[i]));
            difference = fmax(difference, (double) fabsf(x[i] - y[i]));
        }
        CHECK_MSG(largest > 0 && difference <= 1e-5 * largest, "%s: gradients differ by %.3g of %.3g",
                  a->program->params[p].name, difference, largest);
    }
}

/* Which samples DropPath drops does not depend on their chunk, so results differ by the order of sums alone. */
TEST(chunks_change_no_noise)
{
    interpreter one = run_once(SAMPLES), many = run_once(4), each = run_once(1);
    check_near(&one, &many);
    check_near(&one, &each);
    interpret_destroy(&one);
    interpret_destroy(&many);
    interpret_destroy(&each);
}

TEST(kernels_give_the_references_gradients)
{
    sl_isa most;
    interpreter reference = run_once(8);
    CHECK_OK(sl_isa_detect(&most));
    for (interpret_isa = 0; interpret_isa <= (int) most; interpret_isa++) {
        interpreter it = run_once(8);
        check_near(&reference, &it);
        interpret_destroy(&it);
    }
    interpret_isa = -1;
    interpret_destroy(&reference);
}

/* ---- by plan and engine ---- */

enum { STEPS = 60, MOST_BYTES = 1 << 15 };

typedef struct result {
    unsigned char weights[MOST_BYTES];
    size_t bytes, peak;
    double losses[STEPS];
} result;

static sl_status write_engine(void *to, int32_t object, const void *from, size_t bytes)
{
    return sl_engine_write(to, object, 0, from, bytes);
}

static void begin(const sl_program *p, sl_engine *engine, const interpreter *initial)
{
    static const unsigned char zeros[MOST_BYTES];
    for (int32_t o = 0; o < p->n_objects; o++)
        if (p->objects[o].persistent)
            CHECK_OK(sl_engine_write(engine, o, 0, zeros, p->objects[o].bytes));
    for (int32_t g = 0; g < p->n_groups; g++)
        CHECK_OK(sl_engine_write(engine, p->param_object[g], 0, initial->memory[initial->program->param_object[g]],
                                 p->objects[p->param_object[g]].bytes));
    write_data(p, write_engine, engine);
}

static void run_engine(const sl_program *p, sl_engine *engine, result *r)
{
    float losses[SAMPLES];
    for (int step = 1; step <= STEPS; step++) {
        const sl_step_params params = step_params(p, step);
        CHECK_OK(sl_engine_write(engine, p->step_object, 0, &params, sizeof params));
        CHECK_OK(sl_engine_step(engine));
        CHECK_OK(sl_engine_read(engine, p->losses_object, 0, losses, p->objects[p->losses_object].bytes));
        for (int32_t c = 0; c < p->n_chunks; c++)
            r->losses[step - 1] += (double) losses[c] / SAMPLES;
    }
    for (int32_t g = 0; g < p->n_groups; g++) {
        const size_t bytes = p->objects[p->param_object[g]].bytes;
        REQUIRE(r->bytes + bytes <= MOST_BYTES);
        CHECK_OK(sl_engine_read(engine, p->param_object[g], 0, r->weights + r->bytes, bytes));
        r->bytes += bytes;
    }
    r->peak = sl_engine_peak_bytes(engine, SL_TIER_DEVICE);
}

/* `device_bytes` 0: the least that works. */
static void train(const interpreter *initial, int64_t round, size_t device_bytes, int threads, result *r)
{
    sl_program_config config = initial->program->config;
    sl_plan_config plan_config = {.budget = {SIZE_MAX, SIZE_MAX}, .max_evaluations = 20};
    sl_device_config device_config = {.threads = threads, .max_commands = 1, .max_events = 1};
    sl_device *device;
    sl_hardware hardware;
    sl_program *p;
    sl_costs *costs;
    sl_plan *plan;
    sl_engine *engine;
    memset(r, 0, sizeof *r);
    config.chunks_per_round = round;
    CHECK_OK(sl_program_create(&config, build, NULL, &p));
    CHECK_OK(sl_device_open("cpu", &device_config, &device));
    device->class->hardware(device, &hardware);
    CHECK_OK(sl_costs_roofline(p, &hardware, device, &costs));
    sl_device_close(device);
    if (!device_bytes)
        CHECK_OK(sl_plan_minimum(p, costs, &plan_config, SL_TIER_DEVICE, &device_bytes));
    plan_config.budget[SL_TIER_DEVICE] = device_bytes;
    CHECK_OK(sl_plan_create(p, costs, &plan_config, &plan));
    sl_plan_extent(plan, device_config.arena_bytes);
    sl_engine_needs(plan, &device_config.max_commands, &device_config.max_events);
    CHECK_OK(sl_device_open("cpu", &device_config, &device));
    CHECK_OK(sl_engine_create(device, p, plan, &engine));
    begin(p, engine, initial);
    run_engine(p, engine, r);
    sl_engine_destroy(engine);
    sl_device_close(device);
    sl_plan_destroy(plan);
    sl_costs_destroy(costs);
    sl_program_destroy(p);
}

TEST(budgets_and_threads_change_no_bit)
{
    static result wide, narrow;
    interpreter initial = run_once(8);
    train(&initial, 0, SIZE_MAX, 1, &wide);
    train(&initial, 1, 0, 3, &narrow);
    CHECK(fabs(wide.losses[0] - loss_of(&initial)) < 1e-5 * wide.losses[0]);
    CHECK_MSG(wide.losses[STEPS - 1] < 0.5 * wide.losses[0], "the loss went from %g to %g", wide.losses[0],
              wide.losses[STEPS - 1]);
    CHECK(wide.bytes > 0 && wide.bytes == narrow.bytes && memcmp(wide.weights, narrow.weights, wide.bytes) == 0);
    CHECK(memcmp(wide.losses, narrow.losses, sizeof wide.losses) == 0);
    CHECK_MSG(narrow.peak < wide.peak, "too tame: %zu of %zu bytes", narrow.peak, wide.peak);
    interpret_destroy(&initial);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    make_samples();
    RUN(chunks_change_no_noise);
    RUN(kernels_give_the_references_gradients);
    RUN(budgets_and_threads_change_no_bit);
    return test_end();
}
