/*
 * Attention's backward on Hopper, deterministic without writing scores to memory.
 *
 * A block is there for as long as there is work, in items of 128 keys of a K/V head: it goes over the queries that see them, for each
 * query head of the group, the last queries first. Two warpgroups, 64 keys each, over tiles of M queries (128 for heads of 64,
 * 64 for heads of 128):
 *
 *     S^T = K Q^T     P^T = exp2(S^T scale - lse)      dV += P^T dO     P and dS as registers have them
 *     dP^T = V dO^T   dS^T = P^T (dP^T - delta)        dK += dS^T Q
 *                                                      dQ  = dS K       over the keys of both: dS goes through shared memory
 *
 * In the tensor cores' queue a product of another kind stands behind each one that is waited for: dP and the next part's S while P
 * is made, dV while dS is, dK while dQ is put down.
 *
 * dQ of a tile is a sum over items. Each adds its 32 KiB in f32 by one bulk reduction, when a counter says that the items of
 * all keys before have: the order of the sum is fixed. All walk the same way, so one follows the other at the distance of an addition;
 * and nobody waits but for items with lower numbers, which were begun earlier. The f32 tiles lie as the registers did; a last
 * kernel turns them into rows of bf16.
 *
 * Warps: 0-7 multiply; 8 takes items and fetches; 9 and 10 add dQ, every other tile each, as an addition and its turn take longer
 * than a tile.
 */
#include "device/cuda/attention_hopper.h"
#include "device/cuda/attention_hopper_multiply.cuh"
#include "ops/attention.h"

using namespace attention_hopper;

template <int D> static __global__ void __launch_bounds__(THREADS, 1) bwd_kernel(const __grid_constant__ backward a)
{
    using T = tile<D>;
    extern __shared__ __align__(1024) unsigned char base[];
    const signals on(base + T::BARRIERS);
    if (threadIdx.x == 0)
        on.init();
    __syncthreads();
    /* 168 registers a thread at the start; 24 * 128 + 240 * 256 are as many. */
    if (threadIdx.x < MULTIPLIERS) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        multiply<D>(a, base, on);
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        const int warp = threadIdx.x / 32 - WARPS;
        if (threadIdx.x % 32 == 0 && warp == 0)
            fetch<D>(a, shared_address(base), on);
        else if (threadIdx.x % 32 == 0 && warp <= 2)
            add_dq<D>(a, warp - 1, shared_address(base), on);
    }
}

/* ---- before and after ---- */

/* What goes with each tile of queries, and zeros for its turns. Queries past the last get what makes P zero. D / 8 lanes per query, so
 * 1024 threads per tile of a head: blocks are full. */
template <int D>
static __global__ void stats_kernel(const bf16 *__restrict__ d_o, const bf16 *__restrict__ o,
                                    const float *__restrict__ lse, int64_t o_stride, const __grid_constant__ backward a)
{
    constexpr int LANES = D / 8, M = tile<D>::M;
    const int64_t i = ((int64_t) blockIdx.x * blockDim.x + threadIdx.x) / LANES, rows = (int64_t) a.tiles * M;
    const int head = (int) (i % a.heads), lane = threadIdx.x % LANES;
    const int64_t row = i / a.heads % rows, b = i / a.heads / rows;
    float sum = 0;
    if (row < a.q_rows) {
        const int64_t at = (b * a.q_rows + row) * o_stride + head * D + 8 * lane;
        const raw<bf16, 8> x = load_raw<8>(d_o + at), y = load_raw<8>(o + at);
#pragma unroll
        for (int c = 0; c < 8; c++)
            sum = fmaf(x[c], y[c], sum);
    }
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (lane == 0) {
        const int64_t place = (b * a.heads + head) * a.tiles + row / M, all = (int64_t) a.batch * a.q_rows;
        float *to = a.stats + place * (2 * M) + row % M;
        to[0] = row < a.q_rows ? lse[head * all + b * a.q_rows + row] * LOG2_E : INFINITY;
        to[M] = sum;
        if (row % M == 0)
            a.turns[place] = 0;
        if (i == 0)
            *a.next = 0;
    }
}

