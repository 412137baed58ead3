/*
 * Rotary embedding and the split of qkv, and its transpose. A block takes one token: it makes the token's sines and cosines once in
 * shared memory (angle reduced in f64: at position one million an f32 angle is off by .06 radians), then turns all heads.
 * The frequencies come from the host, the same ones the reference uses.
 */
#include "device/cuda/kernels/kernel.cuh"
#include "ops/rope.h"

static constexpr int MOST_PAIRS = 128;

struct rope_params {
    double frequency[MOST_PAIRS]; /* by pair; unused for style NONE */
    int heads, kv_heads, head_dim, style, rotary;
    float magnitude;
};

static rope_params params_of(const sl_launch *launch)
{
    const sl_attrs *attrs = &launch->attrs;
    rope_params p = {{0},
                     sl_rope_attrs(attrs)->heads,
                     sl_rope_attrs(attrs)->kv_heads,
                     sl_rope_attrs(attrs)->head_dim,
                     sl_rope_attrs(attrs)->style,
                     sl_rope_rotary(attrs),
                     sl_rope_magnitude(attrs)};
    for (int j = 0; p.style != SL_ROPE_NONE && j < p.rotary / 2; j++)
        p.frequency[j] = sl_rope_frequency(attrs, launch->constants, j);
    return p;
}

__device__ __forceinline__ void turn(float a, float b, float c, float s, float *x, float *y)
{
    *x = fmaf(a, c, -b * s);
    *y = fmaf(b, c, a * s);
}

/* FORWARD: from = qkv, to_q and to_kv written. Backward: from_q and from_kv (its own type) read, qkv written, angle negated.
 * An item is W pairs: two pieces of W elements, half of the turned elements apart for style HALF, neighbours when pairs are interleaved
 * or not turned at all. */
template <typename T, typename K, int W, bool FORWARD>
__global__ void rope_kernel(const __grid_constant__ rope_params p, const int32_t *positions, const T *from_q,
                            const K *from_kv, T *to_q, K *to_kv)
{
    __shared__ float cosine[MOST_PAIRS], sine[MOST_PAIRS];
    int64_t row = blockIdx.x;
    int e = p.head_dim, pairs = e / 2, turns = p.rotary / 2, q_width = p.heads * e, k_width = p.kv_heads * e,
        width = q_width + 2 * k_width;
    if (p.style != SL_ROPE_NONE) {
        for (int j = threadIdx.x; j < turns; j += blockDim.x) {
            double angle = positions[row] * p.frequency[j];
            angle -= SL_TWO_PI * rint(angle / SL_TWO_PI);
            sincosf((float) (FORWARD ? angle : -angle), &sine[j], &cosine[j]);
            sine[j] *= p.magnitude;
            cosine[j] *= p.magnitude;
        }
        __syncthreads();
    }
    /* V and style NONE are copied the same way, without a turn. */
    const T *q_from = from_q + row * (FORWARD ? width : q_width);
    T *q_to = to_q + row * (FORWARD ? q_width : width);
    for (int item = threadIdx.x; item < width / (2 * W); item += blockDim.x) {
        int head = item / (pairs / W), j = (item - head * (pairs / W)) * W;
        bool turned = p.style != SL_ROPE_NONE && head < p.heads + p.kv_heads && j < turns;
        bool half = p.style == SL_ROPE_HALF && j < turns;
        int first = head * e + (half ? j : 2 * j), second = half ? first + turns : first + W;
        bool query = first < q_width;
        float a[W], b[W], x[W], y[W];
        if (FORWARD || query) {
            load<W>(q_from + first, a);
            load<W>(q_from + second, b);
        } else {
            load<W>(from_kv + row * 2 * k_width + first - q_width, a);
            load<W>(from_kv + row * 2 * k_width + second - q_width, b);
        }
#pragma unroll
        for (int k = 0; k < W; k++) {
            if (!turned)
                x[k] = a[k], y[k] = b[k];
            else if (half || W == 1)
                turn(a[k], b[k], cosine[j + k], sine[j + k], &x[k], &y[k]);
            else if (k % 2 == 0) {
                turn(a[k], a[(k + 1) % W], cosine[j + k / 2], sine[j + k / 2], &x[k], &x[(k + 1) % W]);
                turn(b[k], b[(k + 1) % W], cosine[j + (W + k) / 2], sine[j + (W + k) / 2], &y[k], &y[(k + 1) % W]);
            }
        }
        if (!FORWARD || query) {
            store<W, true>(q_to + first, x);
            store<W, true>(q_to + second, y);
        } else {
            store<W, true>(to_kv + row * 2 * k_width + first - q_width, x);
            store<W, true>(to_kv + row * 2 * k_width + second - q_width, y);
        }
    }
}

static sl_status rope_supports(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    int e = sl_rope_attrs(&launch->attrs)->head_dim;
    if (e % 2 || e / 2 > MOST_PAIRS)
        return sl_cuda_fail(SL_E_UNSUPPORTED, "rope on CUDA takes even head dims up to %d, not %d", 2 * MOST_PAIRS, e);
    return SL_OK;
}

/* 16-byte pieces where heads and addresses allow. */
template <typename T, typename K, bool FORWARD>
static void rope_launch(const sl_launch *launch, const void *positions, const void *from_q, const void *from_kv,
                        void *to_q, void *to_kv, cudaStream_t stream)
{
    constexpr int W = 16 / (sizeof(T) < sizeof(K) ? sizeof(K) : sizeof(T));
    rope_params p = params_of(launch);
    unsigned rows = (unsigned) launch->in[0].type.dim[0];
    bool wide = p.head_dim / 2 % W == 0 && p.rotary / 2 % W == 0 && sl_cuda_aligned(from_q, from_kv, to_q, to_kv);
    if (wide)
        rope_kernel<T, K, W, FORWARD><<<rows, 192, 0, stream>>>(p, (const int32_t *) positions, (const T *) from_q,
                                                                (const K *) from_kv, (T *) to_q, (K *) to_kv);
    else
        rope_kernel<T, K, 1, FORWARD><<<rows, 256, 0, stream>>>(p, (const int32_t *) positions, (const T *) from_q,
                                                                (const K *) from_kv, (T *) to_q, (K *) to_kv);
}

static sl_status rope_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    const sl_operand *in = launch->in, *out = launch->out;
    SL_DISPATCH(in[0].type.dtype, T,
                (rope_launch<T, T, true>(launch, in[1].data, in[0].data, NULL, out[0].data, out[1].data, stream)));
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

static sl_status rope_bwd_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    const sl_operand *in = launch->in, *out = launch->out;
    SL_DISPATCH(in[0].type.dtype, T, {
        SL_DISPATCH(in[1].type.dtype, K,
                    (rope_launch<T, K, false>(launch, in[2].data, in[0].data, in[1].data, out[0].data, NULL, stream)));
    });
    SL_CUDA_LAUNCHED();
    return SL_OK;
}
extern "C" const sl_cuda_kernel sl_cuda_rope = {SL_OP_ROPE, rope_supports, NULL, rope_run};
extern "C" const sl_cuda_kernel sl_cuda_rope_bwd = {SL_OP_ROPE_BWD, rope_supports, NULL, rope_bwd_run};
