/*
 * bf16 GEMM with AMX: a register tile of 32 x 32 sums in four tiles, fed by two tiles of A and two of B:
 *
 *              B0  B1        per 32 of k: four tile loads (4 KiB) and four tile products of 16 cycles each,
 *        A0    C0  C1        so loads (8 cycles each from L1) hide behind these as long as the panels
 *        A1    C2  C3        come from L1 or L2 in time
 *
 * A tile of A is 16 rows of 32 k. A tile of B is 16 rows of k pairs, each the pairs of 16 columns (k even, k odd). So
 * memory that runs along k is a tile of A as it lies, and a tile of B by transposing 16 x 16 pairs; memory that runs
 * across k gives a tile of B by interleaving two rows, and a tile of A by transposing that. Panels of B are packed [k /
 * 32][tile][16][64 bytes]. k beyond the end is zero on both sides.
 *
 * AMX in f32 is not worth its rounding; f32 uses AVX-512.
 */
#include "device/cpu/gemm/gemm.h"

#include "device/cpu/gemm/gemm_amx_tiles.h"

#define MR 32
#define NR 32
/* bench/gemm.sh may try others (GEMM_FLAGS). */
#ifndef KC
#define KC 1024
#endif
#ifndef TILE_ROWS
#define TILE_ROWS 64
#endif
#ifndef STRIPE_ROWS
#define STRIPE_ROWS 1024
#endif
#ifndef STRIPE_COLUMNS
#define STRIPE_COLUMNS 128
#endif
#ifndef FEW_ROWS
#define FEW_ROWS 512
#endif
#ifndef FEW_KC
#define FEW_KC 768
#endif
#define A_STRIDE (KC + 32) /* no power of two: the rows of a tile must not share a cache set */
#include "device/cpu/gemm/gemm_finish.h"

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

