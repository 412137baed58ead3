/* A plan in a budget larger than it needs lies low: every address below its peak is used by a place, and the peak is about that of the
 * plan without budgets. */
#include "test.h"
#include "transformer.h"

static int by_address(const void *a, const void *b)
{
    const sl_allocation *x = a, *y = b;
    return x->address < y->address ? -1 : x->address > y->address;
}

/* Bytes below the peak that no place ever covers. */
static size_t unused_bytes(const sl_plan *plan, sl_tier tier)
{
    sl_allocation *places = calloc((size_t) plan->n_allocations + 1, sizeof *places);
    int32_t n = 0;
    size_t end = 0, unused = 0;
    REQUIRE(places);
    for (int32_t i = 0; i < plan->n_allocations; i++)
        if (plan->allocations[i].tier == tier)
            places[n++] = plan->allocations[i];
    qsort(places, (size_t) n, sizeof *places, by_address);
    for (int32_t i = 0; i < n; i++) {
        unused += places[i].address > end ? places[i].address - end : 0;
        end = SL_MAX(end, places[i].address + SL_ROUND_UP(places[i].bytes, (size_t) SL_ALIGN));
    }
    free(places);
    return unused;
}

static void plan_in(const synthetic *s, size_t device, size_t host, size_t peak[SL_TIER_COUNT])
{
    sl_plan_config config = {.budget = {device, host}, .max_evaluations = 60};
    sl_plan *plan;
    CHECK_OK(sl_plan_create(&s->program, s->costs, &config, &plan));
    CHECK_OK(sl_plan_check(&s->program, plan, config.budget));
    CHECK_OK(sl_plan_check(&s->program, plan, plan->predicted.peak_bytes));
    memcpy(peak, plan->predicted.peak_bytes, sizeof plan->predicted.peak_bytes);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        CHECK_MSG(unused_bytes(plan, (sl_tier) tier) == 0, "%zu bytes of %zu are never used in budgets of %zu and %zu",
                  unused_bytes(plan, (sl_tier) tier), peak[tier], device, host);
    sl_plan_destroy(plan);
}

TEST(random_programs)
{
    for (uint64_t seed = 1; seed <= 100; seed++) {
        rng r = {seed * 31};
        synthetic *s = synthetic_random(seed, 4 + rng_below(&r, 30), 3 + rng_below(&r, 14));
        size_t peak[SL_TIER_COUNT], all = 0, large[SL_TIER_COUNT];
        for (int32_t o = 0; o < s->program.n_objects; o++)
            all += s->program.objects[o].bytes + 256;
        plan_in(s, SIZE_MAX, SIZE_MAX, peak);
        plan_in(s, 10 * all, SIZE_MAX, large);
        plan_in(s, SIZE_MAX, 10 * all, large);
        plan_in(s, 10 * all, 10 * all, large);
        synthetic_free(s);
    }
}

TEST(large_budgets_change_little)
{
    transformer m = llama_8b;
    size_t peak[SL_TIER_COUNT], large[SL_TIER_COUNT];
    m.layers = 4;
    m.chunks = 4;
    m.chunks_per_round = 1;
    synthetic *s = transformer_program(&m);
    plan_in(s, SIZE_MAX, SIZE_MAX, peak);
    plan_in(s, 10 * peak[SL_TIER_DEVICE], 10 * peak[SL_TIER_HOST], large);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        CHECK_MSG(large[tier] <= peak[tier] + peak[tier] / 20, "tier %d: %zu bytes of ten times %zu", tier, large[tier],
                  peak[tier]);
    synthetic_free(s);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(random_programs);
    RUN(large_budgets_change_little);
    return test_end();
}
