/*
 * What the plain attention kernels share. A block of 128 threads owns 8 * RA rows of one head (queries, or keys for dK and dV), keeps
 * them in shared memory, and streams tiles of B rows of the other side through it. All there is to compute are two products,
 *
 *   rows by rows       S[i][j]  = A[i] . X[j]              both operands run along the head dim
 *   rows by columns    O[i][c] += sum over j P[i][j] X[j][c]
 *
 * so tiles are copied as they lie, rows of E + 4 floats (E: the head dim, filled up with zeros to 32, 64, 128 or 256), and nothing is
 * transposed. Thread (ty, tx) of 8 x 16 has rows ty + 8r, columns tx + 16k of S and the groups of columns tx of O.
 *
 * Banks. A warp is two ty and all tx. Of A and P it reads two rows at a time, each by 16 lanes at once: a broadcast from 4 banks
 * each, and rows lie 4 (P: 16) banks apart. Of X along the head dim eight lanes read 16 bytes of eight consecutive rows, 4 banks apart:
 * all 32 banks, once. Of X's columns they read 128 bytes in a row. So no access takes longer than its bytes, but for the stores of
 * S into P where a tile has 32 columns: two rows overlap there, and room for two blocks a multiprocessor is worth more.
 *
 * A warp holds all columns of its rows of S, so P belongs to the warp and needs no barrier of the block.
 *
 * Order of sums: over the head dim and over the rows of a tile ascending, tiles ascending and beginning at multiples of B. What a row
 * does not see adds exact zeros. So no bit depends on RA, and none of o and dQ on how queries are cut into launches.
 */
#ifndef SL_DEVICE_CUDA_ATTENTION_PLAIN_CUH
#define SL_DEVICE_CUDA_ATTENTION_PLAIN_CUH

#include <cuda_pipeline_primitives.h>

#include "device/cuda/attention/attention.h"
#include "device/cuda/kernels/kernel.cuh"
#include "ops/attention.h"

/* The part of the backward for dK and dV, after D is in the workspace (attention_plain_dkv.cu). */
extern "C" sl_status sl_cuda_attention_plain_dkv(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream);