SL_INLINE void store_tile(const __m512i rows[16], char *to, int64_t stride)
{
    SL_UNROLL
    for (int i = 0; i < 16; i++)
        _mm512_storeu_si512(to + stride * i, rows[i]);
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

/* 32 stored rows across k, 32 wide, as 16 rows of pairs for each half of the width. */
SL_INLINE void load_across_32(const sl_bf16 *data, int64_t leading, __m512i low[16], __m512i high[16])
{
    static const uint16_t pairs[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                       8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    const __m512i first = _mm512_loadu_si512(pairs), second = _mm512_add_epi16(first, _mm512_set1_epi16(16));
    SL_UNROLL
    for (int i = 0; i < 16; i++) {
        const __m512i even = _mm512_loadu_si512(data + 2 * i * leading);
        const __m512i odd = _mm512_loadu_si512(data + (2 * i + 1) * leading);
        low[i] = _mm512_permutex2var_epi16(even, first, odd);
        high[i] = _mm512_permutex2var_epi16(even, second, odd);
    }
}

/* One tile's worth from where it lies: 16 wide, 32 deep, or what is there of it. */
SL_INLINE void load_tile(const sl_bf16 *from, const bool along_k, int64_t leading, int64_t wide, int64_t deep,
                         __m512i rows[16])
{
    /* Whole tiles get their own code, without masks. */
    if (wide >= 16 && deep >= DEPTH) {
        if (along_k)
            load_along(from, leading, 16, DEPTH, rows);
        else
            load_across(from, leading, 16, DEPTH, rows);
    } else if (along_k) {
        load_along(from, leading, wide, deep, rows);
    } else {
        load_across(from, leading, wide, deep, rows);
    }
}

/* A to [rows][A_STRIDE]; what is beyond the rows is never looked at, what is beyond k is zero. */
static void pack_a_along(const sl_gemm_matrix *a, int64_t first, int64_t rows, int64_t k0, int64_t count,
                         sl_bf16 *packed)
{
    for (int64_t i = 0; i < rows; i += 16)
        for (int64_t k = 0; k < count; k += DEPTH) {
            const sl_bf16 *from = (const sl_bf16 *) a->data + (first + i) * a->leading + k0 + k;
            __m512i tile[16];
            load_tile(from, true, a->leading, rows - i, count - k, tile);
            store_tile(tile, (char *) (packed + i * A_STRIDE + k), A_STRIDE * 2);
        }
}

static void pack_a_across(const sl_gemm_matrix *a, int64_t first, int64_t rows, int64_t k0, int64_t count,
                          sl_bf16 *packed)
{
    for (int64_t i = 0; i < rows; i += 32)
        for (int64_t k = 0; k < count; k += DEPTH) {
            const sl_bf16 *from = (const sl_bf16 *) a->data + (k0 + k) * a->leading + first + i;
            const int64_t wide = rows - i, deep = count - k;
            __m512i low[16], high[16];
            if (wide >= 32 && deep >= DEPTH) {
                load_across_32(from, a->leading, low, high);
            } else {
                load_tile(from, false, a->leading, wide, deep, low);
                load_tile(from + 16, false, a->leading, wide - 16, deep, high);
            }
            transpose_pairs(low);
            transpose_pairs(high);
            store_tile(low, (char *) (packed + i * A_STRIDE + k), A_STRIDE * 2);
            store_tile(high, (char *) (packed + (i + 16) * A_STRIDE + k), A_STRIDE * 2);
        }
}

/* Rows along k are loaded into tiles where they lie, unless a tile would reach beyond them. */
static sl_gemm_rows pack_a(const sl_gemm_matrix *a, int64_t first, int64_t rows, int64_t k0, int64_t count,
                           void *packed, bool again)
{
    if (!a->transposed && rows % 16 == 0 && count % DEPTH == 0)
        return (sl_gemm_rows){(const sl_bf16 *) a->data + first * a->leading + k0, a->leading, false};
    if (!again && a->transposed)
        pack_a_across(a, first, rows, k0, count, packed);
    else if (!again)
        pack_a_along(a, first, rows, k0, count, packed);
    return (sl_gemm_rows){packed, A_STRIDE, false};
}

/* What comes after a tile's worth of B: along k the next panel's rows, across k the rows below. */
SL_INLINE void fetch_ahead(const sl_bf16 *from, const bool along_k, int64_t leading)
{
    for (int i = 0; i < (along_k ? 16 : DEPTH); i++)
        _mm_prefetch((const char *) (from + ((along_k ? NR : DEPTH) + i) * leading), _MM_HINT_T1);
}

static void pack_b_along(const sl_gemm_matrix *b, int64_t first, int64_t width, int64_t k0, int64_t count, char *to)
{
    for (int64_t k = 0; k < count; k += DEPTH)
        for (int64_t j = 0; j < NR; j += 16, to += TILE_BYTES) {
            const sl_bf16 *from = (const sl_bf16 *) b->data + (first + j) * b->leading + k0 + k;
            __m512i tile[16];
            if (j < width) {
                fetch_ahead(from, true, b->leading);
                load_tile(from, true, b->leading, width - j, count - k, tile);
                transpose_pairs(tile);
                store_tile(tile, to, 64);
            } else {
                memset(to, 0, TILE_BYTES);
            }
        }
}

static void pack_b_across(const sl_gemm_matrix *b, int64_t first, int64_t width, int64_t k0, int64_t count, char *to)
{
    for (int64_t k = 0; k < count; k += DEPTH, to += STEP_BYTES) {
        const sl_bf16 *from = (const sl_bf16 *) b->data + (k0 + k) * b->leading + first;
        __m512i low[16], high[16];
        fetch_ahead(from, false, b->leading);
        if (width >= 32 && count - k >= DEPTH) {
            load_across_32(from, b->leading, low, high);
        } else {
            load_tile(from, false, b->leading, width, count - k, low);
            load_tile(from + 16, false, b->leading, width - 16, count - k, high);
        }
        store_tile(low, to, 64);
        store_tile(high, to + TILE_BYTES, 64);
    }
}

static void pack_b(const sl_gemm_matrix *b, int64_t first, int64_t width, int64_t k0, int64_t count, void *packed)
{
    if (b->transposed)
        pack_b_along(b, first, width, k0, count, packed);
    else
        pack_b_across(b, first, width, k0, count, packed);
}

SL_INLINE void fetch_lines(sl_gemm_fetch *fetch)
{
    for (int i = 0; i < fetch->pace && fetch->rows > 0; i++) {
        _mm_prefetch(fetch->at, _MM_HINT_T1);
        fetch->at += 64;
        if (--fetch->in_row == 0) {
            fetch->at += fetch->skip;
            fetch->in_row = fetch->row_lines;
            fetch->rows--;
        }
    }
}

/* The next loads stand between the tile instructions: 130 ns a step instead of 140 with loads first (on shared cores). */
static void multiply_32(const char *a, int64_t stride, const char *b, int64_t count, bool fresh, float *c,
                        sl_gemm_fetch *fetch)
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
    amx_load(4, a, stride);
    amx_load(6, b, 64);
    amx_load(5, a + 16 * stride, stride);
    amx_load(7, b + TILE_BYTES, 64);
    for (int64_t k = DEPTH; k < count; k += DEPTH) {
        a += 2 * DEPTH, b += STEP_BYTES;
        amx_multiply(0, 4, 6);
        amx_multiply(2, 5, 6);
        amx_load(6, b, 64);
        fetch_lines(fetch);
        amx_multiply(1, 4, 7);
        amx_load(4, a, stride);
        amx_multiply(3, 5, 7);
        amx_load(5, a + 16 * stride, stride);
        amx_load(7, b + TILE_BYTES, 64);
    }
    amx_multiply(0, 4, 6);
    amx_multiply(2, 5, 6);
    fetch_lines(fetch);
    amx_multiply(1, 4, 7);
    amx_multiply(3, 5, 7);
    amx_store(0, c, NR * 4);
    amx_store(1, c + 16, NR * 4);
    amx_store(2, c + 16 * NR, NR * 4);
    amx_store(3, c + 16 * NR + 16, NR * 4);
}

/* A last panel of at most 16 rows leaves its lower half alone. */
static void multiply_16(const char *a, int64_t stride, const char *b, int64_t count, bool fresh, float *c)
{
    if (fresh) {
        amx_zero(0);
        amx_zero(1);
    } else {
        amx_load(0, c, NR * 4);
        amx_load(1, c + 16, NR * 4);
    }
    for (int64_t k = 0; k < count; k += DEPTH, a += 2 * DEPTH, b += STEP_BYTES) {
        amx_load(4, a, stride);
        amx_load(6, b, 64);
        amx_load(7, b + TILE_BYTES, 64);
        amx_multiply(0, 4, 6);
        amx_multiply(1, 4, 7);
    }
    amx_store(0, c, NR * 4);
    amx_store(1, c + 16, NR * 4);
}

static void multiply(int64_t rows, sl_gemm_rows a, const void *b, int64_t count, bool fresh, float *tiles,
                     int64_t tile_stride, sl_gemm_fetch *fetch)
{
    const char *at = a.data;
    for (; rows > 0; rows -= MR, at += MR * a.stride * 2, tiles += tile_stride) {
        if (rows > 16)
            multiply_32(at, a.stride * 2, b, count, fresh, tiles, fetch);
        else
            multiply_16(at, a.stride * 2, b, count, fresh, tiles);
    }
}

static void transpose(const float *from, float *to)
{
    for (int i = 0; i < MR; i += 16)
        for (int j = 0; j < NR; j += 16) {
            vf r[16];
            SL_UNROLL
            for (int v = 0; v < 16; v++)
                r[v] = vf_load(from + (i + v) * NR + j, 16);
            vf_transpose(r);
            SL_UNROLL
            for (int v = 0; v < 16; v++)
                vf_store(to + (j + v) * MR + i, r[v], 16);
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
    finish_end();
}

const sl_gemm_isa sl_gemm_amx = {
    .mr = MR,
    .nr = NR,
    .k_step = DEPTH,
    .kc = KC,
    .few_rows = FEW_ROWS,
    .few_kc = FEW_KC,
    .tile_rows = TILE_ROWS,
    .tile_columns = 768,
    .stripe_rows = {STRIPE_ROWS, STRIPE_ROWS},
    .stripe_columns = STRIPE_COLUMNS,
    .few_columns = 384,
    .stripe_sums = 96 * 1024,
    .block_k = 1536,
    .block_rows = 1024,
    .block_elements = 768 * 1024,
    .packed_bytes = 2,
    .a_bytes = TILE_ROWS * A_STRIDE * 2,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .multiply = multiply,
    .finish = finish,
    .transpose = transpose,
    .enter = enter,
    .leave = leave,
};
