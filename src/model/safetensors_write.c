/*
 * Writing safetensors as a stream: all names, types and shapes are declared first, so the header (which holds every offset) can
 * go out before the first byte of data, and nothing is ever sought or held back. The header is padded with spaces so that
 * data begins 64-byte aligned; readers that map the file are grateful.
 *
 * With a limit, larger data goes to several files, each of whole tensors in the order declared:
 *
 *     model-00001-of-00003.safetensors ...      model.safetensors.index.json: {"weight_map": {tensor: file, ...}, ...}
 *
 * The index is written last, so that a folder without it is not taken for a model.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/file.h"
#include "core/hash.h"
#include "core/json.h"
#include "model/safetensors.h"

enum { DATA_ALIGN = 64, MOST_FILES = 4096 };

typedef struct entry {
    const char *key, *value;
} entry;

/* A file of the set: tensors [first, first+count), data of so many bytes. */
typedef struct shard {
    const char *path;
    int64_t first, count, bytes;
} shard;

struct sl_tensors_writer {
    sl_region *region;
    const char *path;
    sl_tensor *tensors;
    entry *metadata;
    int64_t n_tensors, capacity_tensors, n_metadata, capacity_metadata;
    int64_t declared_bytes, limit;
    /* Once the first byte is written: */
    shard *shards;
    sl_written_file *files; /* the index, where there is one, then the shards */
    int64_t n_shards, n_files;
    int64_t shard; /* being written */
    int64_t shard_bytes;
    sl_writer *file;
    bool committed;
};

sl_status sl_tensors_writer_open(const char *path, sl_tensors_writer **out)
{
    sl_tensors_writer *writer;
    sl_status status;
    SL_TRY(sl_alloc(&writer, 1, sizeof *writer));
    SL_TRY_GOTO(sl_region_create(&writer->region), destroy);
    SL_TRY_GOTO(sl_region_strdup(writer->region, path, &writer->path), destroy);
    *out = writer;
    return SL_OK;
destroy:
    sl_tensors_writer_destroy(writer);
    return status;
}

void sl_tensors_writer_split(sl_tensors_writer *writer, int64_t most_bytes)
{
    SL_ASSERT(!writer->n_shards && most_bytes >= 0);
    writer->limit = most_bytes;
}

void sl_tensors_writer_destroy(sl_tensors_writer *writer)
{
    if (!writer)
        return;
    sl_writer_destroy(writer->file);
    for (int64_t i = 0; i < writer->shard && !writer->committed; i++)
        unlink(writer->shards[i].path);
    sl_free(writer->tensors);
    sl_free(writer->metadata);
    sl_region_destroy(writer->region);
    sl_free(writer);
}

