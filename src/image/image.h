/*
 * Pixels of 8 bits, and the decoders that make them: JPEG through libjpeg-turbo, PNG through libpng.
 *
 * A pixel is four bytes, red, green, blue and one without meaning: vector code loads whole pixels, and both libraries write them.
 * Every file becomes RGB by these rules, which are PIL's convert("RGB") but where noted:
 *
 *     gray               the value three times                  16 bits       the high byte (PIL clips 16-bit gray instead)
 *     palette            its colors                             CMYK, YCCK    inverted as Adobe writes it, then (255-C)(255-K)/255
 *     alpha              dropped, not blended                   color profile, gamma, EXIF orientation   not applied
 *
 * A file is broken where data is missing or cannot be decoded: a JPEG without its end marker, with a code that its tables lack or
 * with a lost restart marker; a PNG with a wrong checksum. What a decoder only finds odd (bytes between markers, version numbers) is
 * not. Only the part that is asked for is decoded, so damage beyond it goes unseen, but a file that ends early is always found.
 *
 * Memory: the header's width x height is checked against a limit before anything is allocated, a JPEG of several scans may buffer
 * coefficients of at most that many pixels in at most SL_JPEG_SCANS scans, and the result holds the rows and columns of the part.
 */
#ifndef SL_IMAGE_IMAGE_H
#define SL_IMAGE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

enum {
    SL_PIXEL_BYTES = 4,
    SL_IMAGE_MAX_PIXELS = 1 << 26, /* by default */
    SL_IMAGE_MAX_SIDE = 65535,     /* of any file: what JPEG can express, and PNG is not bigger in practice */
    SL_JPEG_SCANS = 200,
    /* What decoding takes of the heap at most, per pixel of the limit and beside that: four bytes are the result, the others the
     * coefficients of a JPEG of several scans. */
    SL_DECODE_PIXEL_BYTES = 12,
    SL_DECODE_BYTES = 1 << 24,
};

/* In pixels, from the top left corner. Fractions of a pixel are meant: (0.5, 0) to (1, 1) is half of the first pixel. */
typedef struct sl_image_box {
    double left, top, right, bottom;
} sl_image_box;

/* Its memory is reused from file to file: begin with zeros, end with sl_image_free. */
typedef struct sl_image {
    unsigned char *pixels; /* rows of width pixels, dense */
    int64_t width, height;
    sl_image_box part; /* where the part that was asked for lies in it */
    size_t capacity;   /* bytes of `pixels` */
} sl_image;

void sl_image_free(sl_image *image);
/* Makes it width x height, with undefined pixels. */
sl_status sl_image_reserve(sl_image *image, int64_t width, int64_t height);

/* Which part of a file is wanted, in its own pixels. A JPEG is decoded at the smallest of 1/8, 1/4, 1/2 and 1 of its size at which
 * the part still has least_width x least_height pixels: decoding so costs less, and averages as a good filter does. 0: at its size. */
typedef struct sl_image_part {
    int64_t left, top, width, height;
    int64_t least_width, least_height;
} sl_image_part;
/* Called once, when the size is known. The part begins as the whole image, and must lie in it. */
typedef void (*sl_image_choose)(void *context, int64_t width, int64_t height, sl_image_part *part);

/* `choose` NULL: all of it. `max_pixels` 0: SL_IMAGE_MAX_PIXELS. On an error the image has no defined content. */
sl_status sl_image_decode(const void *bytes, size_t length, int64_t max_pixels, sl_image_choose choose, void *context,
                          sl_image *image);

#endif
