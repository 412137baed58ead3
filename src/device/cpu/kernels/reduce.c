/* sum and sum_squares in the order of ops/reduce.h. A tile is a subtree of 16 blocks; its sum is kept in the workspace,
 * and the caller adds the tiles' sums by the same tree. */
#include "ops/reduce.h"
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/tiles.h"
#include "device/cpu/simd/simd.h"

enum { REDUCE_BLOCKS = 16, REDUCE_VECS = SL_SUM_LANES / VF_LANES };

typedef struct reduce_job {
    const void *x;
    float *sums;
    int64_t count;
    bool bf16;
} reduce_job;

SL_INLINE float reduce_block(const void *x, int64_t first, int64_t count, bool squares, bool bf16)
{
    vf lane[REDUCE_VECS];
    SL_UNROLL
    for (int v = 0; v < REDUCE_VECS; v++)
        lane[v] = vf_zero();
    int64_t i = 0;
    for (; i + SL_SUM_LANES <= count; i += SL_SUM_LANES) {
        SL_UNROLL
        for (int v = 0; v < REDUCE_VECS; v++) {
            vf value = vf_get(x, first + i + v * VF_LANES, VF_LANES, bf16);
            lane[v] = squares ? vf_fma(value, value, lane[v]) : vf_add(lane[v], value);
        }
    }
    SL_UNROLL
    for (int v = 0; v < REDUCE_VECS; v++) {
        int64_t left = count - i - v * VF_LANES;
        if (left > 0) {
            vf value = vf_get(x, first + i + v * VF_LANES, (int) SL_MIN(left, VF_LANES), bf16);
            lane[v] = squares ? vf_fma(value, value, lane[v]) : vf_add(lane[v], value);
        }
    }
    SL_UNROLL
    for (int half = REDUCE_VECS / 2; half > 0; half /= 2) {
        SL_UNROLL
        for (int v = 0; v < half; v++)
            lane[v] = vf_add(lane[v], lane[v + half]);
    }
    float rest[VF_LANES];
    vf_store(rest, lane[0], VF_LANES);
    for (int half = VF_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            rest[l] += rest[l + half];
    return rest[0];
}

SL_INLINE void reduce_blocks(const reduce_job *job, int64_t tile, bool squares, bool bf16)
{
    const int64_t size = (int64_t) REDUCE_BLOCKS * SL_SUM_BLOCK, end = SL_MIN((tile + 1) * size, job->count);
    sl_sum_tree tree = {0};
    for (int64_t first = tile * size; first < end; first += SL_SUM_BLOCK)
        sl_sum_tree_add(&tree, reduce_block(job->x, first, SL_MIN(end - first, SL_SUM_BLOCK), squares, bf16));
    job->sums[tile] = sl_sum_tree_end(&tree);
}

static void sum_tile(void *context, int64_t tile, int thread)
{
    (void) thread;
    reduce_blocks(context, tile, false, false);
}

SL_CPU_TILES(sum_squares_tile, reduce_job, reduce_blocks(job, tile, true, bf16))

static int64_t reduce_tiles(const sl_launch *launch)
{
    return tile_count(sl_type_count(&launch->in[0].type), (int64_t) REDUCE_BLOCKS * SL_SUM_BLOCK);
}

static void reduce_run(const sl_launch *launch, sl_pool *pool, sl_tile_fn fn)
{
    reduce_job job = {launch->in[0].data, launch->workspace, sl_type_count(&launch->in[0].type),
                      launch->in[0].type.dtype == SL_BF16};
    int64_t tiles = reduce_tiles(launch);
    sl_pool_run(pool, fn, &job, tiles);
    sl_sum_tree tree = {0};
    for (int64_t i = 0; i < tiles; i++)
        sl_sum_tree_add(&tree, job.sums[i]);
    *(float *) launch->out[0].data = sl_sum_tree_end(&tree);
}

static size_t sum_workspace(const sl_launch *launch, int threads)
{
    (void) threads;
    return (size_t) reduce_tiles(launch) * sizeof(float);
}

static void sum_run(const sl_launch *launch, sl_pool *pool)
{
    reduce_run(launch, pool, sum_tile);
}

static void sum_squares_run(const sl_launch *launch, sl_pool *pool)
{
    reduce_run(launch, pool, sum_squares_tile);
}

SL_CPU_KERNEL(sum, SL_OP_SUM, .workspace = sum_workspace, .run = sum_run);
SL_CPU_KERNEL(sum_squares, SL_OP_SUM_SQUARES, .workspace = sum_workspace, .run = sum_squares_run);
