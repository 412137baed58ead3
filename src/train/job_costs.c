/*
 * Asking takes time: timing the kinds of an 8B model on a GPU 16 s, pinning its host arena up to 22 s, drawing up a plan 1 to 2 s. What
 * is known is not asked again (memo for the job, a file for the machine), and what can go on at the same time does.
 */
#include "train/job_costs.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/log.h"
#include "core/text.h"
#include "plan/search/rounds.h"

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

/* A profile by name or file, not the device available. */
static bool is_elsewhere(const sl_setup *setup)
{
    return setup->hardware && strcmp(setup->hardware, "this") != 0;
}

/* The device without memory: to ask, not to run. */
static sl_status ask_device(const sl_setup *setup, sl_device **device, sl_hardware *hardware)
{
    sl_device_config config = {.threads = setup->threads, .max_commands = 1, .max_events = 1};
    SL_TRY(sl_device_open(setup->device, &config, device));
    (*device)->class->hardware(*device, hardware);
    return SL_OK;
}

sl_status sl_job_hardware(const sl_setup *setup, sl_hardware *hardware)
{
    sl_device *device = NULL;
    if (is_elsewhere(setup))
        return sl_hardware_find(setup->hardware, hardware);
    SL_TRY(ask_device(setup, &device, hardware));
    sl_device_close(device);
    return SL_OK;
}

/* From a profile: the one asked for, or the device's own. The device, where the plan is for it, tells the workspaces its kernels
 * really need. */
static sl_status roofline_costs(const sl_setup *setup, const sl_program *program, sl_costs **costs)
{
    sl_hardware hardware = {0};
    sl_device *device = NULL;
    sl_status status = SL_OK;
    if (setup->runs || !is_elsewhere(setup))
        SL_TRY(ask_device(setup, &device, &hardware));
    if (is_elsewhere(setup))
        status = sl_hardware_find(setup->hardware, &hardware);
    if (status == SL_OK)
        status = sl_costs_roofline(program, &hardware, device, costs);
    sl_device_close(device);
    return status;
}

/* Asking a GPU's libraries for workspaces takes seconds: not for a guess. */
static sl_status guess_costs(void *hardware, const sl_program *program, sl_costs **costs)
{
    return sl_costs_roofline(program, hardware, NULL, costs);
}

/*
 * A device that pins its host arena takes as long for that as for measuring, and needs other parts of the machine: the two go on
 * at the same time, but for the moments in which measuring maps memory of its own or times the links. How large the arena will be is known before the measured costs
 * are, nearly, from a plan with the roofline's, drawn up by a thread of its own. An eighth of the budget is left for the memory that
 * measuring takes, and the heap's share once more for this plan beside the other. What fails here is no failure: the arena is then
 * mapped when it is wanted.
 */
typedef struct touching {
    sl_cost_source *source;
    const sl_program *program; /* whose costs are measured */
    sl_hardware hardware;
    pthread_t planner;
    bool planning;
} touching;

static void *plan_and_touch(void *context)
{
    const touching *t = context;
    sl_prepared *prepared = t->source->prepared;
    sl_hardware hardware = t->hardware;
    sl_plan_config config = {.chunks_per_round = t->source->setup->program.chunks_per_round,
                             .workspace_limit = t->program->config.workspace_limit};
    sl_program *program = NULL;
    sl_costs *costs = NULL;
    sl_plan *plan = NULL;
    size_t bytes[SL_TIER_COUNT];
    char text[32];
    memcpy(config.budget, prepared->plan_budget, sizeof config.budget);
    if (sl_plan_best(t->program, guess_costs, &hardware, &config, &program, &costs, &plan) == SL_OK) {
        sl_plan_extent(plan, bytes);
        size_t budget = SL_MIN(config.budget[SL_TIER_HOST], prepared->budget[SL_TIER_HOST]);
        size_t spare = SL_MIN(budget, budget / 8 + prepared->reserve_bytes);
        size_t early = SL_MIN(bytes[SL_TIER_HOST], budget - spare);
        if (early && sl_pages_ahead_begin(early, &prepared->ahead) == SL_OK)
            sl_info("%s of host memory are touched while costs are measured", sl_format_bytes(early, text));
    }
    sl_plan_destroy(plan);
    sl_costs_destroy(costs);
    sl_program_destroy(program);
    return NULL;
}

static void touch_ahead(touching *t)
{
    if (sl_job_hardware(t->source->setup, &t->hardware) == SL_OK)
        t->planning = pthread_create(&t->planner, NULL, plan_and_touch, t) == 0;
}

static void end_planning(touching *t)
{
    if (t->planning)
        pthread_join(t->planner, NULL);
    t->planning = false;
}

static void keep_quiet(void *context, bool quiet)
{
    touching *t = context;
    end_planning(t);
    if (quiet)
        sl_pages_ahead_stop(t->source->prepared->ahead);
    else
        sl_pages_ahead_go_on(t->source->prepared->ahead);
}

static sl_status measure_costs(sl_cost_source *c, const sl_program *program, sl_costs **costs)
{
    const sl_setup *setup = c->setup;
    const sl_device_class *class;
    char cache[1024];
    SL_TRY(sl_cost_memo_get(&c->prepared->memo, program, costs));
    if (*costs)
        return SL_OK;
    SL_TRY(sl_device_find(setup->device, &class));
    touching ahead = {.source = c, .program = program};
    sl_measure_config config = {.device = setup->device, .threads = setup->threads};
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        config.most[tier] = c->prepared->budget[tier];
    if (cache_path("costs.json", cache))
        config.cache = cache;
    if (setup->runs && class->pins_host && !c->prepared->ahead) {
        config.quiet = keep_quiet, config.context = &ahead;
        touch_ahead(&ahead);
    }
    sl_hooks_progress(&setup->hooks, SL_STAGE_MEASURE, 0);
    sl_status status = sl_costs_measure(program, &config, costs);
    end_planning(&ahead);
    SL_TRY(status);
    sl_hooks_progress(&setup->hooks, SL_STAGE_MEASURE, 1);
    status = sl_cost_memo_add(&c->prepared->memo, program, *costs);
    if (status != SL_OK) {
        sl_costs_destroy(*costs);
        *costs = NULL;
    }
    return status;
}

sl_status sl_job_costs(void *context, const sl_program *program, sl_costs **costs)
{
    sl_cost_source *c = context;
    double start = sl_clock_s();
    sl_status status = c->setup->measured ? measure_costs(c, program, costs) : roofline_costs(c->setup, program, costs);
    c->prepared->measure_s += sl_clock_s() - start;
    return status;
}

void sl_job_remember(const sl_setup *setup)
{
    const sl_device_class *class;
    char run[1024], cache[1024];
    if (!setup->runs && is_elsewhere(setup))
        return;
    if (sl_device_find(setup->device, &class) != SL_OK || !class->remember)
        return;
    bool kept = cache_path("algorithms.txt", cache);
    if (setup->runs && setup->out)
        snprintf(run, sizeof run, "%.1000s/algorithms.txt", setup->out);
    class->remember(setup->runs && setup->out ? run : NULL, kept ? cache : NULL);
}
