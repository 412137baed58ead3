/*
 * The heap's share of the host budget is an estimate from above, a function of the program alone: `sluice plan` and the run must
 * come to the same answer, and the smallest host budget must be a number that works. (But for data of many thousand files, where a
 * plan is made without it: their names are counted by the run.) Per task it counts what the program, the plan, the engine and the
 * device's queues keep (a tight budget makes up to about five actions of a task: itself, copies, a recomputation); per token what
 * the loader and the staging of a chunk keep; and a fixed base for I/O buffers, the event log and small things. tests/train checks
 * it against the heap's real peak.
 */
#include "train/prepare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/text.h"
#include "plan/search/rounds.h"
#include "train/job_costs.h"

enum {
    RESERVE_BASE = 5 << 20,
    RESERVE_PER_TASK = 6144,
    RESERVE_PER_OBJECT = 512,
    RESERVE_PER_PARAM = 1024, /* names and headers while a checkpoint is written */
    RESERVE_PER_TOKEN = 32,
    RESERVE_PER_STEP = 8,
    RESERVE_DATA = 1 << 20, /* of the base: names of some thousand files */
};

enum { SMALLEST_WORKSPACE = 1 }; /* decides whether a job fits at all */

/* Of a chunk's inputs on their way to the arena, those that are no words of 32 bits per token. */
static size_t staged_bytes(const sl_program *program)
{
    size_t bytes = 0;
    for (int kind = 0; kind < SL_INPUT_COUNT; kind++)
        if (program->chunks[0].input[kind].dtype != SL_I32)
            bytes += sl_type_bytes(&program->chunks[0].input[kind]);
    return bytes;
}

/* A validation pass has about a third of a training step's tasks, and the making of a token at most as many. */
static size_t heap_reserve(const sl_setup *setup, const sl_program *program, const sl_samples *samples)
{
    size_t per_program =
        (size_t) program->n_tasks * RESERVE_PER_TASK + (size_t) program->n_objects * RESERVE_PER_OBJECT;
    size_t tokens = (size_t) (setup->program.chunking.seqlen + setup->program.chunking.chunk_tokens);
    size_t all = RESERVE_BASE + per_program + (setup->val_every ? per_program / (setup->beside.seqlen ? 1 : 2) : 0) +
                 (samples ? per_program / 2 + samples->heap_bytes : 0) +
                 (size_t) program->n_params * RESERVE_PER_PARAM + tokens * RESERVE_PER_TOKEN +
                 (size_t) setup->steps * RESERVE_PER_STEP + staged_bytes(program) +
                 (SL_MAX(setup->data_bytes, (size_t) RESERVE_DATA) - RESERVE_DATA);
    return SL_ROUND_UP(all, (size_t) SL_ALIGN);
}

/* What the planner may have: the budgets, less the heap's share of the host's. */
static void set_plan_budgets(const sl_setup *setup, sl_prepared *p)
{
    memcpy(p->plan_budget, setup->budget, sizeof p->plan_budget);
    if (setup->budget[SL_TIER_HOST] != SIZE_MAX) {
        size_t budget = setup->budget[SL_TIER_HOST];
        p->plan_budget[SL_TIER_HOST] = budget > p->reserve_bytes ? budget - p->reserve_bytes : 0;
    }
}

/* ---- the training plan ----------------------------------------------------------------------------------------- */

static size_t workspace_limit(const sl_setup *setup)
{
    return setup->fixed_workspace ? setup->program.workspace_limit
                                  : sl_plan_workspace_limit(setup->budget[SL_TIER_DEVICE]);
}

static sl_plan_config plan_config(const sl_setup *setup, const sl_prepared *p, size_t workspace_limit)
{
    sl_plan_config config = {.chunks_per_round = setup->program.chunks_per_round, .workspace_limit = workspace_limit};
    memcpy(config.budget, p->plan_budget, sizeof config.budget);
    return config;
}

/* A first program, whatever its rounds: its size fixes the heap's share, and it stands for the job if nothing fits. */
static sl_status begin(const sl_setup *setup, sl_prepared *p)
{
    sl_model model = setup->model;
    SL_TRY(sl_program_create(&setup->program, sl_build_model, &model, &p->program));
    p->reserve_bytes = heap_reserve(setup, p->program, p->samples);
    memcpy(p->budget, setup->budget, sizeof p->budget);
    return SL_OK;
}

