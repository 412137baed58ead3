/* The engine on the CPU with a plan made by hand: figures, peaks, heap, the culprit of a NaN, broken plans. */
#include "device/cpu/runtime/cpu.h"
#include "engine/internal.h"
#include "random_program.h"

enum { N = TEST_SIDE * TEST_SIDE, BYTES = N * 4 };

/* data x, persistent p; h = x @ x; g = h + p; [update] p += g/4; result r = g/4. */
typedef struct fixture {
    sl_program *p;
    int32_t x, param, h, g, r;
    sl_allocation allocations[12];
    sl_action actions[12];
    int32_t deps[16], uses[8 * (SL_MAX_IN + SL_MAX_OUT)], placement[8];
    sl_plan plan;
} fixture;

static int32_t add_place(fixture *f, int32_t object, sl_tier tier, int block)
{
    f->allocations[f->plan.n_allocations] =
        (sl_allocation){.object = object, .tier = tier, .address = (size_t) block * BYTES, .bytes = BYTES};
    return f->plan.n_allocations++;
}

static sl_action *add_action(fixture *f, sl_action_kind kind, sl_stream stream, int32_t dep)
{
    sl_action *a = &f->actions[f->plan.n_actions++];
    *a = (sl_action){
        .kind = kind, .stream = stream, .task = -1, .object = -1, .workspace = -1, .first_dep = f->plan.n_deps};
    if (dep >= 0) {
        f->deps[f->plan.n_deps++] = dep;
        a->n_deps = 1;
    }
    return a;
}

static void add_copy(fixture *f, sl_stream stream, int32_t from, int32_t to, int32_t dep)
{
    sl_action *a = add_action(f, SL_ACTION_COPY, stream, dep);
    a->object = f->allocations[from].object;
    a->from = from, a->to = to;
}

static void add_task(fixture *f, int32_t task, int32_t in0, int32_t in1, int32_t out, int32_t workspace, int32_t dep)
{
    sl_action *a = add_action(f, SL_ACTION_TASK, SL_STREAM_COMPUTE, dep);
    a->task = task, a->workspace = workspace, a->first_use = f->plan.n_use_allocations;
    int32_t *uses = &f->uses[f->plan.n_use_allocations];
    for (int i = 0; i < SL_MAX_IN + SL_MAX_OUT; i++)
        uses[i] = -1;
    uses[0] = in0, uses[1] = in1, uses[SL_MAX_IN] = out;
    f->plan.n_use_allocations += SL_MAX_IN + SL_MAX_OUT;
}

/* Blocks of the device arena: 0 x, 1 h (recomputed once), 2 g, 3 r, 4 p, 6.. workspace; of the host's: 0 x, 1 r. */
enum { DEVICE_BLOCKS = 5, WORKSPACE_BLOCK = 6 };

static void build(fixture *f, sl_device *device)
{
    memset(f, 0, sizeof *f);
    sl_program *p = f->p = test_program_begin();
    f->x = test_object(p, SL_CLASS_DATA, BYTES, false);
    f->param = test_object(p, SL_CLASS_PARAMETER, BYTES, true);
    f->h = test_object(p, SL_CLASS_ACTIVATION, BYTES, false);
    f->g = test_object(p, SL_CLASS_ACTIVATION, BYTES, false);
    f->r = test_object(p, SL_CLASS_RESULT, BYTES, false);
    test_task(p, SL_OP_MATMUL, SL_PHASE_FORWARD, f->x, f->x, f->h);
    test_task(p, SL_OP_ADD, SL_PHASE_FORWARD, f->h, f->param, f->g);
    test_task(p, SL_OP_SCALE, SL_PHASE_BACKWARD, f->g, -1, f->r);
    test_task(p, SL_OP_SCALE, SL_PHASE_OPTIMIZER, f->g, -1, f->param)->accumulate = 1;
    test_finish_kinds(p);
    f->plan = (sl_plan){.allocations = f->allocations,
                        .actions = f->actions,
                        .deps = f->deps,
                        .use_allocations = f->uses,
                        .placement = f->placement};
    sl_launch launch = {.op = SL_OP_MATMUL};
    launch.in[0].type = launch.in[1].type = launch.out[0].type = sl_type_2d(SL_F32, TEST_SIDE, TEST_SIDE);
    size_t bytes = device->class->workspace(device, &launch, SL_STREAM_COMPUTE);
    int32_t hx = add_place(f, f->x, SL_TIER_HOST, 0), hr = add_place(f, f->r, SL_TIER_HOST, 1);
    int32_t x = add_place(f, f->x, SL_TIER_DEVICE, 0), h = add_place(f, f->h, SL_TIER_DEVICE, 1);
    int32_t g = add_place(f, f->g, SL_TIER_DEVICE, 2), r = add_place(f, f->r, SL_TIER_DEVICE, 3);
    int32_t q = add_place(f, f->param, SL_TIER_DEVICE, 4), w = -1;
    if (bytes) {
        w = add_place(f, -1, SL_TIER_DEVICE, WORKSPACE_BLOCK);
        f->allocations[w].bytes = bytes;
    }
    int32_t placements[] = {hx, q, -1, -1, hr};
    memcpy(f->placement, placements, sizeof placements);
    add_copy(f, SL_STREAM_IN, hx, x, -1); /* 0 */
    add_task(f, 0, x, x, h, w, 0);        /* 1 */
    add_task(f, 0, x, x, h, w, -1);       /* 2: h once more */
    f->actions[2].recompute = true;
    add_task(f, 1, h, q, g, -1, 0);       /* 3: its dependency is implied */
    add_task(f, 2, g, -1, r, -1, -1);     /* 4 */
    add_task(f, 3, g, -1, q, -1, -1);     /* 5 */
    add_copy(f, SL_STREAM_OUT, r, hr, 4); /* 6 */
}

