/* Lower bounds and the verdict on what limits a plan. Bounds of small programs are known by hand; those of random programs
 * are recomputed straight from the definition in bounds.c, and no plan is faster. */
#include "oracle.h"
#include "plan/bounds.h"
#include "test.h"

#define PROGRAMS 300

static double bound_of(const synthetic *s, size_t budget)
{
    sl_analysis *a;
    double seconds;
    CHECK_OK(sl_analysis_create(&s->program, s->costs, &a));
    CHECK_OK(sl_bound_s(a, budget, &seconds));
    sl_analysis_destroy(a);
    return seconds;
}

/* Two tasks of 10 and 20 s that write one activation each. */
static synthetic *two_tasks(void)
{
    synthetic *s = synthetic_new(8, 4, 4);
    for (int i = 0; i < 2; i++) {
        int32_t t = synthetic_task(s, synthetic_kind(s, 10 * (i + 1), INFINITY, 0), SL_PHASE_FORWARD, i, 0, 0);
        synthetic_out(s, t, synthetic_object(s, SL_CLASS_ACTIVATION, 1024), false);
    }
    s->costs->link_bytes_per_s[0] = s->costs->link_bytes_per_s_both[0] = 64;
    s->costs->link_bytes_per_s[1] = s->costs->link_bytes_per_s_both[1] = 32;
    return s;
}

TEST(compute)
{
    synthetic *s = two_tasks();
    CHECK_NEAR(bound_of(s, SIZE_MAX), 30, 1e-12);
    CHECK_NEAR(bound_of(s, 4096), 30, 1e-12);
    s->program.tasks[1].host_allowed = true; /* but it cannot run there */
    CHECK_NEAR(bound_of(s, SIZE_MAX), 30, 1e-12);
    s->costs->host_s[1] = 40; /* beside compute, which it takes a tenth from */
    s->costs->host_slowdown = 0.1;
    CHECK_NEAR(bound_of(s, SIZE_MAX), 14, 1e-12);
    s->costs->host_slowdown = 0.8; /* better on the device */
    CHECK_NEAR(bound_of(s, SIZE_MAX), 30, 1e-12);
    s->costs->host_slowdown = 2; /* compute is left a tenth in any case */
    s->costs->host_s[1] = 20;
    CHECK_NEAR(bound_of(s, SIZE_MAX), 28, 1e-12);
    synthetic_free(s);
}

/* What the first task waits for and what follows the last one is time of its own; between them copies slow compute. */
TEST(data_and_results)
{
    for (int reader = 0; reader < 2; reader++)
        for (int writer = 0; writer < 2; writer++) {
            synthetic *s = two_tasks();
            s->costs->link_latency_s = 0.5;
            s->costs->copy_slowdown = 0.25;
            synthetic_in(s, reader, synthetic_object(s, SL_CLASS_DATA, 256));           /* 4.5 s */
            synthetic_out(s, writer, synthetic_object(s, SL_CLASS_RESULT, 256), false); /* 8.5 s */
            double want = 30 + 4.5 * (reader == 0 ? 1 : 0.25) + 8.5 * (writer == 1 ? 1 : 0.25);
            CHECK_NEAR(bound_of(s, SIZE_MAX), want, 1e-12);
            s->costs->host_slowdown = 0.8; /* of what is left beside host work, copies each way can take half */
            want = 30 + 4.5 * (reader == 0 ? 1 : 0.05) + 8.5 * (writer == 1 ? 1 : 0.05);
            CHECK_NEAR(bound_of(s, SIZE_MAX), want, 1e-12);
            synthetic_free(s);
        }
    synthetic *s = two_tasks(); /* what is read twice comes once, what is written twice leaves once */
    int32_t data = synthetic_object(s, SL_CLASS_DATA, 256), result = synthetic_object(s, SL_CLASS_RESULT, 256);
    for (int t = 0; t < 2; t++) {
        synthetic_in(s, t, data);
        synthetic_out(s, t, result, false);
    }
    CHECK_NEAR(bound_of(s, SIZE_MAX), 30 + 4 + 8, 1e-12);
    s->program.tasks[0].host_allowed = s->program.tasks[1].host_allowed = true; /* it may never cross a link */
    CHECK_NEAR(bound_of(s, SIZE_MAX), 30, 1e-12);
    synthetic_free(s);
}

