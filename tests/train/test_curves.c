/* The golden models through the public trainer, step by step: against PyTorch, and under many options against a plain trainer in double
 * precision. Compared are losses, gradient norms,
 * learning rates and the weights at the end. What the trainer passes to a step (loss scale, clip, bias corrections, rate) is seen
 * nowhere else, since test_golden and test_golden_devices set it themselves. */
#include "data/permute.h"
#include "data/shard.h"
#include "engine/internal.h"
#include "reference_trainer.h"
#include "run_job.h"
#include "train/run.h"

enum { SEQLEN = 16, SEQUENCES = 6, STEPS = 24, ALL = STEPS * SEQUENCES, TOKENS = SEQUENCES * SEQLEN };
enum { POISON = 52, ORDINARY = 50 }; /* a token that makes a step not finite; the others are below ORDINARY */

static char buffer[SL_PARAM_BUFFER_BYTES];

/* The data of a run: sequences in the order in which it sees them (its shuffle undone). */
typedef struct corpus {
    char path[512];
    int32_t stream[ALL * SEQLEN + 1];
    uint64_t seed;
} corpus;

/* Sequences that count up by steps of their own; the steps whose bit is set in `poisoned` hold one POISON. */
static void make_corpus(corpus *c, const char *name, uint64_t seed, uint32_t poisoned)
{
    int32_t header[SL_SHARD_HEADER_BYTES / 4] = {20240520, 2, SL_COUNT(c->stream)};
    sl_text text = {0};
    snprintf(c->path, sizeof c->path, "%s", test_path(name));
    c->seed = seed;
    c->stream[ALL * SEQLEN] = 1;
    for (int64_t position = 0; position < ALL; position++) {
        int32_t *sequence = c->stream + sl_permute(position, ALL, seed, 0) * SEQLEN;
        uint32_t start = sl_philox(3, (uint64_t) position, 0).v[0] % ORDINARY;
        for (uint32_t i = 0; i < SEQLEN; i++)
            sequence[i] = (int32_t) ((start + i * (1 + start % 3)) % ORDINARY);
        if (position % SEQUENCES == 3 && (poisoned >> position / SEQUENCES & 1))
            sequence[7] = POISON;
    }
    sl_text_append(&text, (const char *) header, sizeof header);
    sl_text_append(&text, (const char *) c->stream, sizeof c->stream);
    CHECK_OK(sl_text_status(&text));
    CHECK_OK(sl_file_write_atomic(c->path, text.data, text.length));
    sl_text_free(&text);
}

static void read_step(const corpus *c, int step, int32_t *tokens, int32_t *targets)
{
    for (int s = 0; s < SEQUENCES; s++) {
        const int32_t *from = c->stream + sl_permute(step * SEQUENCES + s, ALL, c->seed, 0) * SEQLEN;
        memcpy(tokens + s * SEQLEN, from, SEQLEN * sizeof *from);
        memcpy(targets + s * SEQLEN, from + 1, SEQLEN * sizeof *from);
    }
}

static const char *golden_path(const char *name)
{
    static char path[600];
    const char *source = getenv("SLUICE_SOURCE");
    snprintf(path, sizeof path, "%s/tests/golden/%s", source ? source : SL_SOURCE_DIR, name);
    return path;
}

/* A GPT-2 without tied weights whose loss is finite as long as POISON is no target: its logit is -3e38 at every position, from the
 * one component of the last norm's output that is constant. */
static const char *poisonable_path(void)
{
    static const char config[] =
        "{\"model_type\": \"gpt2\", \"n_embd\": 24, \"n_layer\": 2, \"n_head\": 3, \"n_positions\": 32, "
        "\"vocab_size\": 53, "
        "\"resid_pdrop\": 0, \"embd_pdrop\": 0, \"attn_pdrop\": 0, \"tie_word_embeddings\": false}";
    static char path[512];
    snprintf(path, sizeof path, "%s", test_path("poisonable.json"));
    CHECK_OK(sl_file_write_atomic(path, config, sizeof config - 1));
    return path;
}

