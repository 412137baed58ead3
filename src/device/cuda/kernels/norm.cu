/*
 * RMSNorm and LayerNorm, forward and backward. Rows of up to 1024 columns belong to one warp, longer ones to a block (forward) or
 * to a team of warps (backward).
 *
 * Backward, by teams of 1, 2, 4, ... warps, so that a lane holds at most 32 columns' sums for dw (and db) in registers over all
 * rows its team walks:
 *
 *     dy, x (and dx where it is added to)  --cp.async-->  ring of up to three rows per team in shared memory
 *     first pass over the row:  dw, db, and the row's two sums      (shuffles; between warps one barrier of the team)
 *     second pass:              dx
 *
 * What counts is bytes in flight: 4 TB/s over 132 multiprocessors and a microsecond of latency want 32 KB under way in each of
 * them, all the time. Registers cannot hold them beside the sums (asking for the next row before reducing over the present one was
 * slower, and blocks waiting at barriers ask for nothing); the ring can, and since a lane copies exactly what it reads itself, it
 * needs no barrier.
 *
 * Where a bias wants the sums of what dx held before it was added to, they are a third sum beside dw and db.
 *
 * Every block leaves one row of partial sums, its teams' added in order; column_sum.cuh adds the blocks'. Numbers of teams and
 * blocks, and so the tree of every sum, follow from the shape alone. How many rows the ring has does not touch the bits.
 */
#include "device/cuda/kernels/column_sum.cuh"
#include "ops/norm.h"

static constexpr int MOST_COLUMNS = 16384, MOST_ODD_COLUMNS = 4096; /* the latter where 16-byte pieces do not fit */

/* ---- forward ---- */

static constexpr int FORWARD_THREADS = 256;

/* One row per warp, FORWARD_THREADS / 32 of them in a block, or one row per block. */
template <bool WARP> __device__ __forceinline__ float row_sum(float x, float *scratch)
{
    return WARP ? warp_sum(x) : block_reduce(x, scratch);
}

template <typename T, int W, int P, bool LAYER, bool WARP>
__global__ void __launch_bounds__(FORWARD_THREADS)
    norm_kernel(const T *__restrict__ x, const T *__restrict__ w, const T *__restrict__ b, T *__restrict__ y,
                float *__restrict__ mean_out, float *__restrict__ rstd_out, int64_t n, int64_t d, float eps,
                float offset)
{
    __shared__ float scratch[33];
    int64_t row = (int64_t) blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= n)
        return;
    float keep[P][W], sum = 0, squares = 0;
#pragma unroll
    for (int p = 0; p < P; p++) {
        int64_t c = ((int64_t) p * blockDim.x + threadIdx.x) * W;
        if (c < d)
            load<W>(x + row * d + c, keep[p]);
        else
#pragma unroll
            for (int j = 0; j < W; j++)
                keep[p][j] = 0;
    }
    float mean = 0;
    if (LAYER) {
#pragma unroll
        for (int p = 0; p < P; p++)
#pragma unroll
            for (int j = 0; j < W; j++)
                sum += keep[p][j];
        mean = row_sum<WARP>(sum, scratch) / (float) d;
    }
#pragma unroll
    for (int p = 0; p < P; p++)
        if (((int64_t) p * blockDim.x + threadIdx.x) * W < d)
#pragma unroll
            for (int j = 0; j < W; j++) {
                keep[p][j] -= mean;
                squares = fmaf(keep[p][j], keep[p][j], squares);
            }
    float rstd = rsqrtf(row_sum<WARP>(squares, scratch) / (float) d + eps);
#pragma unroll
    for (int p = 0; p < P; p++) {
        int64_t c = ((int64_t) p * blockDim.x + threadIdx.x) * W;
        if (c < d) {
            float weight[W], bias[W];
            load<W>(w + c, weight);
            if (LAYER)
                load<W>(b + c, bias);
#pragma unroll
            for (int j = 0; j < W; j++)
                keep[p][j] =
                    LAYER ? fmaf(keep[p][j] * rstd, weight[j], bias[j]) : keep[p][j] * rstd * (weight[j] + offset);
        }
    }
