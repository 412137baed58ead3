/*
 * Best-fit packing: which documents share a sequence. A document takes `span` positions, its tokens but the last, which is only a target.
 * Windows of 65,536 documents, in the data's order, are packed one after the other, the longest documents first, each into the
 * sequence that it fills best; so the result depends on the documents alone, and memory beside the list is bounded.
 */
#ifndef SL_DATA_PACKING_H
#define SL_DATA_PACKING_H

#include <stdint.h>

#include "core/status.h"

typedef struct sl_packed_document {
    int64_t start; /* first token in the corpus */
    int32_t span;
} sl_packed_document;

typedef struct sl_packing {
    sl_packed_document *documents; /* those of a sequence stand together */
    int64_t n_documents;
    int64_t *first; /* document of every sequence, and the end: n_sequences + 1 */
    int64_t n_sequences, capacity;
    int64_t most; /* documents of a sequence */
} sl_packing;

/* Reorders `documents`, which the packing owns from then on; no span is above `seqlen`. On failure nothing is owned. */
sl_status sl_packing_create(sl_packed_document *documents, int64_t count, int64_t seqlen, sl_packing *packing);
void sl_packing_free(sl_packing *packing);

#endif
