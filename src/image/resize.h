/*
 * Resizing with a bicubic filter, antialiased: exactly the pixels of PIL's Image.resize((w, h), BICUBIC, box), on which published
 * accuracies rest.
 *
 *     out[x] = sum over taps t of k[x][t] * in[first[x] + t],   k = cubic((first + t + 0.5 - center) / scale), normalized
 *
 * The filter (a = -1/2) is as wide as `scale` output pixels where the image shrinks, so that every pixel of the box counts. Taps
 * are fixed-point numbers of 22 bits; rows are filtered first, rounded to 8 bits, then columns. Integer sums have one result,
 * so the vector code equals the reference bit for bit.
 */
#ifndef SL_IMAGE_RESIZE_H
#define SL_IMAGE_RESIZE_H

#include "image/image.h"

typedef struct sl_pixels {
    const unsigned char *at; /* of SL_PIXEL_BYTES each */
    int64_t width, height;
    size_t stride; /* bytes from row to row */
} sl_pixels;

/* The pixels that `box` touches, and the box within them: what a crop that is made before resizing leaves to see. */
sl_pixels sl_pixels_crop(const sl_image *image, const sl_image_box *box, sl_image_box *within);

/* Taps and the rows between the two passes; its memory is reused. For one thread at a time. */
typedef struct sl_resizer sl_resizer;
sl_status sl_resizer_create(sl_resizer **resizer);
void sl_resizer_destroy(sl_resizer *resizer);

/* What to make: `box` becomes width x height pixels, of which rows x columns from (left, top) on are wanted. */
typedef struct sl_resize_to {
    sl_image_box box;
    int64_t width, height;
    int64_t left, top, columns, rows;
} sl_resize_to;
/* All of them. */
sl_resize_to sl_resize_whole(const sl_image_box *box, int64_t width, int64_t height);

/* The pixels around the box are seen where the filter reaches them. The box may lie partly outside the pixels, where nothing is
 * wanted: so a part of an image serves for a crop of all of it resized. Writes columns x rows dense pixels. */
sl_status sl_resize(sl_resizer *resizer, const sl_pixels *from, const sl_resize_to *to, unsigned char *out);
/* The same by the formula alone. */
sl_status sl_resize_reference(sl_resizer *resizer, const sl_pixels *from, const sl_resize_to *to, unsigned char *out);

#endif
