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
 * dQ of a tile is begun behind S of the next one: nobody waits for the other warpgroup's dS, and the two drift apart until one's
 * products run while the other makes P or dS.
 *
 * dQ of a tile is a sum over items. Each adds its 32 KiB in f32 by one bulk reduction, when a counter says that the items of
 * all keys before have: the order of the sum is fixed. All walk the same way, so one follows the other at the distance of an addition;
 * and nobody waits but for items with lower numbers, which were begun earlier. The f32 tiles lie as the registers did; a last
 * kernel turns them into rows of bf16.
 *
 * Documents: which tiles of queries see any of an item's keys is worked out before, and what each query sees goes with its tile.
 *
 * Warps: 0-7 multiply; 8 takes items and fetches; 9 and 10 add dQ, every other tile each, as an addition and its turn take longer
 * than a tile.
 */
#include "device/cuda/attention/attention_hopper_bwd_multiply.cuh"
#include "ops/attention.h"

using namespace attention_hopper;

template <int D, bool DOCUMENTS>
static __global__ void __launch_bounds__(THREADS, 1) bwd_kernel(const __grid_constant__ backward a)
{
    using T = tile<D, DOCUMENTS>;
    extern __shared__ __align__(1024) unsigned char base[];
    const signals on(base + T::BARRIERS);
    if (threadIdx.x == 0)
        on.init();
    __syncthreads();
    /* 168 registers a thread at the start; 24 * 128 + 240 * 256 are as many. */
    if (threadIdx.x < MULTIPLIERS) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        multiply<D, DOCUMENTS>(a, base, on);
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        const int warp = threadIdx.x / 32 - WARPS;
        if (threadIdx.x % 32 == 0 && warp == 0)
            fetch<D, DOCUMENTS>(a, shared_address(base), on);
        else if (threadIdx.x % 32 == 0 && warp <= 2)
            add_dq<D, DOCUMENTS>(a, warp - 1, shared_address(base), on);
    }
}

/* ---- before and after ---- */

/* What goes with each tile of queries, and whose turn it is first. Queries past the last, or behind the last document, get what makes P
 * and dS zero. D / 8 lanes per query, so 1024 threads per tile of a head: blocks are full. */
template <int D, bool DOCUMENTS>
static __global__ void stats_kernel(const bf16 *__restrict__ d_o, const bf16 *__restrict__ o,
                                    const float *__restrict__ lse, int64_t o_stride, const __grid_constant__ backward a)
{
    using T = tile<D, DOCUMENTS>;
    constexpr int LANES = D / 8, M = T::M;
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
        float *to = a.stats + place * T::STATS + row % M;
        bool sees = row < a.q_rows;
        int turn = 0;
        if (DOCUMENTS) {
            const keys seen = keys_of(a, (int) min(row, (int64_t) a.q_rows - 1));
            sees &= seen.first < seen.end;
            if (head == 0)
                a.seen[row] = seen;
            if (row % M == 0)
                to[2 * M + 1] = __int_as_float(seen.end); /* the smallest */
            if (row % M == M - 1)
                to[M + 1] = __int_as_float(seen.first); /* the largest, at 2 M */
            turn = ~(seen.first / N);
        }
        to[0] = sees ? lse[head * all + b * a.q_rows + row] * LOG2_E : INFINITY;
        to[M] = sees ? sum : 0;
        if (row % M == 0)
            a.turns[place] = turn;
        if (i == 0)
            *a.next = 0;
    }
}

/* Documents: what each piece of keys is seen by. Tiles that see beyond its beginning are the last ones, tiles that begin to see before
 * its end are the first ones. */
template <int D> static __global__ void spans_kernel(const __grid_constant__ backward a)
{
    constexpr int M = tile<D, true>::M;
    const int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= a.pieces)
        return;
    int low = 0, high = a.tiles;
    while (low < high) {
        const int m = (low + high) / 2;
        if (keys_of(a, min(m * M + M, a.q_rows) - 1).end > j * N)
            high = m;
        else
            low = m + 1;
    }
    const int first = low;
    for (high = a.tiles; low < high;) {
        const int m = (low + high) / 2;
        if (keys_of(a, m * M).first < (j + 1) * N)
            low = m + 1;
        else
            high = m;
    }
    a.spans[j] = make_int2(first, low - 1);
}

