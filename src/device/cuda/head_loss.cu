/*
 * Head and cross-entropy, a block of tokens at a time: f32 logits in the workspace through cuBLASLt, one kernel per block that turns a
 * row of logits into the row's loss and, in place, its dlogits, then two more matmuls.
 *
 * In place: dlogits in bf16 take half the bytes of f32 logits. A row's bf16 values are written over the front of its own f32
 * values, tile by tile behind the reads, so the next matmuls see a bf16 matrix with twice the row stride.
 */
#include "device/cuda/kernel.cuh"

static constexpr int THREADS = 1024;
static constexpr int W = 4, TILES = 4; /* logits per access, accesses in flight */

/* W logits of a row; what lies beyond the vocabulary counts as minus infinity. */
__device__ __forceinline__ void read_logits(const float *row, int64_t v, int64_t vocabulary, float (&x)[W])
{
    if (v < vocabulary) /* the row's stride is a multiple of W, so reading is safe */
        load<W>(row + v, x);
#pragma unroll
    for (int j = 0; j < W; j++)
        if (v + j >= vocabulary)
            x[j] = -INFINITY;
}

/* One token per block. Two passes: maximum and sum of exponentials (online, one read), then dlogits (one read, one write). */
template <typename T, bool BACKWARD>
__global__ void __launch_bounds__(THREADS)
    row_kernel(float *logits, const int32_t *__restrict__ targets, const sl_step_params *__restrict__ step,
               float *__restrict__ losses, int64_t vocabulary, int64_t stride, int32_t ignore)
{
    __shared__ float scratch[33];
    float *row = logits + (int64_t) blockIdx.x * stride;
    int32_t target = targets[blockIdx.x];
    float most = -INFINITY, sum = 0;
#pragma unroll 4
    for (int64_t v = (int64_t) threadIdx.x * W; v < vocabulary; v += THREADS * W) {
        float x[W], peak = most;
        read_logits(row, v, vocabulary, x);
#pragma unroll
        for (int j = 0; j < W; j++)
            peak = fmaxf(peak, x[j]);
        if (peak == -INFINITY)
            continue;
        sum *= __expf(most - peak);
        most = peak;
#pragma unroll
        for (int j = 0; j < W; j++)
            sum += __expf(x[j] - most);
    }
    float top = block_reduce<true>(most, scratch);
    float total = block_reduce(most == -INFINITY ? 0.0f : sum * expf(most - top), scratch);
    bool counted = target != ignore;
    if (threadIdx.x == 0)
        losses[blockIdx.x] = counted ? logf(total) + top - row[target] : 0.0f;
    if (!BACKWARD)
        return;
    __syncthreads();
    T *out = reinterpret_cast<T *>(row);
    float factor = counted ? step->loss_scale : 0.0f, inverse = 1.0f / total;
    for (int64_t base = 0; base < vocabulary; base += THREADS * W * TILES) {
        float x[TILES][W];
#pragma unroll
        for (int t = 0; t < TILES; t++)
            read_logits(row, base + ((int64_t) t * THREADS + threadIdx.x) * W, vocabulary, x[t]);
        __syncthreads(); /* every read of these tiles is done before their bytes, or earlier ones, are written */
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            int64_t v = base + ((int64_t) t * THREADS + threadIdx.x) * W;
#pragma unroll
            for (int j = 0; j < W; j++)
                x[t][j] = (__expf(x[t][j] - top) * inverse - (v + j == target ? 1.0f : 0.0f)) * factor;
            if (v < vocabulary)
                store<W>(out + v, x[t]); /* zeros between vocabulary and stride */
        }
    }
}

/* loss (+)= sum of the rows' losses, in f64, in order of fixed lanes. */
__global__ void total_kernel(const float *__restrict__ losses, int64_t n, float *loss, bool accumulate)
{
    __shared__ double lane[256];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += 256)
        sum += losses[i];
    lane[threadIdx.x] = sum;
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            lane[threadIdx.x] += lane[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        *loss = (float) (lane[0] + (accumulate ? *loss : 0.0f));
}

static int64_t block_of(const sl_launch *launch)
{
    int64_t n = launch->in[0].type.dim[0], block = launch->attrs.head.block;
    return block > 0 && block < n ? block : n;
}

