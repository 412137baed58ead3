/*
 * Attention's forward on Hopper. A block is there for as long as there is work, in items of queries of a head; it goes over the
 * keys that any of them sees, the last first, in tiles of 128. Two warpgroups, or three for heads of 64, with 64 queries each:
 *
 *     S = Q K^T      P = exp2(S scale - largest so far)      O = O fade + P V      P and O as registers have them
 *
 * Behind the product S of a tile the product P V of the tile before it stands in the tensor cores' queue, and while one warpgroup makes
 * its P the others' products run: they take turns at putting products into the queue.
 *
 * The items with most keys come first. The warp behind those that multiply takes items and fetches.
 */
#include "device/cuda/attention/attention_hopper.cuh"
#include "ops/attention.h"

using namespace attention_hopper;

static constexpr int KEYS = 128; /* of a tile */

/* Shared memory of a block, in bytes from its start. */
template <int D> struct room {
    static constexpr int GROUPS = D == 64 ? 3 : 2, QUERIES = 64 * GROUPS, WARPS = 4 * GROUPS,
                         THREADS = 128 * (GROUPS + 1);
    static constexpr int Q_BYTES = QUERIES * D * 2, KV_BYTES = KEYS * D * 2;
    static constexpr int Q = 0, K = Q + Q_BYTES, V = K + STAGES * KV_BYTES, O = V + STAGES * KV_BYTES,
                         BARRIERS = O + QUERIES * 128, BYTES = BARRIERS + 128;
};

struct forward : sequences {
    CUtensorMap q, k, v; /* [batch][rows][heads * D] in boxes of 64 columns, and of QUERIES or KEYS rows */
    bf16 *o;
    float *lse; /* [heads][batch][q_rows] */
    int64_t o_stride;
    int *next; /* item to be taken */
    int heads, kv_heads, tiles, items;
    int together; /* K/V heads, of all sequences, that are walked over at a time: as many as the L2 cache holds */
    float scale;
};

/* An item: queries [row, row + QUERIES) of a head, keys of tiles [first, last]. */
template <int D> struct walk {
    static constexpr int QUERIES = room<D>::QUERIES;
    int row, head, kv_head, b, first, last;
    __device__ walk(const forward &a, int item)
    {
        const int group = a.heads / a.kv_heads, all = a.together * group * a.tiles, set = item / all, i = item % all;
        const int here = min(a.together, a.batch * a.kv_heads - set * a.together) * group;
        const int kv = set * a.together + i % here / group;
        kv_head = kv % a.kv_heads, b = kv / a.kv_heads, head = kv_head * group + i % group;
        row = (a.tiles - 1 - i / here) * QUERIES;
        first = keys_of(a, row).first / KEYS;
        const int end = keys_of(a, min(row + QUERIES, a.q_rows) - 1).end;
        last = max(first, (end - 1) / KEYS); /* one, where nothing is seen */
    }
};

/* Barriers of a block; of those with two slots the address of the first. */
struct signals : queue {
    uint32_t q_here, q_free, k_here, k_free, v_here, v_free;
    __device__ signals(unsigned char *barriers) : queue(barriers)
    {
        const uint32_t at = shared_address(barriers) + 40;
        q_here = at, q_free = at + 8, k_here = at + 16, k_free = at + 32, v_here = at + 48, v_free = at + 64;
    }
    __device__ void init(int warps) const
    {
        queue::init(warps);
        for (int i = 0; i < 2; i++) {
            barrier_init(k_here + 8 * i, 1), barrier_init(k_free + 8 * i, warps);
            barrier_init(v_here + 8 * i, 1), barrier_init(v_free + 8 * i, warps);
        }
        barrier_init(q_here, 1), barrier_init(q_free, warps);
        barriers_are_set();
    }
};

/* ---- fetching ---- */

