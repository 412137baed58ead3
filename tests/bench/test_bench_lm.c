/* `bench lm`: exact sizes, one loss whatever the path to it, a profile that adds up, and no hidden waiting. */
#include "bench/profile.h"
#include "bench/watch.h"
#include "run_bench.h"

TEST(sizes)
{
    static const struct {
        const char *size;
        double millions, tflop[4];
    } known[] = {{"tiny", 22.7, {.019, .038, .081, .178}},      {"small", 128.6, {.126, .257, .534, 1.145}},
                 {"medium", 423.2, {.429, .871, 1.794, 3.795}}, {"large", 969.4, {.992, 2.007, 4.111, 8.609}},
                 {"xl", 1998.2, {2.05, 4.14, 8.44, 17.5}},      {"2.7b", 3406.8, {3.48, 7.01, 14.2, 29.1}}};
    static const char *const columns[] = {"t128_tflop", "t256_tflop", "t512_tflop", "t1024_tflop"};
    for (int64_t i = 0; i < SL_COUNT(known); i++) {
        int64_t row = bench_row("sizes", "size", known[i].size);
        CHECK_NEAR(bench_number("sizes", row, "millions"), known[i].millions, 0.05);
        for (int c = 0; c < 4; c++) {
            double want = known[i].tflop[c];
            double half = want >= 10 ? 0.05 : want >= 2 && i > 3 ? 0.005 : 0.0005; /* of the last digit given */
            CHECK_NEAR(bench_number("sizes", row, columns[c]), want, half * 1.001);
        }
    }
}

TEST(times)
{
    CHECK_I64(sl_table_rows(bench_table("times")), 4); /* two contexts, two precisions */
    for (int64_t r = 0; r < 4; r++) {
        CHECK(bench_number("times", r, "forward_ms") > 0);
        CHECK(bench_number("times", r, "step_ms") > 0);
        CHECK(bench_number("times", r, "in_step_backward_ms") > 0);
        CHECK(bench_number("times", r, "in_step_optimizer_ms") > 0);
        CHECK_NEAR(bench_number("times", r, "loss"), log(256), 0.3); /* tokens are random: nothing to know */
    }
    CHECK(bench_number("times", 0, "loss") != bench_number("times", 1, "loss")); /* bf16 is bf16 */
    CHECK_I64(sl_results_refused(bench_results), 0);
}

TEST(warmup)
{
    static const int64_t want[] = {0, 1, 2, 5};
    CHECK_I64(sl_table_rows(bench_table("warmup")), 4);
    for (int64_t r = 0; r < 4; r++)
        CHECK_I64(bench_number("warmup", r, "warmup"), want[r]);
    CHECK_NEAR(bench_number("warmup", 0, "loss"), bench_number("times", 0, "loss"), 0); /* the same first step */
}

static double sum_of_shares(const char *table)
{
    double sum = 0;
    for (int64_t r = 0; r < sl_table_rows(bench_table(table)); r++)
        if (bench_cell(table, r, "share_percent")->kind == SL_CELL_NUMBER)
            sum += bench_number(table, r, "share_percent");
    return sum;
}

TEST(profile)
{
    CHECK_NEAR(sum_of_shares("profile_step"), 100, 1e-6);
    CHECK_NEAR(sum_of_shares("profile_forward"), 100, 1e-6);
    int64_t layers = 4; /* of byte-nano; a layer has four matrix products, and two more of each going back */
    CHECK_I64(bench_number("profile_forward", bench_row("profile_forward", "name", "matmul"), "calls"), 4 * layers);
    CHECK_I64(bench_number("profile_step", bench_row("profile_step", "name", "matmul"), "calls"), 12 * layers);
    CHECK_I64(bench_number("profile_step", bench_row("profile_step", "name", "attention_bwd"), "calls"), layers);
    CHECK_STR(bench_text("profile_step", bench_row("profile_step", "name", "matmul"), "category"), "dot-product");
    CHECK_STR(bench_text("profile_step", bench_row("profile_step", "name", "adamw"), "category"), "optimizer");
    double total = bench_number("profile_step", bench_row("profile_step", "name", "step"), "total_ms");
    double phases = 0;
    static const char *const names[] = {"forward", "backward"};
    for (int i = 0; i < 2; i++)
        phases += bench_number("profile_step", bench_row("profile_step", "name", names[i]), "total_ms");
    CHECK_MSG(phases <= total * 1.0001, "forward and backward take %g of a step's %g ms", phases, total);
}

static void check_summary(const char *question, double forward, double step)
{
    int64_t row = bench_row("profile_summary", "question", question);
    CHECK_NEAR(bench_number("profile_summary", row, "forward"), forward, 0);
    CHECK_NEAR(bench_number("profile_summary", row, "step"), step, 0);
}

TEST(nothing_waits)
{
    check_summary("implicit synchronisations", 0, 0);
    check_summary("explicit ones (the step's end)", 1, 1);
    check_summary("heap allocations", 0, 0);
    int64_t row = bench_row("profile_summary", "question", "device's clock over host's");
    double share = bench_number("profile_summary", row, "step");
    CHECK_MSG(share > 0 && share <= 100.01, "the device's clock shows %g %% of the host's", share);
}

/* A step is nearly all device's time. Where others want the cores too, the host may sleep on for longer than a step takes, so one
 * step in many is asked to show it. */
