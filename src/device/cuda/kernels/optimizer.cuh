/*
 * What the kernels of optimizers share. All in bf16 an element of AdamW is 14 bytes of traffic, which at 4 TB/s leaves 110 instructions
 * for it. Hence:
 *  - Rounding noise is dealt (ops/noise.h) so that one Philox call serves elements 16 apart, while memory wants each thread to hold 8
 *    neighbours (16 bytes of bf16). A group of 16 threads owns a block of 128 elements: thread l makes the noise of lane l, and the
 *    group turns it through shared memory, where it lies in the order of the elements.
 *  - Division and square root are inlined without their rare cases, eight at a time, with one look at the end whether any of the eight
 *    was out of range; then all eight are recomputed by the compiler's own.
 *  - Likewise one look tells whether any of eight results is not finite, which must not be rounded by adding noise.
 */
#ifndef SL_DEVICE_CUDA_OPTIMIZER_CUH
#define SL_DEVICE_CUDA_OPTIMIZER_CUH

#include "device/cuda/kernels/kernel.cuh"
#include "ops/noise.h"

static constexpr int THREADS = 256;
static constexpr int EACH = 8; /* elements per thread: SL_NOISE_BLOCK / SL_NOISE_LANES */

/* ---- m / (sqrt(v) * scale + eps) ---- */

static constexpr uint32_t LEAST_V = 0x0d800000u, V_RANGE = 0x46000000u; /* v in [2^-100, 2^40) */
static constexpr uint32_t LEAST_M = 0x21800000u, M_RANGE = 0x3c000000u; /* |m| in [2^-60, 2^60) */

/* In these ranges no step of the two functions below leaves the normal numbers. They are the instructions that sqrt.rn and div.rn
 * become where they need no help: an approximation, a step of Newton's, and the remainder's share. */
__device__ __forceinline__ bool plain_scale(float scale, float eps)
{
    return scale >= 1.0f && scale <= 1024.0f && eps >= 0.0f && eps <= 1.0f;
}

__device__ __forceinline__ float plain_sqrt(float x)
{
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    float root = __fmul_rn(x, y), half = __fmul_rn(y, 0.5f);
    return __fmaf_rn(__fmaf_rn(-root, root, x), half, root);
}

__device__ __forceinline__ float plain_divide(float a, float b)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(b));
    y = __fmaf_rn(y, __fmaf_rn(-b, y, 1.0f), y);
    float q = __fmul_rn(a, y);
    return __fmaf_rn(y, __fmaf_rn(-b, q, a), q);
}

__device__ __forceinline__ void ratios(float scale, float eps, const float (&m)[EACH], const float (&v)[EACH],
                                       float (&ratio)[EACH])
{
    uint32_t far_m = 0, far_v = 0;
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        far_m = max(far_m, 2 * __float_as_uint(m[j]) - 2 * LEAST_M);
        far_v = max(far_v, __float_as_uint(v[j]) - LEAST_V);
        ratio[j] = plain_divide(m[j], __fmaf_rn(plain_sqrt(v[j]), scale, eps));
    }
    if (plain_scale(scale, eps) && far_m < 2 * M_RANGE && far_v < V_RANGE)
        return;
#pragma unroll
    for (int j = 0; j < EACH; j++)
        ratio[j] = __fdiv_rn(m[j], __fmaf_rn(__fsqrt_rn(v[j]), scale, eps));
}

/* ---- noise ---- */

/* Halfwords of a group of 16 threads: a block's noise for three tensors, and a shift of banks from one group to the next. */
static constexpr int GROUP = SL_NOISE_TENSORS * SL_NOISE_BLOCK + 16;

/* Lane l makes the words of its counter; half k of a tensor's belongs to element 16 k + l of the block. */
__device__ __forceinline__ void put_noise(uint64_t seed, uint64_t counter_hi, int tensors, int64_t block,
                                          uint16_t *group)
{
    int lane = threadIdx.x % SL_NOISE_LANES;
    sl_rng4 drawn = sl_philox_rounds(seed, (uint64_t) block * SL_NOISE_LANES + lane, counter_hi, SL_NOISE_ROUNDS);
#pragma unroll
    for (int which = 0; which < tensors; which++) {
        sl_rng4 words = sl_noise_deal(drawn, which);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            group[which * SL_NOISE_BLOCK + k * SL_NOISE_LANES + lane] = (uint16_t) words.v[k];
            group[which * SL_NOISE_BLOCK + (k + 4) * SL_NOISE_LANES + lane] = (uint16_t) (words.v[k] >> 16);
        }
    }
}

