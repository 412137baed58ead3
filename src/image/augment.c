/*
 * A change of a value by itself is a table of 256 entries; saturation, gray and blur need more than one value. Their loops run over blocks
 * of a fixed length, with pointers that do not overlap, and so become vector code with any compiler; the rest follows one by one.
 */
#include "image/augment.h"

#include <math.h>
#include <string.h>

/* Inlined for its constant length. */
#define SL_RUN static inline __attribute__((always_inline))

enum { BLOCK = 64, BLUR_TAPS = 5, BLUR_REACH = 2, BLUR_BITS = 15, SOLARIZE_FROM = 128 };

/* ITU-R 601 luma, 16 bits of fraction. */
static unsigned char gray_of(unsigned red, unsigned green, unsigned blue)
{
    return (unsigned char) ((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16);
}

SL_RUN void gray_run(const unsigned char *restrict red, const unsigned char *restrict green,
                     const unsigned char *restrict blue, int n, unsigned char *restrict out)
{
    for (int i = 0; i < n; i++)
        out[i] = gray_of(red[i], green[i], blue[i]);
}

/* Up to BLOCK values from `at` on. */
static void gray_block(const unsigned char *planes, int64_t n, int64_t at, unsigned char out[BLOCK])
{
    const unsigned char *red = planes + at, *green = red + n, *blue = green + n;
    if (n - at >= BLOCK)
        gray_run(red, green, blue, BLOCK, out);
    else
        gray_run(red, green, blue, (int) (n - at), out);
}

void sl_augment_grayscale(unsigned char *planes, int64_t n)
{
    unsigned char gray[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        size_t count = (size_t) SL_MIN(n - at, BLOCK);
        gray_block(planes, n, at, gray);
        for (int64_t c = 0; c < 3; c++)
            memcpy(planes + c * n + at, gray, count);
    }
}

void sl_augment_solarize(unsigned char *planes, int64_t n, int threshold)
{
    for (int64_t i = 0; i < 3 * n; i++)
        planes[i] = (unsigned char) (planes[i] >= threshold ? 255 - planes[i] : planes[i]);
}

static int64_t mirror(int64_t at, int64_t n)
{
    at = at < 0 ? -at : at;
    at = at >= n ? 2 * (n - 1) - at : at;
    return SL_MIN(SL_MAX(at, 0), n - 1); /* a side shorter than the taps */
}

/* Taps that sum to 2^15. */
static void blur_taps(double sigma, uint16_t tap[BLUR_TAPS])
{
    double weight[BLUR_TAPS], sum = 0;
    uint32_t others = 0;
    for (int i = 0; i < BLUR_TAPS; i++)
        sum += weight[i] = exp(-0.5 * (i - BLUR_REACH) * (i - BLUR_REACH) / (sigma * sigma));
    for (int i = 0; i < BLUR_TAPS; i++) {
        tap[i] = (uint16_t) lrint(weight[i] / sum * (1 << BLUR_BITS));
        others += i == BLUR_REACH ? 0 : tap[i];
    }
    tap[BLUR_REACH] = (uint16_t) ((1u << BLUR_BITS) - others);
}

/* Rows first, kept with 8 bits of fraction, then columns. `in`: from two values to the left of the first output on. */
SL_RUN void blur_row(const unsigned char *restrict in, int n, const uint16_t tap[BLUR_TAPS], uint16_t *restrict out)
{
    for (int i = 0; i < n; i++) {
        uint32_t sum = (uint32_t) tap[0] * in[i] + (uint32_t) tap[1] * in[i + 1] + (uint32_t) tap[2] * in[i + 2] +
                       (uint32_t) tap[3] * in[i + 3] + (uint32_t) tap[4] * in[i + 4];
        out[i] = (uint16_t) ((sum + (1u << (BLUR_BITS - 9))) >> (BLUR_BITS - 8));
    }
}

SL_RUN void blur_column(const uint16_t *const in[BLUR_TAPS], int64_t at, int n, const uint16_t tap[BLUR_TAPS],
                        unsigned char *restrict out)
{
    const uint16_t *restrict a = in[0] + at, *restrict b = in[1] + at, *restrict c = in[2] + at,
                             *restrict d = in[3] + at, *restrict e = in[4] + at;
    for (int i = 0; i < n; i++) {
        uint32_t sum = (uint32_t) tap[0] * a[i] + (uint32_t) tap[1] * b[i] + (uint32_t) tap[2] * c[i] +
                       (uint32_t) tap[3] * d[i] + (uint32_t) tap[4] * e[i];
        out[i] = (unsigned char) ((sum + (1u << (BLUR_BITS + 7))) >> (BLUR_BITS + 8));
    }
}

static void blur_plane(unsigned char *plane, int64_t width, int64_t height, const uint16_t tap[BLUR_TAPS],
                       uint16_t *rows)
{
    for (int64_t y = 0; y < height; y++) {
        const unsigned char *in = plane + y * width;
        uint16_t *out = rows + y * width;
        int64_t x = 0;
        while (x < width) {
            if (x >= BLUR_REACH && x + BLOCK + BLUR_REACH <= width) {
                blur_row(in + x - BLUR_REACH, BLOCK, tap, out + x);
                x += BLOCK;
                continue;
            }
            unsigned char near[BLUR_TAPS]; /* at a border, or too few for a block */
            for (int64_t i = 0; i < BLUR_TAPS; i++)
                near[i] = in[mirror(x + i - BLUR_REACH, width)];
            blur_row(near, 1, tap, out + x++);
        }
    }
    for (int64_t y = 0; y < height; y++) {
        const uint16_t *in[BLUR_TAPS];
        int64_t x = 0;
        for (int64_t i = 0; i < BLUR_TAPS; i++)
            in[i] = rows + mirror(y + i - BLUR_REACH, height) * width;
        for (; x + BLOCK <= width; x += BLOCK)
            blur_column(in, x, BLOCK, tap, plane + y * width + x);
        blur_column(in, x, (int) (width - x), tap, plane + y * width + x);
    }
}

void sl_augment_blur(unsigned char *planes, int64_t width, int64_t height, double sigma, uint16_t *scratch)
{
    uint16_t tap[BLUR_TAPS];
    blur_taps(sigma, tap);
    for (int64_t c = 0; c < 3; c++)
        blur_plane(planes + c * width * height, width, height, tap, scratch);
}

/* From `other` by a factor towards `value` and beyond, truncated and clamped as PIL does. */
static unsigned char blend(int other, int value, float factor)
{
    float out = (float) other + factor * (float) (value - other);
    return (unsigned char) (out <= 0 ? 0 : out >= 255 ? 255 : out);
}

static void blend_with(unsigned char *planes, int64_t n, int other, float factor)
{
    unsigned char table[256];
    for (int i = 0; i < 256; i++)
        table[i] = blend(other, i, factor);
    for (int64_t i = 0; i < 3 * n; i++)
        planes[i] = table[planes[i]];
}

void sl_augment_brightness(unsigned char *planes, int64_t n, float factor)
{
    blend_with(planes, n, 0, factor);
}

void sl_augment_contrast(unsigned char *planes, int64_t n, float factor)
{
    uint64_t sum = 0;
    unsigned char gray[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        gray_block(planes, n, at, gray);
        for (int64_t i = 0; i < SL_MIN(n - at, BLOCK); i++)
            sum += gray[i];
    }
    blend_with(planes, n, (int) ((double) sum / (double) n + 0.5), factor);
}

/* As blend, without a branch. */
SL_RUN void blend_run(const unsigned char *restrict gray, float factor, int n, unsigned char *restrict values)
{
    for (int i = 0; i < n; i++) {
        float out = (float) gray[i] + factor * (float) (values[i] - gray[i]);
        out = out < 0 ? 0 : out;
        out = out > 255 ? 255 : out;
        values[i] = (unsigned char) (int) out;
    }
}

void sl_augment_saturation(unsigned char *planes, int64_t n, float factor)
{
    unsigned char gray[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        gray_block(planes, n, at, gray);
        for (int64_t c = 0; c < 3; c++) {
            unsigned char *values = planes + c * n + at;
            if (n - at >= BLOCK)
                blend_run(gray, factor, BLOCK, values);
            else
                blend_run(gray, factor, (int) (n - at), values);
        }
    }
}

void sl_augment_three(sl_draws *draws, unsigned char *planes, int64_t width, int64_t height, uint16_t *scratch)
{
    int64_t which = sl_draw_below(draws, 3);
    double sigma = sl_draw_between(draws, 0.1, 2);
    if (which == 0)
        sl_augment_grayscale(planes, width * height);
    else if (which == 1)
        sl_augment_solarize(planes, width * height, SOLARIZE_FROM);
    else
        sl_augment_blur(planes, width, height, sigma, scratch);
}

void sl_augment_jitter(sl_draws *draws, unsigned char *planes, int64_t n, const double range[3])
{
    static void (*const change[3])(unsigned char *, int64_t, float) = {sl_augment_brightness, sl_augment_contrast,
                                                                       sl_augment_saturation};
    int order[3] = {0, 1, 2};
    for (int i = 2; i > 0; i--) {
        int64_t j = sl_draw_below(draws, i + 1);
        int last = order[i];
        order[i] = order[j], order[j] = last;
    }
    for (int i = 0; i < 3; i++) {
        double by = range[order[i]];
        float factor = (float) sl_draw_between(draws, SL_MAX(1 - by, 0), 1 + by);
        if (by > 0)
            change[order[i]](planes, n, factor);
    }
}
