/* Measured waits: of steps whose spans are written down here, so that every second is known, and of random plans on the sim
 * device, whose virtual clock leaves no gaps. */
#include "engine/internal.h"
#include "plan/plan.h"
#include "run_plan.h"

enum { COMPUTE = SL_STREAM_COMPUTE, IN = SL_STREAM_IN, OUT = SL_STREAM_OUT, HOST = SL_STREAM_HOST };

typedef struct step {
    sl_program program;
    sl_task task;
    sl_task_signature kind;
    sl_object object;
    sl_action actions[8];
    sl_span spans[8];
    int32_t deps[16];
    sl_plan plan;
} step;

/* An action with up to two dependencies (-1: none). */
static void add(step *s, int stream, double start, double end, int32_t dep, int32_t another)
{
    int32_t i = s->plan.n_actions++;
    s->actions[i] = (sl_action){.kind = stream == IN || stream == OUT ? SL_ACTION_COPY : SL_ACTION_TASK,
                                .stream = (sl_stream) stream,
                                .first_dep = s->plan.n_deps};
    s->spans[i] = (sl_span){start, end};
    if (dep >= 0)
        s->deps[s->plan.n_deps++] = dep;
    if (another >= 0)
        s->deps[s->plan.n_deps++] = another;
    s->actions[i].n_deps = s->plan.n_deps - s->actions[i].first_dep;
}

static sl_summary summary_of(step *s)
{
    sl_summary summary;
    s->program = (sl_program){.tasks = &s->task, .signatures = &s->kind, .objects = &s->object, .tokens = 30};
    s->object.bytes = 100;
    s->plan.actions = s->actions;
    s->plan.deps = s->deps;
    sl_engine engine = {.program = &s->program, .plan = &s->plan, .spans = s->spans};
    engine.peak_bytes[SL_TIER_DEVICE] = 11;
    engine.peak_bytes[SL_TIER_HOST] = 22;
    sl_engine_summary(&engine, &summary);
    return summary;
}

static void check(step *s, double step_s, double in, double out, double host)
{
    sl_summary m = summary_of(s);
    CHECK_NEAR(m.step_s, step_s, 1e-12);
    CHECK_NEAR(m.wait_s[SL_STREAM_IN], in, 1e-12);
    CHECK_NEAR(m.wait_s[SL_STREAM_OUT], out, 1e-12);
    CHECK_NEAR(m.wait_s[SL_STREAM_HOST], host, 1e-12);
}

TEST(one_wait)
{
    step s = {0};
    add(&s, COMPUTE, 0, 10, -1, -1);
    add(&s, IN, 5, 18, -1, -1);
    add(&s, COMPUTE, 20, 30, 1, -1); /* two seconds late: a gap, not a wait */
    check(&s, 30, 8, 0, 0);
    s.spans[1].end = 9; /* it was there in time */
    check(&s, 30, 0, 0, 0);
    s.actions[1].stream = SL_STREAM_HOST;
    s.actions[1].kind = SL_ACTION_TASK;
    s.spans[1].end = 20;
    check(&s, 30, 0, 0, 10);
}

TEST(before_the_first_task)
{
    step s = {0};
    add(&s, IN, 1, 4, -1, -1); /* issued a second late */
    add(&s, COMPUTE, 4, 10, 0, -1);
    check(&s, 10, 3, 0, 0);
}

TEST(a_fetch_that_waited_itself)
{
    step s = {0};
    add(&s, COMPUTE, 0, 10, -1, -1);
    add(&s, OUT, 10, 16, 0, -1);
    add(&s, IN, 16, 20, 1, -1);
    add(&s, COMPUTE, 20, 30, 2, -1);
    check(&s, 30, 4, 6, 0);
    s.spans[2] = (sl_span){17, 20}; /* the link had a gap */
    check(&s, 30, 3, 6, 0);
}

TEST(behind_another_copy)
{
    step s = {0};
    add(&s, COMPUTE, 0, 10, -1, -1);
    add(&s, HOST, 8, 13, -1, -1);
    add(&s, IN, 13, 16, 1, -1);
    add(&s, IN, 16, 20, -1, -1); /* queued behind it, which waited for the host */
    add(&s, COMPUTE, 20, 30, 3, -1);
    check(&s, 30, 7, 0, 3);
}

TEST(the_later_of_two)
{
    for (int first = 0; first < 2; first++) {
        step s = {0};
        add(&s, COMPUTE, 0, 10, -1, -1);
        add(&s, IN, 2, 14, -1, -1);
        add(&s, HOST, 12, 20, -1, -1);
        add(&s, COMPUTE, 20, 30, first ? 1 : 2, first ? 2 : 1);
        check(&s, 30, 0, 0, 8); /* before 12 the host had not begun, for no reason that is seen */
    }
}

TEST(behind_the_last_task)
{
    step s = {0};
    add(&s, COMPUTE, 0, 10, -1, -1);
    add(&s, OUT, 5, 12, -1, -1);
    add(&s, OUT, 12, 17, 0, -1);
    check(&s, 17, 0, 7, 0);
    add(&s, HOST, 14, 21, 1, -1);
    check(&s, 21, 0, 2, 7);
}

