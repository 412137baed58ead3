/* Random programs under random plans: on the sim device in many orders, on the CPU with real threads. Whatever is kept, moved
 * or recomputed, the final bytes are those of the tasks run one after the other. And the sim earns its keep: take one
 * dependency away that nothing else implies, and some order shows it. */
#include "random_plan.h"
#include "run_plan.h"

enum { SIM_SEEDS = 12 };

static sl_device *workspace_oracle(const char *name)
{
    sl_device *device;
    sl_device_config config = {.threads = 2, .max_commands = 1, .max_events = 1};
    CHECK_OK(sl_device_open(name, &config, &device));
    return device;
}

/* The largest workspace any task asks for. */
static size_t largest_workspace(const sl_program *p, sl_device *device)
{
    size_t most = 0;
    for (int32_t t = 0; t < p->n_tasks; t++) {
        sl_launch launch = {.op = p->tasks[t].op, .accumulate = p->tasks[t].accumulate, .attrs = p->tasks[t].attrs};
        for (int i = 0; i < SL_MAX_IN; i++)
            launch.in[i].type = p->tasks[t].in[i].type;
        for (int k = 0; k < SL_MAX_OUT; k++)
            launch.out[k].type = p->tasks[t].out[k].type;
        most = SL_MAX(most, device->class->workspace(device, &launch, SL_STREAM_COMPUTE));
    }
    return most;
}

static void try_plans(const char *device_name, void (*run)(sl_launch *), int programs, int seeds)
{
    sl_device *oracle = workspace_oracle(device_name);
    int tried = 0, recomputed = 0, copied = 0, on_host = 0;
    for (int i = 0; i < programs; i++) {
        test_rng rng = {.key = (uint64_t) i + 100};
        sl_program *p = test_random_program(&rng, 10 + test_draw(&rng, 60));
        test_reference want = reference(p, run);
        size_t workspace = largest_workspace(p, oracle);
        for (int budget = 0; budget < 3; budget++) {
            size_t arena[SL_TIER_COUNT] = {workspace + ((size_t) (24 + 40 * budget) << 10), workspace + (2 << 20)};
            sl_plan *plan = test_random_plan(p, oracle, (uint64_t) (3 * i + budget), arena);
            if (!plan)
                continue;
            tried++;
            CHECK_OK(sl_plan_check(p, plan, arena)); /* two opinions on what a correct plan is */
            for (int32_t a = 0; a < plan->n_actions; a++) {
                recomputed += plan->actions[a].recompute;
                copied += plan->actions[a].kind == SL_ACTION_COPY;
                on_host += plan->actions[a].stream == SL_STREAM_HOST;
            }
            for (int seed = 0; seed < seeds; seed++)
                CHECK_MSG(plan_is_right(p, plan, device_name, (uint64_t) seed, arena, &want),
                          "%s: program %d, budget %d, order %d: other bytes than one task after the other", device_name,
                          i, budget, seed);
            test_plan_destroy(plan);
        }
        test_reference_destroy(&want);
        test_program_destroy(p);
    }
    sl_device_close(oracle);
    CHECK_MSG(tried > programs && 3 * recomputed > tried && copied > 10 * tried && on_host > 0,
              "the dice were too tame: %d plans, %d recomputations, %d copies, %d host tasks", tried, recomputed,
              copied, on_host);
}

TEST(sim_gives_the_reference_bytes_in_every_order)
{
    try_plans("sim", run_sim, 25, SIM_SEEDS);
}

/* With the references for kernels: fast ones want workspaces of megabytes, beside which the objects thrown by the dice are
 * dust, and no budget would be tight. */
TEST(cpu_gives_the_reference_bytes)
{
    setenv("SLUICE_ISA", "scalar", 1);
    try_plans("cpu", run_cpu, 20, 3);
    unsetenv("SLUICE_ISA");
}

/* Is `on` before `action` without this one dependency? Walks back through streams' order and all other dependencies. */
static bool is_implied(const sl_plan *plan, int32_t action, int32_t skip, bool *reached, int32_t *stack)
{
    int32_t on = plan->deps[skip], n = 0;
    memset(reached, 0, (size_t) plan->n_actions);
    stack[n++] = action;
    while (n) {
        int32_t at = stack[--n], before = at - 1;
        const sl_action *a = &plan->actions[at];
        while (before >= 0 && plan->actions[before].stream != a->stream)
            before--;
        for (int32_t d = -1; d < a->n_deps; d++) {
            int32_t next = d < 0 ? before : plan->deps[a->first_dep + d];
            if (next < on || next < 0 || reached[next] || (at == action && d >= 0 && a->first_dep + d == skip))
                continue;
            if (next == on)
                return true;
            reached[next] = true;
            stack[n++] = next;
        }
    }
    return false;
}

