/*
 * AdamW and SGD: the operations of optim/element.h one for one (products, fma, division and square root each rounded as IEEE
 * says), so the GPU, the CPU's scalar loop and its vector units give the same bits.
 *
 * All in bf16 an element is 14 bytes of traffic, which at 4 TB/s leaves 110 instructions for it. Hence:
 *  - Rounding noise is dealt (ops/noise.h) so that one Philox call serves elements 16 apart, while memory wants each thread to hold 8
 *    neighbours (16 bytes of bf16). A group of 16 threads owns a block of 128 elements: thread l makes the noise of lane l, and the
 *    group turns it through shared memory, where it lies in the order of the elements.
 *  - Division and square root are inlined without their rare cases, eight at a time, with one look at the end whether any of the eight
 *    was out of range; then all eight are recomputed by the compiler's own.
 *  - Likewise one look tells whether any of eight results is not finite, which must not be rounded by adding noise.
 */
#include "device/cuda/kernel.cuh"
#include "ops/noise.h"
#include "optim/element.h"

static constexpr int THREADS = 256;
static constexpr int EACH = 8; /* elements per thread: SL_NOISE_BLOCK / SL_NOISE_LANES */

struct scalars {
    float factor, beta1, rest1, beta2, rest2, decay, step_size, inv_sqrt_bias2, eps;
};

__device__ __forceinline__ scalars adamw_scalars(const sl_attrs &attrs, const sl_step_params *step, const float *gate)
{
    scalars s;
    s.factor = gate ? gate[0] : 1.0f;
    s.beta1 = sl_adamw_attrs(&attrs)->beta1, s.rest1 = __fsub_rn(1.0f, s.beta1);
    s.beta2 = sl_adamw_attrs(&attrs)->beta2, s.rest2 = __fsub_rn(1.0f, s.beta2);
    s.decay = __fmaf_rn(-step->learning_rate, sl_adamw_attrs(&attrs)->weight_decay, 1.0f);
    const float *bias = step->corrections[sl_adamw_attrs(&attrs)->corrections];
    s.step_size = __fdiv_rn(step->learning_rate, bias[0]);
    s.inv_sqrt_bias2 = __fdiv_rn(1.0f, __fsqrt_rn(bias[1]));
    s.eps = sl_adamw_attrs(&attrs)->eps;
    return s;
}

/* ---- m / (sqrt(v) * scale + eps) ---- */

static constexpr uint32_t LEAST_V = 0x0d800000u, V_RANGE = 0x46000000u; /* v in [2^-100, 2^40) */
static constexpr uint32_t LEAST_M = 0x21800000u, M_RANGE = 0x3c000000u; /* |m| in [2^-60, 2^60) */

/* In these ranges no step of the two functions below leaves the normal numbers. They are the instructions that sqrt.rn and div.rn
 * become where they need no help: an approximation, a step of Newton's, and the remainder's share. */
