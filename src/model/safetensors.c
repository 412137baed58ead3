/*
 * A set of safetensors files: one, or those of an index. Opening reads and checks all headers (safetensors_header.c). Data is read with
 * pread in pieces of at most STAGING bytes and converted on the way.
 */
#include "model/safetensors_header.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bf16.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensor data is little-endian and is read as it stands");

enum { STAGING = 1 << 18, INDEX_LIMIT = 64 << 20, FILES_LIMIT = 4096, CONFIG_LIMIT = 1 << 20 };

struct sl_tensors {
    sl_region *region; /* names, paths, tensors */
    sl_reader **readers;
    const char **paths;
    int32_t n_files, capacity_files;
    sl_tensor_list list; /* by name once opened */
    bool in_pairs;
    void *staging;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const sl_tensor *) a)->name, ((const sl_tensor *) b)->name);
}

static sl_status add_file(sl_tensors *set, const char *path)
{
    int32_t file = set->n_files;
    if (file >= FILES_LIMIT)
        return sl_fail(SL_E_FORMAT, "%s: a model of more than %d files is refused", path, FILES_LIMIT);
    if (file >= set->capacity_files) {
        int32_t capacity = SL_MAX(8, set->capacity_files * 2);
        SL_TRY(sl_grow(&set->readers, set->n_files, capacity, sizeof *set->readers));
        SL_TRY(sl_grow(&set->paths, set->n_files, capacity, sizeof *set->paths));
        set->capacity_files = capacity;
    }
    SL_TRY(sl_region_strdup(set->region, path, &set->paths[file]));
    SL_TRY(sl_reader_open(path, &set->readers[file]));
    set->n_files++;
    return sl_tensor_list_read(set->readers[file], path, file, set->region, &set->list);
}

static void sort(sl_tensors *set)
{
    if (set->list.count > 1) /* without any there is no array either */
        qsort(set->list.tensors, (size_t) set->list.count, sizeof *set->list.tensors, by_name);
}

/* ---- index ---- */

static sl_status check_file_name(const char *index, const sl_json *entry)
{
    if (entry->kind != SL_JSON_STRING || entry->length == 0 || strlen(entry->string) != entry->length ||
        strchr(entry->string, '/') || entry->string[0] == '.')
        return sl_fail(SL_E_FORMAT, "%s: \"%s\" must name a file beside the index", index, entry->key);
    return SL_OK;
}

/* `slash` bytes of the index's path are its folder. */
static sl_status add_indexed_file(sl_tensors *set, const char *index, int slash, const char *name)
{
    const char *path;
    SL_TRY(sl_region_printf(set->region, &path, "%.*s%s", slash, index, name));
    for (int32_t i = 0; i < set->n_files; i++)
        if (strcmp(set->paths[i], path) == 0)
            return SL_OK;
    return add_file(set, path);
}

static sl_status parse_index(sl_tensors *set, const char *path, const char *text, size_t length)
{
    const sl_json *root;
    const char *last = strrchr(path, '/');
    int slash = last ? (int) (last - path) + 1 : 0;
    SL_TRY(sl_json_parse(set->region, path, text, length, &root));
    const sl_json *map = sl_json_get(root, "weight_map");
    if (!map || map->kind != SL_JSON_OBJECT)
        return sl_fail(SL_E_FORMAT, "%s: there is no object \"weight_map\"; this is no index of safetensors files",
                       path);
    for (const sl_json *entry = map->child; entry; entry = entry->next) {
        SL_TRY(check_file_name(path, entry));
        SL_TRY(add_indexed_file(set, path, slash, entry->string));
    }
    sort(set);
    for (const sl_json *entry = map->child; entry; entry = entry->next) {
        const sl_tensor *tensor = sl_tensors_find(set, entry->key);
        if (!tensor || strcmp(set->paths[tensor->file] + slash, entry->string) != 0)
            return sl_fail(SL_E_FORMAT, "%s: tensor \"%s\" is not in \"%s\" as the index says", path, entry->key,
                           entry->string);
    }
    return SL_OK;
}

static sl_status open_index(sl_tensors *set, const char *path)
{
    char *text;
    size_t length;
    SL_TRY(sl_file_read_all(path, INDEX_LIMIT, &text, &length));
    sl_status status = parse_index(set, path, text, length);
    sl_free(text);
    return status;
}

