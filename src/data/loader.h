/*
 * The loader: a corpus cut into sequences, in a shuffled order, as the inputs and targets of a step.
 *
 * Sequence i is tokens [i*seqlen, i*seqlen + seqlen] of the stream: seqlen inputs and, one further, their targets, so documents
 * are packed one behind the other and nothing is padded or lost but the stream's last incomplete sequence. Where a run stands in
 * its data is one number, the sequences consumed: position p is place p mod n of epoch p / n, and every epoch has a permutation
 * of its own. Memory: one sequence. Reading allocates nothing.
 */
#ifndef SL_DATA_LOADER_H
#define SL_DATA_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/corpus.h"

typedef enum sl_split { SL_SPLIT_TRAIN, SL_SPLIT_VALIDATION, SL_SPLIT_COUNT } sl_split;

typedef struct sl_loader_config {
    const char *data;     /* paths, see data/corpus.h */
    const char *val_data; /* NULL: hold out the last `val_share` of the sequences of `data` */
    double val_share;     /* 0: no validation data */
    const char *run;      /* the run's own folder, no data wherever it lies; NULL: none */
    int64_t seqlen, vocab;
    int64_t document_token; /* -1: what the format says */
    int64_t max_documents;  /* kept apart per sequence; 1: a sequence is one segment */
    bool bytes;             /* see data/corpus.h */
    uint64_t seed;
} sl_loader_config;

typedef struct sl_loader sl_loader;
sl_status sl_loader_open(const sl_loader_config *config, sl_loader **loader);
void sl_loader_close(sl_loader *loader);
int64_t sl_loader_sequences(const sl_loader *loader, sl_split split);
/* What the files of `data` or `val_data` hold; NULL where there is no val_data. */
const sl_corpus_contents *sl_loader_contents(const sl_loader *loader, sl_split split);
/* What its files take of the heap, at most: not their content, of which one sequence is held. */
size_t sl_loader_bytes(const sl_loader *loader);
/* Of the files, the split and how both are cut: whether another run sees the same sequences in the same order. */
uint64_t sl_loader_fingerprint(const sl_loader *loader);
/* Samples of the training files' content: files of the same names and sizes may still hold something else. */
uint64_t sl_loader_sample(const sl_loader *loader);

/* A piece of a step: whole sequences (packed), or a slice of one. Arrays may be NULL where they are not wanted.
 * Validation is never shuffled: each one sees the same sequences. */
typedef struct sl_batch {
    int64_t position;                      /* of the first sequence */
    int64_t n_sequences;                   /* 1 for a slice */
    int64_t slice_offset;                  /* first token within the sequence; 0 for whole sequences */
    int64_t tokens_each;                   /* of every sequence: seqlen, or the slice's length */
    int32_t *tokens, *targets, *positions; /* n_sequences * tokens_each */
    int32_t
        *segments; /* segment_capacity + 1 ascending bounds over the batch (packed) or the whole sequence (sliced); the
                             * rest repeats the end */
    int64_t segment_capacity;
} sl_batch;
sl_status sl_loader_fill(sl_loader *loader, sl_split split, sl_batch *batch);

#endif
