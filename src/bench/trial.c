#include "bench/trial.h"

#include <math.h>
#include <string.h>

#include "bench/machine.h"
#include "core/clock.h"
#include "core/rng.h"
#include "plan/search/rounds.h"
#include "train/prepare.h"

/* Without a budget there is next to nothing to search for. */
enum { FEW_EVALUATIONS = 20 };

/* A model with more parameters than this gets weights that repeat themselves inside a tensor: drawing billions would
 * take longer than the trial, and no kernel can tell. */
#define MOST_DRAWN ((int64_t) 1 << 28)
enum { PERIOD = 1 << 20 };

typedef struct costs_context {
    const sl_hardware *hardware;
    sl_device *device;
} costs_context;

static sl_status find_costs(void *context, const sl_program *program, sl_costs **costs)
{
    const costs_context *c = context;
    return sl_costs_roofline(program, c->hardware, c->device, costs);
}

static int64_t chunk_tokens(const sl_trial_config *c)
{
    int64_t target = sl_device_chunk_target(sl_device_def_find(c->device), c->seqlen);
    return c->chunk_tokens ? c->chunk_tokens : sl_chunk_tokens_default(c->seqlen, c->batch, target);
}

/* What the machine has to give now. */
static void find_limits(const sl_trial *t, size_t limit[SL_TIER_COUNT])
{
    sl_hardware hardware = t->hardware;
    hardware.memory_bytes[SL_TIER_HOST] = sl_machine_available_bytes();
    sl_hardware_limits(&hardware, limit);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        if (t->config.budget[tier])
            limit[tier] = t->config.budget[tier];
}

static void forget_plan(sl_trial *t)
{
    sl_plan_destroy(t->plan);
    sl_costs_destroy(t->costs);
    sl_program_destroy(t->program);
    t->plan = NULL, t->costs = NULL, t->program = NULL;
}

/* First without budgets, where everything stays on the device and lies as low as it can; only what is too large for the
 * machine is planned within it. */
static sl_status make_plan(sl_trial *t, sl_device *bare)
{
    const sl_trial_config *c = &t->config;
    int64_t chunk = chunk_tokens(c);
    sl_program_config config = {
        .chunking = {c->seqlen, c->batch, chunk},
        .precision = c->precision,
        .optimizer_options = {{0.9f, 0.999f, 1e-8f}}, /* AdamW's */
        .weight_decay = 0.01f,
        .forward_only = c->forward_only,
        .max_segments = SL_MAX(chunk / c->seqlen, 1),
    };
    sl_plan_config plan = {.budget = {SIZE_MAX, SIZE_MAX}, .max_evaluations = FEW_EVALUATIONS};
    costs_context costs = {&t->hardware, bare};
    size_t limit[SL_TIER_COUNT], extent[SL_TIER_COUNT];
    find_limits(t, limit);
    sl_program *base;
    SL_TRY(sl_program_create(&config, sl_build_model, &t->model, &base));
    sl_status status = sl_plan_best(base, find_costs, &costs, &plan, &t->program, &t->costs, &t->plan);
    if (status == SL_OK) {
        sl_plan_extent(t->plan, extent);
        if (extent[SL_TIER_DEVICE] > limit[SL_TIER_DEVICE] || extent[SL_TIER_HOST] > limit[SL_TIER_HOST]) {
            forget_plan(t);
            plan.max_evaluations = 0;
            memcpy(plan.budget, limit, sizeof limit);
            status = sl_plan_best(base, find_costs, &costs, &plan, &t->program, &t->costs, &t->plan);
        }
    }
    sl_program_destroy(base);
    return status;
}

sl_status sl_trial_plan(const sl_trial_config *config, sl_trial *t)
{
    sl_device *bare;
    sl_device_config none = {.threads = config->threads, .max_commands = 1, .max_events = 1};
    *t = (sl_trial){.config = *config, .model = *config->model};
    SL_TRY(sl_device_open(config->device, &none, &bare));
    bare->class->hardware(bare, &t->hardware);
    sl_status status = make_plan(t, bare);
    sl_device_close(bare);
    if (status != SL_OK)
        sl_trial_close(t);
    return status;
}

/* ---- a batch of random tokens ---- */

