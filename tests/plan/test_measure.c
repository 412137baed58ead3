/* Measured costs: every kind has one, the second time comes from the file, a damaged file does no harm. */
#include "core/fault.h"
#include "core/file.h"
#include "cost/cost.h"
#include "cost/internal.h"
#include "engine/random_program.h"
#include "model/interpret.h"
#include "plan/plan.h"

static sl_program *small_program(void)
{
    test_rng rng = {.key = 4};
    return test_random_program(&rng, 20);
}

TEST(every_kind_gets_a_time)
{
    sl_program *p = small_program();
    sl_costs *costs;
    CHECK_OK(sl_costs_measure(p, &(sl_measure_config){.device = "cpu", .threads = 2}, &costs));
    CHECK_I64(costs->n_signatures, p->n_signatures);
    for (int32_t k = 0; k < p->n_signatures; k++) {
        CHECK(costs->device_s[k] > 0 && costs->device_s[k] < 1);
        CHECK(isfinite(costs->host_s[k]) == p->tasks[p->signatures[k].example].host_allowed);
    }
    for (int d = 0; d < 2; d++)
        CHECK(costs->link_bytes_per_s[d] > 0 && costs->link_bytes_per_s_both[d] <= costs->link_bytes_per_s[d] &&
              costs->link_bytes_per_s_both[d] > 0);
    CHECK(costs->link_latency_s >= 0 && costs->link_latency_s < 0.1);
    CHECK(costs->copy_slowdown >= 0 && costs->copy_slowdown <= 1);
    CHECK(costs->host_slowdown >= 0 && costs->host_slowdown <= 1);
    CHECK(costs->peak_flops > 1e9);
    CHECK_CONTAINS(costs->source, "measured cpu");
    sl_costs_destroy(costs);
    test_program_destroy(p);
}

static void count_quiet(void *context, bool on)
{
    ((int *) context)[on]++;
}

TEST(the_second_time_comes_from_the_file)
{
    int calls[2] = {0};
    sl_program *p = small_program();
    sl_costs *first, *second;
    const char *cache = test_path("costs.jsonl");
    sl_measure_config config = {.device = "cpu", .threads = 2, .cache = cache, .quiet = count_quiet, .context = calls};
    CHECK_OK(sl_costs_measure(p, &config, &first));
    /* While memory is pinned, while links are measured, and while what may run on the host is. */
    const int measured = calls[1];
    CHECK(sl_file_exists(cache) && measured > 2 && calls[0] == measured);
    CHECK_OK(sl_costs_measure(p, &config, &second));
    bool known[64];
    REQUIRE(p->n_signatures <= 64);
    memset(known, true, sizeof known);
    const bool again = sl_probe_signature(p, first, known) >= 0; /* one kind may be timed again, else nothing is */
    CHECK(calls[0] == calls[1] && calls[1] <= measured + again);
    for (int32_t k = 0; k < p->n_signatures; k++)
        CHECK(first->device_s[k] == second->device_s[k] && first->host_s[k] == second->host_s[k]);
    CHECK(first->link_bytes_per_s[0] == second->link_bytes_per_s[0] && first->copy_slowdown == second->copy_slowdown &&
          first->link_latency_s == second->link_latency_s && first->host_slowdown == second->host_slowdown);
    sl_costs_destroy(first);
    sl_costs_destroy(second);
    test_program_destroy(p);
}