static sl_device *open_device(void)
{
    sl_device *device;
    sl_device_config config = {.arena_bytes = {16 << 20, 1 << 20}, .threads = 2, .max_commands = 32, .max_events = 16};
    CHECK_OK(sl_device_open("cpu", &config, &device));
    return device;
}

static void write_all(sl_engine *engine, const fixture *f)
{
    float content[N];
    test_content(f->p, f->x, 0, content);
    CHECK_OK(sl_engine_write(engine, f->x, 0, content, BYTES));
    test_content(f->p, f->param, 0, content);
    CHECK_OK(sl_engine_write(engine, f->param, 0, content, BYTES));
}

TEST(a_step_is_issued_without_heap_and_without_waiting)
{
    sl_device *device = open_device();
    fixture f;
    sl_engine *engine;
    int64_t commands, events;
    build(&f, device);
    sl_engine_needs(&f.plan, &commands, &events);
    CHECK_I64(events, 2);    /* the copy in; r before the copy out */
    CHECK_I64(commands, 11); /* the compute stream's: five tasks, a record behind each, one wait */
    CHECK_OK(sl_engine_create(device, f.p, &f.plan, &engine));
    write_all(engine, &f);
    CHECK_OK(sl_engine_step(engine));
    uint64_t calls = sl_heap_calls(), waits = sl_cpu_device_host_waits(device);
    for (int step = 1; step < 50; step++)
        CHECK_OK(sl_engine_step(engine));
    CHECK_U64(sl_heap_calls(), calls);
    /* The host sleeps at the ends of steps only: at most once per stream there. */
    CHECK(sl_cpu_device_host_waits(device) - waits <= 49 * SL_STREAM_COUNT);
    float got[N];
    CHECK_OK(sl_engine_read(engine, f.r, 4, got, 8));
    CHECK_FAILS(sl_engine_read(engine, f.r, BYTES - 4, got, 8), SL_E_INTERNAL);
    CHECK_FAILS(sl_engine_write(engine, f.h, 0, got, 8), SL_E_INTERNAL);
    CHECK_FAILS(sl_engine_read(engine, f.r, BYTES + 4, got, 0), SL_E_INTERNAL);
    CHECK_FAILS(sl_engine_read(engine, f.r, 4, got, SIZE_MAX), SL_E_INTERNAL);
    CHECK_FAILS(sl_engine_read(engine, -1, 0, got, 8), SL_E_INTERNAL);
    CHECK_FAILS(sl_engine_read(engine, f.p->n_objects, 0, got, 8), SL_E_INTERNAL);
    CHECK_OK(sl_engine_read(engine, f.r, BYTES - 4, got, 4));
    CHECK_OK(sl_engine_read(engine, f.r, BYTES, got, 0));
    sl_engine_destroy(engine);
    test_program_destroy(f.p);
    sl_device_close(device);
}

