/*
 * A file as one stream of bytes, decoded where it is gzip or zstd: its first bytes say so, whatever its name is. Memory: a buffer and
 * the decoder's window, whatever the file expands to. A file that ends within a frame is an error.
 */
#ifndef SL_DATA_STREAM_H
#define SL_DATA_STREAM_H

#include <stdbool.h>
#include <stddef.h>

#include "data/codec.h"

typedef struct sl_stream sl_stream;

/* Which codec a file of these first bytes needs; NULL: none. */
const sl_codec *sl_stream_codec(const void *bytes, size_t length);

sl_status sl_stream_open(const char *path, sl_stream **stream);
void sl_stream_close(sl_stream *stream);
/* Up to `capacity` bytes; fewer only where the stream ends. */
sl_status sl_stream_read(sl_stream *stream, void *out, size_t capacity, size_t *got);

#endif
