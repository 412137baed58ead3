/* The exact rows of the FLOP calculator: M3, M4, M8, B3's counts, D6. */
#include "bench/comm.h"
#include "run_bench.h"

static void check_network(double side, double attention, double hyena, double film, double inference, double ratio)
{
    int64_t row = bench_row_of("networks", "side", side);
    double allowed = attention < 100 ? 0.0055 : attention < 1000 ? 0.055 : 0.055;
    if (side == 14)
        allowed = 0.0005;
    CHECK_NEAR(bench_number("networks", row, "attention_gflop"), attention, allowed);
    CHECK_NEAR(bench_number("networks", row, "hyena_gflop"), hyena, allowed);
    CHECK_NEAR(bench_number("networks", row, "hyena_film_gflop"), film, allowed);
    CHECK_NEAR(bench_number("networks", row, "hyena_inference_gflop"), inference, allowed);
    CHECK_NEAR(bench_number("networks", row, "attention_over_hyena"), ratio, ratio < 1.5 ? 0.0005 : 0.005);
}

TEST(mixers)
{
    check_network(7, 2.38, 2.62, 2.62, 2.52, 0.908);
    check_network(14, 9.413, 9.971, 9.973, 9.511, 0.944);
    check_network(16, 12.51, 12.95, 12.95, 12.34, 0.966);
    check_network(20, 20.49, 20.07, 20.08, 19.10, 1.021);
    check_network(28, 45.51, 39.04, 39.05, 37.08, 1.166);
    check_network(32, 63.90, 50.89, 50.90, 48.30, 1.256);
    check_network(56, 317.3, 155.3, 155.3, 147.0, 2.04);
    check_network(64, 486.9, 202.9, 202.9, 191.8, 2.40);
    check_network(112, 3443.9, 623.0, 623.1, 587.4, 5.53);
    CHECK_STR(bench_text("networks", bench_row_of("networks", "side", 16), "cheaper"), "attention");
    CHECK_STR(bench_text("networks", bench_row_of("networks", "side", 20), "cheaper"), "hyena");
    CHECK_I64(sl_table_rows(bench_table("mixers")), 17);
}

TEST(published_table_corrected)
{
    CHECK_NEAR(bench_number("vit5", 0, "gflop"), 2.845, 0.0005);
    CHECK_NEAR(bench_number("vit5", 1, "gflop"), 0.745, 0.0005);
    CHECK_NEAR(bench_number("vit5", 2, "gflop"), 5.691, 0.0005);
    CHECK_NEAR(bench_number("vit5", 3, "gflop"), 0.1156, 0.00005);
    CHECK_NEAR(bench_number("vit5", 5, "gflop"), 9.397, 0.0005);
    CHECK_NEAR(bench_number("vit5", 6, "gflop"), 28.19, 0.005);
    CHECK_NEAR(bench_number("vit5", 5, "published_gflop"), 11.6, 0);
    CHECK_NEAR(bench_number("vit5", 6, "published_gflop"), 34.9, 0);
    for (int64_t r = 0; r < 4; r++) { /* to the figures that were printed */
        CHECK_NEAR(bench_number("hybrids", r, "gflop"), bench_number("hybrids", r, "published_gflop"), 0.005);
        CHECK_NEAR(1e-6 * bench_number("hybrids", r, "parameters"), bench_number("hybrids", r, "published_parameters"),
                   0.005);
    }
    CHECK_I64(bench_number("hybrids", 0, "parameters"), 22010112);
}

/* Nobody else's figures stand among ours unless they are wanted. */
TEST(own_figures_alone)
{
    sl_text text = {0};
    CHECK_OK(bench_try("flops", "--quick"));
    CHECK_NEAR(bench_number("vit5", 5, "gflop"), 9.397, 0.0005);
    CHECK_I64(sl_table_rows(bench_table("hybrids")), 4);
    sl_results_text(bench_results, 0, &text);
    CHECK_OK(sl_text_status(&text));
    CHECK(!strstr(text.data, "published"));
    sl_text_free(&text);
}

TEST(model_sizes)
{
    static const struct {
        const char *model;
        double millions, forward; /* TFLOP at ctx 512, whole square of attention */
    } known[] = {{"tiny", 22.7, .081},    {"small", 128.6, .534}, {"medium", 423.2, 1.794},
                 {"large", 969.4, 4.111}, {"xl", 1998.2, 8.44},   {"2.7b", 3406.8, 14.2}};
    for (int64_t i = 0; i < SL_COUNT(known); i++) {
        int64_t row = bench_row("models", "model", known[i].model);
        CHECK_NEAR(1e-6 * bench_number("models", row, "parameters"), known[i].millions, 0.05);
        CHECK_NEAR(bench_number("models", row, "forward_full_square_tflop"), known[i].forward,
                   known[i].forward > 10  ? 0.05
                   : known[i].forward > 5 ? 0.005
                                          : 0.0005);
    }
}

TEST(communication)
{
    sl_comm_mesh mesh = {.flops = 4.6e14, .link = 1.8e11, .axes_data = 2, .axes_tensor = 1, .ffn = 53248};
    CHECK_NEAR(sl_comm_ring_s(1, 1e9, 1e9), 0, 0);
    CHECK_NEAR(sl_comm_ring_s(2, 1e9, 1e9), 1, 1e-12);
    CHECK_NEAR(sl_comm_ring_s(4, 8e9, 2e9), 6, 1e-12);
    CHECK_NEAR(sl_comm_data_tokens(&mesh), 1277.78, 0.01);
    CHECK_NEAR(sl_comm_tensor_degree(&mesh), 20.836, 0.001);
    CHECK_NEAR(sl_comm_both_tokens(&mesh), 61.324, 0.001);
    mesh.tensor = 4;
    CHECK_NEAR(sl_comm_given_tokens(&mesh), 319.444, 0.001);
    mesh.tensor = 32; /* beyond what the links bear */
    CHECK(isinf(sl_comm_given_tokens(&mesh)));
    CHECK_NEAR(bench_number("xxl", bench_row("xxl", "what", "parameters"), "value"), 219.85, 0.01);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    CHECK_OK(bench_try("flops", "--quick --published"));
    RUN(mixers);
    RUN(published_table_corrected);
    RUN(model_sizes);
    RUN(communication);
    RUN(own_figures_alone);
    sl_results_destroy(bench_results);
    return test_end();
}
