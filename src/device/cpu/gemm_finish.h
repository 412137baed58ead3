/* C from the f32 sums of its tiles: bias, residual, accumulation and the one rounding. Included where MR and NR are
 * defined; NR is a few vectors. */
#include "device/cpu/gemm.h"
#include "device/cpu/simd.h"

SL_INLINE int lanes_of(int64_t count)
{
    return count >= VF_LANES ? VF_LANES : (int) count;
}

SL_INLINE void finish_vector(const sl_gemm *gemm, bool bf16, int64_t row, int64_t column, int lanes, const float *sums)
{
    const int64_t at = row * gemm->c_leading + column;
    vf x = vf_load(sums, VF_LANES);
    if (gemm->bias)
        x = vf_add(x, vf_get(gemm->bias, column, lanes, bf16));
    if (gemm->residual)
        x = vf_add(x, vf_get(gemm->residual, at, lanes, bf16));
    vf_put_add(gemm->c, at, x, lanes, bf16, gemm->accumulate);
}

SL_INLINE void finish_row(const sl_gemm *gemm, bool bf16, int64_t row, int64_t column, int64_t columns,
                          const float *sums)
{
    int64_t j = 0;
    for (; j + NR <= columns; j += NR, sums += MR * NR) {
        SL_UNROLL
        for (int v = 0; v < NR; v += VF_LANES)
            finish_vector(gemm, bf16, row, column + j + v, VF_LANES, sums + v);
    }
    for (; j < columns; j += VF_LANES, sums += VF_LANES)
        finish_vector(gemm, bf16, row, column + j, lanes_of(columns - j), sums);
}

static void finish(const sl_gemm *gemm, int64_t row, int64_t rows, int64_t column, int64_t columns, const float *tiles)
{
    const int64_t panel_floats = SL_DIV_UP(columns, NR) * MR * NR;
    for (int64_t i = 0; i < rows; i++) {
        const float *sums = tiles + i / MR * panel_floats + i % MR * NR;
        if (gemm->c_dtype == SL_BF16)
            finish_row(gemm, true, row + i, column, columns, sums);
        else
            finish_row(gemm, false, row + i, column, columns, sums);
    }
}