/* ---- opening ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static sl_status open_path(sl_tensors *set, const char *path)
{
    const char *one, *many;
    if (!sl_dir_exists(path))
        return ends_with(path, ".json") ? open_index(set, path) : add_file(set, path);
    SL_TRY(sl_region_printf(set->region, &one, "%s/model.safetensors", path));
    SL_TRY(sl_region_printf(set->region, &many, "%s/model.safetensors.index.json", path));
    if (sl_file_exists(one) || sl_dir_exists(one)) /* a folder of that name is refused by name */
        return add_file(set, one);
    if (sl_file_exists(many) || sl_dir_exists(many))
        return open_index(set, many);
    return sl_fail(SL_E_IO, "%s: there is neither model.safetensors nor model.safetensors.index.json in this folder",
                   path);
}

static sl_status check_names(sl_tensors *set)
{
    sort(set);
    for (int64_t i = 1; i < set->list.count; i++)
        if (strcmp(set->list.tensors[i - 1].name, set->list.tensors[i].name) == 0)
            return sl_fail(SL_E_FORMAT, "%s: tensor \"%s\" is there twice", set->paths[set->list.tensors[i].file],
                           set->list.tensors[i].name);
    return SL_OK;
}

/* From config.json beside the first file. One that is no JSON was not written by Sluice and does not matter here. */
static sl_status read_row_order(sl_tensors *set)
{
    const char *path, *first = set->n_files ? set->paths[0] : "", *slash = strrchr(first, '/');
    const sl_json *root = NULL, *key;
    size_t length;
    char *text;
    SL_TRY(sl_region_printf(set->region, &path, "%.*sconfig.json", slash ? (int) (slash - first) + 1 : 0, first));
    if (!sl_file_exists(path))
        return SL_OK;
    sl_status status = sl_file_read_all(path, CONFIG_LIMIT, &text, &length);
    if (status == SL_OK) {
        const char *begin = sl_json_after_mark(text, &length);
        status = sl_json_parse(set->region, path, begin, length, &root);
        sl_free(text);
    }
    if (status != SL_OK)
        return status == SL_E_FORMAT ? SL_OK : status;
    key = sl_json_get(root, "rope_interleaved");
    set->in_pairs = key && key->kind == SL_JSON_BOOL && key->boolean;
    return SL_OK;
}

sl_status sl_tensors_open(const char *path, sl_tensors **tensors)
{
    sl_tensors *set;
    sl_status status;
    SL_TRY(sl_alloc(&set, 1, sizeof *set));
    SL_TRY_GOTO(sl_region_create(&set->region), close);
    SL_TRY_GOTO(sl_alloc(&set->staging, STAGING, 1), close);
    SL_TRY_GOTO(open_path(set, path), close);
    SL_TRY_GOTO(check_names(set), close);
    SL_TRY_GOTO(read_row_order(set), close);
    *tensors = set;
    return SL_OK;
close:
    sl_tensors_close(set);
    return status;
}

void sl_tensors_close(sl_tensors *set)
{
    if (!set)
        return;
    for (int32_t i = 0; i < set->n_files; i++)
        sl_reader_close(set->readers[i]);
    sl_free(set->readers);
    sl_free(set->paths);
    sl_free(set->list.tensors);
    sl_free(set->staging);
    sl_region_destroy(set->region);
    sl_free(set);
}

int64_t sl_tensors_count(const sl_tensors *set)
{
    return set->list.count;
}

const sl_tensor *sl_tensors_at(const sl_tensors *set, int64_t index)
{
    return &set->list.tensors[index];
}

const sl_tensor *sl_tensors_find(const sl_tensors *set, const char *name)
{
    sl_tensor key = {.name = name};
    return set->list.count ? bsearch(&key, set->list.tensors, (size_t) set->list.count, sizeof key, by_name) : NULL;
}

const char *sl_tensors_metadata(const sl_tensors *set, const char *key)
{
    const sl_json *entry = set->list.metadata ? sl_json_get(set->list.metadata, key) : NULL;
    return entry ? entry->string : NULL;
}

const char *sl_tensors_file(const sl_tensors *set, const sl_tensor *tensor)
{
    return set->paths[tensor->file];
}

