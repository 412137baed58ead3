/*
 * The data of tensors: read with pread in pieces of at most SL_TENSORS_STAGING bytes and converted on the way. An 8-bit weight comes
 * with scales, each for a block of it; a run of elements is cut where the scale changes:
 *
 *     row r:  | scale (r/b, 0)        | scale (r/b, 1)        | ...        w[r][c] = x[r][c] * scale(r / b, c / b')
 */
#include <string.h>

#include "core/bf16.h"
#include "core/small_float.h"
#include "model/safetensors_header.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensor data is little-endian and is read as it stands");

sl_status sl_tensors_read_raw(sl_tensors *set, const sl_tensor *tensor, int64_t offset, void *out, size_t length)
{
    SL_ASSERT(offset >= 0 && (int64_t) length <= tensor->bytes && offset <= tensor->bytes - (int64_t) length);
    return sl_reader_read(set->readers[tensor->file], tensor->offset + offset, out, length);
}

/* ---- conversion ---- */

enum { STRIP = 256 };

static void widen(const sl_tensors *set, sl_file_dtype from, const void *raw, float *out, int64_t count)
{
    const float *table = set->values_of_8_bits[from == SL_FILE_F8_E4M3 ? 0 : from == SL_FILE_F8_E5M2 ? 1 : 2];
    if (from == SL_FILE_F32)
        memcpy(out, raw, (size_t) count * sizeof *out);
    else if (from == SL_FILE_BF16)
        for (int64_t i = 0; i < count; i++)
            out[i] = sl_bf16_to_f32(((const sl_bf16 *) raw)[i]);
    else if (from == SL_FILE_F16)
        for (int64_t i = 0; i < count; i++)
            out[i] = sl_f16_to_f32(((const uint16_t *) raw)[i]);
    else
        for (int64_t i = 0; i < count; i++)
            out[i] = table[((const uint8_t *) raw)[i]];
}

void sl_tensors_list_values(sl_tensors *set)
{
    for (int i = 0; i < 256; i++) {
        set->values_of_8_bits[0][i] = sl_e4m3_to_f32((uint8_t) i);
        set->values_of_8_bits[1][i] = sl_e5m2_to_f32((uint8_t) i);
        set->values_of_8_bits[2][i] = sl_e8m0_to_f32((uint8_t) i);
    }
}

/* `scale` 1 changes nothing. */
static void convert(const sl_tensors *set, sl_file_dtype from, const void *raw, sl_dtype dtype, void *out,
                    int64_t count, float scale)
{
    const size_t size = sl_file_dtype_bytes(from);
    for (int64_t done = 0; done < count; done += STRIP) {
        float strip[STRIP];
        const int64_t n = SL_MIN(count - done, (int64_t) STRIP);
        float *values = dtype == SL_F32 ? (float *) out + done : strip;
        widen(set, from, (const char *) raw + (size_t) done * size, values, n);
        for (int64_t i = 0; i < n && scale != 1; i++)
            values[i] *= scale;
        for (int64_t i = 0; i < n && dtype != SL_F32; i++)
            ((sl_bf16 *) out)[done + i] = sl_f32_to_bf16(values[i]);
    }
}

static bool is_convertible(sl_file_dtype dtype)
{
    return dtype == SL_FILE_F32 || dtype == SL_FILE_BF16 || dtype == SL_FILE_F16 || dtype == SL_FILE_F8_E4M3 ||
           dtype == SL_FILE_F8_E5M2 || dtype == SL_FILE_F8_E8M0;
}

static sl_status check_dtype(const sl_tensors *set, const sl_tensor *tensor, sl_dtype dtype)
{
    const sl_tensor *scale = tensor->scale;
    if (sl_dtype_is_float(dtype) ? !is_convertible(tensor->dtype) : tensor->dtype != sl_file_dtype_of(dtype))
        return sl_fail(SL_E_UNSUPPORTED,
                       "%s: tensor \"%s\" is %s; F32, BF16, F16, F8_E4M3 and F8_E5M2 can be read as weights",
                       set->paths[tensor->file], tensor->name, sl_file_dtype_name(tensor->dtype));
    if (scale && !is_convertible(scale->dtype))
        return sl_fail(SL_E_UNSUPPORTED, "%s: \"%s\" holds scales of type %s; they must be floating-point numbers",
                       set->paths[scale->file], scale->name, sl_file_dtype_name(scale->dtype));
    if (set->quantized && !scale && (tensor->dtype == SL_FILE_F8_E4M3 || tensor->dtype == SL_FILE_F8_E5M2))
        return sl_fail(
            SL_E_FORMAT, "%s: tensor \"%s\" is %s, but neither \"%s_scale_inv\" nor \"%s_scale\" gives its scale",
            set->paths[tensor->file], tensor->name, sl_file_dtype_name(tensor->dtype), tensor->name, tensor->name);
    return SL_OK;
}

/* ---- scales ---- */

/* Scale number `index` of a weight; as many as the set can keep are read with it. */
static sl_status find_scale(sl_tensors *set, const sl_tensor *tensor, int64_t index, float *out)
{
    const sl_tensor *from = tensor->scale;
    if (set->scaled != tensor || index < set->first_scale || index >= set->first_scale + SL_TENSORS_SCALES) {
        unsigned char raw[SL_TENSORS_SCALES * sizeof(float)] __attribute__((aligned(8)));
        int64_t size = (int64_t) sl_file_dtype_bytes(from->dtype);
        int64_t count = SL_MIN(from->count - index, (int64_t) SL_TENSORS_SCALES);
        set->scaled = NULL;
        SL_TRY(sl_tensors_read_raw(set, from, index * size, raw, (size_t) (count * size)));
        convert(set, from->dtype, raw, SL_F32, set->scales, count, 1);
        set->scaled = tensor;
        set->first_scale = index;
    }
    *out = set->scales[index - set->first_scale];
    return SL_OK;
}

