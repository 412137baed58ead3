/*
 * AdamW with 8-bit moments: the operations of optim/adamw8bit.c one for one. A thread has 8 neighbouring elements, so 8 threads have a
 * block of codes and find its largest magnitudes by exchange within the warp.
 */
#include "device/cuda/kernels/optimizer.cuh"
#include "optim/codes.h"
#include "optim/element.h"

static constexpr int BLOCK_THREADS = SL_CODES_BLOCK / EACH;

/* Largest of the 8 threads that share a block. */
__device__ __forceinline__ float largest_of_block(float x)
{
#pragma unroll
    for (int offset = BLOCK_THREADS / 2; offset; offset /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
}

struct codes8 {
    float scale;
    uint32_t word[2];
    __device__ __forceinline__ uint8_t operator[](int j) const
    {
        return (uint8_t) (word[j / 4] >> j % 4 * 8);
    }
};

/* Blocks are 68 bytes, so words of 4 bytes are aligned. */
__device__ __forceinline__ codes8 read_codes(const uint8_t *state, int64_t i, int64_t n)
{
    codes8 codes = {};
    if (i / SL_CODES_BLOCK * SL_CODES_BLOCK >= n)
        return codes;
    const uint32_t *block = reinterpret_cast<const uint32_t *>(state + i / SL_CODES_BLOCK * SL_CODES_BYTES);
    codes.scale = __uint_as_float(block[0]);
    const int at = 1 + (int) (i % SL_CODES_BLOCK) / 4;
    codes.word[0] = block[at];
    codes.word[1] = block[at + 1];
    return codes;
}

__device__ __forceinline__ void write_codes(uint8_t *state, int64_t i, int64_t n, const codes8 &codes)
{
    if (i / SL_CODES_BLOCK * SL_CODES_BLOCK >= n)
        return;
    uint32_t *block = reinterpret_cast<uint32_t *>(state + i / SL_CODES_BLOCK * SL_CODES_BYTES);
    if (i % SL_CODES_BLOCK == 0)
        block[0] = __float_as_uint(codes.scale);
    const int at = 1 + (int) (i % SL_CODES_BLOCK) / 4;
    block[at] = codes.word[0];
    block[at + 1] = codes.word[1];
}

__device__ __forceinline__ uint32_t noise_of(const uint4 &noise, int j)
{
    const uint32_t word = j / 2 == 0 ? noise.x : j / 2 == 1 ? noise.y : j / 2 == 2 ? noise.z : noise.w;
    return j % 2 ? word >> 16 : word & 0xffffu;
}

/* P: parameter and gradient. MASTER: an f32 copy is updated and rounded to nearest. NOISY: bf16 parameters are rounded stochastically. */
template <typename P, bool MASTER, bool NOISY>
__global__ void __launch_bounds__(THREADS)
    adamw8bit_kernel(const __grid_constant__ sl_attrs attrs, const P *__restrict__ g,
                     const sl_step_params *__restrict__ step, const float *__restrict__ gate, P *p_all, uint8_t *m_all,
                     uint8_t *v_all, float *master, int64_t n)
{
    __shared__ __align__(16) uint16_t deal[THREADS / SL_NOISE_LANES * GROUP];
    if (sl_gate_skips(gate))
        return;
    uint16_t *group = deal + threadIdx.x / SL_NOISE_LANES * GROUP;
    const sl_adamw_scalars s = sl_adamw_prepare(&attrs, step, gate);
    const int64_t decayed = sl_adamw_attrs(&attrs)->decayed;
    const uint64_t seed = sl_noise_seed(step);
    const uint64_t counter_hi = sl_noise_counter_hi(sl_adamw_attrs(&attrs)->stream, step->step);
    const int64_t blocks = (n + SL_NOISE_BLOCK - 1) / SL_NOISE_BLOCK, per = THREADS / SL_NOISE_LANES;
    for (int64_t base = (int64_t) blockIdx.x * per; base < blocks; base += (int64_t) gridDim.x * per) {
        const int64_t block = base + threadIdx.x / SL_NOISE_LANES,
                      i = block * SL_NOISE_BLOCK + threadIdx.x % SL_NOISE_LANES * EACH;
        raw<P, EACH> from_g = read8(g, i, n), from_p;
        raw<float, EACH> from_master;
        if constexpr (MASTER)
            from_master = read8(master, i, n);
        else
            from_p = read8(p_all, i, n);
        codes8 m_codes = read_codes(m_all, i, n), v_codes = read_codes(v_all, i, n);
        put_noise(seed, counter_hi, 3, block, group);
        __syncwarp();
        float vp[EACH], vm[EACH], vv[EACH], ratio[EACH];
        float m_largest = 0, root_largest = 0, nothing = 0; /* turns NaN where a factor is not finite */
        const int near = (int) min((int64_t) EACH, max((int64_t) 0, decayed - i)); /* elements with weight decay */
        const int here = (int) min((int64_t) EACH, max((int64_t) 0, n - i));
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const float grad = __fmul_rn(from_g[j], s.factor), root = sl_codes_second(v_codes[j], v_codes.scale);
            vp[j] = MASTER ? from_master[j] : from_p[j];
            vm[j] = __fmaf_rn(s.beta1, sl_codes_first(m_codes[j], m_codes.scale), __fmul_rn(s.rest1, grad));
            vv[j] = __fmaf_rn(s.beta2, __fmul_rn(root, root), __fmul_rn(s.rest2, __fmul_rn(grad, grad)));
            if (j >= here) /* codes behind the last element are zeros */
                vm[j] = vv[j] = 0;
            nothing = __fmaf_rn(grad, 0.0f, __fmaf_rn(vv[j], 0.0f, nothing));
        }
        ratios(s.inv_sqrt_bias2, s.eps, vm, vv, ratio);
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            vp[j] = __fmaf_rn(-s.step_size, ratio[j], __fmul_rn(vp[j], j < near ? s.decay : 1.0f));
            vv[j] = __fsqrt_rn(vv[j]);
            m_largest = fmaxf(m_largest, fabsf(vm[j]));
            root_largest = fmaxf(root_largest, vv[j]);
        }
        m_codes.scale = sl_codes_scale(largest_of_block(m_largest), SL_FIRST_LEVELS);
        v_codes.scale = sl_codes_scale(largest_of_block(root_largest), SL_SECOND_LEVELS);
        const bool stays = largest_of_block(nothing == 0.0f ? 0.0f : 1.0f) != 0.0f;
        const uint4 noise[3] = {take_noise(0, group), take_noise(1, group), take_noise(2, group)};
        __syncwarp(); /* free for the next round */
        if (stays)
            continue;
        m_codes.word[0] = m_codes.word[1] = v_codes.word[0] = v_codes.word[1] = 0;
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            m_codes.word[j / 4] |= (uint32_t) sl_codes_put_first(vm[j], m_codes.scale, noise_of(noise[1], j))
                                   << j % 4 * 8;
            v_codes.word[j / 4] |= (uint32_t) sl_codes_put_second(vv[j], v_codes.scale, noise_of(noise[2], j))
                                   << j % 4 * 8;
        }
        write_codes(m_all, i, n, m_codes);
        write_codes(v_all, i, n, v_codes);
        if constexpr (MASTER)
            write8(master, i, n, vp);
        if constexpr (NOISY)
            write8_noisy(p_all, i, n, vp, noise[0]);
        else
            write8(p_all, i, n, vp);
    }
}