/* Weights of 4 x 1,024 bytes read in the forward and again in the backward, 0.1 s a task. */
static synthetic *weights(bool updated)
{
    synthetic *s = synthetic_new(4, 8, 8);
    for (int i = 0; i < 4; i++)
        synthetic_object(s, SL_CLASS_PARAMETER, 1024);
    for (int t = 0; t < 8; t++) {
        sl_phase phase = t < 4 ? SL_PHASE_FORWARD : SL_PHASE_BACKWARD;
        synthetic_task(s, synthetic_kind(s, 0.1, INFINITY, 0), phase, t % 4, 0, 0);
        synthetic_in(s, t, t % 4);
        if (updated && t >= 4)
            synthetic_out(s, t, t % 4, true);
    }
    s->costs->link_bytes_per_s[0] = s->costs->link_bytes_per_s_both[0] = 64;
    s->costs->link_bytes_per_s[1] = s->costs->link_bytes_per_s_both[1] = 32;
    return s;
}

TEST(links)
{
    synthetic *s = weights(false);
    CHECK_NEAR(bound_of(s, SIZE_MAX), 0.8, 1e-12);
    CHECK_NEAR(bound_of(s, 4096), 0.8, 1e-12);
    CHECK_NEAR(bound_of(s, 2048), 2 * 2048 / 64., 1e-12); /* two passes, each lacks 2,048 bytes */
    CHECK_NEAR(bound_of(s, 1024), 2 * (4096 - 1024) / 64., 1e-12);
    for (int t = 4; t < 8; t++)
        s->program.tasks[t].host_allowed = true; /* may be done where the weights are */
    CHECK_NEAR(bound_of(s, 1024), (4096 - 1024) / 64., 1e-12);
    synthetic_free(s);
    s = weights(true);
    CHECK_NEAR(bound_of(s, 1024), (4096 - 1024) / 32., 1e-12); /* written in one of them: out is the slower link */
    s->costs->link_bytes_per_s[1] = 640;
    CHECK_NEAR(bound_of(s, 1024), 2 * (4096 - 1024) / 64., 1e-12);
    for (int t = 0; t < 8; t++)
        s->program.tasks[t].phase = SL_PHASE_FORWARD; /* one pass: only windows of 2 C bytes are left */
    CHECK_NEAR(bound_of(s, 1024), 4 * (2 * 1024 - 1024) / 64., 1e-12);
    for (int t = 4; t < 8; t++)
        s->program.tasks[t].round = 1;
    CHECK_NEAR(bound_of(s, 1024), 2 * (4096 - 1024) / 64., 1e-12);
    synthetic_free(s);
}

/* ---- recomputed from the definition ------------------------------------------------------------------------------ */

static bool reads_object(const sl_program *p, int32_t t, int32_t o)
{
    const sl_task *task = &p->tasks[t];
    for (int i = 0; i < SL_MAX_IN; i++)
        if (task->in[i].object == o)
            return true;
    for (int i = 0; i < SL_MAX_OUT; i++) {
        if (task->out[i].object != o)
            continue;
        bool before = p->objects[o].persistent || p->objects[o].class == SL_CLASS_DATA;
        for (int32_t k = 0; k < t && !before; k++)
            for (int j = 0; j < SL_MAX_OUT; j++)
                before |= p->tasks[k].out[j].object == o;
        bool whole = p->objects[o].producer == t ||
                     (task->out[i].offset == 0 && sl_type_bytes(&task->out[i].type) >= p->objects[o].bytes);
        if ((task->accumulate | sl_op(task->op)->updates) >> i & 1 || (!whole && before))
            return true; /* a part of it stays */
    }
    return false;
}

static bool writes_object(const sl_program *p, int32_t t, int32_t o)
{
    for (int i = 0; i < SL_MAX_OUT; i++)
        if (p->tasks[t].out[i].object == o)
            return true;
    return false;
}

static bool uses_object(const sl_program *p, int32_t t, int32_t o)
{
    return reads_object(p, t, o) || writes_object(p, t, o);
}

/* Bytes that the window [begin, end) needs from before, or makes for later: in, out. What could be recomputed does not
 * count, nor what tasks do that may run beside host memory. */
