/*
 * PNG. Rows are independent of what follows them, so decoding ends below the part; the passes of an interlaced file all write to the
 * whole image. libpng reports errors by a callback that may not return; setjmp brings us back, with the locals that matter in `state`.
 */
#include "image/decoder.h"

#ifdef SL_HAVE_PNG
#include <setjmp.h>
#include <string.h>

#include <png.h>

#include "core/mem.h"

enum { CHUNK_BYTES = 8 << 20, CHUNKS = 256 };

typedef struct png_state {
    png_structp png;
    png_infop info;
    const sl_decode_request *request;
    sl_image *image;
    const unsigned char *at; /* what was not read yet */
    size_t left;
    char why[128];
    sl_status status;
} png_state;

static void on_error(png_structp png, png_const_charp message) __attribute__((noreturn));
static void on_error(png_structp png, png_const_charp message)
{
    png_state *s = png_get_error_ptr(png);
    snprintf(s->why, sizeof s->why, "%s", message);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    (void) png, (void) message;
}

static void on_read(png_structp png, png_bytep out, size_t bytes)
{
    png_state *s = png_get_io_ptr(png);
    if (bytes > s->left)
        png_error(png, "it ends early");
    memcpy(out, s->at, bytes);
    s->at += bytes;
    s->left -= bytes;
}

static png_voidp on_malloc(png_structp png, png_alloc_size_t bytes)
{
    void *memory = NULL;
    (void) png;
    return sl_alloc(&memory, bytes, 1) == SL_OK ? memory : NULL;
}

static void on_free(png_structp png, png_voidp memory)
{
    (void) png;
    sl_free(memory);
}

static sl_status decode(png_state *s)
{
    png_structp png = s->png;
    sl_image_part part;
    png_read_info(png, s->info);
    int64_t width = png_get_image_width(png, s->info), height = png_get_image_height(png, s->info);
    SL_TRY(sl_decode_choose(s->request, "PNG", width, height, &part));
    if (!sl_decode_has_end(s->at, s->left, "IEND", 4))
        return sl_fail(SL_E_FORMAT, "damaged PNG: it ends early");
    png_set_strip_16(png);
    png_set_expand(png);
    png_set_gray_to_rgb(png);
    png_set_add_alpha(png, 255, PNG_FILLER_AFTER); /* a pixel of four bytes, whatever the fourth is */
    int passes = png_set_interlace_handling(png);
    png_read_update_info(png, s->info);
    if (png_get_rowbytes(png, s->info) != (size_t) width * SL_PIXEL_BYTES)
        return sl_fail(SL_E_FORMAT, "damaged PNG: its pixels are not colors");
    int64_t top = passes > 1 ? 0 : part.top, bottom = passes > 1 ? height : part.top + part.height;
    SL_TRY(sl_image_reserve(s->image, width, bottom - top));
    for (int pass = 0; pass < passes; pass++)
        for (int64_t y = 0; y < bottom; y++)
            png_read_row(png, y < top ? NULL : s->image->pixels + (y - top) * width * SL_PIXEL_BYTES, NULL);
    s->image->part = (sl_image_box){(double) part.left, (double) (part.top - top), (double) (part.left + part.width),
                                    (double) (part.top - top + part.height)};
    return SL_OK;
}

static void decode_or_fail(png_state *s)
{
    if (setjmp(png_jmpbuf(s->png))) {
        s->status = sl_fail(SL_E_FORMAT, "damaged PNG: %s", s->why);
        return;
    }
    png_set_read_fn(s->png, s, on_read);
    png_set_user_limits(s->png, SL_IMAGE_MAX_SIDE, SL_IMAGE_MAX_SIDE);
    png_set_chunk_malloc_max(s->png, CHUNK_BYTES);
    png_set_chunk_cache_max(s->png, CHUNKS);
    s->status = decode(s);
}

sl_status sl_png_decode(const sl_decode_request *request, sl_image *image)
{
    png_state s = {.request = request, .image = image, .at = request->bytes, .left = request->length};
    s.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &s, on_error, on_warning, NULL, on_malloc, on_free);
    s.info = s.png ? png_create_info_struct(s.png) : NULL;
    if (s.info)
        decode_or_fail(&s);
    else
        s.status = sl_fail(SL_E_MEMORY, "no memory to decode PNG");
    png_destroy_read_struct(&s.png, &s.info, NULL);
    return s.status;
}
#else
sl_status sl_png_decode(const sl_decode_request *request, sl_image *image)
{
    (void) request, (void) image;
    return sl_decode_missing("PNG", "libpng", "libpng-dev");
}
#endif
