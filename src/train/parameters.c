/*
 * Parameters by the names that files give them. One of ours may hold several tensors of a file (q, k and v in qkv),
 * each of which counts as a parameter here. The store finds the bytes, sl_param_read_part and sl_param_write_part the
 * order of the elements.
 */
#include <inttypes.h>
#include <string.h>

#include "core/sized.h"
#include "core/suggest.h"
#include "train/run.h"

typedef struct place {
    const sl_param *param;
    int32_t index; /* of `param` */
    int part;
} place;

/* Steps through all of them, beginning with a zeroed place. */
static bool next_place(const sl_program *program, place *at)
{
    at->part = at->param ? at->part + 1 : 0;
    if (at->param && at->part == at->param->n_parts)
        at->index++, at->part = 0;
    at->param = &program->params[at->index];
    return at->index < program->n_params;
}

static sl_status find(const sl_trainer *t, const char *name, place *found)
{
    place at = {0};
    if (!name)
        return sl_fail(SL_E_USAGE, "the name of a parameter is NULL");
    sl_suggestion suggestion = {.word = name};
    while (next_place(t->prepared.program, &at)) {
        if (strcmp(at.param->parts[at.part].name, name) == 0) {
            *found = at;
            return SL_OK;
        }
        sl_suggest(&suggestion, at.param->parts[at.part].name);
    }
    const char *near = sl_suggested(&suggestion);
    return sl_fail(SL_E_USAGE, "the model has no parameter \"%s\"%s%s%s; sl_trainer_parameter lists them", name,
                   near ? ": did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static int64_t count_of(const place *at)
{
    return at->param->parts[at->part].rows * (at->param->type.rank == 2 ? at->param->type.dim[1] : 1);
}

int64_t sl_trainer_parameter_count(const sl_trainer *t)
{
    int64_t count = 0;
    for (place at = {0}; next_place(t->prepared.program, &at);)
        count++;
    return count;
}

sl_status sl_trainer_parameter(const sl_trainer *t, int64_t index, sl_parameter_info *out)
{
    int64_t count = sl_trainer_parameter_count(t);
    place at = {0};
    if (index < 0 || index >= count)
        return sl_fail(SL_E_USAGE, "there is no parameter %" PRId64 ": there are %" PRId64 ", the first is 0", index,
                       count);
    for (int64_t i = 0; i <= index; i++)
        next_place(t->prepared.program, &at);
    const sl_param_part *part = &at.param->parts[at.part];
    bool matrix = at.param->type.rank == 2, transposed = matrix && part->transposed;
    int64_t columns = matrix ? at.param->type.dim[1] : 0;
    sl_parameter_info info = {
        .name = part->name,
        .option_name = at.param->name,
        .dtype = sl_dtype_name(at.param->type.dtype),
        .rows = transposed ? columns : part->rows,
        .columns = transposed ? part->rows : columns,
        .count = count_of(&at),
        .stored_bytes = (size_t) count_of(&at) * sl_dtype_bytes(at.param->type.dtype),
        .trainable = !at.param->frozen,
    };
    return sl_sized_put(out, &info, sizeof info, "sl_parameter_info");
}

/* What a read or write goes to: the parameter, and the dtype of `values`. */
static sl_status check_values(const sl_trainer *t, const char *name, sl_parameter_format format, const void *values,
                              size_t bytes, place *at, sl_dtype *as)
{
    SL_TRY(find(t, name, at));
    *as = format == SL_PARAMETER_STORED ? at->param->type.dtype : SL_F32;
    size_t needed = (size_t) count_of(at) * sl_dtype_bytes(*as);
    if (format != SL_PARAMETER_F32 && format != SL_PARAMETER_STORED)
        return sl_fail(SL_E_USAGE, "there is no parameter format %d", (int) format);
    if (!values || bytes != needed)
        return sl_fail(SL_E_USAGE, "%s has %" PRId64 " elements, %zu bytes of %s, not %zu%s", name, count_of(at),
                       needed, sl_dtype_name(*as), values ? bytes : 0, values ? "" : ": `values` is NULL");
    return SL_OK;
}

sl_status sl_trainer_read_parameter(sl_trainer *t, const char *name, sl_parameter_format format, void *values,
                                    size_t bytes)
{
    place at = {0};
    sl_dtype as;
    SL_TRY(check_values(t, name, format, values, bytes, &at, &as));
    bool master = format == SL_PARAMETER_F32 && sl_store_has(&t->store, SL_PART_MASTER, at.index);
    sl_store_part from = {&t->store, at.index, master ? SL_PART_MASTER : SL_PART_WEIGHT};
    return sl_param_read_part(at.param, at.part, sl_store_dtype(&t->store, from.part), t->store.buffer,
                              SL_PARAM_BUFFER_BYTES, sl_store_read_part, &from, as, values);
}

static sl_status write_part(sl_trainer *t, const place *at, sl_part part, sl_dtype as, const void *values)
{
    sl_store_part to = {&t->store, at->index, part};
    if (!sl_store_has(&t->store, part, at->index))
        return SL_OK;
    return sl_param_write_part(at->param, at->part, sl_store_dtype(&t->store, part), t->store.buffer,
                               SL_PARAM_BUFFER_BYTES, sl_store_write_part, &to, as, values);
}

sl_status sl_trainer_write_parameter(sl_trainer *t, const char *name, sl_parameter_format format, const void *values,
                                     size_t bytes)
{
    place at = {0};
    sl_dtype as;
    if (t->failed)
        return sl_fail(t->failed, "the run has failed: its parameters cannot be set any more");
    SL_TRY(check_values(t, name, format, values, bytes, &at, &as));
    SL_TRY(write_part(t, &at, SL_PART_WEIGHT, as, values));
    t->altered = true;
    return write_part(t, &at, SL_PART_MASTER, as, values);
}
