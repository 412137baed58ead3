/*
 * Elementary functions in the vocabulary of simd.h, for both instruction sets. A lane's result never depends on its
 * neighbours.
 *
 *   exp2        2^x for finite x, relative error below 1.8e-7: 9 instructions against exp's 14. Attention works in
 *               powers of 2, the factor log2(e) rides in the scale of q.
 *   sigmoid     1 / (1 + exp(-x)), relative error below 4e-7; the tanh of GELU is 2 sigmoid(2u) - 1 and never formed.
 *   tanh        (1 - e) / (1 + e), e = exp(-2|x|), and below .625, where that cancels, Lambert's continued fraction cut
 *               behind its fifth term (1e-9): relative error below 4e-7.
 *   normal_cdf  Phi(x) = erfc(-x/sqrt 2) / 2 with erfc(z) = exp(-z^2) t Q(t), t = 1/(1 + .4 z), z >= 0, Q of degree 7:
 *               2.4e-9 relative to erfc before rounding (fitted by reweighted least squares). One exponential gives
 *               density and cdf.
 *   sin_cos     of an angle in double, as rotary embeddings need it at position one million; the reduction to
 *               [-pi/4, pi/4] happens in double, the polynomials run in f32.
 */
#ifndef SL_DEVICE_CPU_SIMD_MATH_H
#define SL_DEVICE_CPU_SIMD_MATH_H

#include "device/cpu/simd/simd.h"

#define VF_LOG2E 1.44269504088896341f
#define VF_LN2 0.693147180559945309f

SL_INLINE vf vf_exp2(vf x)
{
    vf n = vf_round(x), f = vf_sub(x, n);
    vf p = vf_fma(f, vf_set1(0.0013264695880934596f), vf_set1(0.009671508334577084f));
    p = vf_fma(p, f, vf_set1(0.05550733953714371f));
    p = vf_fma(p, f, vf_set1(0.24022242426872253f));
    p = vf_fma(p, f, vf_set1(0.6931470036506653f));
    return vf_ldexp(vf_fma(p, f, vf_set1(1.0f)), n);
}

/* *rest (if wanted) is 1 - sigmoid without cancellation. */
SL_INLINE vf vf_sigmoid(vf x, vf *rest)
{
    /* exp stays below 2^126, where the reciprocal is still normal; a NaN passes through min as the second operand. */
    vf e = vf_exp(vf_min(vf_set1(87.0f), vf_sub(vf_zero(), x)));
    vf sigma = vf_recip(vf_add(vf_set1(1.0f), e));
    if (rest)
        *rest = vf_mul(e, sigma);
    return sigma;
}

/* *slope is 1 - tanh^2 without cancellation. */
SL_INLINE vf vf_tanh(vf x, vf *slope)
{
    const vf one = vf_set1(1.0f), size = vf_min(vf_abs(x), vf_set1(40.0f)), square = vf_mul(size, size);
    vf e = vf_exp(vf_mul(size, vf_set1(-2.0f))), r = vf_recip(vf_add(one, e)), large = vf_mul(vf_sub(one, e), r);
    vf up = vf_fma(square, vf_add(square, vf_set1(105.0f)), vf_set1(945.0f));
    vf down = vf_fma(square, vf_fma(square, vf_set1(15.0f), vf_set1(420.0f)), vf_set1(945.0f));
    vf small = vf_mul(size, vf_div(up, down));
    vm is_small = vf_lt(size, vf_set1(0.625f));
    vf y = vf_select(is_small, small, large);
    *slope = vf_select(is_small, vf_fnma(small, small, one), vf_mul(vf_mul(vf_set1(4.0f), e), vf_mul(r, r)));
    return vf_select(vf_lt(x, vf_zero()), vf_sub(vf_zero(), y), y);
}

/* Phi(x); *density (if wanted) is its derivative, exp(-x^2/2) / sqrt(2 pi). */
SL_INLINE vf vf_normal_cdf(vf x, vf *density)
{
    vf z = vf_mul(vf_abs(x), vf_set1(0.70710678f));
    vf t = vf_recip(vf_fma(z, vf_set1(0.4f), vf_set1(1.0f)));
    vf e = vf_exp(vf_mul(vf_mul(x, x), vf_set1(-0.5f)));
    vf q = vf_set1(0.08189353633013771f);
    q = vf_fma(q, t, vf_set1(-0.43191911950429634f));
    q = vf_fma(q, t, vf_set1(0.7620117390144765f));
    q = vf_fma(q, t, vf_set1(-0.4621758509861465f));
    q = vf_fma(q, t, vf_set1(0.467927441683008f));
    q = vf_fma(q, t, vf_set1(0.11630817228119042f));
    q = vf_fma(q, t, vf_set1(0.24145452210250146f));
    q = vf_fma(q, t, vf_set1(0.2244995614112589f));
    vf tail = vf_mul(vf_mul(vf_mul(q, t), e), vf_set1(0.5f));
    if (density)
        *density = vf_mul(e, vf_set1(0.3989422804f));
    return vf_select(vf_lt(x, vf_zero()), tail, vf_sub(vf_set1(1.0f), tail));
}

/* Of VF_LANES angles, position * frequency[lane], to |angle| < 2^22. */
SL_INLINE void vf_sin_cos(double position, const double *frequency, vf *sine, vf *cosine)
{
    vf r;
    vi quadrant;
    vd_reduce(position, frequency, &r, &quadrant);
    /* Minimax on [-pi/4, pi/4]: sin r = r + r^3 S(r^2), cos r = 1 - r^2/2 + r^4 C(r^2). */
    vf x = vf_mul(r, r);
    vf s = vf_fma(x, vf_set1(2.7181216e-6f), vf_set1(-1.9839334e-4f));
    s = vf_fma(s, x, vf_set1(8.3333293e-3f));
    s = vf_fma(s, x, vf_set1(-0.16666667f));
    s = vf_fma(vf_mul(s, x), r, r);
    vf c = vf_fma(x, vf_set1(2.4388e-5f), vf_set1(-1.38873162e-3f));
    c = vf_fma(c, x, vf_set1(4.16666456e-2f));
    c = vf_fma(c, x, vf_set1(-0.5f));
    c = vf_fma(c, x, vf_set1(1.0f));
    vm odd = vi_eq(vi_and(quadrant, vi_set1(1)), vi_set1(1));
    vf a = vf_select(odd, c, s), b = vf_select(odd, s, c);
    /* Signs: sine is negative in quadrants 2, 3; cosine in 1, 2. */
    vi sine_sign = vi_shl(vi_and(quadrant, vi_set1(2)), 30);
    vi cosine_sign = vi_shl(vi_and(vi_add(quadrant, vi_set1(1)), vi_set1(2)), 30);
    *sine = vi_as_vf(vi_xor(vf_bits(a), sine_sign));
    *cosine = vi_as_vf(vi_xor(vf_bits(b), cosine_sign));
}

#endif
