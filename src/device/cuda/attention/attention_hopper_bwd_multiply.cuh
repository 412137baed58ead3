/* The multiplying warps of attention_hopper_bwd.cu. */
#ifndef SL_DEVICE_CUDA_ATTENTION_HOPPER_BWD_MULTIPLY_CUH
#define SL_DEVICE_CUDA_ATTENTION_HOPPER_BWD_MULTIPLY_CUH

#include "device/cuda/attention/attention_hopper_bwd.cuh"

namespace attention_hopper
{

__device__ __forceinline__ void put_pair(float *to, float x, float y)
{
    *(float2 *) to = make_float2(x, y);
}
__device__ __forceinline__ void put_pair(bf16 *to, float x, float y)
{
    *(uint32_t *) to = pack(x, y);
}

/* S or dP of 64 keys and 64 queries: rows and queries are the places of their tiles. */
template <int D> __device__ __forceinline__ void scores(float (&x)[32], uint32_t rows, uint32_t queries)
{
#pragma unroll
    for (int k = 0; k < D / 16; k++)
        product<0, 0>(x, rows + place((k / 4) * N * 128 + (k % 4) * 32),
                      queries + place((k / 4) * (8192 / D) * 128 + (k % 4) * 32), k > 0);
    product_commit();
}

/* dV or dK of 64 keys: (+)= P^T dO or dS^T Q over the queries of a tile. */
template <int D, int PARTS>
__device__ __forceinline__ void add_weighted(float (&sums)[D / 2], const uint32_t (&weights)[PARTS][16], uint32_t rows)
{
#pragma unroll
    for (int part = 0; part < PARTS; part++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            product_add<1>(sums, weights[part] + 4 * k, rows + place(part * 8192 + k * 2048, (8192 / D) * 128));
    product_commit();
}

/* P of 64 queries from S. A thread has keys row and row + 8, and queries 8 i + column and the next. */
__device__ __forceinline__ void weights(float (&p)[32], const float *lse, float scale)
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float2 l = *(const float2 *) (lse + 8 * i);
#pragma unroll
        for (int e = 0; e < 4; e++)
            p[4 * i + e] = fast_exp2(fmaf(p[4 * i + e], scale, -(e & 1 ? l.y : l.x)));
    }
}
/* No weight where a query does not see. `seen`: as many keys are seen by query 0, and if causal one more by each following. */
__device__ __forceinline__ void hide(float (&p)[32], int row, int column, int seen, bool causal)
{
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (row + 8 * (e >> 1) >= seen + (causal ? 8 * i + column + (e & 1) : 0))
                p[4 * i + e] = 0;
}
/* With documents; `seen` of this thread's first query, `row` counts from the first key of all. */
__device__ __forceinline__ void hide(float (&p)[32], int row, const keys *seen)
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int4 two = __ldg((const int4 *) (seen + 8 * i));
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int key = row + 8 * (e >> 1);
            if (key < (e & 1 ? two.z : two.x) || key >= (e & 1 ? two.w : two.y))
                p[4 * i + e] = 0;
        }
    }
}

/* dS of 64 queries: kept for dK, and put down for dQ, of which this lane names the row at `to`. */
__device__ __forceinline__ void differences(uint32_t (&ds)[16], const float (&p)[32], const float (&dp)[32],
                                            const float *delta, uint32_t to)
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float2 d = *(const float2 *) (delta + 8 * i);
        const float *x = p + 4 * i, *y = dp + 4 * i;
        ds[2 * i] = pack(x[0] * (y[0] - d.x), x[1] * (y[1] - d.y));
        ds[2 * i + 1] = pack(x[2] * (y[2] - d.x), x[3] * (y[3] - d.y));
    }
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < 8; i += 2)
        store_matrices(to + (((i + (lane >> 4)) ^ (lane & 7)) << 4), ds[2 * i], ds[2 * i + 1], ds[2 * i + 2],
                       ds[2 * i + 3]);
}

