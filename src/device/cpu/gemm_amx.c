/*
 * bf16 products with AMX: a register tile of 32 x 32 sums in four tiles, fed by two tiles of A and two of B, each 32 deep:
 *
 *              B0  B1        per 32 of k: four tile loads (4 KiB), four tile products of 16 cycles each, so loads (8 cycles
 *        A0    C0  C1        each from L1) hide behind products as long as the panels come from L1 or L2 in time
 *        A1    C2  C3
 *
 * A tile of A is 16 rows of 32 k. A tile of B is 16 rows of k pairs, each the pairs of 16 columns (k even, k odd). So memory
 * that runs along k gives a row of A as it lies, and a tile of B by transposing 16 x 16 pairs; memory that runs across k gives
 * a tile of B by interleaving two rows, and a tile of A by transposing that. Panels are packed [k / 32][tile][16][64 bytes]. k
 * beyond the end is zero on both sides.
 *
 * f32 products have no AMX form worth its rounding; they stay with AVX-512.
 */
#include "device/cpu/gemm.h"

#if defined(__AMX_BF16__) || defined(SL_AMX_EMULATE)
#include "device/cpu/gemm_amx_tiles.h"

#define MR 32
#define NR 32
#define KC 1024
#define TILE_ROWS 128
#include "device/cpu/gemm_finish.h"

enum { DEPTH = 32, TILE_BYTES = 1024, STEP_BYTES = 2 * TILE_BYTES };

SL_INLINE __m512i load_words(const sl_bf16 *from, int64_t count)
{
    if (count >= 32)
        return _mm512_loadu_si512(from);
    return count <= 0 ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi16((1u << count) - 1, from);
}

SL_INLINE __m256i load_half(const sl_bf16 *from, int64_t count)
{
    if (count >= 16)
        return _mm256_loadu_si256((const __m256i *) (const void *) from);
    return count <= 0 ? _mm256_setzero_si256() : _mm256_maskz_loadu_epi16((__mmask16) ((1u << count) - 1), from);
}

SL_INLINE void store_tile(const __m512i rows[16], char *to)
{
    SL_UNROLL
    for (int i = 0; i < 16; i++)
        _mm512_store_si512(to + 64 * i, rows[i]);
}

SL_INLINE void transpose_pairs(__m512i rows[16])
{
    vf r[16];
    SL_UNROLL
    for (int i = 0; i < 16; i++)
        r[i] = _mm512_castsi512_ps(rows[i]);
    vf_transpose(r);
    SL_UNROLL
    for (int i = 0; i < 16; i++)
        rows[i] = _mm512_castps_si512(r[i]);
}

/* 16 stored rows along k, 32 deep: row i is element i of the panel. */
SL_INLINE void load_along(const sl_bf16 *data, int64_t leading, int64_t width, int64_t deep, __m512i rows[16])
{
    SL_UNROLL
    for (int i = 0; i < 16; i++)
        rows[i] = i < width ? load_words(data + i * leading, deep) : _mm512_setzero_si512();
}

