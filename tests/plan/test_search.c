/* Parts of the search that plans show only indirectly. */
#include "plan/search/search.h"

#include "synthetic.h"
#include "test.h"

static const size_t unlimited[SL_TIER_COUNT] = {SIZE_MAX, SIZE_MAX};

TEST(persistent_bytes)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        synthetic *s = synthetic_random(seed, 20, 12);
        sl_analysis *a;
        sl_search *search;
        size_t want = 0;
        CHECK_OK(sl_analysis_create(&s->program, s->costs, &a));
        CHECK_OK(sl_search_create(a, NULL, unlimited, &search));
        for (int32_t o = 0; o < s->program.n_objects; o++)
            if (s->program.objects[o].persistent)
                want += SL_ROUND_UP(s->program.objects[o].bytes, (size_t) SL_ALIGN);
        CHECK_U64(sl_search_persistent_bytes(search), want);
        sl_search_destroy(search);
        sl_analysis_destroy(a);
        synthetic_free(s);
    }
    sl_search_destroy(NULL);
}

/* Without a limit on time there is one that small programs never reach: as many schedules are tried as with a very long one. */
TEST(time_without_a_limit)
{
    for (uint64_t seed = 1; seed <= 5; seed++) {
        synthetic *s = synthetic_random(seed, 25, 14);
        sl_plan_config config = {.budget = {SIZE_MAX, SIZE_MAX}, .max_evaluations = 100, .no_advice = true};
        sl_plan *usual, *patient;
        CHECK_OK(sl_plan_minimum(&s->program, s->costs, &config, SL_TIER_DEVICE, &config.budget[SL_TIER_DEVICE]));
        CHECK_OK(sl_plan_create(&s->program, s->costs, &config, &usual));
        config.time_limit_s = 1e6;
        CHECK_OK(sl_plan_create(&s->program, s->costs, &config, &patient));
        CHECK(patient->evaluated > 1);
        CHECK_I64(usual->evaluated, patient->evaluated);
        sl_plan_destroy(usual);
        sl_plan_destroy(patient);
        synthetic_free(s);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(persistent_bytes);
    RUN(time_without_a_limit);
    return test_end();
}
