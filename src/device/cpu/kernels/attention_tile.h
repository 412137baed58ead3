/*
 * The parts of the attention kernels: GEMMs of small f32 tiles in a thread's scratch memory, and the packing that
 * brings rows of q, k, v there. Every GEMM is
 *
 *     C[r][lane] (+)= sum_k A(r, k) * B[k][lane]
 *
 * with the lanes along rows of B and C (stride AT_BLOCK or the padded head dim) and A read one broadcast element at a
 * time, as it lies (A[r][k]) or transposed (A[k][r]). So one of the two factors is packed with its lanes along the
 * free index, once per tile of work, the other is only widened, and nothing is reduced across lanes. On AVX-512 a 6 x
 * 4 register tile does 24 multiply-adds per 10 loads.
 */
#ifndef SL_DEVICE_CPU_ATTENTION_TILE_H
#define SL_DEVICE_CPU_ATTENTION_TILE_H

#include "device/cpu/simd/simd_math.h"

#define AT_BLOCK 64 /* queries or keys of a tile */
#define AT_VECS (AT_BLOCK / VF_LANES)
#define AT_TILE_VECS (VF_LANES / 4) /* register tile: 4 vectors wide with 32 registers, 2 with 16 */
#define AT_GROUP 16                 /* rows between two steps of the staircase along the causal diagonal */

typedef enum at_mode { AT_SET, AT_ADD, AT_RESCALE } at_mode; /* RESCALE: C = C * alpha[lane] + A B */

typedef struct at_product {
    float *c;
    const float *a, *b, *alpha;
    int64_t ldc, lda, ldb, depth;
} at_product;

SL_INLINE void at_tile(const at_product *x, int64_t r0, int64_t lane0, const int rows, const int vecs,
                       const bool transposed, const at_mode mode)
{
    const int64_t lda = x->lda, ldb = x->ldb, ldc = x->ldc, depth = x->depth;
    const float *a = x->a + (transposed ? r0 : r0 * lda), *b = x->b + lane0;
    float *c = x->c + r0 * ldc + lane0;
    vf acc[12][4];
    SL_UNROLL
    for (int r = 0; r < rows; r++) {
        SL_UNROLL
        for (int v = 0; v < vecs; v++) {
            acc[r][v] = mode == AT_SET ? vf_zero() : vf_load(c + r * ldc + v * VF_LANES, VF_LANES);
            if (mode == AT_RESCALE)
                acc[r][v] = vf_mul(acc[r][v], vf_load(x->alpha + lane0 + v * VF_LANES, VF_LANES));
        }
    }
    for (int64_t k = 0; k < depth; k++, b += ldb) {
        vf bv[4];
        SL_UNROLL
        for (int v = 0; v < vecs; v++)
            bv[v] = vf_load(b + v * VF_LANES, VF_LANES);
        SL_UNROLL
        for (int r = 0; r < rows; r++) {
            vf av = vf_set1(transposed ? a[k * lda + r] : a[r * lda + k]);
            SL_UNROLL
            for (int v = 0; v < vecs; v++)
                acc[r][v] = vf_fma(av, bv[v], acc[r][v]);
        }
    }
    SL_UNROLL
    for (int r = 0; r < rows; r++) {
        SL_UNROLL
        for (int v = 0; v < vecs; v++)
            vf_store(c + r * ldc + v * VF_LANES, acc[r][v], VF_LANES);
    }
}

/* All rows of one column panel: as many rows at once as the registers hold, then 4, 2, 1. */
SL_INLINE void at_panel(const at_product *x, int64_t lane0, int64_t rows, const int most, const int vecs,
                        const bool transposed, const at_mode mode)
{
    int64_t r = 0;
    for (; r + most <= rows; r += most)
        at_tile(x, r, lane0, most, vecs, transposed, mode);
    if (most > 8 && r + 8 <= rows) {
        at_tile(x, r, lane0, 8, vecs, transposed, mode);
        r += 8;
    }
    if (r + 4 <= rows) {
        at_tile(x, r, lane0, 4, vecs, transposed, mode);
        r += 4;
    }
    if (r + 2 <= rows) {
        at_tile(x, r, lane0, 2, vecs, transposed, mode);
        r += 2;
    }
    if (r < rows)
        at_tile(x, r, lane0, 1, vecs, transposed, mode);
}

/* C[0..rows)[lanes of vectors v0..v1) = A B, by panels; five vectors go as 3 + 2, so that no panel is too thin. */
SL_INLINE void at_panels(const at_product *x, int64_t rows, int64_t v0, int64_t v1, const bool transposed,
                         const at_mode mode)
{
    while (v0 < v1) {
        int64_t left = v1 - v0, take = left;
        if (left > AT_TILE_VECS)
            take = left == AT_TILE_VECS + 1 ? (left + 1) / 2 : AT_TILE_VECS;
        int64_t lane0 = v0 * VF_LANES;
#ifdef __AVX512F__
        if (take == 4)
            at_panel(x, lane0, rows, 6, 4, transposed, mode);
        else if (take == 3)
            at_panel(x, lane0, rows, 8, 3, transposed, mode);
        else if (take == 2)
            at_panel(x, lane0, rows, 12, 2, transposed, mode);
        else
            at_panel(x, lane0, rows, 12, 1, transposed, mode);
#else
        if (take == 2)
            at_panel(x, lane0, rows, 6, 2, transposed, mode);
        else
            at_panel(x, lane0, rows, 12, 1, transposed, mode);
#endif
        v0 += take;
    }
}

