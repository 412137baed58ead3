/*
 * The f32 register tile and its packing, once for AVX-512 and AVX2: MR rows by NV vectors. bf16 is
 * widened.
 *
 *   AVX-512  6 x 64: 24 accumulators, 4 vectors of B, 1 broadcast of A = 29 of 32 registers; 10 loads, 24 multiply-adds
 *   AVX2     6 x 16: 12 accumulators, 2 vectors of B, 1 broadcast of A = 15 of 16 registers; 8 loads, 12 multiply-adds
 *
 * Two multiply-adds a cycle are the limit as long as everything else gets issued beside them; with a busy sibling
 * thread on the core it is not, so what counts is instructions per multiply-add (docs/lab/gemm.md has the tiles that
 * were tried).
 *
 * A panel of B is transposed or copied to [k][NR]. A needs no such order, since a broadcast reads along rows as well as
 * across: f32 rows along k are read where they lie; bf16 is widened to [rows][KC]; and A stored across k is gathered to
 * [k][TILE_ROWS], for its lines lie pages apart. Widening in the inner loop would halve the packed bytes but add
 * instructions there; products of two bf16 are exact in f32, as in a bf16 dot-product instruction. Packing also
 * prefetches what is packed next: rows are visited a few hundred bytes at a time, too short for the hardware to see a
 * stream.
 */
#include "device/cpu/gemm/gemm.h"
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/simd/simd.h"

#ifdef __AVX512F__ /* L1 48 KiB: 128 deep, a panel of B takes 32 KiB, six rows of A 3 */
#define NV 4
#define KC 128
#else /* L1 32 KiB: 256 deep, a panel of B takes 16 KiB, six rows of A 6 */
#define NV 2
#define KC 256
#endif
#define TILE_COLUMNS 384
#define MR 6
#define NR (NV * VF_LANES)
#define TILE_ROWS 132
#define STRIPE_ROWS 512
#define STRIPE_COLUMNS 128
#include "device/cpu/gemm/gemm_finish.h"

SL_INLINE void prefetch(const void *data, int64_t index, bool bf16)
{
    _mm_prefetch((const char *) element_const(data, index, bf16), _MM_HINT_T1);
}

/* B stored along k: packed[k][j] = row j, element k, by transposing square blocks. Rows that are not there are zero. */
SL_INLINE void pack_b_rows(const void *data, bool bf16, int64_t leading, int64_t width, int64_t count, float *packed)
{
    for (int first = 0; first < NR; first += VF_LANES)
        for (int64_t k = 0; k < count; k += VF_LANES) {
            const int deep = lanes_of(count - k);
            vf r[VF_LANES];
            SL_UNROLL
            for (int i = 0; i < VF_LANES; i++) {
                r[i] = first + i < width ? vf_get(data, (first + i) * leading + k, deep, bf16) : vf_zero();
                prefetch(data, (NR + first + i) * leading + k, bf16);
            }
            vf_transpose(r);
            float *to = packed + k * NR + first;
            SL_UNROLL
            for (int i = 0; i < VF_LANES; i++)
                if (i < deep)
                    vf_store(to + i * NR, r[i], VF_LANES);
        }
}

/* B stored across k: rows are copied. A panel's rows are short and far apart: no stream that the hardware would see. */
SL_INLINE void pack_b_columns(const void *data, bool bf16, int64_t leading, int64_t width, int64_t count, float *packed)
{
    enum { ROWS_AHEAD = 32 };
    for (int64_t k = 0; k < count; k++) {
        SL_UNROLL
        for (int j = 0; j < NR; j += bf16 ? 32 : 16) {
            prefetch(data, (k + ROWS_AHEAD) * leading + j, bf16);
            prefetch(data, k * leading + NR + j, bf16);
        }
        for (int j = 0; j < NR; j += VF_LANES) {
            const int64_t there = SL_MIN(VF_LANES, width - j);
            vf_store(packed + k * NR + j, there > 0 ? vf_get(data, k * leading + j, (int) there, bf16) : vf_zero(),
                     VF_LANES);
        }
    }
}

