/* The exact rows of `bench precision` (B6, B7, B9, S9), and what its measurements must show whatever their speed (S8).
 */
#include "bench/formats.h"
#include "core/bf16.h"
#include "run_bench.h"

static double rounded(sl_format_id id, double x)
{
    return sl_format_round(sl_format_of(id), x);
}

TEST(rounding)
{
    static const float values[] = {0.01f, 1e-8f, -3.14159f, 65504, 1e-40f, 1.0039f, 2.9e38f, -1e-39f, 255.5f};
    for (int64_t i = 0; i < SL_COUNT(values); i++) { /* against the bf16 of the kernels, and f32 itself */
        double x = (double) values[i];
        CHECK_NEAR(rounded(SL_FORMAT_BF16, x), (double) sl_bf16_to_f32(sl_f32_to_bf16(values[i])), 0);
        CHECK_NEAR(rounded(SL_FORMAT_F32, x), x, 0);
        CHECK_NEAR(rounded(SL_FORMAT_F32, x * (1 + 1e-9)), (double) (float) (x * (1 + 1e-9)), 0);
    }
    CHECK_NEAR(rounded(SL_FORMAT_F16, 0.01), 0.01000213623046875, 0);
    CHECK_NEAR(rounded(SL_FORMAT_F16, 65519), 65504, 0);
    CHECK(isinf(rounded(SL_FORMAT_F16, 65520)));
    CHECK_NEAR(rounded(SL_FORMAT_F16, 5.960464477539063e-08), 5.960464477539063e-08, 0); /* smallest subnormal */
    CHECK_NEAR(rounded(SL_FORMAT_F16, 2.98e-08), 0, 0);
    CHECK_NEAR(rounded(SL_FORMAT_F16, 2049), 2048, 0); /* ties to even */
    CHECK_NEAR(rounded(SL_FORMAT_F16, 2051), 2052, 0);
    CHECK_NEAR(rounded(SL_FORMAT_E4M3, 460), 448, 0);
    CHECK(isnan(rounded(SL_FORMAT_E4M3, 500)));
    CHECK(isinf(rounded(SL_FORMAT_E5M2, 70000)));
    CHECK_NEAR(rounded(SL_FORMAT_TF32, 1 + 0x1p-11), 1, 0);
    CHECK_NEAR(rounded(SL_FORMAT_TF32, 1 + 0x1p-10), 1 + 0x1p-10, 0);
}

static void check_printed(const char *table, int64_t row, const char *want)
{
    char text[32];
    snprintf(text, sizeof text, "%.6f", bench_number(table, row, "value"));
    CHECK_STR(text, want);
}

TEST(sums)
{
    check_printed("sums", 0, "10.000134");
    check_printed("sums", 1, "9.953125");
    check_printed("sums", 2, "10.002136");
    check_printed("sums", 3, "10.002136");
    check_printed("sums", 4, "4.000000");
    float sum = 0; /* the same in the machine's own arithmetic */
    for (int i = 0; i < 1000; i++)
        sum += 0.01f;
    CHECK_NEAR(bench_number("sums", 0, "value"), (double) sum, 0);
}

TEST(facts)
{
    int64_t f16 = bench_row("formats", "format", "f16"), bf16 = bench_row("formats", "format", "bf16");
    CHECK_NEAR(bench_number("formats", f16, "of_1e-8"), 0, 0);
    CHECK(bench_number("formats", bf16, "of_1e-8") > 0);
    CHECK_NEAR(bench_number("formats", f16, "largest"), 65504, 0);
    CHECK_NEAR(bench_number("formats", bench_row("formats", "format", "fp8 e4m3"), "largest"), 448, 0);
    CHECK_NEAR(bench_number("formats", bench_row("formats", "format", "fp8 e5m2"), "largest"), 57344, 0);
    CHECK_STR(bench_text("formats", f16, "loss_scaling"), "needed");
    CHECK_STR(bench_text("formats", bf16, "loss_scaling"), "not needed");
    sl_text text = {0};
    sl_results_text(bench_results, 0, &text);
    CHECK_CONTAINS(text.data, "2304 MiB");
    sl_text_free(&text);
    for (int id = 0; id < SL_FORMAT_COUNT; id++) { /* the limits are fixed points of rounding */
        const sl_format *f = sl_format_of((sl_format_id) id);
        CHECK_NEAR(sl_format_round(f, f->largest), f->largest, 0);
        CHECK_NEAR(sl_format_round(f, sl_format_smallest(f, true)), sl_format_smallest(f, true), 0);
    }
}

TEST(audit)
{
    static const char *const columns[] = {"parameters", "linear", "norm", "logits", "loss", "gradients"};
    static const char *const autocast[] = {"f32", "f16", "f32", "f16", "f32", "f32"};
    for (int64_t i = 0; i < SL_COUNT(columns); i++)
        CHECK_STR(bench_text("audit", 0, columns[i]), autocast[i]);
    int64_t master = bench_row("audit", "policy", "bf16-master"), bf16 = bench_row("audit", "policy", "bf16");
    CHECK_STR(bench_text("audit", master, "parameters"), "bf16");
    CHECK_STR(bench_text("audit", master, "master"), "f32");
    CHECK_STR(bench_text("audit", master, "moments"), "f32");
    CHECK_STR(bench_text("audit", bf16, "moments"), "bf16");
    CHECK_STR(bench_text("audit", bf16, "loss"), "f32");
    CHECK_STR(bench_text("audit", bench_row("audit", "policy", "f32"), "gradients"), "f32");
}

TEST(accumulation)
{
    double full = 0, reduced = 1; /* every reduced row is worse than every full one of 10 bits and more */
    for (int64_t r = 0; r < sl_table_rows(bench_table("accumulation")); r++) {
        double error = bench_number("accumulation", r, "mean_relative_error");
        bool is_full = strcmp(bench_text("accumulation", r, "verdict"), "full accumulation") == 0;
        bool fp8 = strncmp(bench_text("accumulation", r, "inputs"), "fp8", 3) == 0;
        if (is_full && !fp8)
            full = fmax(full, error);
        if (!is_full)
            reduced = fmin(reduced, error);
    }
    CHECK(full < 1e-4);
    CHECK(reduced > 10 * full);
    CHECK_I64(bench_number("device", 0, "f32_bits_used"), 23);
    CHECK_NEAR(bench_number("device", 0, "bf16_sum_of_ones"), 4096, 0);
}

TEST(loss_by_policy)
{
    CHECK_I64(sl_table_rows(bench_table("speed")), 3);
    double first = bench_number("speed", 0, "first_loss");
    for (int64_t r = 0; r < 3; r++) {
        CHECK_STR(bench_text("speed", r, "verdict"), "same loss");
        CHECK(fabs(bench_number("speed", r, "loss_difference")) < 2e-3 * first);
        CHECK(bench_number("speed", r, "step_ms") > 0);
    }
    CHECK_NEAR(bench_number("speed", 0, "loss_difference"), 0, 0);
    CHECK(bench_number("speed", 1, "loss_difference") != 0); /* bf16 really ran */
    CHECK_I64(sl_results_refused(bench_results), 0);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(rounding);
    CHECK_OK(bench_try("precision", "--quick --device cpu --threads 2"));
    CHECK(!sl_results_find(bench_results, "published"));
    RUN(sums);
    RUN(facts);
    RUN(audit);
    RUN(accumulation);
    RUN(loss_by_policy);
    CHECK_FAILS(bench_try("precision", "--quick --device cpu --models no-such-model"), SL_E_USAGE);
    sl_results_destroy(bench_results);
    return test_end();
}
