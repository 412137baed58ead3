/* `bench memory`: exact residuals, peaks that grow with the context and are met when run, a timeline that reaches its
 * peak. */
#include "run_bench.h"

TEST(residuals)
{
    static const double want[] = {5, 10, 20};
    for (int64_t r = 0; r < 3; r++) {
        CHECK_NEAR(bench_number("residual", r, "mib"), want[r], 0);
        CHECK_NEAR(bench_number("residual", r, "formula_mib"), want[r], 0);
    }
}

static double peak(double context, const char *precision, const char *pass, const char *column)
{
    for (int64_t r = 0; r < sl_table_rows(bench_table("peaks")); r++)
        if (bench_number("peaks", r, "context") == context &&
            strcmp(bench_text("peaks", r, "precision"), precision) == 0 &&
            strcmp(bench_text("peaks", r, "pass"), pass) == 0)
            return bench_number("peaks", r, column);
    printf("no row for context %g, %s, %s\n", context, precision, pass);
    REQUIRE(false);
    return 0;
}

TEST(peaks)
{
    CHECK_I64(sl_table_rows(bench_table("peaks")), 3 * 2 * 2);
    for (int64_t r = 0; r < sl_table_rows(bench_table("peaks")); r++) {
        CHECK_STR(bench_text("peaks", r, "verdict"), "as planned");
        CHECK(bench_number("peaks", r, "alive_mib") <= bench_number("peaks", r, "device_mib"));
        CHECK_NEAR(bench_number("peaks", r, "measured_mib"), bench_number("peaks", r, "device_mib"),
                   0.05 * bench_number("peaks", r, "device_mib"));
    }
    static const double contexts[] = {32, 64, 128};
    for (int i = 1; i < 3; i++)
        for (int step = 0; step < 2; step++) {
            const char *pass = step ? "step" : "forward";
            CHECK(peak(contexts[i], "f32", pass, "alive_mib") > peak(contexts[i - 1], "f32", pass, "alive_mib"));
        }
    for (int i = 0; i < 3; i++) {
        CHECK(peak(contexts[i], "f32", "step", "device_mib") > peak(contexts[i], "f32", "forward", "device_mib"));
        CHECK_NEAR(peak(contexts[i], "f32", "forward", "gradients_mib"), 0, 0);
        CHECK_NEAR(peak(contexts[i], "f32", "forward", "optimizer_mib"), 0, 0);
    }
    /* Parameters: 803,968 of them, 4 and 2 bytes each, groups padded to 256 bytes. */
    CHECK_NEAR(peak(128, "f32", "forward", "parameters_mib"), 803968.0 * 4 / (1 << 20), 0.02);
    CHECK_NEAR(peak(128, "bf16-master", "forward", "parameters_mib"), 803968.0 * 2 / (1 << 20), 0.02);
    CHECK_I64(sl_results_refused(bench_results), 0);
}

TEST(timeline)
{
    int64_t peaks = 0;
    double most = 0, before = -1;
    for (int64_t r = 0; r < sl_table_rows(bench_table("timeline")); r++) {
        double alive = bench_number("timeline", r, "alive_mib"), sum = 0;
        static const char *const parts[] = {"parameters_mib", "gradients_mib", "optimizer_mib", "activations_mib",
                                            "workspace_mib"};
        for (int64_t i = 0; i < SL_COUNT(parts); i++)
            sum += bench_number("timeline", r, parts[i]);
        CHECK_MSG(sum <= alive + 1e-9 && sum > 0.9 * alive, "row %lld: parts add up to %g of %g MiB", (long long) r,
                  sum, alive);
        most = fmax(most, alive);
        peaks += bench_number("timeline", r, "is_peak") == 1;
        CHECK(bench_number("timeline", r, "action") > before);
        before = bench_number("timeline", r, "action");
    }
    CHECK_I64(peaks, 1);
    CHECK_NEAR(most, peak(128, "f32", "step", "alive_mib"), 1e-9);
}

TEST(largest)
{
    double before = INFINITY;
    bool gate_up = false;
    CHECK_I64(sl_table_rows(bench_table("largest")), 15);
    for (int64_t r = 0; r < 15; r++) {
        double mib = bench_number("largest", r, "mib");
        CHECK(mib <= before && mib > 0);
        before = mib;
        CHECK(bench_text("largest", r, "origin")[0] != 0);
        if (strcmp(bench_text("largest", r, "tensor"), "layers.0.gate_up") == 0) {
            gate_up = true; /* 512 tokens x 2 x 352 x 4 bytes, made by the matrix product of that name */
            CHECK_NEAR(mib, 512.0 * 704 * 4 / (1 << 20), 0);
            CHECK_CONTAINS(bench_text("largest", r, "origin"), "layers.0.gate_up forward (matmul)");
        }
    }
    CHECK(gate_up);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    CHECK_OK(bench_try("memory", "--quick --device cpu --threads 2"));
    RUN(residuals);
    RUN(peaks);
    RUN(timeline);
    RUN(largest);
    CHECK_FAILS(bench_try("memory", "--quick --device cpu --precisions f8"), SL_E_USAGE);
    sl_results_destroy(bench_results);
    return test_end();
}