TEST(clocks_agree)
{
    sl_model model;
    sl_trial trial;
    sl_profile p = {0};
    double most = 0;
    CHECK_OK(sl_model_find("byte-nano", &model));
    sl_trial_config config = {.model = &model,
                              .seqlen = 64,
                              .batch = 4,
                              .precision = SL_PRECISION_F32,
                              .device = "cpu",
                              .threads = 1,
                              .seed = 1};
    CHECK_OK(sl_trial_open(&config, &trial));
    for (int i = 0; i < 200 && most <= 0.5; i++) {
        CHECK_OK(sl_profile_run(&trial, 1, &p));
        CHECK_MSG(p.end_s <= p.wall_s, "the device ended %g s after the step's begin, the host %g s", p.end_s,
                  p.wall_s);
        most = fmax(most, p.end_s / p.wall_s);
    }
    CHECK_MSG(most > 0.5, "the device's clock shows at most %g of the host's", most);
    sl_trial_close(&trial);
}

/* The watch sees what it is there for. */
TEST(watch_counts)
{
    sl_device *device;
    sl_watch watch;
    sl_device_config config = {.arena_bytes = {1 << 20, 1 << 20}, .threads = 1, .max_commands = 8, .max_events = 2};
    CHECK_OK(sl_device_open("cpu", &config, &device));
    sl_watch_open(&watch, device);
    const sl_device_class *class = watch.base.class;
    char bytes[16] = "sixteen bytes..";
    unsigned char *at = class->arena(&watch.base, SL_TIER_HOST), *to = class->arena(&watch.base, SL_TIER_DEVICE);
    CHECK_OK(class->write(&watch.base, SL_TIER_HOST, at, bytes, sizeof bytes));
    CHECK_I64(watch.implicit_syncs, 0);
    CHECK_OK(class->step_begin(&watch.base));
    CHECK_OK(class->copy(&watch.base, SL_STREAM_IN, to, at, sizeof bytes, NULL));
    CHECK(class->read(&watch.base, SL_TIER_HOST, bytes, at, sizeof bytes) != SL_OK); /* and the device refuses it */
    CHECK_OK(class->step_end(&watch.base));
    CHECK_I64(watch.implicit_syncs, 1);
    CHECK_I64(watch.explicit_syncs, 1);
    CHECK_I64(watch.copies, 1);
    CHECK_I64(watch.steps, 1);
    sl_device_close(device);
}

TEST(too_large_is_a_row)
{
    CHECK_OK(bench_try(
        "lm", "--quick --device cpu --threads 2 --contexts 32 --parts times --device-mem 1MiB --host-mem 1MiB"));
    CHECK_I64(sl_table_rows(bench_table("times")), 2);
    for (int64_t r = 0; r < 2; r++)
        CHECK_STR(bench_text("times", r, "device_memory"), "out of memory");
    /* Less device memory than everything takes, and room beside it: offloaded, and the loss of the first step stays. */
    CHECK_OK(bench_try("lm", "--quick --device cpu --threads 2 --contexts 32 --parts times --precisions f32"));
    CHECK(!sl_results_find(bench_results, "published")); /* others' figures only where they are wanted */
    double loss = bench_number("times", 0, "loss");
    CHECK_OK(bench_try("lm", "--quick --device cpu --threads 2 --contexts 32 --parts times --precisions f32 "
                             "--device-mem 4MiB"));
    CHECK_NEAR(bench_number("times", 0, "loss"), loss, 0);
}

/* Weights that repeat themselves are a run's own where no tensor is longer than what is drawn. */
TEST(repeated_weights)
{
    sl_model model;
    sl_trial trial;
    double loss[2], seconds;
    CHECK_OK(sl_model_find("byte-nano", &model));
    for (int i = 0; i < 2; i++) {
        sl_trial_config config = {.model = &model,
                                  .seqlen = 32,
                                  .batch = 2,
                                  .precision = SL_PRECISION_BF16_MASTER,
                                  .device = "cpu",
                                  .threads = 1,
                                  .seed = 1,
                                  .most_drawn = i ? 1 : 0};
        CHECK_OK(sl_trial_open(&config, &trial));
        for (int step = 0; step < 2; step++) /* the second sees master weights and moments */
            CHECK_OK(sl_trial_step(&trial, &seconds));
        CHECK_OK(sl_trial_loss(&trial, &loss[i]));
        sl_trial_close(&trial);
    }
    CHECK_NEAR(loss[1], loss[0], 0);
}

/* Limits cut steps, never below three; a policy the device lacks is a row. */
TEST(short_rows)
{
    CHECK_OK(bench_try("lm", "--quick --device cpu --contexts 32 --parts times --precisions f32,tf32 --steps 50 "
                             "--cell-seconds 1e-9"));
    CHECK_I64(bench_number("times", 0, "steps"), 3);
    CHECK_STR(bench_text("times", 1, "device_memory"), "not offered by this device");
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    CHECK_OK(bench_try("lm", "--quick --device cpu --threads 2 --published"));
    CHECK(sl_results_find(bench_results, "published") != NULL);
    RUN(sizes);
    RUN(times);
    RUN(warmup);
    RUN(profile);
    RUN(nothing_waits);
    RUN(clocks_agree);
    RUN(watch_counts);
    CHECK_FAILS(bench_try("lm", "--quick --device cpu --precisions f64"), SL_E_USAGE);
    RUN(too_large_is_a_row);
    RUN(repeated_weights);
    RUN(short_rows);
    sl_results_destroy(bench_results);
    return test_end();
}