/* Sums as the registers had them to rows of bf16, a tile per block. */
template <int D> static __global__ void dq_kernel(const __grid_constant__ backward a)
{
    constexpr int M = tile<D>::M;
    const int m = blockIdx.x % a.tiles, head = blockIdx.x / a.tiles % a.heads, b = blockIdx.x / a.tiles / a.heads;
    const float4 *from = (const float4 *) (a.dq_sums + (int64_t) blockIdx.x * (M * D));
    for (int i = threadIdx.x; i < M * D / 4; i += blockDim.x) {
        const int thread = i % 128, v = i / 128 % 8, side = i / 1024;
        const int row = m * M + (D == 64 ? 64 * side : 0) + thread / 32 * 16 + thread % 32 / 4;
        const int column = (D == 64 ? 0 : 64 * side) + 8 * v + 2 * (thread & 3);
        const float4 x = from[i];
        bf16 *to = a.dq + ((int64_t) b * a.q_rows + row) * a.dq_stride + head * D + column;
        if (row < a.q_rows)
            put_pair(to, x.x * a.scale, x.y * a.scale);
        if (row + 8 < a.q_rows)
            put_pair(to + 8 * a.dq_stride, x.z * a.scale, x.w * a.scale);
    }
}

/* ---- host ---- */

typedef decltype(&cuTensorMapEncodeTiled) encode_tensor_map;

/* The driver's, which the plugin is not linked with. */
static encode_tensor_map find_encode(void)
{
    void *found = NULL;
    cudaDriverEntryPointQueryResult result;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result) !=
        cudaSuccess)
        return NULL;
    return result == cudaDriverEntryPointSuccess ? (encode_tensor_map) found : NULL;
}

static sl_status map_rows(encode_tensor_map encode, CUtensorMap *map, void *data, int64_t columns, int64_t stride,
                          int64_t rows, int64_t batch, int box_rows)
{
    const cuuint64_t size[] = {(cuuint64_t) columns, (cuuint64_t) rows, (cuuint64_t) batch};
    const cuuint64_t strides[] = {(cuuint64_t) stride * 2, (cuuint64_t) (stride * rows) * 2};
    const cuuint32_t box[] = {64, (cuuint32_t) box_rows, 1}, steps[] = {1, 1, 1};
    CUresult result = encode ? encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, data, size, strides, box, steps,
                                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
                             : CUDA_ERROR_NOT_FOUND;
    if (result != CUDA_SUCCESS)
        return sl_cuda_fail(SL_E_DEVICE, "cuTensorMapEncodeTiled: error %d for %lld rows of %lld", (int) result,
                            (long long) rows, (long long) columns);
    return SL_OK;
}

extern "C" bool sl_attention_hopper_takes(sl_cuda *cuda, const sl_graph_shape *shape)
{
    return sl_cuda_get_info(cuda)->capability == 90 && (shape->head_dim == 64 || shape->head_dim == 128) &&
           find_encode();
}

/* [sums of dQ | stats | turns, next] */
template <int D> static size_t carve(const sl_graph_shape *s, char *workspace, backward *a)
{
    const size_t tiles = (size_t) (s->batch * s->heads * SL_DIV_UP(s->q_rows, (int64_t) tile<D>::M));
    const size_t sums = sl_cuda_align(tiles * tile<D>::DQ_BYTES), stats = sl_cuda_align(tiles * tile<D>::STATS_BYTES);
    a->dq_sums = (float *) workspace;
    a->stats = (float *) (workspace + sums);
    a->turns = (int *) (workspace + sums + stats);
    a->next = a->turns + tiles;
    return sums + stats + sl_cuda_align((tiles + 1) * sizeof(int));
}

extern "C" size_t sl_attention_hopper_workspace(const sl_graph_shape *s)
{
    backward a;
    return s->head_dim == 64 ? carve<64>(s, NULL, &a) : carve<128>(s, NULL, &a);
}

/* How many heads' items take turns. Few heads leave what they walk over in the L2 cache, and the GPU, which its power limits, has more left
 * for arithmetic. But with few, many items of one head run at a time, each an addition behind the one before it. Where most keys lie
 * before the queries, items are equally long and go on as they began; else every set of heads begins and ends with that delay, and
 * needs enough items to hide the longest of them. */