/* Elements [first, first+count) of the tensor, which lie at `raw`. */
static sl_status convert_scaled(sl_tensors *set, const sl_tensor *tensor, int64_t first, const void *raw,
                                sl_dtype dtype, void *out, int64_t count)
{
    if (!tensor->scale) {
        convert(set, tensor->dtype, raw, dtype, out, count, 1);
        return SL_OK;
    }
    int64_t rows = tensor->rank ? tensor->dim[0] : 1, columns = tensor->count / rows;
    int64_t across = SL_DIV_UP(columns, tensor->block[1]), at_once = tensor->block[1];
    const size_t size = sl_file_dtype_bytes(tensor->dtype), width = sl_dtype_bytes(dtype);
    for (int64_t done = 0, piece; done < count; done += piece) {
        int64_t row = (first + done) / columns, column = (first + done) % columns;
        float scale;
        if (tensor->scale->count == 1) /* of everything */
            piece = count;
        else
            piece = SL_MIN(count - done, SL_MIN(columns - column, at_once - column % at_once));
        SL_TRY(find_scale(set, tensor,
                          tensor->scale->count == 1 ? 0 : row / tensor->block[0] * across + column / at_once, &scale));
        convert(set, tensor->dtype, (const char *) raw + (size_t) done * size, dtype,
                (char *) out + (size_t) done * width, piece, scale);
    }
    return SL_OK;
}

/* ---- reading ---- */

sl_status sl_tensors_read(sl_tensors *set, const sl_tensor *tensor, int64_t first, int64_t count, sl_dtype dtype,
                          void *out)
{
    int64_t size = (int64_t) sl_file_dtype_bytes(tensor->dtype), most = SL_TENSORS_STAGING / size;
    SL_TRY(check_dtype(set, tensor, dtype));
    SL_ASSERT(first >= 0 && count >= 0 && first <= tensor->count - count);
    if (sl_file_dtype_of(dtype) == tensor->dtype)
        return sl_tensors_read_raw(set, tensor, first * size, out, (size_t) (count * size));
    for (int64_t done = 0; done < count; done += most) {
        int64_t piece = SL_MIN(most, count - done);
        SL_TRY(sl_tensors_read_raw(set, tensor, (first + done) * size, set->staging, (size_t) (piece * size)));
        SL_TRY(convert_scaled(set, tensor, first + done, set->staging, dtype,
                              (char *) out + (size_t) done * sl_dtype_bytes(dtype), piece));
    }
    return SL_OK;
}

/* Elements [first, first+count) of the tensor, which lie at `raw`, to every `step`-th place of `out` from `at` on. */
static sl_status scatter(sl_tensors *set, const sl_tensor *tensor, int64_t first, const char *raw, sl_dtype dtype,
                         void *out, int64_t at, int64_t step, int64_t count)
{
    float strip[STRIP];
    for (int64_t done = 0; done < count; done += STRIP) {
        int64_t piece = SL_MIN(count - done, (int64_t) STRIP);
        SL_TRY(convert_scaled(set, tensor, first + done, raw + (size_t) done * sl_file_dtype_bytes(tensor->dtype),
                              SL_F32, strip, piece));
        for (int64_t i = 0; i < piece; i++)
            sl_dtype_store(dtype, out, at + (done + i) * step, strip[i]);
    }
    return SL_OK;
}

/* File rows [row, row+rows), of which elements [first, first+count) are wanted, become columns of `out`. Whole file rows are
 * read at a time when a good part of each is wanted: one system call per row would cost more than the bytes. */
sl_status sl_tensors_read_transposed(sl_tensors *set, const sl_tensor *tensor, int64_t first, int64_t count,
                                     sl_dtype dtype, void *out)
{
    int64_t size = (int64_t) sl_file_dtype_bytes(tensor->dtype), columns = tensor->dim[0], rows = tensor->dim[1];
    SL_TRY(check_dtype(set, tensor, dtype));
    SL_ASSERT(tensor->rank == 2 && first >= 0 && count >= 0 && first <= rows - count);
    bool whole = rows * size <= SL_TENSORS_STAGING && count * 8 >= rows;
    int64_t at_once = whole ? SL_TENSORS_STAGING / (rows * size) : 1, most = whole ? rows : SL_TENSORS_STAGING / size;
    for (int64_t c = 0; c < columns; c += at_once) {
        int64_t n = SL_MIN(at_once, columns - c);
        for (int64_t done = 0; done < count; done += most) {
            int64_t piece = SL_MIN(most, count - done), from = whole ? 0 : first + done;
            int64_t bytes = whole ? n * rows * size : piece * size, skip = whole ? first : 0;
            SL_TRY(sl_tensors_read_raw(set, tensor, (c * rows + from) * size, set->staging, (size_t) bytes));
            for (int64_t k = 0; k < n; k++)
                SL_TRY(scatter(set, tensor, (c + k) * rows + first + done,
                               (const char *) set->staging + (size_t) ((k * rows + skip) * size), dtype, out,
                               done * columns + c + k, columns, piece));
        }
    }
    return SL_OK;
}
