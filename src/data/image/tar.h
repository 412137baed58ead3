/*
 * Members of a tar file, one by one: ustar, GNU long names and sizes, pax paths and sizes. Only headers are read, so indexing a shard
 * costs one small read per member. A file may end without the two blocks of zeros that tar writes, but not within a member.
 *
 * Memory: one header; names of at most SL_TAR_NAME bytes.
 */
#ifndef SL_DATA_IMAGE_TAR_H
#define SL_DATA_IMAGE_TAR_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

enum { SL_TAR_NAME = 4096 };

typedef struct sl_tar sl_tar;
typedef struct sl_tar_member {
    const char *name; /* until the next member */
    int64_t begin;    /* of its headers: where sl_tar_seek may go */
    int64_t offset, bytes;
} sl_tar_member;

sl_status sl_tar_open(const char *path, sl_tar **tar);
void sl_tar_close(sl_tar *tar);
/* The next regular file; folders, links and other members are passed over. */
sl_status sl_tar_next(sl_tar *tar, sl_tar_member *member, bool *more);
void sl_tar_seek(sl_tar *tar, int64_t begin);

#endif
