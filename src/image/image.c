/* What a file is, is found from its first bytes: names lie (ImageNet holds a PNG called .JPEG). */
#include <string.h>

#include "core/mem.h"
#include "image/decoder.h"

void sl_image_free(sl_image *image)
{
    sl_free(image->pixels);
    *image = (sl_image){0};
}

sl_status sl_image_reserve(sl_image *image, int64_t width, int64_t height)
{
    size_t bytes = (size_t) width * (size_t) height * SL_PIXEL_BYTES;
    if (bytes > image->capacity) {
        sl_free(image->pixels); /* the old content is of no use: less memory than growing */
        image->pixels = NULL;
        image->capacity = 0;
        SL_TRY(sl_alloc_aligned(&image->pixels, bytes, 1, 64));
        image->capacity = bytes;
    }
    image->width = width;
    image->height = height;
    image->part = (sl_image_box){0, 0, (double) width, (double) height};
    return SL_OK;
}

sl_status sl_decode_choose(const sl_decode_request *request, const char *format, int64_t width, int64_t height,
                           sl_image_part *part)
{
    int64_t limit = request->max_pixels;
    if (width < 1 || height < 1)
        return sl_fail(SL_E_FORMAT, "damaged %s: its size is %lld x %lld", format, (long long) width,
                       (long long) height);
    if (width > SL_IMAGE_MAX_SIDE || height > SL_IMAGE_MAX_SIDE || width > limit / height)
        return sl_fail(SL_E_FORMAT,
                       "a %s of %lld x %lld pixels is over the limit of %lld pixels, %d a side: make it smaller, or "
                       "raise the limit",
                       format, (long long) width, (long long) height, (long long) limit, SL_IMAGE_MAX_SIDE);
    *part = (sl_image_part){.width = width, .height = height};
    if (request->choose)
        request->choose(request->context, width, height, part);
    SL_ASSERT(part->left >= 0 && part->top >= 0 && part->width >= 1 && part->height >= 1 &&
              part->left + part->width <= width && part->top + part->height <= height);
    return SL_OK;
}

bool sl_decode_has_end(const unsigned char *bytes, size_t length, const void *mark, size_t mark_length)
{
    for (size_t end = length; end >= mark_length; end--)
        if (memcmp(bytes + end - mark_length, mark, mark_length) == 0)
            return true;
    return false;
}

sl_status sl_decode_missing(const char *format, const char *library, const char *package)
{
    return sl_fail(
        SL_E_UNSUPPORTED,
        "%s needs %s, which this build of Sluice is without: install %s (as Debian calls it) and build again", format,
        library, package);
}

sl_status sl_image_decode(const void *bytes, size_t length, int64_t max_pixels, sl_image_choose choose, void *context,
                          sl_image *image)
{
    sl_decode_request request = {bytes, length, max_pixels ? max_pixels : SL_IMAGE_MAX_PIXELS, choose, context};
    if (length >= 3 && memcmp(bytes, "\xff\xd8\xff", 3) == 0)
        return sl_jpeg_decode(&request, image);
    if (length >= 8 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0)
        return sl_png_decode(&request, image);
    return sl_fail(SL_E_FORMAT, length ? "neither a JPEG nor a PNG: convert it to one of them" : "an empty file");
}