static size_t align(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Logits' rows begin on 256 bytes whatever the vocabulary: matmul and 16-byte accesses want it so. */
static int64_t stride_of(const sl_launch *launch)
{
    return (launch->in[1].type.dim[0] + 63) / 64 * 64;
}

/* [matmul workspace | logits of a block | losses of all tokens] */
static size_t head_workspace(const sl_launch *launch)
{
    return SL_CUDA_GEMM_WORKSPACE + align((size_t) (block_of(launch) * stride_of(launch)) * sizeof(float)) +
           align((size_t) launch->in[0].type.dim[0] * sizeof(float));
}

/* The products of a block over vocabulary columns [first, first + columns). */
typedef struct part {
    int64_t first, columns;
    sl_cuda_gemm logits, dx, dw;
} part;

/* A vocabulary such as GPT-2's 50,257 is no multiple of 8, and products over it run at a sixth of the speed: its last few words
 * are products of their own. Returns how many parts there are. */
static int parts_of(const sl_launch *launch, int64_t rows, bool add_dw, part parts[2])
{
    int64_t d = launch->in[0].type.dim[1], vocabulary = launch->in[1].type.dim[0], even = vocabulary / 8 * 8;
    int32_t dtype = (int32_t) launch->in[0].type.dtype;
    int64_t stride = stride_of(launch), dstride = stride * (int64_t) (sizeof(float) / sl_dtype_bytes((sl_dtype) dtype));
    const int64_t begin[3] = {0, even ? even : vocabulary, vocabulary};
    int count = begin[1] < vocabulary ? 2 : 1;
    for (int i = 0; i < count; i++) {
        int64_t columns = begin[i + 1] - begin[i];
        parts[i] = (part){
            .first = begin[i],
            .columns = columns,
            .logits = {rows, columns, d, d, d, stride, 0, 1, dtype, SL_F32, 0, 0},
            .dx = {rows, d, columns, dstride, d, d, 0, 0, dtype, dtype, 0, i > 0},
            .dw = {columns, d, rows, dstride, d, d, 1, 0, dtype, dtype, 0, add_dw},
        };
    }
    return count;
}

/* Chooses all algorithms a launch will need. */
static void prepare_products(sl_cuda *cuda, const sl_launch *launch, bool backward)
{
    int64_t n = launch->in[0].type.dim[0], block = block_of(launch);
    bool adds = launch->accumulate >> 2 & 1;
    part parts[2];
    for (int tail = 0; tail <= (n % block != 0); tail++)
        for (int add = adds; add <= (adds || n > block); add++) {
            int count = parts_of(launch, tail ? n % block : block, add, parts);
            for (int i = 0; i < count; i++) {
                sl_cuda_gemm_prepare(cuda, &parts[i].logits);
                if (backward)
                    sl_cuda_gemm_prepare(cuda, &parts[i].dx);
                if (backward)
                    sl_cuda_gemm_prepare(cuda, &parts[i].dw);
            }
        }
}

static size_t head_loss_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    prepare_products(cuda, launch, false);
    return head_workspace(launch);
}

static size_t head_loss_bwd_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    prepare_products(cuda, launch, true);
    return head_workspace(launch);
}

static sl_status head(sl_cuda *cuda, const sl_launch *launch, bool backward, cudaStream_t stream)
{
    int64_t n = launch->in[0].type.dim[0], d = launch->in[0].type.dim[1], vocabulary = launch->in[1].type.dim[0],
            block = block_of(launch), stride = stride_of(launch);
    int32_t dtype = (int32_t) launch->in[0].type.dtype, ignore = launch->attrs.head.ignore;
    size_t size = sl_dtype_bytes((sl_dtype) dtype);
    char *space = (char *) launch->workspace;
    float *logits = (float *) (space + SL_CUDA_GEMM_WORKSPACE);
    float *losses = (float *) ((char *) logits + align((size_t) (block * stride) * sizeof(float)));
    const char *w = (const char *) launch->in[1].data;
    char *dx = (char *) launch->out[1].data, *dw = (char *) launch->out[2].data;
    for (int64_t at = 0; at < n; at += block) {
        int64_t rows = n - at < block ? n - at : block;
        const char *x = (const char *) launch->in[0].data + (size_t) (at * d) * size;
        const int32_t *targets = (const int32_t *) launch->in[2].data + at;
        const sl_step_params *step = backward ? (const sl_step_params *) launch->in[3].data : NULL;
        part parts[2];
        int count = parts_of(launch, rows, at > 0 || (launch->accumulate >> 2 & 1), parts);
        for (int i = 0; i < count; i++)
            SL_TRY(sl_cuda_gemm_run(cuda, &parts[i].logits, x, w + (size_t) (parts[i].first * d) * size, NULL, NULL,
                                    logits + parts[i].first, space, stream));
        SL_DISPATCH(dtype, T, {
            if (backward)
                row_kernel<T, true><<<(unsigned) rows, THREADS, 0, stream>>>(logits, targets, step, losses + at,
                                                                             vocabulary, stride, ignore);
            else
                row_kernel<T, false><<<(unsigned) rows, THREADS, 0, stream>>>(logits, targets, step, losses + at,
                                                                              vocabulary, stride, ignore);
        });
        SL_CUDA_LAUNCHED();
        for (int i = 0; i < count && backward; i++) {
            size_t offset = (size_t) (parts[i].first * d) * size;
            const char *dlogits = (const char *) logits + (size_t) parts[i].first * size;
            char *to = dx + (size_t) (at * d) * size;
            if (dx)
                SL_TRY(sl_cuda_gemm_run(cuda, &parts[i].dx, dlogits, w + offset, NULL, to, to, space, stream));
            if (dw)
                SL_TRY(sl_cuda_gemm_run(cuda, &parts[i].dw, dlogits, x, NULL, dw + offset, dw + offset, space, stream));
        }
    }
    total_kernel<<<1, 256, 0, stream>>>(losses, n, (float *) launch->out[0].data, launch->accumulate & 1);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

static sl_status head_loss_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    return head(cuda, launch, false, stream);
}
static sl_status head_loss_bwd_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    return head(cuda, launch, true, stream);
}
extern "C" const sl_cuda_kernel sl_cuda_head_loss = {SL_OP_HEAD_LOSS, NULL, head_loss_workspace, head_loss_run};
extern "C" const sl_cuda_kernel sl_cuda_head_loss_bwd = {SL_OP_HEAD_LOSS_BWD, NULL, head_loss_bwd_workspace,
                                                         head_loss_bwd_run};