static void fill_chunk(const sl_trial *t, const sl_chunk *chunk, int32_t *part[SL_INPUT_COUNT])
{
    int64_t seqlen = t->config.seqlen, n = chunk->tokens, capacity = t->program->config.max_segments;
    bool sliced = t->program->config.chunking.chunk_tokens < seqlen;
    int64_t first = chunk->first_sequence * seqlen + (sliced ? chunk->slice_offset : 0);
    for (int64_t i = 0; i < n; i++) {
        sl_rng4 words = sl_philox(t->config.seed, (uint64_t) (first + i), 77);
        part[SL_INPUT_TOKENS][i] = (int32_t) (words.v[0] % (uint64_t) t->model.vocab);
        part[SL_INPUT_TARGETS][i] = (int32_t) (words.v[1] % (uint64_t) t->model.vocab);
        part[SL_INPUT_POSITIONS][i] = (int32_t) ((sliced ? chunk->slice_offset + i : i % seqlen));
    }
    int64_t end = sliced ? seqlen : n;
    for (int64_t j = 0; j <= capacity; j++)
        part[SL_INPUT_SEGMENTS][j] = (int32_t) SL_MIN(j * seqlen, end);
}

static sl_status write_chunk(sl_trial *t, const sl_chunk *chunk, int32_t *part[SL_INPUT_COUNT])
{
    for (int kind = 0; kind < SL_INPUT_COUNT; kind++)
        if (part[kind] && chunk->data[kind] >= 0)
            SL_TRY(sl_engine_write(t->engine, chunk->data[kind], 0, part[kind], sl_type_bytes(&chunk->input[kind])));
    return SL_OK;
}

static sl_status write_batch(sl_trial *t)
{
    static const sl_input_kind filled[] = {SL_INPUT_TOKENS, SL_INPUT_TARGETS, SL_INPUT_POSITIONS, SL_INPUT_SEGMENTS};
    int64_t tokens = t->program->config.chunking.chunk_tokens, segments = t->program->config.max_segments + 1;
    int32_t *memory, *part[SL_INPUT_COUNT] = {0};
    sl_status status = SL_OK;
    SL_TRY(sl_alloc(&memory, 3 * tokens + segments, sizeof *memory));
    for (int i = 0; i < SL_COUNT(filled); i++)
        part[filled[i]] = memory + i * tokens;
    for (int32_t c = 0; c < t->program->n_chunks && status == SL_OK; c++) {
        fill_chunk(t, &t->program->chunks[c], part);
        status = write_chunk(t, &t->program->chunks[c], part);
    }
    sl_free(memory);
    return status;
}

static sl_status write_step(sl_trial *t)
{
    if (t->program->step_object < 0)
        return SL_OK;
    double step = (double) (t->steps + 1);
    sl_step_params params = {
        .learning_rate = 1e-4f,
        .loss_scale = (float) (1 / (double) t->program->tokens),
        .step = (uint32_t) (t->steps + 1),
        .seed_lo = (uint32_t) t->config.seed,
        .seed_hi = (uint32_t) (t->config.seed >> 32),
    };
    sl_program_correct(t->program, step, &params);
    return sl_engine_write(t->engine, t->program->step_object, 0, &params, sizeof params);
}

static sl_status repeat_part(sl_trial *t, int32_t param, sl_part part, sl_pool *pool, void *buffer)
{
    sl_store_part to = {&t->store, param, part};
    sl_store_drawn from = {&t->program->params[param], t->config.seed, sl_store_dtype(&t->store, part), pool};
    size_t whole = (size_t) sl_type_count(&from.param->type) * sl_dtype_bytes(from.dtype),
           piece = SL_MIN(whole, (size_t) PERIOD * sl_dtype_bytes(from.dtype));
    SL_TRY(sl_store_read_drawn(&from, 0, buffer, piece));
    for (size_t at = 0; at < whole; at += piece)
        SL_TRY(sl_store_write_part(&to, at, buffer, SL_MIN(piece, whole - at)));
    return SL_OK;
}

static sl_status repeat_weights(sl_trial *t, sl_pool *pool)
{
    float *buffer;
    SL_TRY(sl_alloc(&buffer, PERIOD, sizeof *buffer));
    sl_status status = sl_store_zero(&t->store);
    for (int32_t p = 0; p < t->program->n_params && status == SL_OK; p++) {
        status = repeat_part(t, p, SL_PART_WEIGHT, pool, buffer);
        if (status == SL_OK && sl_store_has(&t->store, SL_PART_MASTER, 0))
            status = repeat_part(t, p, SL_PART_MASTER, pool, buffer);
    }
    sl_free(buffer);
    return status;
}

