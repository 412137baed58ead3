/*
 * Plans as they were: figures and a hash of every plan of a fixed set of jobs are compared with golden_plans.txt. Plans are
 * deterministic, so a change that was not to change plans changes nothing here, and one that was shows by how much each
 * figure moves. Times may grow by .1 % and no more; anything that differs means: look at it, then record it with
 *
 *     SLUICE_RECORD_PLANS=1 build/tests/test_plan_golden
 *
 * which prints the jobs that are slower than before.
 */
#include "plan/search/rounds.h"

#include "../model/interpret.h"
#include "chain.h"
#include "core/hash.h"
#include "transformer.h"

#define GIB ((size_t) 1 << 30)
#define GOLDEN SL_SOURCE_DIR "/tests/plan/golden_plans.txt"

typedef struct golden {
    char job[80];
    double step_s, bound_s, h2d_bytes, d2h_bytes, recompute_fraction, wait_s;
    size_t peak[SL_TIER_COUNT];
    int64_t evaluated;
    int limit;
    uint64_t hash;
} golden;

static golden recorded[600];
static int n_recorded;
static FILE *record;
static double seconds, seconds_before;

static uint64_t hash_of(const sl_plan *p)
{
    sl_hasher h;
    sl_hash_begin(&h, 1);
    for (int32_t i = 0; i < p->n_actions; i++) {
        const sl_action *a = &p->actions[i];
        bool task = a->kind == SL_ACTION_TASK;
        int32_t fields[] = {(int32_t) a->kind,
                            (int32_t) a->stream,
                            task ? a->task : a->object,
                            task && a->recompute,
                            task ? a->workspace : a->from,
                            task ? 0 : a->to,
                            a->n_deps};
        sl_hash_add(&h, fields, sizeof fields);
    }
    for (int32_t i = 0; i < p->n_allocations; i++) {
        const sl_allocation *place = &p->allocations[i];
        uint64_t fields[] = {(uint64_t) place->object, (uint64_t) place->tier, place->address, place->bytes,
                             (uint64_t) place->first,  (uint64_t) place->last};
        sl_hash_add(&h, fields, sizeof fields);
    }
    sl_hash_add(&h, p->deps, (size_t) p->n_deps * sizeof *p->deps);
    sl_hash_add(&h, p->use_allocations, (size_t) p->n_use_allocations * sizeof *p->use_allocations);
    return sl_hash_end(&h);
}

static void load(void)
{
    FILE *file = fopen(GOLDEN, "r");
    char line[400];
    while (file && fgets(line, sizeof line, file)) {
        golden g;
        if (line[0] == '#' || n_recorded == (int) SL_COUNT(recorded))
            continue;
        int n = sscanf(line, "%79s %lg %lg %lg %lg %lg %lg %zu %zu %" SCNd64 " %d %" SCNx64, g.job, &g.step_s,
                       &g.bound_s, &g.h2d_bytes, &g.d2h_bytes, &g.recompute_fraction, &g.wait_s, &g.peak[0], &g.peak[1],
                       &g.evaluated, &g.limit, &g.hash);
        REQUIRE(n == 12);
        recorded[n_recorded++] = g;
    }
    if (file)
        fclose(file);
}

static const golden *find(const char *job)
{
    for (int i = 0; i < n_recorded; i++)
        if (strcmp(recorded[i].job, job) == 0)
            return &recorded[i];
    return NULL;
}

static void compare(const golden *was, const golden *is)
{
    const double same = 1e-3;
    CHECK_MSG(fabs(is->step_s - was->step_s) <= same * was->step_s, "%s: %.9g s a step, %.9g recorded", is->job,
              is->step_s, was->step_s);
    CHECK_MSG(fabs(is->bound_s - was->bound_s) <= 1e-9 * was->bound_s, "%s: bound %.12g s, %.12g recorded", is->job,
              is->bound_s, was->bound_s);
    CHECK_MSG(is->h2d_bytes == was->h2d_bytes && is->d2h_bytes == was->d2h_bytes,
              "%s: %.12g bytes to the device and %.12g back, %.12g and %.12g recorded", is->job, is->h2d_bytes,
              is->d2h_bytes, was->h2d_bytes, was->d2h_bytes);
    CHECK_MSG(fabs(is->recompute_fraction - was->recompute_fraction) <= 1e-9, "%s: %.9g recomputed, %.9g recorded",
              is->job, is->recompute_fraction, was->recompute_fraction);
    CHECK_MSG(fabs(is->wait_s - was->wait_s) <= same * was->step_s, "%s: %.9g s waited, %.9g recorded", is->job,
              is->wait_s, was->wait_s);
    CHECK_MSG(is->peak[0] == was->peak[0] && is->peak[1] == was->peak[1], "%s: peaks %zu and %zu, %zu and %zu recorded",
              is->job, is->peak[0], is->peak[1], was->peak[0], was->peak[1]);
    CHECK_MSG(is->evaluated == was->evaluated, "%s: %d schedules tried, %d recorded", is->job, (int) is->evaluated,
              (int) was->evaluated);
    CHECK_MSG(is->limit == was->limit, "%s: limited by %s, %s recorded", is->job, sl_limit_name((sl_limit) is->limit),
              sl_limit_name((sl_limit) was->limit));
    CHECK_MSG(is->hash == was->hash, "%s: another plan (hash %016" PRIx64 ", %016" PRIx64 " recorded)", is->job,
              is->hash, was->hash);
}

