/*
 * Attention for every launch that cuDNN does not take (f32, odd head dims): plain and right rather than fast. One warp owns one
 * query (forward, dq) or one key (dk, dv); it walks the other side 32 at a time, a lane per score, with the score matrix never
 * stored. Sums run in a fixed order, so the result is the same on every run.
 */
#include "device/cuda/attention.h"
#include "device/cuda/kernel.cuh"
#include "ops/attention.h"

static constexpr int WARPS = 4;
static constexpr int MOST_EACH = 8; /* columns per lane: head dims up to 256 */

struct shape {
    int64_t n, m, q_offset;
    int64_t width, o_width, kv_width;         /* elements from row to row of q, of o, of k and v; gradients too */
    int heads, kv_heads, e, causal, segments; /* segments: entries of the boundary list */
    float scale;
};

/* Rows of kv that the query at row `at` sees: [first, last). */
__device__ __forceinline__ void visible(const shape &s, const int32_t *bounds, int64_t at, int64_t *first,
                                        int64_t *last)
{
    int low = 0, high = s.segments - 1; /* greatest i with bounds[i] <= at among the first of equals */
    while (low + 1 < high) {
        int mid = (low + high) / 2;
        if (bounds[mid] <= at)
            low = mid;
        else
            high = mid;
    }
    *first = bounds[low];
    *last = s.causal ? at + 1 : bounds[low + 1];
}

template <typename T> __device__ __forceinline__ float dot(const float *a, const T *b, int e)
{
    float sum = 0;
    for (int c = 0; c < e; c++)
        sum = fmaf(a[c], to_f32(b[c]), sum);
    return sum;
}

template <typename T>
__global__ void forward_kernel(shape s, const T *__restrict__ q, const T *__restrict__ kv,
                               const int32_t *__restrict__ bounds, T *__restrict__ o, float *__restrict__ lse)
{
    extern __shared__ float shared[];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, head = blockIdx.y, group = head / (s.heads / s.kv_heads),
        e = s.e;
    int64_t i = (int64_t) blockIdx.x * WARPS + warp, kv_width = s.kv_width;
    if (i >= s.n)
        return;
    float *query = shared + warp * e;
    for (int c = lane; c < e; c += 32)
        query[c] = to_f32(q[i * s.width + (int64_t) head * e + c]);
    __syncwarp();
    int64_t first, last;
    visible(s, bounds, s.q_offset + i, &first, &last);
    float most = -INFINITY, total = 0, acc[MOST_EACH] = {};
    for (int64_t base = first; base < last; base += 32) {
        int64_t j = base + lane;
        float score = j < last ? s.scale * dot(query, kv + j * kv_width + (int64_t) group * e, e) : -INFINITY;
        float top = fmaxf(most, warp_max(score)), p = j < last ? expf(score - top) : 0.0f, fade = expf(most - top);
        total = total * fade + warp_sum(p);
        most = top;
#pragma unroll
        for (int k = 0; k < MOST_EACH; k++)
            acc[k] *= fade;
        int here = (int) (last - base < 32 ? last - base : 32);
        for (int t = 0; t < here; t++) {
            float pt = __shfl_sync(0xffffffffu, p, t);
            const T *v = kv + (base + t) * kv_width + (int64_t) (s.kv_heads + group) * e;
#pragma unroll
            for (int k = 0; k < MOST_EACH; k++)
                if (k * 32 + lane < e)
                    acc[k] = fmaf(pt, to_f32(v[k * 32 + lane]), acc[k]);
        }
    }
#pragma unroll
    for (int k = 0; k < MOST_EACH; k++)
        if (k * 32 + lane < e)
            from_f32(acc[k] / total, &o[i * s.o_width + (int64_t) head * e + k * 32 + lane]);
    if (lane == 0)
        lse[head * s.n + i] = most + logf(total);
}

/* delta[h, i] = sum of do * o over the head's columns. */
template <typename T>
__global__ void delta_kernel(shape s, const T *__restrict__ d_o, const T *__restrict__ o, float *__restrict__ delta)
{
    int lane = threadIdx.x & 31;
    int64_t i = (int64_t) blockIdx.x * WARPS + (threadIdx.x >> 5), at = i * s.o_width + (int64_t) blockIdx.y * s.e;
    if (i >= s.n)
        return;
    float sum = 0;
    for (int c = lane; c < s.e; c += 32)
        sum = fmaf(to_f32(d_o[at + c]), to_f32(o[at + c]), sum);
    sum = warp_sum(sum);
    if (lane == 0)
        delta[blockIdx.y * s.n + i] = sum;
}