/* Sums as the registers had them to rows of bf16, a tile per block. */
template <int D> static __global__ void dq_kernel(const __grid_constant__ backward a)
{
    constexpr int M = tile<D, false>::M;
    const int m = blockIdx.x % a.tiles, head = blockIdx.x / a.tiles % a.heads, b = blockIdx.x / a.tiles / a.heads;
    const float4 *from = (const float4 *) (a.dq_sums + (int64_t) blockIdx.x * (M * D));
    const bool sees = a.turns[blockIdx.x] >= 0; /* queries behind the last document: nobody has added anything */
    for (int i = threadIdx.x; i < M * D / 4; i += blockDim.x) {
        const int thread = i % 128, v = i / 128 % 8, side = i / 1024;
        const int row = m * M + (D == 64 ? 64 * side : 0) + thread / 32 * 16 + thread % 32 / 4;
        const int column = (D == 64 ? 0 : 64 * side) + 8 * v + 2 * (thread & 3);
        const float4 x = sees ? from[i] : make_float4(0, 0, 0, 0);
        bf16 *to = a.dq + ((int64_t) b * a.q_rows + row) * a.dq_stride + head * D + column;
        if (row < a.q_rows)
            put_pair(to, x.x * a.scale, x.y * a.scale);
        if (row + 8 < a.q_rows)
            put_pair(to + 8 * a.dq_stride, x.z * a.scale, x.w * a.scale);
    }
}

/* ---- host ---- */

/* [sums of dQ | stats | turns, next | spans | seen] */
template <int D, bool DOCUMENTS> static size_t carve(const sl_graph_shape *s, char *workspace, backward *a)
{
    using T = tile<D, DOCUMENTS>;
    const size_t rows = (size_t) SL_ROUND_UP(s->q_rows, (int64_t) T::M),
                 tiles = (size_t) (s->batch * s->heads) * rows / T::M;
    const size_t sums = sl_cuda_align(tiles * T::DQ_BYTES), stats = sl_cuda_align(tiles * T::STATS_BYTES),
                 turns = sl_cuda_align((tiles + 1) * sizeof(int)),
                 spans = DOCUMENTS ? sl_cuda_align((size_t) SL_DIV_UP(s->kv_rows, (int64_t) N) * sizeof(int2)) : 0,
                 seen = DOCUMENTS ? sl_cuda_align(rows * sizeof(keys)) : 0;
    a->dq_sums = (float *) workspace;
    a->stats = (float *) (workspace + sums);
    a->turns = (int *) (workspace + sums + stats);
    a->next = a->turns + tiles;
    a->spans = (int2 *) (workspace + sums + stats + turns);
    a->seen = (keys *) (workspace + sums + stats + turns + spans);
    return sums + stats + turns + spans + seen;
}

size_t attention_hopper::backward_workspace(const sl_graph_shape *s)
{
    backward a;
    if (s->head_dim == 64)
        return s->bounds ? carve<64, true>(s, NULL, &a) : carve<64, false>(s, NULL, &a);
    return s->bounds ? carve<128, true>(s, NULL, &a) : carve<128, false>(s, NULL, &a);
}

/* How many heads' items take turns. Few heads leave what they walk over in the L2 cache, and the GPU, which its power limits, has more left
 * for arithmetic. But every set of heads ends with items that are shorter and shorter, those of the queries' own keys: with two of them for each
 * multiprocessor the short ones follow the long ones and all are done at about the same time (docs/lab/gpu-kernels.md has the figures). */
static int heads_together(sl_cuda *cuda, const sl_graph_shape *s)
{
    const sl_cuda_info *info = sl_cuda_get_info(cuda);
    const int64_t head_bytes = s->q_rows * (s->heads / s->kv_heads) * s->head_dim * 8; /* Q, dO, and dQ in f32 */
    const int64_t heads = s->batch * s->kv_heads, cached = (int64_t) info->l2_bytes * 2 / 3 / head_bytes;
    const int64_t own = SL_DIV_UP(s->q_rows, (int64_t) N), even = (2 * info->multiprocessors + own / 2) / own;
    const int64_t sets = SL_DIV_UP(heads, SL_MIN(heads, SL_MAX(SL_MAX(cached, even), 1)));
    return (int) SL_DIV_UP(heads, sets);
}