__device__ __forceinline__ bool plain_scale(const scalars &s)
{
    return s.inv_sqrt_bias2 >= 1.0f && s.inv_sqrt_bias2 <= 1024.0f && s.eps >= 0.0f && s.eps <= 1.0f;
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

__device__ __forceinline__ void ratios(const scalars &s, bool plain, const float (&m)[EACH], const float (&v)[EACH],
                                       float (&ratio)[EACH])
{
    uint32_t far_m = 0, far_v = 0;
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        far_m = max(far_m, 2 * __float_as_uint(m[j]) - 2 * LEAST_M);
        far_v = max(far_v, __float_as_uint(v[j]) - LEAST_V);
        ratio[j] = plain_divide(m[j], __fmaf_rn(plain_sqrt(v[j]), s.inv_sqrt_bias2, s.eps));
    }
    if (plain && far_m < 2 * M_RANGE && far_v < V_RANGE)
        return;
#pragma unroll
    for (int j = 0; j < EACH; j++)
        ratio[j] = __fdiv_rn(m[j], __fmaf_rn(__fsqrt_rn(v[j]), s.inv_sqrt_bias2, s.eps));
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

/* ---- eight elements from and to memory, the last ones of a tensor one by one ---- */

template <typename T> __device__ __forceinline__ raw<T, EACH> read8(const T *from, int64_t i, int64_t n)
{
    if (i + EACH <= n)
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

template <typename T> __device__ __forceinline__ void write8(T *to, int64_t i, int64_t n, const float (&x)[EACH])
{
    if (i + EACH <= n) {
        store<EACH, true>(to + i, x);
    } else {
#pragma unroll
        for (int j = 0; j < EACH; j++)
            if (i + j < n)
                from_f32(x[j], &to[i + j]);
    }
}

/* Rounded stochastically: noise below the cut, then cut. What is not finite is rounded to nearest. */
__device__ __forceinline__ void write8_noisy(bf16 *to, int64_t i, int64_t n, const float (&x)[EACH], uint4 noise)
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
    if (i + EACH <= n) {
        *reinterpret_cast<uint4 *>(to + i) = make_uint4(word[0], word[1], word[2], word[3]);
    } else {
#pragma unroll
        for (int j = 0; j < EACH; j++)
            if (i + j < n)
                reinterpret_cast<uint16_t *>(to)[i + j] = (uint16_t) (j % 2 ? word[j / 2] >> 16 : word[j / 2]);
    }
}

/* P: parameter and gradient, M: moments; MASTER: an f32 copy is updated and rounded to nearest. NOISY: what is bf16 is rounded
 * stochastically, but for a master's copy. SGD has one moment. */
template <typename P, typename M, bool MASTER, bool ADAM, bool NOISY>
__global__ void __launch_bounds__(THREADS)
    update_kernel(const __grid_constant__ sl_attrs attrs, const P *__restrict__ g,
                  const sl_step_params *__restrict__ step, const float *__restrict__ gate, P *p_all, M *m_all, M *v_all,
                  float *master, int64_t n)
{
    __shared__ __align__(16) uint16_t deal[NOISY ? THREADS / SL_NOISE_LANES * GROUP : 1];
    if (gate && gate[2] != 0)
        return;
    uint16_t *group = deal + (NOISY ? threadIdx.x / SL_NOISE_LANES * GROUP : 0);
    scalars s = ADAM ? adamw_scalars(attrs, step, gate) : scalars{gate ? gate[0] : 1.0f};
    bool plain = plain_scale(s);
    int64_t decayed = ADAM ? sl_adamw_attrs(&attrs)->decayed : sl_sgd_attrs(&attrs)->decayed;
    uint64_t seed = sl_noise_seed(step);
    uint64_t counter_hi =
        sl_noise_counter_hi(ADAM ? sl_adamw_attrs(&attrs)->stream : sl_sgd_attrs(&attrs)->stream, step->step);
    int64_t blocks = (n + SL_NOISE_BLOCK - 1) / SL_NOISE_BLOCK, per = THREADS / SL_NOISE_LANES;
    for (int64_t base = (int64_t) blockIdx.x * per; base < blocks; base += (int64_t) gridDim.x * per) {
        int64_t block = base + threadIdx.x / SL_NOISE_LANES,
                i = block * SL_NOISE_BLOCK + threadIdx.x % SL_NOISE_LANES * EACH;
        raw<P, EACH> from_g = read8(g, i, n), from_p;
        raw<float, EACH> from_master;
        if constexpr (MASTER)
            from_master = read8(master, i, n);
        else
            from_p = read8(p_all, i, n);
        raw<M, EACH> from_m = read8(m_all, i, n), from_v;
        if constexpr (ADAM)
            from_v = read8(v_all, i, n);
        if constexpr (NOISY) {
            put_noise(seed, counter_hi, ADAM ? 3 : 2, block, group);
            __syncwarp();
        }
        float vp[EACH], vm[EACH], vv[EACH], ratio[EACH];
        uint32_t stays = 0;                                                  /* elements whose gradient is not finite */
        int near = (int) min((int64_t) EACH, max((int64_t) 0, decayed - i)); /* elements with weight decay */
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            float grad = __fmul_rn(from_g[j], s.factor);
            vp[j] = MASTER ? from_master[j] : from_p[j];
            if (!isfinite(grad))
                stays |= 1u << j;
            if (ADAM) {
                vm[j] = __fmaf_rn(s.beta1, from_m[j], __fmul_rn(s.rest1, grad));
                vv[j] = __fmaf_rn(s.beta2, from_v[j], __fmul_rn(s.rest2, __fmul_rn(grad, grad)));
            } else {
                grad = __fmaf_rn(j < near ? sl_sgd_attrs(&attrs)->weight_decay : 0.0f, vp[j], grad);
                vm[j] = __fmaf_rn(sl_sgd_attrs(&attrs)->momentum, from_m[j], grad);
                vp[j] = __fmaf_rn(-step->learning_rate, vm[j], vp[j]);
            }
        }
        if (ADAM) {
            ratios(s, plain, vm, vv, ratio);
#pragma unroll
            for (int j = 0; j < EACH; j++)
                vp[j] = __fmaf_rn(-s.step_size, ratio[j], __fmul_rn(vp[j], j < near ? s.decay : 1.0f));
        }
        if (stays)
#pragma unroll
            for (int j = 0; j < EACH; j++)
                if (stays >> j & 1) {
                    vp[j] = MASTER ? from_master[j] : from_p[j];
                    vm[j] = from_m[j];
                    if (ADAM)
                        vv[j] = from_v[j];
                }
        if constexpr (NOISY) {
            uint4 noise[3] = {take_noise(0, group), take_noise(1, group), ADAM ? take_noise(2, group) : uint4{}};
            __syncwarp(); /* free for the next round */
            write8_noisy(m_all, i, n, vm, noise[1]);
            if (ADAM)
                write8_noisy(v_all, i, n, vv, noise[2]);
            write8_noisy(p_all, i, n, vp, noise[0]);
        } else {
            write8(m_all, i, n, vm);
            if (ADAM)
                write8(v_all, i, n, vv);
            if (MASTER)
                write8(master, i, n, vp);
            write8(p_all, i, n, vp);
        }
    }
}