namespace attention_plain
{

constexpr int THREADS = 128;

struct shape {
    int n, m, q_offset;
    int64_t width, o_width, kv_width;         /* elements from row to row of q, of o, of k and v; gradients too */
    int heads, kv_heads, e, causal, segments; /* segments: entries of the boundary list */
    int sequences, per;                       /* blocks: so many sequences of so many blocks; 1 if they are not alike */
    int fours;                                /* four elements at a time: all rows are aligned for it */
    int window;                               /* more than m where there is none */
    float scale, cap;                         /* cap 0: none */
};

/* ---- who sees whom: intervals that only move up from row to row ---- */

struct interval {
    int low, high;
};

/* Keys that query i sees (sl_attention_rows). */
__device__ __forceinline__ interval keys_of(const shape &s, const int32_t *bounds, int i)
{
    int row = s.q_offset + i, k = sequence_of(bounds, s.segments, row), end = min(bounds[k + 1], s.m);
    return {max(bounds[k], row + 1 - s.window), s.causal ? min(end, row + 1) : end};
}

/* Queries that see key j; none behind the last boundary. */
__device__ __forceinline__ interval queries_of(const shape &s, const int32_t *bounds, int j)
{
    int k = sequence_of(bounds, s.segments, j);
    if (j >= bounds[k + 1])
        return {s.n, s.n};
    int low = (s.causal ? j : bounds[k]) - s.q_offset, high = k == s.segments - 2 ? s.n : bounds[k + 1] - s.q_offset;
    high = min(high, j + s.window - s.q_offset);
    return {min(max(low, 0), s.n), min(max(high, 0), s.n)};
}

/* A score under the soft cap, both in units of log 2; *slope: the derivative. */
__device__ __forceinline__ float capped(float score, float cap, float *slope)
{
    float t = tanhf(score * (LN_2 / cap));
    *slope = fmaf(-t, t, 1.0f);
    return t * (cap * LOG2_E);
}

/* ---- which rows of which head a block owns: the longest walks first, so that the last ones to start are short ---- */

struct turn {
    int head, first;
};

__device__ __forceinline__ turn turn_of(const shape &s, int heads, int rows, bool last_is_longest)
{
    int unit = blockIdx.x / heads, sequence = unit % s.sequences, at = unit / s.sequences;
    return {(int) (blockIdx.x % heads), (sequence * s.per + (last_is_longest ? s.per - 1 - at : at)) * rows};
}

/* ---- tiles ---- */

/* Floats from row to row of a tile, and of P: see above. */
__host__ __device__ constexpr int stride(int e)
{
    return e + 4;
}
__host__ __device__ constexpr int p_stride(int columns)
{
    return columns == 64 ? 80 : columns == 48 ? 48 : columns + 4;
}

__device__ __forceinline__ void copy(const float *from, float *to, bool present)
{
    if (present)
        __pipeline_memcpy_async(to, from, 4);
    else
        *to = 0;
}
__device__ __forceinline__ void copy(const bf16 *from, float *to, bool present)
{
    *to = present ? to_f32(*from) : 0.0f;
}

/* Begins to bring rows [first, first + ROWS) into `to`; zeros outside of [rows.low, rows.high), where memory may hold anything, and
 * beyond the head dim. There after settle(). f32 goes around the registers; bf16 is widened on its way and is there at once. */
template <int E, int ROWS, typename T>
__device__ __forceinline__ void fetch(const shape &s, const T *from, int64_t width, int first, interval rows, float *to)
{
    constexpr int pieces = ROWS * E / 4 / THREADS, step = 4 * THREADS / E; /* rows that all threads fetch at a time */
    static_assert(ROWS % step == 0 && 4 * THREADS % E == 0, "threads share a tile evenly");
    int row = threadIdx.x / (E / 4), c = threadIdx.x % (E / 4) * 4;
    const T *here = from + (int64_t) (first + row) * width + c;
    float *there = to + row * stride(E) + c;
    if (!s.fours) {
        for (int i = threadIdx.x; i < ROWS * E; i += THREADS) {
            row = i / E, c = i % E;
            bool present = first + row >= rows.low && first + row < rows.high && c < s.e;
            copy(from + (int64_t) (first + row) * width + c, to + row * stride(E) + c, present);
        }
    } else if constexpr (sizeof(T) == 4) {
#pragma unroll
        for (int k = 0; k < pieces; k++) {
            int at = first + row + k * step;
            if (at >= rows.low && at < rows.high && c < s.e)
                __pipeline_memcpy_async(there + k * step * stride(E), here + k * step * width, 16);
            else
                *(float4 *) (there + k * step * stride(E)) = make_float4(0, 0, 0, 0);
        }
    } else {
        raw<T, 4> x[pieces];
#pragma unroll
        for (int k = 0; k < pieces; k++) {
            int at = first + row + k * step;
            x[k] = {};
            if (at >= rows.low && at < rows.high && c < s.e)
                x[k] = load_raw<4>(here + k * step * width);
        }
#pragma unroll
        for (int k = 0; k < pieces; k++)
            *(float4 *) (there + k * step * stride(E)) = make_float4(x[k][0], x[k][1], x[k][2], x[k][3]);
    }
    __pipeline_commit();
}

/* All that was fetched is there for all threads, and all threads are done with what they read before. */
__device__ __forceinline__ void settle()
{
    __pipeline_wait_prior(0);
    __syncthreads();
}

/* ---- the two products ---- */

/* a: the thread's first row, x: likewise. */
template <int E, int RA, int RB>
__device__ __forceinline__ void rows_by_rows(const float *a, const float *x, float (&sum)[RA][RB])
{
#pragma unroll
    for (int r = 0; r < RA; r++)
#pragma unroll
        for (int k = 0; k < RB; k++)
            sum[r][k] = 0;
#pragma unroll 2
    for (int c = 0; c < E; c += 4) {
        float y[RB][4];
#pragma unroll
        for (int k = 0; k < RB; k++)
            load<4>(x + 16 * k * stride(E) + c, y[k]);
#pragma unroll
        for (int r = 0; r < RA; r++) {
            float b[4];
            load<4>(a + 8 * r * stride(E) + c, b);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int k = 0; k < RB; k++)
                    sum[r][k] = fmaf(b[i], y[k][i], sum[r][k]);
        }
    }
}

