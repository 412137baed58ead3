/*
 * What only generation runs: attention over a cache of K/V, and the logits of one token. Both read far more than they compute, so what
 * counts is that every byte of the cache, or of the head, is read once, by accesses of up to 16 bytes.
 *
 * Attention. The new rows are copied into the cache first. Then a block takes the query heads of one K/V head (as many as fit registers), one
 * query, and, where there are few queries, SPLIT rows of the cache: one token alone would keep 8 blocks busy. A warp takes every
 * fourth row; its lanes share the elements of a head:
 *
 *     lane l holds  q[l*E .. l*E+E)  of each head      s = sum over lanes of q k      m, sum, o  as in an online softmax
 *
 * A warp's result, a block's warps and the splits are combined in a fixed order, and a split begins at a multiple of SPLIT rows, so
 * the bits depend on positions alone and not on how long the cache is.
 *
 * The logits take a warp for two words.
 */
#include "device/cuda/gemm/row_dots.cuh"
#include "ops/attention.h"
#include "ops/cached_attention.h"
#include "ops/head_logits.h"

static constexpr int WARPS = 4, SPLIT = 256;
static constexpr int FEW_QUERIES = 8; /* up to so many the cache is split */

/* ---- attention over a cache ---- */

struct cache_params {
    int heads, kv_heads, head_dim, splits;
    int64_t n, window;
    float scale, cap;
};

/* Rows that are tokens join the cache; the o of others is 0. */
template <typename T>
__global__ void __launch_bounds__(128)
    append_kernel(const T *__restrict__ kv, const int32_t *__restrict__ positions, T *__restrict__ cache,
                  T *__restrict__ o, int64_t n, int64_t kv_width, int64_t o_width)
{
    const int64_t row = blockIdx.x, first = positions[0], count = sl_cached_count(positions, n);
    if (row < count)
        for (int64_t c = threadIdx.x; c < kv_width; c += blockDim.x)
            cache[(first + row) * kv_width + c] = kv[row * kv_width + c];
    else
        for (int64_t c = threadIdx.x; c < o_width; c += blockDim.x)
            from_f32(0.0f, &o[row * o_width + c]);
}

/* E elements of a head from `c` on; 0 beyond its end. WHOLE: a head has 32 E elements and lies at a multiple of 16 bytes. */
template <int E, bool WHOLE, typename T>
__device__ __forceinline__ void load_head(const T *from, int c, int dim, float (&to)[E])
{
    if constexpr (WHOLE) {
        load<E>(from + c, to);
    } else {
#pragma unroll
        for (int i = 0; i < E; i++)
            to[i] = c + i < dim ? to_f32(from[c + i]) : 0.0f;
    }
}

/* The largest score, the sum of exponentials and the weighted sum of values of some rows: merged as online softmax does. */
__device__ __forceinline__ float rescale(float largest, float of)
{
    return of == -INFINITY ? 0.0f : exp2f(of - largest);
}

/* partials[(query * heads + head) * splits + split]: o[head_dim], largest score in units of log 2, sum. */
template <typename T, int E, int G, bool WHOLE>
__global__ void __launch_bounds__(32 * WARPS)
    cached_attention_kernel(const __grid_constant__ cache_params p, const T *__restrict__ q,
                            const T *__restrict__ cache, const int32_t *__restrict__ positions,
                            float *__restrict__ partials)
{
    extern __shared__ float shared[]; /* [WARPS][G][head_dim + 2] */
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, e = p.head_dim, c = lane * E;
    const int64_t query = blockIdx.z;
    const int head = blockIdx.y * G, kv_head = head / (p.heads / p.kv_heads), width = 2 * p.kv_heads * e;
    const int64_t position = positions[0] + query;
    if (query >= sl_cached_count(positions, p.n))
        return;
    const int64_t seen = p.window > 0 && position >= p.window ? position - p.window + 1 : 0;
    const int64_t from = p.splits > 1 ? max(seen, (int64_t) blockIdx.x * SPLIT) : seen;
    const int64_t to = p.splits > 1 ? min(position + 1, ((int64_t) blockIdx.x + 1) * SPLIT) : position + 1;
    if (from >= to)
        return;
    float qs[G][E], o[G][E], largest[G], sum[G];
#pragma unroll
    for (int g = 0; g < G; g++) {
        load_head<E, WHOLE>(q + (query * p.heads + head + g) * e, c, e, qs[g]);
        largest[g] = -INFINITY, sum[g] = 0.0f;
#pragma unroll
        for (int i = 0; i < E; i++)
            o[g][i] = 0.0f;
    }
    for (int64_t row = from + warp; row < to; row += WARPS) {
        const T *k_row = cache + row * width + kv_head * e, *v_row = k_row + p.kv_heads * e;
        float k[E], v[E];
        load_head<E, WHOLE>(k_row, c, e, k);
        load_head<E, WHOLE>(v_row, c, e, v);
#pragma unroll
        for (int g = 0; g < G; g++) {
            float s = 0.0f;
#pragma unroll
            for (int i = 0; i < E; i++)
                s = fmaf(qs[g][i], k[i], s);
            s = warp_sum(s) * p.scale;
            s = (p.cap > 0 ? p.cap * tanhf(s / p.cap) : s) * LOG2_E;
            const float more = fmaxf(largest[g], s), old = rescale(more, largest[g]), weight = exp2f(s - more);
            largest[g] = more;
            sum[g] = fmaf(sum[g], old, weight);
#pragma unroll
            for (int i = 0; i < E; i++)
                o[g][i] = fmaf(o[g][i], old, weight * v[i]);
        }
    }
#pragma unroll
    for (int g = 0; g < G; g++) {
        float *mine = shared + (warp * G + g) * (e + 2);
#pragma unroll
        for (int i = 0; i < E; i++)
            if (c + i < e)
                mine[c + i] = o[g][i];
        if (lane == 0)
            mine[e] = largest[g], mine[e + 1] = sum[g];
    }
    __syncthreads();
    for (int item = threadIdx.x; item < G * (e + 2); item += blockDim.x) {
        const int g = item / (e + 2), i = item - g * (e + 2);
        float all = -INFINITY, value = 0.0f;
        for (int w = 0; w < WARPS; w++)
            all = fmaxf(all, shared[(w * G + g) * (e + 2) + e]);
        for (int w = 0; w < WARPS; w++) {
            const float *of = shared + (w * G + g) * (e + 2);
            value = fmaf(i == e ? 0.0f : of[i], rescale(all, of[e]), value);
        }
        partials[((query * p.heads + head + g) * p.splits + blockIdx.x) * (e + 2) + i] = i == e ? all : value;
    }
}