#pragma unroll
    for (int p = 0; p < P; p++) {
        int64_t c = ((int64_t) p * blockDim.x + threadIdx.x) * W;
        if (c < d)
            store<W, true>(y + row * d + c, keep[p]);
    }
    if (threadIdx.x == 0) {
        rstd_out[row] = rstd;
        if (LAYER)
            mean_out[row] = mean;
    }
}

static sl_status norm_supports(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    const sl_type *x = &launch->in[0].type;
    int64_t most = x->dim[1] % 8 ? MOST_ODD_COLUMNS : x->dtype == SL_F32 ? MOST_COLUMNS / 2 : MOST_COLUMNS;
    if (x->dim[1] > most)
        return sl_cuda_fail(SL_E_UNSUPPORTED, "norms on CUDA take rows of at most %lld columns of %s, not %lld",
                            (long long) most, x->dtype == SL_F32 ? "f32" : "bf16", (long long) x->dim[1]);
    return SL_OK;
}

template <typename T, int W, int P, bool LAYER, bool WARP>
static void norm_launch(const sl_launch *launch, cudaStream_t stream)
{
    int64_t n = launch->in[0].type.dim[0], d = launch->in[0].type.dim[1], lanes = ((d + W - 1) / W + 31) / 32 * 32;
    dim3 threads(WARP ? 32 : (unsigned) (lanes < FORWARD_THREADS ? lanes : FORWARD_THREADS),
                 WARP ? FORWARD_THREADS / 32 : 1);
    norm_kernel<T, W, P, LAYER, WARP><<<(unsigned) ((n + threads.y - 1) / threads.y), threads, 0, stream>>>(
        (const T *) launch->in[0].data, (const T *) launch->in[1].data, LAYER ? (const T *) launch->in[2].data : NULL,
        (T *) launch->out[0].data, LAYER ? (float *) launch->out[1].data : NULL,
        (float *) launch->out[LAYER ? 2 : 1].data, n, d, sl_norm_attrs(&launch->attrs)->eps,
        sl_norm_attrs(&launch->attrs)->offset);
}

/* Pieces per thread are a template argument: registers kept for the longest row would halve the occupancy for all others. */
template <typename T, int W, bool LAYER> static void norm_pieces(const sl_launch *launch, cudaStream_t stream)
{
    int64_t pieces = (launch->in[0].type.dim[1] + W - 1) / W;
    if (pieces <= 32)
        norm_launch<T, W, 1, LAYER, true>(launch, stream);
    else if (pieces <= 64)
        norm_launch<T, W, 2, LAYER, true>(launch, stream);
    else if (pieces <= 96)
        norm_launch<T, W, 3, LAYER, true>(launch, stream);
    else if (pieces <= 128)
        norm_launch<T, W, 4, LAYER, true>(launch, stream);
    else if (pieces <= FORWARD_THREADS)
        norm_launch<T, W, 1, LAYER, false>(launch, stream);
    else if (pieces <= 2 * FORWARD_THREADS)
        norm_launch<T, W, 2, LAYER, false>(launch, stream);
    else if (pieces <= 4 * FORWARD_THREADS)
        norm_launch<T, W, 4, LAYER, false>(launch, stream);
    else
        norm_launch<T, W, 16, LAYER, false>(launch, stream);
}

