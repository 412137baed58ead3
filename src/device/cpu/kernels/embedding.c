/*
 * Embedding rows in and their gradient out.
 *
 * Backward: places are sorted by token (stable, so in the order of the text), and the run of places that share a token
 * is summed in f32 and stored once. A tile is 64 sorted places and a stretch of columns; it owns the runs that begin
 * in it. So each row of dW has one owner, rows that no token names are not touched, and a token that is half of the
 * text still splits by columns. Not accumulating, all of dW is zeroed first, at the speed of memory.
 */
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/tiles.h"
#include "device/cpu/simd/simd.h"

enum {
    EMBEDDING_ROWS = 64,     /* places of a tile */
    EMBEDDING_COLUMNS = 256, /* columns of a tile */
    EMBEDDING_ZERO = 1 << 18 /* bytes of a zeroing tile */
};

typedef struct embedding_job {
    const void *from; /* W, or dy */
    void *to;         /* y, or dW */
    const int32_t *tokens;
    const uint64_t *sorted; /* token << 32 | place */
    int64_t count, width, column_tiles;
    size_t to_bytes;
    bool bf16, accumulate;
} embedding_job;

static void embedding_tile(void *context, int64_t tile, int thread)
{
    (void) thread;
    const embedding_job *job = context;
    const size_t row_bytes = (size_t) job->width * (job->bf16 ? 2 : 4);
    const int64_t per_tile = tile_rows(job->width), end = SL_MIN((tile + 1) * per_tile, job->count);
    for (int64_t i = tile * per_tile; i < end; i++) {
        char *to = (char *) job->to + (size_t) i * row_bytes;
        const char *from = (const char *) job->from + (size_t) job->tokens[i] * row_bytes;
        if (job->accumulate)
            vf_add_elements(to, from, job->width, job->bf16);
        else
            memcpy(to, from, row_bytes);
    }
}

static void embedding_run(const sl_launch *launch, sl_pool *pool)
{
    embedding_job job = {
        .from = launch->in[0].data,
        .to = launch->out[0].data,
        .tokens = launch->in[1].data,
        .count = launch->out[0].type.dim[0],
        .width = launch->out[0].type.dim[1],
        .bf16 = launch->out[0].type.dtype == SL_BF16,
        .accumulate = launch->accumulate & 1u,
    };
    sl_pool_run(pool, embedding_tile, &job, tile_count(job.count, tile_rows(job.width)));
}

static void embedding_zero_tile(void *context, int64_t tile, int thread)
{
    (void) thread;
    const embedding_job *job = context;
    size_t at = (size_t) tile * EMBEDDING_ZERO;
    memset((char *) job->to + at, 0, SL_MIN((size_t) EMBEDDING_ZERO, job->to_bytes - at));
}

/* `vecs` vectors of columns of one run of places. */
SL_INLINE void embedding_sum(const embedding_job *job, int64_t first, int64_t end, int64_t c, const int vecs, int lanes,
                             bool bf16)
{
    vf sum[4];
    SL_UNROLL
    for (int k = 0; k < vecs; k++)
        sum[k] = vf_zero();
    for (int64_t i = first; i < end; i++) {
        const int64_t at = (int64_t) (job->sorted[i] & 0xffffffffu) * job->width + c;
        SL_UNROLL
        for (int k = 0; k < vecs; k++)
            sum[k] = vf_add(sum[k], vf_get(job->from, at + k * VF_LANES, lanes, bf16));
    }
    const int64_t to = (int64_t) (job->sorted[first] >> 32) * job->width + c;
    SL_UNROLL
    for (int k = 0; k < vecs; k++)
        vf_put_add(job->to, to + k * VF_LANES, sum[k], lanes, bf16, job->accumulate);
}

SL_INLINE void embedding_runs(const embedding_job *job, int64_t tile, bool bf16)
{
    const int64_t c0 = tile % job->column_tiles * EMBEDDING_COLUMNS, c1 = SL_MIN(c0 + EMBEDDING_COLUMNS, job->width);
    const int64_t begin = tile / job->column_tiles * EMBEDDING_ROWS, limit = SL_MIN(begin + EMBEDDING_ROWS, job->count);
    int64_t first = begin, end;
    while (first > 0 && first < limit && job->sorted[first] >> 32 == job->sorted[first - 1] >> 32)
        first++; /* began in an earlier tile */
    for (; first < limit; first = end) {
        const uint64_t token = job->sorted[first] >> 32;
        for (end = first + 1; end < job->count && job->sorted[end] >> 32 == token; end++)
            ;
        int64_t c = c0;
        for (; c + 4 * VF_LANES <= c1; c += 4 * VF_LANES)
            embedding_sum(job, first, end, c, 4, VF_LANES, bf16);
        for (; c + VF_LANES <= c1; c += VF_LANES)
            embedding_sum(job, first, end, c, 1, VF_LANES, bf16);
        if (c < c1)
            embedding_sum(job, first, end, c, 1, (int) (c1 - c), bf16);
    }
}

SL_CPU_TILES(embedding_bwd_tile, embedding_job, embedding_runs(job, tile, bf16))

/* Stable radix sort by token, 11 bits at a time, as many passes as the vocabulary needs; returns where the result
 * lies. */
static const uint64_t *embedding_sort(const int32_t *tokens, int64_t count, int64_t vocabulary, uint64_t *from,
                                      uint64_t *to)
{
    for (int64_t i = 0; i < count; i++)
        from[i] = (uint64_t) (uint32_t) tokens[i] << 32 | (uint64_t) i;
    for (int shift = 32; shift < 64 && (vocabulary - 1) >> (shift - 32) > 0; shift += 11) {
        int64_t place[2049] = {0};
        for (int64_t i = 0; i < count; i++)
            place[(from[i] >> shift & 2047) + 1]++;
        for (int d = 1; d < 2048; d++)
            place[d] += place[d - 1];
        for (int64_t i = 0; i < count; i++)
            to[place[from[i] >> shift & 2047]++] = from[i];
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

static size_t embedding_bwd_workspace(const sl_launch *launch, int threads)
{
    (void) threads;
    return (size_t) (2 * launch->in[0].type.dim[0]) * sizeof(uint64_t);
}

static void embedding_bwd_run(const sl_launch *launch, sl_pool *pool)
{
    embedding_job job = {
        .from = launch->in[0].data,
        .to = launch->out[0].data,
        .count = launch->in[0].type.dim[0],
        .width = launch->in[0].type.dim[1],
        .column_tiles = tile_count(launch->in[0].type.dim[1], EMBEDDING_COLUMNS),
        .to_bytes = sl_type_bytes(&launch->out[0].type),
        .bf16 = launch->in[0].type.dtype == SL_BF16,
        .accumulate = launch->accumulate & 1u,
    };
    uint64_t *keys = launch->workspace;
    if (!job.accumulate)
        sl_pool_run(pool, embedding_zero_tile, &job, tile_count((int64_t) job.to_bytes, EMBEDDING_ZERO));
    job.sorted = embedding_sort(launch->in[1].data, job.count, launch->out[0].type.dim[0], keys, keys + job.count);
    sl_pool_run(pool, embedding_bwd_tile, &job, tile_count(job.count, EMBEDDING_ROWS) * job.column_tiles);
}

SL_CPU_KERNEL(embedding, SL_OP_EMBEDDING, .run = embedding_run);
SL_CPU_KERNEL(embedding_bwd, SL_OP_EMBEDDING_BWD, .workspace = embedding_bwd_workspace, .run = embedding_bwd_run);
