/*
 * Writing safetensors as a stream: all names, types and shapes are declared first, so the header (which holds every offset) can
 * go out before the first byte of data, and nothing is ever sought or held back. The header is padded with spaces so that
 * data begins 64-byte aligned; readers that map the file are grateful.
 */
#include <string.h>

#include "core/file.h"
#include "core/json.h"
#include "model/safetensors.h"

enum { DATA_ALIGN = 64 };

typedef struct entry {
    const char *key, *value;
} entry;

struct sl_tensors_writer {
    sl_region *region;
    sl_writer *file;
    const char *path;
    sl_tensor *tensors;
    entry *metadata;
    int64_t n_tensors, capacity_tensors, n_metadata, capacity_metadata;
    int64_t declared_bytes, written_bytes;
    bool header_written;
};

sl_status sl_tensors_writer_open(const char *path, sl_tensors_writer **out)
{
    sl_tensors_writer *writer;
    sl_status status;
    SL_TRY(sl_alloc(&writer, 1, sizeof *writer));
    SL_TRY_GOTO(sl_region_create(&writer->region), destroy);
    SL_TRY_GOTO(sl_region_strdup(writer->region, path, &writer->path), destroy);
    SL_TRY_GOTO(sl_writer_open(path, &writer->file), destroy);
    *out = writer;
    return SL_OK;
destroy:
    sl_tensors_writer_destroy(writer);
    return status;
}

void sl_tensors_writer_destroy(sl_tensors_writer *writer)
{
    if (!writer)
        return;
    sl_writer_destroy(writer->file);
    sl_free(writer->tensors);
    sl_free(writer->metadata);
    sl_region_destroy(writer->region);
    sl_free(writer);
}

sl_status sl_tensors_writer_metadata(sl_tensors_writer *writer, const char *key, const char *value)
{
    entry fresh;
    SL_ASSERT(!writer->header_written);
    SL_TRY(sl_region_strdup(writer->region, key, &fresh.key));
    SL_TRY(sl_region_strdup(writer->region, value, &fresh.value));
    if (writer->n_metadata == writer->capacity_metadata) {
        int64_t capacity = SL_MAX(16, 2 * writer->capacity_metadata);
        SL_TRY(sl_grow(&writer->metadata, writer->n_metadata, capacity, sizeof fresh));
        writer->capacity_metadata = capacity;
    }
    writer->metadata[writer->n_metadata++] = fresh;
    return SL_OK;
}

sl_status sl_tensors_writer_declare(sl_tensors_writer *writer, const char *name, sl_file_dtype dtype, int32_t rank,
                                    const int64_t *dim)
{
    sl_tensor tensor = {.dtype = dtype, .rank = rank, .count = 1, .offset = writer->declared_bytes};
    SL_ASSERT(!writer->header_written && rank >= 0 && rank <= SL_FILE_MAX_RANK);
    SL_TRY(sl_region_strdup(writer->region, name, &tensor.name));
    for (int32_t i = 0; i < rank; i++) {
        tensor.dim[i] = dim[i];
        tensor.count *= dim[i];
    }
    tensor.bytes = tensor.count * (int64_t) sl_file_dtype_bytes(dtype);
    if (writer->n_tensors == writer->capacity_tensors) {
        int64_t capacity = SL_MAX(64, 2 * writer->capacity_tensors);
        SL_TRY(sl_grow(&writer->tensors, writer->n_tensors, capacity, sizeof tensor));
        writer->capacity_tensors = capacity;
    }
    writer->tensors[writer->n_tensors++] = tensor;
    writer->declared_bytes += tensor.bytes;
    return SL_OK;
}

static void put_tensor(sl_json_writer *json, const sl_tensor *tensor)
{
    sl_json_begin_object(json, tensor->name);
    sl_json_put_string(json, "dtype", sl_file_dtype_name(tensor->dtype));
    sl_json_begin_array(json, "shape");
    for (int32_t i = 0; i < tensor->rank; i++)
        sl_json_put_i64(json, NULL, tensor->dim[i]);
    sl_json_end_array(json);
    sl_json_begin_array(json, "data_offsets");
    sl_json_put_i64(json, NULL, tensor->offset);
    sl_json_put_i64(json, NULL, tensor->offset + tensor->bytes);
    sl_json_end_array(json);
    sl_json_end_object(json);
}

static sl_status write_header(sl_tensors_writer *writer)
{
    sl_json_writer json = {0};
    sl_json_begin_object(&json, NULL);
    if (writer->n_metadata) {
        sl_json_begin_object(&json, "__metadata__");
        for (int64_t i = 0; i < writer->n_metadata; i++)
            sl_json_put_string(&json, writer->metadata[i].key, writer->metadata[i].value);
        sl_json_end_object(&json);
    }
    for (int64_t i = 0; i < writer->n_tensors; i++)
        put_tensor(&json, &writer->tensors[i]);
    sl_json_end_object(&json);
    while ((json.text.length + 8) % DATA_ALIGN && !json.text.failed)
        sl_text_append(&json.text, " ", 1);
    sl_status status = sl_text_status(&json.text);
    uint64_t length = json.text.length;
    if (status == SL_OK)
        status = sl_writer_write(writer->file, &length, 8);
    if (status == SL_OK)
        status = sl_writer_write(writer->file, json.text.data, json.text.length);
    sl_text_free(&json.text);
    writer->header_written = true;
    return status;
}

sl_status sl_tensors_writer_write(sl_tensors_writer *writer, const void *bytes, size_t length)
{
    if (!writer->header_written)
        SL_TRY(write_header(writer));
    if ((int64_t) length > writer->declared_bytes - writer->written_bytes)
        return sl_fail(SL_E_INTERNAL, "%s: more tensor data than was declared", writer->path);
    writer->written_bytes += (int64_t) length;
    return sl_writer_write(writer->file, bytes, length);
}

sl_status sl_tensors_writer_commit(sl_tensors_writer *writer, uint64_t *checksum)
{
    if (!writer->header_written)
        SL_TRY(write_header(writer));
    if (writer->written_bytes != writer->declared_bytes)
        return sl_fail(SL_E_INTERNAL, "%s: %lld of %lld bytes of tensor data were written", writer->path,
                       (long long) writer->written_bytes, (long long) writer->declared_bytes);
    if (checksum)
        *checksum = sl_writer_checksum(writer->file);
    return sl_writer_commit(writer->file);
}
