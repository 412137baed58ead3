/* The multiplying warps of attention_hopper.cu. */
#ifndef SL_DEVICE_CUDA_ATTENTION_HOPPER_MULTIPLY_CUH
#define SL_DEVICE_CUDA_ATTENTION_HOPPER_MULTIPLY_CUH

#include "device/cuda/attention_hopper.cuh"

namespace attention_hopper
{

__device__ __forceinline__ uint32_t pack(float low, float high)
{
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

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
                      queries + place((k / 4) * tile<D>::M * 128 + (k % 4) * 32), k > 0);
    product_commit();
}

/* P of 64 queries from S. A thread has keys row and row + 8, and queries 8 i + column and the next. `seen`: as many keys are seen by
 * query 0, and if causal one more by each following; large enough where all are. */
__device__ __forceinline__ void weights(float (&p)[32], const float *lse, float scale, int row, int column, int seen,
                                        bool masked, bool causal)
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float2 l = *(const float2 *) (lse + 8 * i);
#pragma unroll
        for (int e = 0; e < 4; e++)
            p[4 * i + e] = fast_exp2(fmaf(p[4 * i + e], scale, -(e & 1 ? l.y : l.x)));
    }
    if (masked)
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (row + 8 * (e >> 1) >= seen + (causal ? 8 * i + column + (e & 1) : 0))
                    p[4 * i + e] = 0;
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

/* A warp's 16 rows of dK or dV in bf16, 64 columns at a time through 16 rows of shared memory so that lanes write 16 bytes each. */
template <int D>
__device__ __forceinline__ void put_rows(bf16 *to, int64_t stride, const float (&x)[D / 2], float scale, uint32_t own,
                                         int rows)
{
    const int lane = threadIdx.x & 31;
    auto at = [own](int r, int c) { return own + r * 128 + ((c ^ (r & 7)) << 4); };
#pragma unroll
    for (int panel = 0; panel < D / 64; panel++) {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
            const float *y = x + 32 * panel + 4 * i;
            store_matrices(at(lane & 15, i + (lane >> 4)), pack(y[0] * scale, y[1] * scale),
                           pack(y[2] * scale, y[3] * scale), pack(y[4] * scale, y[5] * scale),
                           pack(y[6] * scale, y[7] * scale));
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int r = 4 * i + lane / 8, c = lane % 8;
            uint4 v;
            asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                         : "r"(at(r, c))
                         : "memory");
            if (r < rows)
                *(uint4 *) (to + r * stride + 64 * panel + 8 * c) = v;
        }
    }
}

/* The same in f32, or added to what is there: straight from the registers, pairs of elements. */
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

