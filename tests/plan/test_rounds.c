/* A step of many rounds of a small model: planned on a few of them, right as a whole, and honest about its smallest budgets. */
#include "plan/search/rounds.h"

#include <time.h>

#include "../model/interpret.h"

#ifdef __SANITIZE_ADDRESS__
#define LIMIT_S 80
#else
#define LIMIT_S 4 /* of processor time, on a machine that does other things too */
#endif

typedef struct job {
    sl_model model;
    sl_program_config config;
} job;

/* Links and kernels that are slow enough for a model this small. */
static sl_status costs_of(void *context, const sl_program *program, sl_costs **costs)
{
    sl_hardware hw;
    (void) context;
    SL_TRY(sl_hardware_find("h200", &hw));
    hw.link_latency_s = hw.launch_latency_s = 1e-9;
    hw.peak_flops[SL_F32] = hw.peak_flops[SL_BF16] = 2e12;
    SL_TRY(sl_costs_roofline(program, &hw, NULL, costs));
    memset((*costs)->workspace[SL_TIER_DEVICE], 0, (size_t) (*costs)->n_signatures * sizeof(size_t));
    return SL_OK;
}

static job make(int64_t seqlen, int64_t sequences, int64_t chunk_tokens)
{
    job j = {.config = interpret_config(seqlen, sequences, chunk_tokens, SL_PRECISION_BF16)};
    CHECK_OK(sl_model_find("byte-test", &j.model));
    return j;
}

static sl_program *base_of(job *j)
{
    sl_program *base;
    CHECK_OK(sl_program_create(&j->config, sl_build_model, &j->model, &base));
    return base;
}

/* Step time; 0: refused. */
static double plan(job *j, size_t device, size_t host, size_t used[SL_TIER_COUNT])
{
    sl_plan_config config = {.budget = {device, host}};
    sl_program *program;
    sl_costs *costs;
    sl_plan *p;
    sl_program *base = base_of(j);
    sl_status status = sl_plan_best(base, costs_of, NULL, &config, &program, &costs, &p);
    sl_program_destroy(base);
    if (status == SL_E_DOES_NOT_FIT)
        return 0;
    CHECK_OK(status);
    CHECK_OK(sl_plan_check(program, p, config.budget));
    CHECK_I64(program->n_chunks,
              j->config.chunking.seqlen * j->config.chunking.sequences / j->config.chunking.chunk_tokens);
    CHECK(p->predicted.step_s >= p->lower_bound_s * (1 - 1e-9));
    double step_s = p->predicted.step_s;
    memcpy(used, p->predicted.peak_bytes, SL_TIER_COUNT * sizeof *used);
    sl_plan_destroy(p);
    sl_costs_destroy(costs);
    sl_program_destroy(program);
    return step_s;
}

static size_t minimum(job *j, sl_tier tier, size_t other)
{
    sl_plan_config config = {.budget = {other, other}};
    size_t bytes;
    sl_program *base = base_of(j);
    config.budget[tier] = SIZE_MAX;
    CHECK_OK(sl_plan_best_minimum(base, costs_of, NULL, &config, tier, &bytes));
    sl_program_destroy(base);
    return bytes;
}

static void check_job(job *j)
{
    size_t used[SL_TIER_COUNT], at_least[SL_TIER_COUNT];
    double free_s = plan(j, SIZE_MAX, SIZE_MAX, used);
    CHECK(free_s > 0);
    size_t least = minimum(j, SL_TIER_DEVICE, SIZE_MAX), most = used[SL_TIER_DEVICE];
    CHECK(least < most);
    double least_s = plan(j, least, SIZE_MAX, at_least);
    CHECK(least_s >= free_s * (1 - 1e-9));
    CHECK_MSG(plan(j, least - SL_ALIGN, SIZE_MAX, at_least) == 0, "fits below its minimum %zu", least);
    /* More is no slower, but for the layout's luck. */
    double before_s = least_s;
    for (size_t i = 1; i <= 6; i++) {
        size_t device = (least + (most - least) * i / 6) / SL_ALIGN * SL_ALIGN;
        double step_s = plan(j, device, SIZE_MAX, used);
        CHECK_MSG(step_s > 0 && step_s <= 1.003 * before_s, "%zu bytes: %g s, with less %g s", device, step_s,
                  before_s);
        before_s = step_s;
    }
    /* Little is lost at two thirds. */
    size_t some = most * 2 / 3 / SL_ALIGN * SL_ALIGN;
    double some_s = plan(j, some, SIZE_MAX, used);
    printf("%zu bytes of %zu: %.3g s, of %.3g s with all, %.3g s with %zu\n", some, most, some_s, free_s, least_s,
           least);
    CHECK(some_s > 0 && some_s <= 1.1 * free_s);
    /* No minimum above what a plan uses. */
    size_t host = minimum(j, SL_TIER_HOST, some);
    CHECK_MSG(host <= used[SL_TIER_HOST], "%zu, but a plan uses %zu", host, used[SL_TIER_HOST]);
    CHECK_MSG(plan(j, some, host, at_least) > 0, "refused at the smallest host budget %zu", host);
    CHECK(at_least[SL_TIER_HOST] <= host);
}

TEST(packed_chunks)
{
    job j = make(16, 400, 32);
    check_job(&j);
}

TEST(sliced_sequences)
{
    job j = make(64, 50, 16);
    check_job(&j);
}

