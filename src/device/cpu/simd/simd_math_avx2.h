/* Elementary functions on 8 floats, AVX2 + FMA. Include only from files compiled for AVX2 (named *_avx2.c).
 * Every lane is computed alone with a fixed sequence of operations, so a value's result never depends on its
 * neighbours.
 *
 * exp: x = n ln2 + r, |r| <= ln2/2, exp(r) = 1 + r + r^2 q(r) with q of degree 4 (minimax, 3.1e-9 relative), times 2^n
 * in two factors, since 2^128 and denormal powers are no floats of their own. Largest error seen (every 7th float):
 * 0.89 ulp (0.86 among denormal results, which are rounded twice). exp(-inf) = 0, exp(inf) = inf, NaN stays NaN; below
 * -104 the result is 0, above 88.73 infinity. */
#ifndef SL_DEVICE_CPU_SIMD_MATH_AVX2_H
#define SL_DEVICE_CPU_SIMD_MATH_AVX2_H

#include <immintrin.h>

static inline __m256 sl_exp_ps256(__m256 x)
{
    /* max and min return their second operand if either is NaN: x stays second. */
    x = _mm256_max_ps(_mm256_set1_ps(-104.0f), x);
    x = _mm256_min_ps(_mm256_set1_ps(89.0f), x);
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p+0f)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    /* ln2 in two parts; the first has 15 bits, so n * ln2_high is exact. */
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e4p-1f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.7f7d1cp-20f), r);
    __m256 p = _mm256_set1_ps(0x1.6a23dp-10f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.123a2p-7f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.5558f2p-5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.555492p-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.fffffcp-2f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    /* 2^n = 2^h 2^(n-h), h = floor(n / 2): both factors are normal floats for n in [-150, 128]. */
    const __m256i bits = _mm256_cvtps_epi32(n);
    const __m256i half = _mm256_srai_epi32(bits, 1);
    const __m256i bias = _mm256_set1_epi32(127);
    const __m256i low = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    const __m256i high = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(bits, half), bias), 23);
    return _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(low)), _mm256_castsi256_ps(high));
}

#endif
