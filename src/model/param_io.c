/*
 * Parameters to and from files. Ours are fused and row-major; a part is some rows of one, stored under its own name, possibly
 * transposed:
 *
 *     qkv [a+2k, d]  =  q_proj [a, d]  over  k_proj [k, d]  over  v_proj [k, d]         c_attn [d, 3d]  =  transpose of qkv
 *
 * Rows stream straight through. A transposed part is loaded by blocks of our rows (columns of the file) and saved by blocks
 * of file rows (our columns), or read in one piece when the caller's buffer is large enough.
 */
#include <stdio.h>
#include <string.h>

#include "model/safetensors.h"

enum { NAME_BYTES = 256 };

static int64_t columns_of(const sl_param *param)
{
    return param->type.rank == 2 ? param->type.dim[1] : 1;
}

/* Under its name, or without the leading "transformer." or "model." that some files leave out. */
static const sl_tensor *find_part(const sl_tensors *tensors, const char *prefix, const char *name)
{
    static const char *const optional[] = {"transformer.", "model."};
    char full[NAME_BYTES];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    const sl_tensor *tensor = sl_tensors_find(tensors, full);
    for (int64_t i = 0; i < SL_COUNT(optional) && !tensor && !prefix[0]; i++)
        if (strncmp(name, optional[i], strlen(optional[i])) == 0)
            tensor = sl_tensors_find(tensors, name + strlen(optional[i]));
    return tensor;
}

static sl_status check_part(const sl_tensors *tensors, const char *prefix, const sl_param *param,
                            const sl_param_part *part)
{
    const sl_tensor *tensor = find_part(tensors, prefix, part->name);
    int64_t columns = columns_of(param), want[2] = {part->rows, columns};
    if (!tensor) {
        const char *file = sl_tensors_count(tensors) ? sl_tensors_file(tensors, sl_tensors_at(tensors, 0)) : "the file";
        return sl_fail(SL_E_FORMAT, "%s: tensor \"%s%s\" is missing; is this another model's file?", file, prefix,
                       part->name);
    }
    if (part->transposed)
        want[0] = columns, want[1] = part->rows;
    if (tensor->rank != param->type.rank || tensor->dim[0] != want[0] ||
        (tensor->rank == 2 && tensor->dim[1] != want[1]))
        return sl_fail(SL_E_FORMAT,
                       "%s: tensor \"%s\" has rank %d and begins [%lld, %lld]; the model needs rank %d, [%lld, %lld]",
                       sl_tensors_file(tensors, tensor), tensor->name, tensor->rank, (long long) tensor->dim[0],
                       (long long) tensor->dim[1], param->type.rank, (long long) want[0], (long long) want[1]);
    return SL_OK;
}

sl_status sl_param_check(const sl_tensors *tensors, const sl_param *param)
{
    for (int i = 0; i < param->n_parts; i++)
        SL_TRY(check_part(tensors, "", param, &param->parts[i]));
    return SL_OK;
}

/* A vector is read as one row of many columns, so that a piece of it always fits. */
static sl_status load_part(sl_tensors *tensors, const char *prefix, const sl_param *param, const sl_param_part *part,
                           sl_dtype dtype, void *buffer, size_t buffer_bytes, sl_param_io write, void *context)
{
    const sl_tensor *tensor = find_part(tensors, prefix, part->name);
    int64_t size = (int64_t) sl_dtype_bytes(dtype), columns = columns_of(param), first = part->row * columns;
    int64_t room = (int64_t) buffer_bytes / size;
    if (!part->transposed) {
        for (int64_t done = 0; done < tensor->count; done += room) {
            int64_t piece = SL_MIN(room, tensor->count - done);
            SL_TRY(sl_tensors_read(tensors, tensor, done, piece, dtype, buffer));
            SL_TRY(write(context, (size_t) ((first + done) * size), buffer, (size_t) (piece * size)));
        }
        return SL_OK;
    }
    int64_t rows = room / columns;
    if (rows < 1)
        return sl_fail(SL_E_DOES_NOT_FIT, "loading \"%s\" needs a buffer of %lld bytes, not %zu", part->name,
                       (long long) (columns * size), buffer_bytes);
    for (int64_t done = 0; done < part->rows; done += rows) {
        int64_t piece = SL_MIN(rows, part->rows - done);
        SL_TRY(sl_tensors_read_transposed(tensors, tensor, done, piece, dtype, buffer));
        SL_TRY(write(context, (size_t) ((first + done * columns) * size), buffer, (size_t) (piece * columns * size)));
    }
    return SL_OK;
}

sl_status sl_param_load_prefixed(sl_tensors *tensors, const char *prefix, const sl_param *param, sl_dtype dtype,
                                 void *buffer, size_t buffer_bytes, sl_param_io write, void *context)
{
    for (int i = 0; i < param->n_parts; i++) {
        SL_TRY(check_part(tensors, prefix, param, &param->parts[i]));
        SL_TRY(load_part(tensors, prefix, param, &param->parts[i], dtype, buffer, buffer_bytes, write, context));
    }
    return SL_OK;
}

sl_status sl_param_load(sl_tensors *tensors, const sl_param *param, sl_dtype dtype, void *buffer, size_t buffer_bytes,
                        sl_param_io write, void *context)
{
    return sl_param_load_prefixed(tensors, "", param, dtype, buffer, buffer_bytes, write, context);
}

/* ---- saving ---- */