static void pack_b(const sl_gemm_matrix *b, int64_t first, int64_t width, int64_t k0, int64_t count, void *packed)
{
    const bool bf16 = b->dtype == SL_BF16, whole = width == NR;
    const void *data = element_const(b->data, b->transposed ? first * b->leading + k0 : k0 * b->leading + first, bf16);
    /* Constants: each compiles to its own loop, the common cases without masks. */
    if (b->transposed && bf16)
        pack_b_rows(data, true, b->leading, width, count, packed);
    else if (b->transposed)
        pack_b_rows(data, false, b->leading, width, count, packed);
    else if (whole && bf16)
        pack_b_columns(data, true, b->leading, NR, count, packed);
    else if (whole)
        pack_b_columns(data, false, b->leading, NR, count, packed);
    else if (bf16)
        pack_b_columns(data, true, b->leading, width, count, packed);
    else
        pack_b_columns(data, false, b->leading, width, count, packed);
}

/* bf16 A stored along k: packed[i][k], rows KC apart. */
static void pack_a_rows(const void *data, int64_t leading, int64_t rows, int64_t count, float *packed)
{
    for (int64_t i = 0; i < rows; i++) {
        int64_t k = 0;
        for (; k + VF_LANES <= count; k += VF_LANES) {
            vf_store(packed + i * KC + k, vf_get(data, i * leading + k, VF_LANES, true), VF_LANES);
            prefetch(data, i * leading + k + KC, true);
        }
        if (k < count)
            vf_store(packed + i * KC + k, vf_get(data, i * leading + k, (int) (count - k), true), VF_LANES);
    }
}

/* f32 A stored along k is read where it lies; what the next k will read is fetched ahead. */
static void fetch_a_rows(const float *data, int64_t leading, int64_t rows, int64_t count)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < count; k += 16)
            prefetch(data, i * leading + count + k, false);
}

/* A stored across k: packed[k][i], TILE_ROWS apart. */
SL_INLINE void pack_a_columns(const void *data, bool bf16, int64_t leading, int64_t rows, int64_t count, float *packed)
{
    for (int64_t k = 0; k < count; k++) {
        int64_t i = 0;
        for (; i + VF_LANES <= rows; i += VF_LANES) {
            vf_store(packed + k * TILE_ROWS + i, vf_get(data, k * leading + i, VF_LANES, bf16), VF_LANES);
            prefetch(data, (k + KC) * leading + i, bf16);
        }
        if (i < rows)
            vf_store(packed + k * TILE_ROWS + i, vf_get(data, k * leading + i, (int) (rows - i), bf16),
                     (int) (rows - i));
    }
}

static sl_gemm_rows pack_a(const sl_gemm_matrix *a, int64_t first, int64_t rows, int64_t k0, int64_t count,
                           void *packed, bool again)
{
    const bool bf16 = a->dtype == SL_BF16;
    const void *data = element_const(a->data, a->transposed ? k0 * a->leading + first : first * a->leading + k0, bf16);
    if (!a->transposed && !bf16) {
        fetch_a_rows(data, a->leading, rows, count);
        return (sl_gemm_rows){data, a->leading, false};
    }
    if (!a->transposed) {
        if (!again)
            pack_a_rows(data, a->leading, rows, count, packed);
        return (sl_gemm_rows){packed, KC, false};
    }
    if (!again && bf16)
        pack_a_columns(data, true, a->leading, rows, count, packed);
    else if (!again)
        pack_a_columns(data, false, a->leading, rows, count, packed);
    return (sl_gemm_rows){packed, TILE_ROWS, true};
}

/* sum += x * y. The instruction itself, because in unrolled code gcc picks its other forms, which overwrite a factor
 * instead of the sum, and then copies registers: a tenth more instructions. */
SL_INLINE void multiply_add(vf x, vf y, vf *sum)
{
#ifdef __clang__
    *sum = vf_fma(x, y, *sum);
#else
    __asm__("vfmadd231ps %1, %2, %0" : "+v"(*sum) : "v"(x), "v"(y));
#endif
}

