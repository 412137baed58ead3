/* Against exhaustive search: on chains small enough to try everything, a plan is found whenever there is one, never
 * faster than the optimum, within .3 % of it on average and 10 % at worst. */
#include "oracle.h"
#include "test.h"

#ifdef __SANITIZE_ADDRESS__
#define CHAINS 100 /* sanitizers make it ten times as slow; the full count runs without them */
#else
#define CHAINS 2000
#endif

/* Step time found; INFINITY: refused. `evaluations` 0: the default. */
static double planned(const synthetic *s, const chain *c, int64_t evaluations)
{
    sl_plan_config config = {
        .budget = {(size_t) c->budget, SIZE_MAX}, .max_evaluations = evaluations, .time_limit_s = 60};
    sl_plan *plan;
    sl_status status = sl_plan_create(&s->program, s->costs, &config, &plan);
    if (status == SL_E_DOES_NOT_FIT)
        return INFINITY;
    CHECK_OK(status);
    CHECK_OK(sl_plan_check(&s->program, plan, config.budget));
    double step_s = plan->predicted.step_s;
    sl_plan_destroy(plan);
    return step_s;
}

/* A search with a higher bound on evaluations goes on where one with a lower bound stops, so the default's result is
 * known once a short search has reached the optimum. */
TEST(near_the_optimum)
{
    int missed = 0, optimal = 0;
    double sum = 0, worst = 0;
    uint64_t worst_seed = 0;
    for (uint64_t seed = 1; seed <= CHAINS; seed++) {
        chain c = chain_random(seed);
        synthetic *s = chain_program(&c);
        double best = chain_optimum(&c), simple = chain_simple(&c);
        double step_s = planned(s, &c, 1500);
        if (step_s > best * (1 + 1e-9))
            step_s = planned(s, &c, 0);
        missed += best < INFINITY && step_s == INFINITY;
        CHECK_MSG(step_s <= simple * (1 + 1e-9), "seed %d: %g s, a simple plan takes %g s", (int) seed, step_s, simple);
        CHECK_MSG(best <= simple * (1 + 1e-12), "seed %d: the optimum %g s is above a simple plan, %g s", (int) seed,
                  best, simple);
        CHECK_MSG(step_s >= best * (1 - 1e-12), "seed %d: %g s, faster than the optimum %g s", (int) seed, step_s,
                  best);
        double gap = best < INFINITY && step_s < INFINITY ? step_s / best - 1 : 0;
        optimal += gap < 1e-9;
        sum += gap;
        if (gap > worst) {
            worst = gap;
            worst_seed = seed;
        }
        synthetic_free(s);
    }
    printf("%d chains: %d as fast as the optimum, mean gap %.3f %%, worst %.2f %% (seed %d)\n", CHAINS, optimal,
           100 * sum / CHAINS, 100 * worst, (int) worst_seed);
    CHECK_I64(missed, 0);
    CHECK_MSG(sum / CHAINS <= 0.003, "mean gap %.3f %%", 100 * sum / CHAINS);
    CHECK_MSG(worst <= 0.10, "worst gap %.2f %%, seed %d", 100 * worst, (int) worst_seed);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(near_the_optimum);
    return test_end();
}
