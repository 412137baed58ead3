/* `bench ops` leaves no op out, and every row of a right device is as the reference. */
#include "bench/roofline.h"
#include "ops/shapes.h"
#include "run_bench.h"

TEST(every_op_has_rows)
{
    for (int op = 0; op < SL_OP_COUNT; op++) {
        int64_t rows = 0;
        const char *name = sl_op((sl_op_id) op)->name;
        for (int64_t r = 0; r < sl_table_rows(bench_table("ops")); r++) {
            const char *row = bench_text("ops", r, "op");
            size_t length = strlen(name);
            rows += strncmp(row, name, length) == 0 && (row[length] == 0 || row[length] == ' ');
        }
        CHECK_MSG(rows > 0, "there is no row of %s", name);
    }
}

TEST(rows_are_right)
{
    for (int64_t r = 0; r < sl_table_rows(bench_table("ops")); r++) {
        CHECK_STR(bench_text("ops", r, "verdict"), "as the reference");
        CHECK(bench_number("ops", r, "mean_us") > 0);
        CHECK(bench_number("ops", r, "gbps") > 0);
        CHECK(bench_number("ops", r, "roofline_percent") > 0);
    }
    int64_t matmul = bench_row("ops", "op", "matmul x W^T");
    CHECK_STR(bench_text("ops", matmul, "category"), "dot-product");
    CHECK_STR(bench_text("ops", bench_row("ops", "op", "rmsnorm"), "category"), "reduction");
    CHECK_STR(bench_text("ops", bench_row("ops", "op", "add"), "category"), "elementwise");
    CHECK_I64(sl_results_refused(bench_results), 0);
}

/* 2 m n k over a peak, bytes over a bandwidth: the longer of the two. */
TEST(roofline)
{
    sl_roofline r = {.flops = {[SL_F32] = 100, [SL_BF16] = 200}, .bytes = 10};
    sl_work arithmetic = {.flops = 1000, .hardware_flops = 1000, .read_bytes = 20, .write_bytes = 10};
    sl_work memory = {.read_bytes = 500, .write_bytes = 500};
    CHECK_NEAR(sl_roofline_seconds(&r, SL_F32, &arithmetic), 10, 0);
    CHECK_NEAR(sl_roofline_seconds(&r, SL_BF16, &arithmetic), 5, 0);
    CHECK_NEAR(sl_roofline_seconds(&r, SL_F32, &memory), 100, 0);
}

/* A reader of the file finds the roof that the shares were taken of. */
TEST(machine_has_the_roof)
{
    static const char *const keys[] = {
        "\"peak_flops\":", "\"peak_flops_f32\":", "\"peak_flops_bf16\":", "\"memory_bandwidth\":"};
    sl_json_writer w = {0};
    sl_results_json(bench_results, &w);
    for (int64_t i = 0; i < SL_COUNT(keys); i++)
        CHECK_CONTAINS(w.text.data, keys[i]);
    sl_text_free(&w.text);
}

/* Where cores are the device's own, load comes before each run and takes no memory of the caller's; the squares of a
 * roofline fit whatever there is. */
TEST(hot_rig)
{
    sl_rig rig;
    double best = 0, seconds;
    int64_t side = 0;
    sl_launch launch;
    CHECK_OK(sl_rig_open_warm("sim", 1, (size_t) 96 << 20, &rig));
    CHECK(rig.timer.n_warmups == 1 && rig.timer.warmups[0].times >= 1 && rig.twin != NULL);
    CHECK(rig.used == 0 && rig.bytes >= (size_t) 96 << 20);
    CHECK_OK(sl_roofline_product(&rig, SL_F32, 1e12, 1, &best, &side));
    CHECK(side >= 512 && 3 * (size_t) (side * side) * 4 < rig.bytes);
    CHECK_OK(sl_rig_matmul(&rig, SL_BF16, 256, 256, 256, &launch));
    CHECK_OK(sl_rig_run(&rig, &launch, 1, &seconds));
    CHECK_MSG(seconds < 1e-3, "the warmup's time is part of the run's: %g s", seconds);
    sl_rig_close(&rig);
    CHECK_OK(sl_rig_open_warm("cpu", 1, (size_t) 1 << 20, &rig));
    CHECK(rig.timer.n_warmups == 0 && rig.twin == NULL);
    sl_rig_close(&rig);
}

TEST(kernels_of_every_instruction_set)
{
    CHECK_OK(bench_try("ops", "--quick --device cpu --kernels all --ops rmsnorm --threads 1"));
    int64_t scalar = 0;
    for (int64_t r = 0; r < sl_table_rows(bench_table("ops")); r++)
        scalar += strcmp(bench_text("ops", r, "kernels"), "cpu scalar") == 0;
    CHECK_I64(scalar, 4); /* forward and backward, two dtypes */
    CHECK(getenv("SLUICE_ISA") == NULL || strcmp(getenv("SLUICE_ISA"), "amx") != 0);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    CHECK_OK(bench_try("ops", "--quick --device cpu --threads 2"));
    RUN(every_op_has_rows);
    RUN(rows_are_right);
    RUN(roofline);
    RUN(machine_has_the_roof);
    RUN(hot_rig);
    RUN(kernels_of_every_instruction_set);
    sl_results_destroy(bench_results);
    return test_end();
}
