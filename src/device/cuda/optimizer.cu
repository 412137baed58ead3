/*
 * AdamW and SGD: the operations of ops/optimizer.h one for one (products, fma, division and square root each rounded as IEEE
 * says), so the GPU, the CPU's scalar loop and its vector units give the same bits.
 *
 * Rounding noise is dealt (ops/noise.h) so that one Philox call serves elements 16 apart, while memory wants each thread to hold 8
 * neighbours (16 bytes of bf16). So a group of 16 threads owns a block of 128 elements: thread l makes the noise of lane l, and
 * takes what it needs from the others through shared memory.
 */
#include "device/cuda/kernel.cuh"
#include "ops/noise.h"

static constexpr int THREADS = 256;
static constexpr int EACH = 8; /* elements per thread: SL_NOISE_BLOCK / SL_NOISE_LANES */

struct scalars {
    float factor, beta1, rest1, beta2, rest2, decay, step_size, inv_sqrt_bias2, eps;
};

__device__ __forceinline__ scalars adamw_scalars(const sl_attrs &attrs, const sl_step_params *step, const float *gate)
{
    scalars s;
    s.factor = gate ? gate[0] : 1.0f;
    s.beta1 = attrs.adamw.beta1, s.rest1 = __fsub_rn(1.0f, s.beta1);
    s.beta2 = attrs.adamw.beta2, s.rest2 = __fsub_rn(1.0f, s.beta2);
    s.decay = __fmaf_rn(-step->learning_rate, attrs.adamw.weight_decay, 1.0f);
    s.step_size = __fdiv_rn(step->learning_rate, step->bias1);
    s.inv_sqrt_bias2 = __fdiv_rn(1.0f, __fsqrt_rn(step->bias2));
    s.eps = attrs.adamw.eps;
    return s;
}

/* The noise of this thread's 8 elements for tensor `which`, as 16 bits each. All 16 threads of a group call it together. */
__device__ __forceinline__ void deal_noise(const sl_step_params *step, uint64_t stream, int which, int64_t block,
                                           uint4 *group, uint32_t (&out)[EACH])
{
    int lane = threadIdx.x % SL_NOISE_LANES, k = lane / 2, from = lane % 2 * EACH;
    sl_rng4 words = sl_philox(sl_noise_seed(step), ((uint64_t) block * SL_NOISE_LANES + lane) << 2 | (uint64_t) which,
                              sl_noise_counter_hi(stream, step->step));
    __syncwarp();
    group[lane] = make_uint4(words.v[0], words.v[1], words.v[2], words.v[3]);
    __syncwarp();
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        uint32_t word = reinterpret_cast<const uint32_t *>(&group[from + j])[k % 4];
        out[j] = k < 4 ? word & 0xffffu : word >> 16;
    }
}

__device__ __forceinline__ void put_noisy(float x, uint32_t noise, bf16 *y)
{
    uint32_t bits = __float_as_uint(x);
    if ((bits & 0x7f800000u) == 0x7f800000u)
        from_f32(x, y);
    else
        *reinterpret_cast<uint16_t *>(y) = (uint16_t) ((bits + noise) >> 16);
}
__device__ __forceinline__ void put_noisy(float x, uint32_t, float *y)
{
    *y = x;
}

template <typename T> __device__ __forceinline__ void read8(const T *from, int64_t i, int64_t n, float (&to)[EACH])
{
    if (i + EACH <= n)
        load<EACH>(from + i, to);
    else
        for (int j = 0; j < EACH; j++)
            to[j] = i + j < n ? to_f32(from[i + j]) : 0.0f;
}

template <typename T>
__device__ __forceinline__ void write8(T *to, int64_t i, int64_t n, const float (&from)[EACH], bool noisy,
                                       const uint32_t (&noise)[EACH])
{
    pack<T, EACH> p;
#pragma unroll
    for (int j = 0; j < EACH; j++)
        if (noisy)
            put_noisy(from[j], noise[j], &p.v[j]);
        else
            from_f32(from[j], &p.v[j]);
    if (i + EACH <= n) {
        constexpr int piece = 16 / (int) sizeof(T);
#pragma unroll
        for (int j = 0; j < EACH; j += piece)
            *reinterpret_cast<pack<T, piece> *>(to + i + j) = *reinterpret_cast<pack<T, piece> *>(&p.v[j]);
    } else
        for (int j = 0; i + j < n; j++)
            to[i + j] = p.v[j];
}