/* The four GEMMs in use, each compiled once. */
static __attribute__((noinline, unused)) void at_set(const at_product *x, int64_t rows, int64_t v0, int64_t v1)
{
    at_panels(x, rows, v0, v1, false, AT_SET);
}
static __attribute__((noinline, unused)) void at_add(const at_product *x, int64_t rows, int64_t v0, int64_t v1)
{
    at_panels(x, rows, v0, v1, false, AT_ADD);
}
static __attribute__((noinline, unused)) void at_add_transposed(const at_product *x, int64_t rows, int64_t v0,
                                                                int64_t v1)
{
    at_panels(x, rows, v0, v1, true, AT_ADD);
}
static __attribute__((noinline, unused)) void at_rescale_transposed(const at_product *x, int64_t rows, int64_t v0,
                                                                    int64_t v1)
{
    at_panels(x, rows, v0, v1, true, AT_RESCALE);
}

/* A score, in units of log 2 as scale log2(e) q k is, under the soft cap; *slope: the derivative. */
SL_INLINE vf at_cap(vf score, float cap, vf *slope)
{
    return vf_mul(vf_tanh(vf_mul(score, vf_set1(VF_LN2 / cap)), slope), vf_set1(cap * VF_LOG2E));
}

/* out[r][0..padded) = factor * in[r][0..columns), zeros behind; `stride` in elements. */
SL_INLINE void at_pack_rows(float *out, int64_t padded, const void *in, int64_t stride, int64_t rows, int64_t columns,
                            float factor, bool bf16)
{
    vf f = vf_set1(factor);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t e = 0; e < padded; e += VF_LANES) {
            int64_t left = columns - e;
            vf x = left >= VF_LANES ? vf_get(in, r * stride + e, VF_LANES, bf16)
                   : left > 0       ? vf_get(in, r * stride + e, (int) left, bf16)
                                    : vf_zero();
            vf_store(out + r * padded + e, vf_mul(x, f), VF_LANES);
        }
    }
}

/* out[e][lane] = factor * in[lane][e] for the AT_BLOCK lanes of a block, zeros for lanes from `rows` on. */
SL_INLINE void at_pack_transposed(float *out, const void *in, int64_t stride, int64_t rows, int64_t columns,
                                  float factor, bool bf16)
{
    vf f = vf_set1(factor);
    for (int64_t lane0 = 0; lane0 < AT_BLOCK; lane0 += VF_LANES) {
        for (int64_t e = 0; e < columns; e += VF_LANES) {
            vf t[VF_LANES];
            int64_t left = columns - e;
            for (int64_t r = 0; r < VF_LANES; r++) {
                int64_t row = lane0 + r;
                if (row >= rows)
                    t[r] = vf_zero();
                else if (left >= VF_LANES)
                    t[r] = vf_get(in, row * stride + e, VF_LANES, bf16);
                else
                    t[r] = vf_get(in, row * stride + e, (int) left, bf16);
            }
            vf_transpose(t);
            for (int64_t r = 0; r < VF_LANES && r < left; r++)
                vf_store(out + (e + r) * AT_BLOCK + lane0, vf_mul(t[r], f), VF_LANES);
        }
    }
}

/* out[lane][e] (+)= in[e][lane] * factor[lane] for lanes below `rows`: the way back to memory. factor NULL: 1. */
SL_INLINE void at_unpack_transposed(void *out, int64_t stride, int64_t rows, int64_t columns, const float *in,
                                    const float *factor, bool bf16, bool accumulate)
{
    for (int64_t lane0 = 0; lane0 < rows; lane0 += VF_LANES) {
        vf f = factor ? vf_load(factor + lane0, VF_LANES) : vf_set1(1.0f);
        for (int64_t e = 0; e < columns; e += VF_LANES) {
            vf t[VF_LANES];
            int64_t left = columns - e;
            for (int64_t r = 0; r < VF_LANES; r++)
                t[r] = r < left ? vf_mul(vf_load(in + (e + r) * AT_BLOCK + lane0, VF_LANES), f) : vf_zero();
            vf_transpose(t);
            for (int64_t r = 0; r < VF_LANES && lane0 + r < rows; r++) {
                int64_t at = (lane0 + r) * stride + e;
                if (left >= VF_LANES)
                    vf_put_add(out, at, t[r], VF_LANES, bf16, accumulate);
                else
                    vf_put_add(out, at, t[r], (int) left, bf16, accumulate);
            }
        }
    }
}

#endif
