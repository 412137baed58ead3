/*
 * A corpus over any files: what does not hold tokens is tokenized into a cache first (data/token_cache.h), and the corpus reads that.
 * Its contents then say both what files there were and what was made of them.
 */
#ifndef SL_DATA_TOKENIZED_H
#define SL_DATA_TOKENIZED_H

#include "data/corpus.h"
#include "data/encoding.h"

typedef struct sl_tokenize_config {
    const char *tokenizer; /* folder or file; NULL: none, and text and records are bytes */
    const char *cache;     /* see data/token_cache.h, and `field` */
    const char *field;
    sl_train_on train_on;
    int threads;
} sl_tokenize_config;

/* `files->records` and `tokenize` are set here. */
sl_status sl_tokenized_open(const sl_corpus_config *files, const sl_tokenize_config *config, sl_corpus **corpus);

/* The records of a file of a corpus that holds records; `counts` adds up over files. The path is for messages. */
sl_status sl_corpus_open_records(const sl_corpus *corpus, int64_t file, const char *field, sl_record_counts *counts,
                                 sl_records **records);
const char *sl_corpus_path(const sl_corpus *corpus, int64_t file);
int64_t sl_corpus_file_bytes(const sl_corpus *corpus);

#endif
