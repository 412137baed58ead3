/* What the warps of attention_hopper.cu share, and the two kinds of warps beside the multiplying ones: fetching, and adding dQ. */
#ifndef SL_DEVICE_CUDA_ATTENTION_HOPPER_CUH
#define SL_DEVICE_CUDA_ATTENTION_HOPPER_CUH

#include "device/cuda/hopper.cuh"
#include "device/cuda/kernel.cuh"

namespace attention_hopper
{

using namespace hopper;

static constexpr int N = 128, WARPS = 8, MULTIPLIERS = 32 * WARPS, THREADS = 384, STAGES = 2;

/* Shared memory of a block, in bytes from its start. */
template <int D> struct tile {
    static constexpr int M = 8192 / D;
    static constexpr int KV_BYTES = N * D * 2, Q_BYTES = M * D * 2, DS_BYTES = N * M * 2, DQ_BYTES = M * D * 4,
                         STATS_BYTES = 2 * M * 4;
    static constexpr int K = 0, V = K + KV_BYTES, Q = V + KV_BYTES, DO = Q + STAGES * Q_BYTES,
                         DS = DO + STAGES * Q_BYTES, DQ = DS + 2 * DS_BYTES, STATS = DQ + 2 * DQ_BYTES,
                         BARRIERS = STATS + STAGES * STATS_BYTES, BYTES = BARRIERS + 128;
};

struct backward {
    CUtensorMap q, d_o, k, v; /* [batch][rows][heads * D] in boxes of 64 columns and M or N rows */
    bf16 *dq;
    void *dk, *dv;                 /* f32 if `wide`, else bf16 */
    int64_t dq_stride, dkv_stride; /* elements from row to row */
    float *stats;                  /* [batch][heads][tiles][2][M]: log2 of the sum of exponentials, delta */
    float *dq_sums;                /* [batch][heads][tiles][M * D] */
    int *turns;                    /* [batch][heads][tiles]: how many items have been added */
    int *next;                     /* item to be taken */
    int batch, heads, kv_heads, q_rows, kv_rows, tiles, pieces, items; /* pieces of N keys of a head */
    int together; /* K/V heads, of all sequences, whose items take turns */
    bool causal, wide, accumulate;
    float scale;
};

/* An item: keys [j N, (j + 1) N), queries of tiles [first, tiles). Those with the lowest keys, which see most, come first; heads take
 * turns so that neighbours in the order of a sum do not start at once, but only as many heads as leave what they walk over in the L2
 * cache. */
template <int D> struct walk {
    int j, kv_head, b, group, first;
    __device__ walk(const backward &a, int item)
    {
        int set = item / (a.together * a.pieces), i = item % (a.together * a.pieces);
        int here = min(a.together, a.batch * a.kv_heads - set * a.together), head = set * a.together + i % here;
        j = i / here, kv_head = head % a.kv_heads, b = head / a.kv_heads, group = a.heads / a.kv_heads;
        first = a.causal ? max(0, j * N - (a.kv_rows - a.q_rows)) / tile<D>::M : 0;
    }
    __device__ int64_t place_of(const backward &a, int m, int h) const
    {
        return (int64_t) (b * a.heads + kv_head * group + h) * a.tiles + m;
    }
};

/* Barriers of a block; of those with two slots the address of the first. Behind them the items that warp 8 has taken. */
struct signals {
    uint32_t item_here, item_free, kv_here, kv_free, q_here, q_free, dq_here, dq_free;
    volatile int *items;
    __device__ signals(unsigned char *barriers)
    {
        const uint32_t at = shared_address(barriers);
        item_here = at, item_free = at + 16, q_here = at + 32, q_free = at + 48, dq_here = at + 64, dq_free = at + 80;
        kv_here = at + 96, kv_free = at + 104, items = (volatile int *) (barriers + 112);
    }
    __device__ void init() const
    {
        for (int i = 0; i < 2; i++) {
            barrier_init(item_here + 8 * i, 1), barrier_init(item_free + 8 * i, WARPS + 2);
            barrier_init(q_here + 8 * i, 1), barrier_init(q_free + 8 * i, WARPS);
            barrier_init(dq_here + 8 * i, WARPS), barrier_init(dq_free + 8 * i, 1);
        }
        barrier_init(kv_here, 1), barrier_init(kv_free, WARPS);
        barriers_are_set();
    }
    /* The nth item of this block. */
    __device__ int item(int n) const
    {
        barrier_wait(item_here + 8 * (n & 1), n >> 1 & 1);
        return items[n & 1];
    }
    __device__ void item_read(int n) const
    {
        barrier_arrive(item_free + 8 * (n & 1));
    }
};

/* ---- warp 8 ---- */

template <int ROWS, int D>
__device__ __forceinline__ void fetch_rows(uint32_t to, const CUtensorMap *map, int head, int row, int b,
                                           uint32_t barrier)
{
#pragma unroll
    for (int panel = 0; panel < D / 64; panel++)
        fetch_box(to + panel * ROWS * 128, map, head * D + panel * 64, row, b, barrier);
}

template <int D> __device__ void fetch(const backward &a, uint32_t shared, const signals &on)
{
    using T = tile<D>;
    int s = 0, phase = 1;
#pragma unroll 1
    for (int n = 0;; n++) {
        barrier_wait(on.item_free + 8 * (n & 1), (n >> 1 & 1) ^ 1);
        const int item = atomicAdd(a.next, 1);
        on.items[n & 1] = item;
        barrier_arrive(on.item_here + 8 * (n & 1));
        if (item >= a.items)
            return;
        const walk<D> w(a, item);
        barrier_wait(on.kv_free, (n & 1) ^ 1);
        barrier_arrive_expecting(on.kv_here, 2 * T::KV_BYTES);
        fetch_rows<N, D>(shared + T::K, &a.k, w.kv_head, w.j * N, w.b, on.kv_here);
        fetch_rows<N, D>(shared + T::V, &a.v, w.kv_head, w.j * N, w.b, on.kv_here);
        for (int m = a.tiles - 1; m >= w.first; m--)
#pragma unroll 1
            for (int h = 0; h < w.group; h++) {
                const int head = w.kv_head * w.group + h;
                const uint32_t here = on.q_here + 8 * s;
                barrier_wait(on.q_free + 8 * s, phase);
                barrier_arrive_expecting(here, 2 * T::Q_BYTES + T::STATS_BYTES);
                fetch_rows<T::M, D>(shared + T::Q + s * T::Q_BYTES, &a.q, head, m * T::M, w.b, here);
                fetch_bytes(shared + T::STATS + s * T::STATS_BYTES, a.stats + w.place_of(a, m, h) * (2 * T::M),
                            T::STATS_BYTES, here);
                fetch_rows<T::M, D>(shared + T::DO + s * T::Q_BYTES, &a.d_o, head, m * T::M, w.b, here);
                if (++s == STAGES)
                    s = 0, phase ^= 1;
            }
    }
}

/* ---- warps 9 and 10 ---- */

template <int D> __device__ void add_dq(const backward &a, int mine, uint32_t shared, const signals &on)
{
    using T = tile<D>;
    const uint32_t dq = shared + T::DQ + mine * T::DQ_BYTES;
    int step = 0, phase = 0;
#pragma unroll 1
    for (int n = 0;; n++) {
        const int item = on.item(n);
        on.item_read(n);
        if (item >= a.items)
            break;
        const walk<D> w(a, item);
        for (int m = a.tiles - 1; m >= w.first; m--)
#pragma unroll 1
            for (int h = 0; h < w.group; h++, step++) {
                if ((step & 1) != mine)
                    continue;
                const int64_t place = w.place_of(a, m, h);
                float *to = a.dq_sums + place * (T::M * D);
                barrier_wait(on.dq_here + 8 * mine, phase);
                phase ^= 1;
                while (load_acquire(a.turns + place) < w.j)
                    ;
                if (w.j == 0)
                    put_bytes(to, dq, T::DQ_BYTES);
                else
                    add_f32(to, dq, T::DQ_BYTES);
                wait_until_read();
                barrier_arrive(on.dq_free + 8 * mine);
                wait_until_written();
                store_release(a.turns + place, w.j + 1);
            }
    }
}

} // namespace attention_hopper
#endif
