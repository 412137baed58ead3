/* What a signature's time depends on, and which signatures' times follow from others'. */
#include <string.h>

#include "core/text.h"
#include "cost/internal.h"

#define LARGEST_SIGNATURE ((size_t) 256 << 20) /* larger updates are measured on a part and scaled */

double sl_signature_shrink(sl_launch *launch)
{
    size_t bytes = sl_launch_bytes(launch);
    if (bytes <= LARGEST_SIGNATURE || !sl_op(launch->op)->linear)
        return 1;
    int64_t whole = launch->in[0].type.dim[0], each = (int64_t) bytes / whole; /* bytes of an element, padding aside */
    int64_t part = (int64_t) LARGEST_SIGNATURE / each;
    for (int i = 0; i < SL_MAX_IN; i++)
        if (launch->in[i].type.dim[0] == whole)
            launch->in[i].type.dim[0] = part;
    for (int k = 0; k < SL_MAX_OUT; k++)
        if (launch->out[k].type.dim[0] == whole)
            launch->out[k].type.dim[0] = part;
    if (sl_op(launch->op)->shorten)
        sl_op(launch->op)->shorten(&launch->attrs, part);
    return (double) whole / (double) part;
}

int64_t sl_signature_sequences(const sl_program *program, int32_t signature)
{
    const sl_task *task = &program->tasks[program->signatures[signature].example];
    if (!sl_op(task->op)->segments || task->chunk < 0 || task->chunk >= program->n_chunks)
        return 0;
    return SL_MAX(program->chunks[task->chunk].n_sequences, 1);
}

static void describe_type(sl_text *key, const sl_type *type)
{
    if (!type->rank) {
        sl_text_printf(key, " -");
        return;
    }
    sl_text_printf(key, " %s[", sl_dtype_name(type->dtype));
    for (int i = 0; i < type->rank; i++)
        sl_text_printf(key, "%s%lld", i ? "," : "", (long long) type->dim[i]);
    sl_text_printf(key, "]");
}

void sl_signature_describe(sl_text *key, const sl_launch *launch, int64_t sequences)
{
    sl_text_printf(key, "%s", sl_op(launch->op)->name);
    for (int i = 0; i < sl_op(launch->op)->n_in; i++)
        describe_type(key, &launch->in[i].type);
    sl_text_printf(key, " ->");
    for (int k = 0; k < sl_op(launch->op)->n_out; k++)
        describe_type(key, &launch->out[k].type);
    sl_text_printf(key, " +%x *%lld", launch->accumulate, (long long) sequences);
    for (int64_t i = 0; i < SL_COUNT(launch->attrs.raw); i++)
        sl_text_printf(key, " %llx", (unsigned long long) launch->attrs.raw[i]);
}

bool sl_signature_same(const sl_launch *a, const sl_launch *b)
{
    bool same = a->op == b->op && a->accumulate == b->accumulate && memcmp(&a->attrs, &b->attrs, sizeof a->attrs) == 0;
    for (int i = 0; i < SL_MAX_IN && same; i++)
        same = memcmp(&a->in[i].type, &b->in[i].type, sizeof a->in[i].type) == 0;
    for (int k = 0; k < SL_MAX_OUT && same; k++)
        same = memcmp(&a->out[k].type, &b->out[k].type, sizeof a->out[k].type) == 0;
    return same;
}

int64_t sl_signature_slice_offset(const sl_launch *launch)
{
    sl_attrs attrs = launch->attrs;
    int64_t (*clear_slice)(sl_attrs *) = sl_op(launch->op)->clear_slice;
    return clear_slice ? clear_slice(&attrs) : 0;
}

bool sl_signature_are_slices(const sl_launch *a, const sl_launch *b)
{
    int64_t (*clear_slice)(sl_attrs *) = sl_op(a->op)->clear_slice;
    if (a->op != b->op || !clear_slice || a->accumulate != b->accumulate)
        return false;
    sl_attrs x = a->attrs, y = b->attrs;
    clear_slice(&x);
    clear_slice(&y);
    return memcmp(&x, &y, sizeof x) == 0 && memcmp(&a->in[0].type, &b->in[0].type, sizeof a->in[0].type) == 0;
}
