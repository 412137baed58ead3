/*
 * Intensities of one call, every operand moved once, 2 bytes each:
 *   linear, x[b, 1024] W[4096, 1024]:   2 b 1024 4096 / 2 (b 1024 + 4096 1024 + b 4096)
 *   maxpool 3x3, stride 1:              9 comparisons per value in and out
 *   ReLU:                               1 per value in and out
 *   LayerNorm over 1024:                sum, square sum, subtract, scale, weight, bias and a root per row: under 10
 */
#include "bench/limiter.h"

static const sl_intensity table[] = {
    {"linear 4096 x 1024, batch 512", 2.0 * 512 * 1024 * 4096, 2.0 * (512 * 1024 + 4096 * 1024 + 512 * 4096), 315},
    {"linear 4096 x 1024, batch 1", 2.0 * 1024 * 4096, 2.0 * (1024 + 4096 * 1024 + 4096), 1},
    {"maxpool 3 x 3", 9, 2.0 * (1 + 1), 2.25},
    {"ReLU", 1, 2.0 * (1 + 1), 0.25},
    {"LayerNorm 1024", 8 * 1024 + 2, 2.0 * (1024 + 1024), 0},
};

const sl_intensity *sl_intensities(int64_t *count)
{
    *count = SL_COUNT(table);
    return table;
}

const char *sl_limiter(double intensity, double ridge)
{
    return intensity > ridge ? "arithmetic" : "memory";
}

#define V100_RIDGE (125e12 / 900e9)

void sl_limiter_table(double ridge, const char *machine, sl_results *results)
{
    static const char *const published[] = {"315", "1", "2.25", ".25", "< 10"};
    sl_table *t =
        sl_results_table(results, "limiter", "What limits an operation here (f16 operands; V100: ridge 138.9 FLOP/B)",
                         "operation flop_per_byte:.4 published limited_by limited_by_on_v100");
    for (int64_t i = 0; i < SL_COUNT(table); i++) {
        double intensity = table[i].flops / table[i].bytes;
        SL_ROW(t, table[i].operation, intensity, published[i], sl_limiter(intensity, ridge),
               sl_limiter(intensity, V100_RIDGE));
    }
    sl_results_note(results, "%s: below %.1f FLOP per byte memory limits, above it arithmetic.", machine, ridge);
}

void sl_ridge_table(const char *const *names, const double *flops, const double *bytes_per_s, int64_t count,
                    sl_results *results)
{
    static const struct {
        const char *name;
        double flops, bytes_per_s;
    } known[] = {{"V100, f16, nominal", 125e12, 900e9},
                 {"A100-40, bf16, nominal", 312e12, 1555e9},
                 {"A100-80, bf16, nominal", 312e12, 2039e9},
                 {"H100, bf16, nominal", 989e12, 3350e9},
                 {"H200, bf16, nominal", 989e12, 4800e9}};
    sl_table *t = sl_results_table(results, "ridges", "Ridge points: where arithmetic and memory take equally long",
                                   "machine tflops:TFLOP/s.3 gbps:GB/s.1 ridge_flop_per_byte:.1*");
    for (int64_t i = 0; i < count; i++)
        SL_ROW(t, names[i], 1e-12 * flops[i], 1e-9 * bytes_per_s[i], flops[i] / bytes_per_s[i]);
    for (int64_t i = 0; i < SL_COUNT(known); i++)
        SL_ROW(t, known[i].name, 1e-12 * known[i].flops, 1e-9 * known[i].bytes_per_s,
               known[i].flops / known[i].bytes_per_s);
}
