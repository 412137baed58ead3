/* Tar shards. Members of a sample lie side by side, so one pass with one sample in memory finds them all. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/file.h"
#include "data/image/set_internal.h"

enum { LABEL_BYTES = 32 };

typedef struct sample {
    char key[SL_TAR_NAME + 1];
    bool any, imaged;
    sl_image_entry entry; /* label -1: not seen yet */
} sample;

/* A name's length up to the first dot behind the last slash, which is what its sample is called. */
static size_t key_length(const char *name)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    return (size_t) (base - name) + strcspn(base, ".");
}

static sl_status finish(sl_image_set *set, const char *path, const sample *s)
{
    if (!s->any)
        return SL_OK;
    if (!s->imaged)
        return sl_fail(SL_E_FORMAT, "%s: sample %s has no .jpg, .jpeg or .png", path, s->key);
    if (s->entry.label < 0)
        return sl_fail(SL_E_FORMAT, "%s: sample %s has no class: %s.cls should hold its number", path, s->key, s->key);
    return sl_image_set_add(set, &s->entry);
}

static sl_status read_label(sl_reader *reader, const char *path, const sl_tar_member *member, int32_t *label)
{
    char text[LABEL_BYTES + 1] = {0};
    int64_t value = 0, i = 0;
    if (member->bytes <= LABEL_BYTES)
        SL_TRY(sl_reader_read(reader, member->offset, text, (size_t) member->bytes));
    for (; text[i] >= '0' && text[i] <= '9' && value < SL_IMAGE_CLASSES; i++)
        value = 10 * value + (text[i] - '0');
    if (i == 0 || value >= SL_IMAGE_CLASSES || text[i + (int64_t) strspn(text + i, " \r\n")] ||
        member->bytes > LABEL_BYTES)
        return sl_fail(SL_E_FORMAT, "%s: %s holds no class number below %d", path, member->name, SL_IMAGE_CLASSES);
    *label = (int32_t) value;
    return SL_OK;
}

static sl_status add_member(sl_image_set *set, const char *path, sl_reader *reader, const sl_tar_member *member,
                            sample *s)
{
    size_t length = key_length(member->name);
    const char *extension = member->name + length;
    bool image =
        strcasecmp(extension, ".jpg") == 0 || strcasecmp(extension, ".jpeg") == 0 || strcasecmp(extension, ".png") == 0;
    bool class = strcmp(extension, ".cls") == 0;
    if (!image && !class)
        return SL_OK; /* masks, captions, and files of another kind */
    if (!s->any || strlen(s->key) != length || memcmp(s->key, member->name, length) != 0) {
        SL_TRY(finish(set, path, s));
        memcpy(s->key, member->name, length);
        s->key[length] = 0;
        s->any = true;
        s->imaged = false;
        s->entry.label = -1;
    }
    if (class)
        return read_label(reader, path, member, &s->entry.label);
    if (s->imaged || member->offset - member->begin > INT32_MAX)
        return sl_fail(SL_E_FORMAT, "%s: sample %s has two images", path, s->key);
    s->imaged = true;
    s->entry.at = member->begin;
    s->entry.skip = (int32_t) (member->offset - member->begin);
    s->entry.bytes = (int32_t) SL_MIN(member->bytes, SL_IMAGE_FILE_BYTES + 1); /* too big: found when it is read */
    return SL_OK;
}

sl_status sl_image_set_add_shard(sl_image_set *set, const char *path)
{
    sl_tar *tar = NULL;
    sl_reader *reader = NULL;
    sample *s = NULL;
    sl_tar_member member;
    bool more = true;
    sl_status status;
    if (set->root)
        return sl_fail(SL_E_USAGE, "%s cannot be joined with class folders: give it alone", path);
    SL_TRY(sl_grow(&set->shards, set->n_shards, set->n_shards + 1, sizeof *set->shards));
    SL_TRY(sl_region_strdup(set->region, path, &set->shards[set->n_shards]));
    SL_TRY_GOTO(sl_alloc(&s, 1, sizeof *s), done);
    s->entry.shard = (int32_t) set->n_shards++;
    SL_TRY_GOTO(sl_tar_open(path, &tar), done);
    SL_TRY_GOTO(sl_reader_open(path, &reader), done);
    for (;;) {
        SL_TRY_GOTO(sl_tar_next(tar, &member, &more), done);
        if (!more)
            break;
        SL_TRY_GOTO(add_member(set, path, reader, &member, s), done);
    }
    status = finish(set, path, s);
done:
    sl_reader_close(reader);
    sl_tar_close(tar);
    sl_free(s);
    return status;
}

sl_status sl_image_set_add_shards(sl_image_set *set, const char *path, bool *found)
{
    sl_region *region;
    const char **names;
    int64_t count;
    *found = false;
    SL_TRY(sl_region_create(&region));
    sl_status status = sl_dir_list(region, path, &names, &count);
    for (int64_t i = 0; i < count && status == SL_OK; i++) {
        char shard[SL_IMAGE_PATH];
        size_t length = strlen(names[i]);
        if (length <= 4 || names[i][0] == '.' || strcasecmp(names[i] + length - 4, ".tar") != 0)
            continue;
        *found = true;
        status = sl_image_set_path(shard, path, names[i]);
        if (status == SL_OK)
            status = sl_image_set_add_shard(set, shard);
    }
    sl_region_destroy(region);
    return status;
}
