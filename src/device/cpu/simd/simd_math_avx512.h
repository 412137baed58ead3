/* Elementary functions on 16 floats, AVX-512. Include only from files compiled for AVX-512 (named *_avx512.c, *_amx.c).
 * Every lane is computed alone with a fixed sequence of operations, so a value's result never depends on its
 * neighbours.
 *
 * exp: x = n ln2 + r, |r| <= ln2/2, exp(r) = 1 + r + r^2 q(r) with q of degree 4 (minimax, 3.1e-9 relative), times 2^n
 * by vscalefps, which rounds once, into denormals too. Largest error seen (every 7th float): 0.89 ulp. exp(-inf) = 0,
 * exp(inf) = inf, NaN stays NaN; below -104 the result is 0, above 88.73 infinity. */
#ifndef SL_DEVICE_CPU_SIMD_MATH_AVX512_H
#define SL_DEVICE_CPU_SIMD_MATH_AVX512_H

#include <immintrin.h>

static inline __m512 sl_exp_ps512(__m512 x)
{
    /* max and min return their second operand if either is NaN: x stays second. */
    x = _mm512_max_ps(_mm512_set1_ps(-104.0f), x);
    x = _mm512_min_ps(_mm512_set1_ps(89.0f), x);
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p+0f)),
                                          _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    /* ln2 in two parts; the first has 15 bits, so n * ln2_high is exact. */
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e4p-1f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.7f7d1cp-20f), r);
    __m512 p = _mm512_set1_ps(0x1.6a23dp-10f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.123a2p-7f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.5558f2p-5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.555492p-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.fffffcp-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

#endif