template <int D, bool DOCUMENTS>
static sl_status run(sl_cuda *cuda, const sl_graph_shape *s, const sl_launch *launch, cudaStream_t stream)
{
    using T = tile<D, DOCUMENTS>;
    const sl_attention_layout at = sl_attention_places(&launch->attrs, &launch->in[1].type, &launch->in[2].type);
    const int64_t q_columns = (int64_t) s->heads * D, kv_columns = (int64_t) s->kv_heads * D;
    const sl_operand *dkv = launch->out[1].type.rank ? &launch->out[1] : &launch->out[0];
    bf16 *k = (bf16 *) sl_attention_kv(&at, &launch->in[1], &launch->in[2]);
    char *dk = (char *) sl_attention_kv(&at, &launch->out[0], &launch->out[1]);
    backward a = {};
    (sequences &) a = sequences_of(s, launch);
    carve<D, DOCUMENTS>(s, (char *) launch->workspace, &a);
    SL_TRY(map_rows(&a.q, launch->in[1].data, q_columns, s->width, s->q_rows, s->batch, T::M));
    SL_TRY(map_rows(&a.d_o, launch->in[0].data, q_columns, s->o_width, s->q_rows, s->batch, T::M));
    SL_TRY(map_rows(&a.k, k, kv_columns, s->kv_width, s->kv_rows, s->batch, N));
    SL_TRY(map_rows(&a.v, k + kv_columns, kv_columns, s->kv_width, s->kv_rows, s->batch, N));
    a.dq = (bf16 *) launch->out[0].data;
    a.dk = dk, a.dv = dk + (size_t) kv_columns * sl_dtype_bytes(dkv->type.dtype);
    a.dq_stride = s->width, a.dkv_stride = s->kv_width;
    a.heads = s->heads, a.kv_heads = s->kv_heads;
    a.tiles = (int) SL_DIV_UP(s->q_rows, (int64_t) T::M), a.pieces = (int) SL_DIV_UP(s->kv_rows, (int64_t) N);
    a.scale = sl_attention_attrs(&launch->attrs)->scale;
    a.wide = dkv->type.dtype == SL_F32, a.accumulate = dkv == &launch->out[1] && (launch->accumulate >> 1 & 1);
    const int heads = a.batch * a.kv_heads, processors = sl_cuda_get_info(cuda)->multiprocessors;
    a.items = heads * a.pieces;
    a.together = heads_together(cuda, s);

    const int all_tiles = a.batch * a.heads * a.tiles;
    const int64_t stats_threads = (int64_t) all_tiles * T::M * (D / 8);
    SL_CUDA(cudaFuncSetAttribute(bwd_kernel<D, DOCUMENTS>, cudaFuncAttributeMaxDynamicSharedMemorySize, T::BYTES));
    if (DOCUMENTS)
        spans_kernel<D><<<(unsigned) SL_DIV_UP(a.pieces, 128), 128, 0, stream>>>(a);
    stats_kernel<D, DOCUMENTS><<<(unsigned) (stats_threads / 256), 256, 0, stream>>>(
        (const bf16 *) launch->in[0].data, (const bf16 *) launch->in[3].data, (const float *) launch->in[4].data,
        s->o_width, a);
    bwd_kernel<D, DOCUMENTS><<<(unsigned) SL_MIN(a.items, processors), THREADS, T::BYTES, stream>>>(a);
    dq_kernel<D><<<(unsigned) all_tiles, 256, 0, stream>>>(a);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

sl_status attention_hopper::run_backward(sl_cuda *cuda, const sl_graph_shape *s, const sl_launch *launch,
                                         cudaStream_t stream)
{
    if (s->head_dim == 64)
        return s->bounds ? run<64, true>(cuda, s, launch, stream) : run<64, false>(cuda, s, launch, stream);
    return s->bounds ? run<128, true>(cuda, s, launch, stream) : run<128, false>(cuda, s, launch, stream);
}
