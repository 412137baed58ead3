/*
 * LAMB: the operations of optim/lamb.h one for one, in two kernels: sums of squares of p and u over pieces of the launch's tensors, then
 * the update, which adds up the pieces of its tensor first. The update takes the pieces in reverse, because the last ones read are
 * likeliest to be in L2 still.
 */
#include "device/cuda/kernels/pieces.cuh"

/* Moves the moments of eight elements and sets u. */
__device__ __forceinline__ void lamb_elements(const sl_lamb_scalars &s, const float (&g)[EACH], const float (&p)[EACH],
                                              float (&m)[EACH], float (&v)[EACH], float (&u)[EACH])
{
    float scaled[EACH], ratio[EACH];
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const float grad = __fmul_rn(g[j], s.factor);
        m[j] = __fmaf_rn(s.beta1, m[j], __fmul_rn(s.rest1, grad));
        v[j] = __fmaf_rn(s.beta2, v[j], __fmul_rn(s.rest2, __fmul_rn(grad, grad)));
        scaled[j] = __fmul_rn(m[j], s.inv_bias1);
    }
    ratios(s.inv_sqrt_bias2, s.eps, scaled, v, ratio);
#pragma unroll
    for (int j = 0; j < EACH; j++)
        u[j] = __fmaf_rn(s.decay, p[j], ratio[j]);
}

template <typename P> __device__ __forceinline__ sl_piece piece_of(const sl_attrs &attrs, int64_t k)
{
    return sl_lamb_piece(sl_lamb_attrs(&attrs), sizeof(P) == 4 ? SL_F32 : SL_BF16, k);
}

/* W: type of the weights that are updated, parameters or their master. */
template <typename P, typename M, typename W>
__global__ void __launch_bounds__(SUM_THREADS, SUM_BLOCKS)
    lamb_norms_kernel(const __grid_constant__ sl_attrs attrs, const P *__restrict__ g,
                      const sl_step_params *__restrict__ step, const float *__restrict__ gate, const W *__restrict__ p,
                      const M *__restrict__ m, const M *__restrict__ v, float *__restrict__ sums)
{
    if (sl_gate_skips(gate))
        return;
    const sl_piece at = piece_of<P>(attrs, blockIdx.x);
    const sl_lamb_scalars s = sl_lamb_prepare(&attrs, at.tensor, step, gate);
    const int64_t first = at.first + at.start;
    sum_piece<2>(at.count - at.start, sums + 2 * (int64_t) blockIdx.x, [&](int i, int end, float(&x)[2][AT_ONCE]) {
        raw<P, 1> from_g[AT_ONCE];
        raw<W, 1> from_p[AT_ONCE];
        raw<M, 1> from_m[AT_ONCE], from_v[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            from_g[j] = load_one(g + first, i + j * SL_SUM_LANES, end);
            from_p[j] = load_one(p + first, i + j * SL_SUM_LANES, end);
            from_m[j] = load_one(m + first, i + j * SL_SUM_LANES, end);
            from_v[j] = load_one(v + first, i + j * SL_SUM_LANES, end);
        }
#pragma unroll
        for (int from = 0; from < AT_ONCE; from += EACH) {
            float vg[EACH], vp[EACH], vm[EACH], vv[EACH], u[EACH];
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                vg[j] = from_g[from + j][0], vp[j] = from_p[from + j][0];
                vm[j] = from_m[from + j][0], vv[j] = from_v[from + j][0];
            }
            lamb_elements(s, vg, vp, vm, vv, u);
#pragma unroll
            for (int j = 0; j < EACH; j++)
                x[0][from + j] = vp[j], x[1][from + j] = u[j];
        }
    });
}

