/*
 * From the bytes of a file to a sample: decode, crop, resize, mirror, change colors, normalize.
 *
 *     training      random resized crop, mirrored with probability `flip`, three-augment, color jitter
 *     validation    the shorter side becomes size / crop_ratio pixels, of which the middle is taken
 *
 * A sample is three planes of size x size, red, green and blue. It depends on the recipe, the file, the seed, the epoch and the place
 * in the epoch, and on nothing else: not on threads, not on the instruction set.
 */
#ifndef SL_IMAGE_TRANSFORM_H
#define SL_IMAGE_TRANSFORM_H

#include "image/crop.h"

typedef struct sl_image_recipe {
    int64_t size;
    int64_t max_pixels; /* of a file; 0: SL_IMAGE_MAX_PIXELS */
    bool train;
    bool
        scaled_decoding; /* JPEGs at a smaller size where the crop still has size x size pixels: faster, and not PIL's bits */
    /* Training: */
    sl_crop_range crop;
    double flip;
    bool three_augment;
    double jitter[3]; /* brightness, contrast, saturation: factors within 1 +- this */
    /* Validation: */
    double crop_ratio;
} sl_image_recipe;

/* Area .08 to 1, ratio 3/4 to 4/3, flip 1/2; crop_ratio 1, no augmentation. */
sl_image_recipe sl_image_recipe_default(int64_t size, bool train);
/* SL_E_USAGE with the field that cannot be. */
sl_status sl_image_recipe_check(const sl_image_recipe *recipe);

/* What a thread needs to make samples. */
typedef struct sl_image_worker sl_image_worker;
sl_status sl_image_worker_create(const sl_image_recipe *recipe, sl_image_worker **worker); /* checks the recipe */
void sl_image_worker_destroy(sl_image_worker *worker);

/* Writes 3 * size * size bytes. */
sl_status sl_image_sample(sl_image_worker *worker, const void *bytes, size_t length, const sl_draws *draws,
                          unsigned char *planes);

typedef struct sl_image_norm {
    float mean[3], deviation[3];
} sl_image_norm;
extern const sl_image_norm sl_imagenet_norm;
/* (value / 255 - mean) / deviation in f32, as torchvision's ToTensor and Normalize; n values a plane. */
void sl_image_normalize(const sl_image_norm *norm, const unsigned char *planes, int64_t n, float *out);

#endif
