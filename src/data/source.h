/*
 * A data source: what fills the inputs of a step. The trainer numbers the sequences that a run consumes 0, 1, 2, ...; a source turns
 * such positions into the content of inputs. The loader (data/loader.h) is the one over files.
 *
 * Where a run stands in its data is one number, the position of its next training sequence, so a resumed run asks for exactly what
 * an uninterrupted one would have asked for. Positions of a step ascend; the slices of a sequence come one after the other.
 * Validation always begins at position 0, and what fills up its last batch is not counted.
 *
 * An implementation embeds sl_source as its first member and fills it when it is opened. Everything in it but `class` is only read
 * afterwards. `fill` runs within a step: it allocates nothing.
 */
#ifndef SL_DATA_SOURCE_H
#define SL_DATA_SOURCE_H

#include "core/status.h"
#include "graph/inputs.h"

typedef enum sl_split { SL_SPLIT_TRAIN, SL_SPLIT_VALIDATION, SL_SPLIT_COUNT } sl_split;

/* Memory of the trainer for one input: all rows of the chunk, dense. */
typedef struct sl_batch_input {
    void *data;   /* NULL: not wanted */
    sl_type type; /* rows, then the extents of a row; segments: as many bounds as there is space for */
} sl_batch_input;

/* A chunk of a step: whole sequences (packed), or a slice of one. What belongs to a sequence as a whole (segments, labels, ...) is
 * wanted with its first slice alone. */
typedef struct sl_batch {
    int64_t position;     /* of the first sequence */
    int64_t n_sequences;  /* 1 for a slice */
    int64_t slice_offset; /* first token within the sequence; 0 for whole sequences */
    int64_t tokens_each;  /* of every sequence: seqlen, or the slice's length */
    sl_batch_input input[SL_INPUT_COUNT];
} sl_batch;

typedef struct sl_source sl_source;
typedef struct sl_source_class {
    /* Writes every input of the batch whose data is not NULL: all of them are in `kinds`. */
    sl_status (*fill)(sl_source *source, sl_split split, const sl_batch *batch);
    /* The next training batch begins at `position`. Called before the first step of a run, resumed or not. NULL: any position can be
     * filled at any time. */
    sl_status (*seek)(sl_source *source, int64_t position);
    void (*close)(sl_source *source);
    /* Bytes of the text that the batch's targets stand for, those that are not ignored, for a loss per byte. Called behind its fill. */
    sl_status (*text_bytes)(sl_source *source, sl_split split, const sl_batch *batch, int64_t *bytes);
} sl_source_class;

struct sl_corpus_contents;
struct sl_source {
    const sl_source_class *class;
    uint32_t kinds;                    /* bit k: it can fill inputs of kind k */
    int64_t sequences[SL_SPLIT_COUNT]; /* of an epoch; validation may have none. Positions may go beyond */
    size_t bytes;                      /* that it takes of the heap, at most */
    int64_t most_segments;             /* of a sequence; 0: as many as its configuration says */
    char
        identity[128]; /* the same for another run that sees the same sequences in the same order: compared on resume */
    char sample[64];   /* of the content, where another one can hide behind the same identity; "": not known */
    const struct sl_corpus_contents *contents[SL_SPLIT_COUNT]; /* files, for people; NULL: none */
    const char *text_unknown[SL_SPLIT_COUNT]; /* why there are no bytes of text; NULL: text_bytes tells them */
};

static inline void sl_source_close(sl_source *source)
{
    if (source)
        source->class->close(source);
}

#endif
