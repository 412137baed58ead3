/* A change of a value by itself is a table of 256 entries; saturation and gray need all three channels of a pixel. */
#include "image/augment.h"

#include <math.h>
#include <string.h>

enum { BLUR_TAPS = 5, BLUR_REACH = 2, BLUR_BITS = 15, SOLARIZE_FROM = 128 };

/* ITU-R 601 luma, 16 bits of fraction. */
static unsigned char gray_of(unsigned red, unsigned green, unsigned blue)
{
    return (unsigned char) ((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16);
}

void sl_augment_grayscale(unsigned char *planes, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        planes[i] = gray_of(planes[i], planes[n + i], planes[2 * n + i]);
    memcpy(planes + n, planes, (size_t) n);
    memcpy(planes + 2 * n, planes, (size_t) n);
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
static void blur_taps(double sigma, uint32_t tap[BLUR_TAPS])
{
    double weight[BLUR_TAPS], sum = 0;
    uint32_t others = 0;
    for (int i = 0; i < BLUR_TAPS; i++)
        sum += weight[i] = exp(-0.5 * (i - BLUR_REACH) * (i - BLUR_REACH) / (sigma * sigma));
    for (int i = 0; i < BLUR_TAPS; i++) {
        tap[i] = (uint32_t) lrint(weight[i] / sum * (1 << BLUR_BITS));
        others += i == BLUR_REACH ? 0 : tap[i];
    }
    tap[BLUR_REACH] = (1u << BLUR_BITS) - others;
}

/* Rows first, kept with 8 bits of fraction, then columns. */
static void blur_plane(unsigned char *plane, int64_t width, int64_t height, const uint32_t tap[BLUR_TAPS],
                       uint16_t *rows)
{
    for (int64_t y = 0; y < height; y++) {
        const unsigned char *in = plane + y * width;
        uint16_t *out = rows + y * width;
        for (int64_t x = 0; x < width; x++) {
            bool inside = x >= BLUR_REACH && x + BLUR_REACH < width;
            uint32_t sum = 1 << (BLUR_BITS - 9);
            for (int64_t i = 0; i < BLUR_TAPS; i++)
                sum += tap[i] * in[inside ? x + i - BLUR_REACH : mirror(x + i - BLUR_REACH, width)];
            out[x] = (uint16_t) (sum >> (BLUR_BITS - 8));
        }
    }
    for (int64_t y = 0; y < height; y++) {
        const uint16_t *in[BLUR_TAPS];
        unsigned char *out = plane + y * width;
        for (int64_t i = 0; i < BLUR_TAPS; i++)
            in[i] = rows + mirror(y + i - BLUR_REACH, height) * width;
        for (int64_t x = 0; x < width; x++) {
            uint32_t sum =
                tap[0] * in[0][x] + tap[1] * in[1][x] + tap[2] * in[2][x] + tap[3] * in[3][x] + tap[4] * in[4][x];
            out[x] = (unsigned char) ((sum + (1u << (BLUR_BITS + 7))) >> (BLUR_BITS + 8));
        }
    }
}

void sl_augment_blur(unsigned char *planes, int64_t width, int64_t height, double sigma, uint16_t *scratch)
{
    uint32_t tap[BLUR_TAPS];
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
    for (int64_t i = 0; i < n; i++)
        sum += gray_of(planes[i], planes[n + i], planes[2 * n + i]);
    blend_with(planes, n, (int) ((double) sum / (double) n + 0.5), factor);
}

void sl_augment_saturation(unsigned char *planes, int64_t n, float factor)
{
    for (int64_t i = 0; i < n; i++) {
        int gray = gray_of(planes[i], planes[n + i], planes[2 * n + i]);
        for (int64_t c = 0; c < 3; c++)
            planes[c * n + i] = blend(gray, planes[c * n + i], factor);
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
