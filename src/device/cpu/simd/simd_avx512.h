/* What AVX-512 does in a way of its own. Part of simd.h. */
#ifndef SL_DEVICE_CPU_SIMD_AVX512_H
#define SL_DEVICE_CPU_SIMD_AVX512_H

SL_INLINE vf vf_round(vf a) /* to the nearest integer, ties to even */
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
SL_SIMD(vf, vi_as_vf, (vi a), _mm512_castsi512_ps(a))
SL_SIMD(vi, vi_iota, (void), _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))
SL_SIMD(vi, vi_xor3, (vi a, vi b, vi c), _mm512_ternarylogic_epi32(a, b, c, 0x96))
SL_INLINE vi vi_blend_odd(vi even, vi odd) /* the even lanes of one, the odd lanes of the other */
{
    return _mm512_mask_blend_epi32(0xaaaa, even, odd);
}
/* 1/x to about an ulp, for positive normal x and results: a Newton step is cheaper than the division. */
SL_INLINE vf vf_recip(vf x)
{
    vf r = _mm512_rcp14_ps(x), e = vf_fnma(x, r, vf_set1(1.0f));
    return vf_fma(r, e, r);
}
SL_SIMD(vm, vi_gt, (vi a, vi b), _mm512_cmpgt_epi32_mask(a, b)) /* signed */
SL_SIMD(vm, vi_eq, (vi a, vi b), _mm512_cmpeq_epi32_mask(a, b))
SL_SIMD(vm, vf_gt, (vf a, vf b), _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ))
SL_SIMD(vm, vf_lt, (vf a, vf b), _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ))
SL_SIMD(vm, vf_is_nan, (vf a), _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q))
SL_SIMD(vf, vf_select, (vm m, vf yes, vf no), _mm512_mask_blend_ps(m, no, yes))
SL_SIMD(vi, vi_select, (vm m, vi yes, vi no), _mm512_mask_blend_epi32(m, no, yes))
SL_SIMD(float, vf_sum, (vf a), _mm512_reduce_add_ps(a))
/* x * 2^n for any whole n: 0 and infinity at the ends. */
SL_SIMD(vf, vf_ldexp, (vf x, vf n), _mm512_scalef_ps(x, n))
/* The same for n in [-150, 128]. Rounded once, into denormals too. */
SL_SIMD(vf, vf_scale, (vf x, vf n), vf_ldexp(x, n))

SL_SIMD(vd, vd_round, (vd a), _mm512_roundscale_pd(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))
SL_INLINE vf vd_to_vf(vd low, vd high)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(low)), _mm512_cvtpd_ps(high), 1);
}
SL_INLINE vi vd_to_vi(vd low, vd high)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtpd_epi32(low)), _mm512_cvtpd_epi32(high), 1);
}

SL_SIMD(vf, vf_load_some, (const float *p, int lanes), _mm512_maskz_loadu_ps((vm) ((1u << lanes) - 1), p))
SL_INLINE void vf_store_some(float *p, vf x, int lanes)
{
    _mm512_mask_storeu_ps(p, (vm) ((1u << lanes) - 1), x);
}
SL_INLINE vf vf_load_bf16(const sl_bf16 *p, int lanes)
{
    __m256i half = lanes == VF_LANES ? _mm256_loadu_si256((const __m256i *) (const void *) p)
                                     : _mm256_maskz_loadu_epi16((vm) ((1u << lanes) - 1), p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
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

SL_INLINE vi vi_load_u8(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *) (const void *) p));
}
/* The lanes, which are below 256. */
SL_INLINE void vi_store_u8(uint8_t *p, vi a)
{
    _mm_storeu_si128((__m128i *) (void *) p, _mm512_cvtepi32_epi8(a));
}

/* 128-bit blocks, twice. */
SL_INLINE void vf_transpose_blocks(vf r[VF_LANES])
{
    vf t[VF_LANES];
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

#endif
