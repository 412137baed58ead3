/* The golden models of tests/golden through planner and engine, on every device that is here: the whole of a step as a run does
 * it, against PyTorch. Gradients are read from SGD's momentum, which after one step from zero is the gradient itself; 200 steps
 * of AdamW with clipping follow PyTorch's losses and norms. test_golden does the same without plan and device. */
#include "device/cuda_expected.h"
#include "device/device.h"
#include "engine/engine.h"
#include "model/golden_models.h"
#include "model/interpret.h"
#include "plan/plan.h"
#include "train/store.h"

enum { SEQUENCES = 2, SEQLEN = 16, TOKENS = SEQUENCES * SEQLEN };

static char buffer[SL_PARAM_BUFFER_BYTES];

/* A model on a device, ready to step. */
typedef struct rig {
    sl_model model;
    sl_program *program;
    sl_costs *costs;
    sl_plan *plan;
    sl_device *device;
    sl_engine *engine;
    sl_store store;
} rig;

static const char *golden_path(const char *name)
{
    static char path[600];
    const char *source = getenv("SLUICE_SOURCE"); /* the sources may not stand where the program was built */
    snprintf(path, sizeof path, "%s/tests/golden/%s", source ? source : SL_SOURCE_DIR, name);
    return path;
}

static sl_tensors *open_golden(const char *name)
{
    sl_tensors *tensors = NULL;
    CHECK_OK(sl_tensors_open(golden_path(name), &tensors));
    return tensors;
}

static void read_tensor(sl_tensors *tensors, const char *name, sl_dtype dtype, void *out, int64_t count)
{
    const sl_tensor *tensor = sl_tensors_find(tensors, name);
    REQUIRE(tensor != NULL && tensor->count == count);
    CHECK_OK(sl_tensors_read(tensors, tensor, 0, count, dtype, out));
}

/* Under the least device budget where `tight`, so that things move; else unlimited. */
static void rig_open(rig *r, const char *device, const char *model, const sl_program_config *config, bool tight)
{
    sl_hardware hardware;
    sl_device_config asked = {.max_commands = 1, .max_events = 1}, opened = {0};
    memset(r, 0, sizeof *r);
    CHECK_OK(sl_model_find(golden_path(model), &r->model));
    CHECK_OK(sl_program_create(config, sl_build_model, &r->model, &r->program));
    CHECK_OK(sl_device_open(device, &asked, &r->device));
    r->device->class->hardware(r->device, &hardware);
    CHECK_OK(sl_costs_roofline(r->program, &hardware, r->device, &r->costs));
    sl_device_close(r->device);
    sl_plan_config plan = {.budget = {SIZE_MAX, SIZE_MAX}, .max_evaluations = 50};
    if (tight)
        CHECK_OK(sl_plan_minimum(r->program, r->costs, &plan, SL_TIER_DEVICE, &plan.budget[SL_TIER_DEVICE]));
    CHECK_OK(sl_plan_create(r->program, r->costs, &plan, &r->plan));
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        opened.arena_bytes[tier] = r->plan->predicted.peak_bytes[tier];
    sl_engine_needs(r->plan, &opened.max_commands, &opened.max_events);
    CHECK_OK(sl_device_open(device, &opened, &r->device));
    CHECK_OK(sl_engine_create(r->device, r->program, r->plan, &r->engine));
    CHECK_OK(sl_store_open(&r->store, r->program, sl_store_engine(r->engine)));
    CHECK_OK(sl_store_zero(&r->store));
}

static void rig_close(rig *r)
{
    sl_store_close(&r->store);
    sl_engine_destroy(r->engine);
    sl_device_close(r->device);
    sl_plan_destroy(r->plan);
    sl_costs_destroy(r->costs);
    sl_program_destroy(r->program);
}

static void write_part(rig *r, int32_t param, sl_part part, const float *values)
{
    int64_t count = sl_type_count(&r->program->params[param].type);
    sl_dtype dtype = sl_store_dtype(&r->store, part);
    size_t bytes = (size_t) count * sl_dtype_bytes(dtype);
    char *raw = malloc(bytes);
    for (int64_t i = 0; i < count; i++)
        interpret_put(raw, dtype, i, values[i]);
    sl_store_part to = {&r->store, param, part};
    CHECK_OK(sl_store_write_part(&to, 0, raw, bytes));
    free(raw);
}

