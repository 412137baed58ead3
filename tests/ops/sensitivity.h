/*
 * How large an error of each element may be. Relative to a tensor's largest element, small elements may be completely wrong; relative
 * to itself, an element that is zero by cancellation may have no error at all. What rounding does to an element is what rounding its
 * inputs would do: so the reference runs some times more, with every input (and every output that it reads) moved up or down by a
 * small share at random, and an element's sensitivity is the largest change over that share.
 *
 *     y = a0 b0 + a1 b1 + ...     sensitivity: about the root of (a0 b0)^2 + (a1 b1)^2 + ...
 *     y = gamma x / rms           sensitivity: about |y|
 *
 * It comes from the reference alone, for any op, and says for each element what its op's tolerance is relative to.
 */
#ifndef SL_TESTS_OPS_SENSITIVITY_H
#define SL_TESTS_OPS_SENSITIVITY_H

#include "ops/launch.h"

/* Two summands that move alike in every trial hide how far they cancel: of n trials that happens once in 2^(n-1). */
enum { SENSITIVITY_TRIALS = 12 };

typedef struct test_sensitivity {
    float *of[SL_MAX_OUT]; /* per element of an output; NULL: absent */
} test_sensitivity;

static inline void test_move(sl_operand *x, uint64_t key, float share)
{
    if (!x->data || (x->type.dtype != SL_F32 && x->type.dtype != SL_BF16))
        return;
    for (int64_t i = 0; i < sl_type_count(&x->type); i++) {
        uint32_t random = sl_philox(key, (uint64_t) i, 0).v[0];
        sl_put(x, i, sl_get(x, i) * (random & 1 ? 1 + share : 1 - share));
    }
}

/* `want`: after the reference ran; `start`: its memory before that, without the workspace, of `start_bytes`. */
static inline void test_sense(const test_launch *want, const unsigned char *start, size_t start_bytes,
                              test_sensitivity *s)
{
    const sl_op_def *def = sl_op(want->launch.op);
    const uint32_t read = def->updates | want->launch.accumulate;
    test_launch moved = *want;
    bool bf16 = false;
    memset(s, 0, sizeof *s);
    CHECK_OK(sl_alloc_aligned(&moved.memory, want->bytes, 1, 256));
    test_layout(&moved, want->launch.workspace_bytes, moved.memory);
    for (int i = 0; i < SL_MAX_IN; i++)
        bf16 |= want->launch.in[i].data && want->launch.in[i].type.dtype == SL_BF16;
    const float share = bf16 ? 0x1p-5f : 0x1p-10f; /* well above what rounding the result does */
    for (int k = 0; k < def->n_out; k++)
        if (want->launch.out[k].data)
            CHECK_OK(sl_alloc(&s->of[k], sl_type_count(&want->launch.out[k].type), sizeof(float)));
    for (uint64_t trial = 0; trial < SENSITIVITY_TRIALS; trial++) {
        memcpy(moved.memory, start, start_bytes);
        for (int i = 0; i < SL_MAX_IN; i++)
            test_move(&moved.launch.in[i], trial * 100 + (uint64_t) i, share);
        for (int k = 0; k < def->n_out; k++)
            if (read >> k & 1u)
                test_move(&moved.launch.out[k], trial * 100 + 50 + (uint64_t) k, share);
        def->reference(&moved.launch);
        for (int k = 0; k < def->n_out; k++)
            for (int64_t i = 0; s->of[k] && i < sl_type_count(&want->launch.out[k].type); i++) {
                float change = fabsf(sl_get(&moved.launch.out[k], i) - sl_get(&want->launch.out[k], i)) / share;
                if (isfinite(change))
                    s->of[k][i] = fmaxf(s->of[k][i], change);
            }
    }
    sl_free(moved.memory);
}

static inline void test_sensitivity_free(test_sensitivity *s)
{
    for (int k = 0; k < SL_MAX_OUT; k++) {
        sl_free(s->of[k]);
        s->of[k] = NULL;
    }
}

/* The largest difference of an element, relative to its magnitude and sensitivity; *where is the element. What is below 1e-30 may be
 * flushed to zero. Infinite where one is NaN and the other not, or an infinity differs. */
static inline double test_element_error(const sl_operand *got, const sl_operand *want, const float *sensitivity,
                                        int64_t *where)
{
    double worst = 0;
    *where = 0;
    for (int64_t i = 0; i < sl_type_count(&want->type); i++) {
        double a = (double) sl_get(got, i), b = (double) sl_get(want, i), error = 0;
        if (isnan(a) != isnan(b) || isinf(a) != isinf(b) || (isinf(b) && a != b))
            error = INFINITY;
        else if (isfinite(b) && a != b)
            error = fabs(a - b) / (fabs(b) + (double) sensitivity[i] + 1e-30);
        if (error > worst) {
            worst = error;
            *where = i;
        }
    }
    return worst;
}

#endif
