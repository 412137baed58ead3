/* Two ways to one result: naive and tiled attention agree, forward and backward; memory is as counted; what does not
 * fit is a row. */
#include "bench/attention_case.h"
#include "bench/guard.h"
#include "bench/tile_reference.h"
#include "run_bench.h"

static float *results[2][SL_ITEM_OPERANDS];

static void run_way(sl_rig *rig, sl_region *region, const sl_attention_shape *s, bool naive, int64_t rows,
                    const sl_attention_data *data, float **out)
{
    static const int which[] = {SL_ITEM_O, SL_ITEM_DQ, SL_ITEM_DK, SL_ITEM_DV};
    sl_attention_case c;
    double seconds, error;
    rig->used = 0;
    CHECK_OK(naive ? sl_attention_naive(rig, region, s, data, &c) : sl_attention_tiled(rig, region, s, rows, data, &c));
    CHECK_OK(sl_rig_run(rig, c.forward, c.n_forward, &seconds));
    CHECK_OK(sl_rig_run(rig, c.backward, c.n_backward, &seconds));
    CHECK_OK(sl_attention_check(rig, &c, data, &error));
    CHECK_MSG(error < (s->dtype == SL_BF16 ? 2e-2 : 1e-5), "rows differ by %g from exact ones", error);
    for (int i = 0; i < 4; i++) {
        CHECK_OK(sl_region_alloc(region, &out[which[i]], s->batch * s->heads * s->seqlen * s->dim, sizeof(float)));
        CHECK_OK(sl_attention_read(rig, &c, which[i], out[which[i]]));
    }
}

static void check_shape(sl_rig *rig, sl_attention_shape s, int64_t rows)
{
    static const int which[] = {SL_ITEM_O, SL_ITEM_DQ, SL_ITEM_DK, SL_ITEM_DV};
    sl_region *region;
    sl_attention_data data;
    CHECK_OK(sl_region_create(&region));
    CHECK_OK(sl_attention_draw(region, &s, 3, &data));
    run_way(rig, region, &s, true, 0, &data, results[0]);
    run_way(rig, region, &s, false, rows, &data, results[1]);
    for (int i = 0; i < 4; i++) {
        int64_t n = s.batch * s.heads * s.seqlen * s.dim;
        double error = sl_guard_error_f32(results[1][which[i]], results[0][which[i]], n);
        double allowed = s.dtype == SL_BF16 ? 3e-2 : 1e-5;
        CHECK_MSG(error <= allowed, "%s %lld x %lld x %lld x %lld causal %d rows %lld: result %d differs by %g",
                  sl_dtype_name(s.dtype), (long long) s.batch, (long long) s.heads, (long long) s.seqlen,
                  (long long) s.dim, s.causal, (long long) rows, which[i], error);
    }
    sl_region_destroy(region);
}

TEST(naive_and_tiled_agree)
{
    sl_rig rig;
    CHECK_OK(sl_rig_open("cpu", 2, (size_t) 64 << 20, &rig));
    for (int causal = 0; causal < 2; causal++)
        for (int dtype = SL_F32; dtype <= SL_BF16; dtype++) {
            check_shape(&rig, (sl_attention_shape){4, 1, 128, 64, causal, (sl_dtype) dtype}, 0);
            check_shape(&rig, (sl_attention_shape){2, 3, 65, 16, causal, (sl_dtype) dtype}, 0);
        }
    check_shape(&rig, (sl_attention_shape){1, 2, 96, 32, true, SL_F32}, 16); /* slices, gradients of K and V added up */
    check_shape(&rig, (sl_attention_shape){1, 2, 100, 32, true, SL_F32}, 32);
    sl_rig_close(&rig);
}

