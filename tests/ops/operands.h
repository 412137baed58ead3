/* Operands from plain arrays, and their values: for tests of one launch at a time. */
#ifndef SL_TESTS_OPERANDS_H
#define SL_TESTS_OPERANDS_H

#include "core/rng.h"
#include "ops/launch.h"
#include "optim/element.h"

static inline sl_operand f32(float *data, int64_t rows, int64_t columns)
{
    sl_operand x = {data, columns ? sl_type_2d(SL_F32, rows, columns) : sl_type_1d(SL_F32, rows)};
    return x;
}

static inline sl_operand i32(int32_t *data, int64_t count)
{
    sl_operand x = {data, sl_type_1d(SL_I32, count)};
    return x;
}

static inline sl_operand step_operand(sl_step_params *step)
{
    sl_operand x = {step, sl_type_1d(SL_I32, SL_STEP_WORDS)};
    return x;
}

static inline void check_values(const float *got, const float *want, int64_t count, const char *what)
{
    for (int64_t i = 0; i < count; i++)
        CHECK_MSG(fabsf(got[i] - want[i]) <= 2e-6f * fmaxf(1, fabsf(want[i])), "%s[%lld] is %.9g, not %.9g", what,
                  (long long) i, (double) got[i], (double) want[i]);
}

static inline void run(const sl_launch *launch)
{
    sl_op(launch->op)->reference(launch);
}

static inline void random_floats(float *x, int64_t count, uint64_t seed)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = 2 * sl_rng_uniform(sl_philox(seed, (uint64_t) i, 0).v[0]) - 1;
}

#endif
