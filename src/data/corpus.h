/*
 * A corpus: files as one long stream of tokens that can be read anywhere. It holds a name and two numbers per file and a few
 * open descriptors, never the data; reading allocates nothing.
 *
 * Text files are bytes: tokens 1..255, each file a document that begins with the separator token 0. Token shards
 * (data/shard.h) are taken as they are. A folder is walked recursively in byte order; hidden files, build folders and binary
 * files are left out; where it holds shards, only those are taken.
 */
#ifndef SL_DATA_CORPUS_H
#define SL_DATA_CORPUS_H

#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

typedef struct sl_corpus sl_corpus;

/* `paths`: a file, a folder, or several of them separated by commas. `leave_out`: a folder below them that is no data, whether or
 * not it is there yet, or NULL. `vocab`: tokens at or above it are errors. `document_token`: the separator, or -1 for what the
 * files' format says. */
sl_status sl_corpus_open(const char *paths, const char *leave_out, int64_t vocab, int64_t document_token,
                         sl_corpus **corpus);
void sl_corpus_close(sl_corpus *corpus);

int64_t sl_corpus_tokens(const sl_corpus *corpus);
int64_t sl_corpus_files(const sl_corpus *corpus);
int64_t sl_corpus_document_token(const sl_corpus *corpus); /* -1: none known */
/* The most it has had of the heap: names, sizes, and while it was opened the lists of folders. */
size_t sl_corpus_bytes(const sl_corpus *corpus);
/* Names below the given paths, sizes and kinds of all files that are taken: whether a resumed run reads the same data. */
uint64_t sl_corpus_fingerprint(const sl_corpus *corpus);
/* Tokens [first, first + count), which must lie inside. Errors name file and place. */
sl_status sl_corpus_read(sl_corpus *corpus, int64_t first, int64_t count, int32_t *out);

#endif
