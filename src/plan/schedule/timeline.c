/*
 * Times a list of actions: each stream runs its actions in order, each action starts when its dependencies are over.
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
    const sl_costs *costs = t->costs;
    if (a->kind == SL_ACTION_TASK) {
        int32_t signature = t->program->tasks[a->task].signature;
        return a->stream == SL_STREAM_HOST ? costs->host_s[signature] : costs->device_s[signature];
    }
    int direction = a->stream == SL_STREAM_IN ? 0 : 1;
    return costs->link_latency_s + (double) t->program->objects[a->object].bytes / costs->link_bytes_per_s[direction];
}

static int32_t next_in_lane(const sl_timing *t, int stream, int32_t from)
{
    while (from < t->n_actions && (int) t->actions[from].stream != stream)
        from++;
    return from;
}

/* The first dependency that is not over; -1: all are. */
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
    const sl_lane *lanes = t->lanes;
    bool in = lanes[SL_STREAM_IN].running, out = lanes[SL_STREAM_OUT].running;
    if (stream == SL_STREAM_IN || stream == SL_STREAM_OUT) {
        int direction = stream == SL_STREAM_IN ? 0 : 1;
        return in && out ? costs->link_bytes_per_s_both[direction] / costs->link_bytes_per_s[direction] : 1;
    }
    if (stream != SL_STREAM_COMPUTE)
        return 1;
    double taken = costs->copy_slowdown * (in + out) + costs->host_slowdown * lanes[SL_STREAM_HOST].running;
    return fmax(1 - taken, 0.1);
}

/* Which stream the compute stream is really waiting for. */
static int waits_for(const sl_timing *t)
{
    int32_t action = t->lanes[SL_STREAM_COMPUTE].current;
    int stream = SL_STREAM_COUNT;
    if (action >= t->n_actions) { /* only the tail of copies and updates is left */
        for (int s = 0; s < SL_STREAM_COUNT; s++)
            if (t->lanes[s].running)
                stream = s;
        return stream;
    }
    for (int hops = 0; hops < SL_STREAM_COUNT; hops++) {
        int32_t dep = blocker(t, action);
        if (dep < 0)
            break;
        stream = (int) t->actions[dep].stream;
        if (t->lanes[stream].running)
            break;
        action = t->lanes[stream].current;
    }
    return stream;
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
                       const int32_t *deps, sl_summary *summary)
{
    sl_timing t = {.program = program, .costs = costs, .actions = actions, .n_actions = n_actions, .deps = deps};
    double busy[SL_STREAM_COUNT] = {0}, wait[SL_STREAM_COUNT + 1] = {0};
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
            break; /* nothing runs: all is done (dependencies point backwards, so nothing can be stuck) */
        if (!t.lanes[SL_STREAM_COMPUTE].running && summary)
            wait[waits_for(&t)] += step;
        t.now_s += step;
        for (int s = 0; s < SL_STREAM_COUNT; s++) {
            sl_lane *lane = &t.lanes[s];
            if (!lane->running)
                continue;
            busy[s] += step;
            lane->left_s -= step * rate[s];
            if (lane->left_s > 1e-12 * step)
                continue;
            lane->running = false;
            actions[lane->current].end_s = t.now_s;
            lane->current = next_in_lane(&t, s, lane->current + 1);
        }
    }
    if (summary) {
        memcpy(summary->busy_s, busy, sizeof busy);
        summary->wait_in_s = wait[SL_STREAM_IN];
        summary->wait_out_s = wait[SL_STREAM_OUT];
        summary->wait_host_s = wait[SL_STREAM_HOST];
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
            *(a->stream == SL_STREAM_IN ? &out->h2d_bytes : &out->d2h_bytes) +=
                (double) program->objects[a->object].bytes;
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
    out.step_s = sl_timeline_run(program, costs, plan->actions, plan->n_actions, plan->deps, &out);
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