/* The splits of a query's head, in order. */
template <typename T>
__global__ void __launch_bounds__(128)
    combine_kernel(const __grid_constant__ cache_params p, const int32_t *__restrict__ positions,
                   const float *__restrict__ partials, T *__restrict__ o)
{
    const int e = p.head_dim, head = blockIdx.x;
    const int64_t query = blockIdx.y, position = positions[0] + query;
    if (query >= sl_cached_count(positions, p.n))
        return;
    const int64_t seen = p.window > 0 && position >= p.window ? position - p.window + 1 : 0;
    const int first = p.splits > 1 ? (int) (seen / SPLIT) : 0, last = p.splits > 1 ? (int) (position / SPLIT) : 0;
    const float *of = partials + (query * p.heads + head) * p.splits * (e + 2);
    float largest = -INFINITY, sum = 0.0f;
    for (int s = first; s <= last; s++)
        largest = fmaxf(largest, of[s * (e + 2) + e]);
    for (int s = first; s <= last; s++)
        sum = fmaf(of[s * (e + 2) + e + 1], rescale(largest, of[s * (e + 2) + e]), sum);
    for (int c = threadIdx.x; c < e; c += blockDim.x) {
        float value = 0.0f;
        for (int s = first; s <= last; s++)
            value = fmaf(of[s * (e + 2) + c], rescale(largest, of[s * (e + 2) + e]), value);
        from_f32(value / sum, &o[(query * p.heads + head) * e + c]);
    }
}

static cache_params params_of(const sl_launch *launch)
{
    const struct sl_cached_attention_attrs *a = sl_cached_attention_attrs(&launch->attrs);
    const int64_t n = launch->in[0].type.dim[0];
    cache_params p = {a->heads, a->kv_heads, a->head_dim, 1, n, a->window, a->scale, a->cap};
    if (n <= FEW_QUERIES)
        p.splits = (int) ((a->rows + SPLIT - 1) / SPLIT);
    return p;
}

template <typename T, int E, int G, bool WHOLE>
static void attend(const cache_params &p, const sl_launch *launch, cudaStream_t stream)
{
    const dim3 grid((unsigned) p.splits, (unsigned) (p.heads / G), (unsigned) p.n);
    const size_t shared = (size_t) WARPS * G * (p.head_dim + 2) * sizeof(float);
    cached_attention_kernel<T, E, G, WHOLE>
        <<<grid, 32 * WARPS, shared, stream>>>(p, (const T *) launch->in[0].data, (const T *) launch->out[1].data,
                                               (const int32_t *) launch->in[2].data, (float *) launch->workspace);
}

/* As many heads of a group at once as registers hold. */
template <typename T, int E, bool WHOLE>
static void attend_groups(const cache_params &p, const sl_launch *launch, cudaStream_t stream)
{
    const int group = p.heads / p.kv_heads;
    if (E <= 4 && group % 8 == 0)
        attend<T, E, E <= 4 ? 8 : 1, WHOLE>(p, launch, stream);
    else if (E <= 8 && group % 4 == 0)
        attend<T, E, E <= 8 ? 4 : 1, WHOLE>(p, launch, stream);
    else if (group % 2 == 0)
        attend<T, E, 2, WHOLE>(p, launch, stream);
    else
        attend<T, E, 1, WHOLE>(p, launch, stream);
}

