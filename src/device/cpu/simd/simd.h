/*
 * One vector vocabulary for both instruction sets, so that a kernel is written once and compiled for each.
 * `vf` is VF_LANES floats, `vi` as many 32-bit integers, `vm` a mask of lanes.
 *
 * The intrinsics of both widths differ in their prefix alone for most operations: those are written here with MM() and MM_SI().
 * What only one of them has, or what takes another form, is in simd_avx2.h and simd_avx512.h.
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
/* One line for an operation that is one expression. */
#define SL_SIMD(type, name, parameters, value) \
    SL_INLINE type name parameters             \
    {                                          \
        return value;                          \
    }
/* Before a loop with constant bounds whose body must become straight code. */
#ifdef __clang__
#define SL_UNROLL _Pragma("unroll")
#else
#define SL_UNROLL _Pragma("GCC unroll 16")
#endif

#ifdef __AVX512F__
#define VF_LANES 16
#define MM(name) _mm512_##name
#define MM_SI(name) _mm512_##name##_si512
typedef __m512 vf;
typedef __m512i vi;
typedef __m512d vd;
typedef __mmask16 vm;
#else /* AVX2 */
#define VF_LANES 8
#define MM(name) _mm256_##name
#define MM_SI(name) _mm256_##name##_si256
typedef __m256 vf;
typedef __m256i vi;
typedef __m256d vd;
typedef __m256i vm;
#endif

SL_SIMD(vf, vf_set1, (float x), MM(set1_ps)(x))
SL_SIMD(vf, vf_zero, (void), MM(setzero_ps)())
SL_SIMD(vf, vf_add, (vf a, vf b), MM(add_ps)(a, b))
SL_SIMD(vf, vf_sub, (vf a, vf b), MM(sub_ps)(a, b))
SL_SIMD(vf, vf_mul, (vf a, vf b), MM(mul_ps)(a, b))
SL_SIMD(vf, vf_div, (vf a, vf b), MM(div_ps)(a, b))
SL_SIMD(vf, vf_sqrt, (vf a), MM(sqrt_ps)(a))
SL_SIMD(vf, vf_max, (vf a, vf b), MM(max_ps)(a, b))
SL_SIMD(vf, vf_min, (vf a, vf b), MM(min_ps)(a, b))
SL_SIMD(vf, vf_fma, (vf a, vf b, vf c), MM(fmadd_ps)(a, b, c))   /* a*b + c */
SL_SIMD(vf, vf_fnma, (vf a, vf b, vf c), MM(fnmadd_ps)(a, b, c)) /* c - a*b */
SL_SIMD(vf, vf_abs, (vf a), MM(andnot_ps)(vf_set1(-0.0f), a))
SL_SIMD(vf, vf_swap_pairs, (vf a), MM(permute_ps)(a, 0xb1)) /* lanes 1 0 3 2 ... */
SL_SIMD(vi, vf_bits, (vf a), MM_SI(castps)(a))
SL_SIMD(vf, vi_to_vf, (vi a), MM(cvtepi32_ps)(a))
SL_SIMD(vi, vf_truncate, (vf a), MM(cvttps_epi32)(a))
SL_SIMD(vi, vi_set1, (int32_t x), MM(set1_epi32)(x))
SL_SIMD(vi, vi_load, (const int32_t *p), MM_SI(loadu)((const vi *) (const void *) p))
SL_INLINE void vi_store(void *p, vi a)
{
    MM_SI(storeu)((vi *) p, a);
}
SL_SIMD(vi, vi_add, (vi a, vi b), MM(add_epi32)(a, b))
SL_SIMD(vi, vi_sub, (vi a, vi b), MM(sub_epi32)(a, b))
SL_SIMD(vi, vi_and, (vi a, vi b), MM_SI (and)(a, b))
SL_SIMD(vi, vi_or, (vi a, vi b), MM_SI(or)(a, b))
SL_INLINE vi vi_xor(vi a, vi b)
{
    return MM_SI(xor)(a, b);
}
#define vi_shl(a, n) MM(slli_epi32)((a), (n))
#define vi_shr(a, n) MM(srli_epi32)((a), (n))
SL_SIMD(vi, vi_mul_even, (vi a, vi b), MM(mul_epu32)(a, b)) /* 32 x 32 -> 64 bits, of the even lanes */
#define vi_shl64(a, n) MM(slli_epi64)((a), (n))
#define vi_shr64(a, n) MM(srli_epi64)((a), (n))

#ifdef __AVX512F__
#include "device/cpu/simd/simd_avx512.h"
#else
#include "device/cpu/simd/simd_avx2.h"
#endif

