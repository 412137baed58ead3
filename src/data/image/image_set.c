/*
 * A sample is a number of bytes at a place of a shard, or a name in the text of all names. Shards are opened for each image: an open
 * file for each of a thousand shards would be more than a process may have, and opening costs little beside decoding.
 */
#include "data/image/image_set.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/file.h"
#include "core/hash.h"
#include "data/image/set_internal.h"

static const char *const suffixes[] = {".jpg", ".jpeg", ".png"};

bool sl_image_set_is_image(const char *name)
{
    size_t length = strlen(name);
    for (int64_t i = 0; i < SL_COUNT(suffixes); i++) {
        size_t n = strlen(suffixes[i]);
        if (length > n && strcasecmp(name + length - n, suffixes[i]) == 0)
            return true;
    }
    return false;
}

sl_status sl_image_set_add(sl_image_set *set, const sl_image_entry *entry)
{
    if (set->count == set->capacity) {
        int64_t capacity = set->capacity ? 2 * set->capacity : 256;
        SL_TRY(sl_grow(&set->entries, set->count, capacity, sizeof *set->entries));
        set->capacity = capacity;
    }
    set->entries[set->count++] = *entry;
    set->classes = SL_MAX(set->classes, entry->label + 1);
    return SL_OK;
}

sl_status sl_image_set_add_text(sl_image_set *set, const char *text, int64_t *at)
{
    size_t length = strlen(text) + 1;
    if (set->text_length + length > set->text_capacity) {
        size_t capacity = 2 * set->text_capacity + length + 4096;
        SL_TRY(sl_grow(&set->text, set->text_capacity, capacity, 1));
        set->text_capacity = capacity;
    }
    memcpy(set->text + set->text_length, text, length);
    *at = (int64_t) set->text_length;
    set->text_length += length;
    return SL_OK;
}

/* One of the paths: what it holds decides what it is. */
static sl_status add_path(sl_image_set *set, const char *path, const sl_image_set *classes)
{
    size_t length = strlen(path);
    if (!sl_dir_exists(path)) {
        if (length > 4 && strcasecmp(path + length - 4, ".tar") == 0)
            return sl_image_set_add_shard(set, path);
        return sl_fail(SL_E_USAGE, "%s is neither a folder nor a .tar file of images", path);
    }
    bool shards = false;
    SL_TRY(sl_image_set_add_shards(set, path, &shards));
    if (shards)
        return SL_OK;
    if (set->count)
        return sl_fail(SL_E_USAGE, "%s holds class folders, which cannot be joined with other images: give it alone",
                       path);
    return sl_image_set_add_folder(set, path, classes);
}

static sl_status add_paths(sl_image_set *set, const char *paths, const sl_image_set *classes)
{
    char path[SL_IMAGE_PATH];
    if (sl_file_exists(paths)) /* a name may hold commas */
        return add_path(set, paths, classes);
    for (const char *at = paths; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        size_t length = strcspn(at, ",");
        if (length == 0 || length >= sizeof path)
            return sl_fail(SL_E_USAGE, "\"%s\": a path is missing or too long", paths);
        snprintf(path, sizeof path, "%.*s", (int) length, at);
        SL_TRY(add_path(set, path, classes));
    }
    return SL_OK;
}

sl_status sl_image_set_open(const char *paths, const sl_image_set *classes, sl_image_set **out)
{
    sl_image_set *set;
    sl_status status;
    SL_TRY(sl_alloc(&set, 1, sizeof *set));
    SL_TRY_GOTO(sl_region_create(&set->region), close);
    SL_TRY_GOTO(add_paths(set, paths, classes), close);
    if (set->count == 0)
        SL_TRY_GOTO(sl_fail(SL_E_USAGE,
                            "%s holds no images: Sluice reads class folders of .jpg, .jpeg and .png files, and .tar "
                            "shards of them",
                            paths),
                    close);
    if (classes && set->classes > classes->classes)
        SL_TRY_GOTO(
            sl_fail(SL_E_USAGE, "%s has %d classes, but the training data %d", paths, set->classes, classes->classes),
            close);
    if (classes)
        set->classes = classes->classes;
    *out = set;
    return SL_OK;
close:
    sl_image_set_close(set);
    return status;
}