/* A warp's 16 rows of dK or dV in f32, or added to what is there: straight from the registers, pairs of elements. */
template <int D, typename T>
__device__ __forceinline__ void add_rows(T *to, int64_t stride, const float (&x)[D / 2], float scale, bool accumulate,
                                         int rows)
{
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int r = lane / 4 + 8 * half;
        if (r >= rows)
            continue;
        T *at = to + r * stride + 2 * (lane & 3);
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            float y[2] = {x[4 * i + 2 * half] * scale, x[4 * i + 2 * half + 1] * scale};
            if (accumulate) {
                const raw<T, 2> there = load_raw<2>(at + 8 * i);
                y[0] += there[0], y[1] += there[1];
            }
            put_pair(at + 8 * i, y[0], y[1]);
        }
    }
}

template <int D>
__device__ __forceinline__ void put_gradient(const backward &a, void *to, int64_t row, int column,
                                             const float (&x)[D / 2], float scale, uint32_t own, int rows)
{
    const int64_t at = row * a.dkv_stride + column;
    if (a.wide)
        add_rows<D>((float *) to + at, a.dkv_stride, x, scale, a.accumulate, rows);
    else if (a.accumulate)
        add_rows<D>((bf16 *) to + at, a.dkv_stride, x, scale, true, rows);
    else
        put_rows<D>((bf16 *) to + at, a.dkv_stride, x, scale, own, rows);
}

/* Where a warp stands among the tiles of its block. */
struct position {
    int step, s, phase; /* tiles so far; where Q and dO of the next are */
};

/* dQ of the tile before `at`, of the keys of both warpgroups; and its end: put down for add_dq. There is no tile before the first of an
 * item: a product is begun all the same, as the compiler takes no branch between products under way, and nobody sees it. */
