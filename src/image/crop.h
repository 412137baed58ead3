/* Which part of an image a sample shows: torchvision's RandomResizedCrop for training, Resize and CenterCrop for validation. */
#ifndef SL_IMAGE_CROP_H
#define SL_IMAGE_CROP_H

#include "image/draws.h"
#include "image/resize.h"

typedef struct sl_crop_range {
    double least_area, most_area;   /* of the whole image's */
    double least_ratio, most_ratio; /* width / height, uniform in its logarithm */
} sl_crop_range;

/* Ten tries for a crop that fits, then the largest central one with an allowed ratio. */
void sl_crop_random(sl_draws *draws, const sl_crop_range *range, int64_t width, int64_t height, sl_image_part *part);

/* The shorter side becomes `shorter` pixels, and the middle size x size of that is wanted. `part` is what the filter reaches. */
void sl_crop_center(int64_t width, int64_t height, int64_t shorter, int64_t size, sl_resize_to *to,
                    sl_image_part *part);

#endif
