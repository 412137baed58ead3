/* What the decoders share. Each lives in a file of its own over a library that the build may lack. */
#ifndef SL_IMAGE_DECODER_H
#define SL_IMAGE_DECODER_H

#include "image/image.h"

typedef struct sl_decode_request {
    const unsigned char *bytes;
    size_t length;
    int64_t max_pixels;
    sl_image_choose choose;
    void *context;
} sl_decode_request;

sl_status sl_jpeg_decode(const sl_decode_request *request, sl_image *image);
sl_status sl_png_decode(const sl_decode_request *request, sl_image *image);

/* Refuses what is too big, else lets the caller choose. */
sl_status sl_decode_choose(const sl_decode_request *request, const char *format, int64_t width, int64_t height,
                           sl_image_part *part);
/* Whether `bytes` hold `mark`, searched from their end: a whole file has its end mark there, or close to it. */
bool sl_decode_has_end(const unsigned char *bytes, size_t length, const void *mark, size_t mark_length);
/* How everything fails where the library is not part of the build. */
sl_status sl_decode_missing(const char *format, const char *library, const char *package);

#endif