/* Nothing to gain, nothing to search: a step that fits whole is settled by its first schedules. */
TEST(settled_at_once)
{
    job j = make(16, 8, 32);
    sl_plan_config config = {.budget = {SIZE_MAX, SIZE_MAX}};
    sl_program *program;
    sl_costs *costs;
    sl_plan *p;
    sl_program *base = base_of(&j);
    CHECK_OK(sl_plan_best(base, costs_of, NULL, &config, &program, &costs, &p));
    sl_program_destroy(base);
    CHECK_MSG(p->evaluated <= 8, "%d schedules", (int) p->evaluated);
    CHECK(p->predicted.wait_s[SL_STREAM_IN] + p->predicted.wait_s[SL_STREAM_OUT] < 0.01 * p->predicted.step_s);
    sl_plan_destroy(p);
    sl_costs_destroy(costs);
    sl_program_destroy(program);
}

typedef struct large {
    const char *model, *hardware;
    int64_t sequences;
} large;

static sl_status roofline(void *context, const sl_program *program, sl_costs **costs)
{
    const large *step = context;
    sl_hardware hw;
    SL_TRY(sl_hardware_find(step->hardware, &hw));
    return sl_costs_roofline(program, &hw, NULL, costs);
}

static double plan_sequences(large step, int64_t seqlen, size_t device_gib, size_t host_gib, bool *rematerialize)
{
    job j = {.config = interpret_config(seqlen, step.sequences, SL_MIN(seqlen, 16384), SL_PRECISION_BF16)};
    sl_plan_config config = {.budget = {device_gib << 30, host_gib << 30},
                             .workspace_limit = sl_plan_workspace_limit(device_gib << 30)};
    sl_program *program;
    sl_costs *costs;
    sl_plan *p;
    CHECK_OK(sl_model_find(step.model, &j.model));
    double start = (double) clock() / CLOCKS_PER_SEC;
    sl_program *base = base_of(&j);
    CHECK_OK(sl_plan_best(base, roofline, &step, &config, &program, &costs, &p));
    sl_program_destroy(base);
    double took = (double) clock() / CLOCKS_PER_SEC - start, step_s = p->predicted.step_s;
    CHECK_OK(sl_plan_check(program, p, config.budget));
    printf("%zu/%zu GiB: %.2f s, planned in %.2f s\n", device_gib, host_gib, step_s, took);
    CHECK_MSG(took < LIMIT_S, "%.2f s to plan", took);
    *rematerialize = program->config.rematerialize;
    sl_plan_destroy(p);
    sl_costs_destroy(costs);
    sl_program_destroy(program);
    return step_s;
}

static double plan_large(large step, size_t device_gib, size_t host_gib)
{
    bool rematerialize;
    return plan_sequences(step, 8192, device_gib, host_gib, &rematerialize);
}

/* More memory is no slower, from one budget to the next, but for the layout's luck. */
static void check_levels(large step, const size_t (*gib)[SL_TIER_COUNT], int64_t count, double *step_s)
{
    const double luck = 1.002;
    for (int64_t i = 0; i < count; i++) {
        step_s[i] = plan_large(step, gib[i][SL_TIER_DEVICE], gib[i][SL_TIER_HOST]);
        CHECK_MSG(i == 0 || step_s[i] <= luck * step_s[i - 1], "%zu/%zu GiB: %g s, with less %g s",
                  gib[i][SL_TIER_DEVICE], gib[i][SL_TIER_HOST], step_s[i], step_s[i - 1]);
    }
}

/* 8B at 8k: nearly as fast in 24 GiB as in 130. */
TEST(llama_8b)
{
    static const size_t gib[][SL_TIER_COUNT] = {{12, 100}, {16, 100}, {24, 100}, {48, 100}, {130, 100}};
    double step_s[SL_COUNT(gib)];
    check_levels((large){"llama3-8b", "h200", 64}, gib, SL_COUNT(gib), step_s);
    CHECK(step_s[4] / step_s[2] >= 0.96);
    CHECK(step_s[4] / step_s[0] >= 0.91);
}

TEST(more_device_memory)
{
    static const size_t gib[][SL_TIER_COUNT] = {{4, 24}, {6, 24}, {8, 24}, {10, 24}, {12, 24}, {16, 24}, {22, 24}};
    double step_s[SL_COUNT(gib)];
    check_levels((large){"llama3-1.5b", "h200", 64}, gib, SL_COUNT(gib), step_s);
}

TEST(more_host_memory)
{
    static const size_t gib[][SL_TIER_COUNT] = {{8, 18}, {8, 24}, {8, 48}};
    double step_s[SL_COUNT(gib)];
    check_levels((large){"llama3-1.5b", "h200", 64}, gib, SL_COUNT(gib), step_s);
}

/* Four rounds are planned to the end at once, eight get a first look, which must not decide: with 8 GiB more, 1.8 % slower. */
TEST(few_rounds_or_many)
{
    static const size_t gib[][SL_TIER_COUNT] = {{72, 108}, {72, 116}};
    double step_s[SL_COUNT(gib)];
    check_levels((large){"llama3-8b", "h100", 16}, gib, SL_COUNT(gib), step_s);
}

/* Long sequences, whose activations do not fit: backwards make again what was dropped. Where all fits, that would cost time. */
TEST(rematerializes_where_memory_is_short)
{
    bool rematerialize;
    plan_sequences((large){"llama3-8b", "h200", 2}, 65536, 78, 110, &rematerialize);
    CHECK(rematerialize);
    plan_sequences((large){"llama3-8b", "h200", 2}, 8192, 130, 100, &rematerialize);
    CHECK(!rematerialize);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(packed_chunks);
    RUN(sliced_sequences);
    RUN(settled_at_once);
    RUN(llama_8b);
    RUN(more_device_memory);
    RUN(more_host_memory);
    RUN(few_rounds_or_many);
    RUN(rematerializes_where_memory_is_short);
    return test_end();
}
