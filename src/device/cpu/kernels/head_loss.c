/*
 * The loss head: the driver of gemm/head_loss.c with this instruction set's GEMM and softmax. One row of the softmax:
 *
 *     e = exp(row - max), others = sum of e without e[target], sum = others + e[target]
 *     loss = log(sum / e[target])          d = e / sum * scale, at the target -others / sum * scale
 *
 * Leaving the target out of the sum keeps both exact to f32 where the model is sure: 1 - e[target] / sum would cancel.
 * Three passes over a row that stays in L1 or L2 (40 KB for 10,000 words): largest, sum (keeping the exponentials),
 * scale. A soft cap is a pass in front of these, in place; its slope follows from the capped logits, so they are kept instead of
 * their exponentials, which the last pass takes once more. An online softmax would save the first pass and pay for it with a second exponential. The sum runs in four
 * vectors that are added in a fixed order, so a row's bits depend on the row alone. A NaN logit makes its exponential,
 * hence the loss, NaN.
 */
#include <math.h>

#include "device/cpu/gemm/head_loss.h"
#include "device/cpu/simd/simd_math.h"

enum { CHAINS = 4 };

static float row_largest(const float *row, int64_t count)
{
    vf largest[CHAINS];
    for (int c = 0; c < CHAINS; c++)
        largest[c] = vf_set1(-INFINITY);
    int64_t i = 0;
    for (; i + CHAINS * VF_LANES <= count; i += CHAINS * VF_LANES)
        for (int c = 0; c < CHAINS; c++)
            largest[c] = vf_max(vf_load(row + i + c * VF_LANES, VF_LANES), largest[c]);
    for (; i + VF_LANES <= count; i += VF_LANES)
        largest[0] = vf_max(vf_load(row + i, VF_LANES), largest[0]);
    float lanes[VF_LANES], out = -INFINITY;
    vf_store(lanes, vf_max(vf_max(largest[0], largest[1]), vf_max(largest[2], largest[3])), VF_LANES);
    for (int c = 0; c < VF_LANES; c++)
        out = SL_MAX(out, lanes[c]);
    for (; i < count; i++)
        out = SL_MAX(out, row[i]);
    return out;
}