static sl_status fill(sl_trial *t)
{
    sl_pool *pool;
    SL_TRY(sl_store_open(&t->store, t->program, sl_store_engine(t->engine)));
    SL_TRY(sl_pool_create(t->config.threads, &pool));
    int64_t most = t->config.most_drawn ? t->config.most_drawn : MOST_DRAWN;
    sl_status status = sl_model_parameters(&t->model) > most ? repeat_weights(t, pool)
                                                             : sl_store_init_random(&t->store, t->config.seed, pool);
    sl_pool_destroy(pool);
    return status == SL_OK ? write_batch(t) : status;
}

static sl_status open_device(sl_trial *t)
{
    sl_device_config config = {.threads = t->config.threads};
    sl_plan_extent(t->plan, config.arena_bytes);
    sl_engine_needs(t->plan, &config.max_commands, &config.max_events);
    SL_TRY(sl_device_open(t->config.device, &config, &t->device));
    sl_watch_open(&t->watch, t->device);
    SL_TRY(sl_engine_create(&t->watch.base, t->program, t->plan, &t->engine));
    sl_engine_set_peak_flops(t->engine, t->costs->peak_flops);
    return SL_OK;
}

sl_status sl_trial_open(const sl_trial_config *config, sl_trial *t)
{
    SL_TRY(sl_trial_plan(config, t));
    sl_status status = open_device(t);
    if (status == SL_OK)
        status = fill(t);
    if (status != SL_OK)
        sl_trial_close(t);
    return status;
}

void sl_trial_close(sl_trial *t)
{
    sl_store_close(&t->store);
    sl_engine_destroy(t->engine);
    sl_device_close(t->device);
    forget_plan(t);
    *t = (sl_trial){0};
}

/* ---- steps ---- */

sl_status sl_trial_step(sl_trial *t, double *seconds)
{
    SL_TRY(write_step(t));
    double start = sl_clock_s();
    SL_TRY(sl_engine_step(t->engine));
    *seconds = sl_clock_s() - start;
    t->steps++;
    return SL_OK;
}

sl_status sl_trial_time(sl_trial *trial, int64_t warmup, int64_t steps, double limit_s, sl_stats *stats,
                        double *first_loss)
{
    enum { LEAST = 3 };
    double *times, seconds;
    int64_t n = 0;
    SL_TRY(sl_alloc(&times, steps, sizeof *times));
    sl_status status = sl_trial_step(trial, &seconds);
    if (status == SL_OK)
        status = sl_trial_loss(trial, first_loss);
    double began = sl_clock_s();
    for (int64_t i = 1; i < warmup && status == SL_OK; i++) {
        if (i >= LEAST && limit_s > 0 && sl_clock_s() - began > limit_s / 3)
            break;
        status = sl_trial_step(trial, &seconds);
    }
    while (n < steps && status == SL_OK && !(n >= LEAST && limit_s > 0 && sl_clock_s() - began > limit_s))
        status = sl_trial_step(trial, &times[n++]);
    if (status == SL_OK)
        sl_stats_of(times, n, stats);
    sl_free(times);
    return status;
}

sl_trial_config sl_trial_of(const sl_bench_job *job, const sl_model *model, int64_t seqlen, int64_t batch,
                            sl_precision precision)
{
    return (sl_trial_config){.model = model,
                             .seqlen = seqlen,
                             .batch = batch,
                             .precision = precision,
                             .device = job->device,
                             .threads = job->threads,
                             .seed = 1};
}

sl_status sl_trial_loss(sl_trial *t, double *loss)
{
    double sum = 0;
    for (int32_t c = 0; c < t->program->n_chunks; c++) {
        float one;
        size_t at = (size_t) t->program->chunks[c].loss_slot * sizeof one;
        SL_TRY(sl_engine_read(t->engine, t->program->losses_object, at, &one, sizeof one));
        sum += (double) one;
    }
    *loss = sum / (double) t->program->tokens;
    return SL_OK;
}
