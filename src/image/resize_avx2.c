/*
 * The two passes with AVX2. A multiplication takes pairs of 16-bit numbers and adds their products, so a pair of taps meets a pair of
 * inputs of the same channel:
 *
 *     row     r0 g0 b0 x0 | r1 g1 b1 x1 | ...   -> shuffled    r0 r1 | g0 g1 | b0 b1 | x0 x1      two rows, one in each half
 *     column  row 0: r g b x ...  row 1: r g b x ...  -> interleaved  r0 r1 | g0 g1 | ...         eight pixels
 *
 * Once with the taps' high halves and once with the low ones.
 */
#include <immintrin.h>
#include <string.h>

#include "image/resize_taps.h"

static __m256i broadcast(const int32_t *pair)
{
    return _mm256_set1_epi32(*pair);
}

/* (high * 2^11 + low) >> 22, not yet clamped; the rounding is in `low`. */
static __m256i finish(__m256i high, __m256i low)
{
    return _mm256_srai_epi32(_mm256_add_epi32(_mm256_slli_epi32(high, SL_TAP_HALF_BITS), low), SL_TAP_BITS);
}

static __m256i four_pixels_of_two_rows(const unsigned char *first, const unsigned char *second)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *) (const void *) first)),
                                   _mm_loadu_si128((const __m128i *) (const void *) second), 1);
}

static __m256i multiply_add(__m256i sum, __m256i inputs, __m256i taps)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(inputs, taps));
}

static void store_pixel(unsigned char *out, __m128i channels)
{
    __m128i bytes = _mm_packs_epi32(channels, channels);
    int pixel = _mm_cvtsi128_si32(_mm_packus_epi16(bytes, bytes));
    memcpy(out, &pixel, sizeof pixel);
}

/* Four rows at once: the taps are loaded for all of them. */
static void four_rows(const sl_taps *taps, const unsigned char *const in[4], unsigned char *const out[4])
{
    const __m256i first_pair = _mm256_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1, 0, -1, 4, -1, 1,
                                                -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1);
    const __m256i second_pair = _mm256_setr_epi8(8, -1, 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, 11, -1, 15, -1, 8, -1,
                                                 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, 11, -1, 15, -1);
    const __m256i half = _mm256_set1_epi32(1 << (SL_TAP_BITS - 1));
    for (int64_t x = 0; x < taps->outputs; x++) {
        const int32_t *pairs = taps->pairs + x * taps->stride;
        int64_t at = taps->group_first[x] * SL_PIXEL_BYTES;
        __m256i high0 = _mm256_setzero_si256(), high1 = high0, low0 = half, low1 = half;
        for (int64_t g = 0; g < taps->groups[x]; g++, pairs += SL_TAP_GROUP, at += SL_TAP_GROUP * SL_PIXEL_BYTES) {
            __m256i rows0 = four_pixels_of_two_rows(in[0] + at, in[1] + at);
            __m256i rows1 = four_pixels_of_two_rows(in[2] + at, in[3] + at);
            __m256i a0 = _mm256_shuffle_epi8(rows0, first_pair), b0 = _mm256_shuffle_epi8(rows0, second_pair);
            __m256i a1 = _mm256_shuffle_epi8(rows1, first_pair), b1 = _mm256_shuffle_epi8(rows1, second_pair);
            __m256i high_a = broadcast(pairs), high_b = broadcast(pairs + 1);
            __m256i low_a = broadcast(pairs + 2), low_b = broadcast(pairs + 3);
            high0 = multiply_add(multiply_add(high0, a0, high_a), b0, high_b);
            low0 = multiply_add(multiply_add(low0, a0, low_a), b0, low_b);
            high1 = multiply_add(multiply_add(high1, a1, high_a), b1, high_b);
            low1 = multiply_add(multiply_add(low1, a1, low_a), b1, low_b);
        }
        __m256i rows0 = finish(high0, low0), rows1 = finish(high1, low1);
        store_pixel(out[0] + x * SL_PIXEL_BYTES, _mm256_castsi256_si128(rows0));
        store_pixel(out[1] + x * SL_PIXEL_BYTES, _mm256_extracti128_si256(rows0, 1));
        store_pixel(out[2] + x * SL_PIXEL_BYTES, _mm256_castsi256_si128(rows1));
        store_pixel(out[3] + x * SL_PIXEL_BYTES, _mm256_extracti128_si256(rows1, 1));
    }
}

void sl_resize_rows_avx2(const sl_taps *taps, const sl_pixels *from, int64_t begin, int64_t end, unsigned char *out,
                         size_t stride)
{
    for (int64_t y = begin; y < end; y += 4) {
        const unsigned char *in[4];
        unsigned char *to[4];
        for (int64_t i = 0; i < 4; i++) { /* the last row stands in for rows that are not there */
            int64_t row = SL_MIN(y + i, end - 1);
            in[i] = from->at + (size_t) row * from->stride;
            to[i] = out + (size_t) (row - begin) * stride;
        }
        four_rows(taps, in, to);
    }
}

/* Eight pixels of one output row. */
static __m256i column_pixels(const sl_taps *taps, int64_t y, const unsigned char *in, size_t stride)
{
    const __m256i zero = _mm256_setzero_si256(), half = _mm256_set1_epi32(1 << (SL_TAP_BITS - 1));
    const int32_t *pairs = taps->pairs + y * taps->stride;
    __m256i high[4] = {zero, zero, zero, zero}, low[4] = {half, half, half, half};
    for (int64_t g = 0; g < taps->groups[y]; g++, pairs += SL_TAP_GROUP)
        for (int pair = 0; pair < 2; pair++, in += 2 * stride) {
            __m256i a = _mm256_loadu_si256((const __m256i *) (const void *) in);
            __m256i b = _mm256_loadu_si256((const __m256i *) (const void *) (in + stride));
            __m256i left = _mm256_unpacklo_epi8(a, b), right = _mm256_unpackhi_epi8(a, b);
            __m256i inputs[4] = {_mm256_unpacklo_epi8(left, zero), _mm256_unpackhi_epi8(left, zero),
                                 _mm256_unpacklo_epi8(right, zero), _mm256_unpackhi_epi8(right, zero)};
            __m256i high_taps = broadcast(pairs + pair), low_taps = broadcast(pairs + 2 + pair);
            for (int i = 0; i < 4; i++) {
                high[i] = multiply_add(high[i], inputs[i], high_taps);
                low[i] = multiply_add(low[i], inputs[i], low_taps);
            }
        }
    /* Packing undoes the interleaving, half by half. */
    return _mm256_packus_epi16(_mm256_packs_epi32(finish(high[0], low[0]), finish(high[1], low[1])),
                               _mm256_packs_epi32(finish(high[2], low[2]), finish(high[3], low[3])));
}

void sl_resize_columns_avx2(const sl_taps *taps, const unsigned char *rows, int64_t begin, size_t stride,
                            unsigned char *out, size_t bytes)
{
    for (int64_t y = 0; y < taps->outputs; y++, out += bytes) {
        const unsigned char *in = rows + (size_t) (taps->group_first[y] - begin) * stride;
        size_t x = 0;
        for (; x + sizeof(__m256i) <= bytes; x += sizeof(__m256i))
            _mm256_storeu_si256((__m256i *) (void *) (out + x), column_pixels(taps, y, in + x, stride));
        if (x < bytes) { /* reads beyond the row, into the next one or the padding */
            __m256i pixels = column_pixels(taps, y, in + x, stride);
            memcpy(out + x, &pixels, bytes - x);
        }
    }
}