/* The bf16 goldens were made with all matrices divided by 8. */
static void load_weights(rig *r, sl_tensors *tensors, bool shrink)
{
    for (int32_t p = 0; p < r->program->n_params; p++) {
        const sl_param *param = &r->program->params[p];
        int64_t count = sl_type_count(&param->type);
        float *values = malloc((size_t) count * sizeof *values);
        CHECK_OK(sl_param_load(tensors, param, SL_F32, buffer, sizeof buffer, interpret_write, values));
        for (int64_t i = 0; shrink && param->type.rank == 2 && i < count; i++)
            values[i] /= 8;
        write_part(r, p, SL_PART_WEIGHT, values);
        if (sl_store_has(&r->store, SL_PART_MASTER, 0))
            write_part(r, p, SL_PART_MASTER, values);
        free(values);
    }
}

static void write_ints(rig *r, int32_t object, const int32_t *values, int64_t count)
{
    CHECK_OK(sl_engine_write(r->engine, object, 0, values, (size_t) count * sizeof *values));
}

/* tokens and targets: [SEQUENCES, SEQLEN] */
static void write_data(rig *r, const int32_t *tokens, const int32_t *targets, const sl_step_params *params)
{
    const sl_program *p = r->program;
    for (int32_t c = 0; c < p->n_chunks; c++) {
        const sl_chunk *chunk = &p->chunks[c];
        int64_t first = chunk->first_sequence * SEQLEN + chunk->slice_offset;
        int32_t positions[TOKENS], segments[TOKENS + 1];
        int64_t boundaries = (int64_t) p->objects[chunk->data[SL_INPUT_SEGMENTS]].bytes / 4;
        for (int64_t i = 0; i < chunk->tokens; i++)
            positions[i] = (int32_t) ((first + i) % SEQLEN);
        for (int64_t i = 0; i < boundaries; i++)
            segments[i] = (int32_t) (SL_MIN(i, chunk->n_sequences) * SEQLEN);
        write_ints(r, chunk->data[SL_INPUT_TOKENS], tokens + first, chunk->tokens);
        write_ints(r, chunk->data[SL_INPUT_TARGETS], targets + first, chunk->tokens);
        if (chunk->data[SL_INPUT_POSITIONS] >= 0)
            write_ints(r, chunk->data[SL_INPUT_POSITIONS], positions, chunk->tokens);
        write_ints(r, chunk->data[SL_INPUT_SEGMENTS], segments, boundaries);
    }
    CHECK_OK(sl_engine_write(r->engine, p->step_object, 0, params, sizeof *params));
}

static double read_loss(rig *r)
{
    float losses[TOKENS];
    double sum = 0;
    CHECK_OK(sl_engine_read(r->engine, r->program->losses_object, 0, losses,
                            (size_t) r->program->n_chunks * sizeof *losses));
    for (int32_t c = 0; c < r->program->n_chunks; c++)
        sum += (double) losses[c];
    return sum / TOKENS;
}

static float *golden_gradient(sl_tensors *tensors, const char *prefix, const sl_param *param)
{
    float *want = malloc((size_t) sl_type_count(&param->type) * sizeof *want);
    CHECK_OK(sl_param_load_prefixed(tensors, prefix, param, SL_F32, buffer, sizeof buffer, interpret_write, want));
    return want;
}

/* ||a - b||^2 and ||b||^2 */
static double apart(const float *a, const float *b, int64_t count, double *length)
{
    double difference = 0;
    *length = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += ((double) a[i] - (double) b[i]) * ((double) a[i] - (double) b[i]);
        *length += (double) b[i] * (double) b[i];
    }
    return difference;
}

/* The largest distance of a row: a parameter's large rows must not hide its small ones. A row of zeros, as of a token that does not
 * occur, must be one. */