static const char *model_path(const char *name)
{
    return name ? golden_path(name) : poisonable_path();
}

static void fill_poisonable(const interpreter *it)
{
    for (int32_t p = 0; p < it->program->n_params; p++) {
        const sl_param *param = &it->program->params[p];
        float *values = (float *) (void *) interpret_param(it, p);
        if (strcmp(param->name, "norm.weight") == 0)
            values[0] = 0;
        else if (strcmp(param->name, "norm.bias") == 0)
            values[0] = 1;
        else if (strcmp(param->name, "head") == 0)
            values[POISON * param->type.dim[1]] = -3e38f;
    }
}

/* The golden weights in a file of their own (the golden file holds more), or those of the poisonable model. */
static void write_weights(const char *model_name, const char *path)
{
    sl_model model;
    sl_tensors *golden = NULL;
    sl_tensors_writer *writer;
    char file[64];
    CHECK_OK(sl_model_find(model_path(model_name), &model));
    sl_program_config config = interpret_config(SEQLEN, 1, SEQLEN, SL_PRECISION_F32);
    interpreter it = interpret_create(&model, &config);
    interpret_init(&it, 5, 0.1f);
    fill_poisonable(&it);
    if (model_name) {
        snprintf(file, sizeof file, "%s/golden.safetensors", model_name);
        CHECK_OK(sl_tensors_open(golden_path(file), &golden));
    }
    CHECK_OK(sl_tensors_writer_open(path, &writer));
    for (int32_t p = 0; p < it.program->n_params; p++) {
        const sl_param *param = &it.program->params[p];
        if (golden)
            CHECK_OK(
                sl_param_load(golden, param, SL_F32, buffer, sizeof buffer, interpret_write, interpret_param(&it, p)));
        CHECK_OK(sl_param_declare(writer, "", param, SL_F32));
    }
    for (int32_t p = 0; p < it.program->n_params; p++)
        CHECK_OK(sl_param_save(writer, &it.program->params[p], SL_F32, buffer, sizeof buffer, interpret_read,
                               interpret_param(&it, p)));
    CHECK_OK(sl_tensors_writer_commit(writer, NULL));
    sl_tensors_writer_destroy(writer);
    interpret_destroy(&it);
    sl_tensors_close(golden);
}

/* The weights of the run's last checkpoint against the reference's. */
static void compare_weights(const reference_trainer *r, const char *out, double tolerance)
{
    char path[700];
    sl_tensors *written;
    snprintf(path, sizeof path, "%s/checkpoints/step-%08d/model.safetensors", out, r->step);
    CHECK_OK(sl_tensors_open(path, &written));
    for (int32_t p = 0; p < r->it.program->n_params; p++) {
        const sl_param *param = &r->it.program->params[p];
        int64_t count = sl_type_count(&param->type);
        float *got = malloc((size_t) count * sizeof *got);
        double worst = 0;
        CHECK_OK(sl_param_load(written, param, SL_F32, buffer, sizeof buffer, interpret_write, got));
        for (int64_t i = 0; i < count; i++)
            worst = SL_MAX(worst, fabs((double) got[i] - r->weight[p][i]) / SL_MAX(1, fabs(r->weight[p][i])));
        CHECK_MSG(worst <= tolerance, "%s is off by %.3g after %d steps", param->name, worst, r->step);
        free(got);
    }
    sl_tensors_close(written);
}

typedef struct curve {
    const char *model, *options; /* model NULL: the poisonable one */
    reference_settings settings;
    uint32_t poisoned;
    int rounds;  /* that the options make; 0: the planner's choice */
    int restart; /* the run is dropped after so many steps and resumed; 0: never */
} curve;

typedef struct counts {
    int clipped, skipped;
} counts;

