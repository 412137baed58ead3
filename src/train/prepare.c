/*
 * The heap's share of the host budget is an estimate from above, a function of the program alone: `sluice plan` and the run must
 * come to the same answer, and the smallest host budget must be a number that works. (But for data of many thousand files, which
 * a plan does not open: their names are counted by the run.) Per task it counts what the program, the plan, the engine and the
 * device's queues keep (a tight budget makes up to about five actions of a task: itself, copies, a recomputation); per token what
 * the loader and the staging of a chunk keep; and a fixed base for I/O buffers, the event log and small things. tests/train checks
 * it against the heap's real peak.
 */
#include "train/prepare.h"

#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/text.h"
#include "plan/rounds.h"
#include "train/ask.h"

enum {
    RESERVE_BASE = 5 << 20,
    RESERVE_PER_TASK = 6144,
    RESERVE_PER_OBJECT = 512,
    RESERVE_PER_PARAM = 1024, /* names and headers while a checkpoint is written */
    RESERVE_PER_TOKEN = 32,
    RESERVE_PER_STEP = 8,
    RESERVE_DATA = 1 << 20, /* of the base: names of some thousand files */
};

/* A validation pass has about a third of a training step's tasks. */
static size_t heap_reserve(const sl_setup *setup, const sl_program *program)
{
    size_t per_program =
        (size_t) program->n_tasks * RESERVE_PER_TASK + (size_t) program->n_objects * RESERVE_PER_OBJECT;
    size_t tokens = (size_t) (setup->program.chunking.seqlen + setup->program.chunking.chunk_tokens);
    size_t all = RESERVE_BASE + per_program + (setup->val_every ? per_program / 2 : 0) +
                 (size_t) program->n_params * RESERVE_PER_PARAM + tokens * RESERVE_PER_TOKEN +
                 (size_t) setup->steps * RESERVE_PER_STEP +
                 (SL_MAX(setup->data_bytes, (size_t) RESERVE_DATA) - RESERVE_DATA);
    return SL_ROUND_UP(all, (size_t) SL_ALIGN);
}

/* What the planner may have: the budgets, less the heap's share of the host's. */
static void set_budgets(const sl_setup *setup, sl_prepared *p)
{
    memcpy(p->budget, setup->budget, sizeof p->budget);
    p->reserve_bytes = heap_reserve(setup, p->program);
    memcpy(p->plan_budget, setup->budget, sizeof p->plan_budget);
    if (setup->budget[SL_TIER_HOST] != SIZE_MAX) {
        size_t budget = setup->budget[SL_TIER_HOST];
        p->plan_budget[SL_TIER_HOST] = budget > p->reserve_bytes ? budget - p->reserve_bytes : 0;
    }
}

/* The job with the smallest workspaces its kernels can do with: what decides whether it fits at all. */
static sl_program_config frugal(const sl_setup *setup)
{
    sl_program_config config = setup->program;
    config.workspace_limit = 1;
    return config;
}

static sl_status plan_training(const sl_setup *setup, sl_prepared *p)
{
    sl_model model = setup->model;
    sl_asking context = {setup, p};
    sl_program *program = NULL;
    sl_plan_config plan = {0};
    sl_program_config config = setup->program;
    /* A first program, whatever its rounds: its size fixes the heap's share, and it stands for the job if nothing fits. */
    SL_TRY(sl_program_create(&config, sl_build_model, &model, &p->program));
    set_budgets(setup, p);
    memcpy(plan.budget, p->plan_budget, sizeof plan.budget);
    sl_status status =
        sl_plan_best(&config, sl_build_model, &model, sl_ask_costs, &context, &plan, &program, &p->costs, &p->plan);
    if (status == SL_E_DOES_NOT_FIT) {
        config = frugal(setup);
        status =
            sl_plan_best(&config, sl_build_model, &model, sl_ask_costs, &context, &plan, &program, &p->costs, &p->plan);
    }
    SL_TRY(status);
    sl_program_destroy(p->program);
    p->program = program;
    return SL_OK;
}

/* Does the plan take more than the machine has, of tiers that nobody limited? Then *limit is what it may take. */
static bool is_too_large(const sl_setup *setup, const sl_prepared *p, const sl_hardware *machine,
                         size_t limit[SL_TIER_COUNT])
{
    size_t extent[SL_TIER_COUNT];
    bool over = false;
    sl_hardware_limits(machine, limit);
    sl_plan_extent(p->plan, extent);
    extent[SL_TIER_HOST] += p->reserve_bytes;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        over |= !setup->limited[tier] && extent[tier] > limit[tier];
    if (machine->shared_cores) /* one memory */
        over = extent[SL_TIER_DEVICE] + extent[SL_TIER_HOST] > limit[SL_TIER_DEVICE] + limit[SL_TIER_HOST];
    return over;
}

/* Without budgets everything stays on the device and lies as low as it can; only what is too large for the machine is planned
 * again, within what there is. */
static sl_status keep_to_machine(sl_setup *setup, sl_prepared *p)
{
    size_t limit[SL_TIER_COUNT];
    sl_hardware machine;
    if (setup->limited[SL_TIER_DEVICE] && setup->limited[SL_TIER_HOST])
        return SL_OK;
    SL_TRY(sl_ask_machine(setup, &machine));
    if (!is_too_large(setup, p, &machine, limit))
        return SL_OK;
    if (setup->program.workspace_limit == sl_plan_workspace_limit(SIZE_MAX))
        setup->program.workspace_limit = sl_plan_workspace_limit(limit[SL_TIER_DEVICE]);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        if (!setup->limited[tier])
            setup->budget[tier] = limit[tier];
    sl_plan_destroy(p->plan);
    sl_costs_destroy(p->costs);
    sl_program_destroy(p->program);
    p->plan = NULL, p->costs = NULL, p->program = NULL;
    return plan_training(setup, p);
}