static double row_distance(const float *got, const float *want, const sl_type *type)
{
    int64_t columns = type->dim[type->rank - 1], rows = sl_type_count(type) / columns;
    double worst = 0, length;
    for (int64_t r = 0; r < rows; r++) {
        double squares = apart(got + r * columns, want + r * columns, columns, &length);
        worst = SL_MAX(worst, squares == 0 ? 0 : sqrt(squares / length));
    }
    return worst;
}

/* Every parameter's gradient within `each`, or nearer than PyTorch's own in bf16 (`rival`) is; in f32 each of its rows within `each_row`
 * (on a GPU five times as far); all together within `all`. */
static void check_gradients(rig *r, sl_tensors *tensors, const char *prefix, const char *rival, double each,
                            double each_row, double all)
{
    double worst = 0, difference = 0, norm = 0;
    for (int32_t p = 0; p < r->program->n_params; p++) {
        const sl_param *param = &r->program->params[p];
        int64_t count = sl_type_count(&param->type);
        float *got = malloc((size_t) count * sizeof *got), *want = golden_gradient(tensors, prefix, param);
        sl_store_part from = {&r->store, p, SL_PART_STATE};
        double length, allowed = each;
        REQUIRE(sl_store_dtype(&r->store, SL_PART_STATE) == SL_F32);
        CHECK_OK(sl_store_read_part(&from, 0, got, (size_t) count * sizeof *got));
        double squares = apart(got, want, count, &length), off = sqrt(squares / length);
        if (rival) {
            float *other = golden_gradient(tensors, rival, param);
            double unused;
            allowed = SL_MAX(allowed, sqrt(apart(other, want, count, &unused) / length));
            free(other);
        }
        CHECK_MSG(off <= allowed, "%s%s is off by %.3g relative, allowed %.3g", prefix, param->name, off, allowed);
        double row = rival ? 0 : row_distance(got, want, &param->type);
        double row_allowed = strcmp(r->device->class->name, "cpu") == 0 ? each_row : 5 * each_row;
        CHECK_MSG(row <= row_allowed, "%s%s: a row is off by %.3g relative, allowed %.3g", prefix, param->name, row,
                  row_allowed);
        worst = SL_MAX(worst, off);
        difference += squares;
        norm += length;
        free(got);
        free(want);
    }
    CHECK_MSG(sqrt(difference / norm) <= all, "the whole gradient is off by %.3g, allowed %.3g",
              sqrt(difference / norm), all);
    printf("     worst parameter %.3g, whole gradient %.3g\n", worst, sqrt(difference / norm));
}

static void check_model(const char *device, const golden_model *golden, sl_precision precision, int64_t chunk_tokens,
                        bool tight)
{
    const char *name = golden->name;
    rig r;
    char file[128];
    int32_t tokens[TOKENS], targets[TOKENS];
    float loss;
    bool f32 = precision == SL_PRECISION_F32;
    sl_step_params params = {.learning_rate = 1e-3f, .corrections = {{1, 1}}, .loss_scale = 1.0f / TOKENS, .step = 1};
    sl_program_config config = interpret_config(SEQLEN, SEQUENCES, chunk_tokens, precision);
    config.optimizer = SL_OPTIMIZER_SGD;
    sl_optimizer_defaults(config.optimizer, config.optimizer_options[config.optimizer]);
    config.weight_decay = 0;
    snprintf(file, sizeof file, "%s/golden.safetensors", name);
    sl_tensors *tensors = open_golden(file);
    rig_open(&r, device, name, &config, tight);
    load_weights(&r, tensors, !f32);
    read_tensor(tensors, "tokens", SL_I32, tokens, TOKENS);
    read_tensor(tensors, "targets", SL_I32, targets, TOKENS);
    write_data(&r, tokens, targets, &params);
    CHECK_OK(sl_engine_step(r.engine));
    read_tensor(tensors, f32 ? "loss" : "loss_bf16", SL_F32, &loss, 1);
    CHECK_NEAR(read_loss(&r), loss, (f32 ? 1e-6 : 1e-3) * (double) loss);
    printf("     %s, %s, chunks of %d, %s:\n", name, f32 ? "f32" : "bf16-master", (int) chunk_tokens,
           tight ? "least device memory" : "unlimited");
    if (f32)
        check_gradients(&r, tensors, "grad.", NULL, 1e-5, golden->row, 1e-5);
    else
        check_gradients(&r, tensors, "grad_exact.", "grad_bf16.", golden->bf16, INFINITY, golden->whole);
    rig_close(&r);
    sl_tensors_close(tensors);
}

