/* The timeline against its definition, action by action: an action starts when its stream and all its dependencies are
 * over, and runs until the speeds it met add up to its work. Busy and waiting times, bytes, shares and rates are recomputed from
 * the starts and ends. */
#include "plan/internal.h"
#include "synthetic.h"
#include "test.h"

#ifdef __SANITIZE_ADDRESS__
#define PROGRAMS 20
#else
#define PROGRAMS 200
#endif

static double work_of(const synthetic *s, const sl_action *a)
{
    const sl_costs *c = s->costs;
    if (a->kind == SL_ACTION_COPY)
        return c->link_latency_s +
               (double) s->program.objects[a->object].bytes / c->link_bytes_per_s[a->stream == SL_STREAM_OUT];
    int32_t kind = s->program.tasks[a->task].signature;
    return a->stream == SL_STREAM_HOST ? c->host_s[kind] : c->device_s[kind];
}

/* What runs on a stream at a moment; -1: nothing. */
static int32_t running_at(const sl_plan *plan, int stream, double t)
{
    for (int32_t i = 0; i < plan->n_actions; i++)
        if ((int) plan->actions[i].stream == stream && plan->actions[i].start_s <= t && t < plan->actions[i].end_s)
            return i;
    return -1;
}

static double speed_at(const synthetic *s, const sl_plan *plan, int stream, double t)
{
    const sl_costs *c = s->costs;
    bool in = running_at(plan, SL_STREAM_IN, t) >= 0, out = running_at(plan, SL_STREAM_OUT, t) >= 0;
    bool host = running_at(plan, SL_STREAM_HOST, t) >= 0;
    switch (stream) {
    case SL_STREAM_IN:
        return out ? c->link_bytes_per_s_both[0] / c->link_bytes_per_s[0] : 1;
    case SL_STREAM_OUT:
        return in ? c->link_bytes_per_s_both[1] / c->link_bytes_per_s[1] : 1;
    case SL_STREAM_COMPUTE: {
        double left = 1 - c->copy_slowdown * in - c->copy_slowdown * out - c->host_slowdown * host;
        return left > 0.1 ? left : 0.1;
    }
    default:
        return 1;
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

/* The first action of a stream that has not started at `t`; n_actions: none. */
static int32_t next_of(const sl_plan *plan, int stream, double t)
{
    for (int32_t i = 0; i < plan->n_actions; i++)
        if ((int) plan->actions[i].stream == stream && plan->actions[i].start_s > t)
            return i;
    return plan->n_actions;
}

/* What `action` started behind: the latest to end of its dependencies and of the action before it. */
static int32_t behind(const sl_plan *plan, int32_t action)
{
    const sl_action *a = &plan->actions[action];
    int32_t latest = -1;
    for (int32_t k = 0; k < action; k++) {
        bool counts = plan->actions[k].stream == a->stream;
        for (int32_t d = 0; d < a->n_deps; d++)
            counts = counts || plan->deps[a->first_dep + d] == k;
        if (counts && (latest < 0 || plan->actions[k].end_s > plan->actions[latest].end_s))
            latest = k;
    }
    return latest;
}

/* The stream that an idle compute stream waits for at `t`: of what its next action started behind, or what that started behind in turn,
 * the one that runs at `t`. Behind the last task, the step's last action stands for the next one's cause. */
static int waited_for_at(const sl_plan *plan, double t)
{
    int32_t next = next_of(plan, SL_STREAM_COMPUTE, t), cause = -1;
    if (next < plan->n_actions)
        cause = behind(plan, next);
    for (int32_t i = 0; i < plan->n_actions && next == plan->n_actions; i++)
        if (cause < 0 || plan->actions[i].end_s > plan->actions[cause].end_s)
            cause = i;
    while (cause >= 0 && plan->actions[cause].start_s > t)
        cause = behind(plan, cause);
    return cause >= 0 && plan->actions[cause].end_s > t ? (int) plan->actions[cause].stream : -1;
}

static void check_starts(const synthetic *s, const sl_plan *plan, double tolerance)
{
    for (int32_t i = 0; i < plan->n_actions; i++) {
        const sl_action *a = &plan->actions[i];
        double start = 0;
        for (int32_t k = 0; k < i; k++)
            if (plan->actions[k].stream == a->stream)
                start = fmax(start, plan->actions[k].end_s);
        for (int32_t k = 0; k < a->n_deps; k++)
            start = fmax(start, plan->actions[plan->deps[a->first_dep + k]].end_s);
        CHECK_NEAR(a->start_s, start, tolerance);
        CHECK(a->end_s >= a->start_s);
    }
    (void) s;
}

/* `moments`: all starts and ends, ascending; between two of them nothing changes. */
static void check_speeds(const synthetic *s, const sl_plan *plan, const double *moments, int32_t n, double tolerance)
{
    for (int32_t i = 0; i < plan->n_actions; i++) {
        const sl_action *a = &plan->actions[i];
        double done = 0;
        for (int32_t k = 0; k + 1 < n; k++)
            if (moments[k] >= a->start_s && moments[k + 1] <= a->end_s)
                done += (moments[k + 1] - moments[k]) *
                        speed_at(s, plan, (int) a->stream, (moments[k] + moments[k + 1]) / 2);
        CHECK_MSG(fabs(done - work_of(s, a)) <= tolerance, "action %d did %g s of work, not %g", (int) i, done,
                  work_of(s, a));
    }
}

static void check_summary(const synthetic *s, const sl_plan *plan, const double *moments, int32_t n, double tolerance)
{
    const sl_summary *p = &plan->predicted;
    const sl_program *program = &s->program;
    double busy[SL_STREAM_COUNT] = {0}, wait[SL_STREAM_COUNT] = {0}, bytes[2] = {0}, flops[2] = {0}, end = 0;
    size_t peak[SL_TIER_COUNT] = {0};
    for (int32_t i = 0; i < plan->n_actions; i++) {
        const sl_action *a = &plan->actions[i];
        busy[a->stream] += a->end_s - a->start_s;
        end = fmax(end, a->end_s);
        if (a->kind == SL_ACTION_COPY)
            bytes[a->stream == SL_STREAM_OUT] += (double) program->objects[a->object].bytes;
        else
            flops[a->recompute] += program->signatures[program->tasks[a->task].signature].work.flops;
    }
    for (int32_t k = 0; k + 1 < n; k++) {
        double middle = (moments[k] + moments[k + 1]) / 2;
        int by = moments[k + 1] - moments[k] > tolerance && running_at(plan, SL_STREAM_COMPUTE, middle) < 0
                     ? waited_for_at(plan, middle)
                     : -1;
        if (by >= 0)
            wait[by] += moments[k + 1] - moments[k];
    }
    for (int32_t i = 0; i < plan->n_allocations; i++) {
        size_t top = plan->allocations[i].address + (plan->allocations[i].bytes + SL_ALIGN - 1) / SL_ALIGN * SL_ALIGN;
        peak[plan->allocations[i].tier] = top > peak[plan->allocations[i].tier] ? top : peak[plan->allocations[i].tier];
    }
    CHECK_NEAR(p->step_s, end, tolerance);
    for (int r = 0; r < SL_STREAM_COUNT; r++)
        CHECK_NEAR(p->busy_s[r], busy[r], tolerance * 100);
    CHECK_NEAR(p->wait_s[SL_STREAM_IN], wait[SL_STREAM_IN], tolerance * 100);
    CHECK_NEAR(p->wait_s[SL_STREAM_OUT], wait[SL_STREAM_OUT], tolerance * 100);
    CHECK_NEAR(p->wait_s[SL_STREAM_HOST], wait[SL_STREAM_HOST], tolerance * 100);
    CHECK_NEAR(busy[SL_STREAM_COMPUTE] + p->wait_s[SL_STREAM_IN] + p->wait_s[SL_STREAM_OUT] + p->wait_s[SL_STREAM_HOST],
               end, tolerance * 100);
    CHECK(p->link_bytes[SL_LINK_IN] == bytes[0] && p->link_bytes[SL_LINK_OUT] == bytes[1]);
    CHECK_NEAR(p->recompute_fraction, flops[1] / flops[0], 1e-12);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        CHECK_U64(p->peak_bytes[tier], peak[tier]);
    CHECK_NEAR(p->tokens_per_s * p->step_s, (double) program->tokens, 1e-9 * (double) program->tokens);
    CHECK_NEAR(p->tflops * 1e12 * p->step_s, program->flops, 1e-9 * program->flops);
    CHECK_NEAR(p->mfu * s->costs->peak_flops * p->step_s, program->flops, 1e-9 * program->flops);
    CHECK_NEAR(p->hfu * s->costs->peak_flops * p->step_s, flops[0] + flops[1], 1e-9 * (flops[0] + flops[1]));
}

static void check_timeline(const synthetic *s, const sl_plan *plan)
{
    double *moments = malloc(2 * ((size_t) plan->n_actions + 1) * sizeof *moments);
    int32_t n = 0;
    for (int32_t i = 0; i < plan->n_actions; i++) {
        moments[n++] = plan->actions[i].start_s;
        moments[n++] = plan->actions[i].end_s;
    }
    qsort(moments, (size_t) n, sizeof *moments, by_value);
    double tolerance = 1e-9 * plan->predicted.step_s;
    check_starts(s, plan, tolerance);
    check_speeds(s, plan, moments, n, tolerance * 10);
    check_summary(s, plan, moments, n, tolerance);
    free(moments);
}

static void random_costs(synthetic *s, rng *r)
{
    sl_costs *c = s->costs;
    for (int i = 0; i < 2; i++) {
        c->link_bytes_per_s[i] = 0.3 + rng_unit(r);
        c->link_bytes_per_s_both[i] = c->link_bytes_per_s[i] * (0.5 + 0.5 * rng_unit(r));
    }
    c->link_latency_s = 50 * rng_unit(r);
    c->copy_slowdown = 0.4 * rng_unit(r);
    c->host_slowdown = 0.9 * rng_unit(r);
    c->peak_flops = 3;
}

TEST(random_plans)
{
    double waited[3] = {0}, recomputed = 0;
    for (uint64_t seed = 1; seed <= PROGRAMS; seed++) {
        rng r = {seed * 17};
        synthetic *s = seed % 2 ? synthetic_random(seed, 10 + rng_below(&r, 20), 6 + rng_below(&r, 10))
                                : synthetic_sliced(seed, 3 + rng_below(&r, 5));
        sl_plan_config config = {.budget = {SIZE_MAX, SIZE_MAX}, .max_evaluations = 10};
        sl_plan *plan;
        size_t least;
        s->program.tokens = 7;
        random_costs(s, &r);
        CHECK_OK(sl_plan_minimum(&s->program, s->costs, &config, SL_TIER_DEVICE, &least));
        config.budget[SL_TIER_DEVICE] = least + least / 4;
        CHECK_OK(sl_plan_create(&s->program, s->costs, &config, &plan));
        check_timeline(s, plan);
        CHECK(plan->lower_bound_s <= plan->predicted.step_s * (1 + 1e-12));
        CHECK_U64(plan->predicted.budget_bytes[SL_TIER_DEVICE], config.budget[SL_TIER_DEVICE]);
        waited[0] += plan->predicted.wait_s[SL_STREAM_IN];
        waited[1] += plan->predicted.wait_s[SL_STREAM_OUT];
        waited[2] += plan->predicted.wait_s[SL_STREAM_HOST];
        recomputed += plan->predicted.recompute_fraction;
        random_costs(s, &r); /* the same actions under other costs */
        sl_plan_simulate(&s->program, s->costs, plan);
        check_timeline(s, plan);
        s->costs->copy_slowdown = s->costs->host_slowdown = 0.8; /* together more than there is */
        sl_plan_simulate(&s->program, s->costs, plan);
        check_timeline(s, plan);
        sl_plan_destroy(plan);
        synthetic_free(s);
    }
    printf("waited %.3g s for copies in, %.3g s out, %.3g s for the host\n", waited[0], waited[1], waited[2]);
    CHECK(waited[0] > 0 && waited[1] > 0 && waited[2] > 0 && recomputed > 0);
}

TEST(ends_of_rounds)
{
    synthetic *s = synthetic_new(1, 3, 3);
    sl_action actions[3];
    for (int32_t i = 0; i < 3; i++) {
        synthetic_task(s, synthetic_kind(s, i + 1, 10, 0), SL_PHASE_FORWARD, 0, 0, i == 2);
        actions[i] = (sl_action){.kind = SL_ACTION_TASK, .stream = SL_STREAM_COMPUTE, .task = i, .workspace = -1};
    }
    CHECK_NEAR(sl_timeline_run(&s->program, s->costs, actions, 3, NULL), 6, 1e-12);
    CHECK_NEAR(sl_timeline_round_end_s(&s->program, actions, 3, 0), 3, 1e-12);
    CHECK_NEAR(sl_timeline_round_end_s(&s->program, actions, 3, 1), 6, 1e-12);
    CHECK_NEAR(sl_timeline_round_end_s(&s->program, actions, 3, 2), 0, 0);
    actions[2].stream = SL_STREAM_HOST; /* when the device is done, that is */
    CHECK_NEAR(sl_timeline_run(&s->program, s->costs, actions, 3, NULL), 10, 1e-12);
    CHECK_NEAR(sl_timeline_round_end_s(&s->program, actions, 3, 1), 0, 0);
    synthetic_free(s);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(random_plans);
    RUN(ends_of_rounds);
    return test_end();
}
