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
    const sl_vit *vit = &sl_vit5_small;
    sl_table *t = sl_results_table(results, "networks", "ViT-5-Small, forward pass of one image",
                                   "side patches attention_gflop:GFLOP.3 hyena_gflop:GFLOP.3 hyena_film_gflop:GFLOP.3 "
                                   "hyena_inference_gflop:GFLOP.3 attention_over_hyena:.3* cheaper");
    for (int64_t i = 0; i < n; i++) {
        double gf[SL_MIXER_COUNT];
        for (int m = 0; m < SL_MIXER_COUNT; m++)
            gf[m] = 1e-9 * sl_flops_network(vit, (sl_mixer) m, sides[i]);
        double ratio = gf[SL_MIXER_ATTENTION] / gf[SL_MIXER_HYENA];
        SL_ROW(t, sides[i], sides[i] * sides[i], gf[SL_MIXER_ATTENTION], gf[SL_MIXER_HYENA], gf[SL_MIXER_HYENA_FILM],
               gf[SL_MIXER_HYENA_INFERENCE], ratio, ratio > 1 ? "hyena" : "attention");
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
    const sl_vit *vit = &sl_vit5_small;
    sl_table *t = sl_results_table(results, "mixers", "One mixer alone (CKConv: the global convolution inside Hyena)",
                                   "side attention_mflop:MFLOP.1 hyena_mflop:MFLOP.1 ckconv_mflop:MFLOP.1 "
                                   "ckconv_inference_mflop:MFLOP.1 ckconv_share_of_hyena:%.1*");
    for (int64_t i = 0; i < n; i++) {
        int64_t s = sides[i];
        double hyena = sl_flops_hyena(vit, SL_MIXER_HYENA, s + 1, s, s - 1);
        double ckconv = sl_flops_ckconv(vit, SL_MIXER_HYENA, s + 1, s);
        SL_ROW(t, s, 1e-6 * sl_flops_attention(vit, s * s + 5), 1e-6 * hyena, 1e-6 * ckconv,
               1e-6 * sl_flops_ckconv(vit, SL_MIXER_HYENA_INFERENCE, s + 1, s), 100 * ckconv / hyena);
    }
}

/* The first n cells of a row: published figures come last and are left out by a table without columns for them. */
#define ROW_OF(n, table, ...) sl_table_row(table, (const sl_cell[]){SL_CELLS(__VA_ARGS__)}, n)

/* The published table counts the projections about twice and the patches as multiply-adds; MFU from it is off. */
static void correction_table(bool published, sl_results *results)
{
    const int64_t n = published ? 4 : 2;
    sl_vit_matmuls f;
    sl_flops_matmuls(&sl_vit5_small, SIDE, &f);
    sl_table *t =
        sl_results_table(results, "vit5", "ViT-5-Small at 14 x 14, matrix products, from the shapes",
                         published ? "part gflop:GFLOP.4 published_gflop:GFLOP.2 remark" : "part gflop:GFLOP.4");
    ROW_OF(n, t, "q, k, v, output", 1e-9 * f.projections, 5.72, "published: about twice, the MLP's figure");
    ROW_OF(n, t, "scores and values", 1e-9 * f.attention, 0.12, "published: softmax alone");
    ROW_OF(n, t, "MLP", 1e-9 * f.mlp, 5.72, sl_cell_none());
    ROW_OF(n, t, "patches", 1e-9 * f.patches, 0.06, "published: multiply-adds");
    ROW_OF(n, t, "head", 1e-9 * f.head, sl_cell_none(), sl_cell_none());
    ROW_OF(n, t, "forward", 1e-9 * f.total, 11.6, sl_cell_none());
    ROW_OF(n, t, "forward and backward", 3e-9 * f.total, 34.9, "MFU is measured against ours");
}

static void hybrid_table(bool published, sl_results *results)
{
    static const struct {
        const char *pattern;
        double gf, millions; /* as published */
    } known[] = {{"A", 9.41, 22.01}, {"HA", 9.69, 22.17}, {"HHHA", 9.84, 22.25}, {"H", 9.98, 22.33}};
    const int64_t n = published ? 5 : 3;
    sl_table *t =
        sl_results_table(results, "hybrids", "Blocks in patterns (A attention, H Hyena), 14 x 14, 4 registers",
                         published ? "pattern parameters gflop:GFLOP.3 published_gflop:GFLOP.2 published_parameters:M.2"
                                   : "pattern parameters gflop:GFLOP.3");
    for (int64_t i = 0; i < SL_COUNT(known); i++)
        ROW_OF(n, t, known[i].pattern, sl_params_hybrid(&sl_vit5_small, known[i].pattern, SIDE),
               1e-9 * sl_flops_hybrid(&sl_vit5_small, known[i].pattern, SIDE), known[i].gf, known[i].millions);
}