static const char *amount(size_t bytes, char out[64])
{
    char text[32];
    if (bytes == SIZE_MAX)
        snprintf(out, 64, "unlimited");
    else
        snprintf(out, 64, "%s (%zu bytes)", sl_format_bytes_up(bytes, text), bytes);
    return out;
}

/* Budgets that do together where neither does with the other as given: the least of the device with all the host it likes, and the least
 * of the host with that. */
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
    char device[64], host[64], text[2][64], least[256];
    if (!p->costs)
        SL_TRY(sl_ask_costs(&(sl_asking){setup, p}, p->program, &p->costs));
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        SL_TRY(sl_prepared_minimum(setup, p, (sl_tier) tier, &p->min_bytes[tier]));
        amount(p->min_bytes[tier], text[tier]);
    }
    if (p->min_bytes[SL_TIER_DEVICE] && p->min_bytes[SL_TIER_HOST])
        snprintf(least, sizeof least, "with the other as given, %s of device or %s of host memory would do", text[0],
                 text[1]);
    else if (p->min_bytes[SL_TIER_DEVICE] || p->min_bytes[SL_TIER_HOST])
        snprintf(least, sizeof least, "at least %s of %s memory would do", text[!p->min_bytes[SL_TIER_DEVICE]],
                 p->min_bytes[SL_TIER_DEVICE] ? "device" : "host");
    else {
        SL_TRY(both_minima(setup, p, p->both_bytes));
        snprintf(least, sizeof least, "neither alone is enough, %s of device and %s of host memory together would do",
                 amount(p->both_bytes[SL_TIER_DEVICE], text[0]), amount(p->both_bytes[SL_TIER_HOST], text[1]));
    }
    return sl_fail(SL_E_DOES_NOT_FIT,
                   "the job does not fit %s of device and %s of host memory: %s; raise a budget, or use a smaller "
                   "--seqlen or --chunk-tokens",
                   amount(setup->budget[SL_TIER_DEVICE], device), amount(setup->budget[SL_TIER_HOST], host), least);
}

/* Validation runs beside the training plan's persistent objects. First within the memory that training has anyway, which nearly
 * always does (no gradients, nothing kept for a backward); else within more of it, up to the budgets. */
static sl_status fit_validation(sl_prepared *p)
{
    sl_plan_config plan = {.homes = p->plan};
    sl_plan_extent(p->plan, plan.budget);
    for (;;) {
        sl_status status = sl_plan_create(p->val_program, p->val_costs, &plan, &p->val_plan);
        bool grown = false;
        if (status != SL_E_DOES_NOT_FIT)
            return status;
        for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
            size_t more = SL_MIN(plan.budget[tier] + plan.budget[tier] / 2 + (1 << 20), p->plan_budget[tier]);
            grown = grown || more > plan.budget[tier];
            plan.budget[tier] = more;
        }
        if (!grown)
            return status;
    }
}

static sl_status plan_validation(const sl_setup *setup, sl_prepared *p)
{
    sl_program_config config = p->program->config;
    sl_model model = setup->model;
    config.forward_only = true;
    config.gated = config.norm = false;
    SL_TRY(sl_program_create(&config, sl_build_model, &model, &p->val_program));
    SL_TRY(sl_ask_costs(&(sl_asking){setup, p}, p->val_program, &p->val_costs));
    sl_status status = fit_validation(p);
    if (status == SL_E_DOES_NOT_FIT) {
        sl_warn("validation does not fit beside the training state and is left out: %s", sl_error_message());
        return SL_OK;
    }
    return status;
}

sl_status sl_prepare(const sl_setup *setup, sl_prepared *prepared)
{
    double start = sl_clock_s();
    sl_cost_memo memo = prepared->memo;
    sl_setup job = *setup; /* with budgets that it may not have been given */
    *prepared = (sl_prepared){.memo = memo};
    sl_ask_to_remember(&job);
    sl_status status = plan_training(&job, prepared);
    if (status == SL_OK)
        status = keep_to_machine(&job, prepared);
    if (status == SL_E_DOES_NOT_FIT)
        status = does_not_fit(&job, prepared);
    if (status == SL_OK && job.val_every)
        status = plan_validation(&job, prepared);
    prepared->plan_s = sl_clock_s() - start - prepared->measure_s;
    return status;
}

void sl_prepared_destroy(sl_prepared *prepared)
{
    sl_pages_ahead_end(prepared->ahead);
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
    sl_model model = setup->model;
    sl_asking context = {setup, p};
    sl_plan_config plan = {0};
    sl_program_config config = frugal(setup);
    memcpy(plan.budget, p->plan_budget, sizeof plan.budget);
    sl_status status =
        sl_plan_best_minimum(&config, sl_build_model, &model, sl_ask_costs, &context, &plan, tier, bytes);
    if (status == SL_E_DOES_NOT_FIT) {
        *bytes = 0;
        return SL_OK;
    }
    if (status == SL_OK && tier == SL_TIER_HOST)
        *bytes += p->reserve_bytes;
    return status;
}