/* Marks the actions whose work matters to what outlives the step. A random planner writes out much that nobody reads. */
static void mark_useful(const sl_program *p, const sl_plan *plan, bool *useful, bool *needed)
{
    for (int32_t i = 0; i < plan->n_allocations; i++)
        needed[i] = plan->allocations[i].object >= 0 && plan->placement[plan->allocations[i].object] == i;
    for (int32_t i = plan->n_actions - 1; i >= 0; i--) {
        const sl_action *a = &plan->actions[i];
        if (a->kind == SL_ACTION_COPY) {
            useful[i] = needed[a->to];
            needed[a->to] = false;
            needed[a->from] |= useful[i];
            continue;
        }
        const int32_t *places = &plan->use_allocations[a->first_use];
        int32_t out = places[SL_MAX_IN];
        useful[i] = needed[out];
        if (p->objects[plan->allocations[out].object].producer == a->task)
            needed[out] = false;
        for (int k = 0; k < SL_MAX_IN; k++)
            if (places[k] >= 0)
                needed[places[k]] |= useful[i];
    }
}

/* Does some order show that this plan lacks something? */
static bool is_caught(const sl_program *p, const sl_plan *plan, const size_t arena[SL_TIER_COUNT],
                      const test_reference *want)
{
    for (int seed = 0; seed < 100; seed++)
        if (!plan_is_right(p, plan, "sim", (uint64_t) seed, arena, want))
            return true;
    return false;
}

static void remove_each_dependency(const sl_program *p, sl_plan *plan, const size_t arena[SL_TIER_COUNT], int *removed,
                                   int *caught)
{
    bool *useful, *needed, *reached;
    int32_t *stack;
    int before = *removed, proved = 0;
    test_reference want = reference(p, run_sim);
    CHECK_OK(sl_alloc(&useful, plan->n_actions, sizeof *useful));
    CHECK_OK(sl_alloc(&needed, plan->n_allocations, sizeof *needed));
    CHECK_OK(sl_alloc(&reached, plan->n_actions, sizeof *reached));
    CHECK_OK(sl_alloc(&stack, plan->n_deps + plan->n_actions, sizeof *stack));
    mark_useful(p, plan, useful, needed);
    for (int32_t i = 0; i < plan->n_actions; i++) {
        sl_action *a = &plan->actions[i];
        int32_t *deps = &plan->deps[a->first_dep];
        for (int32_t d = 0; d < a->n_deps; d++) {
            if (!useful[i] || !useful[deps[d]] || is_implied(plan, i, a->first_dep + d, reached, stack))
                continue;
            int32_t dep = deps[d], last = deps[--a->n_deps];
            deps[d] = last;
            bool found = is_caught(p, plan, arena, &want);
            proved += sl_plan_check(p, plan, arena) != SL_OK;
            a->n_deps++;
            deps[a->n_deps - 1] = last;
            deps[d] = dep;
            ++*removed;
            *caught += found;
        }
    }
    int tried = *removed - before;
    CHECK_MSG(10 * proved >= 9 * tried, "the plan check noticed %d of %d missing dependencies", proved, tried);
    sl_free(useful);
    sl_free(needed);
    sl_free(reached);
    sl_free(stack);
    test_reference_destroy(&want);
}

TEST(sim_finds_a_missing_dependency)
{
    sl_device *oracle = workspace_oracle("sim");
    size_t arena[SL_TIER_COUNT] = {28 << 10, 1 << 20};
    int removed = 0, caught = 0;
    for (int i = 0; i < 12; i++) {
        test_rng rng = {.key = (uint64_t) i + 900};
        sl_program *p = test_random_program(&rng, 15);
        sl_plan *plan = test_random_plan(p, oracle, (uint64_t) i, arena);
        if (plan) {
            remove_each_dependency(p, plan, arena, &removed, &caught);
            test_plan_destroy(plan);
        }
        test_program_destroy(p);
    }
    sl_device_close(oracle);
    CHECK_MSG(removed > 100, "only %d dependencies tried", removed);
    CHECK_MSG(caught >= removed - removed / 50, "%d of %d missing dependencies caught", caught, removed);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(sim_gives_the_reference_bytes_in_every_order);
    RUN(cpu_gives_the_reference_bytes);
    RUN(sim_finds_a_missing_dependency);
    return test_end();
}
