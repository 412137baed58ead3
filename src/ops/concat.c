/* Concatenation along columns of two to four matrices with equally many rows: y = [a | b | c | d]. The gradient of an input is its slice
 * of dy. Nothing is rounded. */
#include "ops/common.h"
#include "ops/shapes.h"
#include "ops/slice.h"

enum { MOST_INPUTS = 4 };
static const char *const names[MOST_INPUTS] = {"a", "b", "c", "d"};

static sl_status concat_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    int64_t columns = 0;
    (void) attrs;
    for (int i = 0; i < MOST_INPUTS; i++) {
        if (i >= 2 && !in[i].rank)
            continue;
        SL_TRY(sl_expect_float("concat", names[i], &in[i], 2));
        SL_TRY(sl_expect("concat", names[i], &in[i], sl_type_2d(in[0].dtype, in[0].dim[0], in[i].dim[1])));
        columns += in[i].dim[1];
    }
    out[0] = sl_type_2d(in[0].dtype, in[0].dim[0], columns);
    return SL_OK;
}

static void concat_reference(const sl_launch *launch)
{
    const sl_operand *y = &launch->out[0];
    int64_t first = 0;
    for (int i = 0; i < MOST_INPUTS; i++) {
        const sl_operand *x = &launch->in[i];
        const int64_t width = x->type.dim[1];
        for (int64_t e = 0; e < sl_type_count(&x->type); e++)
            sl_put(y, e / width * y->type.dim[1] + first + e % width, sl_get(x, e));
        first += width;
    }
}

static sl_status concat_gradient(sl_gradient *gradient)
{
    sl_attrs attrs = {0};
    for (int i = 0; i < MOST_INPUTS && gradient->d_out[0] != SL_NO_VALUE; i++) {
        struct sl_slice_attrs *slice = sl_slice_set(&attrs);
        slice->rows = gradient->in_type[0].dim[0];
        slice->columns = gradient->in_type[i].dim[1];
        if (gradient->need[i])
            SL_TRY(gradient->emit(gradient, SL_OP_SLICE, &attrs, gradient->d_out, 1, &i, 1));
        slice->first_column += slice->columns;
    }
    return SL_OK;
}

static const sl_op_case concat_cases[] = {
    {.name = "f32 two", .in = {SL_T2(SL_F32, 5, 64), SL_T2(SL_F32, 5, 32)}},
    {.name = "f32 three, odd", .in = {SL_T2(SL_F32, 7, 1), SL_T2(SL_F32, 7, 37), SL_T2(SL_F32, 7, 3)}},
    {.name = "f32 four", .in = {SL_T2(SL_F32, 3, 8), SL_T2(SL_F32, 3, 4), SL_T2(SL_F32, 3, 16), SL_T2(SL_F32, 3, 5)}},
    {.name = "bf16 two", .in = {SL_T2(SL_BF16, 100, 512), SL_T2(SL_BF16, 100, 256)}},
    {.name = "bf16 four, odd",
     .in = {SL_T2(SL_BF16, 9, 17), SL_T2(SL_BF16, 9, 333), SL_T2(SL_BF16, 9, 2), SL_T2(SL_BF16, 9, 8)}},
};

const sl_op_def sl_op_concat = {
    SL_OP_PARTS(concat), .category = SL_CAT_ELEMENTWISE, .n_in = MOST_INPUTS,         .n_out = 1,
    .optional_in = 0xc,  .work = sl_work_bytes,          .gradient = concat_gradient, .tolerance = {0, 0},
    .any_values = true,  .shapes = sl_shapes_binary,
};
