/* Typed inputs and several losses, from a graph to trained weights: a small classifier of images with labels, and soft targets for what
 * its middle makes of them. A sample is a sequence of one token. */
#include <math.h>

#include "core/rng.h"
#include "engine/engine.h"
#include "model/interpret.h"
#include "ops/head_loss.h"
#include "ops/image.h"
#include "ops/matmul.h"
#include "plan/plan.h"

enum { SAMPLES = 22, EACH = 8, CHANNELS = 3, PIXELS = 16, WIDTH = 32, CLASSES = 10 }; /* the last chunk is shorter */

/* ---- the classifier ---- */

typedef struct classifier {
    double labels, soft; /* weights of the losses */
    bool no_soft;        /* a graph without the second loss */
    bool tokens;         /* targets of tokens, weighted, instead of labels of samples */
    bool wide;           /* f32 images instead of u8 ones */
} classifier;

static sl_status param(sl_graph *graph, const char *group, const char *name, int64_t rows, int64_t columns,
                       sl_value *out)
{
    sl_param p = {.name = name, .group = group, .init = SL_INIT_NORMAL, .init_std = 0.2f};
    p.type = columns ? sl_type_2d(SL_F32, rows, columns) : sl_type_1d(SL_F32, rows);
    return sl_graph_param(graph, &p, out);
}

static sl_status op(sl_graph *graph, sl_op_id id, const char *name, const sl_attrs *attrs, const sl_value *in, int n_in,
                    sl_value *out)
{
    sl_value all[SL_MAX_OUT];
    SL_TRY(sl_graph_op(graph, id, name, attrs, in, n_in, all));
    *out = all[0];
    return SL_OK;
}

static sl_status linear(sl_graph *graph, const char *name, sl_value x, int64_t rows, int64_t columns, sl_value residual,
                        sl_value *out)
{
    char weight[32], bias[32];
    sl_attrs attrs = {.raw = {0}};
    sl_value w, b;
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    sl_matmul_set(&attrs)->trans_b = 1;
    SL_TRY(param(graph, name, weight, rows, columns, &w));
    SL_TRY(param(graph, name, bias, rows, 0, &b));
    return op(graph, SL_OP_MATMUL, name, &attrs, (const sl_value[]){x, w, b, residual}, 4, out);
}

static sl_status images(const classifier *c, sl_graph *graph, sl_value *x)
{
    sl_attrs attrs = {.raw = {0}};
    sl_image_set(&attrs)->dtype = (int32_t) graph->dtype;
    for (int i = 0; i < CHANNELS; i++) {
        sl_image_set(&attrs)->scale[i] = 1 / (50.0f + (float) i);
        sl_image_set(&attrs)->bias[i] = -2.0f - 0.1f * (float) i;
    }
    SL_TRY(sl_graph_input_of(graph, c->wide ? SL_INPUT_IMAGES : SL_INPUT_IMAGES_U8, (const int64_t[]){CHANNELS, PIXELS},
                             2, x));
    return op(graph, SL_OP_IMAGE, "image", &attrs, x, 1, x);
}

static sl_status soft_loss(const classifier *c, sl_graph *graph, sl_value x)
{
    sl_value logits, targets, loss;
    SL_TRY(sl_graph_input_of(graph, SL_INPUT_SOFT_TARGETS, (const int64_t[]){CLASSES}, 1, &targets));
    SL_TRY(linear(graph, "guess", x, CLASSES, WIDTH, SL_NO_VALUE, &logits));
    SL_TRY(op(graph, SL_OP_SOFT_LOSS, "soft", NULL, (const sl_value[]){logits, targets}, 2, &loss));
    return sl_graph_loss(graph, loss, c->soft, "soft");
}

