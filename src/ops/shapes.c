#include "ops/shapes.h"

#include <stdio.h>
#include <string.h>

#include "ops/fill.h"

sl_status sl_shapes_add(sl_op_shapes *shapes, const char *suffix, const sl_op_case *op_case)
{
    SL_ASSERT(shapes->count < SL_MOST_VARIANTS);
    sl_op_variant *v = &shapes->variants[shapes->count];
    SL_TRY(sl_op_case_launch(shapes->op, op_case, &v->launch));
    snprintf(v->name, sizeof v->name, "%s%s%s", sl_op(shapes->op)->name, suffix[0] ? " " : "", suffix);
    shapes->count++;
    return SL_OK;
}

sl_type sl_shapes_matrix(const sl_op_shapes *shapes, int64_t rows, int64_t columns)
{
    return sl_type_2d(shapes->dtype, rows, columns);
}

sl_type sl_shapes_wide(const sl_op_shapes *shapes)
{
    return sl_shapes_matrix(shapes, shapes->sizes.n, shapes->sizes.d);
}

sl_type sl_shapes_hidden(const sl_op_shapes *shapes)
{
    return sl_shapes_matrix(shapes, shapes->sizes.n, shapes->sizes.f);
}

sl_status sl_shapes_unary(sl_op_shapes *shapes)
{
    return sl_shapes_add(shapes, "", &(const sl_op_case){.in = {sl_shapes_wide(shapes)}});
}

sl_status sl_shapes_binary(sl_op_shapes *shapes)
{
    return sl_shapes_add(shapes, "", &(const sl_op_case){.in = {sl_shapes_wide(shapes), sl_shapes_wide(shapes)}});
}

static sl_status add_largest_case(sl_op_shapes *shapes)
{
    const sl_op_def *def = sl_op(shapes->op);
    const sl_op_case *largest = NULL;
    size_t most = 0;
    for (int64_t c = 0; c < def->n_cases; c++) {
        size_t bytes = 0;
        for (int i = 0; i < def->n_in; i++)
            bytes += sl_type_bytes(&def->cases[c].in[i]);
        if (def->cases[c].in[0].dtype == shapes->dtype && bytes > most)
            most = bytes, largest = &def->cases[c];
    }
    return largest ? sl_shapes_add(shapes, "(test shape)", largest) : SL_OK;
}

sl_status sl_op_shapes_of(sl_op_id op, sl_dtype dtype, const sl_op_sizes *sizes, sl_op_shapes *shapes)
{
    memset(shapes, 0, sizeof *shapes);
    shapes->op = op;
    shapes->dtype = dtype;
    shapes->sizes = *sizes;
    return sl_op(op)->shapes ? sl_op(op)->shapes(shapes) : add_largest_case(shapes);
}
