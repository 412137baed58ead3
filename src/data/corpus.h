/*
 * A corpus: files as one long stream of tokens that can be read anywhere. It holds a name and a few numbers per file and a few
 * open descriptors, never the data; reading allocates nothing.
 *
 * Text files are bytes: tokens 1..255, each file a document that begins with the separator token 0. That suits byte-level models
 * only, those with a vocabulary of 256 to 512 tokens: all bytes, and at most as many tokens of other uses. Token shards
 * (data/shard.h) are taken as they are. A corpus is one or the other. A folder is walked recursively in byte order; what is
 * skipped there is counted by reason; where it holds shards, only those are taken. A file that is named itself is never skipped:
 * it is taken or refused.
 *
 * With `records`, a corpus may also be files that are tokenized first: records of JSON or parquet files, compressed text. Then its files are what the cache
 * of tokens is made from, and a second corpus reads that. In a folder that holds both text and records, what has more bytes is the data.
 */
#ifndef SL_DATA_CORPUS_H
#define SL_DATA_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/json.h"
#include "core/status.h"
#include "data/shard.h"

typedef struct sl_corpus sl_corpus;

/* How files are read. AUTO: as their content and names say. BYTES: as text whatever their names, for any vocabulary of 256 or more. The
 * others: as this and nothing else. */
typedef enum sl_data_format {
    SL_DATA_AUTO,
    SL_DATA_BYTES,
    SL_DATA_TEXT,
    SL_DATA_JSON,
    SL_DATA_PARQUET,
    SL_DATA_SHARDS
} sl_data_format;

/* By name: "auto", "bytes", "text", "jsonl", "parquet", "shards". False: none has it. */
bool sl_data_format_find(const char *name, sl_data_format *format);

typedef struct sl_corpus_config {
    const char *paths;      /* a file, a folder, or several of them separated by commas */
    const char *leave_out;  /* a folder below them that is no data, whether or not it is there yet, or NULL */
    int64_t vocab;          /* tokens at or above it are errors */
    int64_t document_token; /* the separator, or -1 for what the files' format says */
    sl_data_format format;
    bool records;  /* take files of records, to tokenize them (data/token_cache.h) */
    bool tokenize; /* text, too, whatever the vocabulary */
} sl_corpus_config;

sl_status sl_corpus_open(const sl_corpus_config *config, sl_corpus **corpus);
void sl_corpus_close(sl_corpus *corpus);

/* Why an entry of a folder is not data. */
typedef enum sl_skip {
    SL_SKIP_HIDDEN,
    SL_SKIP_BUILD, /* a build folder, by its name */
    SL_SKIP_RUN,   /* the folder to leave out */
    SL_SKIP_LINK,
    SL_SKIP_SPECIAL, /* a FIFO, socket or device */
    SL_SKIP_EMPTY,
    SL_SKIP_PACKED, /* records, tables and archives, by their names: .jsonl, .parquet, .gz, ... */
    SL_SKIP_BINARY,
    SL_SKIP_BESIDE_SHARDS,  /* text */
    SL_SKIP_BESIDE_RECORDS, /* text, in a folder that holds more bytes of records */
    SL_SKIP_COUNT
} sl_skip;

struct sl_token_cache;
struct sl_packing_counts;
/* What was found: shown by the command line, the event log and --json. */
typedef struct sl_corpus_contents {
    int64_t files[SL_TOKEN_KINDS];
    int64_t tokens;
    int64_t skipped[SL_SKIP_COUNT];
    const struct sl_token_cache
        *cache;           /* that the tokens are in: what they were made of; NULL: they are the files' own */
    const char *encoding; /* what made them */
    const struct sl_packing_counts *packing; /* how its documents lie in sequences; NULL: one behind the other */
} sl_corpus_contents;
const sl_corpus_contents *sl_corpus_contents_of(const sl_corpus *corpus);
/* "text as bytes", "uint16 shards", "uint32 shards", "uint16 and uint32 shards". */
const char *sl_corpus_kind(const sl_corpus_contents *contents);
int64_t sl_corpus_file_count(const sl_corpus_contents *contents);
/* "3 hidden, 1 build folder, 2 links"; empty where nothing was skipped. Cut at `size`. */
void sl_corpus_skipped_text(const sl_corpus_contents *contents, char *out, size_t size);
/* What the tokens were made of: "12,000 records, 11,990 chats, 10 left out (empty)"; empty where the files hold tokens. */
void sl_corpus_made_text(const sl_corpus_contents *contents, char *out, size_t size);
/* All of that in a sentence: "JSON records: 1 file, 345 tokens; 12 records, 11 texts, 1 left out (empty)". */
void sl_corpus_summary(const sl_corpus_contents *contents, char *out, size_t size);
/* Members "kind", "files", "tokens" and "skipped" of the object that is being written. */
void sl_corpus_put(const sl_corpus_contents *contents, sl_json_writer *w);

/* What its contents say of packing; `counts` outlives it. */
void sl_corpus_set_packing(sl_corpus *corpus, const struct sl_packing_counts *counts);
/* Whether tokens have to be made of its files before it can be read. */
bool sl_corpus_holds_records(const sl_corpus *corpus);
int64_t sl_corpus_tokens(const sl_corpus *corpus);
int64_t sl_corpus_document_token(const sl_corpus *corpus); /* -1: none known */
/* The most it has had of the heap: names, sizes, and while it was opened the lists of folders. */
size_t sl_corpus_bytes(const sl_corpus *corpus);
/* Names below the given paths, sizes and kinds of all files that are taken: whether a resumed run reads the same files. */
uint64_t sl_corpus_fingerprint(const sl_corpus *corpus);
/* Samples of their bytes: all of a file of up to 64 KiB, 16 pieces of 4 KiB spread over a larger one. Copies have the same. */
uint64_t sl_corpus_sample(const sl_corpus *corpus);
/* Why it is not known which bytes of a text its tokens stand for; NULL: it is. */
const char *sl_corpus_text_unknown(const sl_corpus *corpus);
/* The bytes that the targets stand for, which are tokens [first, first + count): those that are ignored for none. */
sl_status sl_corpus_text_bytes(sl_corpus *corpus, int64_t first, int64_t count, const int32_t *targets, int64_t *bytes);
/* Tokens [first, first + count), which must lie inside. Errors name file and place. */
sl_status sl_corpus_read(sl_corpus *corpus, int64_t first, int64_t count, int32_t *out);

#endif