/* Columns of the head dim that a thread holds: E / 16 of them, in groups of neighbours that lie a half warp's groups apart. */
template <int E> struct columns {
    static constexpr int group = E == 32 ? 2 : 4, groups = E / 16 / group, step = 16 * group, count = E / 16;
};

/* p: the thread's first row, x: its first column. */
template <int E, int B, int RA>
__device__ __forceinline__ void rows_by_columns(const float *p, const float *x, float (&sum)[RA][columns<E>::count])
{
    using own = columns<E>;
#pragma unroll 2
    for (int j = 0; j < B; j += 4) {
        float b[RA][4];
#pragma unroll
        for (int r = 0; r < RA; r++)
            load<4>(p + 8 * r * p_stride(B) + j, b[r]);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int g = 0; g < own::groups; g++) {
                float y[own::group];
                load<own::group>(x + (j + i) * stride(E) + g * own::step, y);
#pragma unroll
                for (int r = 0; r < RA; r++)
#pragma unroll
                    for (int c = 0; c < own::group; c++)
                        sum[r][g * own::group + c] = fmaf(b[r][i], y[c], sum[r][g * own::group + c]);
            }
    }
}

/* Puts `value` where a row does not see. `seen`: of the thread's first row, `at`: what its first column stands for. */
template <int RA, int RB>
__device__ __forceinline__ void hide(const interval *seen, int at, float value, float (&x)[RA][RB])
{
#pragma unroll
    for (int r = 0; r < RA; r++) {
        interval row = seen[8 * r];
#pragma unroll
        for (int k = 0; k < RB; k++)
            if (at + 16 * k < row.low || at + 16 * k >= row.high)
                x[r][k] = value;
    }
}

/* Keeps a thread's part of S or dS for rows_by_columns. */
template <int B, int RA> __device__ __forceinline__ void put_rows(float *p, const float (&x)[RA][B / 16])
{
#pragma unroll
    for (int r = 0; r < RA; r++)
#pragma unroll
        for (int k = 0; k < B / 16; k++)
            p[8 * r * p_stride(B) + 16 * k] = x[r][k];
}

/* A thread's columns of a row of the result, which begins at `to`. */
template <int E, typename T>
__device__ __forceinline__ void put_row(const shape &s, T *to, int tx, bool add, const float (&x)[columns<E>::count])
{
    using own = columns<E>;
#pragma unroll
    for (int g = 0; g < own::groups; g++) {
        int c = g * own::step + tx * own::group;
        float y[own::group];
#pragma unroll
        for (int i = 0; i < own::group; i++)
            y[i] = x[g * own::group + i];
        if (s.fours && c < s.e) {
            float old[own::group];
            if (add)
                load<own::group>(to + c, old);
#pragma unroll
            for (int i = 0; i < own::group; i++)
                y[i] += add ? old[i] : 0.0f;
            store<own::group>(to + c, y);
        } else if (!s.fours) {
#pragma unroll
            for (int i = 0; i < own::group; i++)
                if (c + i < s.e)
                    from_f32(y[i] + (add ? to_f32(to[c + i]) : 0.0f), &to[c + i]);
        }
    }
}

/* ---- launching ---- */

/* Shared memory of a block: `own` and `streamed` tiles, P, and the interval of each row. */
constexpr size_t shared_bytes(int e, int ra, int b, int own, int streamed)
{
    return sizeof(float) * (size_t) ((own * 8 * ra + streamed * b) * stride(e) + 8 * ra * p_stride(b) + 2 * 8 * ra);
}

/* Variants by RA: 8 alone, but 4 for head dims that do not fit otherwise; both in f32, which has nothing else to run on, and for head
 * dims up to 128, whose backward with 8 takes 109 KiB of shared memory where small GPUs have 99. */
template <typename T, int E> struct variants {
    static constexpr int most = E < 256 ? 8 : 4, least = sizeof(T) == 4 || E == 128 ? 4 : most;
    static constexpr bool spreads = sizeof(T) == 4; /* takes fewer rows also to keep more multiprocessors busy */
};

