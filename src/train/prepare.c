/*
 * The heap's share of the host budget is an estimate from above, a function of the program alone: `sluice plan` and the run must
 * come to the same answer, and the smallest host budget must be a number that works. Per task it counts what the program, the
 * plan, the engine and the device's queues keep (a tight budget makes up to about five actions of a task: itself, copies, a
 * recomputation); per token what the loader and the staging of a chunk keep; and a fixed base for I/O buffers, the event log and
 * small things. tests/train checks it against the heap's real peak.
 */
#include "train/prepare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/log.h"
#include "core/text.h"
#include "plan/rounds.h"

enum {
    RESERVE_BASE = 5 << 20,
    RESERVE_PER_TASK = 6144,
    RESERVE_PER_OBJECT = 512,
    RESERVE_PER_PARAM = 1024, /* names and headers while a checkpoint is written */
    RESERVE_PER_TOKEN = 32,
    RESERVE_PER_STEP = 8,
};

static sl_status build(void *context, sl_graph *graph)
{
    return sl_model_build(context, graph);
}

/* Where measurements are kept between runs; false: nowhere. */
static bool cache_path(const char *name, char out[1024])
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char folder[900];
    if (base && base[0])
        snprintf(folder, sizeof folder, "%.800s/sluice", base);
    else if (home && home[0])
        snprintf(folder, sizeof folder, "%.800s/.cache/sluice", home);
    else
        return false;
    if (sl_dir_create(folder) != SL_OK)
        return false;
    snprintf(out, 1024, "%s/%s", folder, name);
    return true;
}

/* The device without memory: to ask, not to run. */
static sl_status ask_device(const sl_setup *setup, sl_device **device, sl_hardware *hardware)
{
    sl_device_config config = {.threads = setup->threads, .max_commands = 1, .max_events = 1};
    SL_TRY(sl_device_open(setup->device, &config, device));
    (*device)->class->hardware(*device, hardware);
    return SL_OK;
}

/* From a profile: the one asked for, or the device's own. The device, where the plan is for it, tells the workspaces its kernels
 * really need. */
static sl_status roofline_costs(const sl_setup *setup, const sl_program *program, sl_costs **costs)
{
    bool named = setup->hardware && strcmp(setup->hardware, "this") != 0;
    sl_hardware hardware = {0};
    sl_device *device = NULL;
    sl_status status = SL_OK;
    if (setup->runs || !named)
        SL_TRY(ask_device(setup, &device, &hardware));
    if (named)
        status = sl_hardware_find(setup->hardware, &hardware);
    if (status == SL_OK)
        status = sl_costs_roofline(program, &hardware, device, costs);
    sl_device_close(device);
    return status;
}

typedef struct costs_context {
    const sl_setup *setup;
    sl_prepared *prepared;
} costs_context;

/* Asking a GPU's libraries for workspaces takes seconds: not for a guess. */
static sl_status guess_costs(void *hardware, const sl_program *program, sl_costs **costs)
{
    return sl_costs_roofline(program, hardware, NULL, costs);
}

/* A device that pins its host arena takes as long for that as for measuring, and needs other parts of the machine: the two go on
 * at the same time. How large the arena will be is known before the measured costs are, nearly, from a plan with the
 * roofline's. An eighth of the budget is left for the memory that measuring takes. What fails here is no failure: the arena
 * is then mapped when it is wanted. */
static void touch_ahead(void *context)
{
    costs_context *c = context;
    sl_model model = c->setup->model;
    sl_hardware hardware;
    sl_device *device;
    sl_plan_config config = {0};
    sl_program *program = NULL;
    sl_costs *costs = NULL;
    sl_plan *plan = NULL;
    size_t bytes[SL_TIER_COUNT];
    char text[32];
    if (ask_device(c->setup, &device, &hardware) != SL_OK)
        return;
    sl_device_close(device);
    memcpy(config.budget, c->prepared->plan_budget, sizeof config.budget);
    if (sl_plan_best(&c->setup->program, build, &model, guess_costs, &hardware, &config, &program, &costs, &plan) ==
        SL_OK) {
        sl_plan_extent(plan, bytes);
        size_t early = SL_MIN(bytes[SL_TIER_HOST], config.budget[SL_TIER_HOST] / 8 * 7);
        if (early && sl_pages_ahead_begin(early, &c->prepared->ahead) == SL_OK)
            sl_info("%s of host memory are touched while costs are measured", sl_format_bytes(early, text));
    }
    sl_plan_destroy(plan);
    sl_costs_destroy(costs);
    sl_program_destroy(program);
}

static void touch_no_more(void *context)
{
    sl_pages_ahead_stop(((costs_context *) context)->prepared->ahead);
}

static sl_status measure_costs(costs_context *c, const sl_program *program, sl_costs **costs)
{
    const sl_setup *setup = c->setup;
    const sl_device_class *class;
    char cache[1024];
    SL_TRY(sl_cost_memo_get(&c->prepared->memo, program, costs));
    if (*costs)
        return SL_OK;
    SL_TRY(sl_device_find(setup->device, &class));
    sl_measure_config config = {.device = setup->device, .threads = setup->threads, .context = c};
    if (cache_path("costs.json", cache))
        config.cache = cache;
    if (setup->runs && class->pins_host && !c->prepared->ahead)
        config.begins = touch_ahead, config.quiet = touch_no_more;
    SL_TRY(sl_costs_measure(program, &config, costs));
    sl_status status = sl_cost_memo_add(&c->prepared->memo, program, *costs);
    if (status != SL_OK) {
        sl_costs_destroy(*costs);
        *costs = NULL;
    }
    return status;
}