static void model_table(int64_t seqlen, int64_t batch, sl_results *results)
{
    const sl_model *models;
    int64_t count = sl_model_presets(&models);
    char title[128];
    snprintf(title, sizeof title, "Models, %lld sequences of %lld tokens", (long long) batch, (long long) seqlen);
    sl_table *t = sl_results_table(results, "models", title,
                                   "model parameters state_f32_gb:GB.2 forward_tflop:TFLOP.4 "
                                   "forward_full_square_tflop:TFLOP.4 step_tflop:TFLOP.4");
    for (int64_t i = 0; i < count; i++) {
        const sl_model *m = &models[i];
        double step = sl_model_step_flops(m, seqlen, batch), parameters = (double) sl_model_parameters(m);
        /* A causal model looks at half of the square; counting all of it adds the half once more. */
        double half = 2 * (double) batch * (double) seqlen * (double) seqlen * (double) (m->heads * m->head_dim);
        SL_ROW(t, m->name, sl_model_parameters(m), 16e-9 * parameters, 1e-12 * step / 3,
               1e-12 * (step / 3 + half * (double) m->layers), 1e-12 * step);
    }
}

/* ---- communication (D6) ---- */

static void ring_table(sl_results *results)
{
    static const int64_t devices[] = {2, 4, 6, 8, 64}, sizes[] = {1, 10, 100, 1000};
    sl_table *t = sl_results_table(results, "ring", "Ring all-reduce on paper: 2 (N-1)/N S/W at 64 and 300 GB/s",
                                   "devices megabytes:MB pcie_gen5_ms:ms.3 nvlink_300_ms:ms.3 traffic_per_byte:.4");
    for (int64_t d = 0; d < SL_COUNT(devices); d++)
        for (int64_t s = 0; s < SL_COUNT(sizes); s++) {
            double bytes = 1e6 * (double) sizes[s];
            SL_ROW(t, devices[d], sizes[s], 1e3 * sl_comm_ring_s(devices[d], bytes, 64e9),
                   1e3 * sl_comm_ring_s(devices[d], bytes, 300e9), sl_comm_ring_s(devices[d], 1, 1));
        }
}

/* 126 feed-forward blocks of two matrices, 16384 x 53248: what holds it, and from which batch on it computes. */
static void xxl_table(sl_results *results)
{
    const double blocks = 126, dim = 16384, ffn = 53248, tpu_bytes = 95e9, h100_bytes = 80e9;
    sl_comm_mesh mesh = {.flops = 4.6e14, .link = 2 * 9e10, .axes_data = 2, .axes_tensor = 1};
    mesh.dim = (int64_t) dim, mesh.ffn = (int64_t) ffn, mesh.shards = 16, mesh.tensor = 4;
    double parameters = blocks * 2 * dim * ffn, state = 16 * parameters;
    double saved = blocks * (dim + ffn) * 2; /* bf16, per token */
    double devices = (double) (mesh.shards * mesh.tensor), given = sl_comm_given_tokens(&mesh);
    sl_table *t = sl_results_table(
        results, "xxl", "A 220 B feed-forward stack on paper (C 4.6e14 FLOP/s, W 1.8e11 B/s, mesh axes 2 and 1)",
        "what value:.g unit how");
    SL_ROW(t, "parameters", 1e-9 * parameters, "B", "126 * 2 d f");
    SL_ROW(t, "weights, gradients, moments", 1e-9 * state, "GB", "f32, 16 bytes per parameter");
    SL_ROW(t, "of 80 GB devices", state / h100_bytes, "devices", sl_cell_none());
    SL_ROW(t, "kept for the backward", 1e-6 * saved, "MB/token", "inputs and hidden values, bf16");
    SL_ROW(t, "shards to fit 95 GB", state / tpu_bytes, "devices", "state alone, fully sharded");
    SL_ROW(t, "data parallel or sharded", sl_comm_data_tokens(&mesh), "tokens/device",
           "C / (W axes): fewer and the links limit");
    SL_ROW(t, "tensor parallel", sl_comm_tensor_degree(&mesh), "ways", "axes f W / C: more and the links limit");
    SL_ROW(t, "both, best split", sl_comm_both_tokens(&mesh), "tokens/device", "(C/W)^2 / (axes f)");
    SL_ROW(t, "both, 16 x 4", given, "tokens/device", "C / (W axes tensor)");
    SL_ROW(t, "both, 16 x 4, all devices", given * devices, "tokens", sl_cell_none());
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
