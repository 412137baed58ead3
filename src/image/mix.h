/*
 * Mixup and CutMix: a sample and its target, mixed with those of a partner. Batch by batch, as timm's mode "batch": sample i meets
 * sample n-1-i, and all of a batch share lambda ~ Beta(alpha, alpha) and the box.
 *
 *     mixup    x = lambda x_i + (1 - lambda) x_j               target = lambda y_i + (1 - lambda) y_j
 *     cutmix   a box of x_j, with sides of sqrt(1 - lambda), in x_i; lambda becomes the share that x_i keeps
 *
 * Pure functions of (seed, batch); a sample without a label (a broken file) keeps a target of zeros, and its partner stays unmixed.
 */
#ifndef SL_IMAGE_MIX_H
#define SL_IMAGE_MIX_H

#include "image/draws.h"
#include "image/image.h"

typedef struct sl_mix_recipe {
    double mixup, cutmix; /* alpha; 0: never */
    double probability;   /* that a batch is mixed at all */
    double switch_to_cut; /* that it is CutMix, where both are on */
    double smoothing;     /* of labels */
} sl_mix_recipe;
sl_status sl_mix_recipe_check(const sl_mix_recipe *recipe);

typedef enum sl_mix_kind { SL_MIX_NONE, SL_MIX_UP, SL_MIX_CUT } sl_mix_kind;
typedef struct sl_mix {
    sl_mix_kind kind;
    double lambda;                    /* what a sample keeps of itself */
    int64_t left, top, right, bottom; /* the box */
} sl_mix;

/* What happens to a batch of images of width x height. */
sl_mix sl_mix_of(const sl_mix_recipe *recipe, uint64_t seed, uint64_t batch, int64_t width, int64_t height);

/* In place, on n samples of three planes. `label` < 0: none. */
void sl_mix_bytes(const sl_mix *mix, const int32_t *label, unsigned char *planes, int64_t n, int64_t width,
                  int64_t height);
void sl_mix_floats(const sl_mix *mix, const int32_t *label, float *planes, int64_t n, int64_t width, int64_t height);
/* [n, classes]. Smoothing s: the label's class has 1 - s + s/classes, every other s/classes. */
void sl_mix_targets(const sl_mix *mix, double smoothing, const int32_t *label, int64_t n, int64_t classes,
                    float *targets);

#endif