TEST(what_happened_is_told)
{
    sl_device *device = open_device();
    fixture f;
    sl_engine *engine;
    build(&f, device);
    f.p->tokens = 100;
    CHECK_OK(sl_engine_create(device, f.p, &f.plan, &engine));
    write_all(engine, &f);
    CHECK_OK(sl_engine_step(engine));
    const sl_span *spans = sl_engine_spans(engine);
    for (int32_t i = 0; i < f.plan.n_actions; i++)
        CHECK(spans[i].end >= spans[i].start && spans[i].start > 0);
    for (int32_t i = 2; i < 6; i++)
        CHECK(spans[i].start >= spans[i - 1].end);
    CHECK(spans[1].start >= spans[0].end && spans[6].start >= spans[4].end);
    sl_summary s;
    sl_engine_set_peak_flops(engine, 1e9);
    sl_engine_summary(engine, &s);
    double last = SL_MAX(spans[5].end, spans[6].end);
    CHECK(s.step_s == last && s.tokens_per_s == 100 / last);
    CHECK(s.link_bytes[SL_LINK_IN] == BYTES && s.link_bytes[SL_LINK_OUT] == BYTES);
    double matmul = f.p->signatures[0].work.flops;
    CHECK(fabs(s.recompute_fraction - matmul / f.p->flops) < 1e-12 && s.recompute_fraction > 0.5);
    CHECK(s.hfu > s.mfu && s.mfu > 0 && fabs(s.mfu - f.p->flops / s.step_s / 1e9) < 1e-9);
    CHECK(s.busy_s[SL_STREAM_COMPUTE] > 0 && s.busy_s[SL_STREAM_HOST] == 0);
    CHECK(s.wait_s[SL_STREAM_IN] > 0 && s.wait_s[SL_STREAM_HOST] == 0);
    /* Only the copy out that follows the last task is waited for. */
    double tail = spans[6].end - fmax(spans[5].end, spans[6].start);
    CHECK_NEAR(s.wait_s[SL_STREAM_OUT], fmax(tail, 0), 1e-12);
    size_t top = f.plan.n_allocations == 8 ? WORKSPACE_BLOCK * BYTES + f.allocations[7].bytes : DEVICE_BLOCKS * BYTES;
    CHECK_U64(sl_engine_peak_bytes(engine, SL_TIER_DEVICE), top);
    CHECK_U64(sl_engine_peak_bytes(engine, SL_TIER_HOST), 2 * BYTES);
    CHECK_U64(engine->items[1].top[SL_TIER_DEVICE],
              f.plan.n_allocations == 8 ? top : 2 * BYTES);     /* with its workspace */
    CHECK_U64(engine->items[3].top[SL_TIER_DEVICE], 5 * BYTES); /* without */
    CHECK_U64(s.peak_bytes[SL_TIER_HOST], 2 * BYTES);
    sl_engine_destroy(engine);
    test_program_destroy(f.p);
    sl_device_close(device);
}

/* Times set by hand, and why the compute stream stood still by hand too. */
TEST(waits_are_attributed)
{
    static const sl_span spans[] = {{0, 2}, {2.5, 3}, {1, 5}, {3.25, 4}, {6, 7}, {8.5, 9}, {7, 8}};
    static const int32_t deps[] = {2, /* of 4 */ 6, 0, 4 /* of 5 */};
    sl_device *device = open_device();
    fixture f;
    sl_engine *engine;
    sl_summary s;
    build(&f, device);
    CHECK_OK(sl_engine_create(device, f.p, &f.plan, &engine));
    memcpy(engine->spans, spans, sizeof spans);
    f.actions[2].stream = SL_STREAM_HOST;
    memcpy(f.deps + f.plan.n_deps, deps, sizeof deps);
    f.actions[4].first_dep = f.plan.n_deps, f.actions[4].n_deps = 1;
    f.actions[5].first_dep = f.plan.n_deps + 1, f.actions[5].n_deps = 3;
    sl_engine_summary(engine, &s);
    CHECK_NEAR(s.step_s, 9, 0);
    CHECK_NEAR(s.wait_s[SL_STREAM_IN], 2,
               1e-12); /* 1: while the copy in ran; the half second behind it is the device's */
    CHECK_NEAR(s.wait_s[SL_STREAM_HOST], 1, 1e-12); /* 4: from the end of 3 to that of the host's task */
    CHECK_NEAR(s.wait_s[SL_STREAM_OUT], 1, 1e-12);  /* 5: the copy out, later than the copy in and the task before it */
    CHECK_NEAR(s.busy_s[SL_STREAM_COMPUTE], 0.5 + 0.75 + 1 + 0.5, 1e-12);
    CHECK_NEAR(s.busy_s[SL_STREAM_IN], 2, 1e-12);
    CHECK_NEAR(s.busy_s[SL_STREAM_OUT], 1, 1e-12);
    CHECK_NEAR(s.busy_s[SL_STREAM_HOST], 4, 1e-12);
    f.actions[3].n_deps = 0; /* its pause is the stream's own */
    engine->spans[6].end = 1.5;
    sl_engine_summary(engine, &s);
    CHECK_NEAR(s.wait_s[SL_STREAM_IN], 2, 1e-12);
    CHECK_NEAR(s.wait_s[SL_STREAM_OUT], 0, 0);
    engine->spans[5].start = 7; /* right behind 4 */
    sl_engine_summary(engine, &s);
    CHECK_NEAR(s.wait_s[SL_STREAM_IN], 2, 1e-12);
    sl_engine_destroy(engine);
    test_program_destroy(f.p);
    sl_device_close(device);
}

