/* What AVX2 does in a way of its own: masks are vectors, and 16-bit lanes have no masked load. Part of simd.h. */
#ifndef SL_DEVICE_CPU_SIMD_AVX2_H
#define SL_DEVICE_CPU_SIMD_AVX2_H

SL_SIMD(vf, vf_round, (vf a), _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))
SL_SIMD(vf, vi_as_vf, (vi a), _mm256_castsi256_ps(a))
SL_SIMD(vi, vi_iota, (void), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
SL_SIMD(vi, vi_xor3, (vi a, vi b, vi c), _mm256_xor_si256(_mm256_xor_si256(a, b), c))
SL_SIMD(vi, vi_blend_odd, (vi even, vi odd), _mm256_blend_epi32(even, odd, 0xaa))
SL_SIMD(vf, vf_recip, (vf x), _mm256_div_ps(_mm256_set1_ps(1.0f), x))
SL_SIMD(vm, vi_gt, (vi a, vi b), _mm256_cmpgt_epi32(a, b))
SL_SIMD(vm, vi_eq, (vi a, vi b), _mm256_cmpeq_epi32(a, b))
SL_SIMD(vm, vf_gt, (vf a, vf b), _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_GT_OQ)))
SL_SIMD(vm, vf_lt, (vf a, vf b), _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_LT_OQ)))
SL_SIMD(vm, vf_is_nan, (vf a), _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)))
SL_SIMD(vf, vf_select, (vm m, vf yes, vf no), _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(m)))
SL_SIMD(vi, vi_select, (vm m, vi yes, vi no), _mm256_blendv_epi8(no, yes, m))
SL_INLINE float vf_sum(vf a)
{
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
/* x * 2^n for n in [-150, 128]: 2^n = 2^h 2^(n-h), h = floor(n / 2), since 2^128 and denormal powers are no floats of their own. */
SL_INLINE vf vf_scale(vf x, vf n)
{
    vi whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), bias = vi_set1(127);
    vi low = vi_shl(vi_add(half, bias), 23), high = vi_shl(vi_add(vi_sub(whole, half), bias), 23);
    return vf_mul(vf_mul(x, vi_as_vf(low)), vi_as_vf(high));
}
/* The same for any whole n: 0 and infinity at the ends. */
SL_SIMD(vf, vf_ldexp, (vf x, vf n), vf_scale(x, vf_min(vf_max(n, vf_set1(-200.0f)), vf_set1(200.0f))))

SL_SIMD(vd, vd_round, (vd a), _mm256_round_pd(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))
SL_INLINE vf vd_to_vf(vd low, vd high)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(low)), _mm256_cvtpd_ps(high), 1);
}
SL_INLINE vi vd_to_vi(vd low, vd high)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm256_cvtpd_epi32(low)), _mm256_cvtpd_epi32(high), 1);
}

SL_SIMD(vm, vm_first, (int lanes), _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), vi_iota()))
SL_SIMD(vf, vf_load_some, (const float *p, int lanes), _mm256_maskload_ps(p, vm_first(lanes)))
SL_INLINE void vf_store_some(float *p, vf x, int lanes)
{
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

SL_INLINE vi vi_load_u8(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *) (const void *) p));
}
/* The lanes, which are below 256. */
SL_INLINE void vi_store_u8(uint8_t *p, vi a)
{
    __m128i half = _mm_packus_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    _mm_storel_epi64((__m128i *) (void *) p, _mm_packus_epi16(half, half));
}

SL_INLINE void vf_transpose_blocks(vf r[VF_LANES])
{
    vf t[VF_LANES];
    SL_UNROLL
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    memcpy(r, t, sizeof t);
}

#endif