static sl_status build(void *context, sl_graph *graph)
{
    const classifier *c = context;
    sl_attrs head = {.raw = {0}}, gelu = {.raw = {0}};
    sl_value x, y, w, targets, weights = SL_NO_VALUE, loss;
    sl_head_set(&head)->ignore = SL_TARGET_IGNORED;
    SL_TRY(sl_graph_begin_block(graph, "first"));
    SL_TRY(images(c, graph, &x));
    SL_TRY(linear(graph, "first", x, WIDTH, (int64_t) CHANNELS * PIXELS, SL_NO_VALUE, &x));
    SL_TRY(sl_graph_begin_block(graph, "middle"));
    SL_TRY(op(graph, SL_OP_GELU, "gelu", &gelu, &x, 1, &y));
    if (!c->no_soft)
        SL_TRY(soft_loss(c, graph, y));
    SL_TRY(linear(graph, "middle", y, WIDTH, WIDTH, x, &x));
    SL_TRY(sl_graph_begin_block(graph, "head"));
    SL_TRY(param(graph, "head", "head", CLASSES, WIDTH, &w));
    SL_TRY(sl_graph_input(graph, c->tokens ? SL_INPUT_TARGETS : SL_INPUT_LABELS, &targets));
    if (c->tokens)
        SL_TRY(sl_graph_input(graph, SL_INPUT_TOKEN_WEIGHTS, &weights));
    SL_TRY(op(graph, SL_OP_HEAD_LOSS, "loss", &head, (const sl_value[]){x, w, targets, weights}, 4, &loss));
    SL_TRY(sl_graph_loss(graph, loss, c->labels, "labels"));
    return sl_graph_finish(graph, SL_NO_VALUE);
}

/* ---- its data ---- */

/* Sample 3 has no label, sample 5 no soft target. Weights are 1; classes show in the pixels. */
typedef struct samples {
    uint8_t bytes[SAMPLES][CHANNELS * PIXELS];
    float pixels[SAMPLES][CHANNELS * PIXELS], soft[SAMPLES][CLASSES], weights[SAMPLES];
    int32_t labels[SAMPLES];
} samples;

static void make_samples(samples *s)
{
    memset(s, 0, sizeof *s);
    for (int64_t i = 0; i < SAMPLES; i++) {
        s->labels[i] = (int32_t) (i * 7 % CLASSES);
        s->weights[i] = 1;
        for (int64_t j = 0; j < CHANNELS * PIXELS; j++) {
            uint32_t noise = sl_philox(3, (uint64_t) (i * 1000 + j), 0).v[0];
            s->bytes[i][j] = (uint8_t) (noise % 100 + (j % CLASSES == s->labels[i] ? 150 : 0));
            s->pixels[i][j] = s->bytes[i][j];
        }
        for (int64_t c = 0; c < CLASSES && i != 5; c++)
            s->soft[i][c] = c == s->labels[i]                   ? 0.5f
                            : c == (s->labels[i] + 1) % CLASSES ? 0.375f
                                                                : 0.125f / (CLASSES - 2);
    }
    s->labels[3] = SL_TARGET_IGNORED;
}

static const void *rows_of(const samples *s, sl_input_kind kind, int64_t first)
{
    switch (kind) {
    case SL_INPUT_IMAGES_U8:
        return s->bytes[first];
    case SL_INPUT_IMAGES:
        return s->pixels[first];
    case SL_INPUT_SOFT_TARGETS:
        return s->soft[first];
    case SL_INPUT_TOKEN_WEIGHTS:
        return s->weights + first;
    case SL_INPUT_LABELS:
    case SL_INPUT_TARGETS:
        return s->labels + first;
    default:
        return NULL;
    }
}

typedef sl_status (*write_fn)(void *to, int32_t object, const void *from, size_t bytes);

static void write_data(const sl_program *p, const samples *s, write_fn write, void *to)
{
    for (int32_t c = 0; c < p->n_chunks; c++)
        for (int kind = 0; kind < SL_INPUT_COUNT; kind++) {
            const sl_chunk *chunk = &p->chunks[c];
            if (chunk->data[kind] < 0 || kind == SL_INPUT_STEP)
                continue;
            const void *from = rows_of(s, (sl_input_kind) kind, chunk->first_sequence);
            CHECK_I64(chunk->input[kind].dim[0], chunk->n_sequences);
            REQUIRE(from != NULL);
            CHECK_OK(write(to, chunk->data[kind], from, sl_type_bytes(&chunk->input[kind])));
        }
}

static sl_step_params step_params(const sl_program *p, int step)
{
    float scales[SL_MAX_LOSSES] = {0};
    for (int32_t k = 0; k < p->n_losses; k++) {
        bool ignores = p->losses[k].targets == SL_INPUT_LABELS || p->losses[k].targets == SL_INPUT_SOFT_TARGETS;
        scales[k] = (float) (p->losses[k].weight / (SAMPLES - ignores));
    }
    sl_step_params params = {.learning_rate = 0.01f, .step = (uint32_t) step, .loss_scale = scales[0]};
    memcpy(params.further_loss_scales, scales + 1, sizeof params.further_loss_scales);
    sl_program_correct(p, step, &params);
    return params;
}

