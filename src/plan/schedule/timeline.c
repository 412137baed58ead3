/*
 * Times a list of actions: each stream runs its actions in order, each action starts when its dependencies have ended.
 * Speeds change while others run: a link is slower while the other is busy, compute is slower beside copies and host
 * work where they share cores. So time advances from one end of an action to the next, and in between everything runs
 * at constant speed.
 */
#include "plan/internal.h"

#include <math.h>
#include <string.h>

typedef struct sl_lane {
    int32_t current; /* action; n_actions: none left */
    bool running;
    double left_s; /* of work, at full speed */
} sl_lane;

typedef struct sl_timing {
    const sl_program *program;
    const sl_costs *costs;
    sl_action *actions;
    int32_t n_actions;
    const int32_t *deps;
    sl_lane lanes[SL_STREAM_COUNT];
    double now_s;
} sl_timing;

static double work_s(const sl_timing *t, const sl_action *a)
{
    if (a->kind == SL_ACTION_COPY)
        return sl_costs_copy_s(t->costs, sl_streams[a->stream].link, t->program->objects[a->object].bytes, false);
    return sl_costs_on(t->costs, sl_streams[a->stream].to)[t->program->tasks[a->task].signature];
}

static int32_t next_in_lane(const sl_timing *t, int stream, int32_t from)
{
    while (from < t->n_actions && (int) t->actions[from].stream != stream)
        from++;
    return from;
}

/* The first dependency that has not ended; -1: all have. */
static int32_t blocker(const sl_timing *t, int32_t action)
{
    const sl_action *a = &t->actions[action];
    for (int32_t i = 0; i < a->n_deps; i++) {
        int32_t dep = t->deps[a->first_dep + i];
        if (t->lanes[t->actions[dep].stream].current <= dep)
            return dep;
    }
    return -1;
}

static double speed(const sl_timing *t, int stream)
{
    const sl_costs *costs = t->costs;
    const sl_link link = sl_streams[stream].link;
    double taken = 0;
    if (link != SL_LINK_COUNT) {
        bool both = t->lanes[sl_links[sl_links[link].opposite].stream].running;
        return both ? costs->link_bytes_per_s_both[link] / costs->link_bytes_per_s[link] : 1;
    }
    if (stream != SL_STREAM_COMPUTE)
        return 1;
    for (int s = 0; s < SL_STREAM_COUNT; s++)
        if (s != stream && t->lanes[s].running)
            taken += sl_stream_copies((sl_stream) s) ? costs->copy_slowdown : costs->host_slowdown;
    return fmax(1 - taken, 0.1);
}

static void start_ready(sl_timing *t)
{
    for (int s = 0; s < SL_STREAM_COUNT; s++) {
        sl_lane *lane = &t->lanes[s];
        if (lane->running || lane->current >= t->n_actions || blocker(t, lane->current) >= 0)
            continue;
        lane->running = true;
        lane->left_s = work_s(t, &t->actions[lane->current]);
        t->actions[lane->current].start_s = t->now_s;
    }
}

double sl_timeline_run(const sl_program *program, const sl_costs *costs, sl_action *actions, int32_t n_actions,
                       const int32_t *deps)
{
    sl_timing t = {.program = program, .costs = costs, .actions = actions, .n_actions = n_actions, .deps = deps};
    for (int s = 0; s < SL_STREAM_COUNT; s++)
        t.lanes[s].current = next_in_lane(&t, s, 0);
    for (;;) {
        start_ready(&t);
        double rate[SL_STREAM_COUNT], step = INFINITY;
        for (int s = 0; s < SL_STREAM_COUNT; s++)
            if (t.lanes[s].running) {
                rate[s] = speed(&t, s);
                step = fmin(step, t.lanes[s].left_s / rate[s]);
            }
        if (step == INFINITY)
            break; /* nothing runs: all is done (dependencies point backwards, so there is no deadlock) */
        t.now_s += step;
        for (int s = 0; s < SL_STREAM_COUNT; s++) {
            sl_lane *lane = &t.lanes[s];
            if (!lane->running)
                continue;
            lane->left_s -= step * rate[s];
            if (lane->left_s > 1e-12 * step)
                continue;
            lane->running = false;
            actions[lane->current].end_s = t.now_s;
            lane->current = next_in_lane(&t, s, lane->current + 1);
        }
    }
    return t.now_s;
}

void sl_summary_rates(const sl_program *program, double peak_flops, double hardware_flops, sl_summary *summary)
{
    if (summary->step_s <= 0)
        return;
    summary->tokens_per_s = (double) program->tokens / summary->step_s;
    summary->tflops = program->flops / summary->step_s * 1e-12;
    summary->mfu = peak_flops > 0 ? program->flops / summary->step_s / peak_flops : 0;
    summary->hfu = peak_flops > 0 ? hardware_flops / summary->step_s / peak_flops : 0;
}

void sl_plan_extent(const sl_plan *plan, size_t bytes[SL_TIER_COUNT])
{
    memset(bytes, 0, SL_TIER_COUNT * sizeof *bytes);
    for (int32_t i = 0; i < plan->n_allocations; i++) {
        const sl_allocation *place = &plan->allocations[i];
        size_t end = place->address + SL_ROUND_UP(place->bytes, (size_t) SL_ALIGN);
        bytes[place->tier] = SL_MAX(bytes[place->tier], end);
    }
}

void sl_summary_count(const sl_program *program, const sl_plan *plan, sl_summary *out, double *hardware_flops)
{
    double flops = 0, again = 0;
    *hardware_flops = 0;
    for (int32_t i = 0; i < plan->n_actions; i++) {
        const sl_action *a = &plan->actions[i];
        if (a->kind == SL_ACTION_COPY) {
            out->link_bytes[sl_streams[a->stream].link] += (double) program->objects[a->object].bytes;
            continue;
        }
        const sl_work *work = &program->signatures[program->tasks[a->task].signature].work;
        *hardware_flops += work->hardware_flops;
        *(a->recompute ? &again : &flops) += work->flops;
    }
    out->recompute_fraction = flops > 0 ? again / flops : 0;
}

void sl_plan_simulate(const sl_program *program, const sl_costs *costs, sl_plan *plan)
{
    sl_summary out = {0};
    double hardware_flops;
    memcpy(out.budget_bytes, plan->predicted.budget_bytes, sizeof out.budget_bytes);
    sl_timeline_run(program, costs, plan->actions, plan->n_actions, plan->deps);
    sl_summary_times(plan, NULL, &out);
    sl_summary_count(program, plan, &out, &hardware_flops);
    sl_plan_extent(plan, out.peak_bytes);
    sl_summary_rates(program, costs->peak_flops, hardware_flops, &out);
    plan->predicted = out;
}

double sl_timeline_round_end_s(const sl_program *program, const sl_action *actions, int32_t n_actions, int32_t round)
{
    double end_s = 0;
    for (int32_t i = 0; i < n_actions; i++)
        if (actions[i].stream == SL_STREAM_COMPUTE && program->tasks[actions[i].task].round == round)
            end_s = fmax(end_s, actions[i].end_s);
    return end_s;
}
