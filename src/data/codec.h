/*
 * Compressed bytes. A codec decodes a stream piece by piece (files), or a block whose decoded size is known (pages of parquet files).
 * Each lives in a file of its own over a library that the build may lack; then every call fails with a sentence that names the
 * package to install. Decoding in pieces bounds the memory, whatever a file expands to.
 */
#ifndef SL_DATA_CODEC_H
#define SL_DATA_CODEC_H

#include <stdbool.h>
#include <stddef.h>

#include "core/status.h"

/* Both buffers move on by what a step took and made. */
typedef struct sl_codec_io {
    const unsigned char *in;
    size_t in_bytes;
    unsigned char *out;
    size_t out_bytes;
} sl_codec_io;

typedef struct sl_codec {
    const char *name;
    sl_status (*open)(void **state); /* of a stream; NULL: blocks alone */
    /* `whole`: everything so far ends a frame, so the stream may end here. True before the first step. */
    sl_status (*step)(void *state, sl_codec_io *io, bool *whole);
    void (*close)(void *state);
    /* Exactly `out_bytes`, or an error. */
    sl_status (*block)(const void *in, size_t in_bytes, void *out, size_t out_bytes);
} sl_codec;

extern const sl_codec sl_codec_gzip, sl_codec_zstd, sl_codec_snappy;

/* How a block fails that holds `made` bytes and not `wanted`, or that cannot be decoded (why). */
sl_status sl_codec_block_failed(const sl_codec *codec, const char *why, size_t made, size_t wanted);
/* How everything fails where the library is not part of the build. */
sl_status sl_codec_missing(const char *what, const char *library, const char *package);

#endif