sl_status sl_tensors_writer_metadata(sl_tensors_writer *writer, const char *key, const char *value)
{
    entry fresh;
    SL_ASSERT(!writer->n_shards);
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
    sl_tensor tensor = {.dtype = dtype, .rank = rank, .count = 1};
    SL_ASSERT(!writer->n_shards && rank >= 0 && rank <= SL_FILE_MAX_RANK);
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

static sl_status write_header(sl_tensors_writer *writer, const shard *part)
{
    sl_json_writer json = {0};
    sl_json_begin_object(&json, NULL);
    if (writer->n_metadata) {
        sl_json_begin_object(&json, "__metadata__");
        for (int64_t i = 0; i < writer->n_metadata; i++)
            sl_json_put_string(&json, writer->metadata[i].key, writer->metadata[i].value);
        sl_json_end_object(&json);
    }
    for (int64_t i = 0; i < part->count; i++)
        put_tensor(&json, &writer->tensors[part->first + i]);
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
    return status;
}

/* ---- which tensor goes where ---- */

/* Gives every tensor its file and its offset there; a tensor larger than the limit has a file of its own. */
static int64_t divide(sl_tensors_writer *writer)
{
    int64_t file = 0, bytes = 0;
    for (int64_t i = 0; i < writer->n_tensors; i++) {
        sl_tensor *tensor = &writer->tensors[i];
        if (writer->limit && bytes && bytes + tensor->bytes > writer->limit) {
            file++;
            bytes = 0;
        }
        tensor->file = (int32_t) file;
        tensor->offset = bytes;
        bytes += tensor->bytes;
    }
    return file + 1;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static sl_status name_shards(sl_tensors_writer *writer)
{
    static const char end[] = ".safetensors";
    size_t length = strlen(writer->path), tail = sizeof end - 1;
    bool named = length > tail && strcmp(writer->path + length - tail, end) == 0;
    for (int64_t s = 0; s < writer->n_shards; s++)
        if (writer->n_shards == 1)
            writer->shards[s].path = writer->path;
        else
            SL_TRY(sl_region_printf(writer->region, &writer->shards[s].path, "%.*s-%05lld-of-%05lld%s",
                                    (int) (named ? length - tail : length), writer->path, (long long) s + 1,
                                    (long long) writer->n_shards, end));
    return SL_OK;
}

static sl_status begin(sl_tensors_writer *writer)
{
    int64_t count = divide(writer);
    if (count > MOST_FILES)
        return sl_fail(SL_E_USAGE, "%s: %lld files would be written, more than %d: allow larger ones", writer->path,
                       (long long) count, MOST_FILES);
    SL_TRY(sl_region_alloc(writer->region, &writer->shards, count, sizeof *writer->shards));
    SL_TRY(sl_region_alloc(writer->region, &writer->files, count + 1, sizeof *writer->files));
    for (int64_t i = writer->n_tensors - 1; i >= 0; i--) {
        shard *to = &writer->shards[writer->tensors[i].file];
        to->first = i;
        to->count++;
        to->bytes += writer->tensors[i].bytes;
    }
    writer->n_shards = count;
    return name_shards(writer);
}

/* ---- writing ---- */

static sl_status open_shard(sl_tensors_writer *writer)
{
    const shard *part = &writer->shards[writer->shard];
    SL_TRY(sl_writer_open(part->path, &writer->file));
    writer->shard_bytes = 0;
    return write_header(writer, part);
}

static sl_status close_shard(sl_tensors_writer *writer)
{
    const shard *part = &writer->shards[writer->shard];
    sl_written_file *file = &writer->files[writer->shard + (writer->n_shards > 1)];
    file->name = name_of(part->path);
    file->checksum = sl_writer_checksum(writer->file);
    SL_TRY(sl_writer_commit(writer->file));
    sl_writer_destroy(writer->file);
    writer->file = NULL;
    writer->shard++;
    return sl_file_size(part->path, &file->bytes);
}

sl_status sl_tensors_writer_write(sl_tensors_writer *writer, const void *bytes, size_t length)
{
    if (!writer->n_shards)
        SL_TRY(begin(writer));
    for (const char *at = bytes; length;) {
        if (!writer->file)
            SL_TRY(open_shard(writer));
        int64_t free = writer->shards[writer->shard].bytes - writer->shard_bytes;
        if (!free && writer->shard + 1 < writer->n_shards) {
            SL_TRY(close_shard(writer));
            continue;
        }
        if ((int64_t) length > free && writer->shard + 1 == writer->n_shards)
            return sl_fail(SL_E_INTERNAL, "%s: more tensor data than was declared", writer->path);
        size_t piece = (size_t) SL_MIN((int64_t) length, free);
        SL_TRY(sl_writer_write(writer->file, at, piece));
        writer->shard_bytes += (int64_t) piece;
        at += piece;
        length -= piece;
    }
    return SL_OK;
}

static sl_status write_index(sl_tensors_writer *writer)
{
    sl_json_writer json = {.indent = true};
    const char *path;
    SL_TRY(sl_region_printf(writer->region, &path, "%s.index.json", writer->path));
    sl_json_begin_object(&json, NULL);
    sl_json_begin_object(&json, "metadata");
    sl_json_put_i64(&json, "total_size", writer->declared_bytes);
    sl_json_end_object(&json);
    sl_json_begin_object(&json, "weight_map");
    for (int64_t i = 0; i < writer->n_tensors; i++)
        sl_json_put_string(&json, writer->tensors[i].name, name_of(writer->shards[writer->tensors[i].file].path));
    sl_json_end_object(&json);
    sl_json_end_object(&json);
    sl_text_append(&json.text, "\n", 1);
    sl_status status = sl_text_status(&json.text);
    if (status == SL_OK)
        status = sl_file_write_atomic(path, json.text.data, json.text.length);
    if (status == SL_OK)
        writer->files[0] = (sl_written_file){.name = name_of(path),
                                             .bytes = (int64_t) json.text.length,
                                             .checksum = sl_hash64(json.text.data, json.text.length, 0)};
    sl_text_free(&json.text);
    return status;
}

sl_status sl_tensors_writer_commit(sl_tensors_writer *writer, uint64_t *checksum)
{
    if (!writer->n_shards)
        SL_TRY(begin(writer));
    if (!writer->file)
        SL_TRY(open_shard(writer));
    if (writer->shard + 1 < writer->n_shards || writer->shard_bytes < writer->shards[writer->shard].bytes)
        return sl_fail(SL_E_INTERNAL, "%s: file %lld of %lld has %lld of %lld bytes of tensor data", writer->path,
                       (long long) writer->shard + 1, (long long) writer->n_shards, (long long) writer->shard_bytes,
                       (long long) writer->shards[writer->shard].bytes);
    SL_TRY(close_shard(writer));
    writer->n_files = writer->n_shards;
    if (writer->n_shards > 1) {
        SL_TRY(write_index(writer));
        writer->n_files++;
    }
    writer->committed = true;
    if (checksum)
        *checksum = writer->files[0].checksum;
    return SL_OK;
}

int64_t sl_tensors_writer_files(const sl_tensors_writer *writer, const sl_written_file **files)
{
    *files = writer->files;
    return writer->committed ? writer->n_files : 0;
}