template <typename T> static void attend_heads(const cache_params &p, const sl_launch *launch, cudaStream_t stream)
{
    const int e = p.head_dim;
    const bool aligned = sl_cuda_aligned(launch->in[0].data, launch->out[1].data);
    if (e == 64 && aligned)
        attend_groups<T, 2, true>(p, launch, stream);
    else if (e == 128 && aligned)
        attend_groups<T, 4, true>(p, launch, stream);
    else if (e == 256 && aligned)
        attend_groups<T, 8, true>(p, launch, stream);
    else if (e <= 128)
        attend_groups<T, 4, false>(p, launch, stream);
    else
        attend_groups<T, 16, false>(p, launch, stream);
}

static size_t cached_attention_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    const cache_params p = params_of(launch);
    return (size_t) p.n * p.heads * p.splits * (p.head_dim + 2) * sizeof(float);
}

static sl_status cached_attention_supports(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    const int e = sl_cached_attention_attrs(&launch->attrs)->head_dim;
    const int64_t n = launch->in[0].type.dim[0];
    if (e > SL_ATTENTION_MAX_HEAD_DIM || n > 65535)
        return sl_cuda_fail(SL_E_UNSUPPORTED,
                            "cached_attention on CUDA takes head dims up to %d and 65535 queries, not "
                            "%d and %lld",
                            SL_ATTENTION_MAX_HEAD_DIM, e, (long long) n);
    return SL_OK;
}

static sl_status cached_attention_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    const cache_params p = params_of(launch);
    const int32_t *positions = (const int32_t *) launch->in[2].data;
    SL_DISPATCH(launch->in[0].type.dtype, T, {
        append_kernel<T><<<(unsigned) p.n, 128, 0, stream>>>((const T *) launch->in[1].data, positions,
                                                             (T *) launch->out[1].data, (T *) launch->out[0].data, p.n,
                                                             launch->in[1].type.dim[1], launch->out[0].type.dim[1]);
        attend_heads<T>(p, launch, stream);
        combine_kernel<T><<<dim3((unsigned) p.heads, (unsigned) p.n), 128, 0, stream>>>(
            p, positions, (const float *) launch->workspace, (T *) launch->out[0].data);
    });
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

/* ---- the logits of one token ---- */

static constexpr int LOGIT_WARPS = 8, LOGIT_ROWS = 2;

template <typename T, int W>
__global__ void __launch_bounds__(32 * LOGIT_WARPS)
    head_logits_kernel(const T *__restrict__ x, const T *__restrict__ w, const int32_t *__restrict__ positions,
                       float *__restrict__ logits, int64_t n, int64_t d, int64_t words, float cap)
{
    const int lane = threadIdx.x & 31;
    const T *token = x + (sl_cached_count(positions, n) - 1) * d;
    for (int64_t first = ((int64_t) blockIdx.x * LOGIT_WARPS + threadIdx.x / 32) * LOGIT_ROWS; first < words;
         first += (int64_t) gridDim.x * LOGIT_WARPS * LOGIT_ROWS) {
        const T *rows[LOGIT_ROWS];
        float sums[LOGIT_ROWS];
#pragma unroll
        for (int r = 0; r < LOGIT_ROWS; r++)
            rows[r] = w + (first + r < words ? first + r : words - 1) * d;
        row_dots<W>(rows, token, d, sums);
#pragma unroll
        for (int r = 0; r < LOGIT_ROWS; r++)
            if (lane == r && first + r < words)
                logits[first + r] = cap > 0 ? cap * tanhf(sums[r] / cap) : sums[r];
    }
}

template <typename T, int W> static void logits_launch(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    const sl_type *x = &launch->in[0].type, *w = &launch->in[1].type;
    const int blocks = sl_cuda_blocks(cuda, w->dim[0], LOGIT_WARPS * LOGIT_ROWS);
    head_logits_kernel<T, W><<<blocks, 32 * LOGIT_WARPS, 0, stream>>>(
        (const T *) launch->in[0].data, (const T *) launch->in[1].data, (const int32_t *) launch->in[2].data,
        (float *) launch->out[0].data, x->dim[0], w->dim[1], w->dim[0], sl_head_logits_attrs(&launch->attrs)->cap);
}

static sl_status head_logits_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    SL_DISPATCH(launch->in[0].type.dtype, T, {
        constexpr int W = 16 / sizeof(T);
        if (launch->in[1].type.dim[1] % W == 0 && sl_cuda_aligned(launch->in[0].data, launch->in[1].data))
            logits_launch<T, W>(cuda, launch, stream);
        else
            logits_launch<T, 1>(cuda, launch, stream);
    });
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

extern "C" const sl_cuda_kernel sl_cuda_cached_attention = {SL_OP_CACHED_ATTENTION, cached_attention_supports,
                                                            cached_attention_workspace, cached_attention_run};
extern "C" const sl_cuda_kernel sl_cuda_head_logits = {SL_OP_HEAD_LOGITS, NULL, NULL, head_logits_run};
