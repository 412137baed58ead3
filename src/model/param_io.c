/*
 * Parameters to and from files. Ours are fused and row-major; a part is some rows of one, stored under its own name, possibly
 * transposed:
 *
 *     qkv [a+2k, d]  =  q_proj [a, d]  over  k_proj [k, d]  over  v_proj [k, d]         c_attn [d, 3d]  =  transpose of qkv
 *
 * Rows stream straight through. A transposed part is loaded by blocks of our rows (columns of the file) and saved by blocks
 * of file rows (our columns), or read in one piece when the caller's buffer is large enough. Rows in rotation pairs are loaded
 * row by row and saved in two passes over each head: its even rows, then its odd ones.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/bf16.h"
#include "core/log.h"
#include "model/safetensors.h"

enum { NAME_BYTES = 256 };

static int64_t columns_of(const sl_param *param)
{
    return param->type.rank == 2 ? param->type.dim[1] : 1;
}

/* In front of a multimodal model's tensors of the language model; the others have their own. */
static const char language_model[] = "language_model.";
static const char *const other_parts[] = {"vision_tower.", "multi_modal_projector."};

/* Under its name, without the leading "transformer." or "model." that some files leave out, or as a part of a multimodal model. */
static const sl_tensor *find_part(const sl_tensors *tensors, const char *prefix, const char *name)
{
    static const char *const optional[] = {"transformer.", "model."};
    char full[NAME_BYTES];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    const sl_tensor *tensor = sl_tensors_find(tensors, full);
    for (int64_t i = 0; i < SL_COUNT(optional) && !tensor && !prefix[0]; i++)
        if (strncmp(name, optional[i], strlen(optional[i])) == 0)
            tensor = sl_tensors_find(tensors, name + strlen(optional[i]));
    if (!tensor && !prefix[0]) {
        snprintf(full, sizeof full, "%s%s", language_model, name);
        tensor = sl_tensors_find(tensors, full);
    }
    return tensor;
}

