/* gzip over zlib: files of any number of members one behind the other, as pigz and bgzip write them. Zeros behind a member are padding. */
#include "data/codec.h"

#ifdef SL_HAVE_ZLIB
#include <limits.h>
#include <zlib.h>

#include "core/mem.h"

enum { WINDOW_BITS = 15, GZIP = 16, ANY = 32 }; /* inflateInit2's way to say which header it expects */

typedef struct gzip_stream {
    z_stream z;
    bool within; /* a member */
} gzip_stream;

/* The counted heap, so that budgets know of it. */
static voidpf take_memory(voidpf unused, uInt count, uInt size)
{
    void *memory = NULL;
    (void) unused;
    return sl_alloc(&memory, count, size) == SL_OK ? memory : NULL;
}

static void give_memory(voidpf unused, voidpf memory)
{
    (void) unused;
    sl_free(memory);
}

static const char *reason(const z_stream *z, int code)
{
    return z->msg ? z->msg : code == Z_MEM_ERROR ? "out of memory" : "it ends too early";
}

static sl_status gzip_open(void **out)
{
    gzip_stream *s;
    SL_TRY(sl_alloc(&s, 1, sizeof *s));
    s->z.zalloc = take_memory;
    s->z.zfree = give_memory;
    if (inflateInit2(&s->z, WINDOW_BITS + GZIP) != Z_OK) {
        sl_free(s);
        return sl_fail(SL_E_MEMORY, "no memory to decode gzip");
    }
    *out = s;
    return SL_OK;
}

static void skip_padding(sl_codec_io *io)
{
    while (io->in_bytes && *io->in == 0)
        io->in++, io->in_bytes--;
}

static sl_status gzip_step(void *state, sl_codec_io *io, bool *whole)
{
    gzip_stream *s = state;
    if (!s->within && s->z.total_in)
        skip_padding(io);
    while (io->out_bytes && (io->in_bytes || s->within)) {
        uInt in = (uInt) SL_MIN(io->in_bytes, (size_t) UINT_MAX), out = (uInt) SL_MIN(io->out_bytes, (size_t) UINT_MAX);
        s->within = true;
        s->z.next_in = (Bytef *) (uintptr_t) io->in;
        s->z.avail_in = in;
        s->z.next_out = io->out;
        s->z.avail_out = out;
        int code = inflate(&s->z, Z_NO_FLUSH);
        io->in += in - s->z.avail_in, io->in_bytes -= in - s->z.avail_in;
        io->out += out - s->z.avail_out, io->out_bytes -= out - s->z.avail_out;
        if (code == Z_STREAM_END) {
            s->within = false;
            uLong taken = s->z.total_in;
            inflateReset(&s->z);
            s->z.total_in = taken;
            skip_padding(io);
        } else if (code == Z_BUF_ERROR) { /* all that this input gives */
            break;
        } else if (code != Z_OK) {
            return sl_fail(code == Z_MEM_ERROR ? SL_E_MEMORY : SL_E_FORMAT, "damaged gzip data: %s",
                           reason(&s->z, code));
        }
    }
    *whole = !s->within;
    return SL_OK;
}

static void gzip_close(void *state)
{
    gzip_stream *s = state;
    inflateEnd(&s->z);
    sl_free(s);
}

/* Parquet's codec 2: gzip or zlib. */
static sl_status gzip_block(const void *in, size_t in_bytes, void *out, size_t out_bytes)
{
    z_stream z = {.zalloc = take_memory, .zfree = give_memory};
    unsigned char beyond;
    if (in_bytes > UINT_MAX || out_bytes > UINT_MAX)
        return sl_codec_block_failed(&sl_codec_gzip, "a block of more than 4 GiB", 0, 0);
    if (inflateInit2(&z, WINDOW_BITS + ANY) != Z_OK)
        return sl_fail(SL_E_MEMORY, "no memory to decode gzip");
    z.next_in = (Bytef *) (uintptr_t) in;
    z.avail_in = (uInt) in_bytes;
    z.next_out = out_bytes ? out : &beyond;
    z.avail_out = (uInt) out_bytes;
    int code = inflate(&z, Z_FINISH);
    if (code == Z_BUF_ERROR && z.avail_out == 0 && z.avail_in) { /* more than it should hold */
        z.next_out = &beyond;
        z.avail_out = 1;
        code = inflate(&z, Z_FINISH);
    }
    size_t made = z.total_out;
    sl_status status = SL_OK;
    if (made > out_bytes || (code == Z_STREAM_END && made != out_bytes))
        status = sl_codec_block_failed(&sl_codec_gzip, NULL, made, out_bytes);
    else if (code != Z_STREAM_END)
        status = sl_codec_block_failed(&sl_codec_gzip, reason(&z, code), made, out_bytes);
    inflateEnd(&z);
    return status;
}

const sl_codec sl_codec_gzip = {"gzip", gzip_open, gzip_step, gzip_close, gzip_block};
#else
static sl_status missing_open(void **state)
{
    (void) state;
    return sl_codec_missing("gzip", "zlib", "zlib1g-dev");
}

static sl_status missing_block(const void *in, size_t in_bytes, void *out, size_t out_bytes)
{
    (void) in, (void) in_bytes, (void) out, (void) out_bytes;
    return sl_codec_missing("gzip", "zlib", "zlib1g-dev");
}

const sl_codec sl_codec_gzip = {.name = "gzip", .open = missing_open, .block = missing_block};
#endif