static int32_t loss_named(const sl_program *p, const char *name)
{
    for (int32_t k = 0; k < p->n_losses; k++)
        if (strcmp(p->losses[k].name, name) == 0)
            return k;
    return -1;
}

/* ---- by the reference kernels ---- */

static sl_status write_memory(void *to, int32_t object, const void *from, size_t bytes)
{
    memcpy(((interpreter *) to)->memory[object], from, bytes);
    return SL_OK;
}

static double sum_of(const interpreter *it, int32_t loss)
{
    const float *losses = (const float *) (const void *) it->memory[it->program->losses_object];
    double sum = 0;
    for (int32_t c = 0; c < it->program->n_chunks; c++)
        sum += (double) losses[loss * it->program->n_chunks + c];
    return sum;
}

/* What the gradients are of. */
static double total_of(const interpreter *it)
{
    sl_step_params params = *interpret_step_params((interpreter *) (uintptr_t) it);
    double total = 0;
    for (int32_t k = 0; k < it->program->n_losses; k++)
        total += (double) sl_loss_scale(&params, k) * sum_of(it, k);
    return total;
}

static interpreter run_classifier(const classifier *c, const samples *s)
{
    sl_program_config config = interpret_config(1, SAMPLES, EACH, SL_PRECISION_F32);
    interpreter it = interpret_graph(build, (void *) (uintptr_t) c, &config);
    interpret_init(&it, 5, 0.2f);
    write_data(it.program, s, write_memory, &it);
    *interpret_step_params(&it) = step_params(it.program, 1);
    interpret_step(&it, false);
    return it;
}

static void check_gradients(const classifier *c)
{
    enum { PROBES = 6 };
    samples s;
    make_samples(&s);
    interpreter it = run_classifier(c, &s);
    for (int32_t p = 0; p < it.program->n_params; p++) {
        float *weights = (float *) (void *) interpret_param(&it, p), want[PROBES], largest = 1e-6f;
        int64_t count = sl_type_count(&it.program->params[p].type), probe[PROBES];
        interpret_step(&it, false);
        for (int64_t i = 0; i < count; i++)
            largest = fmaxf(largest, fabsf(((const float *) (const void *) interpret_gradient(&it, p))[i]));
        for (int k = 0; k < PROBES; k++) {
            probe[k] = (int64_t) (sl_philox(7, (uint64_t) p, (uint64_t) k).v[0] % (uint64_t) count);
            want[k] = ((const float *) (const void *) interpret_gradient(&it, p))[probe[k]];
        }
        for (int k = 0; k < PROBES; k++) {
            const float before = weights[probe[k]], h = 0.01f;
            double at[5];
            for (int j = -2; j <= 2; j++) {
                weights[probe[k]] = before + (float) j * h;
                interpret_step(&it, false);
                at[j + 2] = total_of(&it);
            }
            weights[probe[k]] = before;
            double slope = (8 * (at[3] - at[1]) - (at[4] - at[0])) / (12 * (double) h);
            CHECK_MSG(fabs(slope - (double) want[k]) <= 2e-4 * (double) largest,
                      "%s[%lld]: the gradient is %.7g, finite differences give %.7g", it.program->params[p].name,
                      (long long) probe[k], (double) want[k], slope);
        }
    }
    interpret_destroy(&it);
}

TEST(gradients_are_slopes)
{
    check_gradients(&(classifier){.labels = 1, .soft = 0.3});
    check_gradients(&(classifier){.labels = 0.5, .no_soft = true, .wide = true});
}

/* Bytes or f32: the same pixels. */
TEST(images_of_both_types_are_the_same)
{
    samples s;
    make_samples(&s);
    classifier u8 = {.labels = 1, .soft = 1}, f32 = {.labels = 1, .soft = 1, .wide = true};
    interpreter a = run_classifier(&u8, &s), b = run_classifier(&f32, &s);
    CHECK(total_of(&a) == total_of(&b));
    interpret_destroy(&a);
    interpret_destroy(&b);
}