static void examine(const char *job, const sl_plan *p)
{
    const sl_summary *s = &p->predicted;
    golden is = {.step_s = s->step_s,
                 .bound_s = p->lower_bound_s,
                 .h2d_bytes = s->link_bytes[SL_LINK_IN],
                 .d2h_bytes = s->link_bytes[SL_LINK_OUT],
                 .recompute_fraction = s->recompute_fraction,
                 .wait_s = s->wait_s[SL_STREAM_IN] + s->wait_s[SL_STREAM_OUT] + s->wait_s[SL_STREAM_HOST],
                 .evaluated = p->evaluated,
                 .limit = (int) p->limit,
                 .hash = hash_of(p)};
    snprintf(is.job, sizeof is.job, "%s", job);
    memcpy(is.peak, s->peak_bytes, sizeof is.peak);
    const golden *was = find(job);
    seconds += was ? is.step_s / was->step_s : 0;
    seconds_before += was ? 1 : 0;
    if (record) {
        fprintf(record, "%s %.17g %.17g %.17g %.17g %.17g %.17g %zu %zu %" PRId64 " %d %016" PRIx64 "\n", is.job,
                is.step_s, is.bound_s, is.h2d_bytes, is.d2h_bytes, is.recompute_fraction, is.wait_s, is.peak[0],
                is.peak[1], is.evaluated, is.limit, is.hash);
        if (was && is.step_s > was->step_s * (1 + 1e-9))
            printf("%s: slower by %.3f %%\n", job, 100 * (is.step_s / was->step_s - 1));
        return;
    }
    CHECK_MSG(was, "%s is not recorded", job);
    if (was)
        compare(was, &is);
}

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

static void plan_synthetic(const char *job, synthetic *s, size_t device, size_t host, int64_t evaluations)
{
    sl_plan_config config = {
        .budget = {device, host}, .max_evaluations = evaluations, .time_limit_s = 1e6, .no_advice = true};
    sl_plan *p;
    CHECK_OK(sl_plan_create(&s->program, s->costs, &config, &p));
    CHECK_OK(sl_plan_check(&s->program, p, config.budget));
    examine(job, p);
    sl_plan_destroy(p);
}

TEST(small_programs)
{
    for (uint64_t seed = 1; seed <= 100; seed++) {
        rng r = {seed * 5};
        synthetic *s = seed % 2 ? synthetic_random(seed, 10 + rng_below(&r, 20), 6 + rng_below(&r, 10))
                                : synthetic_sliced(seed, 3 + rng_below(&r, 5));
        sl_plan_config config = {.budget = {SIZE_MAX, SIZE_MAX}};
        size_t least[SL_TIER_COUNT];
        char job[80];
        for (int i = 0; i < 2; i++) {
            s->costs->link_bytes_per_s[i] = 0.5 + rng_unit(&r);
            s->costs->link_bytes_per_s_both[i] = 0.7 * s->costs->link_bytes_per_s[i];
        }
        s->costs->copy_slowdown = seed % 4 ? 0 : 0.2;
        s->costs->host_slowdown = seed % 3 ? 0 : 0.3;
        CHECK_OK(sl_plan_minimum(&s->program, s->costs, &config, SL_TIER_DEVICE, &least[0]));
        config.budget[0] = least[0] + least[0] / 8 * (seed % 5);
        CHECK_OK(sl_plan_minimum(&s->program, s->costs, &config, SL_TIER_HOST, &least[1]));
        snprintf(job, sizeof job, "random-%d", (int) seed);
        plan_synthetic(job, s, config.budget[0], seed % 3 ? SIZE_MAX : least[1], 200);
        synthetic_free(s);
    }
}

TEST(chains)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        chain c = chain_random(seed);
        synthetic *s = chain_program(&c);
        char job[80];
        snprintf(job, sizeof job, "chain-%d", (int) seed);
        plan_synthetic(job, s, (size_t) c.budget, SIZE_MAX, 300);
        synthetic_free(s);
    }
}