template <typename T>
__global__ void dq_kernel(shape s, const T *__restrict__ d_o, const T *__restrict__ q, const T *__restrict__ kv,
                          const float *__restrict__ lse, const float *__restrict__ delta,
                          const int32_t *__restrict__ bounds, T *__restrict__ dq)
{
    extern __shared__ float shared[];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, head = blockIdx.y, group = head / (s.heads / s.kv_heads),
        e = s.e;
    int64_t i = (int64_t) blockIdx.x * WARPS + warp, kv_width = s.kv_width;
    if (i >= s.n)
        return;
    float *query = shared + 2 * warp * e, *grad = query + e;
    for (int c = lane; c < e; c += 32) {
        query[c] = to_f32(q[i * s.width + (int64_t) head * e + c]);
        grad[c] = to_f32(d_o[i * s.o_width + (int64_t) head * e + c]);
    }
    __syncwarp();
    int64_t first, last;
    visible(s, bounds, s.q_offset + i, &first, &last);
    float stats = lse[head * s.n + i], d = delta[head * s.n + i], acc[MOST_EACH] = {};
    for (int64_t base = first; base < last; base += 32) {
        int64_t j = base + lane;
        const T *k = kv + j * kv_width + (int64_t) group * e;
        float ds = 0;
        if (j < last)
            ds = expf(s.scale * dot(query, k, e) - stats) * (dot(grad, k + (int64_t) s.kv_heads * e, e) - d) * s.scale;
        int here = (int) (last - base < 32 ? last - base : 32);
        for (int t = 0; t < here; t++) {
            float dst = __shfl_sync(0xffffffffu, ds, t);
            const T *key = kv + (base + t) * kv_width + (int64_t) group * e;
#pragma unroll
            for (int c = 0; c < MOST_EACH; c++)
                if (c * 32 + lane < e)
                    acc[c] = fmaf(dst, to_f32(key[c * 32 + lane]), acc[c]);
        }
    }
#pragma unroll
    for (int c = 0; c < MOST_EACH; c++)
        if (c * 32 + lane < e)
            from_f32(acc[c], &dq[i * s.width + (int64_t) head * e + c * 32 + lane]);
}

/* One warp per (kv head, key row): all queries of the group's heads that see it, in ascending order. */
template <typename T, typename K>
__global__ void dkv_kernel(shape s, const T *__restrict__ d_o, const T *__restrict__ q, const T *__restrict__ kv,
                           const float *__restrict__ lse, const float *__restrict__ delta,
                           const int32_t *__restrict__ bounds, K *dkv, bool accumulate)
{
    extern __shared__ float shared[];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, group = blockIdx.y, e = s.e, share = s.heads / s.kv_heads;
    int64_t j = (int64_t) blockIdx.x * WARPS + warp, kv_width = s.kv_width;
    if (j >= s.m)
        return;
    float *key = shared + 2 * warp * e, *value = key + e;
    for (int c = lane; c < e; c += 32) {
        key[c] = to_f32(kv[j * kv_width + (int64_t) group * e + c]);
        value[c] = to_f32(kv[j * kv_width + (int64_t) (s.kv_heads + group) * e + c]);
    }
    __syncwarp();
    float dk[MOST_EACH] = {}, dv[MOST_EACH] = {};
    int64_t from, end;
    shape whole = s;
    whole.causal = 0;
    visible(whole, bounds, j, &from, &end); /* the key's segment; a causal key is seen from its own row on */
    int64_t low = (s.causal ? j : from) - s.q_offset, high = end - s.q_offset;
    low = low < 0 ? 0 : low, high = high > s.n ? s.n : high;
    for (int head = group * share; head < (group + 1) * share; head++)
        for (int64_t base = low; base < high; base += 32) {
            int64_t i = base + lane;
            float p = 0, ds = 0;
            if (i < high) {
                p = expf(s.scale * dot(key, q + i * s.width + (int64_t) head * e, e) - lse[head * s.n + i]);
                ds = p * (dot(value, d_o + i * s.o_width + (int64_t) head * e, e) - delta[head * s.n + i]) * s.scale;
            }
            int here = (int) (high - base < 32 ? high - base : 32);
            for (int t = 0; t < here; t++) {
                float pt = __shfl_sync(0xffffffffu, p, t), dst = __shfl_sync(0xffffffffu, ds, t);
                const T *query = q + (base + t) * s.width + (int64_t) head * e;
                const T *grad = d_o + (base + t) * s.o_width + (int64_t) head * e;
#pragma unroll
                for (int c = 0; c < MOST_EACH; c++)
                    if (c * 32 + lane < e) {
                        dk[c] = fmaf(dst, to_f32(query[c * 32 + lane]), dk[c]);
                        dv[c] = fmaf(pt, to_f32(grad[c * 32 + lane]), dv[c]);
                    }
            }
        }
#pragma unroll
    for (int c = 0; c < MOST_EACH; c++)
        if (c * 32 + lane < e) {
            K *k_at = &dkv[j * kv_width + (int64_t) group * e + c * 32 + lane], *v_at = k_at + (int64_t) s.kv_heads * e;
            from_f32(dk[c] + (accumulate ? to_f32(*k_at) : 0.0f), k_at);
            from_f32(dv[c] + (accumulate ? to_f32(*v_at) : 0.0f), v_at);
        }
}