/*
 * exp: x = n ln2 + r, |r| <= ln2/2, exp(r) = 1 + r + r^2 q(r) with q of degree 4 (minimax, 3.1e-9 relative), times 2^n. Largest
 * error seen (every 7th float): 0.89 ulp. exp(-inf) = 0, exp(inf) = inf, NaN stays NaN; below -104 the result is 0, above 88.73
 * infinity. Every lane is computed alone with a fixed sequence of operations, so a result never depends on its neighbours.
 */
SL_INLINE vf vf_exp(vf x)
{
    /* max and min return their second operand if either is NaN: x stays second. */
    x = vf_min(vf_set1(89.0f), vf_max(vf_set1(-104.0f), x));
    vf n = vf_round(vf_mul(x, vf_set1(0x1.715476p+0f)));
    /* ln2 in two parts; the first has 15 bits, so n * ln2_high is exact. */
    vf r = vf_fnma(n, vf_set1(0x1.62e4p-1f), x);
    r = vf_fnma(n, vf_set1(0x1.7f7d1cp-20f), r);
    vf p = vf_set1(0x1.6a23dp-10f);
    p = vf_fma(p, r, vf_set1(0x1.123a2p-7f));
    p = vf_fma(p, r, vf_set1(0x1.5558f2p-5f));
    p = vf_fma(p, r, vf_set1(0x1.555492p-3f));
    p = vf_fma(p, r, vf_set1(0x1.fffffcp-2f));
    p = vf_fma(p, r, vf_set1(1.0f));
    p = vf_fma(p, r, vf_set1(1.0f));
    return vf_scale(p, n);
}

/* angle = position * frequency in double; *r = angle - quadrant * pi/2. Two parts of pi/2: good to 2^22 radians. */
SL_INLINE void vd_reduce(double position, const double *frequency, vf *r, vi *quadrant)
{
    vd rest[2], turns[2];
    SL_UNROLL
    for (int i = 0; i < 2; i++) {
        vd angle = MM(mul_pd)(MM(set1_pd)(position), MM(loadu_pd)(frequency + VF_LANES / 2 * i));
        turns[i] = vd_round(MM(mul_pd)(angle, MM(set1_pd)(0x1.45f306dc9c883p-1)));
        rest[i] = MM(fnmadd_pd)(turns[i], MM(set1_pd)(0x1.921fb54442d18p+0), angle);
        rest[i] = MM(fnmadd_pd)(turns[i], MM(set1_pd)(0x1.1a62633145c07p-54), rest[i]);
    }
    *r = vd_to_vf(rest[0], rest[1]);
    *quadrant = vd_to_vi(turns[0], turns[1]);
}

SL_SIMD(vf, vf_load, (const float *p, int lanes), lanes == VF_LANES ? MM(loadu_ps)(p) : vf_load_some(p, lanes))
SL_INLINE void vf_store(float *p, vf x, int lanes)
{
    if (lanes == VF_LANES)
        MM(storeu_ps)(p, x);
    else
        vf_store_some(p, x, lanes);
}
/* The bits of round-to-nearest-even in the upper half of each lane; a NaN stays a quiet NaN. */
SL_INLINE vi vf_round_bf16(vf x)
{
    vi bits = vf_bits(x), lsb = vi_and(vi_shr(bits, 16), vi_set1(1));
    vi rounded = vi_add(bits, vi_add(lsb, vi_set1(0x7fff)));
    return vi_select(vf_is_nan(x), vi_or(bits, vi_set1(0x400000)), rounded);
}

/* In place: r[i] lane j <-> r[j] lane i. Pairs, then quads within 128 bits, then the 128-bit blocks. */
SL_INLINE void vf_transpose(vf r[VF_LANES])
{
    vf t[VF_LANES];
    SL_UNROLL
    for (int i = 0; i < VF_LANES; i += 2) {
        t[i] = MM(unpacklo_ps)(r[i], r[i + 1]);
        t[i + 1] = MM(unpackhi_ps)(r[i], r[i + 1]);
    }
    SL_UNROLL
    for (int i = 0; i < VF_LANES; i += 4) {
        r[i] = MM(shuffle_ps)(t[i], t[i + 2], 0x44);
        r[i + 1] = MM(shuffle_ps)(t[i], t[i + 2], 0xee);
        r[i + 2] = MM(shuffle_ps)(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = MM(shuffle_ps)(t[i + 1], t[i + 3], 0xee);
    }
    vf_transpose_blocks(r);
}

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
/* to += from */
static inline void vf_add_elements(void *to, const void *from, int64_t count, bool bf16)
{
    int64_t i = 0;
    for (; i + VF_LANES <= count; i += VF_LANES)
        vf_put_add(to, i, vf_get(from, i, VF_LANES, bf16), VF_LANES, bf16, true);
    if (i < count)
        vf_put_add(to, i, vf_get(from, i, (int) (count - i), bf16), (int) (count - i), bf16, true);
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
