/* Random programs under random budgets: plans pass the independent check, stay within budgets and are the same
 * twice; the smallest budgets are exact. */
#include "synthetic.h"
#include "test.h"

static bool same_plan(const sl_plan *a, const sl_plan *b)
{
    if (a->n_actions != b->n_actions || a->n_allocations != b->n_allocations || a->n_deps != b->n_deps)
        return false;
    return !memcmp(a->allocations, b->allocations, (size_t) a->n_allocations * sizeof *a->allocations) &&
           !memcmp(a->deps, b->deps, (size_t) a->n_deps * sizeof *a->deps) &&
           a->predicted.step_s == b->predicted.step_s;
}

static bool plan_once(const synthetic *s, const sl_plan_config *config)
{
    sl_plan *plan, *again;
    sl_status status = sl_plan_create(&s->program, s->costs, config, &plan);
    if (status == SL_E_DOES_NOT_FIT)
        return false;
    CHECK_OK(status);
    CHECK_OK(sl_plan_check(&s->program, plan, config->budget));
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        CHECK_MSG(plan->predicted.peak_bytes[tier] <= config->budget[tier], "peak %zu, budget %zu",
                  plan->predicted.peak_bytes[tier], config->budget[tier]);
    CHECK_MSG(plan->predicted.step_s >= plan->lower_bound_s * (1 - 1e-9), "%g below the bound %g",
              plan->predicted.step_s, plan->lower_bound_s);
    CHECK_OK(sl_plan_create(&s->program, s->costs, config, &again));
    CHECK(same_plan(plan, again));
    sl_plan_destroy(plan);
    sl_plan_destroy(again);
    return true;
}

TEST(random_budgets)
{
    int fitted = 0, refused = 0;
    for (uint64_t seed = 1; seed <= 150; seed++) {
        rng r = {seed * 77};
        synthetic *s = synthetic_random(seed, 4 + rng_below(&r, 30), 3 + rng_below(&r, 14));
        sl_plan_config config = {.budget = {SIZE_MAX, SIZE_MAX}, .max_evaluations = 60};
        size_t least[SL_TIER_COUNT], total = 0;
        for (int32_t o = 0; o < s->program.n_objects; o++)
            total += s->program.objects[o].bytes + 256;
        CHECK(plan_once(s, &config));
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            CHECK_OK(sl_plan_minimum(&s->program, s->costs, &config, (sl_tier) tier, &least[tier]));
        for (int k = 0; k < 4; k++) {
            config.budget[0] = k == 3 ? SIZE_MAX : (size_t) (rng_unit(&r) * (double) total) + least[0];
            config.budget[1] = k == 0 ? SIZE_MAX : (size_t) (rng_unit(&r) * (double) total * 1.2);
            *(plan_once(s, &config) ? &fitted : &refused) += 1;
        }
        synthetic_free(s);
    }
    printf("%d fitted, %d refused\n", fitted, refused);
    CHECK(fitted > 100 && refused > 10);
}

TEST(minimum_is_exact)
{
    for (uint64_t seed = 1; seed <= 80; seed++) {
        rng r = {seed * 91};
        synthetic *s = synthetic_random(seed + 1000, 4 + rng_below(&r, 20), 3 + rng_below(&r, 10));
        size_t total = 0;
        for (int32_t o = 0; o < s->program.n_objects; o++)
            total += s->program.objects[o].bytes + 256;
        for (int k = 0; k < 4; k++) {
            sl_plan_config config = {.budget = {SIZE_MAX, SIZE_MAX}, .max_evaluations = 20};
            sl_tier tier = (sl_tier) (k % 2);
            if (k >= 2)
                config.budget[!tier] = total * 3 / 4;
            size_t least;
            sl_status status = sl_plan_minimum(&s->program, s->costs, &config, tier, &least);
            if (status == SL_E_DOES_NOT_FIT)
                continue;
            CHECK_OK(status);
            config.budget[tier] = least;
            CHECK_MSG(plan_once(s, &config), "seed %d tier %d: refused at its minimum %zu", (int) seed, tier, least);
            if (least < SL_ALIGN)
                continue;
            config.budget[tier] = least - SL_ALIGN;
            CHECK_MSG(!plan_once(s, &config), "seed %d tier %d: fits below its minimum %zu", (int) seed, tier, least);
        }
        synthetic_free(s);
    }
}

/* A value at the end of a long chain whose other values nobody needs again: to recompute it takes the whole chain. */
TEST(long_chains)
{
    for (int length = 2; length <= 14; length++) {
        synthetic *s = synthetic_new(length + 20, length + 20, length + 20);
        int32_t last = -1;
        for (int i = 0; i < length; i++) {
            int32_t t = synthetic_task(s, synthetic_kind(s, 100, INFINITY, 0), SL_PHASE_FORWARD, 0, 0, 0);
            if (last >= 0)
                synthetic_in(s, t, last);
            last = synthetic_object(s, SL_CLASS_ACTIVATION, 4096);
            synthetic_out(s, t, last, false);
        }
        for (int i = 0; i < 16; i++) {
            int32_t t = synthetic_task(s, synthetic_kind(s, 100, INFINITY, 0), SL_PHASE_BACKWARD, 0, 0, 0);
            if (i == 15)
                synthetic_in(s, t, last);
            synthetic_out(s, t, synthetic_object(s, SL_CLASS_HIDDEN, 4096), false);
        }
        sl_plan_config config = {.budget = {2 * 4096, SIZE_MAX}, .max_evaluations = 100};
        CHECK(plan_once(s, &config));
        s->costs->link_bytes_per_s[0] = s->costs->link_bytes_per_s_both[0] = 1e-3; /* copies never pay */
        CHECK(plan_once(s, &config));
        synthetic_free(s);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(random_budgets);
    RUN(minimum_is_exact);
    RUN(long_chains);
    return test_end();
}
