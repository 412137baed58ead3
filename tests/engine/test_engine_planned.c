/* The planner's plans for random programs and budgets, on the sim device in many orders and on the CPU: for every budget the bytes
 * of the tasks run one after the other, and peaks within the budgets. */
#include "plan/plan.h"
#include "run_plan.h"

/* Costs that make moving, recomputing and host updates all worth something. */
static sl_costs *costs_for(const sl_program *p, const char *device_name)
{
    sl_device *device;
    sl_costs *costs;
    sl_hardware hw;
    sl_device_config config = {.threads = 2, .max_commands = 1, .max_events = 1};
    CHECK_OK(sl_device_open(device_name, &config, &device));
    device->class->hardware(device, &hw);
    CHECK_OK(sl_costs_roofline(p, &hw, device, &costs));
    sl_device_close(device);
    return costs;
}

typedef struct tally {
    int plans, copies, recomputed, on_host, refused;
} tally;

static void try_budget(const sl_program *p, const sl_costs *costs, const char *device,
                       const size_t budget[SL_TIER_COUNT], int seeds, const test_reference *want, tally *t)
{
    sl_plan *plan;
    sl_plan_config config = {.budget = {budget[0], budget[1]}, .max_evaluations = 20};
    sl_status status = sl_plan_create(p, costs, &config, &plan);
    if (status == SL_E_DOES_NOT_FIT) {
        t->refused++;
        return;
    }
    CHECK_OK(status);
    size_t arena[SL_TIER_COUNT];
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) /* an unlimited budget maps the plan's peak */
        arena[tier] = budget[tier] == SIZE_MAX ? plan->predicted.peak_bytes[tier] : budget[tier];
    t->plans++;
    for (int32_t i = 0; i < plan->n_actions; i++) {
        t->copies += plan->actions[i].kind == SL_ACTION_COPY;
        t->recomputed += plan->actions[i].recompute;
        t->on_host += plan->actions[i].stream == SL_STREAM_HOST;
    }
    for (int seed = 0; seed < seeds; seed++)
        CHECK_MSG(plan_is_right(p, plan, device, (uint64_t) seed, arena, want), "%s, budgets %zu and %zu, order %d",
                  device, budget[0], budget[1], seed);
    sl_plan_destroy(plan);
}

static void try_programs(const char *device, void (*run)(sl_launch *), int programs, int seeds)
{
    tally t = {0};
    for (int i = 0; i < programs; i++) {
        test_rng rng = {.key = (uint64_t) i + 5000};
        sl_program *p = test_random_program(&rng, 8 + test_draw(&rng, 40));
        sl_costs *costs = costs_for(p, device);
        test_reference want = reference(p, run);
        size_t least, budget[SL_TIER_COUNT] = {SIZE_MAX, SIZE_MAX};
        sl_plan_config config = {.budget = {SIZE_MAX, SIZE_MAX}};
        try_budget(p, costs, device, budget, seeds, &want, &t);
        CHECK_OK(sl_plan_minimum(p, costs, &config, SL_TIER_DEVICE, &least));
        for (int k = 0; k < 4; k++) {
            budget[SL_TIER_DEVICE] = least + (size_t) k * (size_t) test_draw(&rng, 8) * 1024;
            budget[SL_TIER_HOST] = k == 3 ? (size_t) 64 << 10 : SIZE_MAX;
            try_budget(p, costs, device, budget, seeds, &want, &t);
        }
        budget[SL_TIER_DEVICE] = least - SL_ALIGN;
        budget[SL_TIER_HOST] = SIZE_MAX;
        int refused = t.refused;
        try_budget(p, costs, device, budget, seeds, &want, &t);
        CHECK_I64(t.refused, refused + 1);
        test_reference_destroy(&want);
        sl_costs_destroy(costs);
        test_program_destroy(p);
    }
    CHECK_MSG(t.plans >= 4 * programs && t.copies > 10 * t.plans, "too tame: %d plans, %d copies", t.plans, t.copies);
    printf("     %s: %d plans, %d copies, %d recomputations, %d host tasks, %d refused\n", device, t.plans, t.copies,
           t.recomputed, t.on_host, t.refused);
}

TEST(planned_programs_on_sim)
{
    try_programs("sim", run_sim, 25, 8);
}

TEST(planned_programs_on_cpu)
{
    try_programs("cpu", run_cpu, 12, 2);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(planned_programs_on_sim);
    RUN(planned_programs_on_cpu);
    return test_end();
}