template <int D> __device__ void multiply(const backward &a, unsigned char *base, const signals &on)
{
    using T = tile<D>;
    constexpr int M = T::M, PARTS = M / 64; /* S and dP in parts of 64 queries */
    const uint32_t shared = shared_address(base);
    const int side = __shfl_sync(~0u, threadIdx.x / 128, 0), thread = threadIdx.x % 128, lane = threadIdx.x & 31;
    const int first_row = 64 * side + thread / 32 * 16, row = first_row + lane / 4, column = 2 * (lane & 3);
    const uint32_t stored = (first_row + (lane & 15)) * 128; /* the row of dS that this lane names to store_matrices */
    const float scale = a.scale * LOG2_E;
    const uint32_t k_rows = place(shared + T::K + side * 8192), v_rows = place(shared + T::V + side * 8192);
    /* dQ: heads of 64 have a half of the queries each, heads of 128 of the columns */
    const uint32_t k_mine = place(shared + T::K + (D == 128 ? side * N * 128 : 0));
    int step = 0, s = 0, phase = 0;
#pragma unroll 1
    for (int n = 0;; n++) {
        const int item = on.item(n);
        __syncwarp();
        if (lane == 0)
            on.item_read(n);
        if (item >= a.items)
            return;
        const walk<D> w(a, item);
        float dv[D / 2] = {}, dk[D / 2] = {};
        barrier_wait(on.kv_here, n & 1);
        for (int m = a.tiles - 1; m >= w.first; m--)
#pragma unroll 1
            for (int h = 0; h < w.group; h++, step++) {
                const uint32_t q = place(shared + T::Q + s * T::Q_BYTES), d_o = place(shared + T::DO + s * T::Q_BYTES);
                const uint32_t ds_tile = shared + T::DS + (step & 1) * T::DS_BYTES;
                const float *lse = (const float *) (base + T::STATS + s * T::STATS_BYTES) + column, *delta = lse + M;
                const int seen = a.causal ? m * M + a.kv_rows - a.q_rows + 1 - w.j * N : a.kv_rows - w.j * N;
                float p[PARTS][32], dp[PARTS][32];
                uint32_t p16[PARTS][16], ds16[PARTS][16];
                barrier_wait(on.q_here + 8 * s, phase);
                product_fence();
#pragma unroll
                for (int part = 0; part < PARTS; part++) {
                    scores<D>(p[part], k_rows, q + place(part * 8192));
                    scores<D>(dp[part], v_rows, d_o + place(part * 8192));
                }
#pragma unroll
                for (int part = 0; part < PARTS; part++) {
                    /* Behind S of the first part: dP, and S and dP of the second. */
                    constexpr int FIRST = 2 * PARTS - 1, SECOND = 2 * PARTS - 2;
                    part == 0 ? product_wait<FIRST>() : product_wait<SECOND>();
                    weights(p[part], lse + 64 * part, scale, row, column, seen + (a.causal ? 64 * part : 0), seen < N,
                            a.causal);
#pragma unroll
                    for (int i = 0; i < 16; i++)
                        p16[part][i] = pack(p[part][2 * i], p[part][2 * i + 1]);
                    product_fence();
#pragma unroll
                    for (int k = 0; k < 4; k++)
                        product_add<1>(dv, p16[part] + 4 * k, d_o + place(part * 8192 + k * 2048, M * 128));
                    product_commit();
                    part == 0 ? product_wait<FIRST>() : product_wait<SECOND>();
                    differences(ds16[part], p[part], dp[part], delta + 64 * part, ds_tile + part * N * 128 + stored);
                }
                fence_async();
                asm volatile("bar.sync 1, %0;" ::"n"(MULTIPLIERS) : "memory"); /* all of dS is there */
                float dq[32];
                const uint32_t ds_mine = place(ds_tile + (D == 64 ? side * N * 128 : 0));
                product_fence();
#pragma unroll
                for (int k = 0; k < N / 16; k++)
                    product<1, 1>(dq, ds_mine + place(k * 2048), k_mine + place(k * 2048), k > 0);
                product_commit();
#pragma unroll
                for (int part = 0; part < PARTS; part++)
#pragma unroll
                    for (int k = 0; k < 4; k++)
                        product_add<1>(dk, ds16[part] + 4 * k, q + place(part * 8192 + k * 2048, M * 128));
                product_commit();
                product_wait<1>();
                const int slot = step & 1;
                barrier_wait(on.dq_free + 8 * slot, ((step >> 1) & 1) ^ 1);
                float4 *to = (float4 *) (base + T::DQ + slot * T::DQ_BYTES) + side * 8 * 128 + thread;
#pragma unroll
                for (int i = 0; i < 8; i++)
                    to[i * 128] = make_float4(dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
                fence_async();
                __syncwarp();
                if (lane == 0)
                    barrier_arrive(on.dq_here + 8 * slot);
                product_wait<0>();
                if (lane == 0)
                    barrier_arrive(on.q_free + 8 * s);
                if (++s == STAGES)
                    s = 0, phase ^= 1;
            }
        if (lane == 0)
            barrier_arrive(on.kv_free);
        const int rows = a.kv_rows - w.j * N - first_row;
        const int64_t at = (int64_t) w.b * a.kv_rows + w.j * N + first_row;
        const uint32_t own =
            shared + T::DS + (step & 1) * T::DS_BYTES + first_row * 128; /* where dS of the next step will be */
        put_gradient<D>(a, a.dv, at, w.kv_head * D, dv, 1.0f, own, rows);
        put_gradient<D>(a, a.dk, at, w.kv_head * D, dk, a.scale, own, rows);
    }
}

} // namespace attention_hopper
#endif
