/* The fields of an image set, for the files that fill it: folder.c and shards.c. */
#ifndef SL_DATA_IMAGE_SET_INTERNAL_H
#define SL_DATA_IMAGE_SET_INTERNAL_H

#include <stdbool.h>

#include "core/mem.h"
#include "data/image/image_set.h"
#include "data/image/tar.h"

enum { SL_IMAGE_PATH = 2 * SL_TAR_NAME };

/* Hashed as bytes: no padding. */
typedef struct sl_image_entry {
    int64_t at;    /* of a shard: where the member's headers begin; of a folder: where its name lies in the text */
    int32_t skip;  /* headers */
    int32_t bytes; /* of a shard's member */
    int32_t label;
    int32_t shard; /* -1: a folder's */
} sl_image_entry;

struct sl_image_set {
    sl_region *region;
    sl_image_entry *entries;
    int64_t count, capacity;
    int32_t classes;
    char *text; /* names of files, from their class folder on, each with its NUL */
    size_t text_length, text_capacity;
    const char *root;     /* of the class folders */
    const char **folders; /* by label */
    int32_t n_folders;
    const char **shards;
    int64_t n_shards;
};

bool sl_image_set_is_image(const char *name);
/* folder/name, or an error where that is too long; of the folder "" the name alone. */
sl_status sl_image_set_path(char path[SL_IMAGE_PATH], const char *folder, const char *name);
sl_status sl_image_set_add(sl_image_set *set, const sl_image_entry *entry);
sl_status sl_image_set_add_text(sl_image_set *set, const char *text, int64_t *at);
sl_status sl_image_set_add_folder(sl_image_set *set, const char *path, const sl_image_set *classes);
/* All .tar files of a folder; `found`: there are any. */
sl_status sl_image_set_add_shards(sl_image_set *set, const char *path, bool *found);
sl_status sl_image_set_add_shard(sl_image_set *set, const char *path);

#endif