static void window_bytes(const sl_program *p, int32_t begin, int32_t end, double in_out[2])
{
    in_out[0] = in_out[1] = 0;
    for (int32_t o = 0; o < p->n_objects; o++) {
        if (p->objects[o].producer >= 0 && !p->objects[o].persistent)
            continue;
        bool read = false, written = false;
        int32_t last = -1;
        for (int32_t t = begin; t < end; t++) {
            if (p->tasks[t].host_allowed || !uses_object(p, t, o))
                continue;
            read |= !written && reads_object(p, t, o);
            written |= writes_object(p, t, o);
            last = t;
        }
        int32_t after = last + 1;
        while (after < p->n_tasks && last >= 0 && !uses_object(p, after, o))
            after++;
        bool wanted = p->objects[o].persistent || (last >= 0 && after < p->n_tasks && reads_object(p, after, o));
        in_out[0] += read ? (double) p->objects[o].bytes : 0;
        in_out[1] += written && wanted ? (double) p->objects[o].bytes : 0;
    }
}

static double links_by_definition(const synthetic *s, double capacity, int kind)
{
    const sl_program *p = &s->program;
    double total[2] = {0};
    for (int32_t begin = 0, end; begin < p->n_tasks; begin = end) {
        double bytes[2];
        for (end = begin + 1; end < p->n_tasks; end++) {
            const sl_task *before = &p->tasks[end - 1], *task = &p->tasks[end];
            window_bytes(p, begin, end, bytes);
            if (kind == 2 ? bytes[0] >= 2 * capacity
                          : before->round != task->round || (kind == 0 && before->phase != task->phase))
                break;
        }
        window_bytes(p, begin, end, bytes);
        for (int i = 0; i < 2; i++)
            total[i] += fmax(0, bytes[i] - capacity);
    }
    return fmax(total[0] / s->costs->link_bytes_per_s[0], total[1] / s->costs->link_bytes_per_s[1]);
}

static double compute_by_definition(const synthetic *s)
{
    const sl_program *p = &s->program;
    const sl_costs *c = s->costs;
    double host = c->host_slowdown > 0.9 ? 0.9 : c->host_slowdown, copy = (0.9 - host) / 2, seconds = 0;
    copy = c->copy_slowdown < copy ? c->copy_slowdown : copy;
    for (int32_t t = 0; t < p->n_tasks; t++) {
        double device = c->device_s[p->tasks[t].signature], beside = host * c->host_s[p->tasks[t].signature];
        bool aside = p->tasks[t].host_allowed && c->host_s[p->tasks[t].signature] < INFINITY;
        seconds += aside && beside < device ? beside : device;
    }
    for (int32_t o = 0; o < p->n_objects; o++) {
        int32_t first = -1, last = -1;
        for (int32_t t = 0; t < p->n_tasks; t++)
            if (uses_object(p, t, o)) {
                first = first < 0 ? t : first;
                last = t;
            }
        if (first < 0)
            continue;
        double bytes = (double) p->objects[o].bytes;
        if (p->objects[o].class == SL_CLASS_DATA && reads_object(p, first, o) && !p->tasks[first].host_allowed)
            seconds += (first == 0 ? 1 : copy) * (c->link_latency_s + bytes / c->link_bytes_per_s[0]);
        if (p->objects[o].class == SL_CLASS_RESULT && writes_object(p, last, o) && !p->tasks[last].host_allowed)
            seconds += (last == p->n_tasks - 1 ? 1 : copy) * (c->link_latency_s + bytes / c->link_bytes_per_s[1]);
    }
    return seconds;
}

