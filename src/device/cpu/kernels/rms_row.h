/*
 * RMSNorm of one row, or of one head of a row. It is read twice, the second time from the first cache. `offset` is added to the
 * weights w. Backward, with u = dy w:
 *     dx = rstd u - x rstd^3 mean(u x)        dw: dy x rstd, added to a partial row
 */
#ifndef SL_DEVICE_CPU_RMS_ROW_H
#define SL_DEVICE_CPU_RMS_ROW_H

#include <math.h>

#include "device/cpu/kernels/tiles.h"
#include "device/cpu/simd/simd.h"

SL_INLINE vf rms_weight(const void *w, int64_t i, int lanes, float offset, bool bf16)
{
    return vf_add(vf_get(w, i, lanes, bf16), vf_set1(offset));
}

/* sum of a*b (or a*b*(c + offset)) over a row: four running sums, then across lanes. */
SL_INLINE float row_dot(const void *a, const void *b, const void *c, float offset, int64_t at, int64_t width, bool bf16)
{
    vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    int64_t i = 0;
    for (; i + 4 * VF_LANES <= width; i += 4 * VF_LANES) {
        SL_UNROLL
        for (int k = 0; k < 4; k++) {
            int64_t j = i + k * VF_LANES;
            vf x = vf_get(a, at + j, VF_LANES, bf16), y = vf_get(b, at + j, VF_LANES, bf16);
            sum[k] = vf_fma(c ? vf_mul(x, rms_weight(c, j, VF_LANES, offset, bf16)) : x, y, sum[k]);
        }
    }
    for (; i < width; i += VF_LANES) {
        int lanes = (int) SL_MIN(width - i, VF_LANES);
        vf x = vf_get(a, at + i, lanes, bf16), y = vf_get(b, at + i, lanes, bf16);
        sum[0] = vf_fma(c ? vf_mul(x, rms_weight(c, i, lanes, offset, bf16)) : x, y, sum[0]);
    }
    return vf_sum(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
}

/* y = x rstd w for the elements [at, at + width); returns rstd. */
SL_INLINE float rms_row(const void *x, const void *w, float offset, void *y, int64_t at, int64_t width, float eps,
                        bool bf16)
{
    float rstd = 1.0f / sqrtf(row_dot(x, x, NULL, 0, at, width, bf16) / (float) width + eps);
    vf r = vf_set1(rstd);
    int64_t i = 0;
    for (; i + VF_LANES <= width; i += VF_LANES)
        vf_put(y, at + i,
               vf_mul(vf_mul(vf_get(x, at + i, VF_LANES, bf16), r), rms_weight(w, i, VF_LANES, offset, bf16)), VF_LANES,
               bf16);
    if (i < width) {
        int lanes = (int) (width - i);
        vf_put(y, at + i, vf_mul(vf_mul(vf_get(x, at + i, lanes, bf16), r), rms_weight(w, i, lanes, offset, bf16)),
               lanes, bf16);
    }
    return rstd;
}

typedef struct rms_bwd {
    const void *x, *w, *dy;
    float offset;
    void *dx;       /* NULL: not wanted */
    float *partial; /* [width], NULL: not wanted */
    bool accumulate;
} rms_bwd;

SL_INLINE void rms_bwd_step(const rms_bwd *job, int64_t at, int64_t i, int lanes, vf r, vf k, bool bf16)
{
    vf dy = vf_get(job->dy, at + i, lanes, bf16), x = vf_get(job->x, at + i, lanes, bf16);
    if (job->partial)
        vf_store(job->partial + i, vf_fma(vf_mul(dy, r), x, vf_load(job->partial + i, lanes)), lanes);
    if (job->dx) {
        vf u = vf_mul(vf_mul(dy, rms_weight(job->w, i, lanes, job->offset, bf16)), r);
        vf_put_add(job->dx, at + i, vf_fnma(x, k, u), lanes, bf16, job->accumulate);
    }
}

SL_INLINE void rms_bwd_row(const rms_bwd *job, int64_t at, int64_t width, float rstd, bool bf16)
{
    float dot = job->dx ? row_dot(job->dy, job->x, job->w, job->offset, at, width, bf16) : 0.0f;
    vf r = vf_set1(rstd), k = vf_set1(rstd * rstd * rstd * (dot / (float) width));
    int64_t i = 0;
    for (; i + VF_LANES <= width; i += VF_LANES)
        rms_bwd_step(job, at, i, VF_LANES, r, k, bf16);
    if (i < width)
        rms_bwd_step(job, at, i, (int) (width - i), r, k, bf16);
}

#endif
