/* What attention's forward and backward on Hopper share. */
#ifndef SL_DEVICE_CUDA_ATTENTION_HOPPER_CUH
#define SL_DEVICE_CUDA_ATTENTION_HOPPER_CUH

#include "device/cuda/attention/attention_hopper.h"
#include "device/cuda/attention/hopper.cuh"
#include "device/cuda/kernels/kernel.cuh"
#include "ops/attention.h"

namespace attention_hopper
{

using namespace hopper;

static constexpr int STAGES = 2; /* what is fetched has so many places */

/* ---- who sees whom ---- */

/* The keys that a query sees, [first, end). From query to query of a sequence both only grow, and what the queries of a tile see has no
 * gap. */
struct keys {
    int first, end;
};

/* Sequences of equal length, one after another, or one with documents in it, whose boundaries are `bounds` (sl_attention_rows). */
struct sequences {
    int batch, q_rows, kv_rows;
    bool causal;
    const int32_t *bounds; /* NULL: no documents */
    int n_bounds;
};

/* Of query `row` of any sequence. */
__device__ __forceinline__ keys keys_of(const sequences &s, int row)
{
    const int place = s.kv_rows - s.q_rows + row;
    keys seen = {0, s.kv_rows};
    if (s.bounds) {
        const int document = sequence_of(s.bounds, s.n_bounds, place);
        seen = {s.bounds[document], min(s.bounds[document + 1], s.kv_rows)};
    }
    if (s.causal)
        seen.end = min(seen.end, place + 1);
    return seen;
}

/* ---- work ---- */

/* Of a warp at a barrier that counts warps. */
__device__ __forceinline__ void arrive_once(uint32_t barrier)
{
    if ((threadIdx.x & 31) == 0)
        barrier_arrive(barrier);
}

/* Items, taken from a counter by one thread of a block for all of it; two are known at a time. 40 bytes of shared memory. */
struct queue {
    uint32_t here, free;
    volatile int *items;
    __device__ queue(unsigned char *at)
    {
        here = shared_address(at), free = here + 16, items = (volatile int *) (at + 32);
    }
    __device__ void init(int readers) const
    {
        for (int i = 0; i < 2; i++)
            barrier_init(here + 8 * i, 1), barrier_init(free + 8 * i, readers);
    }
    /* The nth of this block. */
    __device__ int take(int n, int *next) const
    {
        barrier_wait(free + 8 * (n & 1), (n >> 1 & 1) ^ 1);
        const int item = atomicAdd(next, 1);
        items[n & 1] = item;
        barrier_arrive(here + 8 * (n & 1));
        return item;
    }
    __device__ int item(int n) const
    {
        barrier_wait(here + 8 * (n & 1), n >> 1 & 1);
        return items[n & 1];
    }
    __device__ void item_read(int n) const
    {
        barrier_arrive(free + 8 * (n & 1));
    }
    /* Both, by a whole warp as one reader. */
    __device__ __forceinline__ int item_of_warp(int n) const
    {
        const int found = item(n);
        __syncwarp();
        arrive_once(free + 8 * (n & 1));
        return found;
    }
};

/* ---- registers to memory ---- */

__device__ __forceinline__ uint32_t pack(float low, float high)
{
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

template <int WORDS> __device__ __forceinline__ void pack_all(uint32_t (&to)[WORDS], const float (&from)[2 * WORDS])
{
#pragma unroll
    for (int i = 0; i < WORDS; i++)
        to[i] = pack(from[2 * i], from[2 * i + 1]);
}

/* A warp's 16 rows of a product in bf16, 64 columns at a time through 16 rows of shared memory so that lanes write 16 bytes each. */
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

/* ---- memory to shared memory ---- */

/* Rows of a head: a tile of panels of 64 columns. */
template <int ROWS, int D>
__device__ __forceinline__ void fetch_rows(uint32_t to, const CUtensorMap *map, int head, int row, int b,
                                           uint32_t barrier)
{
#pragma unroll
    for (int panel = 0; panel < D / 64; panel++)
        fetch_box(to + panel * ROWS * 128, map, head * D + panel * 64, row, b, barrier);
}

/* ---- host ---- */

/* A tensor [batch][rows][columns] of bf16 to be fetched in boxes of 64 columns and box_rows rows; zeros behind the last row. */
sl_status map_rows(CUtensorMap *map, void *data, int64_t columns, int64_t stride, int64_t rows, int64_t batch,
                   int box_rows);

sequences sequences_of(const sl_graph_shape *s, const sl_launch *launch);

size_t forward_workspace(void);
size_t backward_workspace(const sl_graph_shape *s);
sl_status run_forward(sl_cuda *cuda, const sl_graph_shape *s, const sl_launch *launch, cudaStream_t stream);
sl_status run_backward(sl_cuda *cuda, const sl_graph_shape *s, const sl_launch *launch, cudaStream_t stream);

} // namespace attention_hopper
#endif