/* Updates of the embedding and the head take 512 MB each and differ a little in length: they are timed once, on a part. */
TEST(large_updates_cost_by_their_length)
{
    sl_model model;
    sl_program *p;
    sl_costs *costs;
    double per_element[4] = {0};
    int n = 0;
    CHECK_OK(sl_model_find("byte-nano", &model));
    model.vocab = 250000, model.tied = false;
    sl_program_config config = interpret_config(16, 1, 16, SL_PRECISION_F32);
    CHECK_OK(sl_program_create(&config, sl_build_model, &model, &p));
    CHECK_OK(sl_costs_measure(p, &(sl_measure_config){.device = "cpu", .threads = 2}, &costs));
    for (int32_t k = 0; k < p->n_signatures; k++) {
        sl_launch launch;
        sl_costs_launch(p, k, &launch);
        int64_t length = launch.op == SL_OP_ADAMW ? launch.in[0].type.dim[0] : 0;
        if (length >= model.vocab * model.dim && n < 4)
            per_element[n++] = costs->device_s[k] / (double) length;
    }
    CHECK_I64(n, 2);
    CHECK(per_element[0] > 0);
    CHECK_NEAR(per_element[1], per_element[0], 1e-12 * per_element[0]);
    sl_costs_destroy(costs);
    sl_program_destroy(p);
}

TEST(threads_are_filed_by_their_number)
{
    sl_program *p = small_program();
    sl_costs *costs;
    const char *cache = test_path("threads.jsonl");
    char *text;
    size_t length;
    CHECK_OK(sl_costs_measure(p, &(sl_measure_config){.device = "cpu", .cache = cache}, &costs));
    sl_costs_destroy(costs);
    CHECK_OK(sl_file_read_all(cache, 1 << 20, &text, &length));
    CHECK(strstr(text, "\"threads\":0") == NULL && strstr(text, "\"threads\":") != NULL);
    sl_free(text);
    test_program_destroy(p);
}

TEST(a_damaged_file_is_repaired)
{
    static const char damage[] = "{\"device\":\"cpu avx512\",\"threads\":\nnot json\n"
                                 "{\"device\":\"other\",\"threads\":9,\"kind\":\"x\",\"seconds\":[1,null]}\n"
                                 "{\"device\":\"cpu avx512\",\"threads\":2,\"kind\":\"y\",\"seconds\":\"1\"}\n\xff\xfe";
    sl_program *p = small_program();
    sl_costs *costs;
    const char *cache = test_path("damaged.jsonl");
    char *text;
    size_t length;
    CHECK_OK(sl_file_write_atomic(cache, damage, sizeof damage - 1));
    test_expect_warnings(TEST_ANY, "not a line of measured costs; it is left out");
    test_expect_warnings(1, "measured costs were not kept: ");
    CHECK_OK(sl_costs_measure(p, &(sl_measure_config){.device = "cpu", .threads = 1, .cache = cache}, &costs));
    CHECK(costs->device_s[0] > 0);
    sl_costs_destroy(costs);
    CHECK_OK(sl_file_read_all(cache, 1 << 20, &text, &length));
    CHECK(strstr(text, "\"other\"") != NULL && strstr(text, "not json") == NULL);
    sl_free(text);
    int warnings = test_warnings;
    CHECK_OK(sl_costs_measure(p, &(sl_measure_config){.device = "cpu", .threads = 1, .cache = cache},
                              &costs)); /* clean now */
    CHECK_I64(test_warnings, warnings);
    sl_costs_destroy(costs);
    /* A file that cannot be written costs a warning, not the costs. */
    CHECK_OK(sl_costs_measure(
        p, &(sl_measure_config){.device = "sim", .threads = 1, .cache = test_path("no/such/folder/costs.jsonl")},
        &costs));
    CHECK(test_warnings > warnings);
    sl_costs_destroy(costs);
    CHECK_FAILS(sl_costs_measure(p, &(sl_measure_config){.device = "abacus", .threads = 1}, &costs), SL_E_USAGE);
    test_program_destroy(p);
}