/* P: parameter and gradient, M: moments; MASTER: an f32 copy is updated and rounded to nearest. SGD has one moment. */
template <typename P, typename M, bool MASTER, bool ADAM>
__global__ void __launch_bounds__(THREADS)
    update_kernel(const __grid_constant__ sl_attrs attrs, const P *__restrict__ g,
                  const sl_step_params *__restrict__ step, const float *__restrict__ gate, P *p_all, M *m_all, M *v_all,
                  float *master, int64_t n)
{
    __shared__ uint4 deal[THREADS];
    if (gate && gate[2] != 0)
        return;
    uint4 *group = deal + threadIdx.x / SL_NOISE_LANES * SL_NOISE_LANES;
    scalars s = ADAM ? adamw_scalars(attrs, step, gate) : scalars{gate ? gate[0] : 1.0f};
    int64_t decayed = ADAM ? attrs.adamw.decayed : attrs.sgd.decayed;
    uint64_t stream = ADAM ? attrs.adamw.stream : attrs.sgd.stream;
    bool noisy = ADAM ? attrs.adamw.stochastic : attrs.sgd.stochastic;
    bool noisy_p = noisy && sizeof(P) == 2 && !MASTER, noisy_m = noisy && sizeof(M) == 2;
    int64_t blocks = (n + SL_NOISE_BLOCK - 1) / SL_NOISE_BLOCK, per = THREADS / SL_NOISE_LANES;
    for (int64_t base = (int64_t) blockIdx.x * per; base < blocks; base += (int64_t) gridDim.x * per) {
        int64_t block = base + threadIdx.x / SL_NOISE_LANES,
                i = block * SL_NOISE_BLOCK + threadIdx.x % SL_NOISE_LANES * EACH;
        float vg[EACH], vp[EACH], vm[EACH], vv[EACH];
        uint32_t noise[3][EACH] = {};
        read8(g, i, n, vg);
        if (MASTER)
            read8(master, i, n, vp);
        else
            read8(p_all, i, n, vp);
        read8(m_all, i, n, vm);
        if (ADAM)
            read8(v_all, i, n, vv);
        if (noisy_p)
            deal_noise(step, stream, 0, block, group, noise[0]);
        if (noisy_m)
            deal_noise(step, stream, 1, block, group, noise[1]);
        if (noisy_m && ADAM)
            deal_noise(step, stream, 2, block, group, noise[2]);
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            float grad = __fmul_rn(vg[j], s.factor);
            if (ADAM) {
                vm[j] = __fmaf_rn(s.beta1, vm[j], __fmul_rn(s.rest1, grad));
                vv[j] = __fmaf_rn(s.beta2, vv[j], __fmul_rn(s.rest2, __fmul_rn(grad, grad)));
                float ratio = __fdiv_rn(vm[j], __fmaf_rn(__fsqrt_rn(vv[j]), s.inv_sqrt_bias2, s.eps));
                vp[j] = __fmaf_rn(-s.step_size, ratio, __fmul_rn(vp[j], i + j < decayed ? s.decay : 1.0f));
            } else {
                grad = __fmaf_rn(i + j < decayed ? attrs.sgd.weight_decay : 0.0f, vp[j], grad);
                vm[j] = __fmaf_rn(attrs.sgd.momentum, vm[j], grad);
                vp[j] = __fmaf_rn(-step->learning_rate, vm[j], vp[j]);
            }
        }
        if (i < n) {
            write8(m_all, i, n, vm, noisy_m, noise[1]);
            if (ADAM)
                write8(v_all, i, n, vv, noisy_m, noise[2]);
            if (MASTER)
                write8(master, i, n, vp, false, noise[0]);
            write8(p_all, i, n, vp, noisy_p, noise[0]);
        }
    }
}

template <typename P, typename M, bool MASTER, bool ADAM>
static sl_status update(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    int64_t n = sl_type_count(&launch->in[0].type);
    const sl_operand *master = &launch->out[ADAM ? 3 : 2];
    update_kernel<P, M, MASTER, ADAM><<<sl_cuda_blocks(cuda, n, THREADS * EACH), THREADS, 0, stream>>>(
        launch->attrs, (const P *) launch->in[0].data, (const sl_step_params *) launch->in[1].data,
        (const float *) launch->in[2].data, (P *) launch->out[0].data, (M *) launch->out[1].data,
        ADAM ? (M *) launch->out[2].data : NULL, (float *) master->data, n);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

template <bool ADAM> static sl_status update_any(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    if (launch->out[ADAM ? 3 : 2].data)
        return update<bf16, float, true, ADAM>(cuda, launch, stream);
    if (launch->in[0].type.dtype == SL_BF16)
        return update<bf16, bf16, false, ADAM>(cuda, launch, stream);
    return update<float, float, false, ADAM>(cuda, launch, stream);
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