template <int D, bool DOCUMENTS>
__device__ __forceinline__ void begin_dq(float (&dq)[32], const position &at, uint32_t shared, int side, bool exists,
                                         const signals &on)
{
    using T = tile<D, DOCUMENTS>;
    const int before = at.step - 1, slot = before & 1;
    /* Heads of 64 have a half of the queries each, heads of 128 of the columns. */
    const uint32_t k_mine = place(shared + T::K + (D == 128 ? side * N * 128 : 0)),
                   ds_mine = place(shared + T::DS + slot * T::DS_BYTES + (D == 64 ? side * N * 128 : 0));
    if (exists)
        barrier_wait(on.ds_here + 8 * slot, before >> 1 & 1);
    product_fence();
#pragma unroll
    for (int k = 0; k < N / 16; k++)
        product<1, 1>(dq, ds_mine + place(k * 2048), k_mine + place(k * 2048), k > 0);
    product_commit();
}
template <int D, bool DOCUMENTS>
__device__ __forceinline__ void end_dq(float (&dq)[32], const position &at, unsigned char *base, bool exists,
                                       const signals &on)
{
    using T = tile<D, DOCUMENTS>;
    const int before = at.step - 1, slot = before & 1;
    product_wait<0>();
    product_settled(dq);
    if (!exists)
        return;
    barrier_wait(on.dq_free + 8 * slot, (before >> 1 & 1) ^ 1);
    float4 *to = (float4 *) (base + T::DQ + slot * T::DQ_BYTES) + threadIdx.x / 128 * (8 * 128) + threadIdx.x % 128;
#pragma unroll
    for (int i = 0; i < 8; i++)
        to[i * 128] = make_float4(dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
    fence_async();
    __syncwarp();
    arrive_once(on.ds_free + 8 * slot), arrive_once(on.dq_here + 8 * slot);
}

template <int D, bool DOCUMENTS> __device__ void multiply(const backward &a, unsigned char *base, const signals &on)
{
    using T = tile<D, DOCUMENTS>;
    constexpr int M = T::M, PARTS = M / 64; /* S and dP in parts of 64 queries */
    const uint32_t shared = shared_address(base);
    const int side = __shfl_sync(~0u, threadIdx.x / 128, 0), lane = threadIdx.x & 31;
    const int first_row = threadIdx.x / 32 * 16, row = first_row + lane / 4, column = 2 * (lane & 3);
    const uint32_t stored = (first_row + (lane & 15)) * 128; /* the row of dS that this lane names to store_matrices */
    const float scale = a.scale * LOG2_E;
    const uint32_t k_rows = place(shared + T::K + side * 8192), v_rows = place(shared + T::V + side * 8192);
    position at = {};
#pragma unroll 1
    for (int n = 0;; n++) {
        const int item = on.item_of_warp(n);
        if (item >= a.items)
            return;
        const walk<D, DOCUMENTS> w(a, item);
        float dv[D / 2] = {}, dk[D / 2] = {};
        int m = w.last, h = 0;
        auto take_tile = [&](bool has_before) {
            const uint32_t q = place(shared + T::Q + at.s * T::Q_BYTES),
                           d_o = place(shared + T::DO + at.s * T::Q_BYTES);
            const uint32_t ds_tile = shared + T::DS + (at.step & 1) * T::DS_BYTES;
            const float *lse = (const float *) (base + T::WITH + at.s * T::STATS_BYTES) + column, *delta = lse + M;
            const int *by_all = (const int *) (delta + M) - column; /* with documents */
            const int seen = a.causal ? m * M + a.kv_rows - a.q_rows + 1 - w.j * N : a.kv_rows - w.j * N;
            float p[PARTS][32], dp[PARTS][32], dq[32];
            uint32_t p16[PARTS][16], ds16[PARTS][16];
            barrier_wait(on.q_here + 8 * at.s, at.phase);
            const bool masked = DOCUMENTS ? by_all[0] > w.j * N || by_all[1] < (w.j + 1) * N : seen < N;
            product_fence();
#pragma unroll
            for (int part = 0; part < PARTS; part++)
                scores<D>(p[part], k_rows, q + place(part * 8192));
            begin_dq<D, DOCUMENTS>(dq, at, shared, side, has_before, on);
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                part == 0 ? product_wait<PARTS>() : product_wait<PARTS - 1>();
                product_settled(p[part]);
                weights(p[part], lse + 64 * part, scale);
                if (masked) {
                    if (DOCUMENTS)
                        hide(p[part], w.j * N + row, a.seen + m * M + 64 * part + column);
                    else
                        hide(p[part], row, column, seen + (a.causal ? 64 * part : 0), a.causal);
                }
                pack_all(p16[part], p[part]);
            }
            end_dq<D, DOCUMENTS>(dq, at, base, has_before, on);
            product_fence();
#pragma unroll
            for (int part = 0; part < PARTS; part++)
                scores<D>(dp[part], v_rows, d_o + place(part * 8192));
            add_weighted<D, PARTS>(dv, p16, d_o);
            barrier_wait(on.ds_free + 8 * (at.step & 1), (at.step >> 1 & 1) ^ 1);
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                part == 0 ? product_wait<PARTS>() : product_wait<1>();
                product_settled(dp[part]);
                differences(ds16[part], p[part], dp[part], delta + 64 * part, ds_tile + part * N * 128 + stored);
            }
            fence_async();
            __syncwarp();
            arrive_once(on.ds_here + 8 * (at.step & 1));
            product_fence();
            add_weighted<D, PARTS>(dk, ds16, q);
            product_wait<0>();
            product_settled(dk), product_settled(dv);
            arrive_once(on.q_free + 8 * at.s);
            if (++at.s == STAGES)
                at.s = 0, at.phase ^= 1;
            if (++h == w.group)
                h = 0, m--;
            at.step++;
        };
        barrier_wait(on.kv_here, n & 1);
        int left = (w.last - w.first + 1) * w.group;
        if (left > 0) {
            bool has_before = false;
#pragma unroll 1
            do {
                take_tile(has_before);
                has_before = true;
            } while (--left > 0);
            float dq[32];
            begin_dq<D, DOCUMENTS>(dq, at, shared, side, true, on);
            end_dq<D, DOCUMENTS>(dq, at, base, true, on);
        }
        arrive_once(on.kv_free);
        const int rows = a.kv_rows - w.j * N - first_row;
        const int64_t to = (int64_t) w.b * a.kv_rows + w.j * N + first_row;
        const uint32_t own = shared + T::DS + (at.step & 1) * T::DS_BYTES + first_row * 128; /* the next dS's place */
        barrier_wait(on.ds_free + 8 * (at.step & 1), (at.step >> 1 & 1) ^ 1);
        put_gradient<D>(a, a.dv, to, w.kv_head * D, dv, 1.0f, own, rows);
        put_gradient<D>(a, a.dk, to, w.kv_head * D, dk, a.scale, own, rows);
    }
}

} // namespace attention_hopper
#endif
