/* What the warps of attention_hopper_bwd.cu share, and the two kinds of warps beside the multiplying ones: fetching, and adding dQ. */
#ifndef SL_DEVICE_CUDA_ATTENTION_HOPPER_BWD_CUH
#define SL_DEVICE_CUDA_ATTENTION_HOPPER_BWD_CUH

#include "device/cuda/attention/attention_hopper.cuh"

namespace attention_hopper
{

static constexpr int N = 128; /* keys of an item */
static constexpr int WARPS = 8, MULTIPLIERS = 32 * WARPS, THREADS = MULTIPLIERS + 128;

/* Shared memory of a block, in bytes from its start. */
template <int D, bool DOCUMENTS> struct tile {
    static constexpr int M = 8192 / D, STATS = 2 * M + (DOCUMENTS ? 4 : 0);
    static constexpr int KV_BYTES = N * D * 2, Q_BYTES = M * D * 2, DS_BYTES = N * M * 2, DQ_BYTES = M * D * 4,
                         STATS_BYTES = STATS * 4;
    static constexpr int K = 0, V = K + KV_BYTES, Q = V + KV_BYTES, DO = Q + STAGES * Q_BYTES,
                         DS = DO + STAGES * Q_BYTES, DQ = DS + 2 * DS_BYTES, WITH = DQ + 2 * DQ_BYTES,
                         BARRIERS = WITH + STAGES * STATS_BYTES, BYTES = BARRIERS + 160;
};

struct backward : sequences {
    CUtensorMap q, d_o, k, v; /* [batch][rows][heads * D] in boxes of 64 columns and M or N rows */
    bf16 *dq;
    void *dk, *dv;                 /* f32 if `wide`, else bf16 */
    int64_t dq_stride, dkv_stride; /* elements from row to row */
    /* [batch][heads][tiles]: of M queries log2 of the sum of exponentials, then delta; with documents then, as integers, the first key and
     * the end of those that all of them see, and two to fill up */
    float *stats;
    keys *seen;     /* with documents, [tiles * M]: what each query sees */
    float *dq_sums; /* [batch][heads][tiles][M * D] */
    int *turns;  /* [batch][heads][tiles]: which piece is to be added next; with documents ~ of it before the first */
    int2 *spans; /* with documents, [pieces]: the first and the last tile of queries that see any of its keys */
    int *next;   /* item to be taken */
    int heads, kv_heads, tiles, pieces, items; /* pieces of N keys of a head */
    int together;                              /* K/V heads, of all sequences, whose items take turns */
    bool wide, accumulate;
    float scale;
};

/* An item: keys [j N, (j + 1) N), queries of tiles [first, last]. Those with the lowest keys, which see most, come first; heads take
 * turns so that neighbours in the order of a sum do not start at once, but only as many heads as leave what they walk over in the L2
 * cache. */
template <int D, bool DOCUMENTS> struct walk {
    int j, kv_head, b, group, first, last;
    __device__ walk(const backward &a, int item)
    {
        int set = item / (a.together * a.pieces), i = item % (a.together * a.pieces);
        int here = min(a.together, a.batch * a.kv_heads - set * a.together), head = set * a.together + i % here;
        j = i / here, kv_head = head % a.kv_heads, b = head / a.kv_heads, group = a.heads / a.kv_heads;
        if (DOCUMENTS) {
            const int2 span = a.spans[j];
            first = span.x, last = span.y;
        } else {
            first = a.causal ? max(0, j * N - (a.kv_rows - a.q_rows)) / tile<D, DOCUMENTS>::M : 0;
            last = a.tiles - 1;
        }
    }
    __device__ int64_t place_of(const backward &a, int m, int h) const
    {
        return (int64_t) (b * a.heads + kv_head * group + h) * a.tiles + m;
    }
};

/* Barriers of a block; of those with two slots the address of the first. */
struct signals : queue {
    uint32_t kv_here, kv_free, q_here, q_free, ds_here, ds_free, dq_here, dq_free;
    __device__ signals(unsigned char *barriers) : queue(barriers)
    {
        const uint32_t at = shared_address(barriers) + 40;
        kv_here = at, kv_free = at + 8, q_here = at + 16, q_free = at + 32, ds_here = at + 48, ds_free = at + 64;
        dq_here = at + 80, dq_free = at + 96;
    }
    __device__ void init() const
    {
        queue::init(WARPS + 2);
        for (int i = 0; i < 2; i++) {
            barrier_init(q_here + 8 * i, 1), barrier_init(q_free + 8 * i, WARPS);
            barrier_init(ds_here + 8 * i, WARPS), barrier_init(ds_free + 8 * i, WARPS);
            barrier_init(dq_here + 8 * i, WARPS), barrier_init(dq_free + 8 * i, 1);
        }
        barrier_init(kv_here, 1), barrier_init(kv_free, WARPS);
        barriers_are_set();
    }
};

/* ---- warp 8 ---- */

template <int D, bool DOCUMENTS> __device__ void fetch(const backward &a, uint32_t shared, const signals &on)
{
    using T = tile<D, DOCUMENTS>;
    int s = 0, phase = 1;
#pragma unroll 1
    for (int n = 0;; n++) {
        const int item = on.take(n, a.next);
        if (item >= a.items)
            return;
        const walk<D, DOCUMENTS> w(a, item);
        barrier_wait(on.kv_free, (n & 1) ^ 1);
        barrier_arrive_expecting(on.kv_here, 2 * T::KV_BYTES);
        fetch_rows<N, D>(shared + T::K, &a.k, w.kv_head, w.j * N, w.b, on.kv_here);
        fetch_rows<N, D>(shared + T::V, &a.v, w.kv_head, w.j * N, w.b, on.kv_here);
        for (int m = w.last; m >= w.first; m--)
#pragma unroll 1
            for (int h = 0; h < w.group; h++) {
                const int head = w.kv_head * w.group + h;
                const uint32_t here = on.q_here + 8 * s;
                barrier_wait(on.q_free + 8 * s, phase);
                barrier_arrive_expecting(here, 2 * T::Q_BYTES + T::STATS_BYTES);
                fetch_rows<T::M, D>(shared + T::Q + s * T::Q_BYTES, &a.q, head, m * T::M, w.b, here);
                fetch_bytes(shared + T::WITH + s * T::STATS_BYTES, a.stats + w.place_of(a, m, h) * T::STATS,
                            T::STATS_BYTES, here);
                fetch_rows<T::M, D>(shared + T::DO + s * T::Q_BYTES, &a.d_o, head, m * T::M, w.b, here);
                if (++s == STAGES)
                    s = 0, phase ^= 1;
            }
    }
}

/* ---- warps 9 and 10 ---- */

template <int D, bool DOCUMENTS> __device__ void add_dq(const backward &a, int mine, uint32_t shared, const signals &on)
{
    using T = tile<D, DOCUMENTS>;
    const uint32_t dq = shared + T::DQ + mine * T::DQ_BYTES;
    int step = 0;
#pragma unroll 1
    for (int n = 0;; n++) {
        const int item = on.item(n);
        on.item_read(n);
        if (item >= a.items)
            break;
        const walk<D, DOCUMENTS> w(a, item);
        for (int m = w.last; m >= w.first; m--)
#pragma unroll 1
            for (int h = 0; h < w.group; h++, step++) {
                if ((step & 1) != mine)
                    continue;
                const int64_t place = w.place_of(a, m, h);
                barrier_wait(on.dq_here + 8 * mine, step >> 1 & 1);
                int turn;
                do
                    turn = load_acquire(a.turns + place);
                while (turn != w.j && (!DOCUMENTS || turn != ~w.j));
                float *to = a.dq_sums + place * (T::M * D);
                if (DOCUMENTS ? turn < 0 : w.j == 0) /* the first */
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
