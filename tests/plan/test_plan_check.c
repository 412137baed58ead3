/* The check must be able to say no: a good plan is damaged in one place, and the damage must be noticed. */
#include <stdlib.h>

#include "replay.h"
#include "test.h"

static sl_plan *small_plan(synthetic **s, uint64_t seed, size_t budget[SL_TIER_COUNT])
{
    rng r = {seed * 31};
    *s = synthetic_random(seed, 10 + rng_below(&r, 20), 8 + rng_below(&r, 8));
    sl_plan_config config = {.budget = {SIZE_MAX, SIZE_MAX}, .max_evaluations = 10};
    size_t least;
    sl_plan *plan;
    CHECK_OK(sl_plan_minimum(&(*s)->program, (*s)->costs, &config, SL_TIER_DEVICE, &least));
    config.budget[SL_TIER_DEVICE] = least + least / 4;
    CHECK_OK(sl_plan_create(&(*s)->program, (*s)->costs, &config, &plan));
    CHECK_OK(sl_plan_check(&(*s)->program, plan, config.budget));
    memcpy(budget, config.budget, sizeof config.budget);
    return plan;
}

/* Without a dependency two streams race, unless it ordered more than it must (neighbouring free bytes share their last
 * users): every race is noticed, and nothing else. */
TEST(missing_dependencies)
{
    int removed = 0, racing = 0, wrong = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        synthetic *s;
        size_t budget[SL_TIER_COUNT];
        sl_plan *plan = small_plan(&s, seed, budget);
        int32_t(*clock)[SL_STREAM_COUNT] = malloc((size_t) plan->n_actions * sizeof *clock);
        CHECK(!races(plan, clock));
        for (int32_t i = 0; i < plan->n_actions; i++) {
            sl_action *a = &plan->actions[i];
            for (int32_t k = 0; k < a->n_deps; k++) {
                int32_t *deps = plan->deps + a->first_dep, cut = deps[k];
                deps[k] = deps[a->n_deps - 1];
                deps[a->n_deps - 1] = cut;
                a->n_deps--;
                bool race = races(plan, clock), noticed = sl_plan_check(&s->program, plan, budget) == SL_E_INTERNAL;
                removed++;
                racing += race;
                wrong += race != noticed;
                a->n_deps++;
                deps[a->n_deps - 1] = deps[k];
                deps[k] = cut;
            }
        }
        free(clock);
        sl_plan_destroy(plan);
        synthetic_free(s);
    }
    printf("%d of %d missing dependencies make a race, %d answered wrongly\n", racing, removed, wrong);
    CHECK(racing > 100 && racing > removed * 9 / 10);
    CHECK_I64(wrong, 0);
}

TEST(moved_places)
{
    int moved = 0, noticed = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        synthetic *s;
        size_t budget[SL_TIER_COUNT];
        sl_plan *plan = small_plan(&s, seed, budget);
        for (int32_t i = 0; i < plan->n_allocations; i++) {
            sl_allocation *place = &plan->allocations[i];
            size_t address = place->address;
            if (place->tier != SL_TIER_DEVICE)
                continue;
            place->address = SL_ROUND_UP(budget[SL_TIER_DEVICE], (size_t) SL_ALIGN); /* beyond the budget */
            moved++;
            noticed += sl_plan_check(&s->program, plan, budget) == SL_E_INTERNAL;
            place->address = address + 1;
            moved++;
            noticed += sl_plan_check(&s->program, plan, budget) == SL_E_INTERNAL;
            place->address = address;
        }
        sl_plan_destroy(plan);
        synthetic_free(s);
    }
    CHECK_I64(noticed, moved);
}

TEST(missing_actions)
{
    synthetic *s;
    size_t budget[SL_TIER_COUNT];
    sl_plan *plan = small_plan(&s, 7, budget);
    for (int32_t i = 0; i < plan->n_actions; i++) {
        sl_action *a = &plan->actions[i], kept = *a;
        if (a->kind != SL_ACTION_TASK || a->task == 0)
            continue;
        a->task = a->task - 1; /* one task twice, one never */
        CHECK(sl_plan_check(&s->program, plan, budget) != SL_OK);
        *a = kept;
    }
    CHECK_OK(sl_plan_check(&s->program, plan, budget));
    sl_plan_destroy(plan);
    synthetic_free(s);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(missing_dependencies);
    RUN(moved_places);
    RUN(missing_actions);
    return test_end();
}