static void add_gradients(const interpreter *it, double factor, double *sums)
{
    for (int32_t p = 0; p < it->program->n_params; p++)
        for (int64_t i = 0; i < sl_type_count(&it->program->params[p].type); i++)
            *sums++ += factor * (double) ((const float *) (const void *) interpret_gradient(it, p))[i];
}

/* Each loss is told without the weights, and gradients are the weighted sum of each loss's own. */
TEST(losses_add_up)
{
    enum { MOST = 8192 };
    static double want[MOST], got[MOST];
    const double weights[3][2] = {{1, 0}, {0, 1}, {1, 0.3}}, factor[3] = {1, 0.3, 0};
    double sums[3][2], largest = 0;
    samples s;
    make_samples(&s);
    for (int i = 0; i < 3; i++) {
        interpreter it = run_classifier(&(classifier){.labels = weights[i][0], .soft = weights[i][1]}, &s);
        sums[i][0] = sum_of(&it, loss_named(it.program, "labels"));
        sums[i][1] = sum_of(&it, loss_named(it.program, "soft"));
        add_gradients(&it, factor[i], want);
        add_gradients(&it, i == 2, got);
        interpret_destroy(&it);
    }
    CHECK(sums[0][0] == sums[1][0] && sums[0][0] == sums[2][0] && sums[0][0] > 10);
    CHECK(sums[0][1] == sums[1][1] && sums[0][1] == sums[2][1] && sums[0][1] > 10 && sums[0][1] != sums[0][0]);
    for (int64_t i = 0; i < MOST; i++)
        largest = fmax(largest, fabs(want[i]));
    for (int64_t i = 0; i < MOST; i++)
        CHECK(fabs(got[i] - want[i]) <= 1e-6 * largest);
}

static bool same_gradients(const interpreter *a, const interpreter *b, float factor)
{
    bool same = true;
    for (int32_t p = 0; p < a->program->n_params; p++) {
        const float *x = (const float *) (const void *) interpret_gradient(a, p),
                    *y = (const float *) (const void *) interpret_gradient(b, p);
        for (int64_t i = 0; i < sl_type_count(&a->program->params[p].type); i++)
            same &= x[i] * factor == y[i];
    }
    return same;
}

/* On every instruction set: a weight of 0 is an ignored target, one of 2 counts twice. */
static void check_weights(void)
{
    const classifier c = {.labels = 1, .no_soft = true, .tokens = true};
    samples s;
    make_samples(&s);
    interpreter ones = run_classifier(&c, &s);
    for (int64_t i = 0; i < SAMPLES; i++)
        s.weights[i] = 2;
    interpreter twos = run_classifier(&c, &s);
    CHECK(same_gradients(&ones, &twos, 2) && 2 * sum_of(&ones, 0) == sum_of(&twos, 0));
    for (int64_t i = 0; i < SAMPLES; i++)
        s.weights[i] = i % 3 != 1;
    interpreter some = run_classifier(&c, &s);
    for (int64_t i = 0; i < SAMPLES; i++) {
        s.labels[i] = s.weights[i] == 0 ? SL_TARGET_IGNORED : s.labels[i];
        s.weights[i] = 1;
    }
    interpreter ignored = run_classifier(&c, &s);
    CHECK(same_gradients(&some, &ignored, 1) && sum_of(&some, 0) == sum_of(&ignored, 0));
    CHECK(!same_gradients(&some, &ones, 1) && sum_of(&some, 0) < sum_of(&ones, 0));
    interpret_destroy(&ones);
    interpret_destroy(&twos);
    interpret_destroy(&some);
    interpret_destroy(&ignored);
}

TEST(weights_count)
{
    sl_isa most;
    CHECK_OK(sl_isa_detect(&most));
    for (interpret_isa = -1; interpret_isa <= (int) most; interpret_isa++)
        check_weights();
    interpret_isa = -1;
}

/* ---- by plan and engine ---- */

enum { STEPS = 40, MOST_BYTES = 1 << 16 };

typedef struct result {
    unsigned char weights[MOST_BYTES];
    size_t bytes;
    double losses[STEPS];
    size_t peak;
    int copies;
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
}