sl_status sl_param_declare(sl_tensors_writer *writer, const char *prefix, const sl_param *param, sl_dtype dtype)
{
    char name[NAME_BYTES];
    for (int i = 0; i < param->n_parts; i++) {
        const sl_param_part *part = &param->parts[i];
        int64_t columns = columns_of(param), dim[2] = {part->rows, columns};
        if (part->transposed)
            dim[0] = columns, dim[1] = part->rows;
        snprintf(name, sizeof name, "%s%s", prefix, part->name);
        SL_TRY(sl_tensors_writer_declare(writer, name, sl_file_dtype_of(dtype), param->type.rank, dim));
    }
    return SL_OK;
}

static void copy_elements(size_t size, char *to, int64_t to_step, const char *from, int64_t from_step, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        memcpy(to + (size_t) (i * to_step) * size, from + (size_t) (i * from_step) * size, size);
}

/* The part is at `all` as [rows, columns]; file rows are gathered into `scratch` a few at a time. */
static sl_status write_transposed(sl_tensors_writer *writer, const char *all, int64_t rows, int64_t columns,
                                  size_t size, char *scratch, size_t scratch_bytes)
{
    for (int64_t c = 0; c < columns; c++)
        for (int64_t done = 0, room = (int64_t) (scratch_bytes / size); done < rows; done += room) {
            int64_t piece = SL_MIN(room, rows - done);
            copy_elements(size, scratch, 1, all + (size_t) (done * columns + c) * size, columns, piece);
            SL_TRY(sl_tensors_writer_write(writer, scratch, (size_t) piece * size));
        }
    return SL_OK;
}

/* Blocks of `n` file rows: n columns of every one of our rows, gathered behind a strip that holds one row's piece. */
static sl_status save_transposed(sl_tensors_writer *writer, const sl_param_part *part, int64_t columns, size_t size,
                                 char *buffer, size_t buffer_bytes, sl_param_io read, void *context)
{
    size_t part_bytes = (size_t) (part->rows * columns) * size, first = (size_t) (part->row * columns) * size;
    if (part_bytes < buffer_bytes && buffer_bytes - part_bytes >= 4096) {
        SL_TRY(read(context, first, buffer, part_bytes));
        return write_transposed(writer, buffer, part->rows, columns, size, buffer + part_bytes,
                                buffer_bytes - part_bytes);
    }
    int64_t n = SL_MIN(columns, (int64_t) (buffer_bytes / size) / (part->rows + 1));
    if (n < 1)
        return sl_fail(SL_E_DOES_NOT_FIT, "saving \"%s\" needs a buffer of %zu bytes, not %zu", part->name,
                       (size_t) (part->rows + 1) * size, buffer_bytes);
    for (int64_t c = 0; c < columns; c += n) {
        int64_t piece = SL_MIN(n, columns - c);
        char *block = buffer + (size_t) n * size;
        for (int64_t r = 0; r < part->rows; r++) {
            SL_TRY(read(context, first + (size_t) (r * columns + c) * size, buffer, (size_t) piece * size));
            copy_elements(size, block + (size_t) r * size, part->rows, buffer, 1, piece);
        }
        SL_TRY(sl_tensors_writer_write(writer, block, (size_t) (piece * part->rows) * size));
    }
    return SL_OK;
}

sl_status sl_param_save(sl_tensors_writer *writer, const sl_param *param, sl_dtype dtype, void *buffer,
                        size_t buffer_bytes, sl_param_io read, void *context)
{
    size_t size = sl_dtype_bytes(dtype);
    int64_t columns = columns_of(param);
    for (int i = 0; i < param->n_parts; i++) {
        const sl_param_part *part = &param->parts[i];
        size_t bytes = (size_t) (part->rows * columns) * size, first = (size_t) (part->row * columns) * size;
        if (part->transposed) {
            SL_TRY(save_transposed(writer, part, columns, size, buffer, buffer_bytes, read, context));
            continue;
        }
        for (size_t done = 0; done < bytes; done += buffer_bytes) {
            size_t piece = SL_MIN(buffer_bytes, bytes - done);
            SL_TRY(read(context, first + done, buffer, piece));
            SL_TRY(sl_tensors_writer_write(writer, buffer, piece));
        }
    }
    return SL_OK;
}

/* ---- what is left over ---- */

static bool is_known_buffer(const char *name)
{
    static const char *const ends[] = {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq", "lm_head.weight"};
    size_t length = strlen(name);
    for (int64_t i = 0; i < SL_COUNT(ends); i++)
        if (length >= strlen(ends[i]) && strcmp(name + length - strlen(ends[i]), ends[i]) == 0)
            return true;
    return false;
}

sl_status sl_params_check_unused(const sl_tensors *tensors, const sl_param *params, int32_t n_params)
{
    sl_status status = SL_OK;
    uint8_t *used;
    int64_t count = sl_tensors_count(tensors);
    SL_TRY(sl_alloc(&used, count, 1));
    for (int32_t p = 0; p < n_params; p++)
        for (int i = 0; i < params[p].n_parts; i++) {
            const sl_tensor *tensor = find_part(tensors, "", params[p].parts[i].name);
            if (tensor)
                used[tensor - sl_tensors_at(tensors, 0)] = 1;
        }
    for (int64_t i = 0; i < count && status == SL_OK; i++) {
        const sl_tensor *tensor = sl_tensors_at(tensors, i);
        if (!used[i] && !is_known_buffer(tensor->name))
            status = sl_fail(SL_E_FORMAT, "%s: the model has no place for tensor \"%s\"; is this another model's file?",
                             sl_tensors_file(tensors, tensor), tensor->name);
    }
    sl_free(used);
    return status;
}