static sl_status find_costs(void *context, const sl_program *program, sl_costs **costs)
{
    costs_context *c = context;
    double start = sl_clock_s();
    sl_status status = c->setup->measured ? measure_costs(c, program, costs) : roofline_costs(c->setup, program, costs);
    c->prepared->measure_s += sl_clock_s() - start;
    return status;
}

/* A validation pass has about a third of a training step's tasks. */
static size_t heap_reserve(const sl_setup *setup, const sl_program *program)
{
    size_t per_program =
        (size_t) program->n_tasks * RESERVE_PER_TASK + (size_t) program->n_objects * RESERVE_PER_OBJECT;
    size_t tokens = (size_t) (setup->program.chunking.seqlen + setup->program.chunking.chunk_tokens);
    size_t all = RESERVE_BASE + per_program + (setup->val_every ? per_program / 2 : 0) +
                 (size_t) program->n_params * RESERVE_PER_PARAM + tokens * RESERVE_PER_TOKEN +
                 (size_t) setup->steps * RESERVE_PER_STEP;
    return SL_ROUND_UP(all, (size_t) SL_ALIGN);
}

/* What the planner may have: the budgets, less the heap's share of the host's. */
static void set_budgets(const sl_setup *setup, sl_prepared *p)
{
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
    costs_context context = {setup, p};
    sl_program *program = NULL;
    sl_plan_config plan = {0};
    sl_program_config config = setup->program;
    /* A first program, whatever its rounds: its size fixes the heap's share, and it stands for the job if nothing fits. */
    SL_TRY(sl_program_create(&config, build, &model, &p->program));
    set_budgets(setup, p);
    memcpy(plan.budget, p->plan_budget, sizeof plan.budget);
    sl_status status = sl_plan_best(&config, build, &model, find_costs, &context, &plan, &program, &p->costs, &p->plan);
    if (status == SL_E_DOES_NOT_FIT) {
        config = frugal(setup);
        status = sl_plan_best(&config, build, &model, find_costs, &context, &plan, &program, &p->costs, &p->plan);
    }
    SL_TRY(status);
    sl_program_destroy(p->program);
    p->program = program;
    return SL_OK;
}

static const char *amount(size_t bytes, char out[64])
{
    char text[32];
    if (bytes == SIZE_MAX)
        snprintf(out, 64, "unlimited");
    else
        snprintf(out, 64, "%s (%zu bytes)", sl_format_bytes(bytes, text), bytes);
    return out;
}

/* The planner's own message does not know of the heap. */
static sl_status does_not_fit(const sl_setup *setup, sl_prepared *p)
{
    char device[64], host[64], text[2][64], least[256];
    if (!p->costs)
        SL_TRY(find_costs(&(costs_context){setup, p}, p->program, &p->costs));
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
    else
        snprintf(least, sizeof least, "raising one of them is not enough");
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
    SL_TRY(sl_program_create(&config, build, &model, &p->val_program));
    SL_TRY(find_costs(&(costs_context){setup, p}, p->val_program, &p->val_costs));
    sl_status status = fit_validation(p);
    if (status == SL_E_DOES_NOT_FIT) {
        sl_warn("validation does not fit beside the training state and is left out: %s", sl_error_message());
        return SL_OK;
    }
    return status;
}

/* A device whose libraries offer a choice of algorithms keeps its choices with the run. */
static void remember_choices(const sl_setup *setup)
{
    const sl_device_class *class;
    char run[1024], cache[1024];
    if (sl_device_find(setup->device, &class) != SL_OK || !class->remember)
        return; /* planning for another machine */
    bool kept = cache_path("algorithms.txt", cache);
    if (setup->runs && setup->out)
        snprintf(run, sizeof run, "%.1000s/algorithms.txt", setup->out);
    class->remember(setup->runs && setup->out ? run : NULL, kept ? cache : NULL);
}

sl_status sl_prepare(const sl_setup *setup, sl_prepared *prepared)
{
    double start = sl_clock_s();
    sl_cost_memo memo = prepared->memo;
    *prepared = (sl_prepared){.memo = memo};
    remember_choices(setup);
    sl_status status = plan_training(setup, prepared);
    if (status == SL_E_DOES_NOT_FIT)
        status = does_not_fit(setup, prepared);
    if (status == SL_OK && setup->val_every)
        status = plan_validation(setup, prepared);
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
    costs_context context = {setup, p};
    sl_plan_config plan = {0};
    sl_program_config config = frugal(setup);
    memcpy(plan.budget, p->plan_budget, sizeof plan.budget);
    sl_status status = sl_plan_best_minimum(&config, build, &model, find_costs, &context, &plan, tier, bytes);
    if (status == SL_E_DOES_NOT_FIT) {
        *bytes = 0;
        return SL_OK;
    }
    if (status == SL_OK && tier == SL_TIER_HOST)
        *bytes += p->reserve_bytes;
    return status;
}

void sl_plan_extent(const sl_plan *plan, size_t bytes[SL_TIER_COUNT])
{
    memset(bytes, 0, SL_TIER_COUNT * sizeof *bytes);
    for (int32_t i = 0; i < plan->n_places; i++) {
        const sl_place *place = &plan->places[i];
        bytes[place->tier] = SL_MAX(bytes[place->tier], SL_ROUND_UP(place->address + place->bytes, (size_t) SL_ALIGN));
    }
}
