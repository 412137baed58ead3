/*
 * Labelled images, by number. Two forms:
 *
 *     a folder of class folders     DIR/cat/1.jpg   the classes are the folders' names in byte order; files of a class may lie deeper
 *     tar shards (WebDataset)       0001.jpg 0001.cls 0002.jpg ...   a .tar file, a folder of them, or several separated by commas;
 *                                   what has the same name up to the first dot is one sample, and .cls holds its class in decimal
 *
 * Images are files that end with .jpg, .jpeg or .png; others are passed over. Opening lists files and reads the headers of shards, whose
 * images are then read where they lie, in any order: no shard is ever in memory. A sample takes 24 bytes, in folders its name too.
 */
#ifndef SL_DATA_IMAGE_IMAGE_SET_H
#define SL_DATA_IMAGE_IMAGE_SET_H

#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

enum {
    SL_IMAGE_FILE_BYTES = 1 << 28, /* at most */
    SL_IMAGE_CLASSES = 1 << 20,
};

typedef struct sl_image_set sl_image_set;

/* `classes`: the training set, whose class folders have the same numbers here; one that it lacks is an error. NULL: of its own. */
sl_status sl_image_set_open(const char *paths, const sl_image_set *classes, sl_image_set **set);
void sl_image_set_close(sl_image_set *set);

int64_t sl_image_set_count(const sl_image_set *set);
int32_t sl_image_set_classes(const sl_image_set *set);
/* "" for shards, which have numbers only. */
const char *sl_image_set_class_name(const sl_image_set *set, int32_t label);
int32_t sl_image_set_label(const sl_image_set *set, int64_t index);
size_t sl_image_set_bytes(const sl_image_set *set); /* of the heap */
/* The same for the same names, sizes (of shards) and labels in the same order: compared when a run is resumed. */
uint64_t sl_image_set_identity(const sl_image_set *set);

/* A file's bytes. Reused from file to file: begin with zeros, end with sl_file_bytes_free. */
typedef struct sl_file_bytes {
    unsigned char *bytes;
    size_t length, capacity;
} sl_file_bytes;
void sl_file_bytes_free(sl_file_bytes *file);

/* Both may be called by several threads at once. */
sl_status sl_image_set_read(const sl_image_set *set, int64_t index, int64_t limit,
                            sl_file_bytes *file); /* at most `limit` bytes */
/* For people: a path, or shard:member. */
void sl_image_set_name(const sl_image_set *set, int64_t index, char *name, size_t size);

#endif