/* The guard sees a wrong result: here, one row of the output is changed. */
TEST(wrong_rows_are_seen)
{
    sl_rig rig;
    sl_region *region;
    sl_attention_data data;
    sl_attention_case c;
    sl_attention_shape s = {1, 1, 64, 16, true, SL_F32};
    double seconds, error;
    float row[16] = {0};
    CHECK_OK(sl_rig_open("cpu", 1, (size_t) 16 << 20, &rig));
    CHECK_OK(sl_region_create(&region));
    CHECK_OK(sl_attention_draw(region, &s, 3, &data));
    CHECK_OK(sl_attention_tiled(&rig, region, &s, 0, &data, &c));
    CHECK_OK(sl_rig_run(&rig, c.forward, 1, &seconds));
    CHECK_OK(sl_rig_run(&rig, c.backward, 1, &seconds));
    CHECK_OK(sl_attention_check(&rig, &c, &data, &error));
    CHECK(error < 1e-5);
    sl_operand last = c.o;
    last.data = (unsigned char *) c.o.data + 63 * 16 * sizeof(float);
    last.type = sl_type_1d(SL_F32, 16);
    CHECK_OK(sl_rig_write(&rig, &last, row));
    CHECK_OK(sl_attention_check(&rig, &c, &data, &error));
    CHECK(error > 0.5);
    sl_region_destroy(region);
    sl_rig_close(&rig);
}

/* The plain tiled algorithm at odd tiles and lengths, causal and not, against exact rows; and its lse against the
 * definition. */
TEST(plain_tiles)
{
    static const int64_t tiles[] = {16, 48, 64, 100};
    sl_region *region;
    sl_pool *pool;
    CHECK_OK(sl_pool_create(2, &pool));
    for (int causal = 0; causal < 2; causal++) {
        sl_attention_shape s = {1, 2, 100, 24, causal, SL_F32};
        sl_attention_data data;
        float o[2 * 100 * 24], lse[2 * 100];
        double p[100], want[24], dq[24];
        CHECK_OK(sl_region_create(&region));
        CHECK_OK(sl_attention_draw(region, &s, 5, &data));
        for (int64_t i = 0; i < SL_COUNT(tiles); i++) {
            CHECK_OK(sl_tile_forward(&s, &data, tiles[i], SL_ON_CHIP_BYTES, pool, o, lse));
            for (int64_t item = 0; item < 2; item++)
                for (int64_t row = 0; row < 100; row++) {
                    double error = 0, sum = 0;
                    sl_attention_exact(&s, &data, item, row, p, want, dq);
                    for (int c = 0; c < 24; c++)
                        error = fmax(error, fabs(want[c] - (double) o[(item * 100 + row) * 24 + c]));
                    CHECK_MSG(error < 1e-5, "tile %lld, row %lld: off by %g", (long long) tiles[i], (long long) row,
                              error);
                    for (int64_t j = 0; j < (causal ? row + 1 : 100); j++) {
                        double s_ij = 0;
                        for (int c = 0; c < 24; c++)
                            s_ij += (double) data.q[(item * 100 + row) * 24 + c] *
                                    (double) data.k[(item * 100 + j) * 24 + c];
                        sum += exp(s_ij / sqrt(24));
                    }
                    CHECK_NEAR(lse[item * 100 + row], log(sum), 1e-4);
                }
        }
        CHECK_FAILS(sl_tile_forward(&s, &data, 256, SL_ON_CHIP_BYTES, pool, o, lse), SL_E_DOES_NOT_FIT);
        sl_region_destroy(region);
    }
    sl_pool_destroy(pool);
}

TEST(formulas)
{
    sl_attention_shape s = {1, 16, 16384, 64, true, SL_BF16};
    CHECK_NEAR(1e-12 * sl_attention_flops(&s, false), 0.550, 0.0005);
    CHECK_NEAR(1e-12 * (sl_attention_flops(&s, false) + sl_attention_flops(&s, true)), 1.924, 0.0005);
    sl_attention_shape grid = {8, 1, 8192, 64, false, SL_F32}; /* 8 x 8192^2 x 4 = 2 GiB for each square matrix */
    CHECK_NEAR(sl_attention_account(&grid, true, false) / (1 << 20), 2 * 2048 + 4 * 16, 1);
    CHECK(sl_attention_account(&grid, false, true) < 140e6);
}

static void check_rows(const char *table)
{
    for (int64_t r = 0; r < sl_table_rows(bench_table(table)); r++) {
        const char *evaluated = bench_text(table, r, "verdict");
        bool fits = strcmp(evaluated, "out of memory") != 0;
        CHECK_MSG(!fits || strcmp(evaluated, "right") == 0, "%s, row %lld: %s", table, (long long) r, evaluated);
        if (!fits) { /* a row all the same, with what it would take */
            CHECK(bench_cell(table, r, "forward_ms")->kind == SL_CELL_NONE);
            CHECK(bench_number(table, r, "accounted_mib") > 6);
            continue;
        }
        double kept = bench_number(table, r, "memory_mib") - bench_number(table, r, "workspace_mib");
        CHECK_NEAR(kept, bench_number(table, r, "accounted_mib"), 0.05 * bench_number(table, r, "accounted_mib"));
        CHECK(bench_number(table, r, "forward_ms") > 0 && bench_number(table, r, "backward_ms") > 0);
    }
}