/* The sum of exp(row - largest); `keep` (NULL, or the row itself) receives the exponentials. */
SL_INLINE float row_exp_sum(const float *row, int64_t count, float largest, float *keep)
{
    const vf shift = vf_set1(largest);
    vf sum[CHAINS];
    for (int c = 0; c < CHAINS; c++)
        sum[c] = vf_zero();
    int64_t i = 0;
    for (; i + CHAINS * VF_LANES <= count; i += CHAINS * VF_LANES)
        for (int c = 0; c < CHAINS; c++) {
            const int64_t at = i + c * VF_LANES;
            const vf e = vf_exp(vf_sub(vf_load(row + at, VF_LANES), shift));
            sum[c] = vf_add(sum[c], e);
            if (keep)
                vf_store(keep + at, e, VF_LANES);
        }
    for (; i < count; i += VF_LANES) {
        const int lanes = (int) SL_MIN(VF_LANES, count - i);
        float few[VF_LANES];
        vf e = vf_exp(vf_sub(vf_load(row + i, lanes), shift));
        if (keep)
            vf_store(keep + i, e, lanes);
        if (lanes < VF_LANES) { /* lanes beyond the row hold exp(-largest): out with them */
            memset(few, 0, sizeof few);
            vf_store(few, e, lanes);
            e = vf_load(few, VF_LANES);
        }
        sum[0] = vf_add(sum[0], e);
    }
    return vf_sum(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
}

/* What a row comes to: the target's exponential and the sum of all others. */
typedef struct row_sums {
    float largest, wanted, target_exp, others;
} row_sums;

SL_INLINE row_sums sum_row(float *row, int64_t count, int64_t target, bool keep)
{
    row_sums sums = {.largest = row_largest(row, count), .wanted = row[target]};
    float lanes[VF_LANES];
    vf_store(lanes, vf_exp(vf_set1(sums.wanted - sums.largest)), VF_LANES);
    sums.target_exp = lanes[0];
    row[target] = -INFINITY;
    sums.others = row_exp_sum(row, count, sums.largest, keep ? row : NULL);
    return sums;
}

static double loss_of(row_sums sums)
{
    if (sums.target_exp > 0.5f)
        return log1p((double) sums.others / (double) sums.target_exp);
    return (double) sums.largest - (double) sums.wanted + log((double) sums.others + (double) sums.target_exp);
}

static void cap_row(float *row, int64_t count, float cap)
{
    const vf caps = vf_set1(cap);
    for (int64_t i = 0; i < count; i += VF_LANES) {
        const int lanes = (int) SL_MIN(VF_LANES, count - i);
        vf slope;
        vf_store(row + i, vf_mul(vf_tanh(vf_div(vf_load(row + i, lanes), caps), &slope), caps), lanes);
    }
}

static double row_loss(float *row, int64_t count, int64_t target, float cap)
{
    if (cap > 0)
        cap_row(row, count, cap);
    return loss_of(sum_row(row, count, target, false));
}

/* What turns a row's elements, exponentials or capped logits, into gradients. */
typedef struct row_factors {
    float largest, inverse, scale, cap; /* inverse: of the sum */
} row_factors;

SL_INLINE vf gradient_step(const row_factors *by, vf x, bool capped)
{
    if (!capped)
        return vf_mul(vf_mul(x, vf_set1(by->inverse)), vf_set1(by->scale));
    const vf t = vf_div(x, vf_set1(by->cap)), e = vf_exp(vf_sub(x, vf_set1(by->largest)));
    const vf slope = vf_fnma(t, t, vf_set1(1.0f));
    return vf_mul(vf_mul(vf_mul(e, vf_set1(by->inverse)), vf_set1(by->scale)), slope);
}

/* bf16 is half as wide: what is written always lies before what is still to be read. */
SL_INLINE void write_gradients(const row_factors *by, float *row, int64_t count, bool capped, bool bf16)
{
    for (int64_t i = 0; i < count; i += VF_LANES) {
        const int lanes = (int) SL_MIN(VF_LANES, count - i);
        vf_put(row, i, gradient_step(by, vf_load(row + i, lanes), capped), lanes, bf16);
    }
}

SL_INLINE double row_gradient_of(float *row, int64_t count, int64_t target, float scale, float cap, bool bf16)
{
    const bool capped = cap > 0;
    if (capped)
        cap_row(row, count, cap);
    const row_sums sums = sum_row(row, count, target, !capped);
    const row_factors by = {sums.largest, 1.0f / (sums.others + sums.target_exp), scale, cap};
    float at_target = -sums.others * by.inverse * scale;
    if (capped) {
        at_target *= fmaf(-sums.wanted / cap, sums.wanted / cap, 1.0f);
        write_gradients(&by, row, count, true, bf16);
    } else {
        write_gradients(&by, row, count, false, bf16);
    }
    if (bf16) {
        const sl_bf16 rounded = sl_f32_to_bf16(at_target);
        memcpy((char *) row + target * 2, &rounded, 2);
    } else {
        row[target] = at_target;
    }
    return loss_of(sums);
}

static double row_gradient(float *row, int64_t count, int64_t target, float scale, float cap, bool bf16)
{
    if (bf16)
        return row_gradient_of(row, count, target, scale, cap, true);
    return row_gradient_of(row, count, target, scale, cap, false);
}

static const sl_head_isa isa = {.gemm = &SL_ISA_SYMBOL(sl_gemm), .loss = row_loss, .loss_and_gradient = row_gradient};

static size_t workspace(const sl_launch *launch, int threads)
{
    return sl_head_loss_workspace(&isa, launch, threads);
}

static void run(const sl_launch *launch, sl_pool *pool)
{
    sl_head_loss_run(&isa, launch, pool);
}

SL_CPU_KERNEL(head_loss, SL_OP_HEAD_LOSS, .supports = SL_GEMM_SUPPORTS, .workspace = workspace, .run = run);
SL_CPU_KERNEL(head_loss_bwd, SL_OP_HEAD_LOSS_BWD, .supports = SL_GEMM_SUPPORTS, .workspace = workspace, .run = run);
