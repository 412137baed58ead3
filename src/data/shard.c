/* Everything about a shard is checked before the first token is read, so that a truncated download or a foreign file with the
 * same magic is one sentence at the start instead of garbage in the middle of a run. */
#include "data/shard.h"

#include <inttypes.h>
#include <string.h>

static const struct {
    int32_t magic, version;
    sl_token_kind kind;
    int64_t document_token; /* -1: header[3] says it */
} formats[] = {
    {20240520, 1, SL_TOKENS_U16, 50256},
    {20240801, 7, SL_TOKENS_U32, 128000},
    {20240520, 2, SL_TOKENS_U32, -1},
    {20240520, 3, SL_TOKENS_U16, -1},
};

static int32_t header_word(const unsigned char *bytes, int index)
{
    bytes += 4 * index;
    uint32_t word =
        (uint32_t) bytes[0] | (uint32_t) bytes[1] << 8 | (uint32_t) bytes[2] << 16 | (uint32_t) bytes[3] << 24;
    return (int32_t) word;
}

bool sl_shard_claims(const void *bytes, size_t length)
{
    if (length < 4)
        return false;
    int32_t magic = header_word(bytes, 0);
    for (int64_t i = 0; i < SL_COUNT(formats); i++)
        if (formats[i].magic == magic)
            return true;
    return false;
}

sl_status sl_shard_parse(const char *name, const void *bytes, size_t length, int64_t file_bytes, sl_shard *shard)
{
    if (length < SL_SHARD_HEADER_BYTES || file_bytes < SL_SHARD_HEADER_BYTES)
        return sl_fail(SL_E_FORMAT,
                       "%s: a token shard begins with a header of %d bytes, but the file has only %" PRId64
                       ": it is truncated, write it again",
                       name, SL_SHARD_HEADER_BYTES, file_bytes);
    int32_t magic = header_word(bytes, 0), version = header_word(bytes, 1);
    int64_t tokens = header_word(bytes, 2);
    int64_t format = 0;
    while (format < SL_COUNT(formats) && (formats[format].magic != magic || formats[format].version != version))
        format++;
    if (format == SL_COUNT(formats))
        return sl_fail(
            SL_E_FORMAT,
            "%s: token shard with magic %" PRId32 " and version %" PRId32
            " is not known; known are 20240520 version 1 or 3 (uint16) or 2 (uint32) and 20240801 version 7 (uint32)",
            name, magic, version);
    if (tokens < 0)
        return sl_fail(SL_E_FORMAT, "%s: the header at byte 8 claims %" PRId64 " tokens: the file is damaged", name,
                       tokens);
    int64_t width = formats[format].kind == SL_TOKENS_U16 ? 2 : 4;
    int64_t expected = SL_SHARD_HEADER_BYTES + tokens * width; /* at most 2^31 * 4: no overflow */
    if (file_bytes != expected)
        return sl_fail(SL_E_FORMAT,
                       "%s: the header claims %" PRId64 " tokens of %" PRId64 " bytes, which makes a file of %" PRId64
                       " bytes, but it has %" PRId64 ": it is %s, write it again",
                       name, tokens, width, expected, file_bytes, file_bytes < expected ? "truncated" : "damaged");
    int64_t separator = formats[format].document_token;
    if (separator < 0)
        separator = (int64_t) header_word(bytes, 3) - 1;
    if (separator < -1)
        return sl_fail(SL_E_FORMAT, "%s: the header at byte 12 names the separator %" PRId64 ": the file is damaged",
                       name, separator);
    *shard = (sl_shard){formats[format].kind, tokens, separator};
    return SL_OK;
}
