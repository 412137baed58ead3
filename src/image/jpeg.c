/*
 * JPEG. Most of a decoder's time goes into what a random crop throws away, so only the part is transformed: rows above it are skipped,
 * decoding ends below it, and columns are cut to whole blocks around it. Chroma is interpolated between neighbours, so the
 * cut keeps a margin: then every pixel of the part is the one that decoding everything gives.
 *
 * libjpeg reports errors by a callback that may not return; setjmp brings us back. Locals that are changed after it are in `state`,
 * which lives outside the function that calls it.
 */
#include "image/decoder.h"

#ifdef SL_HAVE_JPEG
#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

#include <jerror.h>
#endif

#if defined SL_HAVE_JPEG && defined LIBJPEG_TURBO_VERSION_NUMBER
enum { MARGIN = 8, COEFFICIENT_BYTES = SL_DECODE_PIXEL_BYTES - SL_PIXEL_BYTES };

typedef struct jpeg_state {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    char why[JMSG_LENGTH_MAX];
    const sl_decode_request *request;
    sl_image *image;
    sl_status status; /* of our own functions, when they ended decoding */
} jpeg_state;

static void fail(j_common_ptr common) __attribute__((noreturn));
static void fail(j_common_ptr common)
{
    jpeg_state *s = common->client_data;
    s->errors.format_message(common, s->why);
    longjmp(s->failed, 1);
}

/* A negative level is a warning, after which libjpeg would go on with made-up data. */
static void on_message(j_common_ptr common, int level)
{
    if (level >= 0)
        return;
    switch (common->err->msg_code) {
    case JWRN_HIT_MARKER:
    case JWRN_JPEG_EOF:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
        fail(common);
    default:
        break;
    }
}

static void on_output(j_common_ptr common)
{
    (void) common;
}

/* A file of a few bytes per scan could keep a decoder busy for hours. */
static void on_progress(j_common_ptr common)
{
    jpeg_state *s = common->client_data;
    if (s->jpeg.input_scan_number > SL_JPEG_SCANS) {
        snprintf(s->why, sizeof s->why, "it has more than %d scans", SL_JPEG_SCANS);
        longjmp(s->failed, 1);
    }
}

static void choose_scale(struct jpeg_decompress_struct *jpeg, const sl_image_part *part)
{
    jpeg->scale_denom = 8;
    jpeg->scale_num = 8;
    if (part->least_width < 1 || part->least_height < 1)
        return;
    for (unsigned num = 1; num <= 8; num *= 2) /* the sizes that libjpeg-turbo transforms with vectors */
        if (part->width * num >= 8 * part->least_width && part->height * num >= 8 * part->least_height) {
            jpeg->scale_num = num;
            return;
        }
}

/* As PIL: Adobe's inverted values, and its division by 255. In place. */
static void cmyk_to_rgb(unsigned char *row, int64_t width)
{
    for (int64_t x = 0; x < width; x++, row += SL_PIXEL_BYTES)
        for (int c = 0; c < 3; c++) {
            int ink = (255 - row[c]) * row[3] + 128;
            int value = row[3] - (((ink >> 8) + ink) >> 8);
            row[c] = (unsigned char) SL_MAX(value, 0);
        }
}

/* Rows [top, bottom) of columns [left, left + width) of the scaled image. */
static sl_status read_rows(jpeg_state *s, JDIMENSION left, JDIMENSION top, JDIMENSION width, JDIMENSION bottom)
{
    struct jpeg_decompress_struct *jpeg = &s->jpeg;
    if (width < jpeg->output_width)
        jpeg_crop_scanline(jpeg, &left, &width);
    if (top > 0)
        (void) jpeg_skip_scanlines(jpeg, top);
    SL_TRY(sl_image_reserve(s->image, (int64_t) jpeg->output_width, (int64_t) bottom - top));
    size_t stride = (size_t) jpeg->output_width * SL_PIXEL_BYTES;
    while (jpeg->output_scanline < bottom) {
        unsigned char *row = s->image->pixels + (jpeg->output_scanline - top) * stride;
        (void) jpeg_read_scanlines(jpeg, &row, 1);
        if (jpeg->out_color_space == JCS_CMYK)
            cmyk_to_rgb(row, (int64_t) jpeg->output_width);
    }
    s->image->part.left = left; /* of the first column; the caller makes it the part's */
    return SL_OK;
}

