/*
 * One vector vocabulary for both instruction sets, so that a kernel is written once and compiled for each.
 * `vf` is VF_LANES floats, `vi` as many 32-bit integers, `vm` a mask of
 * lanes.
 *
 * Memory operands are f32 or bf16; bf16 is widened on load and rounded to nearest even on store. Loads and stores take
 * the number of lanes: with the constant VF_LANES they are plain instructions, with less they touch only those lanes
 * (and load zeros beyond), so a tail is the same code as the body:
 *
 *     for (; i + VF_LANES <= n; i += VF_LANES)
 *         step(i, VF_LANES);
 *     if (i < n)
 *         step(i, (int) (n - i));
 */
#ifndef SL_DEVICE_CPU_SIMD_H
#define SL_DEVICE_CPU_SIMD_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/bf16.h"

#define SL_INLINE static inline __attribute__((always_inline))
/* Before a loop with constant bounds whose body must become straight code. */
#ifdef __clang__
#define SL_UNROLL _Pragma("unroll")
#else
#define SL_UNROLL _Pragma("GCC unroll 16")
#endif

#ifdef __AVX512F__
#include "device/cpu/simd/simd_math_avx512.h"

#define VF_LANES 16
typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;

SL_INLINE vf vf_set1(float x)
{
    return _mm512_set1_ps(x);
}
SL_INLINE vf vf_zero(void)
{
    return _mm512_setzero_ps();
}
SL_INLINE vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
SL_INLINE vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
SL_INLINE vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
SL_INLINE vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
SL_INLINE vf vf_sqrt(vf a)
{
    return _mm512_sqrt_ps(a);
}
SL_INLINE vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
SL_INLINE vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
SL_INLINE vf vf_fma(vf a, vf b, vf c) /* a*b + c */
{
    return _mm512_fmadd_ps(a, b, c);
}
SL_INLINE vf vf_fnma(vf a, vf b, vf c) /* c - a*b */
{
    return _mm512_fnmadd_ps(a, b, c);
}
SL_INLINE vf vf_round(vf a) /* to the nearest integer, ties to even */
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
SL_INLINE vi vf_bits(vf a)
{
    return _mm512_castps_si512(a);
}
SL_INLINE vf vi_as_vf(vi a)
{
    return _mm512_castsi512_ps(a);
}
SL_INLINE vf vi_to_vf(vi a)
{
    return _mm512_cvtepi32_ps(a);
}
SL_INLINE vi vi_set1(int32_t x)
{
    return _mm512_set1_epi32(x);
}
SL_INLINE vi vi_iota(void)
{
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
SL_INLINE vi vi_load(const int32_t *p)
{
    return _mm512_loadu_si512((const void *) p);
}
SL_INLINE vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}
SL_INLINE vi vi_and(vi a, vi b)
{
    return _mm512_and_si512(a, b);
}
SL_INLINE vi vi_xor(vi a, vi b)
{
    return _mm512_xor_si512(a, b);
}
#define vi_shl(a, n) _mm512_slli_epi32((a), (n))
#define vi_shr(a, n) _mm512_srli_epi32((a), (n))
SL_INLINE vi vi_mul_even(vi a, vi b) /* 32 x 32 -> 64 bits, of the even lanes */
{
    return _mm512_mul_epu32(a, b);
}
#define vi_shl64(a, n) _mm512_slli_epi64((a), (n))
#define vi_shr64(a, n) _mm512_srli_epi64((a), (n))
SL_INLINE vi vi_xor3(vi a, vi b, vi c)
{
    return _mm512_ternarylogic_epi32(a, b, c, 0x96);
}
SL_INLINE vi vi_blend_odd(vi even, vi odd) /* the even lanes of one, the odd lanes of the other */
{
    return _mm512_mask_blend_epi32(0xaaaa, even, odd);
}
SL_INLINE void vi_store(void *p, vi a)
{
    _mm512_storeu_si512(p, a);
}
SL_INLINE vf vf_swap_pairs(vf a) /* lanes 1 0 3 2 ... */
{
    return _mm512_permute_ps(a, 0xb1);
}
SL_INLINE vf vf_abs(vf a)
{
    return _mm512_abs_ps(a);
}
/* angle = position * frequency in double; *r = angle - quadrant * pi/2. Two parts of pi/2: good to 2^22 radians. */
SL_INLINE void vd_reduce(double position, const double *frequency, vf *r, vi *quadrant)
{
    __m512d rest[2];
    __m256i turns[2];
    SL_UNROLL
    for (int i = 0; i < 2; i++) {
        __m512d angle = _mm512_mul_pd(_mm512_set1_pd(position), _mm512_loadu_pd(frequency + 8 * i));
        __m512d n = _mm512_roundscale_pd(_mm512_mul_pd(angle, _mm512_set1_pd(0x1.45f306dc9c883p-1)),
                                         _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        rest[i] = _mm512_fnmadd_pd(n, _mm512_set1_pd(0x1.921fb54442d18p+0), angle);
        rest[i] = _mm512_fnmadd_pd(n, _mm512_set1_pd(0x1.1a62633145c07p-54), rest[i]);
        turns[i] = _mm512_cvtpd_epi32(n);
    }
    *r = _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(rest[0])), _mm512_cvtpd_ps(rest[1]), 1);
    *quadrant = _mm512_inserti64x4(_mm512_castsi256_si512(turns[0]), turns[1], 1);
}
/* 1/x to about an ulp, for positive normal x and results: a Newton step is cheaper than the division. */
SL_INLINE vf vf_recip(vf x)
{
    vf r = _mm512_rcp14_ps(x), e = vf_fnma(x, r, vf_set1(1.0f));
    return vf_fma(r, e, r);
}
SL_INLINE vm vi_gt(vi a, vi b) /* signed */
{
    return _mm512_cmpgt_epi32_mask(a, b);
}
SL_INLINE vm vi_eq(vi a, vi b)
{
    return _mm512_cmpeq_epi32_mask(a, b);
}
SL_INLINE vm vf_gt(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}
SL_INLINE vm vf_lt(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
SL_INLINE vm vf_is_nan(vf a)
{
    return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
}
SL_INLINE vf vf_select(vm m, vf yes, vf no)
{
    return _mm512_mask_blend_ps(m, no, yes);
}
SL_INLINE vi vi_select(vm m, vi yes, vi no)
{
    return _mm512_mask_blend_epi32(m, no, yes);
}
SL_INLINE float vf_sum(vf a)
{
    return _mm512_reduce_add_ps(a);
}
SL_INLINE vf vf_exp(vf x)
{
    return sl_exp_ps512(x);
}
/* x * 2^n for any whole n: 0 and infinity at the ends. */
SL_INLINE vf vf_ldexp(vf x, vf n)
{
    return _mm512_scalef_ps(x, n);
}

SL_INLINE vf vf_load(const float *p, int lanes)
{
    if (lanes == VF_LANES)
        return _mm512_loadu_ps(p);
    return _mm512_maskz_loadu_ps((vm) ((1u << lanes) - 1), p);
}
SL_INLINE void vf_store(float *p, vf x, int lanes)
{
    if (lanes == VF_LANES)
        _mm512_storeu_ps(p, x);
    else
        _mm512_mask_storeu_ps(p, (vm) ((1u << lanes) - 1), x);
}
SL_INLINE vf vf_load_bf16(const sl_bf16 *p, int lanes)
{
    __m256i half = lanes == VF_LANES ? _mm256_loadu_si256((const __m256i *) (const void *) p)
                                     : _mm256_maskz_loadu_epi16((vm) ((1u << lanes) - 1), p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
/* The bits of round-to-nearest-even in the upper half of each lane; a NaN stays a quiet NaN. */
SL_INLINE vi vf_round_bf16(vf x)
{
    vi bits = _mm512_castps_si512(x), lsb = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    vi rounded = _mm512_add_epi32(bits, _mm512_add_epi32(lsb, _mm512_set1_epi32(0x7fff)));
    return _mm512_mask_or_epi32(rounded, vf_is_nan(x), bits, _mm512_set1_epi32(0x400000));
}
/* The upper halves of the lanes. */
SL_INLINE void vi_store_high(sl_bf16 *p, vi bits, int lanes)
{
    __m256i half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16));
    if (lanes == VF_LANES)
        _mm256_storeu_si256((__m256i *) (void *) p, half);
    else
        _mm256_mask_storeu_epi16(p, (vm) ((1u << lanes) - 1), half);
}

/* In place: r[i] lane j <-> r[j] lane i. Pairs, then quads within 128 bits, then 128-bit blocks twice. */
SL_INLINE void vf_transpose(vf r[VF_LANES])
{
    vf t[VF_LANES];
    SL_UNROLL
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    SL_UNROLL
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    SL_UNROLL
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
    SL_UNROLL
    for (int i = 0; i < 8; i++) {
        r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
    }
}

#else /* AVX2 */
#include "device/cpu/simd/simd_math_avx2.h"

#define VF_LANES 8
typedef __m256 vf;
typedef __m256i vi;
typedef __m256i vm;

SL_INLINE vf vf_set1(float x)
{
    return _mm256_set1_ps(x);
}
SL_INLINE vf vf_zero(void)
{
    return _mm256_setzero_ps();
}
SL_INLINE vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
SL_INLINE vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
SL_INLINE vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
SL_INLINE vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
SL_INLINE vf vf_sqrt(vf a)
{
    return _mm256_sqrt_ps(a);
}
SL_INLINE vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
SL_INLINE vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
SL_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
SL_INLINE vf vf_fnma(vf a, vf b, vf c)
{
    return _mm256_fnmadd_ps(a, b, c);
}
SL_INLINE vf vf_round(vf a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
SL_INLINE vi vf_bits(vf a)
{
    return _mm256_castps_si256(a);
}
SL_INLINE vf vi_as_vf(vi a)
{
    return _mm256_castsi256_ps(a);
}
SL_INLINE vf vi_to_vf(vi a)
{
    return _mm256_cvtepi32_ps(a);
}
SL_INLINE vi vi_set1(int32_t x)
{
    return _mm256_set1_epi32(x);
}
SL_INLINE vi vi_iota(void)
{
    return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
}
SL_INLINE vi vi_load(const int32_t *p)
{
    return _mm256_loadu_si256((const __m256i *) (const void *) p);
}
SL_INLINE vi vi_add(vi a, vi b)
{
    return _mm256_add_epi32(a, b);
}
SL_INLINE vi vi_and(vi a, vi b)
{
    return _mm256_and_si256(a, b);
}
SL_INLINE vi vi_xor(vi a, vi b)
{
    return _mm256_xor_si256(a, b);
}
#define vi_shl(a, n) _mm256_slli_epi32((a), (n))
#define vi_shr(a, n) _mm256_srli_epi32((a), (n))
SL_INLINE vi vi_mul_even(vi a, vi b)
{
    return _mm256_mul_epu32(a, b);
}
#define vi_shl64(a, n) _mm256_slli_epi64((a), (n))
#define vi_shr64(a, n) _mm256_srli_epi64((a), (n))
SL_INLINE vi vi_xor3(vi a, vi b, vi c)
{
    return _mm256_xor_si256(_mm256_xor_si256(a, b), c);
}
SL_INLINE vi vi_blend_odd(vi even, vi odd)
{
    return _mm256_blend_epi32(even, odd, 0xaa);
}
SL_INLINE void vi_store(void *p, vi a)
{
    _mm256_storeu_si256((__m256i *) p, a);
}
SL_INLINE vf vf_swap_pairs(vf a)
{
    return _mm256_permute_ps(a, 0xb1);
}
SL_INLINE vf vf_abs(vf a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
SL_INLINE void vd_reduce(double position, const double *frequency, vf *r, vi *quadrant)
{
    __m256d rest[2];
    __m128i turns[2];
    SL_UNROLL
    for (int i = 0; i < 2; i++) {
        __m256d angle = _mm256_mul_pd(_mm256_set1_pd(position), _mm256_loadu_pd(frequency + 4 * i));
        __m256d n = _mm256_round_pd(_mm256_mul_pd(angle, _mm256_set1_pd(0x1.45f306dc9c883p-1)),
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        rest[i] = _mm256_fnmadd_pd(n, _mm256_set1_pd(0x1.921fb54442d18p+0), angle);
        rest[i] = _mm256_fnmadd_pd(n, _mm256_set1_pd(0x1.1a62633145c07p-54), rest[i]);
        turns[i] = _mm256_cvtpd_epi32(n);
    }
    *r = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(rest[0])), _mm256_cvtpd_ps(rest[1]), 1);
    *quadrant = _mm256_inserti128_si256(_mm256_castsi128_si256(turns[0]), turns[1], 1);
}
SL_INLINE vf vf_recip(vf x)
{
    return _mm256_div_ps(_mm256_set1_ps(1.0f), x);
}
SL_INLINE vm vi_gt(vi a, vi b)
{
    return _mm256_cmpgt_epi32(a, b);
}
SL_INLINE vm vi_eq(vi a, vi b)
{
    return _mm256_cmpeq_epi32(a, b);
}
SL_INLINE vm vf_gt(vf a, vf b)
{
    return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_GT_OQ));
}
SL_INLINE vm vf_lt(vf a, vf b)
{
    return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
SL_INLINE vm vf_is_nan(vf a)
{
    return _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}
SL_INLINE vf vf_select(vm m, vf yes, vf no)
{
    return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(m));
}
SL_INLINE vi vi_select(vm m, vi yes, vi no)
{
    return _mm256_blendv_epi8(no, yes, m);
}
SL_INLINE float vf_sum(vf a)
{
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
SL_INLINE vf vf_exp(vf x)
{
    return sl_exp_ps256(x);
}
/* In two factors, since 2^128 and denormal powers are no floats of their own. */
SL_INLINE vf vf_ldexp(vf x, vf n)
{
    n = _mm256_min_ps(_mm256_max_ps(n, _mm256_set1_ps(-200.0f)), _mm256_set1_ps(200.0f));
    vi whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), bias = _mm256_set1_epi32(127);
    vi low = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    vi high = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23);
    return _mm256_mul_ps(_mm256_mul_ps(x, _mm256_castsi256_ps(low)), _mm256_castsi256_ps(high));
}

