/*
 * RMSNorm and LayerNorm, forward and backward. One block per row forward. Backward: a fixed number of row groups, each block
 * walks the rows of its group, writes dx as it goes and keeps its columns' sums for dw (and db) in registers; partial sums go to
 * the workspace and a second kernel adds them in order. So dy and x are read once, and the sum's tree depends on the shape alone.
 *
 * Both live on bytes in flight: pieces per thread are a template argument (registers kept for the largest row would halve the
 * occupancy for all others), and the backward works on several rows at a time. Asking for the next row while reducing over the
 * present one was slower: it took the registers of a second block.
 */
#include "device/cuda/kernel.cuh"

static constexpr int ROW_GROUPS = 264; /* two blocks per multiprocessor of the largest part, whatever the machine */
static constexpr int THREADS = 512, FORWARD_THREADS = 256;
static constexpr int MOST_PIECES = 8; /* per thread of the backward, of W columns */

template <typename T, int W, int P, bool LAYER>
__global__ void __launch_bounds__(FORWARD_THREADS)
    norm_kernel(const T *__restrict__ x, const T *__restrict__ w, const T *__restrict__ b, T *__restrict__ y,
                float *__restrict__ mean_out, float *__restrict__ rstd_out, int64_t d, float eps)
{
    __shared__ float scratch[33];
    const T *row = x + (int64_t) blockIdx.x * d;
    float keep[P][W], sum = 0, squares = 0;
#pragma unroll
    for (int p = 0; p < P; p++) {
        int64_t c = ((int64_t) p * blockDim.x + threadIdx.x) * W;
        if (c < d) {
            load<W>(row + c, keep[p]);
#pragma unroll
            for (int j = 0; j < W; j++)
                sum += keep[p][j];
        }
    }
    float mean = LAYER ? block_reduce(sum, scratch) / (float) d : 0.0f;
#pragma unroll
    for (int p = 0; p < P; p++)
        if (((int64_t) p * blockDim.x + threadIdx.x) * W < d)
#pragma unroll
            for (int j = 0; j < W; j++) {
                keep[p][j] -= mean;
                squares = fmaf(keep[p][j], keep[p][j], squares);
            }
    float rstd = rsqrtf(block_reduce(squares, scratch) / (float) d + eps);
#pragma unroll
    for (int p = 0; p < P; p++) {
        int64_t c = ((int64_t) p * blockDim.x + threadIdx.x) * W;
        if (c < d) {
            float weight[W], bias[W];
            load<W>(w + c, weight);
            if (LAYER)
                load<W>(b + c, bias);
#pragma unroll
            for (int j = 0; j < W; j++)
                keep[p][j] = LAYER ? fmaf(keep[p][j] * rstd, weight[j], bias[j]) : keep[p][j] * rstd * weight[j];
            store<W>(y + (int64_t) blockIdx.x * d + c, keep[p]);
        }
    }
    if (threadIdx.x == 0) {
        rstd_out[blockIdx.x] = rstd;
        if (LAYER)
            mean_out[blockIdx.x] = mean;
    }
}

/* Both sums of R rows over the block, the same in every thread. */
template <int R, bool LAYER>
__device__ __forceinline__ void reduce_rows(float (&along)[R], float (&sum)[R], float (*scratch)[2 * R])
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
#pragma unroll
    for (int r = 0; r < R; r++) {
        along[r] = warp_sum(along[r]);
        if (LAYER)
            sum[r] = warp_sum(sum[r]);
        if (lane == 0) {
            scratch[warp][r] = along[r];
            scratch[warp][R + r] = sum[r];
        }
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < R; r++) {
        along[r] = sum[r] = 0;
        for (int w = 0; w < warps; w++) {
            along[r] += scratch[w][r];
            if (LAYER)
                sum[r] += scratch[w][R + r];
        }
    }
    __syncthreads();
}