/* 32 stored rows across k, 16 wide, as 16 rows of pairs (k even, k odd). */
SL_INLINE void load_across(const sl_bf16 *data, int64_t leading, int64_t width, int64_t deep, __m512i rows[16])
{
    SL_UNROLL
    for (int i = 0; i < 16; i++) {
        const __m256i even = 2 * i < deep ? load_half(data + 2 * i * leading, width) : _mm256_setzero_si256();
        const __m256i odd = 2 * i + 1 < deep ? load_half(data + (2 * i + 1) * leading, width) : _mm256_setzero_si256();
        rows[i] = _mm512_or_si512(_mm512_cvtepu16_epi32(even), _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
    }
}

/* `transpose`: the tile wants its rows across the way they lie. */
SL_INLINE void pack(const sl_gemm_matrix *x, const bool along_k, const bool transpose, int64_t first, int64_t width,
                    int64_t k0, int64_t count, char *packed)
{
    const sl_bf16 *data = (const sl_bf16 *) x->data + (along_k ? first * x->leading + k0 : k0 * x->leading + first);
    const int64_t leading = x->leading;
    for (int64_t k = 0; k < count; k += DEPTH)
        for (int half = 0; half < 2; half++, packed += TILE_BYTES) {
            const int64_t wide = width - 16 * half, deep = count - k;
            const sl_bf16 *from = data + (along_k ? 16 * half * leading + k : k * leading + 16 * half);
            __m512i rows[16];
            /* Whole tiles get their own code, without masks. */
            if (wide >= 16 && deep >= DEPTH) {
                if (along_k)
                    load_along(from, leading, 16, DEPTH, rows);
                else
                    load_across(from, leading, 16, DEPTH, rows);
            } else if (wide <= 0) {
                load_along(from, leading, 0, 0, rows);
            } else if (along_k) {
                load_along(from, leading, wide, deep, rows);
            } else {
                load_across(from, leading, wide, deep, rows);
            }
            if (transpose)
                transpose_pairs(rows);
            store_tile(rows, packed);
        }
}

static void pack_a(const sl_gemm_matrix *a, int64_t first, int64_t rows, int64_t k0, int64_t count, void *packed)
{
    for (int64_t i = 0; i < rows; i += MR) {
        char *panel = (char *) packed + i * SL_ROUND_UP(count, DEPTH) * 2;
        if (a->transposed)
            pack(a, false, true, first + i, SL_MIN(MR, rows - i), k0, count, panel);
        else
            pack(a, true, false, first + i, SL_MIN(MR, rows - i), k0, count, panel);
    }
}

static void pack_b(const sl_gemm_matrix *b, int64_t first, int64_t width, int64_t k0, int64_t count, void *packed)
{
    if (b->transposed)
        pack(b, true, true, first, width, k0, count, packed);
    else
        pack(b, false, false, first, width, k0, count, packed);
}

static void multiply_32(const char *a, const char *b, int64_t count, bool fresh, float *c)
{
    if (fresh) {
        amx_zero(0);
        amx_zero(1);
        amx_zero(2);
        amx_zero(3);
    } else {
        amx_load(0, c, NR * 4);
        amx_load(1, c + 16, NR * 4);
        amx_load(2, c + 16 * NR, NR * 4);
        amx_load(3, c + 16 * NR + 16, NR * 4);
    }
    for (int64_t k = 0; k < count; k += DEPTH, a += STEP_BYTES, b += STEP_BYTES) {
        amx_load(6, b, 64);
        amx_load(4, a, 64);
        amx_load(7, b + TILE_BYTES, 64);
        amx_multiply(0, 4, 6);
        amx_load(5, a + TILE_BYTES, 64);
        amx_multiply(1, 4, 7);
        amx_multiply(2, 5, 6);
        amx_multiply(3, 5, 7);
    }
    amx_store(0, c, NR * 4);
    amx_store(1, c + 16, NR * 4);
    amx_store(2, c + 16 * NR, NR * 4);
    amx_store(3, c + 16 * NR + 16, NR * 4);
}

/* A last panel of at most 16 rows leaves its lower half alone. */
static void multiply_16(const char *a, const char *b, int64_t count, bool fresh, float *c)
{
    if (fresh) {
        amx_zero(0);
        amx_zero(1);
    } else {
        amx_load(0, c, NR * 4);
        amx_load(1, c + 16, NR * 4);
    }
    for (int64_t k = 0; k < count; k += DEPTH, a += STEP_BYTES, b += STEP_BYTES) {
        amx_load(4, a, 64);
        amx_load(6, b, 64);
        amx_load(7, b + TILE_BYTES, 64);
        amx_multiply(0, 4, 6);
        amx_multiply(1, 4, 7);
    }
    amx_store(0, c, NR * 4);
    amx_store(1, c + 16, NR * 4);
}

static void multiply(int64_t rows, const void *a, bool a_across, const void *b, int64_t count, bool fresh, float *tiles,
                     int64_t tile_stride)
{
    (void) a_across; /* packed alike */
    const char *panel = a;
    for (; rows > 0; rows -= MR, panel += MR * 2 * count, tiles += tile_stride) {
        if (rows > 16)
            multiply_32(panel, b, count, fresh, tiles);
        else
            multiply_16(panel, b, count, fresh, tiles);
    }
}

static void enter(void)
{
    static const amx_config config = {
        .palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    amx_load_config(&config);
}

static void leave(void)
{
    amx_release();
}

const sl_gemm_isa sl_gemm_amx = {
    .mr = MR,
    .nr = NR,
    .k_step = DEPTH,
    .kc = KC,
    .tile_rows = TILE_ROWS,
    .tile_columns = 768,
    .block_k = 1536,
    .block_rows = 1024,
    .block_elements = 768 * 1024,
    .packed_bytes = 2,
    .a_bytes = TILE_ROWS * KC * 2,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .multiply = multiply,
    .finish = finish,
    .enter = enter,
    .leave = leave,
};
#else
typedef int gemm_amx_is_empty;
#endif