/* Replaces the plan there may be. Where nothing fits, with the smallest workspaces that kernels can do with. */
static sl_status plan_training(const sl_setup *setup, sl_prepared *p)
{
    sl_cost_source context = {setup, p};
    sl_program *program = NULL;
    sl_plan_destroy(p->plan);
    sl_costs_destroy(p->costs);
    p->plan = NULL, p->costs = NULL;
    set_plan_budgets(setup, p);
    sl_plan_config config = plan_config(setup, p, workspace_limit(setup));
    sl_status status = sl_plan_best(p->program, sl_job_costs, &context, &config, &program, &p->costs, &p->plan);
    if (status == SL_E_DOES_NOT_FIT) {
        config.workspace_limit = SMALLEST_WORKSPACE;
        status = sl_plan_best(p->program, sl_job_costs, &context, &config, &program, &p->costs, &p->plan);
    }
    SL_TRY(status);
    sl_program_destroy(p->program);
    p->program = program;
    return SL_OK;
}

void sl_prepared_peaks(const sl_prepared *p, size_t peak[SL_TIER_COUNT])
{
    sl_plan_extent(p->plan, peak);
    for (int i = 0; i < 2; i++) {
        const sl_plan *beside = i ? p->sample_plan : p->val_plan;
        size_t extent[SL_TIER_COUNT] = {0};
        if (beside)
            sl_plan_extent(beside, extent);
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            peak[tier] = SL_MAX(peak[tier], extent[tier]);
    }
    peak[SL_TIER_HOST] += p->reserve_bytes;
}

int64_t sl_prepared_trained(const sl_prepared *p)
{
    int64_t count = 0;
    for (int32_t i = 0; i < p->program->n_params; i++)
        count += p->program->params[i].frozen ? 0 : sl_type_count(&p->program->params[i].type);
    return count;
}

static bool is_within(const size_t bytes[SL_TIER_COUNT], const size_t budget[SL_TIER_COUNT])
{
    return bytes[SL_TIER_DEVICE] <= budget[SL_TIER_DEVICE] && bytes[SL_TIER_HOST] <= budget[SL_TIER_HOST];
}

/* Does the plan take more than the machine has, of tiers without a budget? Then *limit is what it may take. */
static bool is_too_large(const sl_setup *setup, const sl_prepared *p, const sl_hardware *machine,
                         size_t limit[SL_TIER_COUNT])
{
    size_t peak[SL_TIER_COUNT];
    bool over = false;
    sl_hardware_limits(machine, limit);
    sl_prepared_peaks(p, peak);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        over |= !setup->limited[tier] && peak[tier] > limit[tier];
    if (machine->shared_cores) /* one memory */
        over = peak[SL_TIER_DEVICE] + peak[SL_TIER_HOST] > limit[SL_TIER_DEVICE] + limit[SL_TIER_HOST];
    return over;
}

/* Without budgets everything stays on the device and lies as low as it can; only what is too large for the machine is planned
 * again, within what there is. */
static sl_status plan_within_machine(sl_setup *setup, sl_prepared *p)
{
    size_t limit[SL_TIER_COUNT];
    sl_hardware machine;
    SL_TRY(plan_training(setup, p));
    if (setup->limited[SL_TIER_DEVICE] && setup->limited[SL_TIER_HOST])
        return SL_OK;
    SL_TRY(sl_job_hardware(setup, &machine));
    if (!is_too_large(setup, p, &machine, limit))
        return SL_OK;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        if (!setup->limited[tier])
            p->budget[tier] = setup->budget[tier] = limit[tier];
    return plan_training(setup, p);
}

/* ---- budgets --------------------------------------------------------------------------------------------------- */

static sl_setup without_budgets(const sl_setup *setup)
{
    sl_setup job = *setup;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        job.budget[tier] = SIZE_MAX;
        job.share[tier] = 0;
        job.limited[tier] = false;
    }
    return job;
}

/* The programs that run beside the training step. */
static sl_status plan_beside(const sl_setup *setup, sl_prepared *p)
{
    if (setup->val_every)
        SL_TRY(sl_prepare_validation(setup, p));
    return p->samples ? sl_prepare_samples(setup, p) : SL_OK;
}

/* What the job takes without budgets, with costs that need no measuring: the same in every run on a machine. Once a job. */
static sl_status find_unlimited(const sl_setup *setup, sl_prepared *p)
{
    sl_setup job = without_budgets(setup);
    sl_prepared plain = {.samples = p->samples}; /* lent */
    job.measured = false;
    sl_status status = begin(&job, &plain);
    if (status == SL_OK)
        status = plan_within_machine(&job, &plain);
    if (status == SL_OK)
        status = plan_beside(&job, &plain);
    if (status == SL_OK)
        sl_prepared_peaks(&plain, p->unlimited_bytes);
    plain.samples = NULL;
    sl_prepared_destroy(&plain);
    return status;
}

