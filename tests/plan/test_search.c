/* Parts of the search that plans show only indirectly. */
#include "plan/search/candidate.h"
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

/* Free bytes: those that are still being left, and the longest run of them. */
TEST(free_bytes)
{
    sl_segment segments[] = {{.bytes = 1, .ready_s = 5, .place = -1},
                             {.bytes = 20, .ready_s = 9, .place = 0},
                             {.bytes = 300, .ready_s = 2, .place = -1},
                             {.bytes = 4000, .ready_s = 5, .place = -1}};
    const sl_arena arena = {.segments = segments, .count = SL_COUNT(segments)};
    CHECK_NEAR(sl_arena_leaving(&arena, 6), 0, 0);
    CHECK_NEAR(sl_arena_leaving(&arena, 5), 0, 0);
    CHECK_NEAR(sl_arena_leaving(&arena, 4), 4001, 0);
    CHECK_NEAR(sl_arena_leaving(&arena, 1), 4301, 0);
    CHECK_U64(sl_arena_largest(&arena), 4300);
    segments[1].place = -1;
    CHECK_U64(sl_arena_largest(&arena), 4321);
}

/* The first run that fits from either end, or the smallest. */
TEST(free_runs)
{
    static const size_t bytes[] = {8, 1, 4, 1, 6, 1, 3, 2, 1, 8}; /* every second one is taken, but 3 + 2 are a run */
    sl_segment segments[SL_COUNT(bytes)] = {0};
    const sl_arena arena = {.segments = segments, .count = SL_COUNT(bytes)};
    size_t address = 0;
    for (int64_t i = 0; i < SL_COUNT(bytes); i++) {
        segments[i] = (sl_segment){.address = address, .bytes = bytes[i], .place = bytes[i] == 1 ? 0 : -1};
        address += bytes[i];
    }
    static const struct {
        size_t bytes;
        int32_t low, high, best_low, best_high; /* the first segment from the low end, the last from the high one */
    } cases[] = {{8, 0, 9, 0, 9}, {6, 0, 9, 4, 4}, {5, 0, 9, 6, 7},
                 {4, 0, 9, 2, 2}, {3, 0, 9, 2, 2}, {9, -1, -1, -1, -1}};
    for (int64_t i = 0; i < SL_COUNT(cases); i++) {
        CHECK_I64(sl_arena_find(&arena, cases[i].bytes, 0, SIZE_MAX, true, false), cases[i].low);
        CHECK_I64(sl_arena_find(&arena, cases[i].bytes, 0, SIZE_MAX, false, false), cases[i].high);
        CHECK_I64(sl_arena_find(&arena, cases[i].bytes, 0, SIZE_MAX, true, true), cases[i].best_low);
        CHECK_I64(sl_arena_find(&arena, cases[i].bytes, 0, SIZE_MAX, false, true), cases[i].best_high);
    }
    CHECK_I64(sl_arena_find(&arena, 5, 0, segments[9].address, false, false), 7);
    segments[4].ready_s = 3;
    CHECK_I64(sl_arena_find(&arena, 6, 2, SIZE_MAX, true, true), 0);
    CHECK_I64(sl_arena_find(&arena, 6, 3, SIZE_MAX, true, true), 4);
}

/* The faster one; of equals the one that copies less, either way; of those the one with larger rounds. */
TEST(better_candidates)
{
    static const struct {
        double step_s, bytes[SL_LINK_COUNT];
        int64_t chunks;
    } order[] = {{0.99, {500, 500}, 1}, {1, {80, 100}, 4},  {1, {100, 80}, 2}, {1, {100, 100}, 2},
                 {1, {100, 120}, 8},    {1, {140, 100}, 8}, {1.01, {1, 1}, 9}};
    const sl_step step = {.chunks = 16};
    sl_candidate c[SL_COUNT(order) + 1] = {0};
    sl_plan plans[SL_COUNT(order)] = {0};
    for (int64_t i = 0; i < SL_COUNT(order); i++) {
        memcpy(plans[i].predicted.link_bytes, order[i].bytes, sizeof order[i].bytes);
        c[i] = (sl_candidate){.plan = &plans[i], .step_s = order[i].step_s, .chunks = order[i].chunks};
    }
    for (int64_t i = 0; i <= SL_COUNT(order); i++) /* the last one has no plan */
        for (int64_t k = 0; k <= SL_COUNT(order); k++)
            CHECK(sl_candidate_better(&step, &c[i], &c[k]) == (i < k));
}

/* A stall behind a copy is attributed to what crossed the link before it and is cheaper to recompute; one behind anything else is
 * not. */
TEST(stalls)
{
    static const struct {
        int32_t n_deps, want;
        double again_s, starts_s;
    } cases[] = {{1, 1, 1, 12}, {0, 0, 1, 12}, {1, 0, 11, 12}, {1, 0, 1, 2.5}, {1, 0, 1, 12.5}};
    for (int64_t i = 0; i < SL_COUNT(cases); i++) {
        synthetic *s = synthetic_new(2, 4, 4);
        sl_analysis *a;
        int32_t value = synthetic_object(s, SL_CLASS_ACTIVATION, 256),
                other = synthetic_object(s, SL_CLASS_GRADIENT, 256);
        for (int32_t t = 0; t < 4; t++) {
            synthetic_task(s, synthetic_kind(s, t ? 1 : cases[i].again_s, INFINITY, 0),
                           t < 2 ? SL_PHASE_FORWARD : SL_PHASE_BACKWARD, 0, 0, 0);
            if (t == 3)
                synthetic_in(s, t, value);
            synthetic_out(s, t, t ? other : value, false);
        }
        CHECK_OK(sl_analysis_create(&s->program, s->costs, &a));
        const double late = cases[i].starts_s;
        const sl_action actions[] = {
            {.kind = SL_ACTION_TASK, .stream = SL_STREAM_COMPUTE, .task = 0, .start_s = 0, .end_s = 1},
            {.kind = SL_ACTION_TASK, .stream = SL_STREAM_COMPUTE, .task = 1, .start_s = 1, .end_s = 2},
            {.kind = SL_ACTION_COPY,
             .stream = SL_STREAM_IN,
             .object = value,
             .from = SL_TIER_HOST,
             .start_s = 2,
             .end_s = 12},
            {.kind = SL_ACTION_TASK,
             .stream = SL_STREAM_COMPUTE,
             .task = 2,
             .n_deps = cases[i].n_deps,
             .start_s = late,
             .end_s = 13},
            {.kind = SL_ACTION_TASK, .stream = SL_STREAM_COMPUTE, .task = 3, .n_deps = 1, .start_s = 13, .end_s = 14}};
        const int32_t deps[] = {2};
        uint8_t gap[16] = {0};
        const int32_t entry = a->object_first[value];
        REQUIRE(a->entries[entry].drops_near && a->n_entries < 16);
        gap[entry] = SL_GAP_EVICT;
        CHECK_I64(sl_stall_repair(a, actions, SL_COUNT(actions), deps, gap), cases[i].want);
        CHECK_I64(gap[entry], cases[i].want ? SL_GAP_DROP : SL_GAP_EVICT);
        sl_analysis_destroy(a);
        synthetic_free(s);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(persistent_bytes);
    RUN(time_without_a_limit);
    RUN(free_bytes);
    RUN(free_runs);
    RUN(better_candidates);
    RUN(stalls);
    return test_end();
}
