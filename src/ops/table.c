/* The table of ops, and the few functions that look at any op alike. */
#include <stdio.h>
#include <string.h>

#include "ops/common.h"

#define SL_OP(ID, name) extern const sl_op_def sl_op_##name;
#include "ops/ops.def"
#undef SL_OP

static const sl_op_def *const table[SL_OP_COUNT] = {
#define SL_OP(ID, name) [SL_OP_##ID] = &sl_op_##name,
#include "ops/ops.def"
#undef SL_OP
};

const sl_op_def *sl_op(sl_op_id id)
{
    SL_ASSERT((int) id >= 0 && id < SL_OP_COUNT);
    return table[id];
}

const sl_op_def *sl_op_find(const char *name)
{
    for (int id = 0; id < SL_OP_COUNT; id++)
        if (strcmp(table[id]->name, name) == 0)
            return table[id];
    return NULL;
}

const char *sl_category_name(sl_category category)
{
    static const char *const names[] = {"elementwise", "reduction", "dot-product", "attention", "optimizer"};
    return names[category];
}

sl_op_id sl_op_of_role(sl_op_role role)
{
    for (int id = 0; id < SL_OP_COUNT; id++)
        if (table[id]->role == role)
            return (sl_op_id) id;
    SL_ASSERT(!"every role has an op");
    return SL_OP_COUNT;
}

sl_attrs sl_op_attrs(sl_op_id id, const void *attrs)
{
    sl_attrs all = {{0}};
    SL_ASSERT(sl_op(id)->attrs_bytes <= sizeof all);
    if (attrs)
        memcpy(&all, attrs, sl_op(id)->attrs_bytes);
    return all;
}

uint32_t sl_op_reads_out(const sl_launch *launch)
{
    const sl_op_def *def = sl_op(launch->op);
    uint32_t present = 0;
    for (int k = 0; k < def->n_out; k++)
        present |= launch->out[k].type.rank ? 1u << k : 0;
    return ((launch->accumulate & def->can_accumulate) | def->updates) & present;
}

const char *sl_type_format(const sl_type *type, char out[96])
{
    const char *name = sl_dtype_name(type->dtype);
    long long d[SL_MAX_RANK] = {type->dim[0], type->dim[1], type->dim[2]};
    if (type->rank <= 0)
        snprintf(out, 96, "absent");
    else if (type->rank == 1)
        snprintf(out, 96, "%s [%lld]", name, d[0]);
    else if (type->rank == 2)
        snprintf(out, 96, "%s [%lld, %lld]", name, d[0], d[1]);
    else
        snprintf(out, 96, "%s [%lld, %lld, %lld]", name, d[0], d[1], d[2]);
    return out;
}

static bool same_shape(const sl_type *a, const sl_type *b)
{
    if (a->rank != b->rank)
        return false;
    for (int32_t i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

bool sl_type_equal(const sl_type *a, const sl_type *b)
{
    return a->dtype == b->dtype && same_shape(a, b);
}

sl_status sl_expect(const char *op, const char *operand, const sl_type *type, sl_type want)
{
    if (sl_type_equal(type, &want))
        return SL_OK;
    char is[96], should[96];
    return sl_fail(SL_E_INTERNAL, "%s: operand %s must be %s but is %s", op, operand, sl_type_format(&want, should),
                   sl_type_format(type, is));
}

sl_status sl_expect_float(const char *op, const char *operand, const sl_type *type, int32_t rank)
{
    bool good = type->rank >= 1 && type->rank <= SL_MAX_RANK && (rank == 0 || type->rank == rank) &&
                sl_dtype_is_float(type->dtype);
    for (int32_t i = 0; good && i < type->rank; i++)
        good = type->dim[i] >= 1;
    if (good)
        return SL_OK;
    char is[96];
    return sl_fail(SL_E_INTERNAL, "%s: operand %s must be floating-point with %d dimension%s of at least 1 but is %s",
                   op, operand, rank ? (int) rank : SL_MAX_RANK,
                   rank == 1 ? ""
                   : rank    ? "s"
                             : "s at most",
                   sl_type_format(type, is));
}

sl_status sl_expect_index(const char *op, const char *operand, const sl_type *type, int64_t least)
{
    if (type->dtype == SL_I32 && type->rank == 1 && type->dim[0] >= least)
        return SL_OK;
    char is[96];
    return sl_fail(SL_E_INTERNAL, "%s: operand %s must be i32 [at least %lld] but is %s", op, operand,
                   (long long) least, sl_type_format(type, is));
}

sl_status sl_expect_step(const char *op, const sl_type *type)
{
    return sl_expect(op, "step", type, sl_type_1d(SL_I32, SL_STEP_WORDS));
}

sl_status sl_gradient_emit(sl_gradient *gradient, sl_op_id op, const sl_attrs *attrs, const sl_value *in, int n_in,
                           int n_out)
{
    int targets[SL_MAX_OUT];
    bool needed = false;
    for (int k = 0; k < n_out; k++) {
        targets[k] = gradient->need[k] ? k : SL_TARGET_NONE;
        needed |= gradient->need[k];
    }
    if (!needed || gradient->d_out[0] == SL_NO_VALUE)
        return SL_OK;
    return gradient->emit(gradient, op, attrs, in, n_in, targets, n_out);
}

sl_status sl_expect_weights(const char *op, const sl_type *type, int64_t rows)
{
    return type->rank ? sl_expect(op, "weights", type, sl_type_1d(SL_F32, rows)) : SL_OK;
}

size_t sl_estimate_column_sums(const sl_launch *launch)
{
    enum { BLOCKS = 264 }; /* two on each of an H200's processors */
    return (size_t) SL_MAX(launch->in[0].type.dim[1], (int64_t) 1) * sizeof(float) * BLOCKS * 2;
}

void sl_work_bytes(const sl_launch *launch, sl_work *work)
{
    const sl_op_def *def = sl_op(launch->op);
    uint32_t reads_out = sl_op_reads_out(launch);
    *work = (sl_work){0};
    for (int i = 0; i < def->n_in; i++)
        work->read_bytes += (double) sl_type_bytes(&launch->in[i].type);
    for (int k = 0; k < def->n_out; k++) {
        double bytes = (double) sl_type_bytes(&launch->out[k].type);
        work->write_bytes += bytes;
        work->read_bytes += reads_out >> k & 1u ? bytes : 0;
    }
}

void sl_work_flops(const sl_launch *launch, double flops, sl_work *work)
{
    sl_work_bytes(launch, work);
    work->flops = work->hardware_flops = flops;
}
