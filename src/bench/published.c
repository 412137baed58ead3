#include "bench/published.h"

/* What others measured, to be read beside the table above: per step, 4 sequences. */
void sl_published_lm(sl_results *results)
{
    static const struct {
        const char *size, *hardware, *how;
        int64_t context;
        double forward, backward, optimizer; /* ms; 0: not given */
    } known[] = {
        {"small", "A100", "f32, eager", 256, 37.7, 81.8 - 37.7, 0},
        {"medium", "A100", "f32, eager", 256, 75.9, 214.4 - 75.9, 0},
        {"large", "A100", "f32, eager", 256, 142.0, 437.7 - 142.0, 0},
        {"xl", "A100", "f32, eager", 256, 282.1, 889.3 - 282.1, 0},
        {"2.7b", "A100", "f32, eager", 256, 416.9, 1321.2 - 416.9, 0},
        {"small", "A100", "f32, compiled", 256, 17.8, 55.8 - 17.8, 0},
        {"2.7b", "A100", "f32, compiled", 256, 391.7, 1244 - 391.7, 0},
        {"tiny", "RTX 5090", "bf16, compiled", 128, 0.935, 1.827, 3.29},
        {"small", "RTX 5090", "bf16, compiled", 128, 2.828, 6.583, 9.621},
        {"medium", "RTX 5090", "bf16, compiled", 128, 6.283, 15.9, 20.1},
        {"large", "RTX 5090", "bf16, compiled", 128, 11.4, 32.1, 50.0},
        {"xl", "RTX 5090", "bf16, compiled", 128, 24.95, 0, 0},
    };
    static const sl_column columns[] = {{"size", "", 0, false},          {"context", "", 0, false},
                                        {"hardware", "", 0, false},      {"how", "", 0, false},
                                        {"forward_ms", "ms", 3, false},  {"backward_ms", "ms", 3, false},
                                        {"optimizer_ms", "ms", 3, false}};
    sl_table *t = SL_TABLE(results, "published", "Published figures on other hardware, 4 sequences", columns);
    for (int64_t i = 0; i < SL_COUNT(known); i++)
        SL_ROW(t, sl_cell_text(known[i].size), sl_cell_count(known[i].context), sl_cell_text(known[i].hardware),
               sl_cell_text(known[i].how), sl_cell_number(known[i].forward),
               known[i].backward > 0 ? sl_cell_number(known[i].backward) : sl_cell_none(),
               known[i].optimizer > 0 ? sl_cell_number(known[i].optimizer) : sl_cell_none());
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
    static const sl_column columns[] = {{"dtype", "", 0, false},        {"seqlen", "", 0, false},
                                        {"hardware", "", 0, false},     {"how", "", 0, false},
                                        {"forward_ms", "ms", 2, false}, {"backward_ms", "ms", 2, false},
                                        {"memory_mb", "MB", 0, false}};
    sl_table *t = SL_TABLE(results, "published", "Published figures on other hardware, dim 64, batch 8", columns);
    for (int64_t i = 0; i < SL_COUNT(known); i++)
        SL_ROW(t, sl_cell_text(known[i].dtype), sl_cell_count(known[i].seqlen), sl_cell_text(known[i].hardware),
               sl_cell_text(known[i].how), sl_cell_number(known[i].forward), sl_cell_number(known[i].backward),
               known[i].mb > 0 ? sl_cell_number(known[i].mb) : sl_cell_none());
}