static void run_engine(const sl_program *p, sl_engine *engine, result *r)
{
    float losses[2 * SAMPLES];
    for (int step = 1; step <= STEPS; step++) {
        const sl_step_params params = step_params(p, step);
        double total = 0;
        CHECK_OK(sl_engine_write(engine, p->step_object, 0, &params, sizeof params));
        CHECK_OK(sl_engine_step(engine));
        CHECK_OK(sl_engine_read(engine, p->losses_object, 0, losses, p->objects[p->losses_object].bytes));
        for (int32_t i = 0; i < p->n_losses * p->n_chunks; i++)
            total += (double) sl_loss_scale(&params, i / p->n_chunks) * (double) losses[i];
        r->losses[step - 1] = total;
    }
    for (int32_t g = 0; g < p->n_groups; g++) {
        size_t bytes = p->objects[p->param_object[g]].bytes;
        REQUIRE(r->bytes + bytes <= MOST_BYTES);
        CHECK_OK(sl_engine_read(engine, p->param_object[g], 0, r->weights + r->bytes, bytes));
        r->bytes += bytes;
    }
    r->peak = sl_engine_peak_bytes(engine, SL_TIER_DEVICE);
}

/* `device_bytes` 0: the least that works. */
static void train(const classifier *c, const interpreter *initial, int64_t round, size_t device_bytes, result *r)
{
    sl_program_config config = initial->program->config;
    sl_plan_config plan_config = {.budget = {SIZE_MAX, SIZE_MAX}, .max_evaluations = 20};
    sl_device_config device_config = {.threads = 2, .max_commands = 1, .max_events = 1};
    sl_device *device;
    sl_hardware hardware;
    sl_program *p;
    sl_costs *costs;
    sl_plan *plan;
    sl_engine *engine;
    samples s;
    make_samples(&s);
    memset(r, 0, sizeof *r);
    config.chunks_per_round = round;
    CHECK_OK(sl_program_create(&config, build, (void *) (uintptr_t) c, &p));
    CHECK_OK(sl_device_open("cpu", &device_config, &device));
    device->class->hardware(device, &hardware);
    CHECK_OK(sl_costs_roofline(p, &hardware, device, &costs));
    sl_device_close(device);
    if (!device_bytes)
        CHECK_OK(sl_plan_minimum(p, costs, &plan_config, SL_TIER_DEVICE, &device_bytes));
    plan_config.budget[SL_TIER_DEVICE] = device_bytes;
    CHECK_OK(sl_plan_create(p, costs, &plan_config, &plan));
    for (int32_t i = 0; i < plan->n_actions; i++)
        r->copies += plan->actions[i].kind == SL_ACTION_COPY;
    sl_plan_extent(plan, device_config.arena_bytes);
    sl_engine_needs(plan, &device_config.max_commands, &device_config.max_events);
    CHECK_OK(sl_device_open("cpu", &device_config, &device));
    CHECK_OK(sl_engine_create(device, p, plan, &engine));
    begin(p, engine, initial);
    write_data(p, &s, write_engine, engine);
    run_engine(p, engine, r);
    sl_engine_destroy(engine);
    sl_device_close(device);
    sl_plan_destroy(plan);
    sl_costs_destroy(costs);
    sl_program_destroy(p);
}

TEST(budgets_change_no_bit)
{
    static result wide, narrow;
    const classifier c = {.labels = 1, .soft = 0.3};
    samples s;
    make_samples(&s);
    interpreter initial = run_classifier(&c, &s);
    train(&c, &initial, 0, SIZE_MAX, &wide);
    train(&c, &initial, 1, 0, &narrow);
    CHECK(fabs(wide.losses[0] - total_of(&initial)) < 1e-5 * wide.losses[0]);
    CHECK_MSG(wide.losses[STEPS - 1] < 0.5 * wide.losses[0], "the loss went from %g to %g", wide.losses[0],
              wide.losses[STEPS - 1]);
    CHECK(wide.bytes > 0 && wide.bytes == narrow.bytes && memcmp(wide.weights, narrow.weights, wide.bytes) == 0);
    CHECK(memcmp(wide.losses, narrow.losses, sizeof wide.losses) == 0);
    CHECK_MSG(narrow.peak < wide.peak && narrow.copies > wide.copies, "too tame: %zu of %zu bytes, %d copies",
              narrow.peak, wide.peak, narrow.copies);
    interpret_destroy(&initial);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(gradients_are_slopes);
    RUN(images_of_both_types_are_the_same);
    RUN(losses_add_up);
    RUN(weights_count);
    RUN(budgets_change_no_bit);
    return test_end();
}
