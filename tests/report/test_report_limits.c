/* What limited a run, on runs made to be limited by each thing in turn. */
#include "logs.h"
#include "report/limits.h"

static sl_verdict verdict_of(made_step m)
{
    sl_text text = {0};
    sl_verdict v;
    make_log(&m, &text);
    CHECK_OK(sl_text_status(&text));
    sl_input *input = read_log(text.data);
    REQUIRE(input->log && sl_limits(input->log, &v));
    sl_input_destroy(input);
    sl_text_free(&text);
    double sum = 0;
    for (int i = 0; i < SL_BOUND_COUNT; i++)
        sum += v.seconds[i];
    CHECK_NEAR(sum, v.step_s, 1e-12);
    return v;
}

TEST(compute)
{
    sl_verdict v = verdict_of((made_step){.matmul_s = 0.8, .norm_s = 0.1});
    CHECK_I64(v.limit, SL_BOUND_COMPUTE);
    CHECK_NEAR(v.seconds[SL_BOUND_COMPUTE], 0.8, 1e-12);
    CHECK_NEAR(v.seconds[SL_BOUND_BANDWIDTH], 0.1, 1e-12);
    CHECK_NEAR(v.seconds[SL_BOUND_OVERHEAD], 0.1, 1e-12);
    CHECK_NEAR(v.step_s, 1, 1e-12);
    CHECK_CONTAINS(v.sentence, "Limited by compute: 80.0 %");
    CHECK(v.measured);
}

TEST(memory_bandwidth)
{
    CHECK_I64(verdict_of((made_step){.matmul_s = 0.3, .norm_s = 0.6}).limit, SL_BOUND_BANDWIDTH);
    /* The optimizer beside host memory is limited by that memory. */
    CHECK_I64(verdict_of((made_step){.matmul_s = 0.3, .wait_host_s = 0.6}).limit, SL_BOUND_BANDWIDTH);
}

TEST(memory_size)
{
    sl_verdict v = verdict_of((made_step){.matmul_s = 0.4, .recomputed_s = 0.5});
    CHECK_I64(v.limit, SL_BOUND_SIZE);
    CHECK_NEAR(v.seconds[SL_BOUND_SIZE], 0.5, 1e-12);
    CHECK_NEAR(v.seconds[SL_BOUND_COMPUTE], 0.4, 1e-12);
}

TEST(files)
{
    sl_verdict v = verdict_of((made_step){.matmul_s = 0.3, .data_s = 0.7});
    CHECK_I64(v.limit, SL_BOUND_IO);
    CHECK_NEAR(v.seconds[SL_BOUND_IO], 0.7, 1e-12);
    CHECK_NEAR(v.step_s, 1, 1e-12);
    sl_text text = {0}; /* several checkpoints count together: 0.5 s in three steps */
    make_log(&(made_step){.matmul_s = 0.9, .checkpoint_s = 0.1}, &text);
    sl_text_printf(&text, "{\"event\":\"checkpoint\",\"t\":2,\"step\":3,\"seconds\":0.2}\n");
    sl_input *input = read_log(text.data);
    REQUIRE(sl_limits(input->log, &v));
    CHECK_NEAR(v.seconds[SL_BOUND_IO], (3 * 0.1 + 0.2) / 3, 1e-12);
    CHECK_I64(input->log->n_checkpoints, 2);
    sl_input_destroy(input);
    sl_text_free(&text);
    v = verdict_of((made_step){.matmul_s = 0.9, .checkpoint_s = 2}); /* beside the step */
    CHECK_I64(v.limit, SL_BOUND_IO);
    CHECK_NEAR(v.step_s, 3, 1e-12);
}

