/* Statistics, the guard, and the three ways results are shown. */
#include "bench/guard.h"
#include "core/stats.h"
#include "run_bench.h"

TEST(statistics)
{
    sl_stats s;
    double some[] = {4, 1, 3, 2}, one[] = {7}, odd[] = {9, 1, 5}, far[] = {1e9 + 1, 1e9 + 2, 1e9 + 3};
    sl_stats_of(some, 4, &s);
    CHECK_I64(s.n, 4);
    CHECK_NEAR(s.mean, 2.5, 1e-12);
    CHECK_NEAR(s.std, 1.2909944487358056, 1e-12);
    CHECK_NEAR(s.median, 2.5, 0);
    CHECK_NEAR(s.min, 1, 0);
    CHECK_NEAR(s.max, 4, 0);
    sl_stats_of(one, 1, &s);
    CHECK_NEAR(s.mean, 7, 0);
    CHECK_NEAR(s.std, 0, 0);
    sl_stats_of(odd, 3, &s);
    CHECK_NEAR(s.median, 5, 0);
    sl_stats_of(far, 3, &s);
    CHECK_NEAR(s.std, 1, 1e-6);
    sl_stats_of(NULL, 0, &s);
    CHECK_NEAR(s.mean, 0, 0);
}

/* Mean of the values of each segment, as three people wrote it: sums and counts by two scatters; segment by segment;
 * and the third, who divided but returned what he had before. */
enum { VALUES = 12, SEGMENTS = 3 };
static const int segment_of[VALUES] = {0, 2, 1, 1, 0, 2, 2, 0, 1, 2, 2, 2};

static void mean_by_scatter(const float *x, float *out)
{
    float count[SEGMENTS] = {0};
    memset(out, 0, SEGMENTS * sizeof *out);
    for (int i = 0; i < VALUES; i++)
        out[segment_of[i]] += x[i], count[segment_of[i]]++;
    for (int s = 0; s < SEGMENTS; s++)
        out[s] /= count[s];
}

static void mean_by_segment(const float *x, float *out)
{
    for (int s = 0; s < SEGMENTS; s++) {
        double sum = 0;
        int count = 0;
        for (int i = 0; i < VALUES; i++)
            if (segment_of[i] == s)
                sum += (double) x[i], count++;
        out[s] = (float) (sum / count);
    }
}

static void mean_undivided(const float *x, float *out)
{
    float count[SEGMENTS] = {0}, divided[SEGMENTS];
    memset(out, 0, SEGMENTS * sizeof *out);
    for (int i = 0; i < VALUES; i++)
        out[segment_of[i]] += x[i], count[segment_of[i]]++;
    for (int s = 0; s < SEGMENTS; s++)
        divided[s] = out[s] / count[s];
    CHECK(divided[0] == divided[0]);
}

TEST(guard_refuses_other_results)
{
    float x[VALUES], baseline[SEGMENTS], got[SEGMENTS];
    sl_results *results;
    CHECK_OK(sl_results_create("bench", "guard", &results));
    for (int i = 0; i < VALUES; i++)
        x[i] = (float) (i * i % 7) + 0.25f;
    mean_by_scatter(x, baseline);
    mean_by_segment(x, got);
    CHECK(sl_guard(results, "by segment", sl_guard_error_f32(got, baseline, SEGMENTS), 1e-6));
    CHECK_I64(sl_results_refused(results), 0);
    mean_undivided(x, got);
    CHECK(!sl_guard(results, "undivided", sl_guard_error_f32(got, baseline, SEGMENTS), 1e-6));
    CHECK_I64(sl_results_refused(results), 1);
    got[0] = NAN;
    CHECK(isinf(sl_guard_error_f32(got, baseline, SEGMENTS)));
    CHECK(!sl_guard(results, "not a number", (double) NAN, 1e-6));
    sl_text text = {0};
    sl_results_text(results, 0, &text);
    CHECK_CONTAINS(text.data, "undivided: no speed is reported");
    sl_text_free(&text);
    sl_results_destroy(results);
}

static sl_results *example(int tables)
{
    sl_results *results;
    CHECK_OK(sl_results_create("bench", "example", &results));
    sl_results_fact(results, "cpu", sl_cell_text("a \"fast\" one"));
    for (int i = 0; i < tables; i++) {
        sl_table *t = sl_results_table(results, i ? "second" : "first", "A table", "name time_ms:ms.2* count good");
        SL_ROW(t, "é", 12.345, 1234567, sl_cell_flag(true));
        SL_ROW(t, "long name", NAN, sl_cell_none(), sl_cell_flag(false));
        SL_ROW(t, "half", 6.1725, 1, sl_cell_flag(false));
    }
    sl_results_note(results, "%d tables", tables);
    CHECK_OK(sl_results_status(results));
    return results;
}