/* R rows of a group at a time: their loads are in flight together, and one reduction serves all of them. */
template <typename T, int W, int P, int R, bool LAYER>
__global__ void __launch_bounds__(THREADS, P *R <= 2 ? 2 : 1)
    norm_bwd_kernel(const T *__restrict__ dy, const T *__restrict__ x, const T *__restrict__ w,
                    const float *__restrict__ mean_in, const float *__restrict__ rstd_in, T *dx,
                    float *__restrict__ partial, int64_t n, int64_t d, bool accumulate)
{
    typedef pack<T, W> piece;
    __shared__ float scratch[THREADS / 32][2 * R];
    float dw[P][W] = {}, db[P][W] = {};
    int64_t rows = (n + gridDim.x - 1) / gridDim.x, first = blockIdx.x * rows,
            last = first + rows < n ? first + rows : n;
    for (int64_t row = first; row < last; row += R) {
        piece from_x[R][P], from_dy[R][P], old[R][P];
        float rstd[R], mean[R], along[R] = {}, sum[R] = {};
#pragma unroll
        for (int r = 0; r < R; r++) {
            bool inside = row + r < last;
            rstd[r] = inside ? rstd_in[row + r] : 0.0f;
            mean[r] = LAYER && inside ? mean_in[row + r] : 0.0f;
#pragma unroll
            for (int p = 0; p < P; p++) {
                int64_t c = ((int64_t) p * blockDim.x + threadIdx.x) * W, at = (row + r) * d + c;
                if (inside && c < d) {
                    from_x[r][p] = *reinterpret_cast<const piece *>(x + at);
                    from_dy[r][p] = *reinterpret_cast<const piece *>(dy + at);
                    if (accumulate)
                        old[r][p] = *reinterpret_cast<const piece *>(dx + at);
                }
            }
        }
#pragma unroll
        for (int p = 0; p < P; p++) {
            int64_t c = ((int64_t) p * blockDim.x + threadIdx.x) * W;
            float weight[W];
            if (c < d)
                load<W>(w + c, weight);
#pragma unroll
            for (int r = 0; r < R; r++)
                if (c < d && row + r < last)
#pragma unroll
                    for (int j = 0; j < W; j++) {
                        float g = to_f32(from_dy[r][p].v[j]), hat = (to_f32(from_x[r][p].v[j]) - mean[r]) * rstd[r];
                        dw[p][j] = fmaf(g, hat, dw[p][j]);
                        if (LAYER)
                            db[p][j] += g;
                        along[r] = fmaf(g * weight[j], hat, along[r]);
                        if (LAYER)
                            sum[r] += g * weight[j];
                    }
        }
        reduce_rows<R, LAYER>(along, sum, scratch);
#pragma unroll
        for (int p = 0; p < P; p++) {
            int64_t c = ((int64_t) p * blockDim.x + threadIdx.x) * W;
            float weight[W];
            if (c < d)
                load<W>(w + c, weight);
#pragma unroll
            for (int r = 0; r < R; r++)
                if (dx && c < d && row + r < last) {
                    float out[W], shift = LAYER ? sum[r] / (float) d : 0.0f, slope = along[r] / (float) d;
#pragma unroll
                    for (int j = 0; j < W; j++) {
                        float u = to_f32(from_dy[r][p].v[j]) * weight[j];
                        float hat = (to_f32(from_x[r][p].v[j]) - mean[r]) * rstd[r];
                        out[j] = rstd[r] * (u - shift - hat * slope);
                        if (accumulate)
                            out[j] += to_f32(old[r][p].v[j]);
                    }
                    store<W>(dx + (row + r) * d + c, out);
                }
        }
    }
#pragma unroll
    for (int p = 0; p < P; p++) {
        int64_t c = ((int64_t) p * blockDim.x + threadIdx.x) * W;
        if (c < d) {
            store<W>(partial + (int64_t) blockIdx.x * d + c, dw[p]);
            if (LAYER)
                store<W>(partial + ((int64_t) gridDim.x + blockIdx.x) * d + c, db[p]);
        }
    }
}

/* out[c] (+)= sum over groups of partial[group][c], in order of the groups by a fixed split over the block's rows of threads. */
template <typename T>
__global__ void column_sum_kernel(const float *__restrict__ partial, T *out, int64_t groups, int64_t d, bool accumulate)
{
    __shared__ float part[8][33];
    int64_t c = (int64_t) blockIdx.x * 32 + threadIdx.x;
    float sum = 0;
    if (c < d)
        for (int64_t g = threadIdx.y; g < groups; g += 8)
            sum += partial[g * d + c];
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && c < d) {
        for (int k = 1; k < 8; k++)
            sum += part[k][threadIdx.x];
        if (accumulate)
            sum += to_f32(out[c]);
        from_f32(sum, &out[c]);
    }
}

/* Short rows make small blocks, so there are more of them; from the shape alone, as the sum's tree is. */
static int64_t groups_of(int64_t n, int64_t d)
{
    int64_t groups = d <= 1024 ? 4 * ROW_GROUPS : d <= 2048 ? 2 * ROW_GROUPS : ROW_GROUPS;
    return n < groups ? n : groups;
}

static int threads_for(int64_t d, int W, int most)
{
    int64_t threads = (d + W - 1) / W;
    return (int) (threads > most ? most : (threads + 31) / 32 * 32);
}

