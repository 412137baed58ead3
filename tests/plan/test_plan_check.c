/* The check must be able to say no: a good plan is damaged in one place, and the damage must be noticed. */
#include <stdlib.h>

#include "synthetic.h"
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

/* The latest action of each stream that is surely over when an action starts. */
static void fill_clocks(const sl_plan *plan, int32_t (*clock)[SL_STREAM_COUNT])
{
    int32_t before[SL_STREAM_COUNT];
    memset(before, 0xff, sizeof before);
    for (int32_t i = 0; i < plan->n_actions; i++) {
        const sl_action *a = &plan->actions[i];
        for (int r = 0; r < SL_STREAM_COUNT; r++)
            clock[i][r] = before[a->stream] >= 0 ? clock[before[a->stream]][r] : -1;
        clock[i][a->stream] = before[a->stream];
        for (int32_t k = 0; k < a->n_deps; k++) {
            int32_t dep = plan->deps[a->first_dep + k], stream = (int32_t) plan->actions[dep].stream;
            for (int r = 0; r < SL_STREAM_COUNT; r++)
                clock[i][r] = SL_MAX(clock[i][r], clock[dep][r]);
            clock[i][stream] = SL_MAX(clock[i][stream], dep);
        }
        before[a->stream] = i;
    }
}

/* The places an action touches; bit 30: written. */
static int touches(const sl_plan *plan, int32_t action, int32_t out[32])
{
    const sl_action *a = &plan->actions[action];
    int n = 0;
    if (a->kind == SL_ACTION_COPY) {
        out[n++] = a->from;
        out[n++] = a->to | 1 << 30;
        return n;
    }
    for (int i = 0; i < SL_MAX_IN + SL_MAX_OUT; i++)
        if (plan->use_places[a->first_use + i] >= 0)
            out[n++] = plan->use_places[a->first_use + i] | (i < SL_MAX_IN ? 0 : 1 << 30);
    if (a->workspace >= 0)
        out[n++] = a->workspace | 1 << 30;
    return n;
}

/* By the letter: whether two actions of different streams touch the same bytes, one of them writing, without an order. */
static bool races(const sl_plan *plan, int32_t (*clock)[SL_STREAM_COUNT])
{
    fill_clocks(plan, clock);
    for (int32_t j = 0; j < plan->n_actions; j++) {
        int32_t later[32], earlier[32];
        int n_later = touches(plan, j, later);
        for (int32_t i = 0; i < j; i++) {
            if (clock[j][plan->actions[i].stream] >= i)
                continue;
            int n_earlier = touches(plan, i, earlier);
            for (int x = 0; x < n_later; x++)
                for (int y = 0; y < n_earlier; y++) {
                    const sl_place *p = &plan->places[later[x] & ~(1 << 30)],
                                   *q = &plan->places[earlier[y] & ~(1 << 30)];
                    if ((later[x] | earlier[y]) >> 30 && p->tier == q->tier && p->address < q->address + q->bytes &&
                        q->address < p->address + p->bytes)
                        return true;
                }
        }
    }
    return false;
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
    printf("%d of %d missing dependencies make a race, %d judged wrongly\n", racing, removed, wrong);
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
        for (int32_t i = 0; i < plan->n_places; i++) {
            sl_place *place = &plan->places[i];
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