template <typename P, bool MASTER, bool NOISY>
static sl_status run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    const int64_t n = sl_type_count(&launch->in[0].type);
    adamw8bit_kernel<P, MASTER, NOISY><<<sl_cuda_blocks(cuda, n, THREADS * EACH), THREADS, 0, stream>>>(
        launch->attrs, (const P *) launch->in[0].data, (const sl_step_params *) launch->in[1].data,
        (const float *) launch->in[2].data, (P *) launch->out[0].data, (uint8_t *) launch->out[1].data,
        (uint8_t *) launch->out[2].data, (float *) launch->out[3].data, n);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

static sl_status run_any(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    if (launch->in[0].type.dtype == SL_F32)
        return run<float, false, false>(cuda, launch, stream);
    if (launch->out[3].data)
        return run<bf16, true, false>(cuda, launch, stream);
    return sl_adamw_attrs(&launch->attrs)->stochastic ? run<bf16, false, true>(cuda, launch, stream)
                                                      : run<bf16, false, false>(cuda, launch, stream);
}

static sl_status supports(sl_cuda *, const sl_launch *launch)
{
    const bool master = launch->out[3].type.rank != 0;
    if (master && launch->in[0].type.dtype != SL_BF16)
        return sl_cuda_fail(SL_E_UNSUPPORTED, "the CUDA optimizer keeps a master copy of bf16 parameters only");
    return SL_OK;
}

extern "C" const sl_cuda_kernel sl_cuda_adamw8bit = {SL_OP_ADAMW8BIT, supports, NULL, run_any};
