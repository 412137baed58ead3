/*
 * A set of safetensors files: one, or those of an index. Opening reads and checks all headers (safetensors_header.c), and finds the
 * scales of 8-bit weights. safetensors_data.c reads their data.
 */
#include "model/safetensors_header.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INDEX_LIMIT = 64 << 20, FILES_LIMIT = 4096, CONFIG_LIMIT = 1 << 20 };

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

/* ---- what config.json beside the first file says of them ---- */

/* A block of an 8-bit weight that has one scale: "weight_block_size" of DeepSeek's files, "block_structure" of compressed-tensors. */
static const sl_json *find_block(const sl_json *object, int depth)
{
    for (const sl_json *member = object->child; member && depth; member = member->next) {
        bool named = member->key &&
                     (strcmp(member->key, "weight_block_size") == 0 || strcmp(member->key, "block_structure") == 0);
        if (named && member->kind == SL_JSON_ARRAY && member->count == 2)
            return member;
        const sl_json *inside = member->kind == SL_JSON_OBJECT ? find_block(member, depth - 1) : NULL;
        if (inside)
            return inside;
    }
    return NULL;
}

static sl_status read_block(const char *path, const sl_json *root, sl_tensors *set)
{
    const sl_json *config = sl_json_get(root, "quantization_config");
    if (!config || config->kind != SL_JSON_OBJECT)
        return SL_OK;
    set->quantized = true;
    const sl_json *block = find_block(config, 4);
    if (!block)
        return SL_OK;
    const sl_json *sides[2] = {block->child, block->child->next};
    for (int i = 0; i < 2; i++) {
        if (!sides[i]->is_integer || sides[i]->integer < 1 || sides[i]->integer > INT32_MAX)
            return sl_fail(SL_E_FORMAT, "%s: \"%s\" must hold two positive numbers", path, block->key);
        set->block[i] = sides[i]->integer;
    }
    return SL_OK;
}

/* One that is no JSON was not written by Sluice and does not matter here. */
static sl_status read_config(sl_tensors *set)
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
    return read_block(path, root, set);
}

/* ---- scales ---- */

static bool is_8_bit(const sl_tensor *tensor)
{
    return tensor->dtype == SL_FILE_F8_E4M3 || tensor->dtype == SL_FILE_F8_E5M2;
}

/* One scale for all of a weight, for each row, or for each block. */
static sl_status set_block(const sl_tensors *set, sl_tensor *tensor, const sl_tensor *scale)
{
    int64_t rows = tensor->rank ? tensor->dim[0] : 1, columns = rows ? tensor->count / rows : 0;
    bool blocks = scale->rank == 2 && scale->dim[0] == SL_DIV_UP(rows, set->block[0]) &&
                  scale->dim[1] == SL_DIV_UP(columns, set->block[1]);
    tensor->scale = scale;
    tensor->block[0] = rows, tensor->block[1] = columns;
    if (scale->count == 1)
        return SL_OK;
    if (blocks)
        tensor->block[0] = set->block[0], tensor->block[1] = set->block[1];
    else if (scale->count == rows && scale->rank && scale->dim[0] == rows)
        tensor->block[0] = 1;
    else
        return sl_fail(SL_E_FORMAT,
                       "%s: \"%s\" holds %lld scales, but \"%s\" of %lld x %lld needs one, one per row, or one per "
                       "block of %lld x %lld",
                       set->paths[scale->file], scale->name, (long long) scale->count, tensor->name, (long long) rows,
                       (long long) columns, (long long) set->block[0], (long long) set->block[1]);
    return SL_OK;
}

static sl_status find_scales(sl_tensors *set)
{
    static const char *const ends[] = {"_scale_inv", "_scale"}; /* both are what the weight is to be multiplied with */
    for (int64_t i = 0; i < set->list.count; i++) {
        sl_tensor *tensor = &set->list.tensors[i];
        for (int64_t e = 0; e < SL_COUNT(ends) && is_8_bit(tensor) && !tensor->scale; e++) {
            char name[512];
            if (snprintf(name, sizeof name, "%s%s", tensor->name, ends[e]) >= (int) sizeof name)
                continue;
            const sl_tensor *scale = sl_tensors_find(set, name);
            if (scale)
                SL_TRY(set_block(set, tensor, scale));
        }
    }
    return SL_OK;
}

sl_status sl_tensors_open(const char *path, sl_tensors **tensors)
{
    sl_tensors *set;
    sl_status status;
    SL_TRY(sl_alloc(&set, 1, sizeof *set));
    set->block[0] = set->block[1] = 128;
    sl_tensors_list_values(set);
    SL_TRY_GOTO(sl_region_create(&set->region), close);
    SL_TRY_GOTO(sl_alloc(&set->staging, SL_TENSORS_STAGING, 1), close);
    SL_TRY_GOTO(open_path(set, path), close);
    SL_TRY_GOTO(check_names(set), close);
    SL_TRY_GOTO(read_config(set), close);
    SL_TRY_GOTO(find_scales(set), close);
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
