/* Read through one buffer of compressed bytes; plain files go straight into the caller's memory. */
#include "data/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "core/io_error.h"
#include "core/mem.h"

enum { BUFFER_BYTES = 1 << 18 };

struct sl_stream {
    char *path;
    int fd;
    const sl_codec *codec; /* NULL: plain */
    void *decoder;
    unsigned char *buffer; /* compressed bytes, and the first ones of a plain file */
    size_t at, held;       /* of them */
    bool at_end;           /* of the file */
    bool whole;            /* what was decoded ends a frame */
};

const sl_codec *sl_stream_codec(const void *bytes, size_t length)
{
    const unsigned char *b = bytes;
    if (length >= 3 && b[0] == 0x1f && b[1] == 0x8b && b[2] == 8)
        return &sl_codec_gzip;
    if (length >= 4 && ((b[0] == 0x28 && b[1] == 0xb5 && b[2] == 0x2f && b[3] == 0xfd) ||
                        ((b[0] & 0xf0) == 0x50 && b[1] == 0x2a && b[2] == 0x4d && b[3] == 0x18))) /* skippable */
        return &sl_codec_zstd;
    return NULL;
}

static sl_status read_file(sl_stream *s, void *out, size_t bytes, size_t *got)
{
    ssize_t n;
    do
        n = read(s->fd, out, bytes);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return sl_io_failed("read", s->path, errno, 0);
    *got = (size_t) n;
    s->at_end = n == 0 && bytes;
    return SL_OK;
}

sl_status sl_stream_open(const char *path, sl_stream **out)
{
    sl_stream *s;
    sl_status status;
    SL_TRY(sl_alloc(&s, 1, sizeof *s));
    s->fd = -1;
    s->whole = true;
    SL_TRY_GOTO(sl_strdup(path, &s->path), fail);
    SL_TRY_GOTO(sl_alloc(&s->buffer, BUFFER_BYTES, 1), fail);
    s->fd = sl_io_open(path, O_RDONLY);
    if (s->fd < 0) {
        status = sl_io_failed("read", path, errno, 0);
        goto fail;
    }
    while (s->held < 4 && !s->at_end) {
        size_t got;
        SL_TRY_GOTO(read_file(s, s->buffer + s->held, BUFFER_BYTES - s->held, &got), fail);
        s->held += got;
    }
    s->codec = sl_stream_codec(s->buffer, s->held);
    if (s->codec) {
        status = s->codec->open(&s->decoder);
        if (status != SL_OK) {
            status = sl_fail_at(status, "%s", path);
            goto fail;
        }
    }
    *out = s;
    return SL_OK;
fail:
    sl_stream_close(s);
    return status;
}

void sl_stream_close(sl_stream *s)
{
    if (!s)
        return;
    if (s->decoder)
        s->codec->close(s->decoder);
    if (s->fd >= 0)
        close(s->fd);
    sl_free(s->buffer);
    sl_free(s->path);
    sl_free(s);
}

static sl_status read_plain(sl_stream *s, unsigned char *out, size_t capacity, size_t *done)
{
    size_t first = SL_MIN(s->held - s->at, capacity);
    memcpy(out, s->buffer + s->at, first);
    s->at += first;
    *done = first;
    while (*done < capacity && !s->at_end) {
        size_t got;
        SL_TRY(read_file(s, out + *done, capacity - *done, &got));
        *done += got;
    }
    return SL_OK;
}

/* The decoder is asked again with what it holds back even where the file has ended. */
static sl_status read_coded(sl_stream *s, unsigned char *out, size_t capacity, size_t *done)
{
    sl_codec_io io = {.out = out, .out_bytes = capacity};
    while (io.out_bytes) {
        if (s->at == s->held && !s->at_end) {
            s->at = 0;
            SL_TRY(read_file(s, s->buffer, BUFFER_BYTES, &s->held));
        }
        size_t before = io.out_bytes + (s->held - s->at);
        io.in = s->buffer + s->at, io.in_bytes = s->held - s->at;
        sl_status status = s->codec->step(s->decoder, &io, &s->whole);
        if (status != SL_OK)
            return sl_fail_at(status, "%s", s->path);
        s->at = s->held - io.in_bytes;
        if (s->at_end && io.out_bytes + io.in_bytes == before)
            break;
    }
    *done = capacity - io.out_bytes;
    if (io.out_bytes && !s->whole)
        return sl_fail(SL_E_FORMAT, "%s ends within its %s data: it is truncated, download or write it again", s->path,
                       s->codec->name);
    return SL_OK;
}

sl_status sl_stream_read(sl_stream *s, void *out, size_t capacity, size_t *got)
{
    *got = 0;
    return s->codec ? read_coded(s, out, capacity, got) : read_plain(s, out, capacity, got);
}