template <typename P, typename M, bool MASTER, bool NOISY>
__global__ void __launch_bounds__(THREADS)
    lamb_kernel(const __grid_constant__ sl_attrs attrs, const P *__restrict__ g,
                const sl_step_params *__restrict__ step, const float *__restrict__ gate, P *p, M *m, M *v,
                float *master, const float *__restrict__ sums, int64_t pieces, bool wide)
{
    __shared__ __align__(16) uint16_t deal[NOISY ? THREADS / SL_NOISE_LANES * GROUP : 1];
    if (sl_gate_skips(gate))
        return;
    uint16_t *group = deal + (NOISY ? threadIdx.x / SL_NOISE_LANES * GROUP : 0);
    const uint64_t seed = sl_noise_seed(step);
    sl_lamb_scalars s;
    float rate = 0;
    for (int64_t k = pieces - 1 - blockIdx.x, tensor = -1; k >= 0; k -= gridDim.x) {
        const sl_piece at = piece_of<P>(attrs, k);
        if (at.tensor != tensor) {
            float squares[2];
            sum_pieces<2>(sums + 2 * at.pieces, sl_pieces(at.count), squares);
            s = sl_lamb_prepare(&attrs, at.tensor, step, gate);
            rate = sl_lamb_rate(&s, squares[0], squares[1]);
            tensor = at.tensor;
        }
        if (isnan(rate))
            continue;
        const uint64_t counter_hi =
            sl_noise_counter_hi(sl_lamb_attrs(&attrs)->stream + (uint64_t) at.tensor, step->step);
        const int64_t n = at.first + at.count, end = min(at.start + SL_PIECE, at.count);
        for (int64_t base = at.start; base < end; base += THREADS * EACH) {
            const int64_t in_tensor = base + threadIdx.x * EACH, i = at.first + in_tensor;
            raw<P, EACH> from_g = read8(g, i, n, wide), from_p;
            raw<float, EACH> from_master;
            if constexpr (MASTER)
                from_master = read8(master, i, n, wide);
            else
                from_p = read8(p, i, n, wide);
            raw<M, EACH> from_m = read8(m, i, n, wide), from_v = read8(v, i, n, wide);
            if constexpr (NOISY) {
                put_noise(seed, counter_hi, 3, in_tensor / SL_NOISE_BLOCK, group);
                __syncwarp();
            }
            float vg[EACH], vp[EACH], vm[EACH], vv[EACH], u[EACH];
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                vg[j] = from_g[j], vp[j] = MASTER ? from_master[j] : from_p[j];
                vm[j] = from_m[j], vv[j] = from_v[j];
            }
            lamb_elements(s, vg, vp, vm, vv, u);
#pragma unroll
            for (int j = 0; j < EACH; j++)
                vp[j] = __fmaf_rn(-rate, u[j], vp[j]);
            if constexpr (NOISY) {
                uint4 noise[3] = {take_noise(0, group), take_noise(1, group), take_noise(2, group)};
                __syncwarp(); /* free for the next round */
                write8_noisy(m, i, n, vm, noise[1], wide);
                write8_noisy(v, i, n, vv, noise[2], wide);
                write8_noisy(p, i, n, vp, noise[0], wide);
            } else {
                write8(m, i, n, vm, wide);
                write8(v, i, n, vv, wide);
                if constexpr (MASTER)
                    write8(master, i, n, vp, wide);
                write8(p, i, n, vp, wide);
            }
        }
    }
}

template <typename P, typename M, bool MASTER, bool NOISY>
static sl_status update(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    const P *g = (const P *) launch->in[0].data;
    const sl_step_params *step = (const sl_step_params *) launch->in[1].data;
    const float *gate = (const float *) launch->in[2].data;
    P *p = (P *) launch->out[0].data;
    M *m = (M *) launch->out[1].data, *v = (M *) launch->out[2].data;
    float *master = (float *) launch->out[3].data, *sums = (float *) launch->workspace;
    const int64_t pieces = sl_lamb_pieces(sl_lamb_attrs(&launch->attrs));
    const int64_t blocks = SL_MIN(pieces, (int64_t) sl_cuda_get_info(cuda)->multiprocessors * 4);
    if constexpr (MASTER)
        lamb_norms_kernel<P, M, float>
            <<<(unsigned) pieces, SUM_THREADS, 0, stream>>>(launch->attrs, g, step, gate, master, m, v, sums);
    else
        lamb_norms_kernel<P, M, P>
            <<<(unsigned) pieces, SUM_THREADS, 0, stream>>>(launch->attrs, g, step, gate, p, m, v, sums);
    SL_CUDA_LAUNCHED();
    lamb_kernel<P, M, MASTER, NOISY><<<(unsigned) blocks, THREADS, 0, stream>>>(
        launch->attrs, g, step, gate, p, m, v, master, sums, pieces, sl_cuda_aligned(g, p, m, v, master));
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

static sl_status lamb_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    DISPATCH_UPDATE(launch, 2, sl_lamb_attrs(&launch->attrs)->stochastic,
                    return (update<P, M, MASTER, NOISY>(cuda, launch, stream)));
}

static sl_status lamb_supports(sl_cuda *, const sl_launch *launch)
{
    return supports_update(launch, 2);
}

static size_t lamb_workspace(sl_cuda *, const sl_launch *launch)
{
    return (size_t) sl_lamb_pieces(sl_lamb_attrs(&launch->attrs)) * 2 * sizeof(float);
}
extern "C" const sl_cuda_kernel sl_cuda_lamb = {SL_OP_LAMB, lamb_supports, lamb_workspace, lamb_run};