const sl_tensor *sl_param_tensor(const sl_tensors *tensors, const sl_param *param, int part)
{
    return find_part(tensors, "", param->parts[part].name);
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

/* ---- loading ---- */

/* A part on its way from the file. Elements are counted in our order, from the part's first one. */
typedef struct loading {
    sl_tensors *tensors;
    const sl_tensor *tensor;
    const sl_param_part *part;
    int64_t columns;
    int64_t pair_rows; /* 0: rows in the file's order */
    sl_dtype dtype;
} loading;

/* The file's row that is our row `row` of the part. */
static int64_t file_row(const loading *l, int64_t row)
{
    int64_t in_head = l->pair_rows ? row % l->pair_rows : 0;
    return l->pair_rows ? row - in_head + in_head % 2 * (l->pair_rows / 2) + in_head / 2 : row;
}

static int64_t file_element(const loading *l, int64_t element)
{
    if (!l->part->transposed && !l->pair_rows)
        return element;
    int64_t row = element / l->columns, column = element % l->columns;
    return l->part->transposed ? column * l->part->rows + row : file_row(l, row) * l->columns + column;
}

static sl_status read_elements(const loading *l, int64_t first, int64_t count, void *out)
{
    size_t row_bytes = (size_t) l->columns * sl_dtype_bytes(l->dtype);
    int64_t row = first / l->columns;
    if (l->part->transposed)
        return sl_tensors_read_transposed(l->tensors, l->tensor, row, count / l->columns, l->dtype, out);
    if (!l->pair_rows)
        return sl_tensors_read(l->tensors, l->tensor, first, count, l->dtype, out);
    for (int64_t i = 0; i < count / l->columns; i++)
        SL_TRY(sl_tensors_read(l->tensors, l->tensor, file_row(l, row + i) * l->columns, l->columns, l->dtype,
                               (char *) out + (size_t) i * row_bytes));
    return SL_OK;
}

static bool is_finite_at(sl_dtype dtype, const void *values, int64_t i)
{
    return isfinite(dtype == SL_F32 ? ((const float *) values)[i] : sl_bf16_to_f32(((const sl_bf16 *) values)[i]));
}

/* `values` are elements [first, first+count), as the model gets them; the message gives the file's value. */
static sl_status check_finite(const loading *l, int64_t first, int64_t count, const void *values)
{
    int64_t i = 0;
    float value;
    while (i < count && is_finite_at(l->dtype, values, i))
        i++;
    if (i == count)
        return SL_OK;
    int64_t at = file_element(l, first + i);
    const char *file = sl_tensors_file(l->tensors, l->tensor), *name = l->tensor->name;
    SL_TRY(sl_tensors_read(l->tensors, l->tensor, at, 1, SL_F32, &value));
    if (isfinite(value))
        return sl_fail(SL_E_NOT_FINITE,
                       "%s: tensor \"%s\" is %g at element %lld, too large for %s; use another --precision", file, name,
                       (double) value, (long long) at, sl_dtype_name(l->dtype));
    return sl_fail(
        SL_E_NOT_FINITE,
        "%s: tensor \"%s\" is %s at element %lld; nothing can be trained from such weights: use another file", file,
        name,
        isnan(value) ? "NaN"
        : value < 0  ? "-infinity"
                     : "infinity",
        (long long) at);
}

/* A vector is read as one row of many columns, so that a piece of it always fits. */
static sl_status load_part(const loading *l, bool finite, void *buffer, size_t buffer_bytes, sl_param_io write,
                           void *context)
{
    int64_t size = (int64_t) sl_dtype_bytes(l->dtype), first = l->part->row * l->columns;
    int64_t step = (int64_t) buffer_bytes / size;
    if (l->part->transposed || l->pair_rows) /* whole rows */
        step -= step % l->columns;
    if (step < 1)
        return sl_fail(SL_E_DOES_NOT_FIT, "loading \"%s\" needs a buffer of %lld bytes, not %zu", l->part->name,
                       (long long) (l->columns * size), buffer_bytes);
    for (int64_t done = 0; done < l->tensor->count; done += step) {
        int64_t piece = SL_MIN(step, l->tensor->count - done);
        SL_TRY(read_elements(l, done, piece, buffer));
        if (finite)
            SL_TRY(check_finite(l, done, piece, buffer));
        SL_TRY(write(context, (size_t) ((first + done) * size), buffer, (size_t) (piece * size)));
    }
    return SL_OK;
}

static sl_status load_parts(sl_tensors *tensors, const char *prefix, const sl_param *param, sl_dtype dtype, bool finite,
                            void *buffer, size_t buffer_bytes, sl_param_io write, void *context)
{
    for (int i = 0; i < param->n_parts; i++) {
        const sl_param_part *part = &param->parts[i];
        SL_TRY(check_part(tensors, prefix, param, part));
        loading l = {.tensors = tensors,
                     .tensor = find_part(tensors, prefix, part->name),
                     .part = part,
                     .columns = columns_of(param),
                     .pair_rows = sl_tensors_in_pairs(tensors) ? 0 : part->pair_rows,
                     .dtype = dtype};
        SL_TRY(load_part(&l, finite, buffer, buffer_bytes, write, context));
    }
    return SL_OK;
}

sl_status sl_param_load(sl_tensors *tensors, const sl_param *param, sl_dtype dtype, void *buffer, size_t buffer_bytes,
                        sl_param_io write, void *context)
{
    return load_parts(tensors, "", param, dtype, true, buffer, buffer_bytes, write, context);
}

sl_status sl_param_load_prefixed(sl_tensors *tensors, const char *prefix, const sl_param *param, sl_dtype dtype,
                                 void *buffer, size_t buffer_bytes, sl_param_io write, void *context)
{
    return load_parts(tensors, prefix, param, dtype, false, buffer, buffer_bytes, write, context);
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

/* Rows of one parity of `count` rows that begin with row `row` of a head, packed at the buffer's start. */
static int64_t pack_rows(char *buffer, size_t row_bytes, int64_t row, int64_t count, int parity)
{
    int64_t packed = 0;
    for (int64_t i = (row + parity) % 2; i < count; i += 2)
        memmove(buffer + (size_t) packed++ * row_bytes, buffer + (size_t) i * row_bytes, row_bytes);
    return packed;
}

static sl_status save_pairs(sl_tensors_writer *writer, const sl_param_part *part, size_t row_bytes, char *buffer,
                            size_t buffer_bytes, sl_param_io read, void *context)
{
    int64_t step = (int64_t) (buffer_bytes / row_bytes);
    if (step < 1)
        return sl_fail(SL_E_DOES_NOT_FIT, "saving \"%s\" needs a buffer of %zu bytes, not %zu", part->name, row_bytes,
                       buffer_bytes);
    for (int64_t head = 0; head < part->rows; head += part->pair_rows)
        for (int parity = 0; parity < 2; parity++)
            for (int64_t row = 0; row < part->pair_rows; row += step) {
                int64_t rows = SL_MIN(step, part->pair_rows - row);
                SL_TRY(read(context, (size_t) (part->row + head + row) * row_bytes, buffer, (size_t) rows * row_bytes));
                int64_t packed = pack_rows(buffer, row_bytes, row, rows, parity);
                SL_TRY(sl_tensors_writer_write(writer, buffer, (size_t) packed * row_bytes));
            }
    return SL_OK;
}

static sl_status save_rows(sl_tensors_writer *writer, const sl_param_part *part, size_t row_bytes, char *buffer,
                           size_t buffer_bytes, sl_param_io read, void *context)
{
    size_t bytes = (size_t) part->rows * row_bytes, first = (size_t) part->row * row_bytes;
    for (size_t done = 0; done < bytes; done += buffer_bytes) {
        size_t piece = SL_MIN(buffer_bytes, bytes - done);
        SL_TRY(read(context, first + done, buffer, piece));
        SL_TRY(sl_tensors_writer_write(writer, buffer, piece));
    }
    return SL_OK;
}

sl_status sl_param_save(sl_tensors_writer *writer, const sl_param *param, sl_dtype dtype, void *buffer,
                        size_t buffer_bytes, sl_param_io read, void *context)
{
    size_t size = sl_dtype_bytes(dtype), row_bytes = (size_t) columns_of(param) * size;
    for (int i = 0; i < param->n_parts; i++) {
        const sl_param_part *part = &param->parts[i];
        if (part->transposed)
            SL_TRY(save_transposed(writer, part, columns_of(param), size, buffer, buffer_bytes, read, context));
        else if (part->pair_rows)
            SL_TRY(save_pairs(writer, part, row_bytes, buffer, buffer_bytes, read, context));
        else
            SL_TRY(save_rows(writer, part, row_bytes, buffer, buffer_bytes, read, context));
    }
    return SL_OK;
}

/* ---- in memory ---- */

static loading in_memory(const sl_param *param, int part, sl_dtype dtype)
{
    const sl_param_part *p = &param->parts[part];
    return (loading){.part = p, .columns = columns_of(param), .pair_rows = p->pair_rows, .dtype = dtype};
}

sl_status sl_param_read_part(const sl_param *param, int part, sl_dtype dtype, void *buffer, size_t buffer_bytes,
                             sl_param_io read, void *context, sl_dtype as, void *values)
{
    loading l = in_memory(param, part, dtype);
    int64_t size = (int64_t) sl_dtype_bytes(dtype), first = l.part->row * l.columns, count = l.part->rows * l.columns;
    for (int64_t done = 0, piece; done < count; done += piece) {
        piece = SL_MIN(count - done, (int64_t) buffer_bytes / size);
        SL_TRY(read(context, (size_t) ((first + done) * size), buffer, (size_t) (piece * size)));
        for (int64_t i = 0; i < piece; i++)
            sl_dtype_store(as, values, file_element(&l, done + i), sl_dtype_load(dtype, buffer, i));
    }
    return SL_OK;
}

static sl_status check_values(const sl_param_part *part, sl_dtype dtype, sl_dtype as, const void *values, int64_t count)
{
    float rounded;
    for (int64_t i = 0; i < count; i++) {
        sl_dtype_store(dtype, &rounded, 0, sl_dtype_load(as, values, i));
        if (!isfinite(sl_dtype_load(dtype, &rounded, 0)))
            return sl_fail(SL_E_NOT_FINITE, "the value %g for element %lld of \"%s\" is not finite in %s",
                           (double) sl_dtype_load(as, values, i), (long long) i, part->name, sl_dtype_name(dtype));
    }
    return SL_OK;
}

sl_status sl_param_write_part(const sl_param *param, int part, sl_dtype dtype, void *buffer, size_t buffer_bytes,
                              sl_param_io write, void *context, sl_dtype as, const void *values)
{
    loading l = in_memory(param, part, dtype);
    int64_t size = (int64_t) sl_dtype_bytes(dtype), first = l.part->row * l.columns, count = l.part->rows * l.columns;
    SL_TRY(check_values(l.part, dtype, as, values, count));
    for (int64_t done = 0, piece; done < count; done += piece) {
        piece = SL_MIN(count - done, (int64_t) buffer_bytes / size);
        for (int64_t i = 0; i < piece; i++)
            sl_dtype_store(dtype, buffer, i, sl_dtype_load(as, values, file_element(&l, done + i)));
        SL_TRY(write(context, (size_t) ((first + done) * size), buffer, (size_t) (piece * size)));
    }
    return SL_OK;
}

/* ---- what is left over ---- */

/* The last four are scales of activations, which 8-bit inference uses. */
static bool is_known_buffer(const char *name)
{
    static const char *const ends[] = {".attn.bias",     ".attn.masked_bias", ".rotary_emb.inv_freq",
                                       "lm_head.weight", ".input_scale",      ".output_scale",
                                       ".k_scale",       ".v_scale"};
    size_t length = strlen(name);
    for (int64_t i = 0; i < SL_COUNT(ends); i++)
        if (length >= strlen(ends[i]) && strcmp(name + length - strlen(ends[i]), ends[i]) == 0)
            return true;
    return false;
}

/* Of a multimodal model, but not of its language model. */
static bool is_other_part(const char *name)
{
    for (int64_t i = 0; i < SL_COUNT(other_parts); i++)
        if (strncmp(name, other_parts[i], strlen(other_parts[i])) == 0)
            return true;
    return false;
}

static bool is_multimodal(const sl_tensors *tensors)
{
    for (int64_t i = 0; i < sl_tensors_count(tensors); i++)
        if (strncmp(sl_tensors_at(tensors, i)->name, language_model, strlen(language_model)) == 0)
            return true;
    return false;
}

static sl_status mark_used(const sl_tensors *tensors, const sl_param *params, int32_t n_params, uint8_t **used)
{
    SL_TRY(sl_alloc(used, sl_tensors_count(tensors), 1));
    for (int32_t p = 0; p < n_params; p++)
        for (int i = 0; i < params[p].n_parts; i++) {
            const sl_tensor *tensor = find_part(tensors, "", params[p].parts[i].name);
            if (tensor)
                (*used)[tensor - sl_tensors_at(tensors, 0)] = 1;
            if (tensor && tensor->scale)
                (*used)[tensor->scale - sl_tensors_at(tensors, 0)] = 1;
        }
    return SL_OK;
}

sl_status sl_params_check_unused(const sl_tensors *tensors, const sl_param *params, int32_t n_params)
{
    sl_status status = SL_OK;
    const bool multimodal = is_multimodal(tensors);
    int64_t left_out = 0;
    uint8_t *used;
    SL_TRY(mark_used(tensors, params, n_params, &used));
    for (int64_t i = 0; i < sl_tensors_count(tensors) && status == SL_OK; i++) {
        const sl_tensor *tensor = sl_tensors_at(tensors, i);
        if (!used[i] && multimodal && is_other_part(tensor->name))
            left_out++;
        else if (!used[i] && !is_known_buffer(tensor->name))
            status = sl_fail(SL_E_FORMAT, "%s: the model has no place for tensor \"%s\"; is this another model's file?",
                             sl_tensors_file(tensors, tensor), tensor->name);
    }
    if (left_out && status == SL_OK)
        sl_warn("%s: %lld tensors of the image encoder are left out: checkpoints hold the language model alone",
                sl_tensors_file(tensors, sl_tensors_at(tensors, 0)), (long long) left_out);
    sl_free(used);
    return status;
}

sl_status sl_params_left_out(const sl_tensors *tensors, const sl_param *params, int32_t n_params, sl_text *names,
                             int64_t *count)
{
    uint8_t *used;
    SL_TRY(mark_used(tensors, params, n_params, &used));
    *count = 0;
    for (int64_t i = 0; i < sl_tensors_count(tensors); i++)
        if (!used[i])
            sl_text_printf(names, "%s%s", (*count)++ ? ", " : "", sl_tensors_at(tensors, i)->name);
    sl_free(used);
    return SL_OK;
}