TEST(text)
{
    sl_results *results = example(1);
    sl_text plain = {0}, wide = {0};
    sl_results_text(results, 0, &plain);
    CHECK_STR(plain.data, "cpu  a \"fast\" one\n\nA table\n  name       time ms      count  good\n"
                          "  é            12.35  1,234,567  yes\n  long name        -          -  no\n"
                          "  half          6.17          1  no\n\n1 tables\n");
    sl_results_text(results, 100, &wide);
    CHECK_CONTAINS(wide.data, "yes   ████████████████\n");
    CHECK_CONTAINS(wide.data, "no    ████████\n");
    sl_text_free(&plain);
    sl_text_free(&wide);
    sl_results_destroy(results);
}

TEST(json)
{
    sl_region *region;
    const sl_json *root;
    for (int tables = 1; tables <= 2; tables++) {
        sl_json_writer w = {0};
        sl_results *results = example(tables);
        sl_results_json(results, &w);
        CHECK_OK(sl_text_status(&w.text));
        CHECK_OK(sl_region_create(&region));
        CHECK_OK(sl_json_parse(region, "results", w.text.data, w.text.length, &root));
        CHECK_STR(sl_json_get(root, "kind")->string, "bench");
        CHECK_STR(sl_json_get(root, "name")->string, "example");
        CHECK_STR(sl_json_get(sl_json_get(root, "machine"), "cpu")->string, "a \"fast\" one");
        const sl_json *table = tables == 1 ? root : sl_json_get(root, "tables")->child;
        CHECK_I64(sl_json_get(table, "columns")->count, 4);
        CHECK_STR(sl_json_get(sl_json_get(table, "columns")->child->next, "unit")->string, "ms");
        const sl_json *row = sl_json_get(table, "rows")->child;
        CHECK_NEAR(sl_json_get(row, "time_ms")->number, 12.345, 0);
        CHECK_I64(sl_json_get(row, "count")->integer, 1234567);
        CHECK(sl_json_get(row->next, "time_ms")->kind == SL_JSON_NULL);
        sl_region_destroy(region);
        sl_text_free(&w.text);
        sl_results_destroy(results);
    }
}

TEST(lists)
{
    int64_t numbers[3], n;
    CHECK_OK(sl_list_i64("x", "1, 2k,3", 1, 3, numbers, &n));
    CHECK_I64(n, 3);
    CHECK_I64(numbers[1], 2048);
    CHECK_FAILS(sl_list_i64("x", "1,2,3,4", 1, 3, numbers, &n), SL_E_USAGE);
    CHECK_FAILS(sl_list_i64("x", "", 1, 3, numbers, &n), SL_E_USAGE);
    CHECK_FAILS(sl_list_i64("x", "1,z", 1, 3, numbers, &n), SL_E_USAGE);
    CHECK_FAILS(sl_list_i64("x", "0", 1, 3, numbers, &n), SL_E_USAGE);
}

TEST(common_options)
{
    CHECK_FAILS(bench_try("flops", "--steps 0"), SL_E_USAGE);
    CHECK_FAILS(bench_try("flops", "--threads 4000"), SL_E_USAGE);
    CHECK_FAILS(bench_try("flops", "--surprise"), SL_E_USAGE);
    CHECK_OK(bench_try("flops", "--sides 14"));
    sl_results_destroy(bench_results);
}

/* What fails on the way leaves its reason behind, not less than was measured. */
TEST(ending_early)
{
    sl_results *results;
    sl_text text = {0};
    CHECK_OK(sl_results_create("bench", "x", &results));
    sl_table *t = sl_results_table(results, "t", "T", "n");
    SL_ROW(t, 42);
    CHECK(!sl_results_incomplete(results));
    CHECK(sl_fail(SL_E_DEVICE, "the fan fell off") == SL_E_DEVICE);
    sl_results_end_early(results);
    CHECK(sl_results_incomplete(results) && sl_results_refused(results) == 0);
    sl_results_text(results, 0, &text);
    CHECK_CONTAINS(text.data, "42");
    CHECK_CONTAINS(text.data, "The bench ended early: the fan fell off");
    sl_text_free(&text);
    sl_results_destroy(results);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(statistics);
    RUN(guard_refuses_other_results);
    RUN(text);
    RUN(json);
    RUN(lists);
    RUN(common_options);
    RUN(ending_early);
    return test_end();
}