static sl_status norm_supports(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    const sl_type *x = &launch->in[0].type;
    int64_t d = x->dim[1], most = (int64_t) THREADS * MOST_PIECES * (x->dim[1] % 8 == 0 ? 4 : 1);
    if (d > most)
        return sl_cuda_fail(SL_E_UNSUPPORTED, "norms on CUDA take rows of at most %lld columns, not %lld",
                            (long long) most, (long long) d);
    return SL_OK;
}

template <typename T, int W, int P, bool LAYER> static void norm_launch(const sl_launch *launch, cudaStream_t stream)
{
    int64_t n = launch->in[0].type.dim[0], d = launch->in[0].type.dim[1];
    norm_kernel<T, W, P, LAYER><<<(unsigned) n, threads_for(d, W, FORWARD_THREADS), 0, stream>>>(
        (const T *) launch->in[0].data, (const T *) launch->in[1].data, LAYER ? (const T *) launch->in[2].data : NULL,
        (T *) launch->out[0].data, LAYER ? (float *) launch->out[1].data : NULL,
        (float *) launch->out[LAYER ? 2 : 1].data, d, launch->attrs.norm.eps);
}

template <typename T, int W, bool LAYER> static void norm_pieces(const sl_launch *launch, cudaStream_t stream)
{
    int64_t d = launch->in[0].type.dim[1], pieces = (d + W * FORWARD_THREADS - 1) / (W * FORWARD_THREADS);
    if (pieces <= 1)
        norm_launch<T, W, 1, LAYER>(launch, stream);
    else if (pieces <= 2)
        norm_launch<T, W, 2, LAYER>(launch, stream);
    else if (pieces <= 4)
        norm_launch<T, W, 4, LAYER>(launch, stream);
    else
        norm_launch<T, W, 2 * MOST_PIECES, LAYER>(launch, stream);
}

template <typename T, bool LAYER> static sl_status norm_any(const sl_launch *launch, cudaStream_t stream)
{
    constexpr int W = 16 / sizeof(T);
    if (launch->in[0].type.dim[1] % W == 0 && sl_cuda_aligned(launch->in[0].data) &&
        sl_cuda_aligned(launch->out[0].data) && sl_cuda_aligned(launch->in[1].data))
        norm_pieces<T, W, LAYER>(launch, stream);
    else
        norm_pieces<T, 1, LAYER>(launch, stream);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

template <typename T, int W, int P, int R, bool LAYER>
static void bwd_launch(const sl_launch *launch, cudaStream_t stream)
{
    int64_t n = launch->in[0].type.dim[0], d = launch->in[0].type.dim[1];
    norm_bwd_kernel<T, W, P, R, LAYER><<<(unsigned) groups_of(n, d), threads_for(d, W, THREADS), 0, stream>>>(
        (const T *) launch->in[0].data, (const T *) launch->in[1].data, (const T *) launch->in[2].data,
        LAYER ? (const float *) launch->in[3].data : NULL, (const float *) launch->in[LAYER ? 4 : 3].data,
        (T *) launch->out[0].data, (float *) launch->workspace, n, d, launch->accumulate & 1);
}

template <typename T, int W, bool LAYER> static void bwd_pieces(const sl_launch *launch, cudaStream_t stream)
{
    int64_t d = launch->in[0].type.dim[1], pieces = (d + (int64_t) W * THREADS - 1) / ((int64_t) W * THREADS);
    if (pieces <= 1)
        bwd_launch<T, W, 1, 2, LAYER>(launch, stream);
    else if (pieces <= 2)
        bwd_launch<T, W, 2, 1, LAYER>(launch, stream);
    else
        bwd_launch<T, W, MOST_PIECES, 1, LAYER>(launch, stream);
}

template <typename T, bool LAYER> static sl_status bwd_any(const sl_launch *launch, cudaStream_t stream)
{
    constexpr int W = 16 / sizeof(T);
    int64_t n = launch->in[0].type.dim[0], d = launch->in[0].type.dim[1], groups = groups_of(n, d);
    if (d % W == 0 && sl_cuda_aligned(launch->in[0].data) && sl_cuda_aligned(launch->in[1].data) &&
        sl_cuda_aligned(launch->in[2].data) && sl_cuda_aligned(launch->out[0].data))
        bwd_pieces<T, W, LAYER>(launch, stream);
    else
        bwd_pieces<T, 1, LAYER>(launch, stream);
    SL_CUDA_LAUNCHED();
    for (int k = 1; k <= (LAYER ? 2 : 1); k++)
        if (launch->out[k].data)
            column_sum_kernel<T><<<(unsigned) ((d + 31) / 32), dim3(32, 8), 0, stream>>>(
                (const float *) launch->workspace + (k - 1) * groups * d, (T *) launch->out[k].data, groups, d,
                launch->accumulate >> k & 1);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

template <bool LAYER> static size_t bwd_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    return (size_t) (groups_of(launch->in[0].type.dim[0], launch->in[0].type.dim[1]) * launch->in[0].type.dim[1]) *
           (LAYER ? 2 : 1) * sizeof(float);
}

static sl_status rmsnorm_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    SL_DISPATCH(launch->in[0].type.dtype, T, return (norm_any<T, false>(launch, stream)));
}
static sl_status rmsnorm_bwd_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    SL_DISPATCH(launch->in[0].type.dtype, T, return (bwd_any<T, false>(launch, stream)));
}
static sl_status layernorm_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    SL_DISPATCH(launch->in[0].type.dtype, T, return (norm_any<T, true>(launch, stream)));
}
static sl_status layernorm_bwd_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    SL_DISPATCH(launch->in[0].type.dtype, T, return (bwd_any<T, true>(launch, stream)));
}
extern "C" const sl_cuda_kernel sl_cuda_rmsnorm = {SL_OP_RMSNORM, norm_supports, NULL, rmsnorm_run};
extern "C" const sl_cuda_kernel sl_cuda_rmsnorm_bwd = {SL_OP_RMSNORM_BWD, norm_supports, bwd_workspace<false>,
                                                       rmsnorm_bwd_run};
