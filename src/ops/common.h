/*
 * What the op files share: element access for references, shape checks for infer, byte counts for work.
 *
 * References convert bf16 on load, compute in f32 or f64, and round to nearest once, on store. They are read as the
 * definition of the op, so they are written as the formula and not for speed.
 */
#ifndef SL_OPS_COMMON_H
#define SL_OPS_COMMON_H

#include "core/bf16.h"
#include "ops/op.h"

/* Types inside static tables of cases. */
#define SL_T1(dtype, n) \
    {                   \
        dtype, 1,       \
        {               \
            n           \
        }               \
    }
#define SL_T2(dtype, rows, columns) \
    {                               \
        dtype, 2,                   \
        {                           \
            rows, columns           \
        }                           \
    }
#define SL_T3(dtype, a, b, c) \
    {                         \
        dtype, 3,             \
        {                     \
            a, b, c           \
        }                     \
    }
#define SL_STEP_TYPE      \
    {                     \
        SL_I32, 1,        \
        {                 \
            SL_STEP_WORDS \
        }                 \
    }

/* What carries the op's own name in its descriptor. */
#define SL_OP_PARTS(op) \
    .name = #op, .infer = op##_infer, .reference = op##_reference, .cases = op##_cases, .n_cases = SL_COUNT(op##_cases)

/* One bf16 rounding that falls the other way: an ulp is at most 2^-7 of the value. */
#define SL_BF16_ULP 0.0079

static inline bool sl_present(const sl_operand *x)
{
    return x->data != NULL;
}

static inline float sl_get(const sl_operand *x, int64_t i)
{
    return sl_dtype_load(x->type.dtype, x->data, i);
}

static inline int32_t sl_get_i32(const sl_operand *x, int64_t i)
{
    return ((const int32_t *) x->data)[i];
}

static inline void sl_put(const sl_operand *y, int64_t i, float value)
{
    sl_dtype_store(y->type.dtype, y->data, i, value);
}

static inline bool sl_accumulates(const sl_launch *launch, int k)
{
    return launch->accumulate >> k & 1u;
}

/* What a row of a loss counts: 1 where nothing else is said. */
static inline float sl_get_weight(const sl_operand *weights, int64_t i)
{
    return sl_present(weights) ? sl_get(weights, i) : 1;
}

/* out[k][i] = value, or += where the launch accumulates; one rounding either way. Nothing where out[k] is absent. */
static inline void sl_put_out(const sl_launch *launch, int k, int64_t i, double value)
{
    const sl_operand *y = &launch->out[k];
    if (!sl_present(y))
        return;
    if (sl_accumulates(launch, k))
        value += sl_get(y, i);
    sl_put(y, i, (float) value);
}

/* What a launch's sums of columns are: one sum for each column of out[0]. */
static inline sl_type sl_column_sums_type(const sl_type *x)
{
    return sl_type_1d(x->dtype, x->dim[x->rank - 1]);
}

/* "bf16 [128, 64]" */
const char *sl_type_format(const sl_type *type, char out[96]);
bool sl_type_equal(const sl_type *a, const sl_type *b);

/* Checks for infer: the message names op, operand, what was needed and what there was. */
sl_status sl_expect(const char *op, const char *operand, const sl_type *type, sl_type want);
/* f32 or bf16 with this rank (0: any) and positive dims. */
sl_status sl_expect_float(const char *op, const char *operand, const sl_type *type, int32_t rank);
/* i32 of rank 1. */
sl_status sl_expect_index(const char *op, const char *operand, const sl_type *type, int64_t least);
sl_status sl_expect_step(const char *op, const sl_type *type);
/* What each of a loss's rows counts: absent, or f32 [rows]. */
sl_status sl_expect_weights(const char *op, const sl_type *type, int64_t rows);

/* A gradient rule of one launch: its outputs are the gradients of the first `n_out` inputs, absent where none is needed. Emits nothing
 * where none of them is, or where out[0] has no gradient. */
sl_status sl_gradient_emit(sl_gradient *gradient, sl_op_id op, const sl_attrs *attrs, const sl_value *in, int n_in,
                           int n_out);

/* As estimate_workspace of a sum over rows: two sums of each of in[0]'s columns for every block of threads, in f32. */
size_t sl_estimate_column_sums(const sl_launch *launch);

/* Every present operand read or written once, updated outputs both; no flops. What most ops' work() is. */
void sl_work_bytes(const sl_launch *launch, sl_work *work);
/* The same with this many flops, all of them needed. */
void sl_work_flops(const sl_launch *launch, double flops, sl_work *work);

#endif