TEST(counts)
{
    step s = {0};
    s.kind.work = (sl_work){.flops = 60, .hardware_flops = 66};
    add(&s, COMPUTE, 0, 10, -1, -1);
    add(&s, IN, 0, 3, -1, -1);
    add(&s, IN, 4, 5, -1, -1);
    add(&s, OUT, 10, 15, -1, -1);
    add(&s, COMPUTE, 10, 20, -1, -1);
    s.actions[4].recompute = true;
    s.plan.predicted.budget_bytes[SL_TIER_HOST] = 33;
    sl_summary m = summary_of(&s);
    CHECK_NEAR(m.busy_s[COMPUTE], 20, 1e-12);
    CHECK_NEAR(m.busy_s[IN], 4, 1e-12);
    CHECK_NEAR(m.busy_s[OUT], 5, 1e-12);
    CHECK(m.link_bytes[SL_LINK_IN] == 200 && m.link_bytes[SL_LINK_OUT] == 100);
    CHECK_NEAR(m.recompute_fraction, 1, 1e-12);
    CHECK_NEAR(m.tokens_per_s, 1.5, 1e-12);
    CHECK_NEAR(m.tflops, 0, 1e-12); /* program.flops, which is 0 here */
    CHECK(m.peak_bytes[SL_TIER_DEVICE] == 11 && m.peak_bytes[SL_TIER_HOST] == 22);
    CHECK(m.budget_bytes[SL_TIER_HOST] == 33);
}

/* Without gaps, compute is busy or waits, and a step's spans are what its streams and dependencies allow. */
TEST(random_plans_on_the_sim_device)
{
    double waited[3] = {0};
    for (int i = 0; i < 40; i++) {
        test_rng rng = {.key = (uint64_t) i + 900};
        sl_program *p = test_random_program(&rng, 10 + test_draw(&rng, 40));
        sl_hardware hw;
        sl_device *device;
        sl_costs *costs;
        sl_plan *plan;
        sl_engine *engine;
        size_t least;
        sl_summary m;
        sl_plan_config config = {.budget = {SIZE_MAX, SIZE_MAX}, .max_evaluations = 20};
        sl_device_config open = {.threads = 1, .max_commands = 1, .max_events = 1};
        CHECK_OK(sl_device_open("sim", &open, &device));
        device->class->hardware(device, &hw);
        CHECK_OK(sl_costs_roofline(p, &hw, device, &costs));
        sl_device_close(device);
        CHECK_OK(sl_plan_minimum(p, costs, &config, SL_TIER_DEVICE, &least));
        config.budget[SL_TIER_DEVICE] = least;
        CHECK_OK(sl_plan_create(p, costs, &config, &plan));
        sl_plan_extent(plan, open.arena_bytes);
        sl_engine_needs(plan, &open.max_commands, &open.max_events);
        CHECK_OK(sl_device_open("sim", &open, &device));
        CHECK_OK(sl_engine_create(device, p, plan, &engine));
        CHECK_OK(sl_engine_step(engine));
        const sl_span *spans = sl_engine_spans(engine);
        for (int32_t k = 0; k < plan->n_actions; k++) {
            const sl_action *a = &plan->actions[k];
            double start = 0;
            for (int32_t before = 0; before < k; before++)
                if (plan->actions[before].stream == a->stream)
                    start = fmax(start, spans[before].end);
            for (int32_t d = 0; d < a->n_deps; d++)
                start = fmax(start, spans[plan->deps[a->first_dep + d]].end);
            CHECK_NEAR(spans[k].start, start, 1e-12);
        }
        sl_engine_summary(engine, &m);
        CHECK_NEAR(m.busy_s[COMPUTE] + m.wait_s[SL_STREAM_IN] + m.wait_s[SL_STREAM_OUT] + m.wait_s[SL_STREAM_HOST],
                   m.step_s, 1e-12);
        /* Times as measured make a prediction with the same waits. */
        for (int32_t k = 0; k < plan->n_actions; k++)
            plan->actions[k].start_s = spans[k].start, plan->actions[k].end_s = spans[k].end;
        sl_summary_times(plan, NULL, &plan->predicted);
        for (int r = 0; r < SL_STREAM_COUNT; r++) {
            CHECK_NEAR(plan->predicted.wait_s[r], m.wait_s[r], 0);
            CHECK_NEAR(plan->predicted.busy_s[r], m.busy_s[r], 0);
        }
        CHECK_NEAR(plan->predicted.step_s, m.step_s, 0);
        waited[0] += m.wait_s[SL_STREAM_IN];
        waited[1] += m.wait_s[SL_STREAM_OUT];
        waited[2] += m.wait_s[SL_STREAM_HOST];
        sl_engine_destroy(engine);
        sl_device_close(device);
        sl_plan_destroy(plan);
        sl_costs_destroy(costs);
        test_program_destroy(p);
    }
    CHECK(waited[0] > 0 && waited[1] > 0 && waited[2] > 0);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(one_wait);
    RUN(before_the_first_task);
    RUN(a_fetch_that_waited_itself);
    RUN(behind_another_copy);
    RUN(the_later_of_two);
    RUN(behind_the_last_task);
    RUN(counts);
    RUN(random_plans_on_the_sim_device);
    return test_end();
}
