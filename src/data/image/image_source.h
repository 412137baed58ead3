/*
 * Images as a data source of training: fills images (f32, normalized, or u8), labels and soft targets. A sequence is one image.
 *
 * The images of a step are mixed with each other, so the source makes whole steps and hands them out chunk by chunk: a step's positions
 * have to be asked for in ascending order, as the trainer does. Any step may come next; one that is not the next costs a restart.
 * Filling copies. The threads that make samples allocate while they run: decoders, open files.
 */
#ifndef SL_DATA_IMAGE_IMAGE_SOURCE_H
#define SL_DATA_IMAGE_IMAGE_SOURCE_H

#include "data/image/image_loader.h"
#include "data/source.h"

typedef struct sl_image_source_config {
    const char *data, *val_data; /* paths, see data/image/image_set.h; val_data NULL: no validation */
    sl_image_recipe train, validation;
    const sl_image_norm *norm; /* f32 images; NULL: u8 images */
    sl_mix_recipe mix;         /* of the training images; zeros: never */
    int64_t classes;           /* of the model; 0: as many as the training data has, and no soft targets */
    int64_t step;              /* training images of a step */
    int64_t repeats, prefetch; /* prefetch: steps ahead */
    int threads;               /* 0: one per core */
    uint64_t seed;
    sl_bad_image bad;
} sl_image_source_config;

/* Close it with sl_source_close. */
sl_status sl_image_source_open(const sl_image_source_config *config, sl_source **source);
/* Since it was opened: images given out and broken ones among them, seconds that steps waited for images. */
sl_image_loader_figures sl_image_source_figures(const sl_source *source, sl_split split);

#endif