template <int D> static __device__ void fetch(const forward &a, uint32_t shared, const signals &on)
{
    using R = room<D>;
    int s = 0, phase = 1;
#pragma unroll 1
    for (int n = 0;; n++) {
        const int item = on.take(n, a.next);
        if (item >= a.items)
            return;
        const walk<D> w(a, item);
        barrier_wait(on.q_free, (n & 1) ^ 1);
        barrier_arrive_expecting(on.q_here, R::Q_BYTES);
        fetch_rows<R::QUERIES, D>(shared + R::Q, &a.q, w.head, w.row, w.b, on.q_here);
#pragma unroll 1
        for (int j = w.last; j >= w.first; j--) {
            barrier_wait(on.k_free + 8 * s, phase);
            barrier_arrive_expecting(on.k_here + 8 * s, R::KV_BYTES);
            fetch_rows<KEYS, D>(shared + R::K + s * R::KV_BYTES, &a.k, w.kv_head, j * KEYS, w.b, on.k_here + 8 * s);
            barrier_wait(on.v_free + 8 * s, phase);
            barrier_arrive_expecting(on.v_here + 8 * s, R::KV_BYTES);
            fetch_rows<KEYS, D>(shared + R::V + s * R::KV_BYTES, &a.v, w.kv_head, j * KEYS, w.b, on.v_here + 8 * s);
            if (++s == STAGES)
                s = 0, phase ^= 1;
        }
    }
}

/* ---- multiplying ---- */

/* S of 64 queries and 128 keys. */
template <int D> static __device__ __forceinline__ void scores(float (&x)[64], uint32_t queries, uint32_t keys)
{
#pragma unroll
    for (int k = 0; k < D / 16; k++)
        product<0, 0>(x, queries + place((k / 4) * room<D>::QUERIES * 128 + (k % 4) * 32),
                      keys + place((k / 4) * KEYS * 128 + (k % 4) * 32), k > 0);
    product_commit();
}

template <int D>
static __device__ __forceinline__ void weighted_sum(float (&o)[D / 2], const uint32_t (&p)[32], uint32_t values)
{
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++)
        product_add<1>(o, p + 4 * k, values + place(k * 2048, D == 128 ? KEYS * 128 : 0));
    product_commit();
}

/* A thread's two rows of S: queries row and row + 8, keys 8 i + 2 (lane % 4) and the next of the tile. */
struct rows {
    keys seen[2], whole; /* by each of the two; by all 64 of the warpgroup */
    float most[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};

    /* S becomes P; what was summed so far is to be multiplied by `fade`. */
    __device__ __forceinline__ void soften(float (&x)[64], float scale, int tile, float (&fade)[2])
    {
        const int key = tile * KEYS + 2 * (threadIdx.x & 3);
        if (tile * KEYS < whole.first || (tile + 1) * KEYS > whole.end)
#pragma unroll
            for (int i = 0; i < 64; i++) {
                const int at = key + i / 4 * 8 + (i & 1);
                if (at < seen[i >> 1 & 1].first || at >= seen[i >> 1 & 1].end)
                    x[i] = -INFINITY;
            }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float top = most[r], sum = 0;
#pragma unroll
            for (int i = 0; i < 16; i++)
                top = fmaxf(top, fmaxf(x[4 * i + 2 * r], x[4 * i + 2 * r + 1]));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
            const float base = top == -INFINITY ? 0.0f : top * scale;
            fade[r] = fast_exp2(fmaf(most[r], scale, -base)); /* nothing seen so far: 0 */
            most[r] = top;
#pragma unroll
            for (int i = 0; i < 16; i++)
#pragma unroll
                for (int e = 2 * r; e < 2 * r + 2; e++) {
                    x[4 * i + e] = fast_exp2(fmaf(x[4 * i + e], scale, -base));
                    sum += x[4 * i + e];
                }
            total[r] = fmaf(total[r], fade[r], sum); /* of this thread's keys; all lanes' at the end */
        }
    }
};

