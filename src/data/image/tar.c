/*
 * A member is a header of 512 bytes and its data, padded to a multiple of that:
 *
 *     0 name[100]   124 size[12]   148 checksum[8]   156 type   257 "ustar"   345 prefix[155]
 *
 * A number is octal text, or 0x80 and a big-endian number where it needs more digits. What does not fit stands in a member of its own in
 * front: of type L a name (GNU), of type x records "LENGTH key=value\n" (pax), of which path and size matter here.
 */
#include "data/image/tar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"

enum { BLOCK = 512, PAX_BYTES = 1 << 16, AT_SIZE = 124, AT_SUM = 148, AT_TYPE = 156, AT_MAGIC = 257, AT_PREFIX = 345 };

struct sl_tar {
    sl_reader *reader;
    char *path;
    int64_t at;
    char name[SL_TAR_NAME + 1];
    char pax[PAX_BYTES + 1];
};

/* What the members in front say of the next one. */
typedef struct extended {
    bool named, sized;
    int64_t size;
} extended;

sl_status sl_tar_open(const char *path, sl_tar **out)
{
    sl_tar *tar;
    sl_status status;
    SL_TRY(sl_alloc(&tar, 1, sizeof *tar));
    SL_TRY_GOTO(sl_strdup(path, &tar->path), close);
    SL_TRY_GOTO(sl_reader_open(path, &tar->reader), close);
    *out = tar;
    return SL_OK;
close:
    sl_tar_close(tar);
    return status;
}

void sl_tar_close(sl_tar *tar)
{
    if (!tar)
        return;
    sl_reader_close(tar->reader);
    sl_free(tar->path);
    sl_free(tar);
}

void sl_tar_seek(sl_tar *tar, int64_t begin)
{
    tar->at = begin;
}

static sl_status damaged(const sl_tar *tar, const char *what)
{
    return sl_fail(SL_E_FORMAT, "%s is no tar file, or a damaged one: at byte %lld, %s", tar->path, (long long) tar->at,
                   what);
}

/* -1: no number. */
static int64_t number(const unsigned char *field, int64_t length)
{
    int64_t value = 0, i = 0;
    if (field[0] == 0x80) {
        for (i = 1; i < length; i++) {
            if (value >> 50)
                return -1;
            value = value << 8 | field[i];
        }
        return value;
    }
    while (i < length && field[i] == ' ')
        i++;
    for (; i < length && field[i] >= '0' && field[i] <= '7'; i++)
        value = value << 3 | (field[i] - '0'); /* 36 bits at most */
    return i == length || field[i] == 0 || field[i] == ' ' ? value : -1;
}

static bool has_checksum(const unsigned char *header)
{
    int64_t sum = 8 * ' ';
    for (int64_t i = 0; i < BLOCK; i++)
        sum += i >= AT_SUM && i < AT_SUM + 8 ? 0 : header[i];
    return sum == number(header + AT_SUM, 8);
}

static void name_from_header(sl_tar *tar, const unsigned char *header)
{
    const char *prefix = (const char *) header + AT_PREFIX, *name = (const char *) header;
    bool prefixed = memcmp(header + AT_MAGIC, "ustar", 6) == 0 && prefix[0];
    snprintf(tar->name, sizeof tar->name, "%.*s%s%.100s", prefixed ? 155 : 0, prefix, prefixed ? "/" : "", name);
}

/* Records whose lengths lie within the text; others end it. */
static sl_status read_pax(sl_tar *tar, int64_t length, extended *next)
{
    char *at = tar->pax, *end = tar->pax + length;
    while (at < end) {
        char *rest;
        unsigned long long bytes = strtoull(at, &rest, 10); /* the text ends with NUL */
        if (rest == at || *rest != ' ' || bytes > (unsigned long long) (end - at) || at + bytes < rest + 2 ||
            at[bytes - 1] != '\n')
            return damaged(tar, "a pax record has a wrong length");
        char *key = rest + 1, *value = memchr(key, '=', (size_t) (at + bytes - key));
        at[bytes - 1] = 0;
        if (value && value - key == 4 && memcmp(key, "path", 4) == 0) {
            size_t named = (size_t) (at + bytes - 1 - (value + 1));
            if (named > SL_TAR_NAME)
                return damaged(tar, "a name is too long");
            memcpy(tar->name, value + 1, named);
            tar->name[named] = 0;
            next->named = true;
        } else if (value && value - key == 4 && memcmp(key, "size", 4) == 0) {
            unsigned long long size = strtoull(value + 1, &rest, 10);
            if (rest == value + 1 || *rest || size > (unsigned long long) INT64_MAX / 4)
                return damaged(tar, "a pax size is no number");
            next->size = (int64_t) size;
            next->sized = true;
        }
        at += bytes;
    }
    return SL_OK;
}

/* A member of type L or x that lies at tar->at + BLOCK. */
static sl_status read_extended(sl_tar *tar, char type, int64_t bytes, extended *next)
{
    int64_t most = type == 'L' ? SL_TAR_NAME : PAX_BYTES;
    char *to = type == 'L' ? tar->name : tar->pax;
    if (bytes > most)
        return damaged(tar, "an extended header is too long");
    SL_TRY(sl_reader_read(tar->reader, tar->at + BLOCK, to, (size_t) bytes));
    to[bytes] = 0;
    if (type == 'x')
        return read_pax(tar, bytes, next);
    next->named = true;
    return SL_OK;
}

sl_status sl_tar_next(sl_tar *tar, sl_tar_member *member, bool *more)
{
    unsigned char header[BLOCK];
    extended next = {false, false, 0};
    int64_t total = sl_reader_size(tar->reader), begin = tar->at;
    *more = false;
    for (;;) {
        if (tar->at >= total)
            return next.named || next.sized ? damaged(tar, "it ends early") : SL_OK;
        if (total - tar->at < BLOCK)
            return damaged(tar, "it ends early");
        SL_TRY(sl_reader_read(tar->reader, tar->at, header, BLOCK));
        if (header[0] == 0 && header[AT_TYPE] == 0 && header[AT_SUM] == 0)
            return SL_OK;
        if (!has_checksum(header))
            return damaged(tar, "a header has a wrong checksum");
        char type = (char) header[AT_TYPE];
        bool regular = type == '0' || type == 0 || type == '7', empty = type >= '1' && type <= '6';
        int64_t bytes = next.sized && regular ? next.size : empty ? 0 : number(header + AT_SIZE, 12);
        if (bytes < 0 || bytes > total - tar->at - BLOCK)
            return damaged(tar, "a member is longer than the file");
        if (type == 'L' || type == 'x') {
            SL_TRY(read_extended(tar, type, bytes, &next));
        } else if (regular) {
            if (!next.named)
                name_from_header(tar, header);
            *member = (sl_tar_member){tar->name, begin, tar->at + BLOCK, bytes};
            *more = true;
        }
        tar->at = SL_MIN(tar->at + BLOCK + SL_ROUND_UP(bytes, BLOCK), total);
        if (*more)
            return SL_OK;
        if (type != 'L' && type != 'x' && type != 'g') { /* what stood in front was for this one */
            next = (extended){false, false, 0};
            begin = tar->at;
        }
    }
}
