/* Inside data: a corpus, shared by the files that find its files (find.c) and read them (corpus.c). */
#ifndef SL_DATA_INTERNAL_H
#define SL_DATA_INTERNAL_H

#include <sys/stat.h>

#include "core/file.h"
#include "data/corpus.h"
#include "data/token_cache.h"

enum { SL_CORPUS_OPEN_FILES = 8 };

typedef struct sl_corpus_file {
    const char *path;
    const char *relative; /* what the fingerprint knows it by */
    int64_t start, tokens, bytes;
    uint64_t sample;  /* of its bytes */
    int64_t modified; /* when, in ns */
    sl_token_kind kind;
    bool ambiguous; /* text whose name says that it may be a table or records */
} sl_corpus_file;

typedef struct sl_open_file {
    int64_t source; /* -1: free */
    int fd;
    int64_t used; /* when last, for eviction */
} sl_open_file;

struct sl_corpus {
    sl_corpus_config config;
    sl_region *region; /* names */
    sl_corpus_file *sources;
    int64_t n_sources, capacity;
    int64_t document_token;
    sl_corpus_contents contents;
    uint64_t fingerprint, sample;
    struct stat left_out; /* a folder, or zero */
    size_t listing_bytes; /* of the folders being walked */
    size_t most_bytes;    /* held so far */
    sl_token_cache cache; /* that it reads, where its contents say so */
    char encoding[64];
    sl_reader *bytes; /* of its tokens, from the cache; NULL: there is none */
    sl_open_file files[SL_CORPUS_OPEN_FILES];
    int64_t clock;
};

/* Fills `sources` and counts what is skipped. */
sl_status sl_corpus_find(sl_corpus *corpus, const char *paths);
/* The heap's peak so far; `growing`: bytes that are there twice for a moment. */
void sl_corpus_note_bytes(sl_corpus *corpus, size_t growing);

#endif