TEST(grid)
{
    CHECK_I64(sl_table_rows(bench_table("grid")), 2 * 2 * 2 * 2);
    check_rows("grid");
}

/* Twice as long: twice the memory tiled, nearly four times naive. */
TEST(memory_over_length)
{
    double before[2] = {0, 0};
    int64_t refused = 0;
    check_rows("long");
    for (int64_t r = 0; r < sl_table_rows(bench_table("long")); r++) {
        bool naive = strcmp(bench_text("long", r, "way"), "naive") == 0;
        if (strcmp(bench_text("long", r, "verdict"), "out of memory") == 0) {
            CHECK(naive);
            refused++;
            continue;
        }
        double kept = bench_number("long", r, "memory_mib") - bench_number("long", r, "workspace_mib");
        if (bench_number("long", r, "seqlen") > 128) {
            double growth = kept / before[naive];
            CHECK_MSG(naive ? growth > 2.5 && growth < 4 : growth > 1.9 && growth < 2.1, "%s: memory grows %g times",
                      naive ? "naive" : "tiled", growth);
        }
        before[naive] = kept;
    }
    CHECK_I64(refused, 1); /* f32 at 1024 does not fit 12 MiB naively, and does tiled */
}

TEST(tiles_and_leaderboard)
{
    CHECK_I64(sl_table_rows(bench_table("tile_reference")), 5);
    for (int64_t r = 0; r < 5; r++) { /* larger tiles: more on chip, less traffic, until there is no room */
        CHECK_STR(bench_text("tile_reference", r, "verdict"), r < 4 ? "right" : "out of on-chip memory");
        if (r > 0) {
            CHECK(bench_number("tile_reference", r, "on_chip_kib") >
                  bench_number("tile_reference", r - 1, "on_chip_kib"));
            CHECK(bench_number("tile_reference", r, "traffic_mib") <
                  bench_number("tile_reference", r - 1, "traffic_mib"));
        }
    }
    CHECK(sl_table_rows(bench_table("tiles")) >= 5);
    for (int64_t r = 0; r < sl_table_rows(bench_table("tiles")); r++)
        CHECK_STR(bench_text("tiles", r, "verdict"), "right");
    CHECK_STR(bench_text("leaderboard", 0, "verdict"), "right");
    int64_t published = bench_row("leaderboard", "way", "published, verified");
    CHECK_NEAR(bench_number("leaderboard", published, "tflops"), 359, 0.5);
    CHECK_I64(sl_results_refused(bench_results), 0);
}

/* What would take seconds a pass is foretold by a shorter length and not run. */
TEST(too_long_is_a_row)
{
    CHECK_OK(bench_try("attention",
                       "--quick --device cpu --threads 1 --parts grid --dims 16 --seqlens 512,65536 --batch 1 "
                       "--dtypes f32 --cell-seconds 0.01"));
    CHECK_I64(sl_table_rows(bench_table("grid")), 4);
    CHECK(!sl_results_find(bench_results, "published"));
    for (int64_t r = 2; r < 4; r++)
        CHECK_MSG(strncmp(bench_text("grid", r, "verdict"), "left out: about ", 16) == 0, "%s",
                  bench_text("grid", r, "verdict"));
    CHECK_STR(bench_text("grid", 1, "verdict"), "right");
    CHECK_I64(sl_results_refused(bench_results), 0);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(naive_and_tiled_agree);
    RUN(wrong_rows_are_seen);
    RUN(plain_tiles);
    RUN(formulas);
    CHECK_OK(bench_try("attention", "--quick --device cpu --threads 2 --published"));
    RUN(grid);
    RUN(memory_over_length);
    RUN(tiles_and_leaderboard);
    RUN(too_long_is_a_row);
    CHECK_FAILS(bench_try("attention", "--quick --device cpu --dtypes f16"), SL_E_USAGE);
    CHECK_FAILS(bench_try("attention", "--quick --device cpu --parts everything"), SL_E_USAGE);
    sl_results_destroy(bench_results);
    return test_end();
}