template <typename T, bool LAYER> static sl_status norm_any(const sl_launch *launch, cudaStream_t stream)
{
    constexpr int W = 16 / sizeof(T);
    if (launch->in[0].type.dim[1] % W == 0 &&
        sl_cuda_aligned(launch->in[0].data, launch->out[0].data, launch->in[1].data) &&
        (!LAYER || sl_cuda_aligned(launch->in[2].data)))
        norm_pieces<T, W, LAYER>(launch, stream);
    else if (launch->in[0].type.dim[1] > MOST_ODD_COLUMNS)
        return sl_cuda_fail(SL_E_INTERNAL, "norms on CUDA want rows of more than %d columns at multiples of 16 bytes",
                            MOST_ODD_COLUMNS);
    else
        norm_pieces<T, 1, LAYER>(launch, stream);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

/* ---- backward ---- */

static constexpr int64_t ROW_GROUPS = 132; /* one block per multiprocessor of the largest part, whatever the machine */
static constexpr int MOST_ROWS = 3;        /* of the ring */

/* How a row length is worked on. */
struct team_shape {
    int warps; /* of a team: a power of two */
    int each;  /* columns per lane, of the template that runs it */
};

template <typename T> static constexpr int most_warps = 32 / (int) sizeof(T); /* a ring row must fit an old GPU too */
/* With a third sum in registers and many columns per lane, fewer warps where teams allow: 16 would keep it in local memory. */
static constexpr int FEW_WARPS = 12;

template <int W> static team_shape team_for(int64_t d)
{
    int each = W == 1 ? 16 : 32, step = 8;
    team_shape team = {1, each};
    while (team.warps * 32 * each < d)
        team.warps *= 2;
    if (W > 1)
        team.each = (int) ((d + team.warps * 32 - 1) / (team.warps * 32) + step - 1) / step * step;
    return team;
}

static int64_t groups_for(int64_t n)
{
    return n < ROW_GROUPS ? n : ROW_GROUPS;
}

/* A piece on its way from global to shared memory, 16 bytes of it without passing through registers. */
template <typename T, int W> __device__ __forceinline__ void fetch(raw<T, W> *to, const T *from)
{
    if (sizeof(raw<T, W>) == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned) __cvta_generic_to_shared(to)),
                     "l"(from)
                     : "memory");
    else
        *to = load_raw<W>(from);
}

__device__ __forceinline__ void fetch_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most `pending` of the groups committed last are under way. */
__device__ __forceinline__ void fetch_wait(int pending)
{
    if (pending == 2)
        asm volatile("cp.async.wait_group 2;" ::: "memory");
    else if (pending == 1)
        asm volatile("cp.async.wait_group 1;" ::: "memory");
    else
        asm volatile("cp.async.wait_group 0;" ::: "memory");
}

/* Both sums over the team, the same in every thread. `scratch`: two floats per warp of the team, other ones for the next row, so
 * that one barrier is enough: who writes them again has passed the next row's barrier. */
template <bool LAYER>
__device__ __forceinline__ void team_sums(float &along, float &sum, float2 *scratch, int team, int warps)
{
    along = warp_sum(along);
    if (LAYER)
        sum = warp_sum(sum);
    if (warps == 1)
        return;
    int warp = (threadIdx.x >> 5) & (warps - 1);
    if ((threadIdx.x & 31) == 0)
        scratch[warp] = make_float2(along, sum);
    asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "r"(warps * 32) : "memory");
    along = sum = 0;
    for (int w = 0; w < warps; w++) {
        along += scratch[w].x;
        sum += scratch[w].y;
    }
}

/* The teams' sums of each column, in order, as the block's row of partial sums. All threads; the ring is free by now. */
template <int W, int P>
__device__ __forceinline__ void leave_sums(const float (&mine)[P][W], float *shared, float *__restrict__ partial, int d,
                                           int column, int width, int team)
{
    int teams = blockDim.x * P * W / width;
    __syncthreads();
#pragma unroll
    for (int p = 0; p < P; p++)
        store<W>(shared + team * width + column + p * 32 * W, mine[p]);
    __syncthreads();
    for (int c = threadIdx.x; c < d; c += blockDim.x) {
        float sum = 0;
        for (int k = 0; k < teams; k++)
            sum += shared[k * width + c];
        partial[c] = sum;
    }
}