TEST(communication)
{
    sl_verdict v = verdict_of((made_step){.matmul_s = 0.3, .wait_in_s = 0.6});
    CHECK_I64(v.limit, SL_BOUND_COMMUNICATION);
    CHECK_NEAR(v.seconds[SL_BOUND_COMMUNICATION], 0.6, 1e-12);
    sl_text text = {0};
    make_log(&(made_step){.matmul_s = 0.3}, &text);
    sl_text_printf(
        &text,
        "{\"event\":\"end\",\"t\":3,\"wait_s\":{\"in\":0.2,\"out\":0.5,\"host\":0.1},\"ops\":[{\"op\":\"matmul\","
        "\"stream\":\"compute\",\"measured_s\":0.15,\"recomputed_s\":0.4,\"flops\":1e12,\"bytes\":1}]}\n");
    sl_input *input = read_log(text.data);
    REQUIRE(sl_limits(input->log, &v));
    CHECK_NEAR(v.seconds[SL_BOUND_COMMUNICATION], 0.7, 1e-12);
    CHECK_NEAR(v.seconds[SL_BOUND_BANDWIDTH], 0.1, 1e-12);
    CHECK_NEAR(v.seconds[SL_BOUND_SIZE], 0.15, 1e-12); /* no more than the op took */
    CHECK_NEAR(v.seconds[SL_BOUND_COMPUTE], 0, 1e-12);
    sl_input_destroy(input);
    sl_text_free(&text);
}

TEST(overhead)
{
    CHECK_I64(verdict_of((made_step){.matmul_s = 0.3}).limit, SL_BOUND_OVERHEAD);
}

/* A run far slower than the costs that were measured for it is not told that all is well. */
TEST(slower_than_measured)
{
    static const struct {
        const char *costs, *step;
        bool told;
    } cases[] = {
        {"measured cpu test", "0.5", true}, {"measured cpu test", "0.9", false}, {"roofline h200", "0.5", false}};
    for (int64_t i = 0; i < SL_COUNT(cases); i++) {
        sl_text text = {0};
        sl_verdict v;
        make_log(&(made_step){.matmul_s = 0.9}, &text);
        sl_text_printf(&text, "{\"event\":\"plan\",\"t\":0,\"costs\":\"%s\",\"step_s\":%s}\n", cases[i].costs,
                       cases[i].step);
        sl_input *input = read_log(text.data);
        REQUIRE(sl_limits(input->log, &v));
        CHECK((strstr(v.advice, "2 times as long as predicted") != NULL) == cases[i].told);
        CHECK((strstr(v.advice, "of the peak arithmetic") != NULL) == !cases[i].told);
        sl_input_destroy(input);
        sl_text_free(&text);
    }
}

/* How well arithmetic is used is said by two ratios: GEMMs to the peak, and the step to its GEMMs. */
TEST(use_of_the_peak)
{
    static const struct {
        double mfu, gemm; /* shares of the peak */
        const char *share, *reason;
    } cases[] = {
        {0.32, 0.45, "reaches 32.0 % of the peak arithmetic (MFU), its matrix multiplications alone 45.0 %.",
         "Most is left by the kernels"},
        {0.32, 0.59, "32.0 %", "Most is left by the kernels"},
        {0.32, 0.61, "alone 61.0 %", "Ops beside the matrix multiplications take the difference"},
        {0.59, 0.8, "59.0 %", "Ops beside the matrix multiplications take the difference"},
        {0.61, 0.8, "61.0 %", "close to what its kernels can do"},
        {0.9, 0.95, "90.0 %", "close to what its kernels can do"},
    };
    for (int64_t i = 0; i < SL_COUNT(cases); i++) {
        sl_text text = {0};
        sl_verdict v;
        make_log(&(made_step){.matmul_s = 0.9}, &text);
        /* Elementwise work and other streams are no GEMMs. */
        sl_text_printf(
            &text,
            "{\"event\":\"end\",\"t\":3,\"mfu\":%g,\"ops\":[{\"op\":\"matmul\",\"stream\":\"compute\",\"measured_s\":"
            "0.5,\"flops\":%g,\"bytes\":1},{\"op\":\"matmul\",\"stream\":\"compute\",\"measured_s\":0.3,\"flops\":%g,"
            "\"bytes\":1},{\"op\":\"attention\",\"stream\":\"compute\",\"measured_s\":0.1,\"flops\":9e11,\"bytes\":1},"
            "{\"op\":\"matmul\",\"stream\":\"host\",\"measured_s\":0.1,\"flops\":9e11,\"bytes\":1}]}\n",
            cases[i].mfu, 0.7 * cases[i].gemm * 0.8e12, 0.3 * cases[i].gemm * 0.8e12);
        sl_input *input = read_log(text.data);
        REQUIRE(sl_limits(input->log, &v));
        CHECK_I64(v.limit, SL_BOUND_COMPUTE);
        CHECK_CONTAINS(v.advice, cases[i].share);
        CHECK_CONTAINS(v.advice, cases[i].reason);
        CHECK(!strstr(v.advice, "as it should be"));
        sl_input_destroy(input);
        sl_text_free(&text);
    }
}

