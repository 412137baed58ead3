/* `sluice bench flops`: how much arithmetic and traffic, from formulas alone. */
#include <stdio.h>

#include "bench/bench.h"
#include "bench/comm.h"
#include "bench/mixer_flops.h"
#include "bench/published.h"
#include "model/model.h"

enum { MOST_SIDES = 64, SIDE = 14 };

static const sl_option options[] = {
    {"sides", "N,N,...", SL_OPT_STRING, "7,8,10,12,14,16,20,24,28,32,40,48,56,64,80,96,112", "Flops",
     "sides of the grids of patches"},
    {"seqlen", "TOKENS", SL_OPT_I64, "512", "Flops", "sequence length of the models' table"},
    {"batch", "N", SL_OPT_I64, "4", "Flops", "sequences of the models' table"},
    SL_OPTION_PUBLISHED,
};

static void mixer_table(const int64_t *sides, int64_t n, sl_results *results)
{
    static const sl_column columns[] = {{"side", "", 0, false},
                                        {"patches", "", 0, false},
                                        {"attention_gflop", "GFLOP", 3, false},
                                        {"hyena_gflop", "GFLOP", 3, false},
                                        {"hyena_film_gflop", "GFLOP", 3, false},
                                        {"hyena_inference_gflop", "GFLOP", 3, false},
                                        {"attention_over_hyena", "", 3, true},
                                        {"cheaper", "", 0, false}};
    const sl_vit *vit = &sl_vit5_small;
    sl_table *t = SL_TABLE(results, "networks", "ViT-5-Small, forward pass of one image", columns);
    for (int64_t i = 0; i < n; i++) {
        double gf[SL_MIXER_COUNT];
        for (int m = 0; m < SL_MIXER_COUNT; m++)
            gf[m] = 1e-9 * sl_flops_network(vit, (sl_mixer) m, sides[i]);
        double ratio = gf[SL_MIXER_ATTENTION] / gf[SL_MIXER_HYENA];
        SL_ROW(t, sl_cell_count(sides[i]), sl_cell_count(sides[i] * sides[i]), sl_cell_number(gf[SL_MIXER_ATTENTION]),
               sl_cell_number(gf[SL_MIXER_HYENA]), sl_cell_number(gf[SL_MIXER_HYENA_FILM]),
               sl_cell_number(gf[SL_MIXER_HYENA_INFERENCE]), sl_cell_number(ratio),
               sl_cell_text(ratio > 1 ? "hyena" : "attention"));
    }
    int64_t side = 2;
    while (side < 4096 &&
           sl_flops_network(vit, SL_MIXER_ATTENTION, side) <= sl_flops_network(vit, SL_MIXER_HYENA, side))
        side++;
    int64_t listed = 0;
    for (int64_t i = 0; i < n && !listed; i++)
        if (sides[i] >= side)
            listed = sides[i];
    sl_results_note(results,
                    "crossover: Hyena is cheaper from %lld x %lld patches on; of the grids listed, from %lld x %lld.",
                    (long long) side, (long long) side, (long long) listed, (long long) listed);
}

static void one_mixer_table(const int64_t *sides, int64_t n, sl_results *results)
{
    static const sl_column columns[] = {{"side", "", 0, false},
                                        {"attention_mflop", "MFLOP", 1, false},
                                        {"hyena_mflop", "MFLOP", 1, false},
                                        {"ckconv_mflop", "MFLOP", 1, false},
                                        {"ckconv_inference_mflop", "MFLOP", 1, false},
                                        {"ckconv_share_of_hyena", "%", 1, true}};
    const sl_vit *vit = &sl_vit5_small;
    sl_table *t = SL_TABLE(results, "mixers", "One mixer alone (CKConv: the global convolution inside Hyena)", columns);
    for (int64_t i = 0; i < n; i++) {
        int64_t s = sides[i];
        double hyena = sl_flops_hyena(vit, SL_MIXER_HYENA, s + 1, s, s - 1);
        double ckconv = sl_flops_ckconv(vit, SL_MIXER_HYENA, s + 1, s);
        SL_ROW(t, sl_cell_count(s), sl_cell_number(1e-6 * sl_flops_attention(vit, s * s + 5)),
               sl_cell_number(1e-6 * hyena), sl_cell_number(1e-6 * ckconv),
               sl_cell_number(1e-6 * sl_flops_ckconv(vit, SL_MIXER_HYENA_INFERENCE, s + 1, s)),
               sl_cell_number(100 * ckconv / hyena));
    }
}

/* The first n cells of a row: published figures come last and are left out by a table without columns for them. */
#define ROW_OF(n, table, ...) sl_table_row(table, (const sl_cell[]){__VA_ARGS__}, n)