template <typename T> struct norm_bwd_args {
    const T *dy, *x, *w;
    const float *mean, *rstd;
    T *dx; /* NULL: only the sums are wanted */
    float *partial;
    int64_t n, d;
    int team_warps, ring; /* rows of the ring: 1, 2, 3 */
    bool accumulate;
    float offset; /* of RMSNorm's weights */
};

/* SUMS: also the sums of what dx held before, where it is added to. */
template <typename T, int W, int P, bool LAYER, bool SUMS, int WARPS>
__global__ void __launch_bounds__(WARPS * 32, 1) norm_bwd_kernel(const __grid_constant__ norm_bwd_args<T> a)
{
    typedef raw<T, W> piece;
    constexpr int threads = WARPS * 32;
    extern __shared__ uint4 shared[];
    __shared__ float2 scratch[2][WARPS];
    int lanes = a.team_warps * 32, team = threadIdx.x / lanes, teams = threads / lanes, d = (int) a.d;
    /* A warp has P * 32 neighbouring pieces of the row; this lane's piece p begins at column + p * 32 * W. */
    int column = ((threadIdx.x & (lanes - 1)) / 32 * P * 32 + threadIdx.x % 32) * W;
    /* Its piece p of tensor t in the ring's row s lies at ring[s * slot_pieces + (t * P + p) * threads]. */
    piece *ring = reinterpret_cast<piece *>(shared) + threadIdx.x;
    int slot_pieces = (a.accumulate ? 3 : 2) * P * threads;
    int64_t stride = (int64_t) gridDim.x * teams, first = (int64_t) team * gridDim.x + blockIdx.x;
    float dw[P][W] = {}, db[LAYER ? P : 1][W] = {}, before[SUMS ? P : 1][W] = {};
    piece weight[P];
#pragma unroll
    for (int p = 0; p < P; p++)
        if (column + p * 32 * W < d)
            weight[p] = load_raw<W>(a.w + column + p * 32 * W);
    auto ask = [&](int64_t row, int slot) {
        piece *to = ring + slot * slot_pieces;
        int64_t from = row * d + column;
        if (row < a.n)
#pragma unroll
            for (int p = 0; p < P; p++)
                if (column + p * 32 * W < d) {
                    fetch<T, W>(to + p * threads, a.x + from + p * 32 * W);
                    fetch<T, W>(to + (P + p) * threads, a.dy + from + p * 32 * W);
                    if (a.accumulate)
                        fetch<T, W>(to + (2 * P + p) * threads, a.dx + from + p * 32 * W);
                }
        fetch_commit();
    };
#pragma unroll 1
    for (int s = 0; s < a.ring; s++)
        ask(first + s * stride, s);
    float next_rstd = first < a.n ? a.rstd[first] : 0.0f, next_mean = LAYER && first < a.n ? a.mean[first] : 0.0f;
    int slot = 0, parity = 0;
#pragma unroll 1
    for (int64_t row = first; row < a.n; row += stride) {
        const piece *from = ring + slot * slot_pieces;
        float rstd = next_rstd, mean = next_mean, along = 0, sum = 0;
        if (row + stride < a.n) {
            next_rstd = a.rstd[row + stride];
            if (LAYER)
                next_mean = a.mean[row + stride];
        }
        fetch_wait(a.ring - 1);
#pragma unroll
        for (int p = 0; p < P; p++)
            if (column + p * 32 * W < d) {
                piece px = from[p * threads], pg = from[(P + p) * threads];
#pragma unroll
                for (int j = 0; j < W; j++) {
                    float g = pg[j], u = g * (LAYER ? weight[p][j] : weight[p][j] + a.offset),
                          hat = (LAYER ? px[j] - mean : px[j]) * rstd;
                    dw[p][j] = fmaf(g, hat, dw[p][j]);
                    along = fmaf(u, hat, along);
                    if (LAYER) {
                        db[LAYER ? p : 0][j] += g;
                        sum += u;
                    }
                }
            }
        team_sums<LAYER>(along, sum, &scratch[parity][team * a.team_warps], team, a.team_warps);
        float slope = along / (float) d, shift = LAYER ? sum / (float) d : 0.0f;
#pragma unroll
        for (int p = 0; p < P; p++)
            if (a.dx && column + p * 32 * W < d) {
                piece px = from[p * threads], pg = from[(P + p) * threads], old;
                float out[W];
                if (a.accumulate)
                    old = from[(2 * P + p) * threads];
#pragma unroll
                for (int j = 0; j < W; j++) {
                    float u = pg[j] * (LAYER ? weight[p][j] : weight[p][j] + a.offset),
                          hat = (LAYER ? px[j] - mean : px[j]) * rstd;
                    out[j] = rstd * fmaf(-hat, slope, LAYER ? u - shift : u);
                    if (a.accumulate) {
                        out[j] += old[j];
                        if (SUMS)
                            before[SUMS ? p : 0][j] += old[j];
                    }
                }
                store<W>(a.dx + row * d + column + p * 32 * W, out);
            }
        ask(row + a.ring * stride, slot);
        slot = slot + 1 == a.ring ? 0 : slot + 1;
        parity ^= 1;
    }
    float *free = reinterpret_cast<float *>(shared), *partial = a.partial + (int64_t) blockIdx.x * d;
    leave_sums<W, P>(dw, free, partial, d, column, lanes * P * W, team);
    if constexpr (LAYER)
        leave_sums<W, P>(db, free, partial + (int64_t) gridDim.x * d, d, column, lanes * P * W, team);
    if constexpr (SUMS)
        leave_sums<W, P>(before, free, partial + 2 * (int64_t) gridDim.x * d, d, column, lanes * P * W, team);
}