/* One k of a register tile. `rows` and `across` are constants at every call, so everything is in registers. */
SL_INLINE void register_step(const int rows, const bool across, const float *a, int64_t stride, const float *b,
                             vf sum[MR][NV])
{
    vf column[NV];
    SL_UNROLL
    for (int j = 0; j < NV; j++)
        column[j] = vf_load(b + j * VF_LANES, VF_LANES);
    SL_UNROLL
    for (int i = 0; i < rows; i++) {
        const vf x = vf_set1(a[across ? i : i * stride]);
        SL_UNROLL
        for (int j = 0; j < NV; j++)
            multiply_add(x, column[j], &sum[i][j]);
    }
}

SL_INLINE void register_tile(const int rows, const bool across, const float *a, int64_t stride, const float *b,
                             int64_t count, bool fresh, float *c)
{
    const int64_t next = across ? stride : 1;
    vf sum[MR][NV];
    SL_UNROLL
    for (int i = 0; i < rows; i++) {
        SL_UNROLL
        for (int j = 0; j < NV; j++)
            sum[i][j] = fresh ? vf_zero() : vf_load(c + i * NR + j * VF_LANES, VF_LANES);
    }
    int64_t k = 0;
    for (; k + 4 <= count; k += 4, a += 4 * next, b += 4 * NR) {
        register_step(rows, across, a, stride, b, sum);
        register_step(rows, across, a + next, stride, b + NR, sum);
        register_step(rows, across, a + 2 * next, stride, b + 2 * NR, sum);
        register_step(rows, across, a + 3 * next, stride, b + 3 * NR, sum);
    }
    for (; k < count; k++, a += next, b += NR)
        register_step(rows, across, a, stride, b, sum);
    SL_UNROLL
    for (int i = 0; i < rows; i++) {
        SL_UNROLL
        for (int j = 0; j < NV; j++)
            vf_store(c + i * NR + j * VF_LANES, sum[i][j], VF_LANES);
    }
}

SL_INLINE void multiply_rows(const bool across, int64_t rows, const float *a, int64_t stride, const float *b,
                             int64_t count, bool fresh, float *tiles, int64_t tile_stride)
{
    const int64_t next = across ? 1 : stride;
    for (; rows >= MR; rows -= MR, a += MR * next, tiles += tile_stride)
        register_tile(MR, across, a, stride, b, count, fresh, tiles);
    /* The last rows: 4 and 1 at a time. */
    if (rows >= 4) {
        register_tile(4, across, a, stride, b, count, fresh, tiles);
        rows -= 4, a += 4 * next, tiles += 4 * NR;
    }
    for (; rows > 0; rows--, a += next, tiles += NR)
        register_tile(1, across, a, stride, b, count, fresh, tiles);
}

static void multiply(int64_t rows, sl_gemm_rows a, const void *b, int64_t count, bool fresh, float *tiles,
                     int64_t tile_stride, sl_gemm_fetch *fetch)
{
    (void) fetch;
    if (a.across)
        multiply_rows(true, rows, a.data, TILE_ROWS, b, count, fresh, tiles, tile_stride);
    else
        multiply_rows(false, rows, a.data, a.stride, b, count, fresh, tiles, tile_stride);
}

const sl_gemm_isa SL_ISA_SYMBOL(sl_gemm) = {
    .mr = MR,
    .nr = NR,
    .k_step = 1,
    .kc = KC,
    .tile_rows = TILE_ROWS,
    .tile_columns = TILE_COLUMNS,
    .stripe_rows = {STRIPE_ROWS, 4 * STRIPE_ROWS},
    .stripe_columns = STRIPE_COLUMNS,
    .block_k = 1536,
    .block_rows = 1024,
    .block_elements = 1 << 20,
    .packed_bytes = 4,
    .a_bytes = TILE_ROWS * KC * 4,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .multiply = multiply,
    .finish = finish,
    .leave = finish_end,
};