static void compare_step(const curve *c, const sl_step_result *got, const reference_result *want, double off[2])
{
    CHECK_NEAR(got->learning_rate, want->rate, 1e-12 * want->rate);
    CHECK_MSG(got->skipped == want->skipped, "%s: step %" PRId64 " skipped: %d, the reference's: %d", c->options,
              got->step, got->skipped, want->skipped);
    if (want->skipped)
        return;
    off[0] = SL_MAX(off[0], fabs(got->loss - want->loss));
    off[1] = SL_MAX(off[1], fabs(got->grad_norm / want->norm - 1));
}

static counts follow(const curve *c)
{
    char weights[512], out[512], options[2400];
    corpus data;
    sl_model model;
    sl_tensors *tensors;
    sl_trainer *trainer = NULL;
    sl_step_result got = SL_SIZED(sl_step_result);
    reference_trainer reference;
    counts counted = {0};
    double off[2] = {0};
    int64_t skipped = 0; /* since the last start */
    static int runs;
    snprintf(weights, sizeof weights, "%s", test_path("weights.safetensors"));
    snprintf(out, sizeof out, "%s-%d", test_path("curve"), runs++);
    make_corpus(&data, "data.bin", 7, c->poisoned);
    write_weights(c->model, weights);
    CHECK_OK(sl_tensors_open(weights, &tensors));
    CHECK_OK(sl_model_find(model_path(c->model), &model));
    reference_create(&reference, &model, tensors, SEQLEN, SEQUENCES, &c->settings);
    sl_tensors_close(tensors);
    snprintf(options, sizeof options,
             "model '%s' data '%s' init-from '%s' out '%s' resume true seed 7 precision f32 seqlen %d tokens-per-step "
             "%d steps %d %s",
             model_path(c->model), data.path, weights, out, SEQLEN, TOKENS, STEPS, c->options);
    for (int step = 0; step < STEPS; step++) {
        int32_t tokens[TOKENS], targets[TOKENS];
        if (step == 0 || step == c->restart) {
            sl_trainer_destroy(trainer);
            sl_job *job = make_job(options);
            CHECK_OK(sl_trainer_create(job, &trainer));
            sl_job_destroy(job);
        }
        CHECK_OK(sl_trainer_step(trainer, &got));
        CHECK_I64(got.step, step + 1);
        CHECK(got.done == (step + 1 == STEPS));
        if (step + 1 == c->restart)
            CHECK_OK(sl_trainer_checkpoint(trainer));
        read_step(&data, step, tokens, targets);
        reference_result want = reference_step(&reference, tokens, targets);
        compare_step(c, &got, &want, off);
        counted.clipped += want.clipped;
        counted.skipped += want.skipped;
        skipped = step == c->restart ? want.skipped : skipped + want.skipped;
    }
    sl_trainer_view view;
    sl_trainer_look(trainer, &view);
    CHECK_I64(view.skipped, skipped);
    if (c->rounds)
        CHECK_I64(view.rounds, c->rounds);
    sl_trainer_destroy(trainer);
    printf("     %s, %s: loss within %.3g, norm within %.3g; %d clipped, %d skipped\n",
           c->model ? c->model : "gpt2, untied", c->options, off[0], off[1], counted.clipped, counted.skipped);
    CHECK_MSG(off[0] <= 2e-6, "%s: the loss is off by %.3g", c->options, off[0]);
    CHECK_MSG(off[1] <= 5e-6, "%s: the gradient norm is off by %.3g relative", c->options, off[1]);
    compare_weights(&reference, out, 2e-5);
    reference_destroy(&reference);
    return counted;
}

