/*
 * The header of a safetensors file:
 *
 *     | u64 n | JSON header of n bytes | data ........ |
 *               {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {...}}
 *
 * It is checked whole: offsets in order of place leave no gap, do not overlap, end with the file and match dtype and shape. After that a
 * tensor's numbers can be trusted by everything else.
 */
#include "model/safetensors_header.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER_LIMIT = 100 << 20 };

static const struct {
    const char *name;
    size_t bytes;
} dtypes[SL_FILE_DTYPE_COUNT] = {
#define X(name, bytes) {#name, bytes},
    SL_FILE_DTYPES(X)
#undef X
};

const char *sl_file_dtype_name(sl_file_dtype dtype)
{
    return dtypes[dtype].name;
}

size_t sl_file_dtype_bytes(sl_file_dtype dtype)
{
    return dtypes[dtype].bytes;
}

sl_file_dtype sl_file_dtype_of(sl_dtype dtype)
{
    int file = 0;
    while (file < SL_FILE_DTYPE_COUNT && strcmp(dtypes[file].name, sl_dtype_file_name(dtype)) != 0)
        file++;
    SL_ASSERT(file < SL_FILE_DTYPE_COUNT);
    return (sl_file_dtype) file;
}

const char *sl_file_dtype_config_name(sl_file_dtype dtype)
{
    return dtype == SL_FILE_F32    ? "float32"
           : dtype == SL_FILE_BF16 ? "bfloat16"
           : dtype == SL_FILE_F16  ? "float16"
                                   : NULL;
}

static sl_status bad_tensor(const char *path, const char *name, const char *what)
{
    return sl_fail(SL_E_FORMAT, "%s: tensor \"%s\" %s; the file is damaged or no safetensors file", path, name, what);
}

static sl_status parse_shape(const char *path, const sl_json *shape, sl_tensor *tensor)
{
    if (!shape || shape->kind != SL_JSON_ARRAY || shape->count > SL_FILE_MAX_RANK)
        return bad_tensor(path, tensor->name, "has no shape of at most 8 numbers");
    tensor->count = 1;
    for (const sl_json *dim = shape->child; dim; dim = dim->next) {
        if (dim->kind != SL_JSON_NUMBER || !dim->is_integer || dim->integer < 0 ||
            __builtin_mul_overflow(tensor->count, dim->integer, &tensor->count))
            return bad_tensor(path, tensor->name, "has a shape that is negative, not whole or too large");
        tensor->dim[tensor->rank++] = dim->integer;
    }
    if (__builtin_mul_overflow(tensor->count, (int64_t) dtypes[tensor->dtype].bytes, &tensor->bytes))
        return bad_tensor(path, tensor->name, "has a shape that is too large");
    return SL_OK;
}

static sl_status parse_tensor(const char *path, const sl_json *member, int64_t data_bytes, sl_tensor *tensor)
{
    const sl_json *dtype = sl_json_get(member, "dtype"), *offsets = sl_json_get(member, "data_offsets");
    int found = -1;
    if (member->kind != SL_JSON_OBJECT || member->count != 3 || !dtype || dtype->kind != SL_JSON_STRING)
        return bad_tensor(path, tensor->name, "is not described by dtype, shape and data_offsets");
    for (int i = 0; i < SL_FILE_DTYPE_COUNT; i++)
        if (strcmp(dtypes[i].name, dtype->string) == 0)
            found = i;
    if (found < 0)
        return sl_fail(SL_E_UNSUPPORTED, "%s: tensor \"%s\" has the unknown dtype \"%s\"", path, tensor->name,
                       dtype->string);
    tensor->dtype = (sl_file_dtype) found;
    SL_TRY(parse_shape(path, sl_json_get(member, "shape"), tensor));
    if (!offsets || offsets->kind != SL_JSON_ARRAY || offsets->count != 2 || !offsets->child->is_integer ||
        !offsets->child->next->is_integer)
        return bad_tensor(path, tensor->name, "has no two data_offsets");
    int64_t begin = offsets->child->integer, end = offsets->child->next->integer;
    if (begin < 0 || end < begin || end > data_bytes)
        return bad_tensor(path, tensor->name, "lies outside the file");
    if (end - begin != tensor->bytes)
        return bad_tensor(path, tensor->name, "has data_offsets that do not match its shape");
    tensor->offset = begin;
    return SL_OK;
}