/* The published table counts the projections about twice and the patches as multiply-adds; MFU from it is off. */
static void correction_table(bool published, sl_results *results)
{
    static const sl_column columns[] = {{"part", "", 0, false},
                                        {"gflop", "GFLOP", 4, false},
                                        {"published_gflop", "GFLOP", 2, false},
                                        {"remark", "", 0, false}};
    const int64_t n = published ? SL_COUNT(columns) : 2;
    sl_vit_matmuls f;
    sl_flops_matmuls(&sl_vit5_small, SIDE, &f);
    sl_table *t =
        sl_results_table(results, "vit5", "ViT-5-Small at 14 x 14, matrix products, from the shapes", columns, n);
    ROW_OF(n, t, sl_cell_text("q, k, v, output"), sl_cell_number(1e-9 * f.projections), sl_cell_number(5.72),
           sl_cell_text("published: about twice, the MLP's figure"));
    ROW_OF(n, t, sl_cell_text("scores and values"), sl_cell_number(1e-9 * f.attention), sl_cell_number(0.12),
           sl_cell_text("published: softmax alone"));
    ROW_OF(n, t, sl_cell_text("MLP"), sl_cell_number(1e-9 * f.mlp), sl_cell_number(5.72), sl_cell_none());
    ROW_OF(n, t, sl_cell_text("patches"), sl_cell_number(1e-9 * f.patches), sl_cell_number(0.06),
           sl_cell_text("published: multiply-adds"));
    ROW_OF(n, t, sl_cell_text("head"), sl_cell_number(1e-9 * f.head), sl_cell_none(), sl_cell_none());
    ROW_OF(n, t, sl_cell_text("forward"), sl_cell_number(1e-9 * f.total), sl_cell_number(11.6), sl_cell_none());
    ROW_OF(n, t, sl_cell_text("forward and backward"), sl_cell_number(3e-9 * f.total), sl_cell_number(34.9),
           sl_cell_text("MFU is measured against ours"));
}

static void hybrid_table(bool published, sl_results *results)
{
    static const struct {
        const char *pattern;
        double gf, millions; /* as published */
    } known[] = {{"A", 9.41, 22.01}, {"HA", 9.69, 22.17}, {"HHHA", 9.84, 22.25}, {"H", 9.98, 22.33}};
    static const sl_column columns[] = {{"pattern", "", 0, false},
                                        {"parameters", "", 0, false},
                                        {"gflop", "GFLOP", 3, false},
                                        {"published_gflop", "GFLOP", 2, false},
                                        {"published_parameters", "M", 2, false}};
    const int64_t n = published ? SL_COUNT(columns) : 3;
    sl_table *t = sl_results_table(results, "hybrids",
                                   "Blocks in patterns (A attention, H Hyena), 14 x 14, 4 registers", columns, n);
    for (int64_t i = 0; i < SL_COUNT(known); i++)
        ROW_OF(n, t, sl_cell_text(known[i].pattern),
               sl_cell_count(sl_params_hybrid(&sl_vit5_small, known[i].pattern, SIDE)),
               sl_cell_number(1e-9 * sl_flops_hybrid(&sl_vit5_small, known[i].pattern, SIDE)),
               sl_cell_number(known[i].gf), sl_cell_number(known[i].millions));
}

static void model_table(int64_t seqlen, int64_t batch, sl_results *results)
{
    static const sl_column columns[] = {{"model", "", 0, false},
                                        {"parameters", "", 0, false},
                                        {"state_f32_gb", "GB", 2, false},
                                        {"forward_tflop", "TFLOP", 4, false},
                                        {"forward_full_square_tflop", "TFLOP", 4, false},
                                        {"step_tflop", "TFLOP", 4, false}};
    const sl_model *models;
    int64_t count = sl_model_presets(&models);
    char title[128];
    snprintf(title, sizeof title, "Models, %lld sequences of %lld tokens", (long long) batch, (long long) seqlen);
    sl_table *t = SL_TABLE(results, "models", title, columns);
    for (int64_t i = 0; i < count; i++) {
        const sl_model *m = &models[i];
        double step = sl_model_step_flops(m, seqlen, batch), parameters = (double) sl_model_parameters(m);
        /* A causal model looks at half of the square; counting all of it adds the half once more. */
        double half = 2 * (double) batch * (double) seqlen * (double) seqlen * (double) (m->heads * m->head_dim);
        SL_ROW(t, sl_cell_text(m->name), sl_cell_count(sl_model_parameters(m)), sl_cell_number(16e-9 * parameters),
               sl_cell_number(1e-12 * step / 3), sl_cell_number(1e-12 * (step / 3 + half * (double) m->layers)),
               sl_cell_number(1e-12 * step));
    }
}

/* ---- communication (D6) ---- */

