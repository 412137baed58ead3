/*
 * For each tile of queries, over the tiles of K and V:
 *     S = Q K^T scale     m' = max(m, rowmax S)     P = exp(S - m')
 *     l = e^(m - m') l + rowsum P     O = e^(m - m') O + P V
 * and at the end O / l, lse = m + log l. Nothing of size seqlen x seqlen exists.
 */
#include "bench/tile_reference.h"

#include <math.h>
#include <string.h>

size_t sl_tile_scratch(int64_t tile, int64_t dim)
{
    return (size_t) (4 * tile * dim + tile * tile + 2 * tile) * sizeof(float);
}

double sl_tile_traffic(const sl_attention_shape *s, int64_t tile)
{
    double t = (double) s->seqlen, row = (double) s->dim * (double) sl_dtype_bytes(s->dtype);
    double passes = t / (double) tile * (s->causal ? 0.5 : 1);
    return (double) (s->batch * s->heads) * row * (2 * t + 2 * t * passes);
}

typedef struct tile_job {
    const sl_attention_shape *shape;
    const sl_attention_data *data;
    int64_t tile, tiles; /* tiles of queries per item */
    float *o, *lse, *scratch;
    size_t scratch_floats; /* of one thread */
} tile_job;

static float dot(const float *a, const float *b, int64_t n)
{
    float sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

typedef struct tile_memory {
    float *q, *k, *v, *o, *s, *m, *l;
} tile_memory;

/* One tile of K and V against one of queries. */
static void absorb(const sl_attention_shape *shape, tile_memory *x, int64_t first_q, int64_t rows, int64_t first_k,
                   int64_t columns)
{
    int64_t d = shape->dim, width = columns;
    float scale = 1 / sqrtf((float) d);
    for (int64_t i = 0; i < rows; i++) {
        int64_t seen = shape->causal ? SL_MAX(0, SL_MIN(columns, first_q + i + 1 - first_k)) : columns;
        float largest = x->m[i], sum = 0, *s = x->s + i * width, *o = x->o + i * d;
        if (seen == 0)
            continue;
        for (int64_t j = 0; j < seen; j++) {
            s[j] = scale * dot(x->q + i * d, x->k + j * d, d);
            largest = fmaxf(largest, s[j]);
        }
        float before = expf(x->m[i] - largest);
        for (int64_t c = 0; c < d; c++)
            o[c] *= before;
        for (int64_t j = 0; j < seen; j++) {
            float p = expf(s[j] - largest);
            sum += p;
            for (int64_t c = 0; c < d; c++)
                o[c] += p * x->v[j * d + c];
        }
        x->l[i] = before * x->l[i] + sum;
        x->m[i] = largest;
    }
}

static void run_tile(void *context, int64_t index, int thread)
{
    const tile_job *job = context;
    const sl_attention_shape *shape = job->shape;
    int64_t d = shape->dim, t = shape->seqlen, b = job->tile, item = index / job->tiles, first = index % job->tiles * b;
    int64_t rows = SL_MIN(b, t - first), base = item * t * d, end = shape->causal ? first + rows : t;
    float *next = job->scratch + (size_t) thread * job->scratch_floats;
    tile_memory x = {next,
                     next + b * d,
                     next + 2 * b * d,
                     next + 3 * b * d,
                     next + 4 * b * d,
                     next + 4 * b * d + b * b,
                     next + 4 * b * d + b * b + b};
    memcpy(x.q, job->data->q + base + first * d, (size_t) (rows * d) * sizeof(float));
    memset(x.o, 0, (size_t) (b * d) * sizeof(float));
    for (int64_t i = 0; i < rows; i++)
        x.m[i] = -INFINITY, x.l[i] = 0;
    for (int64_t k = 0; k < end; k += b) {
        int64_t columns = SL_MIN(b, t - k);
        memcpy(x.k, job->data->k + base + k * d, (size_t) (columns * d) * sizeof(float));
        memcpy(x.v, job->data->v + base + k * d, (size_t) (columns * d) * sizeof(float));
        absorb(shape, &x, first, rows, k, columns);
    }
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t c = 0; c < d; c++)
            job->o[base + (first + i) * d + c] = x.o[i * d + c] / x.l[i];
        job->lse[item * t + first + i] = x.m[i] + logf(x.l[i]);
    }
}

sl_status sl_tile_forward(const sl_attention_shape *shape, const sl_attention_data *data, int64_t tile, size_t limit,
                          sl_pool *pool, float *o, float *lse)
{
    size_t needed = sl_tile_scratch(tile, shape->dim);
    if (needed > limit)
        return sl_fail(SL_E_DOES_NOT_FIT,
                       "a tile of %lld x %lld needs %zu bytes on chip and there are %zu: use a smaller one",
                       (long long) tile, (long long) tile, needed, limit);
    tile_job job = {
        .shape = shape, .data = data, .tile = tile, .tiles = SL_DIV_UP(shape->seqlen, tile), .o = o, .lse = lse};
    job.scratch_floats = needed / sizeof(float);
    SL_TRY(sl_alloc_aligned(&job.scratch, job.scratch_floats * (size_t) sl_pool_threads(pool), sizeof(float), 64));
    sl_pool_run(pool, run_tile, &job, shape->batch * shape->heads * job.tiles);
    sl_free(job.scratch);
    return SL_OK;
}