static void check_curve(const char *device)
{
    enum { STEPS = 200 };
    static int32_t data[STEPS * SEQUENCES * (SEQLEN + 1)];
    static float loss[STEPS], norm[STEPS];
    double worst = 0, worst_norm = 0;
    rig r;
    sl_tensors *weights = open_golden("llama/golden.safetensors"), *curve = open_golden("curve.safetensors");
    read_tensor(curve, "data", SL_I32, data, SL_COUNT(data));
    read_tensor(curve, "loss", SL_F32, loss, STEPS);
    read_tensor(curve, "norm", SL_F32, norm, STEPS);
    sl_program_config config = interpret_config(SEQLEN, SEQUENCES, TOKENS, SL_PRECISION_F32);
    config.gated = true;
    rig_open(&r, device, "llama", &config, false);
    load_weights(&r, weights, false);
    for (int step = 0; step < STEPS; step++) {
        int32_t tokens[TOKENS], targets[TOKENS];
        float gate[4];
        for (int i = 0; i < TOKENS; i++) {
            const int32_t *at = data + (step * SEQUENCES + i / SEQLEN) * (SEQLEN + 1) + i % SEQLEN;
            tokens[i] = at[0];
            targets[i] = at[1];
        }
        sl_step_params params = {.learning_rate = 3e-3f,
                                 .corrections = {{(float) (1 - pow(0.9, step + 1)), (float) (1 - pow(0.95, step + 1))}},
                                 .loss_scale = 1.0f / TOKENS,
                                 .clip = 1,
                                 .step = (uint32_t) step + 1};
        write_data(&r, tokens, targets, &params);
        CHECK_OK(sl_engine_step(r.engine));
        CHECK_OK(sl_engine_read(r.engine, r.program->gate_object, 0, gate, sizeof gate));
        worst = SL_MAX(worst, fabs(read_loss(&r) - (double) loss[step]));
        worst_norm = SL_MAX(worst_norm, fabs((double) gate[1] / (double) norm[step] - 1));
    }
    CHECK_MSG(worst <= 1e-3, "the loss strays from PyTorch's by %.3g", worst);
    CHECK_MSG(worst_norm <= 2e-3, "the gradient's norm is off by %.3g relative", worst_norm);
    CHECK(loss[STEPS - 1] < 1.5f && loss[0] > 4);
    printf("     200 steps within %.3g, norms within %.3g\n", worst, worst_norm);
    rig_close(&r);
    sl_tensors_close(weights);
    sl_tensors_close(curve);
}

static void check_device(const char *device)
{
    printf("on %s\n", device);
    for (int64_t i = 0; i < SL_COUNT(golden_models); i++) {
        check_model(device, &golden_models[i], SL_PRECISION_F32, TOKENS, false); /* both sequences in a chunk */
        check_model(device, &golden_models[i], SL_PRECISION_F32, SEQLEN, true);  /* one each */
        check_model(device, &golden_models[i], SL_PRECISION_F32, 5, true);       /* slices, the last one shorter */
        check_model(device, &golden_models[i], SL_PRECISION_BF16_MASTER, TOKENS, false);
        check_model(device, &golden_models[i], SL_PRECISION_BF16_MASTER, 5, true);
    }
    for (int64_t i = 0; i < SL_COUNT(golden_families); i++) {
        char name[64];
        snprintf(name, sizeof name, "families/%s", golden_families[i]);
        const golden_model golden = {.name = name, .row = 5e-5};
        check_model(device, &golden, SL_PRECISION_F32, TOKENS, false);
        check_model(device, &golden, SL_PRECISION_F32, 5, true);
    }
    check_curve(device);
}

TEST(on_the_cpu)
{
    check_device("cpu");
}

TEST(on_a_gpu)
{
    if (test_cuda())
        check_device("cuda");
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(on_the_cpu);
    RUN(on_a_gpu);
    return test_end();
}