TEST(random_programs)
{
    int by_links[3] = {0}, by_compute = 0;
    for (uint64_t seed = 1; seed <= PROGRAMS; seed++) {
        rng r = {seed * 13};
        synthetic *s = seed % 2 ? synthetic_random(seed, 6 + rng_below(&r, 20), 4 + rng_below(&r, 10))
                                : synthetic_sliced(seed, 3 + rng_below(&r, 5));
        sl_costs *c = s->costs;
        for (int32_t t = 0; t < s->program.n_tasks && seed % 4 == 1; t++) {
            s->program.tasks[t].round = t / 7;
            s->program.tasks[t].phase = t % 7 > 3 ? SL_PHASE_BACKWARD : SL_PHASE_FORWARD;
        }
        double slow = seed % 3 ? 0.02 : 1;
        for (int i = 0; i < 2; i++)
            c->link_bytes_per_s[i] = c->link_bytes_per_s_both[i] = slow * (0.3 + rng_unit(&r));
        c->link_latency_s = 50 * rng_unit(&r);
        c->copy_slowdown = 0.6 * rng_unit(&r);
        c->host_slowdown = 1.2 * rng_unit(&r);
        sl_plan_config config = {.budget = {SIZE_MAX, SIZE_MAX}, .max_evaluations = 10};
        size_t least;
        sl_plan *plan;
        CHECK_OK(sl_plan_minimum(&s->program, s->costs, &config, SL_TIER_DEVICE, &least));
        for (int k = 0; k < 3; k++) {
            size_t budget = k == 2 ? SIZE_MAX : least + least * (size_t) k / 2;
            double compute = compute_by_definition(s), want = compute;
            int kind = -1;
            for (int i = 0; i < 3 && budget < SIZE_MAX; i++) {
                double links = links_by_definition(s, (double) budget, i);
                kind = links > want ? i : kind;
                want = fmax(want, links);
            }
            *(kind < 0 ? &by_compute : &by_links[kind]) += 1;
            CHECK_NEAR(bound_of(s, budget), want, 1e-9 * want);
            config.budget[SL_TIER_DEVICE] = budget;
            CHECK_OK(sl_plan_create(&s->program, s->costs, &config, &plan));
            CHECK_NEAR(plan->lower_bound_s, want, 1e-9 * want);
            CHECK_MSG(plan->predicted.step_s >= want * (1 - 1e-12), "seed %d: %g s, below the bound %g", (int) seed,
                      plan->predicted.step_s, want);
            sl_plan_destroy(plan);
        }
        synthetic_free(s);
    }
    printf("bounds by compute %d, by passes %d, rounds %d, bytes %d\n", by_compute, by_links[0], by_links[1],
           by_links[2]);
    CHECK(by_compute > 0 && by_links[0] > 0 && by_links[1] > 0 && by_links[2] > 0);
}

/* Not even the best of all plans is faster. */
TEST(below_the_optimum)
{
    int reached = 0;
    for (uint64_t seed = 1; seed <= PROGRAMS; seed++) {
        chain c = chain_random(seed);
        synthetic *s = chain_program(&c);
        double bound = bound_of(s, (size_t) c.budget), best = chain_optimum(&c);
        CHECK_MSG(bound <= best * (1 + 1e-12), "seed %d: bound %g s, optimum %g s", (int) seed, bound, best);
        reached += bound > best * (1 - 1e-9);
        synthetic_free(s);
    }
    printf("%d of %d optima are the bound\n", reached, PROGRAMS);
}

/* ---- verdicts ---------------------------------------------------------------------------------------------------- */

/* A step of 100 s with the given losses. `again`: seconds recomputed. */
static sl_limit verdict(sl_summary summary, double again)
{
    synthetic *s = synthetic_new(1, 2, 2);
    sl_action actions[3] = {{.task = 0}, {.task = 1}, {.task = 1, .recompute = true}};
    synthetic_task(s, synthetic_kind(s, 50, 1, 0), SL_PHASE_FORWARD, 0, 0, 0);
    synthetic_task(s, synthetic_kind(s, again, 1, 0), SL_PHASE_FORWARD, 0, 0, 0);
    sl_plan plan = {.actions = actions, .n_actions = again > 0 ? 3 : 2, .predicted = summary};
    plan.predicted.step_s = 100;
    sl_limit limit = sl_find_limit(&s->program, s->costs, &plan);
    synthetic_free(s);
    return limit;
}