SL_INLINE vm vm_first(int lanes)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), vi_iota());
}
SL_INLINE vf vf_load(const float *p, int lanes)
{
    if (lanes == VF_LANES)
        return _mm256_loadu_ps(p);
    return _mm256_maskload_ps(p, vm_first(lanes));
}
SL_INLINE void vf_store(float *p, vf x, int lanes)
{
    if (lanes == VF_LANES)
        _mm256_storeu_ps(p, x);
    else
        _mm256_maskstore_ps(p, vm_first(lanes), x);
}
SL_INLINE vf vf_load_bf16(const sl_bf16 *p, int lanes)
{
    sl_bf16 few[VF_LANES];
    if (lanes != VF_LANES) { /* no 16-bit masked load in AVX2 */
        memset(few, 0, sizeof few);
        memcpy(few, p, (size_t) lanes * sizeof *few);
        p = few;
    }
    __m128i half = _mm_loadu_si128((const __m128i *) (const void *) p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
SL_INLINE vi vf_round_bf16(vf x)
{
    vi bits = _mm256_castps_si256(x), lsb = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    vi rounded = _mm256_add_epi32(bits, _mm256_add_epi32(lsb, _mm256_set1_epi32(0x7fff)));
    vi quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    return vi_select(vf_is_nan(x), quiet, rounded);
}
SL_INLINE void vi_store_high(sl_bf16 *p, vi bits, int lanes)
{
    vi low = _mm256_srli_epi32(bits, 16);
    __m128i half = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    sl_bf16 few[VF_LANES];
    if (lanes == VF_LANES) {
        _mm_storeu_si128((__m128i *) (void *) p, half);
    } else {
        _mm_storeu_si128((__m128i *) (void *) few, half);
        memcpy(p, few, (size_t) lanes * sizeof *few);
    }
}

SL_INLINE void vf_transpose(vf r[VF_LANES])
{
    vf t[VF_LANES];
    SL_UNROLL
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    SL_UNROLL
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    SL_UNROLL
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    memcpy(r, t, sizeof t);
}

#endif

SL_INLINE void vf_store_bf16(sl_bf16 *p, vf x, int lanes)
{
    vi_store_high(p, vf_round_bf16(x), lanes);
}

/* Element i of an f32 or bf16 array. `bf16` is a constant where these are used, so each dtype compiles to its own
 * loop. */
SL_INLINE vf vf_get(const void *data, int64_t i, int lanes, bool bf16)
{
    return bf16 ? vf_load_bf16((const sl_bf16 *) data + i, lanes) : vf_load((const float *) data + i, lanes);
}
SL_INLINE void vf_put(void *data, int64_t i, vf x, int lanes, bool bf16)
{
    if (bf16)
        vf_store_bf16((sl_bf16 *) data + i, x, lanes);
    else
        vf_store((float *) data + i, x, lanes);
}
/* out = x, or out += x: added in f32, rounded once. */
SL_INLINE void vf_put_add(void *data, int64_t i, vf x, int lanes, bool bf16, bool accumulate)
{
    vf_put(data, i, accumulate ? vf_add(vf_get(data, i, lanes, bf16), x) : x, lanes, bf16);
}
SL_INLINE void *element(void *data, int64_t i, bool bf16)
{
    return (char *) data + i * (bf16 ? 2 : 4);
}
SL_INLINE const void *element_const(const void *data, int64_t i, bool bf16)
{
    return (const char *) data + i * (bf16 ? 2 : 4);
}

#endif
