/* Zstandard: any number of frames one behind the other, skippable ones among them, with windows of up to 2 GiB (`zstd --long=31`). */
#include "data/codec.h"

#ifdef SL_HAVE_ZSTD
#include <zstd.h>

enum { WINDOW_LOG_MAX = 31 };

static sl_status zstd_open(void **out)
{
    ZSTD_DStream *z = ZSTD_createDStream();
    if (!z || ZSTD_isError(ZSTD_DCtx_setParameter(z, ZSTD_d_windowLogMax, WINDOW_LOG_MAX))) {
        ZSTD_freeDStream(z);
        return sl_fail(SL_E_MEMORY, "no memory to decode zstd");
    }
    *out = z;
    return SL_OK;
}

static sl_status zstd_step(void *state, sl_codec_io *io, bool *whole)
{
    if (io->in_bytes == 0 && *whole)
        return SL_OK; /* a frame that has not begun would read as one that is not complete */
    ZSTD_inBuffer in = {io->in, io->in_bytes, 0};
    ZSTD_outBuffer out = {io->out, io->out_bytes, 0};
    size_t code = 0;
    do {
        size_t before = in.pos + out.pos;
        code = ZSTD_decompressStream(state, &out, &in);
        if (ZSTD_isError(code))
            return sl_fail(SL_E_FORMAT, "damaged zstd data: %s", ZSTD_getErrorName(code));
        if (in.pos + out.pos == before)
            break;
    } while (out.pos < out.size && (in.pos < in.size || code != 0));
    io->in += in.pos, io->in_bytes -= in.pos;
    io->out += out.pos, io->out_bytes -= out.pos;
    *whole = code == 0;
    return SL_OK;
}

static void zstd_close(void *state)
{
    ZSTD_freeDStream(state);
}

static sl_status zstd_block(const void *in, size_t in_bytes, void *out, size_t out_bytes)
{
    size_t made = ZSTD_decompress(out, out_bytes, in, in_bytes);
    if (ZSTD_isError(made))
        return sl_codec_block_failed(&sl_codec_zstd, ZSTD_getErrorName(made), 0, out_bytes);
    return made == out_bytes ? SL_OK : sl_codec_block_failed(&sl_codec_zstd, NULL, made, out_bytes);
}

const sl_codec sl_codec_zstd = {"zstd", zstd_open, zstd_step, zstd_close, zstd_block};
#else
static sl_status missing_open(void **state)
{
    (void) state;
    return sl_codec_missing("zstd", "libzstd", "libzstd-dev");
}

static sl_status missing_block(const void *in, size_t in_bytes, void *out, size_t out_bytes)
{
    (void) in, (void) in_bytes, (void) out, (void) out_bytes;
    return sl_codec_missing("zstd", "libzstd", "libzstd-dev");
}

const sl_codec sl_codec_zstd = {.name = "zstd", .open = missing_open, .block = missing_block};
#endif