template <typename P, typename M, bool MASTER, bool ADAM, bool NOISY>
static sl_status update(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    int64_t n = sl_type_count(&launch->in[0].type);
    const sl_operand *master = &launch->out[ADAM ? 3 : 2];
    update_kernel<P, M, MASTER, ADAM, NOISY><<<sl_cuda_blocks(cuda, n, THREADS * EACH), THREADS, 0, stream>>>(
        launch->attrs, (const P *) launch->in[0].data, (const sl_step_params *) launch->in[1].data,
        (const float *) launch->in[2].data, (P *) launch->out[0].data, (M *) launch->out[1].data,
        ADAM ? (M *) launch->out[2].data : NULL, (float *) master->data, n);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

template <bool ADAM> static sl_status update_any(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    bool noisy = ADAM ? sl_adamw_attrs(&launch->attrs)->stochastic : sl_sgd_attrs(&launch->attrs)->stochastic;
    if (launch->out[ADAM ? 3 : 2].data) /* parameter to nearest, moments f32: nothing to be noisy about */
        return update<bf16, float, true, ADAM, false>(cuda, launch, stream);
    if (launch->in[0].type.dtype == SL_F32)
        return update<float, float, false, ADAM, false>(cuda, launch, stream);
    if (noisy)
        return update<bf16, bf16, false, ADAM, true>(cuda, launch, stream);
    return update<bf16, bf16, false, ADAM, false>(cuda, launch, stream);
}

template <bool ADAM> static sl_status supports(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    bool master = launch->out[ADAM ? 3 : 2].type.rank != 0;
    sl_dtype p = launch->in[0].type.dtype, m = launch->out[1].type.dtype;
    if (master ? p != SL_BF16 || m != SL_F32 : m != p)
        return sl_cuda_fail(SL_E_UNSUPPORTED,
                            "the CUDA optimizer knows f32, bf16, and bf16 with f32 master and moments");
    return SL_OK;
}
extern "C" const sl_cuda_kernel sl_cuda_adamw = {SL_OP_ADAMW, supports<true>, NULL, update_any<true>};
extern "C" const sl_cuda_kernel sl_cuda_sgd = {SL_OP_SGD, supports<false>, NULL, update_any<false>};