static int by_place(const void *a, const void *b)
{
    const sl_tensor *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* empty ones first */
}

/* The data is covered exactly once. Offsets become places in the file. */
static sl_status check_cover(const char *path, sl_tensor *tensors, int64_t count, int64_t data_start,
                             int64_t data_bytes)
{
    int64_t end = 0;
    qsort(tensors, (size_t) count, sizeof *tensors, by_place);
    for (int64_t i = 0; i < count; i++) {
        if (tensors[i].offset != end)
            return bad_tensor(path, tensors[i].name,
                              tensors[i].offset < end ? "overlaps another" : "begins behind a gap");
        end += tensors[i].bytes;
        tensors[i].offset += data_start;
    }
    if (end != data_bytes)
        return sl_fail(SL_E_FORMAT, "%s: %lld bytes of data belong to no tensor; the file is damaged", path,
                       (long long) (data_bytes - end));
    return SL_OK;
}

static sl_status check_metadata(const char *path, const sl_json *metadata)
{
    if (metadata->kind != SL_JSON_OBJECT)
        return sl_fail(SL_E_FORMAT, "%s: \"__metadata__\" is no object", path);
    for (const sl_json *entry = metadata->child; entry; entry = entry->next)
        if (entry->kind != SL_JSON_STRING)
            return sl_fail(SL_E_FORMAT, "%s: \"__metadata__\" entry \"%s\" is no string", path, entry->key);
    return SL_OK;
}

static sl_status reserve(sl_tensor_list *list, int64_t more)
{
    if (list->tensors && list->count + more <= list->capacity)
        return SL_OK;
    int64_t capacity = SL_MAX(SL_MAX(list->capacity * 2, 64), list->count + more);
    SL_TRY(sl_grow(&list->tensors, list->count, capacity, sizeof *list->tensors));
    list->capacity = capacity;
    return SL_OK;
}

static sl_status parse_header(const char *path, int32_t file, const char *text, size_t length, int64_t data_bytes,
                              sl_region *region, sl_tensor_list *list)
{
    const sl_json *root;
    int64_t first = list->count;
    SL_TRY(sl_json_parse(region, path, text, length, &root));
    if (root->kind != SL_JSON_OBJECT)
        return sl_fail(SL_E_FORMAT, "%s: the header is no JSON object", path);
    SL_TRY(reserve(list, root->count));
    for (const sl_json *member = root->child; member; member = member->next) {
        if (strcmp(member->key, "__metadata__") == 0) {
            SL_TRY(check_metadata(path, member));
            if (file == 0)
                list->metadata = member;
            continue;
        }
        sl_tensor *tensor = &list->tensors[list->count];
        *tensor = (sl_tensor){.name = member->key, .file = file};
        SL_TRY(parse_tensor(path, member, data_bytes, tensor));
        list->count++;
    }
    return check_cover(path, list->tensors + first, list->count - first, (int64_t) length + 8, data_bytes);
}

sl_status sl_tensor_list_read(sl_reader *reader, const char *path, int32_t file, sl_region *region,
                              sl_tensor_list *list)
{
    int64_t size = sl_reader_size(reader);
    uint64_t length;
    char *text;
    if (size < 8)
        return sl_fail(SL_E_FORMAT, "%s: %lld bytes are too few for a safetensors file", path, (long long) size);
    SL_TRY(sl_reader_read(reader, 0, &length, 8));
    if (length < 2 || length > HEADER_LIMIT || (int64_t) length > size - 8)
        return sl_fail(SL_E_FORMAT,
                       "%s: the header claims %llu bytes of a file of %lld; it is truncated or no safetensors file",
                       path, (unsigned long long) length, (long long) size);
    SL_TRY(sl_alloc(&text, length + 1, 1));
    sl_status status = sl_reader_read(reader, 8, text, length);
    if (status == SL_OK && text[0] != '{')
        status = sl_fail(SL_E_FORMAT, "%s: the header does not begin with '{'; this is no safetensors file", path);
    if (status == SL_OK)
        status = parse_header(path, file, text, length, size - 8 - (int64_t) length, region, list);
    sl_free(text);
    return status;
}