TEST(verdicts)
{
    const size_t gib = (size_t) 1 << 30;
    sl_summary none = {.budget_bytes = {gib, gib}};
    CHECK_I64(verdict(none, 0), SL_LIMIT_COMPUTE);
    CHECK_I64(verdict(none, 1.9), SL_LIMIT_COMPUTE); /* below two hundredths nothing else is worth a word */
    CHECK_I64(verdict(none, 2.1), SL_LIMIT_DEVICE_BYTES);
    sl_summary x = none;
    x.wait_s[SL_STREAM_IN] = 1.9;
    CHECK_I64(verdict(x, 0), SL_LIMIT_COMPUTE);
    x.wait_s[SL_STREAM_IN] = 5;
    CHECK_I64(verdict(x, 0), SL_LIMIT_LINK_IN);
    x.wait_s[SL_STREAM_OUT] = 6;
    CHECK_I64(verdict(x, 0), SL_LIMIT_LINK_OUT);
    x.wait_s[SL_STREAM_HOST] = 7;
    CHECK_I64(verdict(x, 0), SL_LIMIT_HOST_COMPUTE);
    CHECK_I64(verdict(x, 6.9), SL_LIMIT_HOST_COMPUTE);
    CHECK_I64(verdict(x, 7.1), SL_LIMIT_DEVICE_BYTES);
    /* Why it recomputes: host memory is full, else a link is busy, else the device is full. */
    x.busy_s[SL_STREAM_IN] = 84;
    x.busy_s[SL_STREAM_OUT] = 84;
    CHECK_I64(verdict(x, 8), SL_LIMIT_DEVICE_BYTES);
    x.busy_s[SL_STREAM_OUT] = 86;
    CHECK_I64(verdict(x, 8), SL_LIMIT_LINK_OUT);
    x.busy_s[SL_STREAM_IN] = 86;
    CHECK_I64(verdict(x, 8), SL_LIMIT_LINK_IN);
    x.peak_bytes[SL_TIER_HOST] = gib / 100 * 97;
    CHECK_I64(verdict(x, 8), SL_LIMIT_LINK_IN);
    x.peak_bytes[SL_TIER_HOST] = gib / 100 * 99;
    CHECK_I64(verdict(x, 8), SL_LIMIT_HOST_BYTES);
    x.budget_bytes[SL_TIER_HOST] = SIZE_MAX;
    CHECK_I64(verdict(x, 8), SL_LIMIT_LINK_IN);
    const char *const names[] = {"compute", "link in", "link out", "host compute", "device bytes", "host bytes"};
    for (int i = 0; i <= SL_LIMIT_HOST_BYTES; i++)
        CHECK_STR(sl_limit_name((sl_limit) i), names[i]);
}

static sl_limit planned_limit(synthetic *s, size_t device, size_t host)
{
    sl_plan_config config = {.budget = {device, host}};
    sl_plan *plan;
    CHECK_OK(sl_plan_create(&s->program, s->costs, &config, &plan));
    sl_limit limit = plan->limit;
    sl_plan_destroy(plan);
    synthetic_free(s);
    return limit;
}

/* Activations of 1,024 bytes, each needed by the forward that follows and by its backward. */
static synthetic *activations(int n, double seconds, double link)
{
    synthetic *s = synthetic_new(n + 1, 2 * n, 2 * n);
    for (int i = 0; i < n; i++)
        synthetic_object(s, SL_CLASS_ACTIVATION, 1024);
    for (int t = 0; t < 2 * n; t++) {
        int i = t < n ? t : 2 * n - 1 - t;
        synthetic_task(s, synthetic_kind(s, seconds, INFINITY, 0), t < n ? SL_PHASE_FORWARD : SL_PHASE_BACKWARD, i, 0,
                       0);
        if (t < n ? i > 0 : true)
            synthetic_in(s, t, t < n ? i - 1 : i);
        if (t < n)
            synthetic_out(s, t, i, false);
    }
    for (int i = 0; i < 2; i++)
        s->costs->link_bytes_per_s[i] = s->costs->link_bytes_per_s_both[i] = link;
    return s;
}

TEST(limits_of_plans)
{
    CHECK_I64(planned_limit(activations(6, 100, 1), SIZE_MAX, SIZE_MAX), SL_LIMIT_COMPUTE);
    /* A link too slow to use: what does not fit is recomputed for lack of device bytes. */
    CHECK_I64(planned_limit(activations(6, 100, 0.01), 4096, SIZE_MAX), SL_LIMIT_DEVICE_BYTES);
    synthetic *s = weights(false); /* 4,096 bytes a pass through 1,024 at 64 bytes a second, 0.4 s of compute */
    CHECK_I64(planned_limit(s, 1024, SIZE_MAX), SL_LIMIT_LINK_IN);
    s = weights(true);
    s->costs->link_bytes_per_s[0] = s->costs->link_bytes_per_s_both[0] = 6400;
    CHECK_I64(planned_limit(s, 1024, SIZE_MAX), SL_LIMIT_LINK_OUT);
    s = weights(true); /* updates beside host memory take longer than all else */
    for (int i = 0; i < 2; i++)
        s->costs->link_bytes_per_s[i] = s->costs->link_bytes_per_s_both[i] = 1e6;
    for (int t = 4; t < 8; t++) {
        s->program.tasks[t].host_allowed = true;
        s->costs->host_s[t] = 10;
        s->costs->device_s[t] = 1000;
    }
    CHECK_I64(planned_limit(s, 2048, SIZE_MAX), SL_LIMIT_HOST_COMPUTE);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(compute);
    RUN(data_and_results);
    RUN(links);
    RUN(random_programs);
    RUN(below_the_optimum);
    RUN(verdicts);
    RUN(limits_of_plans);
    return test_end();
}
