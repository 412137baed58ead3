/* C from the f32 sums of its tiles: bias, residual, accumulation and the one rounding. Included where MR and NR are
 * defined; NR is a few vectors. */
#include "device/cpu/gemm/gemm.h"
#include "device/cpu/simd/simd.h"

SL_INLINE int lanes_of(int64_t count)
{
    return count >= VF_LANES ? VF_LANES : (int) count;
}

SL_INLINE vf finished(const sl_gemm *gemm, bool bf16, int64_t row, int64_t column, int lanes, const float *sums)
{
    const int64_t at = row * gemm->c_leading + column;
    vf x = vf_load(sums, VF_LANES);
    if (gemm->bias)
        x = vf_add(x, vf_get(gemm->bias, column, lanes, bf16));
    if (gemm->residual)
        x = vf_add(x, vf_get(gemm->residual, at, lanes, bf16));
    if (gemm->accumulate)
        x = vf_add(vf_get(gemm->c, at, lanes, bf16), x);
    return x;
}

SL_INLINE void finish_vector(const sl_gemm *gemm, bool bf16, int64_t row, int64_t column, int lanes, const float *sums)
{
    vf_put(gemm->c, row * gemm->c_leading + column, finished(gemm, bf16, row, column, lanes, sums), lanes, bf16);
}

#if VF_LANES == 16
/* 32 elements of bf16 as one store, past the caches where asked for and they are a cache line. */
SL_INLINE void finish_line(const sl_gemm *gemm, bool stream, int64_t row, int64_t column, const float *sums)
{
    static const uint16_t upper_halves[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                              33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    const vi low = vf_round_bf16(finished(gemm, true, row, column, 16, sums)),
             high = vf_round_bf16(finished(gemm, true, row, column + 16, 16, sums + 16));
    const vi line = _mm512_permutex2var_epi16(low, _mm512_loadu_si512(upper_halves), high);
    sl_bf16 *to = (sl_bf16 *) gemm->c + row * gemm->c_leading + column;
    if (stream && (uintptr_t) to % 64 == 0)
        _mm512_stream_si512((void *) to, line);
    else
        _mm512_storeu_si512(to, line);
}
#endif

SL_INLINE void finish_row(const sl_gemm *gemm, bool bf16, bool stream, int64_t row, int64_t column, int64_t columns,
                          const float *sums)
{
    int64_t j = 0;
#if VF_LANES == 16
    for (; bf16 && j + 32 <= columns; j += 32)
        finish_line(gemm, stream, row, column + j, sums + j);
#endif
    (void) stream;
    for (; j < columns; j += VF_LANES)
        finish_vector(gemm, bf16, row, column + j, lanes_of(columns - j), sums + j);
}

static void finish(const sl_gemm *gemm, bool stream, int64_t row, int64_t rows, int64_t column, int64_t columns,
                   const float *tiles, int64_t tile_stride)
{
    for (int64_t i = 0; i < rows; i++) {
        const float *sums = tiles + i / MR * tile_stride + i % MR * NR;
        if (gemm->c_dtype == SL_BF16)
            finish_row(gemm, true, stream, row + i, column, columns, sums);
        else
            finish_row(gemm, false, false, row + i, column, columns, sums);
    }
}

/* Behind a thread's last finish: a thread that waits for this one sees what was streamed. */
static void finish_end(void)
{
    _mm_sfence();
}