static int heads_together(sl_cuda *cuda, const sl_graph_shape *s, int pieces)
{
    const sl_cuda_info *info = sl_cuda_get_info(cuda);
    const bool alike = !s->causal || s->kv_rows > 2 * s->q_rows;
    const int64_t head_bytes = s->q_rows * (s->heads / s->kv_heads) * s->head_dim * 8; /* Q, dO, and dQ in f32 */
    const int64_t heads = s->batch * s->kv_heads, cached = SL_MAX((int64_t) info->l2_bytes * 2 / 3 / head_bytes, 1);
    const int64_t least = alike ? 1 : SL_MAX(info->multiprocessors / 8, SL_DIV_UP(2 * info->multiprocessors, pieces));
    const int64_t sets = SL_DIV_UP(heads, SL_MIN(heads, SL_MAX(cached, least)));
    return (int) SL_DIV_UP(heads, sets);
}

template <int D>
static sl_status run(sl_cuda *cuda, const sl_graph_shape *s, const sl_launch *launch, cudaStream_t stream)
{
    using T = tile<D>;
    const sl_attention_layout at = sl_attention_places(&launch->attrs, &launch->in[1].type, &launch->in[2].type);
    const int64_t q_columns = (int64_t) s->heads * D, kv_columns = (int64_t) s->kv_heads * D;
    const sl_operand *dkv = launch->out[1].type.rank ? &launch->out[1] : &launch->out[0];
    bf16 *k = (bf16 *) sl_attention_kv(&at, &launch->in[1], &launch->in[2]);
    char *dk = (char *) sl_attention_kv(&at, &launch->out[0], &launch->out[1]);
    const encode_tensor_map encode = find_encode();
    backward a = {};
    carve<D>(s, (char *) launch->workspace, &a);
    SL_TRY(map_rows(encode, &a.q, launch->in[1].data, q_columns, s->width, s->q_rows, s->batch, T::M));
    SL_TRY(map_rows(encode, &a.d_o, launch->in[0].data, q_columns, s->o_width, s->q_rows, s->batch, T::M));
    SL_TRY(map_rows(encode, &a.k, k, kv_columns, s->kv_width, s->kv_rows, s->batch, N));
    SL_TRY(map_rows(encode, &a.v, k + kv_columns, kv_columns, s->kv_width, s->kv_rows, s->batch, N));
    a.dq = (bf16 *) launch->out[0].data;
    a.dk = dk, a.dv = dk + (size_t) kv_columns * sl_dtype_bytes(dkv->type.dtype);
    a.dq_stride = s->width, a.dkv_stride = s->kv_width;
    a.batch = (int) s->batch, a.heads = s->heads, a.kv_heads = s->kv_heads;
    a.q_rows = (int) s->q_rows, a.kv_rows = (int) s->kv_rows;
    a.tiles = (int) SL_DIV_UP(s->q_rows, (int64_t) T::M), a.pieces = (int) SL_DIV_UP(s->kv_rows, (int64_t) N);
    a.causal = s->causal, a.scale = launch->attrs.attention.scale;
    a.wide = dkv->type.dtype == SL_F32, a.accumulate = dkv == &launch->out[1] && (launch->accumulate >> 1 & 1);
    const int heads = a.batch * a.kv_heads, processors = sl_cuda_get_info(cuda)->multiprocessors;
    a.items = heads * a.pieces;
    a.together = heads_together(cuda, s, a.pieces);

    const int all_tiles = a.batch * a.heads * a.tiles;
    const int64_t stats_threads = (int64_t) all_tiles * T::M * (D / 8);
    SL_CUDA(cudaFuncSetAttribute(bwd_kernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, T::BYTES));
    stats_kernel<D><<<(unsigned) (stats_threads / 256), 256, 0, stream>>>(
        (const bf16 *) launch->in[0].data, (const bf16 *) launch->in[3].data, (const float *) launch->in[4].data,
        s->o_width, a);
    bwd_kernel<D><<<(unsigned) SL_MIN(a.items, processors), THREADS, T::BYTES, stream>>>(a);
    dq_kernel<D><<<(unsigned) all_tiles, 256, 0, stream>>>(a);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

extern "C" sl_status sl_attention_hopper_bwd(sl_cuda *cuda, const sl_graph_shape *shape, const sl_launch *launch,
                                             cudaStream_t stream)
{
    return shape->head_dim == 64 ? run<64>(cuda, shape, launch, stream) : run<128>(cuda, shape, launch, stream);
}
