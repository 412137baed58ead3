/* Snappy blocks, which pages of parquet files are. A block begins with its own decoded size, compared before anything is written. */
#include "data/codec.h"

#ifdef SL_HAVE_SNAPPY
#include <snappy-c.h>

static sl_status snappy_block(const void *in, size_t in_bytes, void *out, size_t out_bytes)
{
    size_t made = 0;
    if (snappy_uncompressed_length(in, in_bytes, &made) != SNAPPY_OK)
        return sl_codec_block_failed(&sl_codec_snappy, "no length", 0, out_bytes);
    if (made != out_bytes)
        return sl_codec_block_failed(&sl_codec_snappy, NULL, made, out_bytes);
    if (snappy_uncompress(in, in_bytes, out, &made) != SNAPPY_OK)
        return sl_codec_block_failed(&sl_codec_snappy, "it cannot be decoded", 0, out_bytes);
    return made == out_bytes ? SL_OK : sl_codec_block_failed(&sl_codec_snappy, NULL, made, out_bytes);
}
#else
static sl_status snappy_block(const void *in, size_t in_bytes, void *out, size_t out_bytes)
{
    (void) in, (void) in_bytes, (void) out, (void) out_bytes;
    return sl_codec_missing("snappy", "libsnappy", "libsnappy-dev");
}
#endif

const sl_codec sl_codec_snappy = {.name = "snappy", .block = snappy_block};