/* Both optimizers and every schedule; one chunk, several per round, several rounds, slices of sequences. */
TEST(losses_norms_and_weights)
{
    static const curve curves[] = {
        {.model = "llama",
         .options = "lr 3e-3 warmup 3 min-lr 1e-4 weight-decay 0.3 chunk-tokens 96",
         .settings = {false, COSINE, 3e-3, 1e-4, 3, 0, STEPS, 0.3, 0.9, 0.95, 1e-8, 0, 0}},
        {.model = "llama",
         .options =
             "lr 2e-3 warmup 0 schedule wsd decay-share 0.25 weight-decay 0.1 beta1 0.8 beta2 0.99 eps 1e-4 clip 2.5 "
             "chunk-tokens 16 chunks-per-round 2",
         .rounds = 3,
         .settings = {false, WSD, 2e-3, 2e-4, 0, 6, STEPS, 0.1, 0.8, 0.99, 1e-4, 0, 2.5}},
        {.model = "gpt2",
         .options =
             "lr 0.02 warmup 5 schedule constant optimizer sgd momentum 0.8 weight-decay 0.05 clip 1.2 chunk-tokens 32 "
             "chunks-per-round 1",
         .rounds = 3,
         .settings = {true, CONSTANT, 0.02, 0, 5, 0, STEPS, 0.05, 0, 0, 0, 0.8, 1.2}},
        {.model = "llama-tied",
         .options = "lr 0.01 warmup 0 optimizer sgd momentum 0 weight-decay 0.2 min-lr 0 chunk-tokens 5",
         .settings = {true, COSINE, 0.01, 0, 0, 0, STEPS, 0.2, 0, 0, 0, 0, 0}},
        {.model = "gpt2",
         .options = "lr 1e-3 weight-decay 0 eps 1e-5 clip 1e6 chunk-tokens 48 chunks-per-round 1",
         .rounds = 2,
         .settings = {false, COSINE, 1e-3, 1e-4, STEPS / 20, 0, STEPS, 0, 0.9, 0.95, 1e-5, 0, 1e6}},
    };
    for (int64_t i = 0; i < SL_COUNT(curves); i++) {
        counts counted = follow(&curves[i]);
        CHECK_I64(counted.skipped, 0);
        if (curves[i].settings.clip > 0 && curves[i].settings.clip < 1e6)
            CHECK_MSG(counted.clipped > 2 && counted.clipped < STEPS - 2, "%d steps clipped: not a test of clipping",
                      counted.clipped);
        else
            CHECK_I64(counted.clipped, 0);
    }
}

/* A step that is left out changes neither weights nor moments, is not counted by the bias corrections, and uses up its data and its
 * place in the schedule; also across a resume. */
TEST(skipped_steps)
{
    static const curve curves[] = {
        {.options = "lr 3e-3 warmup 4 on-nan skip eps 1e-5 chunk-tokens 32",
         .settings = {false, COSINE, 3e-3, 3e-4, 4, 0, STEPS, 0.1, 0.9, 0.95, 1e-5, 0, 0},
         .poisoned = 1u << 0 | 1u << 1 | 1u << 4 | 1u << 11,
         .restart = 0},
        {.options = "lr 3e-3 warmup 4 on-nan skip eps 1e-5 clip 1 chunk-tokens 16 chunks-per-round 3",
         .rounds = 2,
         .settings = {false, COSINE, 3e-3, 3e-4, 4, 0, STEPS, 0.1, 0.9, 0.95, 1e-5, 0, 1},
         .poisoned = 1u << 2 | 1u << 4 | 1u << 11,
         .restart = 5},
    };
    test_expect_warnings(7, "was left out");
    CHECK_I64(follow(&curves[0]).skipped, 4);
    CHECK_I64(follow(&curves[1]).skipped, 3);
}

/* ---- PyTorch's own curve: its last targets begin no sequence of any stream, so tokens and targets are put in the place of those that
 * the trainer writes ---- */

enum { GOLDEN_STEPS = 200, GOLDEN_SEQUENCES = 2, GOLDEN_TOKENS = GOLDEN_SEQUENCES * SEQLEN };

static struct {
    const sl_trainer *trainer;
    const sl_device_class *inner;
    int32_t data[GOLDEN_STEPS * GOLDEN_SEQUENCES * (SEQLEN + 1)];
    int64_t replaced;
} golden;

static const void *placement_of(int32_t object)
{
    const sl_engine *engine = golden.trainer->train.engine;
    const sl_allocation *placement = &engine->plan->allocations[engine->plan->placement[object]];
    return engine->base[placement->tier] + placement->address;
}