TEST(transformers)
{
    static const struct {
        const char *job;
        int64_t layers, chunks, chunks_per_round, seqlen;
        size_t device_mib, host_gib;
    } jobs[] = {{"blocks-all", 8, 8, 2, 8192, 200000, 200},    {"blocks-40", 8, 8, 2, 8192, 40960, 200},
                {"blocks-24", 8, 8, 2, 8192, 24576, 200},      {"blocks-12", 8, 8, 2, 8192, 12288, 200},
                {"blocks-8", 8, 8, 1, 8192, 8192, 200},        {"blocks-host", 8, 8, 2, 8192, 24576, 17},
                {"blocks-sliced", 4, 8, 8, 65536, 16384, 200}, {"blocks-rounds", 4, 16, 2, 8192, 12288, 200}};
    for (size_t i = 0; i < SL_COUNT(jobs); i++) {
        transformer m = llama_8b;
        m.layers = jobs[i].layers;
        m.chunks = jobs[i].chunks;
        m.chunks_per_round = jobs[i].chunks_per_round;
        m.seqlen = jobs[i].seqlen;
        synthetic *s = transformer_program(&m);
        plan_synthetic(jobs[i].job, s, jobs[i].device_mib << 20, jobs[i].host_gib * GIB, 0);
        synthetic_free(s);
    }
}

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

TEST(models)
{
    static const struct {
        const char *job;
        int64_t seqlen, sequences, chunk_tokens;
        size_t device_kib, host_kib;
    } jobs[] = {{"model-all", 16, 64, 32, 65536, 65536},
                {"model-packed", 16, 400, 32, 800, 65536},
                {"model-tight", 16, 64, 32, 600, 65536},
                {"model-sliced", 64, 50, 16, 700, 65536}};
    for (size_t i = 0; i < SL_COUNT(jobs); i++) {
        sl_model model;
        sl_program_config base =
            interpret_config(jobs[i].seqlen, jobs[i].sequences, jobs[i].chunk_tokens, SL_PRECISION_BF16);
        sl_plan_config config = {.budget = {jobs[i].device_kib << 10, jobs[i].host_kib << 10}, .time_limit_s = 1e6};
        sl_program *program, *step;
        sl_costs *costs;
        sl_plan *p;
        CHECK_OK(sl_model_find("byte-test", &model));
        CHECK_OK(sl_program_create(&base, sl_build_model, &model, &step));
        CHECK_OK(sl_plan_best(step, costs_of, NULL, &config, &program, &costs, &p));
        sl_program_destroy(step);
        CHECK_OK(sl_plan_check(program, p, config.budget));
        examine(jobs[i].job, p);
        sl_plan_destroy(p);
        sl_costs_destroy(costs);
        sl_program_destroy(program);
    }
}

typedef struct large {
    const char *job, *hardware;
    int64_t seqlen, sequences;
    size_t device_gib, host_gib;
} large;

static sl_status roofline(void *context, const sl_program *program, sl_costs **costs)
{
    const large *job = context;
    sl_hardware hw;
    SL_TRY(sl_hardware_find(job->hardware, &hw));
    return sl_costs_roofline(program, &hw, NULL, costs);
}

/* Steps of real size: rounds are compared, four of them stand for all, values are recomputed on the way. */
TEST(large_steps)
{
    static const large jobs[] = {{"8b-24", "h200", 8192, 64, 24, 100},
                                 {"8b-12", "h200", 8192, 64, 12, 100},
                                 {"8b-64k", "h200", 65536, 2, 78, 110},
                                 {"8b-host", "h100", 8192, 16, 72, 108}};
    for (size_t i = 0; i < SL_COUNT(jobs); i++) {
        large job = jobs[i];
        sl_model model;
        sl_program_config base =
            interpret_config(job.seqlen, job.sequences, SL_MIN(job.seqlen, 16384), SL_PRECISION_BF16);
        sl_plan_config config = {.budget = {job.device_gib * GIB, job.host_gib * GIB}, .time_limit_s = 1e6};
        sl_program *program, *step;
        sl_costs *costs;
        sl_plan *p;
        config.workspace_limit = sl_plan_workspace_limit(job.device_gib * GIB);
        CHECK_OK(sl_model_find("llama3-8b", &model));
        CHECK_OK(sl_program_create(&base, sl_build_model, &model, &step));
        CHECK_OK(sl_plan_best(step, roofline, &job, &config, &program, &costs, &p));
        sl_program_destroy(step);
        examine(job.job, p);
        sl_plan_destroy(p);
        sl_costs_destroy(costs);
        sl_program_destroy(program);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    load();
    if (getenv("SLUICE_RECORD_PLANS") && !test_filter) /* all of them or none */
        REQUIRE((record = fopen(GOLDEN, "w")));
    if (record)
        fprintf(record,
                "# job, step and bound in s, bytes to the device and back, recomputed share, s waited, peaks in "
                "bytes, schedules, limit, hash\n# recorded by SLUICE_RECORD_PLANS=1 test_plan_golden\n");
    RUN(small_programs);
    RUN(chains);
#ifndef __SANITIZE_ADDRESS__ /* minutes with sanitizers */
    RUN(transformers);
    RUN(models);
    RUN(large_steps);
#endif
    if (seconds_before > 0)
        printf("%.4f times the recorded step time on average\n", seconds / seconds_before);
    if (record)
        fclose(record);
    return test_end();
}