template <typename T, int W, int P, bool LAYER, bool SUMS, int WARPS>
static sl_status bwd_launch(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    int64_t n = launch->in[0].type.dim[0], d = launch->in[0].type.dim[1];
    constexpr int threads = WARPS * 32;
    norm_bwd_args<T> a = {(const T *) launch->in[0].data,
                          (const T *) launch->in[1].data,
                          (const T *) launch->in[2].data,
                          LAYER ? (const float *) launch->in[3].data : NULL,
                          (const float *) launch->in[LAYER ? 4 : 3].data,
                          (T *) launch->out[0].data,
                          (float *) launch->workspace,
                          n,
                          d,
                          team_for<W>(d).warps,
                          0,
                          launch->out[0].data && (launch->accumulate & 1),
                          sl_norm_attrs(&launch->attrs)->offset};
    size_t row_bytes = (size_t) threads * P * W * sizeof(T) * (a.accumulate ? 3 : 2);
    size_t room = sl_cuda_get_info(cuda)->shared_bytes - sizeof(float2) * 2 * WARPS;
    a.ring = (int) (room / row_bytes < MOST_ROWS ? room / row_bytes : MOST_ROWS);
    SL_CUDA(cudaFuncSetAttribute(norm_bwd_kernel<T, W, P, LAYER, SUMS, WARPS>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, (int) (a.ring * row_bytes)));
    norm_bwd_kernel<T, W, P, LAYER, SUMS, WARPS><<<(unsigned) groups_for(n), threads, a.ring * row_bytes, stream>>>(a);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

template <typename T, int W, int P, bool LAYER>
static sl_status bwd_sums(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    if constexpr (LAYER) {
        int team = team_for<W>(launch->in[0].type.dim[1]).warps;
        if constexpr (sizeof(T) == 2 && P * W > 16)
            if (launch->out[3].data && FEW_WARPS % team == 0)
                return bwd_launch<T, W, P, LAYER, true, FEW_WARPS>(cuda, launch, stream);
        if (launch->out[3].data)
            return bwd_launch<T, W, P, LAYER, true, most_warps<T>>(cuda, launch, stream);
    }
    return bwd_launch<T, W, P, LAYER, false, most_warps<T>>(cuda, launch, stream);
}

template <typename T, int W, bool LAYER>
static sl_status bwd_pieces(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    int64_t n = launch->in[0].type.dim[0], d = launch->in[0].type.dim[1], groups = groups_for(n);
    if constexpr (W == 1)
        SL_TRY((bwd_sums<T, 1, 16, LAYER>(cuda, launch, stream)));
    else
        switch (team_for<W>(d).each) {
        case 8:
            SL_TRY((bwd_sums<T, W, 8 / W, LAYER>(cuda, launch, stream)));
            break;
        case 16:
            SL_TRY((bwd_sums<T, W, 16 / W, LAYER>(cuda, launch, stream)));
            break;
        case 24:
            SL_TRY((bwd_sums<T, W, 24 / W, LAYER>(cuda, launch, stream)));
            break;
        default:
            SL_TRY((bwd_sums<T, W, 32 / W, LAYER>(cuda, launch, stream)));
            break;
        }
    column_sums<T> to = {
        {(T *) launch->out[1].data, LAYER ? (T *) launch->out[2].data : NULL, LAYER ? (T *) launch->out[3].data : NULL},
        {(launch->accumulate & 2) != 0, (launch->accumulate & 4) != 0, (launch->accumulate & 8) != 0}};
    if (to.out[0] || to.out[1] || to.out[2])
        column_sum<T>(launch->workspace, groups, d, to.out[2] ? 3 : LAYER ? 2 : 1, to, stream);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

template <typename T, bool LAYER> static sl_status bwd_any(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    constexpr int W = 16 / sizeof(T);
    if (launch->in[0].type.dim[1] % W == 0 &&
        sl_cuda_aligned(launch->in[0].data, launch->in[1].data, launch->in[2].data, launch->out[0].data))
        return bwd_pieces<T, W, LAYER>(cuda, launch, stream);
    if (launch->in[0].type.dim[1] > MOST_ODD_COLUMNS)
        return sl_cuda_fail(SL_E_INTERNAL, "norms on CUDA want rows of more than %d columns at multiples of 16 bytes",
                            MOST_ODD_COLUMNS);
    return bwd_pieces<T, 1, LAYER>(cuda, launch, stream);
}

template <bool LAYER> static size_t bwd_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    size_t sums = !LAYER ? 1 : launch->out[3].type.rank ? 3 : 2;
    return (size_t) (groups_for(launch->in[0].type.dim[0]) * launch->in[0].type.dim[1]) * sums * sizeof(float);
}

template <bool LAYER> static sl_status norm_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    SL_DISPATCH(launch->in[0].type.dtype, T, return (norm_any<T, LAYER>(launch, stream)));
}
template <bool LAYER> static sl_status bwd_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    SL_DISPATCH(launch->in[0].type.dtype, T, return (bwd_any<T, LAYER>(cuda, launch, stream)));
}
extern "C" const sl_cuda_kernel sl_cuda_rmsnorm = {SL_OP_RMSNORM, norm_supports, NULL, norm_run<false>};
extern "C" const sl_cuda_kernel sl_cuda_rmsnorm_bwd = {SL_OP_RMSNORM_BWD, norm_supports, bwd_workspace<false>,
                                                       bwd_run<false>};
extern "C" const sl_cuda_kernel sl_cuda_layernorm = {SL_OP_LAYERNORM, norm_supports, NULL, norm_run<true>};
extern "C" const sl_cuda_kernel sl_cuda_layernorm_bwd = {SL_OP_LAYERNORM_BWD, norm_supports, bwd_workspace<true>,
                                                         bwd_run<true>};