/* Percentages become bytes. */
static sl_status resolve_shares(sl_setup *setup, sl_prepared *p)
{
    if (setup->share[SL_TIER_DEVICE] == 0 && setup->share[SL_TIER_HOST] == 0)
        return SL_OK;
    SL_TRY(find_unlimited(setup, p));
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        if (setup->share[tier] > 0)
            setup->budget[tier] = (size_t) fmin(setup->share[tier] * (double) p->unlimited_bytes[tier], 1e18);
    return SL_OK;
}

/* Can the plan without budgets be within them? It takes at least the parameters and their state on the device, or a good part of the
 * machine. Costs are only measured for a plan that the roofline finds within the budgets: measuring takes memory too. */
static sl_status may_be_loose(const sl_setup *setup, sl_prepared *p, bool *may)
{
    size_t persistent = 0, limit[SL_TIER_COUNT];
    sl_hardware machine;
    *may = false;
    if (setup->budget[SL_TIER_DEVICE] == SIZE_MAX && setup->budget[SL_TIER_HOST] == SIZE_MAX)
        return SL_OK;
    for (int32_t o = 0; o < p->program->n_objects; o++)
        persistent += p->program->objects[o].persistent ? p->program->objects[o].bytes : 0;
    SL_TRY(sl_job_hardware(setup, &machine));
    sl_hardware_limits(&machine, limit);
    if (setup->budget[SL_TIER_DEVICE] < SL_MIN(persistent, limit[SL_TIER_DEVICE] / 2))
        return SL_OK;
    if (setup->measured && !p->unlimited_bytes[SL_TIER_DEVICE]) {
        sl_status status = find_unlimited(setup, p);
        if (status == SL_E_DOES_NOT_FIT)
            return SL_OK;
        SL_TRY(status);
    }
    *may = is_within(p->unlimited_bytes, setup->budget);
    return SL_OK;
}

/* A budget in which the plan without budgets fits does not change that plan: more memory would not make it faster. */
static sl_status plan_loose(const sl_setup *setup, sl_prepared *p, bool *done)
{
    sl_setup job = without_budgets(setup);
    size_t peak[SL_TIER_COUNT];
    SL_TRY(may_be_loose(setup, p, done));
    if (!*done)
        return SL_OK;
    sl_status status = plan_within_machine(&job, p);
    *done = status == SL_OK;
    if (status == SL_OK) {
        sl_prepared_peaks(p, peak);
        *done = is_within(peak, setup->budget);
    }
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        p->budget[tier] = !*done || setup->limited[tier] ? setup->budget[tier] : job.budget[tier];
    set_plan_budgets(setup, p);
    return status == SL_E_DOES_NOT_FIT ? SL_OK : status;
}

static sl_status plan_job(sl_setup *setup, sl_prepared *p)
{
    bool done;
    SL_TRY(resolve_shares(setup, p));
    SL_TRY(begin(setup, p));
    SL_TRY(plan_loose(setup, p, &done));
    return done ? SL_OK : plan_within_machine(setup, p);
}

/* ---- what would fit -------------------------------------------------------------------------------------------- */

/* With the percentage where the budget was given as one, rounded up so that it suffices. */
static const char *amount(const sl_setup *setup, const sl_prepared *p, sl_tier tier, size_t bytes, char out[96])
{
    char text[32], percent[32] = "";
    if (setup->share[tier] > 0)
        snprintf(percent, sizeof percent, ", %.1f%%", sl_percent_up(bytes, p->unlimited_bytes[tier]));
    if (bytes == SIZE_MAX)
        snprintf(out, 96, "unlimited");
    else
        snprintf(out, 96, "%s (%zu bytes%s)", sl_format_bytes_up(bytes, text), bytes, percent);
    return out;
}

/* Budgets that suffice together where neither does with the other as given: the smallest device budget with unlimited host memory, and
 * the smallest host budget with that. */
static sl_status both_minima(const sl_setup *setup, sl_prepared *p, size_t bytes[SL_TIER_COUNT])
{
    size_t given[SL_TIER_COUNT];
    memcpy(given, p->plan_budget, sizeof given);
    p->plan_budget[SL_TIER_HOST] = SIZE_MAX;
    sl_status status = sl_prepared_minimum(setup, p, SL_TIER_DEVICE, &bytes[SL_TIER_DEVICE]);
    p->plan_budget[SL_TIER_DEVICE] = bytes[SL_TIER_DEVICE];
    if (status == SL_OK)
        status = sl_prepared_minimum(setup, p, SL_TIER_HOST, &bytes[SL_TIER_HOST]);
    memcpy(p->plan_budget, given, sizeof given);
    return status;
}