static sl_status write_golden(sl_device *device, sl_tier tier, void *to, const void *from, size_t bytes)
{
    const sl_trainer *t = golden.trainer;
    int32_t values[GOLDEN_TOKENS];
    for (int32_t c = 0; c < t->prepared.program->n_chunks; c++) {
        const sl_chunk *chunk = &t->prepared.program->chunks[c];
        bool targets = to == placement_of(chunk->data[SL_INPUT_TARGETS]);
        if (!targets && to != placement_of(chunk->data[SL_INPUT_TOKENS]))
            continue;
        for (int64_t i = 0; i < chunk->tokens; i++) {
            int64_t sequence = t->progress.step * GOLDEN_SEQUENCES + chunk->first_sequence + i / SEQLEN;
            values[i] = golden.data[sequence * (SEQLEN + 1) + i % SEQLEN + targets];
        }
        REQUIRE(bytes == (size_t) chunk->tokens * sizeof *values);
        golden.replaced++;
        from = values;
        break;
    }
    return golden.inner->write(device, tier, to, from, bytes);
}

/* `part`: of the options. */
static void follow_pytorch(const char *part)
{
    static sl_device_class class;
    static float loss[GOLDEN_STEPS], norm[GOLDEN_STEPS];
    char weights[512], options[2400];
    corpus data;
    sl_tensors *file;
    sl_trainer *t;
    double worst = 0, worst_norm = 0;
    snprintf(weights, sizeof weights, "%s", test_path("golden.safetensors"));
    write_weights("llama", weights);
    make_corpus(&data, "any.bin", 1, 0);
    CHECK_OK(sl_tensors_open(golden_path("curve.safetensors"), &file));
    CHECK_OK(sl_tensors_read(file, sl_tensors_find(file, "data"), 0, SL_COUNT(golden.data), SL_I32, golden.data));
    CHECK_OK(sl_tensors_read(file, sl_tensors_find(file, "loss"), 0, GOLDEN_STEPS, SL_F32, loss));
    CHECK_OK(sl_tensors_read(file, sl_tensors_find(file, "norm"), 0, GOLDEN_STEPS, SL_F32, norm));
    sl_tensors_close(file);
    snprintf(options, sizeof options,
             "model '%s' data '%s' init-from '%s' precision f32 seqlen %d tokens-per-step %d steps %d lr 3e-3 warmup 0 "
             "schedule constant weight-decay 0.1 clip 1 %s",
             golden_path("llama"), data.path, weights, SEQLEN, GOLDEN_TOKENS, GOLDEN_STEPS, part);
    sl_job *job = make_job(options);
    CHECK_OK(sl_trainer_create(job, &t));
    sl_job_destroy(job);
    golden.trainer = t;
    golden.inner = t->device->class;
    golden.replaced = 0;
    class = *golden.inner;
    class.write = write_golden;
    t->device->class = &class;
    for (int step = 0; step < GOLDEN_STEPS; step++) {
        sl_step_result result = SL_SIZED(sl_step_result);
        CHECK_OK(sl_trainer_step(t, &result));
        worst = SL_MAX(worst, fabs(result.loss - (double) loss[step]));
        worst_norm = SL_MAX(worst_norm, fabs(result.grad_norm / (double) norm[step] - 1));
    }
    CHECK_I64(golden.replaced, 2 * GOLDEN_STEPS * t->prepared.program->n_chunks);
    t->device->class = golden.inner;
    sl_trainer_destroy(t);
    printf("     PyTorch, %s: 200 losses within %.3g, norms within %.3g\n", part, worst, worst_norm);
    CHECK_MSG(worst <= 5e-5, "%s: the loss strays from PyTorch's by %.3g", part, worst);
    CHECK_MSG(worst_norm <= 2e-4, "%s: the gradient's norm is off by %.3g relative", part, worst_norm);
}

TEST(pytorch)
{
    follow_pytorch("chunk-tokens 32");
    follow_pytorch("chunk-tokens 16 chunks-per-round 1");
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(pytorch);
    RUN(losses_norms_and_weights);
    RUN(skipped_steps);
    return test_end();
}
