/* Rounding follows Python's: round() to the even neighbour, int() towards zero. */
#include "image/crop.h"

#include <math.h>

enum { TRIES = 10 };

void sl_crop_random(sl_draws *draws, const sl_crop_range *range, int64_t width, int64_t height, sl_image_part *part)
{
    double area = (double) width * (double) height;
    for (int i = 0; i < TRIES; i++) {
        double target = area * sl_draw_between(draws, range->least_area, range->most_area);
        double ratio = exp(sl_draw_between(draws, log(range->least_ratio), log(range->most_ratio)));
        double w = rint(sqrt(target * ratio)), h = rint(sqrt(target / ratio));
        if (w < 1 || h < 1 || w > (double) width || h > (double) height)
            continue;
        part->width = (int64_t) w;
        part->height = (int64_t) h;
        part->top = sl_draw_below(draws, height - part->height + 1);
        part->left = sl_draw_below(draws, width - part->width + 1);
        return;
    }
    double ratio = (double) width / (double) height;
    part->width = width;
    part->height = height;
    if (ratio < range->least_ratio)
        part->height = (int64_t) rint((double) width / range->least_ratio);
    else if (ratio > range->most_ratio)
        part->width = (int64_t) rint((double) height * range->most_ratio);
    part->width = SL_MIN(SL_MAX(part->width, 1), width);
    part->height = SL_MIN(SL_MAX(part->height, 1), height);
    part->left = (width - part->width) / 2;
    part->top = (height - part->height) / 2;
}

/* Inputs that the filter of outputs [offset, offset + outputs) reaches. */
static void reach(int64_t inputs, int64_t size, int64_t offset, int64_t outputs, int64_t *from, int64_t *count)
{
    double scale = (double) inputs / (double) size, support = 2 * SL_MAX(scale, 1.0) + 2;
    *from = SL_MAX((int64_t) ((double) offset * scale - support), 0);
    *count = SL_MIN((int64_t) ((double) (offset + outputs) * scale + support), inputs) - *from;
}

void sl_crop_center(int64_t width, int64_t height, int64_t shorter, int64_t size, sl_resize_to *to, sl_image_part *part)
{
    bool wide = width > height;
    int64_t longer = (int64_t) ((double) shorter * (double) SL_MAX(width, height) / (double) SL_MIN(width, height));
    *to = (sl_resize_to){.box = {0, 0, (double) width, (double) height},
                         .width = wide ? longer : shorter,
                         .height = wide ? shorter : longer,
                         .columns = size,
                         .rows = size};
    to->left = (int64_t) rint((double) (to->width - size) / 2);
    to->top = (int64_t) rint((double) (to->height - size) / 2);
    reach(width, to->width, to->left, size, &part->left, &part->width);
    reach(height, to->height, to->top, size, &part->top, &part->height);
}