static shape shape_of(const sl_launch *launch, const sl_attention_layout *at, int64_t n, const sl_type *segments)
{
    shape s = {n,
               at->m,
               launch->attrs.attention.q_offset,
               at->q_stride,
               at->o_stride,
               at->kv_stride,
               launch->attrs.attention.heads,
               launch->attrs.attention.kv_heads,
               launch->attrs.attention.head_dim,
               launch->attrs.attention.causal,
               (int) segments->dim[0],
               launch->attrs.attention.scale};
    return s;
}

extern "C" sl_status sl_cuda_attention_plain(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    sl_attention_layout at = sl_attention_places(&launch->attrs, &launch->in[0].type, &launch->in[1].type);
    shape s = shape_of(launch, &at, launch->in[0].type.dim[0], &launch->in[2].type);
    const void *kv = sl_attention_kv(&at, &launch->in[0], &launch->in[1]);
    dim3 grid((unsigned) ((s.n + WARPS - 1) / WARPS), (unsigned) s.heads);
    SL_DISPATCH(launch->in[0].type.dtype, T,
                (forward_kernel<T><<<grid, WARPS * 32, WARPS * s.e * sizeof(float), stream>>>(
                    s, (const T *) launch->in[0].data, (const T *) kv, (const int32_t *) launch->in[2].data,
                    (T *) launch->out[0].data, (float *) launch->out[1].data)));
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

extern "C" size_t sl_cuda_attention_plain_bwd_workspace(const sl_launch *launch)
{
    return (size_t) (launch->in[0].type.dim[0] * launch->attrs.attention.heads) * sizeof(float);
}

extern "C" sl_status sl_cuda_attention_plain_bwd(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    sl_attention_layout at = sl_attention_places(&launch->attrs, &launch->in[1].type, &launch->in[2].type);
    shape s = shape_of(launch, &at, launch->in[1].type.dim[0], &launch->in[5].type);
    void *dkv = sl_attention_kv(&at, &launch->out[0], &launch->out[1]);
    float *delta = (float *) launch->workspace;
    const float *lse = (const float *) launch->in[4].data;
    const int32_t *bounds = (const int32_t *) launch->in[5].data;
    dim3 grid((unsigned) ((s.n + WARPS - 1) / WARPS), (unsigned) s.heads),
        keys((unsigned) ((s.m + WARPS - 1) / WARPS), (unsigned) s.kv_heads);
    size_t shared = 2 * WARPS * s.e * sizeof(float);
    SL_DISPATCH(launch->in[0].type.dtype, T, {
        const T *d_o = (const T *) launch->in[0].data;
        const T *q = (const T *) launch->in[1].data;
        const T *kv = (const T *) sl_attention_kv(&at, &launch->in[1], &launch->in[2]);
        delta_kernel<T><<<grid, WARPS * 32, 0, stream>>>(s, d_o, (const T *) launch->in[3].data, delta);
        dq_kernel<T>
            <<<grid, WARPS * 32, shared, stream>>>(s, d_o, q, kv, lse, delta, bounds, (T *) launch->out[0].data);
        SL_DISPATCH(launch->out[at.kv_first ? 0 : 1].type.dtype, K,
                    (dkv_kernel<T, K><<<keys, WARPS * 32, shared, stream>>>(s, d_o, q, kv, lse, delta, bounds,
                                                                            (K *) dkv, launch->accumulate >> 1 & 1)));
    });
    SL_CUDA_LAUNCHED();
    return SL_OK;
}