void sl_image_set_close(sl_image_set *set)
{
    if (!set)
        return;
    sl_region_destroy(set->region);
    sl_free(set->entries);
    sl_free(set->text);
    sl_free(set->shards);
    sl_free(set);
}

int64_t sl_image_set_count(const sl_image_set *set)
{
    return set->count;
}

int32_t sl_image_set_classes(const sl_image_set *set)
{
    return set->classes;
}

const char *sl_image_set_class_name(const sl_image_set *set, int32_t label)
{
    return set->folders && label >= 0 && label < set->n_folders ? set->folders[label] : "";
}

int32_t sl_image_set_label(const sl_image_set *set, int64_t index)
{
    return set->entries[index].label;
}

size_t sl_image_set_bytes(const sl_image_set *set)
{
    return sizeof *set + (size_t) set->capacity * sizeof *set->entries + set->text_capacity +
           sl_region_bytes(set->region) + (size_t) set->n_shards * sizeof *set->shards;
}

uint64_t sl_image_set_identity(const sl_image_set *set)
{
    sl_hasher hasher;
    sl_hash_begin(&hasher, (uint64_t) set->count);
    for (int64_t i = 0; i < set->count; i++) /* a shard's folder is not part of it: data may move */
        sl_hash_add(&hasher, &set->entries[i], sizeof set->entries[i]);
    for (int64_t i = 0; i < set->n_folders; i++)
        sl_hash_add(&hasher, set->folders[i], strlen(set->folders[i]) + 1);
    sl_hash_add(&hasher, set->text, set->text_length);
    return sl_hash_end(&hasher);
}

void sl_file_bytes_free(sl_file_bytes *file)
{
    sl_free(file->bytes);
    *file = (sl_file_bytes){0};
}

static sl_status reserve(sl_file_bytes *file, size_t length)
{
    if (length > file->capacity) {
        sl_file_bytes_free(file);
        SL_TRY(sl_alloc(&file->bytes, length, 1));
        file->capacity = length;
    }
    file->length = length;
    return SL_OK;
}

static void path_of(const sl_image_set *set, int64_t index, char path[SL_IMAGE_PATH])
{
    const sl_image_entry *entry = &set->entries[index];
    if (entry->shard >= 0)
        snprintf(path, SL_IMAGE_PATH, "%s", set->shards[entry->shard]);
    else
        snprintf(path, SL_IMAGE_PATH, "%s/%s/%s", set->root, set->folders[entry->label], set->text + entry->at);
}

sl_status sl_image_set_read(const sl_image_set *set, int64_t index, int64_t limit, sl_file_bytes *file)
{
    char path[SL_IMAGE_PATH];
    const sl_image_entry *entry = &set->entries[index];
    sl_reader *reader;
    path_of(set, index, path);
    SL_TRY(sl_reader_open(path, &reader));
    int64_t offset = entry->shard >= 0 ? entry->at + entry->skip : 0;
    int64_t bytes = entry->shard >= 0 ? entry->bytes : sl_reader_size(reader);
    sl_status status = bytes <= limit ? reserve(file, (size_t) bytes)
                                      : sl_fail(SL_E_FORMAT, "a file of %lld bytes: an image has at most %lld here",
                                                (long long) bytes, (long long) limit);
    if (status == SL_OK && bytes > 0)
        status = sl_reader_read(reader, offset, file->bytes, (size_t) bytes);
    sl_reader_close(reader);
    return status;
}

/* A member's name is in its shard alone. */
void sl_image_set_name(const sl_image_set *set, int64_t index, char *name, size_t size)
{
    char path[SL_IMAGE_PATH];
    const sl_image_entry *entry = &set->entries[index];
    sl_tar_member member = {.name = "?"};
    sl_tar *tar = NULL;
    bool more = false;
    path_of(set, index, path);
    if (entry->shard < 0) {
        snprintf(name, size, "%s", path);
        return;
    }
    if (sl_tar_open(path, &tar) == SL_OK) {
        sl_tar_seek(tar, entry->at);
        if (sl_tar_next(tar, &member, &more) != SL_OK || !more)
            member.name = "?";
    }
    snprintf(name, size, "%s:%s", path, member.name);
    sl_tar_close(tar);
}
