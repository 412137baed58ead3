/* The logits of one token: a matrix times a vector, limited by the memory that the matrix comes from. A tile is some rows of the matrix;
 * every row is one sum in a fixed order of four chains. */
#include "ops/head_logits.h"

#include <math.h>

#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/tiles.h"
#include "device/cpu/simd/simd.h"
#include "ops/cached_attention.h"

enum { ROWS = 32, CHAINS = 4 };

typedef struct logits_job {
    const void *x, *w; /* the token's row; the matrix */
    float *out;
    int64_t dim, words;
    float cap;
    bool bf16;
} logits_job;

SL_INLINE float dot_row(const void *x, const void *w, int64_t count, bool bf16)
{
    vf sum[CHAINS];
    int64_t i = 0;
    SL_UNROLL
    for (int c = 0; c < CHAINS; c++)
        sum[c] = vf_zero();
    for (; i + CHAINS * VF_LANES <= count; i += CHAINS * VF_LANES) {
        SL_UNROLL
        for (int c = 0; c < CHAINS; c++) {
            const int64_t at = i + c * VF_LANES;
            sum[c] = vf_fma(vf_get(x, at, VF_LANES, bf16), vf_get(w, at, VF_LANES, bf16), sum[c]);
        }
    }
    for (; i < count; i += VF_LANES) {
        const int lanes = (int) SL_MIN(VF_LANES, count - i);
        sum[0] = vf_fma(vf_get(x, i, lanes, bf16), vf_get(w, i, lanes, bf16), sum[0]);
    }
    return vf_sum(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
}

SL_INLINE void logits_rows(const logits_job *job, int64_t tile, bool bf16)
{
    const int64_t end = SL_MIN((tile + 1) * ROWS, job->words);
    for (int64_t v = tile * ROWS; v < end; v++) {
        float logit = dot_row(job->x, element_const(job->w, v * job->dim, bf16), job->dim, bf16);
        job->out[v] = job->cap > 0 ? job->cap * tanhf(logit / job->cap) : logit;
    }
}

SL_CPU_TILES(logits_tile, logits_job, logits_rows(job, tile, bf16))

static void head_logits_run(const sl_launch *launch, sl_pool *pool)
{
    const sl_operand *x = &launch->in[0], *w = &launch->in[1];
    const int64_t row = sl_cached_count(launch->in[2].data, x->type.dim[0]) - 1;
    logits_job job = {
        .w = w->data,
        .out = launch->out[0].data,
        .dim = w->type.dim[1],
        .words = w->type.dim[0],
        .cap = sl_head_logits_attrs(&launch->attrs)->cap,
        .bf16 = x->type.dtype == SL_BF16,
    };
    job.x = element_const(x->data, row * job.dim, job.bf16);
    sl_pool_run(pool, logits_tile, &job, tile_count(job.words, ROWS));
}

SL_CPU_KERNEL(head_logits, SL_OP_HEAD_LOGITS, .run = head_logits_run);
