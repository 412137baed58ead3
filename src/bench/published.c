#include "bench/published.h"

static sl_cell given(double figure)
{
    return figure > 0 ? sl_cell_number(figure) : sl_cell_none();
}

/* What others measured, to be read beside the table above: per step, 4 sequences. */
void sl_published_lm(sl_results *results)
{
    static const struct {
        const char *size, *hardware, *how;
        int64_t context;
        double forward, both, optimizer; /* ms; both: forward and backward; 0: not given */
    } known[] = {
        {"small", "A100", "f32, eager", 256, 37.7, 81.8, 0},
        {"medium", "A100", "f32, eager", 256, 75.9, 214.4, 0},
        {"large", "A100", "f32, eager", 256, 142.0, 437.7, 0},
        {"xl", "A100", "f32, eager", 256, 282.1, 889.3, 0},
        {"2.7b", "A100", "f32, eager", 256, 416.9, 1321.2, 0},
        {"small", "A100", "f32, compiled", 256, 17.8, 55.8, 0},
        {"2.7b", "A100", "f32, compiled", 256, 391.7, 1244, 0},
        {"small", "A100", "bf16 mixed, eager", 256, 0, 85.5, 0},
        {"medium", "A100", "bf16 mixed, eager", 256, 0, 173, 0},
        {"large", "A100", "bf16 mixed, eager", 256, 0, 263, 0},
        {"xl", "A100", "bf16 mixed, eager", 256, 0, 354, 0},
        {"small", "MI300X", "bf16 mixed, eager", 256, 0, 43.2, 0},
        {"medium", "MI300X", "bf16 mixed, eager", 256, 0, 84.7, 0},
        {"large", "MI300X", "bf16 mixed, eager", 256, 0, 137, 0},
        {"xl", "MI300X", "bf16 mixed, eager", 256, 0, 219, 0},
        {"2.7b", "MI300X", "bf16 mixed, eager", 256, 0, 257, 0},
        {"tiny", "RTX 5090", "bf16, compiled", 128, 0.935, 0.935 + 1.827, 3.29},
        {"small", "RTX 5090", "bf16, compiled", 128, 2.828, 2.828 + 6.583, 9.621},
        {"medium", "RTX 5090", "bf16, compiled", 128, 6.283, 6.283 + 15.9, 20.1},
        {"large", "RTX 5090", "bf16, compiled", 128, 11.4, 11.4 + 32.1, 50.0},
        {"xl", "RTX 5090", "bf16, compiled", 128, 24.95, 0, 0},
        {"small", "H200", "bf16, PyTorch 2.11 compiled", 256, 0, 23.9, 2.2},
        {"large", "H200", "bf16, PyTorch 2.11 compiled", 256, 0, 83.6, 7.6},
        {"2.7b", "H200", "bf16, PyTorch 2.11 compiled", 256, 0, 53.7, 18.8},
    };
    sl_table *t = sl_results_table(results, "published", "Published figures, 4 sequences; both: forward and backward",
                                   "size context hardware how forward_ms:ms.3 both_ms:ms.3 optimizer_ms:ms.3");
    for (int64_t i = 0; i < SL_COUNT(known); i++)
        SL_ROW(t, known[i].size, known[i].context, known[i].hardware, known[i].how, given(known[i].forward),
               given(known[i].both), given(known[i].optimizer));
}

/* What others measured at dim 64, batch 8, one head. */
void sl_published_attention(sl_results *results)
{
    static const struct {
        const char *hardware, *how, *dtype;
        int64_t seqlen;
        double forward, backward, mb; /* 0: not given */
    } known[] = {
        {"A100", "naive", "f32", 1024, 0.83, 1.69, 0},
        {"A100", "naive", "f32", 4096, 10.96, 19.4, 0},
        {"A100", "naive", "f32", 8192, 41.1, 71.5, 4514},
        {"A100", "compiled", "f32", 4096, 6.73, 11.8, 0},
        {"A100", "compiled", "f32", 8192, 22.9, 41.2, 0},
        {"A100", "compiled", "f32", 16384, 91, 165, 0},
        {"RTX 5090", "naive", "bf16", 4096, 2.92, 7.16, 1314},
        {"RTX 5090", "naive", "bf16", 8192, 9.18, 27.3, 5174},
        {"RTX 5090", "naive", "bf16", 16384, 37.0, 108, 20571},
        {"RTX 5090", "compiled", "bf16", 4096, 1.91, 4.31, 0},
        {"RTX 5090", "compiled", "bf16", 8192, 5.67, 9.67, 0},
        {"RTX 5090", "compiled", "bf16", 16384, 18.8, 29.9, 16467},
    };
    sl_table *t = sl_results_table(results, "published", "Published figures on other hardware, dim 64, batch 8",
                                   "dtype seqlen hardware how forward_ms:ms.2 backward_ms:ms.2 memory_mb:MB");
    for (int64_t i = 0; i < SL_COUNT(known); i++)
        SL_ROW(t, known[i].dtype, known[i].seqlen, known[i].hardware, known[i].how, known[i].forward, known[i].backward,
               given(known[i].mb));
}

/* What others measured for 16 heads of 16384 x 64. */
void sl_published_leaderboard(sl_table *table, double work)
{
    static const struct {
        const char *who, *hardware;
        double milliseconds;
    } known[] = {
        {"published, verified", "H100", 5.364}, {"published baseline", "H100", 80}, {"published", "MI300X", 58.1}};
    for (int64_t i = 0; i < SL_COUNT(known); i++)
        SL_ROW(table, "16 x 16384 x 64", known[i].who, known[i].hardware, sl_cell_none(), sl_cell_none(),
               known[i].milliseconds, sl_cell_none(), sl_cell_none(), 1e-12 * work / (1e-3 * known[i].milliseconds),
               sl_cell_none(), sl_cell_none());
}

/* Image classifiers, first iteration: what others gained by shorter products, and what it did to the loss. */
void sl_published_precision(sl_results *results)
{
    static const struct {
        const char *net, *precision;
        double rate, speed_up, loss;
    } known[] = {
        {"ResNet50", "f32", 455.9, 1, 7.457646},
        {"ResNet50", "f32, TF32 products", 750.6, 1.65, 7.456507},
        {"ResNet50", "f16, f32 sums", 1087.6, 2.38, 7.457031},
        {"VGG19", "f32", 212.7, 1, 6.9077840},
        {"VGG19", "f32, TF32 products", 550.3, 2.59, 6.9077835},
        {"VGG19", "f16, f32 sums", 1099.8, 5.17, 6.90625},
        {"DenseNet121", "f32", 391.9, 1, 6.961421},
        {"DenseNet121", "f32, TF32 products", 591.5, 1.51, 6.961451},
        {"DenseNet121", "f16, f32 sums", 876.2, 2.24, 6.960938},
    };
    sl_table *t = sl_results_table(results, "published", "Published figures on other hardware and nets",
                                   "net precision hardware images_per_s:.1 speed_up:.2 first_loss:.6");
    for (int64_t i = 0; i < SL_COUNT(known); i++)
        SL_ROW(t, known[i].net, known[i].precision, "A100", known[i].rate, known[i].speed_up, known[i].loss);
}
