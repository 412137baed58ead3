/*
 * Rotary embedding by a table, and its transpose. A block of threads takes one token; an item is two pieces of W elements, half a block
 * of the head apart. The table's row comes from the cache: it is read by every head of every sample.
 */
#include "device/cuda/kernels/kernel.cuh"
#include "ops/rope_table.h"

static constexpr int THREADS = 192;

struct rope_sizes {
    int heads, kv_heads, dim, block;
    int64_t table_rows;
};

/* FORWARD: from_q is qkv, to_q and to_kv are written. Backward: from_q and from_kv (its own type) are read, to_q is dqkv. */
template <typename T, typename K, int W, bool FORWARD>
__global__ void __launch_bounds__(THREADS)
    rope_table_kernel(const rope_sizes s, const float *__restrict__ table, const T *__restrict__ from_q,
                      const K *__restrict__ from_kv, T *__restrict__ to_q, K *__restrict__ to_kv)
{
    const int64_t row = blockIdx.x;
    const int half = s.block / 2, q_width = s.heads * s.dim, k_width = s.kv_heads * s.dim,
              width = q_width + 2 * k_width;
    const float *cosines = table + row % s.table_rows * 2 * s.dim, *sines = cosines + s.dim;
    from_q += row * (FORWARD ? width : q_width), to_q += row * (FORWARD ? q_width : width);
    from_kv += FORWARD ? 0 : row * 2 * k_width, to_kv += FORWARD ? row * 2 * k_width : 0;
    for (int item = threadIdx.x; item < width / (2 * W); item += THREADS) {
        const int pair = item * W, first = pair / half * s.block + pair % half, c = first % s.dim;
        const bool query = first < q_width, turned = first < q_width + k_width;
        const int kv_first = first - q_width;
        float a[W], b[W];
        if (FORWARD || query) {
            load<W>(from_q + first, a);
            load<W>(from_q + first + half, b);
        } else {
            load<W>(from_kv + kv_first, a);
            load<W>(from_kv + kv_first + half, b);
        }
        if (turned) {
#pragma unroll
            for (int j = 0; j < W; j++) {
                const float sine_a = sines[c + j], sine_b = sines[c + half + j];
                const float x = a[j] * cosines[c + j], y = b[j] * cosines[c + half + j], old = a[j];
                a[j] = fmaf(b[j], FORWARD ? -sine_a : sine_b, x);
                b[j] = fmaf(old, FORWARD ? sine_b : -sine_a, y);
            }
        }
        if (!FORWARD || query) {
            store<W, true>(to_q + first, a);
            store<W, true>(to_q + first + half, b);
        } else {
            store<W, true>(to_kv + kv_first, a);
            store<W, true>(to_kv + kv_first + half, b);
        }
    }
}

/* 16-byte pieces where blocks and addresses allow. */
template <typename T, typename K, bool FORWARD>
static void start(const sl_launch *launch, const sl_operand *table, const void *from_q, const void *from_kv, void *to_q,
                  void *to_kv, cudaStream_t stream)
{
    constexpr int W = 16 / (sizeof(T) < sizeof(K) ? sizeof(K) : sizeof(T));
    const struct sl_rope_table_attrs *a = sl_rope_table_attrs(&launch->attrs);
    const rope_sizes s = {a->heads, a->kv_heads, a->head_dim, a->block, table->type.dim[0]};
    const unsigned rows = (unsigned) launch->in[0].type.dim[0];
    const float *numbers = (const float *) table->data;
    if (a->block / 2 % W == 0 && sl_cuda_aligned(from_q, from_kv, to_q, to_kv))
        rope_table_kernel<T, K, W, FORWARD><<<rows, THREADS, 0, stream>>>(s, numbers, (const T *) from_q,
                                                                          (const K *) from_kv, (T *) to_q, (K *) to_kv);
    else
        rope_table_kernel<T, K, 1, FORWARD><<<rows, THREADS, 0, stream>>>(s, numbers, (const T *) from_q,
                                                                          (const K *) from_kv, (T *) to_q, (K *) to_kv);
}

static sl_status rope_table_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    const sl_operand *in = launch->in, *out = launch->out;
    SL_DISPATCH(in[0].type.dtype, T,
                (start<T, T, true>(launch, &in[1], in[0].data, NULL, out[0].data, out[1].data, stream)));
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

static sl_status rope_table_bwd_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    const sl_operand *in = launch->in, *out = launch->out;
    SL_DISPATCH(in[0].type.dtype, T, {
        SL_DISPATCH(in[1].type.dtype, K,
                    (start<T, K, false>(launch, &in[2], in[0].data, in[1].data, out[0].data, NULL, stream)));
    });
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

extern "C" const sl_cuda_kernel sl_cuda_rope_table = {SL_OP_ROPE_TABLE, NULL, NULL, rope_table_run};
extern "C" const sl_cuda_kernel sl_cuda_rope_table_bwd = {SL_OP_ROPE_TABLE_BWD, NULL, NULL, rope_table_bwd_run};
