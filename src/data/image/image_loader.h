/*
 * Batches of samples, made by threads ahead of their use.
 *
 *     image set --> threads: read, decode, transform --> ring of batches --> sl_image_loader_next
 *
 * Position p is place p mod n of epoch p / n, and every epoch has a permutation of its own; with `repeats` r each image fills r places
 * of an epoch (repeated augmentation), which then sees every r-th image. A sample is a function of seed and position, and batches come
 * in the order of their positions: so neither the threads nor a resumed run change a bit.
 *
 * A broken image ends the run (SL_BAD_IMAGE_REFUSE), or is counted and named in the log, and its sample is black with the label
 * SL_NO_LABEL, which counts for nothing in a loss: positions keep their meaning. A file that cannot be read at all always ends the run.
 *
 * Memory: prefetch + 1 batches, and per thread a file, its decoded part, the rows between the passes of resizing and a sample. Once these have grown, making a sample allocates only what the decoders and opening a file take.
 */
#ifndef SL_DATA_IMAGE_IMAGE_LOADER_H
#define SL_DATA_IMAGE_IMAGE_LOADER_H

#include "data/image/image_set.h"
#include "image/mix.h"
#include "image/transform.h"

enum { SL_NO_LABEL = -100 }; /* what losses ignore (SL_TARGET_IGNORED) */

typedef enum sl_bad_image { SL_BAD_IMAGE_REFUSE, SL_BAD_IMAGE_SKIP } sl_bad_image;
/* "refuse" or "skip". */
sl_status sl_bad_image_parse(const char *text, sl_bad_image *bad);

typedef struct sl_image_loader_config {
    const sl_image_set *set; /* outlives the loader */
    sl_image_recipe recipe;
    const sl_image_norm *norm; /* samples are f32, normalized; NULL: bytes */
    sl_mix_recipe mix; /* zeros: never mixed. Batches begin at multiples of `batch` then, and each is mixed in itself */
    int64_t classes;   /* of the soft targets, at least the set's; 0: there are none */
    int64_t batch;
    int64_t prefetch; /* batches ahead of the one in use, at least 1 */
    int64_t repeats;  /* 1: every image once an epoch */
    int64_t position; /* of the first sample */
    int64_t end;      /* nothing behind it is made before it is asked for; 0: there is no end */
    int threads;      /* 0: one per core */
    uint64_t seed;
    bool shuffle;
    sl_bad_image bad;
} sl_image_loader_config;

typedef struct sl_image_batch {
    int64_t position;
    int64_t count;               /* config.batch */
    const unsigned char *planes; /* [count, 3, size, size]; NULL with a norm */
    const float *values;         /* the same with a norm; NULL without */
    const int32_t *labels;       /* [count], as they were before mixing */
    const float *targets;        /* [count, classes]; NULL without classes */
} sl_image_batch;

typedef struct sl_image_loader_figures {
    int64_t samples, bad; /* given out so far, and how many of them were broken */
    double waited;        /* seconds that sl_image_loader_next waited for samples */
    size_t bytes;         /* of the batches */
} sl_image_loader_figures;

typedef struct sl_image_loader sl_image_loader;
/* What one thread takes of the heap at most: files of more than 4 bytes per pixel of the limit are broken. */
size_t sl_image_loader_thread_bytes(const sl_image_recipe *recipe);
/* Starts the threads. */
sl_status sl_image_loader_open(const sl_image_loader_config *config, sl_image_loader **loader);
void sl_image_loader_close(sl_image_loader *loader);
/* Valid until the next call. After an error, the same batch is the next one again. */
sl_status sl_image_loader_next(sl_image_loader *loader, sl_image_batch *batch);
/* The next batch begins at `position`; what was made ahead is dropped. */
sl_status sl_image_loader_seek(sl_image_loader *loader, int64_t position);
int sl_image_loader_threads(const sl_image_loader *loader);
sl_image_loader_figures sl_image_loader_figures_of(const sl_image_loader *loader);

#endif