/* Without memory there is no cache, whichever allocation fails; figures come back from the file as they were. */
TEST(cache_without_memory)
{
    const double figures[2] = {0.25, INFINITY};
    sl_measure_cache *cache;
    char path[512];
    int failed = 0;
    test_expect_warnings(TEST_ANY, "costs are measured again"); /* where only reading failed */
    snprintf(path, sizeof path, "%s", test_path("small.jsonl"));
    CHECK_OK(sl_measure_cache_open(path, "cpu test", 2, &cache));
    CHECK_OK(sl_measure_cache_put(cache, "key", figures, 2));
    sl_measure_cache_close(cache);
    for (int64_t n = 1, events = 1; events >= n - 1; n++) { /* until there are not so many */
        sl_fault_arm(SL_FAULT_ALLOC, n);
        cache = NULL;
        sl_status status = sl_measure_cache_open(path, "cpu test", 2, &cache);
        events = sl_fault_events(SL_FAULT_ALLOC);
        sl_fault_arm(SL_FAULT_ALLOC, 0);
        CHECK(status == (cache ? SL_OK : SL_E_MEMORY));
        failed += status != SL_OK;
        sl_measure_cache_close(cache);
    }
    CHECK(failed >= 3);
    CHECK_OK(sl_measure_cache_open(path, "cpu test", 2, &cache));
    double back[2] = {0};
    CHECK(sl_measure_cache_get(cache, "key", back, 2));
    CHECK(back[0] == figures[0] && back[1] == figures[1]);
    CHECK(!sl_measure_cache_get(cache, "other", back, 2));
    sl_measure_cache_close(cache);
}

/* Scratch memory shrinks to the job's budgets, and is the usual where there are none. */
TEST(scratch_memory_stays_in_the_budget)
{
    enum { MIB = 1 << 20 };
    const size_t none[SL_TIER_COUNT] = {0}, most[SL_TIER_COUNT] = {6 * MIB, 5 * MIB};
    sl_timer free = {0}, bound = {0};
    sl_scratch_config config = {.device = "cpu", .threads = 1, .signature_bytes = MIB, .piece = MIB, .most = none};
    CHECK_OK(sl_scratch_open(&config, &free));
    config.most = most;
    CHECK_OK(sl_scratch_open(&config, &bound));
    CHECK(free.clear_bytes >= 24 * MIB);
    CHECK_U64(bound.space + bound.clear_bytes, 5 * MIB);
    sl_timer_close(&free);
    sl_timer_close(&bound);
}

/* The load that launches are timed behind takes memory too: what is left to copies is the budget less all of it, and a part of the load
 * that does not fit is left out. */
TEST(load_stays_in_the_budget)
{
    enum { MIB = 1 << 20 };
    sl_warmup warmups[SL_MOST_WARMUPS] = {0};
    for (int i = 0; i < SL_MOST_WARMUPS; i++) {
        sl_launch *launch = &warmups[i].launch;
        launch->op = SL_OP_ADD;
        for (int k = 0; k < 2; k++)
            launch->in[k].type = sl_type_1d(SL_F32, (i ? 4 : 1) * (MIB / 16));
        launch->out[0].type = launch->in[0].type;
        warmups[i].share = 0.5;
    }
    const size_t first = sl_launch_bytes(&warmups[0].launch), second = sl_launch_bytes(&warmups[1].launch);
    for (int fits = 0; fits < 2; fits++) {
        const size_t all = 8 * MIB + first + (fits ? second : 0), most[SL_TIER_COUNT] = {all + MIB, 64 * MIB};
        sl_timer timer = {0};
        sl_scratch_config config = {.device = "cpu",
                                    .threads = 1,
                                    .signature_bytes = 8 * MIB,
                                    .piece = MIB / 16,
                                    .most = most,
                                    .warmups = warmups,
                                    .n_warmups = SL_MOST_WARMUPS};
        CHECK_OK(sl_scratch_open(&config, &timer));
        CHECK_I64(timer.n_warmups, 1 + fits);
        CHECK_U64(timer.space, 8 * MIB);
        CHECK_U64(timer.clear_bytes, MIB);
        sl_timer_close(&timer);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(every_kind_gets_a_time);
    RUN(the_second_time_comes_from_the_file);
    RUN(large_updates_cost_by_their_length);
    RUN(threads_are_filed_by_their_number);
    RUN(a_damaged_file_is_repaired);
    RUN(cache_without_memory);
    RUN(scratch_memory_stays_in_the_budget);
    RUN(load_stays_in_the_budget);
    return test_end();
}