/* Warpgroups take turns at issuing products: each waits for its own, then gives it to the next. */
static __device__ __forceinline__ void await_turn(int group)
{
    asm volatile("bar.sync %0, 256;" ::"r"(1 + group) : "memory");
}
template <int GROUPS> static __device__ __forceinline__ void pass_turn(int group)
{
    asm volatile("bar.arrive %0, 256;" ::"r"(group + 1 == GROUPS ? 1 : group + 2) : "memory");
}

template <int D> static __device__ void multiply(const forward &a, unsigned char *base, const signals &on)
{
    using R = room<D>;
    const uint32_t shared = shared_address(base);
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0), lane = threadIdx.x & 31;
    const int warp_row = threadIdx.x / 32 * 16, group_row = 64 * group;
    const uint32_t queries = place(shared + R::Q + group_row * 128);
    const float scale = a.scale * LOG2_E;
    int s = 0, phase = 0;
    if (group == R::GROUPS - 1)
        pass_turn<R::GROUPS>(group);
#pragma unroll 1
    for (int n = 0;; n++) {
        const int item = on.item_of_warp(n);
        if (item >= a.items)
            return;
        const walk<D> w(a, item);
        const int row = w.row + warp_row + lane / 4, end = a.q_rows - 1;
        rows mine;
        mine.seen[0] = keys_of(a, min(row, end)), mine.seen[1] = keys_of(a, min(row + 8, end));
        mine.whole = {keys_of(a, min(w.row + group_row + 63, end)).first, keys_of(a, min(w.row + group_row, end)).end};

        float x[64], o[D / 2] = {}, fade[2];
        uint32_t p[32];
        barrier_wait(on.q_here, n & 1);
        barrier_wait(on.k_here + 8 * s, phase);
        product_fence();
        scores<D>(x, queries, place(shared + R::K + s * R::KV_BYTES));
        product_wait<0>();
        product_settled(x);
        arrive_once(on.k_free + 8 * s);
        mine.soften(x, scale, w.last, fade);
        pack_all(p, x);
#pragma unroll 1
        for (int j = w.last - 1; j >= w.first; j--) {
            const int before = s, phase_before = phase;
            if (++s == STAGES)
                s = 0, phase ^= 1;
            barrier_wait(on.k_here + 8 * s, phase);
            await_turn(group);
            product_fence();
            scores<D>(x, queries, place(shared + R::K + s * R::KV_BYTES));
            barrier_wait(on.v_here + 8 * before, phase_before);
            product_fence();
            weighted_sum<D>(o, p, place(shared + R::V + before * R::KV_BYTES));
            pass_turn<R::GROUPS>(group);
            product_wait<1>();
            product_settled(x);
            arrive_once(on.k_free + 8 * s);
            mine.soften(x, scale, j, fade);
            product_wait<0>();
            product_settled(o);
            arrive_once(on.v_free + 8 * before);
#pragma unroll
            for (int i = 0; i < D / 2; i++)
                o[i] *= fade[i >> 1 & 1];
            pack_all(p, x);
        }
        arrive_once(on.q_free);
        barrier_wait(on.v_here + 8 * s, phase);
        product_fence();
        weighted_sum<D>(o, p, place(shared + R::V + s * R::KV_BYTES));
        product_wait<0>();
        product_settled(o);
        arrive_once(on.v_free + 8 * s);
        if (++s == STAGES)
            s = 0, phase ^= 1;

        const int64_t first_row = (int64_t) w.b * a.q_rows + w.row + warp_row;
        const int left = a.q_rows - w.row - warp_row; /* rows from this warp's first to the last */
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float total = mine.total[r];
            total += __shfl_xor_sync(0xffffffffu, total, 1);
            total += __shfl_xor_sync(0xffffffffu, total, 2);
            const float share = 1 / total;
#pragma unroll
            for (int i = 2 * r; i < D / 2; i += 4)
                o[i] *= share, o[i + 1] *= share;
            if ((lane & 3) == 0 && lane / 4 + 8 * r < left)
                a.lse[(int64_t) w.head * a.batch * a.q_rows + first_row + lane / 4 + 8 * r] =
                    fmaf(mine.most[r], scale, log2f(total)) * LN_2;
        }
        put_rows<D>(a.o + first_row * a.o_stride + w.head * D, a.o_stride, o, 1.0f, shared + R::O + warp_row * 128,
                    left);
    }
}