bool sl_tensors_in_pairs(const sl_tensors *set)
{
    return set->in_pairs;
}

/* ---- data ---- */

sl_status sl_tensors_read_raw(sl_tensors *set, const sl_tensor *tensor, int64_t offset, void *out, size_t length)
{
    SL_ASSERT(offset >= 0 && (int64_t) length <= tensor->bytes && offset <= tensor->bytes - (int64_t) length);
    return sl_reader_read(set->readers[tensor->file], tensor->offset + offset, out, length);
}

/* IEEE half to single; exact. */
static float half_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t) (half & 0x8000u) << 16, exponent = half >> 10 & 31u, mantissa = half & 0x3ffu, bits;
    float out;
    if (exponent == 0) { /* zero or subnormal: mantissa * 2^-24 */
        out = (float) mantissa * 0x1p-24f;
        return sign ? -out : out;
    }
    bits = sign | (exponent == 31 ? 0xffu << 23 : (exponent + 112) << 23) | mantissa << 13;
    memcpy(&out, &bits, 4);
    return out;
}

static float load(sl_file_dtype dtype, const void *raw, int64_t i)
{
    if (dtype == SL_FILE_F32)
        return ((const float *) raw)[i];
    uint16_t bits = ((const uint16_t *) raw)[i];
    return dtype == SL_FILE_BF16 ? sl_bf16_to_f32(bits) : half_to_float(bits);
}

static void store(sl_dtype dtype, void *out, int64_t i, float value)
{
    if (dtype == SL_F32)
        ((float *) out)[i] = value;
    else
        ((sl_bf16 *) out)[i] = sl_f32_to_bf16(value);
}

static sl_status check_dtype(const sl_tensors *set, const sl_tensor *tensor, sl_dtype dtype)
{
    bool is_float = tensor->dtype == SL_FILE_F32 || tensor->dtype == SL_FILE_BF16 || tensor->dtype == SL_FILE_F16;
    if (dtype == SL_I32 ? tensor->dtype != SL_FILE_I32 : !is_float)
        return sl_fail(SL_E_UNSUPPORTED, "%s: tensor \"%s\" is %s; F32, BF16 and F16 can be read as weights",
                       set->paths[tensor->file], tensor->name, sl_file_dtype_name(tensor->dtype));
    return SL_OK;
}

sl_status sl_tensors_read(sl_tensors *set, const sl_tensor *tensor, int64_t first, int64_t count, sl_dtype dtype,
                          void *out)
{
    int64_t size = (int64_t) sl_file_dtype_bytes(tensor->dtype), most = STAGING / size;
    SL_TRY(check_dtype(set, tensor, dtype));
    SL_ASSERT(first >= 0 && count >= 0 && first <= tensor->count - count);
    if (sl_file_dtype_of(dtype) == tensor->dtype)
        return sl_tensors_read_raw(set, tensor, first * size, out, (size_t) (count * size));
    for (int64_t done = 0; done < count; done += most) {
        int64_t piece = SL_MIN(most, count - done);
        SL_TRY(sl_tensors_read_raw(set, tensor, (first + done) * size, set->staging, (size_t) (piece * size)));
        for (int64_t i = 0; i < piece; i++)
            store(dtype, out, done + i, load(tensor->dtype, set->staging, i));
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
    bool whole = rows * size <= STAGING && count * 8 >= rows;
    int64_t at_once = whole ? STAGING / (rows * size) : 1, most = whole ? rows : STAGING / size;
    for (int64_t c = 0; c < columns; c += at_once) {
        int64_t n = SL_MIN(at_once, columns - c);
        for (int64_t done = 0; done < count; done += most) {
            int64_t piece = SL_MIN(most, count - done), from = whole ? 0 : first + done;
            int64_t bytes = whole ? n * rows * size : piece * size, skip = whole ? first : 0;
            SL_TRY(sl_tensors_read_raw(set, tensor, (c * rows + from) * size, set->staging, (size_t) bytes));
            for (int64_t k = 0; k < n; k++)
                for (int64_t j = 0; j < piece; j++)
                    store(dtype, out, (done + j) * columns + c + k,
                          load(tensor->dtype, set->staging, k * rows + skip + j));
        }
    }
    return SL_OK;
}