/* The planner's own message does not know of the heap. */
static sl_status does_not_fit(const sl_setup *setup, sl_prepared *p)
{
    char given[SL_TIER_COUNT][96], text[SL_TIER_COUNT][96], least[320];
    if (!p->costs)
        SL_TRY(sl_job_costs(&(sl_cost_source){setup, p}, p->program, &p->costs));
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        SL_TRY(sl_prepared_minimum(setup, p, (sl_tier) tier, &p->min_bytes[tier]));
        amount(setup, p, (sl_tier) tier, p->min_bytes[tier], text[tier]);
        amount(setup, p, (sl_tier) tier, setup->budget[tier], given[tier]);
    }
    if (p->min_bytes[SL_TIER_DEVICE] && p->min_bytes[SL_TIER_HOST])
        snprintf(least, sizeof least, "with the other as given, %s of device or %s of host memory would do", text[0],
                 text[1]);
    else if (p->min_bytes[SL_TIER_DEVICE] || p->min_bytes[SL_TIER_HOST])
        snprintf(least, sizeof least, "at least %s of %s memory would do", text[!p->min_bytes[SL_TIER_DEVICE]],
                 p->min_bytes[SL_TIER_DEVICE] ? "device" : "host");
    else {
        SL_TRY(both_minima(setup, p, p->both_bytes));
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            amount(setup, p, (sl_tier) tier, p->both_bytes[tier], text[tier]);
        snprintf(least, sizeof least, "neither alone is enough, %s of device and %s of host memory together would do",
                 text[0], text[1]);
    }
    return sl_fail(SL_E_DOES_NOT_FIT,
                   "the job does not fit %s of device and %s of host memory: %s; raise a budget, or use %s", given[0],
                   given[1], least, setup->smaller ? setup->smaller : "a smaller --seqlen or --chunk-tokens");
}

/* Costs a few milliseconds for the largest steps, so no plan is used without it. */
sl_status sl_prepared_check(const sl_prepared *p)
{
    SL_TRY(sl_plan_check(p->program, p->plan, p->plan_budget));
    if (p->val_plan)
        SL_TRY(sl_plan_check(p->val_program, p->val_plan, p->val_budget));
    return p->sample_plan ? sl_plan_check(p->sample_program, p->sample_plan, p->plan_budget) : SL_OK;
}

sl_status sl_prepare(const sl_setup *setup, sl_prepared *prepared)
{
    double start = sl_clock_s();
    sl_cost_memo memo = prepared->memo;
    sl_setup job = *setup; /* with budgets that it may not have been given */
    *prepared = (sl_prepared){.memo = memo};
    sl_job_remember(&job);
    if (job.sample_every)
        SL_TRY(sl_samples_open(&job, &prepared->samples));
    sl_hooks_progress(&job.hooks, SL_STAGE_PLAN, 0);
    sl_status status = plan_job(&job, prepared);
    if (status == SL_E_DOES_NOT_FIT)
        status = does_not_fit(&job, prepared);
    if (status == SL_OK)
        status = plan_beside(&job, prepared);
    if (status == SL_OK)
        status = sl_prepared_check(prepared);
    prepared->plan_s = sl_clock_s() - start - prepared->measure_s;
    if (status == SL_OK)
        sl_hooks_progress(&job.hooks, SL_STAGE_PLAN, 1);
    return status;
}

void sl_prepared_destroy(sl_prepared *prepared)
{
    sl_pages_ahead_end(prepared->ahead);
    sl_plan_destroy(prepared->sample_plan);
    sl_costs_destroy(prepared->sample_costs);
    sl_program_destroy(prepared->sample_program);
    sl_samples_close(prepared->samples);
    sl_plan_destroy(prepared->val_plan);
    sl_costs_destroy(prepared->val_costs);
    sl_program_destroy(prepared->val_program);
    sl_plan_destroy(prepared->plan);
    sl_costs_destroy(prepared->costs);
    sl_program_destroy(prepared->program);
    sl_cost_memo_free(&prepared->memo);
    *prepared = (sl_prepared){0};
}

sl_status sl_prepared_minimum(const sl_setup *setup, sl_prepared *p, sl_tier tier, size_t *bytes)
{
    sl_cost_source context = {setup, p};
    const sl_plan_config config = plan_config(setup, p, SMALLEST_WORKSPACE);
    sl_status status = sl_plan_best_minimum(p->program, sl_job_costs, &context, &config, tier, bytes);
    if (status == SL_E_DOES_NOT_FIT) {
        *bytes = 0;
        return SL_OK;
    }
    if (status == SL_OK && tier == SL_TIER_HOST)
        *bytes += p->reserve_bytes;
    return status;
}
