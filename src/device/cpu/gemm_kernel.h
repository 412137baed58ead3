/*
 * The f32 register tile and its packing, once for AVX-512 and AVX2: MR rows by two vectors. Included by gemm_avx512.c and
 * gemm_avx2.c, which define MR, KC, PANELS and GEMM_ISA.
 *
 *   AVX-512  14 x 32: 28 accumulators, two vectors of B, one broadcast of A = 31 of 32 registers; 16 loads, 28 multiply-adds
 *   AVX2      6 x 16: 12 accumulators, two of B, one of A = 15 of 16; 8 loads, 12 multiply-adds
 *
 * Both issue two loads and two multiply-adds a cycle, so the multiply-adds are the limit. bf16 operands are widened while they
 * are packed, which costs a shift; their products are exact in f32, as in a bf16 dot-product instruction. Widening in the
 * inner loop instead would halve the packed bytes but takes issue slots from the multiply-adds.
 */
#include "device/cpu/gemm.h"
#include "device/cpu/simd.h"

#define NR (2 * VF_LANES)
#include "device/cpu/gemm_finish.h"

/* packed[k * panel + i] = element k of source row i: memory runs along k, so square blocks are transposed. Rows that are not
 * there are zero. A vector of A stands over the next row's start (panel is no multiple of the lanes), so rows are stored in
 * ascending k, the last one with its own lanes only. */
SL_INLINE void pack_rows(const void *data, bool bf16, int64_t leading, int64_t width, int64_t count, const int panel,
                         float *packed)
{
    for (int64_t k = 0; k < count; k += VF_LANES) {
        const int deep = lanes_of(count - k);
        for (int first = 0; first < panel; first += VF_LANES) {
            vf r[VF_LANES];
            SL_UNROLL
            for (int i = 0; i < VF_LANES; i++)
                r[i] = first + i < width ? vf_get(data, (first + i) * leading + k, deep, bf16) : vf_zero();
            vf_transpose(r);
            float *to = packed + k * panel + first;
            const int keep = lanes_of(panel - first);
            if (deep == VF_LANES) {
                SL_UNROLL
                for (int i = 0; i < VF_LANES; i++)
                    vf_store(to + i * panel, r[i], keep);
            } else {
                SL_UNROLL
                for (int i = 0; i < VF_LANES; i++)
                    if (i < deep)
                        vf_store(to + i * panel, r[i], keep);
            }
        }
    }
}

/* The same panel when memory runs along it: a copy. */
SL_INLINE void pack_columns(const void *data, bool bf16, int64_t leading, int64_t width, int64_t count, const int panel,
                            float *packed)
{
    for (int64_t k = 0; k < count; k++)
        for (int i = 0; i < panel; i += VF_LANES) {
            const int keep = lanes_of(panel - i);
            const int there = width - i <= 0 ? 0 : SL_MIN(keep, lanes_of(width - i));
            const vf x = there ? vf_get(data, k * leading + i, there, bf16) : vf_zero();
            vf_store(packed + k * panel + i, x, keep);
        }
}

SL_INLINE void pack(const sl_gemm_matrix *x, bool along_k, int64_t first, int64_t width, int64_t k0, int64_t count,
                    const int panel, float *packed)
{
    const bool bf16 = x->dtype == SL_BF16, whole = width == panel;
    const void *data = element_const(x->data, along_k ? first * x->leading + k0 : k0 * x->leading + first, bf16);
    /* Constants for the common cases, so that each compiles to its own loop without masks. */
    if (along_k && bf16)
        pack_rows(data, true, x->leading, width, count, panel, packed);
    else if (along_k)
        pack_rows(data, false, x->leading, width, count, panel, packed);
    else if (bf16)
        pack_columns(data, true, x->leading, whole ? panel : width, count, panel, packed);
    else
        pack_columns(data, false, x->leading, whole ? panel : width, count, panel, packed);
}

static void pack_a(const sl_gemm_matrix *a, int64_t first, int64_t width, int64_t k0, int64_t count, void *packed)
{
    pack(a, !a->transposed, first, width, k0, count, MR, packed);
}

static void pack_b(const sl_gemm_matrix *b, int64_t first, int64_t width, int64_t k0, int64_t count, void *packed)
{
    pack(b, b->transposed, first, width, k0, count, NR, packed);
}

/* `rows` is a constant at every call, so the accumulators are registers. */
SL_INLINE void register_tile(const int rows, const float *a, const float *b, int64_t count, bool fresh, float *c)
{
    vf sum[MR][2];
    SL_UNROLL
    for (int i = 0; i < rows; i++) {
        sum[i][0] = fresh ? vf_zero() : vf_load(c + i * NR, VF_LANES);
        sum[i][1] = fresh ? vf_zero() : vf_load(c + i * NR + VF_LANES, VF_LANES);
    }
    for (int64_t k = 0; k < count; k++) {
        const vf b0 = vf_load(b, VF_LANES), b1 = vf_load(b + VF_LANES, VF_LANES);
        SL_UNROLL
        for (int i = 0; i < rows; i++) {
            const vf x = vf_set1(a[i]);
            sum[i][0] = vf_fma(x, b0, sum[i][0]);
            sum[i][1] = vf_fma(x, b1, sum[i][1]);
        }
        a += MR;
        b += NR;
    }
    SL_UNROLL
    for (int i = 0; i < rows; i++) {
        vf_store(c + i * NR, sum[i][0], VF_LANES);
        vf_store(c + i * NR + VF_LANES, sum[i][1], VF_LANES);
    }
}

static void multiply(int64_t rows, const void *a, const void *b, int64_t count, bool fresh, float *tiles,
                     int64_t tile_stride)
{
    const float *panel = a;
    for (; rows >= MR; rows -= MR, panel += MR * count, tiles += tile_stride)
        register_tile(MR, panel, b, count, fresh, tiles);
    /* A short last panel takes the next larger of three tiles; what lies beyond its rows is zero and never looked at. */
    if (rows > MR * 2 / 3)
        register_tile(MR - 1, panel, b, count, fresh, tiles);
    else if (rows > MR / 3)
        register_tile(MR * 2 / 3, panel, b, count, fresh, tiles);
    else if (rows > 0)
        register_tile(MR / 3, panel, b, count, fresh, tiles);
}

const sl_gemm_isa GEMM_ISA = {
    .mr = MR,
    .nr = NR,
    .k_step = 1,
    .kc = KC,
    .panel_rows = PANELS,
    .packed_bytes = 4,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .multiply = multiply,
    .finish = finish,
};