static sl_status decode(jpeg_state *s)
{
    struct jpeg_decompress_struct *jpeg = &s->jpeg;
    sl_image_part part;
    jpeg_mem_src(jpeg, s->request->bytes, s->request->length);
    (void) jpeg_read_header(jpeg, TRUE);
    SL_TRY(sl_decode_choose(s->request, "JPEG", jpeg->image_width, jpeg->image_height, &part));
    if (!sl_decode_has_end(jpeg->src->next_input_byte, jpeg->src->bytes_in_buffer, "\xff\xd9", 2))
        return sl_fail(SL_E_FORMAT, "damaged JPEG: it ends early");
    switch (jpeg->jpeg_color_space) {
    case JCS_GRAYSCALE:
    case JCS_YCbCr:
    case JCS_RGB:
        jpeg->out_color_space = JCS_EXT_RGBX;
        break;
    case JCS_CMYK:
    case JCS_YCCK:
        jpeg->out_color_space = JCS_CMYK;
        break;
    default:
        return sl_fail(SL_E_FORMAT, "a JPEG of %d components in no known color space: convert it to RGB",
                       jpeg->num_components);
    }
    choose_scale(jpeg, &part);
    (void) jpeg_start_decompress(jpeg);

    double scale = jpeg->scale_num / 8.0;
    sl_image_box box = {(double) part.left * scale, (double) part.top * scale,
                        (double) (part.left + part.width) * scale, (double) (part.top + part.height) * scale};
    int64_t left = SL_MAX((int64_t) box.left - MARGIN, 0), top = SL_MAX((int64_t) box.top - MARGIN, 0);
    int64_t right = SL_MIN((int64_t) box.right + 1 + MARGIN, (int64_t) jpeg->output_width);
    int64_t bottom = SL_MIN((int64_t) box.bottom + 1 + MARGIN, (int64_t) jpeg->output_height);
    SL_TRY(read_rows(s, (JDIMENSION) left, (JDIMENSION) top, (JDIMENSION) (right - left), (JDIMENSION) bottom));
    double first = s->image->part.left;
    s->image->part =
        (sl_image_box){box.left - first, box.top - (double) top, box.right - first, box.bottom - (double) top};
    return SL_OK;
}

static void decode_or_fail(jpeg_state *s)
{
    if (setjmp(s->failed)) {
        s->status = sl_fail(SL_E_FORMAT, "damaged JPEG: %s", s->why);
        return;
    }
    jpeg_create_decompress(&s->jpeg);
    s->jpeg.progress = &s->progress;
    /* Coefficients of several scans: two bytes, and at most four components of full size. Without a file to swap to, more is an error. */
    s->jpeg.mem->max_memory_to_use =
        (long) SL_MIN(s->request->max_pixels, INT64_MAX / 16) * COEFFICIENT_BYTES + SL_DECODE_BYTES;
    s->status = decode(s);
}

sl_status sl_jpeg_decode(const sl_decode_request *request, sl_image *image)
{
    jpeg_state s = {.request = request, .image = image};
    s.jpeg.err = jpeg_std_error(&s.errors);
    s.jpeg.client_data = &s;
    s.errors.error_exit = fail;
    s.errors.emit_message = on_message;
    s.errors.output_message = on_output;
    s.progress.progress_monitor = on_progress;
    decode_or_fail(&s);
    jpeg_destroy_decompress(&s.jpeg);
    return s.status;
}
#else
sl_status sl_jpeg_decode(const sl_decode_request *request, sl_image *image)
{
    (void) request, (void) image;
    return sl_decode_missing("JPEG", "libjpeg-turbo", "libjpeg62-turbo-dev");
}
#endif