/* Recomputation is work of the machine, too: HFU counts where it is known. */
TEST(use_with_recomputation)
{
    sl_text text = {0};
    sl_verdict v;
    make_log(&(made_step){.matmul_s = 0.9}, &text);
    sl_text_printf(
        &text, "{\"event\":\"end\",\"t\":3,\"mfu\":0.5,\"hfu\":0.65,\"ops\":[{\"op\":\"matmul\",\"stream\":\"compute\","
               "\"measured_s\":0.9,\"flops\":7.2e11,\"bytes\":1}]}\n");
    sl_input *input = read_log(text.data);
    REQUIRE(sl_limits(input->log, &v));
    CHECK_CONTAINS(v.advice, "reaches 50.0 %");
    CHECK_CONTAINS(v.advice, "close to what its kernels can do");
    sl_input_destroy(input);
    sl_text_free(&text);
}

/* A log without an end is evaluated by its plan. */
TEST(from_the_plan)
{
    static const struct {
        const char *plan;
        sl_bound limit;
    } cases[] = {
        {"\"limit\":\"compute\",\"busy_s\":{\"compute\":0.9}", SL_BOUND_COMPUTE},
        {"\"limit\":\"recompute\",\"recompute_fraction\":1.5,\"busy_s\":{\"compute\":0.9}", SL_BOUND_SIZE},
        {"\"limit\":\"link in\",\"busy_s\":{\"compute\":0.2},\"wait_s\":{\"in\":0.7}", SL_BOUND_COMMUNICATION},
        {"\"limit\":\"host compute\",\"busy_s\":{\"compute\":0.2},\"wait_s\":{\"host\":0.7}", SL_BOUND_BANDWIDTH},
    };
    for (int64_t i = 0; i < SL_COUNT(cases); i++) {
        sl_text text = {0};
        sl_verdict v;
        sl_text_printf(&text, MADE_RUN "{\"event\":\"plan\",\"t\":0,\"step_s\":1.0,%s}\n", cases[i].plan);
        sl_input *input = read_log(text.data);
        REQUIRE(sl_limits(input->log, &v));
        CHECK_I64(v.limit, cases[i].limit);
        CHECK(!v.measured);
        if (cases[i].limit == SL_BOUND_SIZE) { /* 1.5 times as much again: three fifths of it */
            CHECK_NEAR(v.seconds[SL_BOUND_SIZE], 0.54, 1e-12);
            CHECK_NEAR(v.seconds[SL_BOUND_COMPUTE], 0.36, 1e-12);
        }
        CHECK_CONTAINS(v.sentence, "predicted");
        sl_input_destroy(input);
        sl_text_free(&text);
    }
    CHECK_I64(sl_bound_of_plan("link out"), SL_BOUND_COMMUNICATION);
    CHECK_I64(sl_bound_of_plan("something new"), SL_BOUND_COUNT);
    CHECK_I64(sl_bound_of_plan(NULL), SL_BOUND_COUNT);
}

TEST(nothing_to_say)
{
    sl_input *input = read_log(MADE_RUN);
    sl_verdict v;
    CHECK(!sl_limits(input->log, &v));
    sl_input_destroy(input);
}

/* Without a profile nothing can be below the ridge. */
TEST(ridge)
{
    sl_log_hardware hw = {.peak_flops = 125e12, .memory_bandwidth = 900e9}; /* 138.9 FLOP/B */
    CHECK(!sl_below_ridge(&hw, 315, 1));
    CHECK(sl_below_ridge(&hw, 2.25, 1));
    CHECK(sl_below_ridge(&hw, 138, 1));
    CHECK(!sl_below_ridge(&hw, 139, 1));
    CHECK(!sl_below_ridge(&(sl_log_hardware){0}, 0, 1));
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(compute);
    RUN(memory_bandwidth);
    RUN(memory_size);
    RUN(files);
    RUN(communication);
    RUN(overhead);
    RUN(slower_than_measured);
    RUN(use_of_the_peak);
    RUN(use_with_recomputation);
    RUN(from_the_plan);
    RUN(nothing_to_say);
    RUN(ridge);
    return test_end();
}
