/*
 * Token shards. A header of 256 little-endian int32, then the tokens:
 *
 *     header[0]   header[1]   header[2]   tokens   separator (starts every document)
 *     20240520    1           count       uint16   50256    llm.c, GPT-2 tokens
 *     20240801    7           count       uint32   128000   llm.c, Llama-3 tokens
 *     20240520    2           count       uint32   header[3] - 1     Sluice: as version 1, for vocabularies above 65,536
 *     20240520    3           count       uint16   header[3] - 1     Sluice: as version 1, for any separator
 *
 * header[3] is 0 where none is known.
 *
 * A file must hold exactly `count` tokens behind its header.
 */
#ifndef SL_DATA_SHARD_H
#define SL_DATA_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

#define SL_SHARD_HEADER_BYTES 1024

/* What a file of a corpus holds: text, tokens, or records that become tokens (data/records.h). */
typedef enum sl_token_kind {
    SL_TOKENS_TEXT,
    SL_TOKENS_U16,
    SL_TOKENS_U32,
    SL_TOKENS_CODED_TEXT, /* compressed */
    SL_TOKENS_JSON,       /* a record a line, or an array of them */
    SL_TOKENS_PARQUET,
    SL_TOKEN_KINDS
} sl_token_kind;

typedef struct sl_shard {
    sl_token_kind kind;
    int64_t tokens;
    int64_t document_token; /* -1: the format names none */
} sl_shard;

/* Whether a file that begins with these bytes claims to be a shard. */
bool sl_shard_claims(const void *bytes, size_t length);
/* `bytes`: the file's first `length` bytes (at most the header is looked at); `file_bytes`: its size. */
sl_status sl_shard_parse(const char *name, const void *bytes, size_t length, int64_t file_bytes, sl_shard *shard);

/*
 * Writing: version 3 where `vocab` is at most 65,536, else version 2. Ids lie below `vocab`. The file takes its name when it is
 * committed. One that is full (`most` tokens, 0: as many as the header can count) is committed, and the tokens go on in the next:
 * tokens.bin, tokens-00001.bin, tokens-00002.bin, ...
 */
typedef struct sl_shard_writer sl_shard_writer;
sl_status sl_shard_writer_open(const char *path, int64_t vocab, int32_t separator, int64_t most,
                               sl_shard_writer **writer);
sl_status sl_shard_writer_put(sl_shard_writer *writer, const int32_t *ids, int64_t count);
sl_status sl_shard_writer_commit(sl_shard_writer *writer);
int64_t sl_shard_writer_files(const sl_shard_writer *writer);
void sl_shard_writer_destroy(sl_shard_writer *writer); /* removes what was not committed */

#endif
