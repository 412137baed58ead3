/*
 * Changes of a sample's colors, in place on three planes of n bytes (red, green, blue). Each gives PIL's bits where PIL has it; all are
 * integer or single multiplications of f32, so no machine differs.
 */
#ifndef SL_IMAGE_AUGMENT_H
#define SL_IMAGE_AUGMENT_H

#include "image/draws.h"
#include "image/image.h"

void sl_augment_grayscale(unsigned char *planes, int64_t n);
void sl_augment_solarize(unsigned char *planes, int64_t n,
                         int threshold); /* values from the threshold on are inverted */
/* Five taps of a Gaussian in each direction; the border is mirrored. `scratch`: width*height u16. */
void sl_augment_blur(unsigned char *planes, int64_t width, int64_t height, double sigma, uint16_t *scratch);
/* Factor 1 changes nothing; 0 is black, the mean gray, and gray. */
void sl_augment_brightness(unsigned char *planes, int64_t n, float factor);
void sl_augment_contrast(unsigned char *planes, int64_t n, float factor);
void sl_augment_saturation(unsigned char *planes, int64_t n, float factor);

/* One of grayscale, solarize and blur (sigma from 0.1 to 2), each with probability 1/3. */
void sl_augment_three(sl_draws *draws, unsigned char *planes, int64_t width, int64_t height, uint16_t *scratch);
/* Brightness, contrast and saturation in random order, each by a factor within 1 +- its range (0: not). */
void sl_augment_jitter(sl_draws *draws, unsigned char *planes, int64_t n, const double range[3]);

#endif