template <int D>
static __global__ void __launch_bounds__(room<D>::THREADS, 1) fwd_kernel(const __grid_constant__ forward a)
{
    using R = room<D>;
    extern __shared__ __align__(1024) unsigned char base[];
    const signals on(base + R::BARRIERS);
    if (threadIdx.x == 0)
        on.init(R::WARPS);
    __syncthreads();
    /* Registers a thread: 168 at the start, 24 * 128 + 240 * 256 are as many; with three groups 128, and 24 * 128 + 160 * 384 are fewer. */
    if (threadIdx.x < 32 * R::WARPS) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(R::GROUPS == 3 ? 160 : 240));
        multiply<D>(a, base, on);
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 32 * R::WARPS)
            fetch<D>(a, shared_address(base), on);
    }
}

/* ---- host ---- */

size_t attention_hopper::forward_workspace(void)
{
    return sizeof(int); /* next */
}

template <int D>
static sl_status run(sl_cuda *cuda, const sl_graph_shape *s, const sl_launch *launch, cudaStream_t stream)
{
    using R = room<D>;
    const sl_cuda_info *info = sl_cuda_get_info(cuda);
    const sl_attention_layout at = sl_attention_places(&launch->attrs, &launch->in[0].type, &launch->in[1].type);
    const int64_t q_columns = (int64_t) s->heads * D, kv_columns = (int64_t) s->kv_heads * D;
    bf16 *k = (bf16 *) sl_attention_kv(&at, &launch->in[0], &launch->in[1]);
    forward a = {};
    (sequences &) a = sequences_of(s, launch);
    SL_TRY(map_rows(&a.q, launch->in[0].data, q_columns, s->width, s->q_rows, s->batch, R::QUERIES));
    SL_TRY(map_rows(&a.k, k, kv_columns, s->kv_width, s->kv_rows, s->batch, KEYS));
    SL_TRY(map_rows(&a.v, k + kv_columns, kv_columns, s->kv_width, s->kv_rows, s->batch, KEYS));
    a.o = (bf16 *) launch->out[0].data, a.lse = (float *) launch->out[1].data, a.o_stride = s->o_width;
    a.next = (int *) launch->workspace;
    a.heads = s->heads, a.kv_heads = s->kv_heads, a.scale = sl_attention_attrs(&launch->attrs)->scale;
    a.tiles = (int) SL_DIV_UP(s->q_rows, (int64_t) R::QUERIES), a.items = a.batch * a.heads * a.tiles;
    const int64_t cached = (int64_t) info->l2_bytes * 2 / 3 / (s->kv_rows * D * 4);
    a.together = (int) SL_MIN(SL_MAX(cached, 1), (int64_t) a.batch * a.kv_heads);

    SL_CUDA(cudaFuncSetAttribute(fwd_kernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, R::BYTES));
    SL_CUDA(cudaMemsetAsync(a.next, 0, sizeof *a.next, stream));
    fwd_kernel<D><<<(unsigned) SL_MIN(a.items, info->multiprocessors), R::THREADS, R::BYTES, stream>>>(a);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

sl_status attention_hopper::run_forward(sl_cuda *cuda, const sl_graph_shape *s, const sl_launch *launch,
                                        cudaStream_t stream)
{
    return s->head_dim == 64 ? run<64>(cuda, s, launch, stream) : run<128>(cuda, s, launch, stream);
}