/* That of this thread's 8 elements, two to a word. */
__device__ __forceinline__ uint4 take_noise(int which, const uint16_t *group)
{
    return *reinterpret_cast<const uint4 *>(group + which * SL_NOISE_BLOCK + threadIdx.x % SL_NOISE_LANES * EACH);
}

/* ---- eight elements from and to memory, the last ones of a tensor one by one, and all unless it is aligned (`wide`) ---- */

template <typename T>
__device__ __forceinline__ raw<T, EACH> read8(const T *from, int64_t i, int64_t n, bool wide = true)
{
    if (wide && i + EACH <= n)
        return load_raw<EACH>(from + i);
    raw<T, EACH> x = {};
#pragma unroll
    for (int j = 0; j < EACH; j++)
        if (i + j < n) {
            uint32_t bits = __float_as_uint(to_f32(from[i + j]));
            x.word[j * sizeof(T) / 4] |= sizeof(T) == 4 || j % 2 ? bits : bits >> 16;
        }
    return x;
}

template <typename T>
__device__ __forceinline__ void write8(T *to, int64_t i, int64_t n, const float (&x)[EACH], bool wide = true)
{
    if (wide && i + EACH <= n) {
        store<EACH, true>(to + i, x);
    } else {
#pragma unroll
        for (int j = 0; j < EACH; j++)
            if (i + j < n)
                from_f32(x[j], &to[i + j]);
    }
}

/* Rounded stochastically: noise below the cut, then cut. What is not finite is rounded to nearest. */
__device__ __forceinline__ void write8_noisy(bf16 *to, int64_t i, int64_t n, const float (&x)[EACH], uint4 noise,
                                             bool wide = true)
{
    const uint32_t from[4] = {noise.x, noise.y, noise.z, noise.w};
    uint32_t word[4];
    float nothing = 0; /* turns NaN where a factor is not finite */
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uint32_t low = __float_as_uint(x[2 * k]) + (from[k] & 0xffffu);
        uint32_t high = __float_as_uint(x[2 * k + 1]) + (from[k] >> 16);
        word[k] = __byte_perm(low, high, 0x7632);
        nothing = __fmaf_rn(x[2 * k], 0.0f, __fmaf_rn(x[2 * k + 1], 0.0f, nothing));
    }
    if (nothing != 0.0f)
#pragma unroll
        for (int j = 0; j < EACH; j++)
            if (!isfinite(x[j])) {
                uint32_t nearest = __bfloat16_as_ushort(__float2bfloat16_rn(x[j]));
                word[j / 2] = j % 2 ? (word[j / 2] & 0xffffu) | nearest << 16 : (word[j / 2] & 0xffff0000u) | nearest;
            }
    if (wide && i + EACH <= n) {
        *reinterpret_cast<uint4 *>(to + i) = make_uint4(word[0], word[1], word[2], word[3]);
    } else {
#pragma unroll
        for (int j = 0; j < EACH; j++)
            if (i + j < n)
                reinterpret_cast<uint16_t *>(to)[i + j] = (uint16_t) (j % 2 ? word[j / 2] >> 16 : word[j / 2]);
    }
}

/* ---- which dtypes ---- */

/* The moments of a launch, and behind them its master, if it has one. */
static inline sl_status supports_update(const sl_launch *launch, int moments)
{
    bool master = launch->out[moments + 1].type.rank != 0;
    sl_dtype p = launch->in[0].type.dtype, m = launch->out[1].type.dtype;
    if (master ? p != SL_BF16 || m != SL_F32 : m != p)
        return sl_cuda_fail(SL_E_UNSUPPORTED,
                            "the CUDA optimizer knows f32, bf16, and bf16 with f32 master and moments");
    return SL_OK;
}

/* Runs the statement with P the type of parameters, M of moments, MASTER and NOISY by the launch. Beside a master the parameter is
 * rounded to nearest and moments are f32: nothing is rounded stochastically. */
#define DISPATCH_UPDATE(launch, moments, stochastic, ...)  \
    do {                                                   \
        if ((launch)->out[(moments) + 1].data) {           \
            typedef bf16 P;                                \
            typedef float M;                               \
            constexpr bool MASTER = true, NOISY = false;   \
            __VA_ARGS__;                                   \
        } else if ((launch)->in[0].type.dtype == SL_F32) { \
            typedef float P, M;                            \
            constexpr bool MASTER = false, NOISY = false;  \
            __VA_ARGS__;                                   \
        } else {                                           \
            typedef bf16 P, M;                             \
            constexpr bool MASTER = false;                 \
            if (stochastic) {                              \
                constexpr bool NOISY = true;               \
                __VA_ARGS__;                               \
            } else {                                       \
                constexpr bool NOISY = false;              \
                __VA_ARGS__;                               \
            }                                              \
        }                                                  \
    } while (0)

#endif