TEST(the_culprit_is_found)
{
    sl_device *device = open_device();
    fixture f;
    sl_engine *engine;
    sl_culprit culprit;
    float before[N], after[N], bad = -INFINITY;
    build(&f, device);
    CHECK_OK(sl_engine_create(device, f.p, &f.plan, &engine));
    write_all(engine, &f);
    CHECK_OK(sl_engine_read(engine, f.param, 0, before, BYTES));
    CHECK_OK(sl_engine_diagnose(engine, &culprit));
    CHECK(!culprit.found);
    CHECK_OK(sl_engine_read(engine, f.param, 0, after, BYTES));
    CHECK(memcmp(before, after, BYTES) == 0);
    CHECK_OK(sl_engine_write(engine, f.param, 37 * 4, &bad, 4));
    CHECK_OK(sl_engine_read(engine, f.param, 0, before, BYTES));
    CHECK_OK(sl_engine_diagnose(engine, &culprit));
    CHECK(culprit.found);
    CHECK_I64(culprit.task, 1);
    CHECK_I64(culprit.element, 37);
    CHECK_STR(culprit.value, "-infinity");
    CHECK_STR(culprit.tensor_name, f.p->objects[f.g].name);
    CHECK(culprit.task_name[0]);
    CHECK_OK(sl_engine_read(engine, f.param, 0, after, BYTES));
    CHECK(memcmp(before, after, BYTES) == 0); /* nothing was updated */
    sl_engine_destroy(engine);
    test_program_destroy(f.p);
    sl_device_close(device);
}

/* Plans that are wrong in themselves are refused before they run. */
TEST(broken_plans_are_refused)
{
    sl_device *device = open_device();
    sl_engine *engine;
    for (int fault = 0; fault < 10; fault++) {
        fixture f;
        build(&f, device);
        switch (fault) {
        case 0:
            f.uses[f.actions[3].first_use] = -1; /* an operand without a place */
            break;
        case 1:
            f.uses[f.actions[3].first_use] = 0; /* of another object */
            break;
        case 2:
            f.allocations[4].bytes = BYTES - 4;
            break;
        case 3:
            f.deps[f.actions[1].first_dep] = 5; /* depends on what comes later */
            break;
        case 4:
            f.actions[6].to = 100;
            break;
        case 5:
            f.allocations[1].bytes = 2 * BYTES; /* a copy between places of different sizes */
            break;
        case 6:
            f.actions[6].from = -1;
            break;
        case 7:
            f.uses[f.actions[3].first_use + SL_MAX_IN] = f.plan.n_allocations; /* an output */
            break;
        case 8:
            f.actions[4].workspace = 2; /* not a place for a workspace */
            break;
        case 9:
            f.deps[f.actions[6].first_dep] = 6; /* itself */
            break;
        }
        CHECK_FAILS(sl_engine_create(device, f.p, &f.plan, &engine), SL_E_INTERNAL);
        CHECK_CONTAINS(sl_error_message(), "plan, action");
        test_program_destroy(f.p);
    }
    sl_device_close(device);
}

TEST(an_issue_error_ends_the_step_cleanly)
{
    sl_device *device = open_device();
    fixture f;
    sl_engine *engine;
    build(&f, device);
    f.allocations[5].address = 16 << 20; /* r lies beyond the arena */
    CHECK_OK(sl_engine_create(device, f.p, &f.plan, &engine));
    write_all(engine, &f);
    CHECK_FAILS(sl_engine_step(engine), SL_E_INTERNAL);
    CHECK_CONTAINS(sl_error_message(), "scale");
    CHECK_FAILS(sl_engine_step(engine), SL_E_INTERNAL); /* the device is ready for another step */
    sl_culprit culprit = {.task = 77};
    CHECK_FAILS(sl_engine_diagnose(engine, &culprit), SL_E_INTERNAL);
    CHECK(culprit.task == 77 && !culprit.found);
    sl_engine_destroy(engine);
    test_program_destroy(f.p);
    sl_device_close(device);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(a_step_is_issued_without_heap_and_without_waiting);
    RUN(what_happened_is_told);
    RUN(waits_are_attributed);
    RUN(the_culprit_is_found);
    RUN(broken_plans_are_refused);
    RUN(an_issue_error_ends_the_step_cleanly);
    return test_end();
}
