/* A shard's header counts its tokens, which are known at the end: the file is written under another name, its header last. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/file.h"
#include "core/io_error.h"
#include "core/mem.h"
#include "data/shard.h"

enum { NAME_BYTES = 1024, BUFFER_TOKENS = 16384 };

struct sl_shard_writer {
    char path[NAME_BYTES], now[NAME_BYTES], temporary[NAME_BYTES + 8];
    FILE *file; /* NULL: none is open */
    int64_t vocab, most, tokens, files;
    int32_t separator;
    bool narrow; /* uint16 */
    unsigned char buffer[BUFFER_TOKENS * 4];
};

static sl_status failed(const sl_shard_writer *w)
{
    return sl_io_failed("write", w->temporary, errno, 0);
}

static sl_status begin(sl_shard_writer *w)
{
    const char *slash = strrchr(w->path, '/'), *dot = strrchr(w->path, '.');
    int stem = (int) (dot && dot > w->path && dot > slash ? dot - w->path : (int64_t) strlen(w->path));
    if (w->files == 0)
        snprintf(w->now, sizeof w->now, "%s", w->path);
    else
        snprintf(w->now, sizeof w->now, "%.*s-%05lld%s", stem, w->path, (long long) w->files, w->path + stem);
    snprintf(w->temporary, sizeof w->temporary, "%s.tmp", w->now);
    w->file = fopen(w->temporary, "wb");
    w->tokens = 0;
    memset(w->buffer, 0, SL_SHARD_HEADER_BYTES);
    if (!w->file || fwrite(w->buffer, 1, SL_SHARD_HEADER_BYTES, w->file) != SL_SHARD_HEADER_BYTES)
        return failed(w);
    return SL_OK;
}

sl_status sl_shard_writer_open(const char *path, int64_t vocab, int32_t separator, int64_t most,
                               sl_shard_writer **writer)
{
    sl_shard_writer *w;
    if (strlen(path) + 16 > NAME_BYTES)
        return sl_fail(SL_E_USAGE, "a path of %zu bytes: use one of at most %d", strlen(path), NAME_BYTES - 16);
    SL_TRY(sl_alloc(&w, 1, sizeof *w));
    memcpy(w->path, path, strlen(path) + 1);
    w->vocab = vocab;
    w->separator = separator;
    w->most = most > 0 && most < INT32_MAX ? most : INT32_MAX;
    w->narrow = vocab <= 65536;
    sl_status status = begin(w);
    if (status != SL_OK) {
        sl_shard_writer_destroy(w);
        return status;
    }
    *writer = w;
    return SL_OK;
}

static void put_word(unsigned char *at, uint32_t word, int bytes)
{
    for (int i = 0; i < bytes; i++, word >>= 8)
        at[i] = (unsigned char) (word & 255);
}

static sl_status put_some(sl_shard_writer *w, const int32_t *ids, int64_t count)
{
    int width = w->narrow ? 2 : 4;
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= w->vocab)
            return sl_fail(SL_E_INTERNAL, "token %d of a vocabulary of %lld", ids[i], (long long) w->vocab);
        put_word(w->buffer + i * width, (uint32_t) ids[i], width);
    }
    if (fwrite(w->buffer, (size_t) width, (size_t) count, w->file) != (size_t) count)
        return failed(w);
    w->tokens += count;
    return SL_OK;
}

sl_status sl_shard_writer_put(sl_shard_writer *w, const int32_t *ids, int64_t count)
{
    while (count > 0) {
        if (w->tokens == w->most) {
            SL_TRY(sl_shard_writer_commit(w));
            SL_TRY(begin(w));
        }
        int64_t some = SL_MIN(SL_MIN(count, BUFFER_TOKENS), w->most - w->tokens);
        SL_TRY(put_some(w, ids, some));
        ids += some, count -= some;
    }
    return SL_OK;
}

sl_status sl_shard_writer_commit(sl_shard_writer *w)
{
    unsigned char header[16];
    put_word(header, 20240520, 4);
    put_word(header + 4, w->narrow ? 3 : 2, 4);
    put_word(header + 8, (uint32_t) w->tokens, 4);
    put_word(header + 12, (uint32_t) (w->separator + 1), 4);
    if (fseek(w->file, 0, SEEK_SET) != 0 || fwrite(header, 1, sizeof header, w->file) != sizeof header ||
        fflush(w->file) != 0 || fsync(fileno(w->file)) != 0)
        return failed(w);
    FILE *file = w->file;
    w->file = NULL;
    if (fclose(file) != 0)
        return failed(w);
    SL_TRY(sl_rename_durable(w->temporary, w->now));
    w->files++;
    return SL_OK;
}

int64_t sl_shard_writer_files(const sl_shard_writer *w)
{
    return w->files;
}

void sl_shard_writer_destroy(sl_shard_writer *w)
{
    if (w && w->file) {
        fclose(w->file);
        remove(w->temporary);
    }
    sl_free(w);
}
