/* The files of a token cache, written front to back through buffers. A shard's header, which has its count, is written when it is full. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/file.h"
#include "core/io_error.h"
#include "data/token_cache.h"

enum { BUFFER_BYTES = 1 << 20, U16_VALUES = 1 << 16, SHARD_MAGIC = 20240520, U16_VERSION = 1, U32_VERSION = 2 };
static const int64_t shard_tokens = (int64_t) 1 << 28;

typedef struct out_file {
    char path[1200];
    int fd; /* -1: closed */
    char *buffer;
    size_t used;
} out_file;

struct sl_token_sink {
    char folder[1024];
    int64_t width; /* of a token */
    out_file tokens, counted, bytes, documents;
    int64_t shards, in_shard;
    int64_t n_tokens, n_counted, n_documents;
    int64_t text_bytes;  /* -1: not known */
    int64_t in_document; /* tokens of the one that may go on; -1: none yet */
};

static sl_status out_open(out_file *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
static sl_status out_open(out_file *f, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(f->path, sizeof f->path, format, arguments);
    va_end(arguments);
    if (!f->buffer)
        SL_TRY(sl_alloc(&f->buffer, BUFFER_BYTES, 1));
    f->used = 0;
    f->fd = open(f->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return f->fd < 0 ? sl_io_failed("write", f->path, errno, 0) : SL_OK;
}

static sl_status out_flush(out_file *f)
{
    size_t left;
    if (sl_io_write_all(f->fd, f->buffer, f->used, &left) < 0)
        return sl_io_failed("write", f->path, errno, left);
    f->used = 0;
    return SL_OK;
}

static sl_status out_write(out_file *f, const void *bytes, size_t length)
{
    const char *from = bytes;
    while (length) {
        size_t n = SL_MIN(length, BUFFER_BYTES - f->used);
        memcpy(f->buffer + f->used, from, n);
        f->used += n, from += n, length -= n;
        if (f->used == BUFFER_BYTES)
            SL_TRY(out_flush(f));
    }
    return SL_OK;
}

static sl_status out_commit(out_file *f)
{
    if (f->fd < 0)
        return SL_OK;
    SL_TRY(out_flush(f));
    int failed = fsync(f->fd), error = errno;
    close(f->fd);
    f->fd = -1;
    return failed ? sl_io_failed("write", f->path, error, 0) : SL_OK;
}

static void put_i32(unsigned char *out, int64_t value)
{
    for (int i = 0; i < 4; i++)
        out[i] = (unsigned char) (value >> 8 * i);
}

/* ---- shards ---- */

static sl_status begin_shard(sl_token_sink *s)
{
    static const char header[SL_SHARD_HEADER_BYTES];
    SL_TRY(out_open(&s->tokens, "%s/tokens/%05" PRId64, s->folder, s->shards++));
    s->in_shard = 0;
    return out_write(&s->tokens, header, sizeof header);
}

static sl_status end_shard(sl_token_sink *s)
{
    unsigned char header[12];
    if (s->tokens.fd < 0)
        return SL_OK;
    SL_TRY(out_flush(&s->tokens));
    put_i32(header, SHARD_MAGIC);
    put_i32(header + 4, s->width == 2 ? U16_VERSION : U32_VERSION);
    put_i32(header + 8, s->in_shard);
    if (pwrite(s->tokens.fd, header, sizeof header, 0) != (ssize_t) sizeof header)
        return sl_io_failed("write", s->tokens.path, errno, sizeof header);
    return out_commit(&s->tokens);
}

static sl_status put_tokens(sl_token_sink *s, const int32_t *ids, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        unsigned char bytes[4];
        if (s->in_shard == shard_tokens)
            SL_TRY(end_shard(s));
        if (s->tokens.fd < 0)
            SL_TRY(begin_shard(s));
        put_i32(bytes, ids[i]);
        SL_TRY(out_write(&s->tokens, bytes, (size_t) s->width));
        s->in_shard++;
    }
    return SL_OK;
}

/* ---- counted ---- */

/* The file begins with the first token that does not count; all before it do. */
static sl_status begin_counted(sl_token_sink *s)
{
    static const char one = 1;
    SL_TRY(out_open(&s->counted, "%s/counted", s->folder));
    for (int64_t i = 0; i < s->n_tokens; i++)
        SL_TRY(out_write(&s->counted, &one, 1));
    return SL_OK;
}

static sl_status put_counted(sl_token_sink *s, const char *counted, int64_t count)
{
    int64_t ones = 0;
    for (int64_t i = 0; i < count; i++)
        ones += counted[i];
    if (ones < count && s->counted.fd < 0)
        SL_TRY(begin_counted(s));
    s->n_counted += ones;
    return s->counted.fd >= 0 ? out_write(&s->counted, counted, (size_t) count) : SL_OK;
}

static sl_status end_document(sl_token_sink *s)
{
    unsigned char bytes[8];
    if (s->in_document < 0)
        return SL_OK;
    put_i32(bytes, s->in_document);
    put_i32(bytes + 4, s->in_document >> 32);
    s->n_documents++;
    return out_write(&s->documents, bytes, sizeof bytes);
}

static sl_status put_bytes(sl_token_sink *s, const sl_byte_counts *bytes)
{
    if (bytes->unknown)
        s->text_bytes = -1;
    for (size_t i = 0; i < bytes->each.length && s->text_bytes >= 0; i++)
        s->text_bytes += (unsigned char) bytes->each.data[i];
    return out_write(&s->bytes, bytes->each.data, bytes->each.length);
}

sl_status sl_token_sink_add(sl_token_sink *s, const sl_encoded *record, bool begins)
{
    const sl_tokens *tokens = &record->tokens;
    SL_ASSERT(record->counted.length == (size_t) tokens->count);
    SL_ASSERT(record->bytes.each.length == (size_t) tokens->count);
    if (begins) {
        SL_TRY(end_document(s));
        s->in_document = 0;
    }
    SL_TRY(put_counted(s, record->counted.data, tokens->count));
    SL_TRY(put_bytes(s, &record->bytes));
    SL_TRY(put_tokens(s, tokens->ids, tokens->count));
    s->n_tokens += tokens->count;
    s->in_document += tokens->count;
    return SL_OK;
}

sl_status sl_token_sink_create(const char *folder, int64_t vocab, sl_token_sink **out)
{
    sl_token_sink *s;
    sl_status status;
    char path[1200];
    SL_TRY(sl_alloc(&s, 1, sizeof *s));
    s->tokens.fd = s->counted.fd = s->bytes.fd = s->documents.fd = -1;
    s->in_document = -1;
    s->width = vocab <= U16_VALUES ? 2 : 4;
    snprintf(s->folder, sizeof s->folder, "%s", folder);
    snprintf(path, sizeof path, "%s/tokens", folder);
    SL_TRY_GOTO(sl_dir_create(path), fail);
    SL_TRY_GOTO(out_open(&s->documents, "%s/documents", folder), fail);
    SL_TRY_GOTO(out_open(&s->bytes, "%s/bytes", folder), fail);
    *out = s;
    return SL_OK;
fail:
    sl_token_sink_destroy(s);
    return status;
}

sl_status sl_token_sink_finish(sl_token_sink *s, sl_token_cache *cache)
{
    SL_TRY(end_document(s));
    SL_TRY(end_shard(s));
    SL_TRY(out_commit(&s->counted));
    SL_TRY(out_commit(&s->bytes));
    SL_TRY(out_commit(&s->documents));
    cache->text_bytes = s->text_bytes;
    cache->tokens = s->n_tokens;
    cache->counted = s->n_counted;
    cache->documents = s->n_documents;
    return SL_OK;
}

void sl_token_sink_destroy(sl_token_sink *s)
{
    if (!s)
        return;
    out_file *files[] = {&s->tokens, &s->counted, &s->bytes, &s->documents};
    for (int i = 0; i < SL_COUNT(files); i++) {
        if (files[i]->fd >= 0)
            close(files[i]->fd);
        sl_free(files[i]->buffer);
    }
    sl_free(s);
}