extern "C" const sl_cuda_kernel sl_cuda_layernorm = {SL_OP_LAYERNORM, norm_supports, NULL, layernorm_run};
extern "C" const sl_cuda_kernel sl_cuda_layernorm_bwd = {SL_OP_LAYERNORM_BWD, norm_supports, bwd_workspace<true>,
                                                         layernorm_bwd_run};

/* ---- bias gradient: the same partial sums over row groups, without the norm ---- */

template <typename T, int W>
__global__ void bias_grad_kernel(const T *__restrict__ dy, float *__restrict__ partial, int64_t n, int64_t d)
{
    int64_t c = ((int64_t) blockIdx.x * blockDim.x + threadIdx.x) * W;
    int64_t rows = (n + gridDim.y - 1) / gridDim.y, first = blockIdx.y * rows,
            last = first + rows < n ? first + rows : n;
    if (c >= d)
        return;
    float sum[W] = {};
#pragma unroll 4
    for (int64_t row = first; row < last; row++) {
        float v[W];
        load<W>(dy + row * d + c, v);
#pragma unroll
        for (int j = 0; j < W; j++)
            sum[j] += v[j];
    }
    store<W>(partial + blockIdx.y * d + c, sum);
}

template <typename T, int W> static void bias_grad(const sl_launch *launch, int64_t groups, cudaStream_t stream)
{
    int64_t n = launch->in[0].type.dim[0], d = launch->in[0].type.dim[1];
    bias_grad_kernel<T, W><<<dim3((unsigned) ((d + 64 * W - 1) / (64 * W)), (unsigned) groups), 64, 0, stream>>>(
        (const T *) launch->in[0].data, (float *) launch->workspace, n, d);
}

static int64_t bias_groups(int64_t n)
{
    return (n + 15) / 16 < 512 ? (n + 15) / 16 : 512;
}

static size_t bias_grad_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    return (size_t) (bias_groups(launch->in[0].type.dim[0]) * launch->in[0].type.dim[1]) * sizeof(float);
}

static sl_status bias_grad_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    int64_t n = launch->in[0].type.dim[0], d = launch->in[0].type.dim[1], groups = bias_groups(n);
    SL_DISPATCH(launch->in[0].type.dtype, T, {
        constexpr int W = 16 / sizeof(T);
        if (d % W == 0 && sl_cuda_aligned(launch->in[0].data))
            bias_grad<T, W>(launch, groups, stream);
        else
            bias_grad<T, 1>(launch, groups, stream);
        column_sum_kernel<T><<<(unsigned) ((d + 31) / 32), dim3(32, 8), 0, stream>>>(
            (const float *) launch->workspace, (T *) launch->out[0].data, groups, d, launch->accumulate & 1);
    });
    SL_CUDA_LAUNCHED();
    return SL_OK;
}
extern "C" const sl_cuda_kernel sl_cuda_bias_grad = {SL_OP_BIAS_GRAD, NULL, bias_grad_workspace, bias_grad_run};
