/*
 * AdamW and SGD: the operations of optim/element.h one for one (products, fma, division and square root each rounded as IEEE
 * says), so the GPU, the CPU's scalar loop and its vector units give the same bits.
 */
#include "device/cuda/kernels/optimizer.cuh"
#include "optim/element.h"

/* P: parameter and gradient, M: moments; MASTER: an f32 copy is updated and rounded to nearest. NOISY: what is bf16 is rounded
 * stochastically, but for a master's copy. SGD has one moment. */
template <typename P, typename M, bool MASTER, bool ADAM, bool NOISY>
__global__ void __launch_bounds__(THREADS)
    update_kernel(const __grid_constant__ sl_attrs attrs, const P *__restrict__ g,
                  const sl_step_params *__restrict__ step, const float *__restrict__ gate, P *p_all, M *m_all, M *v_all,
                  float *master, int64_t n)
{
    __shared__ __align__(16) uint16_t deal[NOISY ? THREADS / SL_NOISE_LANES * GROUP : 1];
    if (sl_gate_skips(gate))
        return;
    uint16_t *group = deal + (NOISY ? threadIdx.x / SL_NOISE_LANES * GROUP : 0);
    sl_adamw_scalars s;
    sl_sgd_scalars sgd;
    if (ADAM)
        s = sl_adamw_prepare(&attrs, step, gate);
    else
        sgd = sl_sgd_prepare(&attrs, step, gate);
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
            float grad = __fmul_rn(from_g[j], ADAM ? s.factor : sgd.factor);
            vp[j] = MASTER ? from_master[j] : from_p[j];
            if (!isfinite(grad))
                stays |= 1u << j;
            if (ADAM) {
                vm[j] = __fmaf_rn(s.beta1, from_m[j], __fmul_rn(s.rest1, grad));
                vv[j] = __fmaf_rn(s.beta2, from_v[j], __fmul_rn(s.rest2, __fmul_rn(grad, grad)));
            } else {
                grad = __fmaf_rn(j < near ? sgd.weight_decay : 0.0f, vp[j], grad);
                vm[j] = __fmaf_rn(sgd.momentum, from_m[j], grad);
                vp[j] = __fmaf_rn(-sgd.learning_rate, vm[j], vp[j]);
            }
        }
        if (ADAM) {
            ratios(s.inv_sqrt_bias2, s.eps, vm, vv, ratio);
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
    const bool noisy = ADAM ? sl_adamw_attrs(&launch->attrs)->stochastic : sl_sgd_attrs(&launch->attrs)->stochastic;
    DISPATCH_UPDATE(launch, ADAM ? 2 : 1, noisy, return (update<P, M, MASTER, ADAM, NOISY>(cuda, launch, stream)));
}

template <bool ADAM> static sl_status supports(sl_cuda *, const sl_launch *launch)
{
    return supports_update(launch, ADAM ? 2 : 1);
}
extern "C" const sl_cuda_kernel sl_cuda_adamw = {SL_OP_ADAMW, supports<true>, NULL, update_any<true>};
extern "C" const sl_cuda_kernel sl_cuda_sgd = {SL_OP_SGD, supports<false>, NULL, update_any<false>};
