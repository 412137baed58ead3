/*
 * The loader of chats and completions: documents packed best-fit into sequences, each a segment of its own with positions from 0. Targets
 * that the loss does not count are ignored ones; so is the rest of a sequence that is not full. A document longer than a sequence
 * is cropped, one that has nothing to learn left then is dropped; both are counted. Memory: 16 bytes a document.
 */
#ifndef SL_DATA_PACKED_H
#define SL_DATA_PACKED_H

#include "data/loader.h"

/* What packing made of the documents. */
typedef struct sl_packing_counts {
    int64_t documents, sequences;
    int64_t cropped, cropped_tokens; /* documents that were too long, and what was cut off */
    int64_t dropped;
    int64_t padding; /* positions without a document */
} sl_packing_counts;

/* Whether a corpus is to be packed: some of its tokens are not counted, or it holds other records than texts. */
bool sl_packed_wanted(const sl_corpus *corpus);
/* Takes over the corpus, even where it fails. */
sl_status sl_packed_open(const sl_loader_config *config, sl_corpus *train, sl_source **source);

#endif