static void ring_table(sl_results *results)
{
    static const sl_column columns[] = {{"devices", "", 0, false},
                                        {"megabytes", "MB", 0, false},
                                        {"pcie_gen5_ms", "ms", 3, false},
                                        {"nvlink_300_ms", "ms", 3, false},
                                        {"traffic_per_byte", "", 4, false}};
    static const int64_t devices[] = {2, 4, 6, 8, 64}, sizes[] = {1, 10, 100, 1000};
    sl_table *t = SL_TABLE(results, "ring", "Ring all-reduce on paper: 2 (N-1)/N S/W at 64 and 300 GB/s", columns);
    for (int64_t d = 0; d < SL_COUNT(devices); d++)
        for (int64_t s = 0; s < SL_COUNT(sizes); s++) {
            double bytes = 1e6 * (double) sizes[s];
            SL_ROW(t, sl_cell_count(devices[d]), sl_cell_count(sizes[s]),
                   sl_cell_number(1e3 * sl_comm_ring_s(devices[d], bytes, 64e9)),
                   sl_cell_number(1e3 * sl_comm_ring_s(devices[d], bytes, 300e9)),
                   sl_cell_number(sl_comm_ring_s(devices[d], 1, 1)));
        }
}

/* 126 feed-forward blocks of two matrices, 16384 x 53248: what holds it, and from which batch on it computes. */
static void xxl_table(sl_results *results)
{
    static const sl_column columns[] = {
        {"what", "", 0, false}, {"value", "", -1, false}, {"unit", "", 0, false}, {"how", "", 0, false}};
    const double blocks = 126, dim = 16384, ffn = 53248, tpu_bytes = 95e9, h100_bytes = 80e9;
    sl_comm_mesh mesh = {.flops = 4.6e14, .link = 2 * 9e10, .axes_data = 2, .axes_tensor = 1};
    mesh.dim = (int64_t) dim, mesh.ffn = (int64_t) ffn, mesh.shards = 16, mesh.tensor = 4;
    double parameters = blocks * 2 * dim * ffn, state = 16 * parameters;
    double saved = blocks * (dim + ffn) * 2; /* bf16, per token */
    double devices = (double) (mesh.shards * mesh.tensor), given = sl_comm_given_tokens(&mesh);
    sl_table *t =
        SL_TABLE(results, "xxl",
                 "A 220 B feed-forward stack on paper (C 4.6e14 FLOP/s, W 1.8e11 B/s, mesh axes 2 and 1)", columns);
    SL_ROW(t, sl_cell_text("parameters"), sl_cell_number(1e-9 * parameters), sl_cell_text("B"),
           sl_cell_text("126 * 2 d f"));
    SL_ROW(t, sl_cell_text("weights, gradients, moments"), sl_cell_number(1e-9 * state), sl_cell_text("GB"),
           sl_cell_text("f32, 16 bytes per parameter"));
    SL_ROW(t, sl_cell_text("of 80 GB devices"), sl_cell_number(state / h100_bytes), sl_cell_text("devices"),
           sl_cell_none());
    SL_ROW(t, sl_cell_text("kept for the backward"), sl_cell_number(1e-6 * saved), sl_cell_text("MB/token"),
           sl_cell_text("inputs and hidden values, bf16"));
    SL_ROW(t, sl_cell_text("shards to fit 95 GB"), sl_cell_number(state / tpu_bytes), sl_cell_text("devices"),
           sl_cell_text("state alone, fully sharded"));
    SL_ROW(t, sl_cell_text("data parallel or sharded"), sl_cell_number(sl_comm_data_tokens(&mesh)),
           sl_cell_text("tokens/device"), sl_cell_text("C / (W axes): fewer and the links limit"));
    SL_ROW(t, sl_cell_text("tensor parallel"), sl_cell_number(sl_comm_tensor_degree(&mesh)), sl_cell_text("ways"),
           sl_cell_text("axes f W / C: more and the links limit"));
    SL_ROW(t, sl_cell_text("both, best split"), sl_cell_number(sl_comm_both_tokens(&mesh)),
           sl_cell_text("tokens/device"), sl_cell_text("(C/W)^2 / (axes f)"));
    SL_ROW(t, sl_cell_text("both, 16 x 4"), sl_cell_number(given), sl_cell_text("tokens/device"),
           sl_cell_text("C / (W axes tensor)"));
    SL_ROW(t, sl_cell_text("both, 16 x 4, all devices"), sl_cell_number(given * devices), sl_cell_text("tokens"),
           sl_cell_none());
}

static sl_status run(const sl_bench_job *job, sl_results *results)
{
    int64_t sides[MOST_SIDES], n, seqlen = sl_options_i64(job->options, "seqlen"),
                                  batch = sl_options_i64(job->options, "batch");
    SL_TRY(sl_list_i64("sides", sl_options_string(job->options, "sides"), 2, MOST_SIDES, sides, &n));
    if (seqlen < 1 || batch < 1)
        return sl_fail(SL_E_USAGE, "--seqlen and --batch must be at least 1");
    mixer_table(sides, n, results);
    one_mixer_table(sides, n, results);
    const bool published = sl_options_flag(job->options, "published");
    correction_table(published, results);
    hybrid_table(published, results);
    model_table(seqlen, batch, results);
    ring_table(results);
    xxl_table(results);
    return SL_OK;
}

const sl_bench_def sl_bench_flops = {
    .name = "flops",
    .question = "how much arithmetic and traffic do models and mixers need, on paper",
    .options = options,
    .n_options = SL_COUNT(options),
    .no_device = true,
    .steps = 1,
    .quick_steps = 1,
    .run = run,
};