/* Whether `rows` of `heads` heads are better cut into more blocks: 64 rows each would leave multiprocessors idle or do not fit. */
static inline bool wants_more_blocks(sl_cuda *cuda, int64_t rows, int heads, bool spreads, size_t shared)
{
    const sl_cuda_info *info = sl_cuda_get_info(cuda);
    return (spreads && (rows + 63) / 64 * heads < 2 * (int64_t) info->multiprocessors) || shared > info->shared_bytes;
}

/* Blocks of `rows` of all `n` rows. `alike`: rows of a sequence if all are alike and begin with row 0, else 0. */
static inline unsigned blocks_of(shape *s, int64_t n, int heads, int rows, int64_t alike)
{
    bool even = alike > 0 && alike % rows == 0 && n % alike == 0;
    s->per = (int) ((even ? alike : n) + rows - 1) / rows;
    s->sequences = even ? (int) (n / alike) : 1;
    return (unsigned) (s->per * s->sequences * heads);
}

/* Whether all operands with rows of the head dim can be read and written four elements at a time. */
static inline bool in_fours(const sl_launch *launch, int head_dim)
{
    bool fine = head_dim % 4 == 0;
    for (int i = 0; i < SL_MAX_IN; i++)
        fine &= ((uintptr_t) launch->in[i].data & (4 * sl_dtype_bytes(launch->in[i].type.dtype) - 1)) == 0;
    for (int i = 0; i < SL_MAX_OUT; i++)
        fine &= ((uintptr_t) launch->out[i].data & (4 * sl_dtype_bytes(launch->out[i].type.dtype) - 1)) == 0;
    return fine;
}

static inline shape shape_of(const sl_launch *launch, const sl_attention_layout *at, int64_t n, const sl_type *segments)
{
    shape s = {};
    s.n = (int) n, s.m = (int) at->m, s.q_offset = (int) sl_attention_attrs(&launch->attrs)->q_offset;
    s.width = at->q_stride, s.o_width = at->o_stride, s.kv_width = at->kv_stride;
    s.heads = sl_attention_attrs(&launch->attrs)->heads, s.kv_heads = sl_attention_attrs(&launch->attrs)->kv_heads;
    s.e = sl_attention_attrs(&launch->attrs)->head_dim, s.causal = sl_attention_attrs(&launch->attrs)->causal;
    s.segments = (int) segments->dim[0];
    s.window = s.m + 1;
    if (sl_attention_attrs(&launch->attrs)->window > 0 && sl_attention_attrs(&launch->attrs)->window < s.window)
        s.window = (int) sl_attention_attrs(&launch->attrs)->window;
    s.scale = sl_attention_attrs(&launch->attrs)->scale, s.cap = sl_attention_attrs(&launch->attrs)->cap;
    s.fours = in_fours(launch, s.e);
    return s;
}

/* The opt-in for more than 48 KiB, with our own words where a device has less. */
static inline sl_status allow_shared(sl_cuda *cuda, const void *kernel, size_t bytes, int head_dim)
{
    size_t most = sl_cuda_get_info(cuda)->shared_bytes;
    if (bytes > most)
        return sl_cuda_fail(SL_E_UNSUPPORTED,
                            "attention with a head dim of %d takes %zu bytes of shared memory and this GPU has %zu: "
                            "use a smaller head dim",
                            head_dim, bytes, most);
    SL_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int) bytes));
    return SL_OK;
}

/* The backward: rows of a tile, and blocks a multiprocessor holds. */
__host__ __device__ constexpr int bwd_tile(int e)
{
    return e <= 64 ? 64 : 32;
}
constexpr int bwd_residents(int e, int ra)
{
    return e == 256 ? 1 : ra == 4 ? 3 : 2;
}

/* Runs the statement with E the size that the head dim is filled up to. */
#define SL_ATTENTION_DISPATCH(head_dim, E, ...) \
    do {                                        \
        if ((head_dim) <= 32) {                 \
            constexpr int E = 32;               \
            __VA_ARGS__;                        \
        } else if ((head_dim) <= 64) {          \
            constexpr int E = 64;               \
            __VA_ARGS__;                        \
        } else if ((head_dim) <= 128) {         \
            constexpr int E = 128;              \
            __VA_ARGS__;                        \
        } else {                                \
            constexpr int E = 256;              \
            __VA_ARGS__;                        \
        }                                       \
    } while (0)

} /* namespace attention_plain */

#endif
