/*
 * The loader: sequences of a corpus or of a callback, in a shuffled order, as a source of tokens, targets, positions and segments.
 *
 * Of a corpus, sequence i is tokens [i*seqlen, i*seqlen + seqlen] of the stream: seqlen inputs and, one further, their targets, so documents
 * are packed one behind the other and nothing is padded or lost but the stream's last incomplete sequence. Where a run stands in
 * its data is one number, the sequences consumed: position p is place p mod n of epoch p / n, and every epoch has a permutation
 * of its own. Memory: one sequence. Reading allocates nothing. Chats and completions are packed instead: data/packed.h.
 */
#ifndef SL_DATA_LOADER_H
#define SL_DATA_LOADER_H

#include <stdbool.h>

#include "data/corpus.h"
#include "data/source.h"
#include "data/tokenized.h"

typedef struct sl_loader_config {
    sl_data callback;     /* read NULL: files; `identity` is unused */
    const char *identity; /* the callback's */
    const char *data;     /* paths, see data/corpus.h */
    const char *val_data; /* NULL: hold out the last `val_share` of the sequences of `data` */
    double val_share;     /* 0: no validation data */
    const char *run;      /* the run's own folder, no data wherever it lies; NULL: none */
    int64_t seqlen, vocab;
    int64_t document_token; /* -1: what the format says */
    int64_t
        max_documents; /* kept apart per sequence; 1: a sequence is one segment. Packed documents are all kept apart */
    sl_data_format format; /* see data/corpus.h */
    sl_tokenize_config tokenize;
    uint64_t seed;
} sl_loader_config;

/* Close it with sl_source_close. Validation is never shuffled: each one sees the same sequences. */
sl_status sl_loader_open(const sl_loader_config *config, sl_source **source);
/* The files of `data` or `val_data`, tokenized where they have to be. */
sl_status sl_loader_open_corpus(const sl_loader_config *config, const char *paths, sl_corpus **corpus);

#endif
