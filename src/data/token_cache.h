/*
 * A cache of tokens: what the records of files become, kept in a folder so that it is made once.
 *
 *     ROOT/<key>/cache.json      what was read, left out and made; written last
 *               /tokens/00000    token shards (data/shard.h), which the loader reads like any others
 *               /documents       int64 little-endian: the tokens of each document
 *               /counted         one byte a token: whether it counts as a target; absent where all do
 *               /bytes           one byte a token: the bytes of text that it stands for (data/encoding.h)
 *
 * The key names the encoding, the files (names, sizes, times, samples of their bytes) and how they are read. The folder takes its name
 * when it is complete, so what has it can be used; a run that is killed leaves a `.part`, which the next one removes. Runs that want
 * the same one wait for each other. The order of records is that of the files, whatever the number of threads.
 */
#ifndef SL_DATA_TOKEN_CACHE_H
#define SL_DATA_TOKEN_CACHE_H

#include "data/corpus.h"
#include "data/encoding.h"

typedef struct sl_token_cache_config {
    const sl_corpus *files;
    const sl_encoding *encoding;
    const char *root;  /* NULL: $XDG_CACHE_HOME/sluice/tokens, or below ~/.cache */
    const char *field; /* see data/records.h */
    int threads;       /* 0: one per core */
} sl_token_cache_config;

typedef struct sl_token_cache {
    char folder[1024];
    sl_record_counts records;
    int64_t documents, tokens;
    int64_t counted;    /* of the tokens */
    int64_t text_bytes; /* that all of them stand for; -1: not known of some record */
    int64_t document_token;
    bool reused; /* it was there */
} sl_token_cache;

sl_status sl_token_cache_open(const sl_token_cache_config *config, sl_token_cache *cache);
/* "12,000 records (3 chats, ...), 5 empty": for the line about the data. */
void sl_token_cache_text(const sl_token_cache *cache, char *out, size_t size);
void sl_token_cache_put(const sl_token_cache *cache, sl_json_writer *w);

/* ---- within the cache ---- */

/* Reads all records of the files and writes the folder's files but cache.json. */
sl_status sl_token_cache_fill(const sl_token_cache_config *config, const char *folder, sl_token_cache *cache);

/* The files that it writes. */
typedef struct sl_token_sink sl_token_sink;
sl_status sl_token_sink_create(const char *folder, int64_t vocab, sl_token_sink **sink);
/* `begins`: they are a document, else the next part of the one before. */
sl_status sl_token_sink_add(sl_token_sink *sink, const sl_encoded *record, bool begins);
/* Makes them durable, and says how much there is. */
sl_status sl_token_sink_finish(sl_token_sink *sink, sl_token_cache *cache);
void sl_token_sink_destroy(sl_token_sink *sink);

#endif
