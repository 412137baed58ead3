/*
 * Taps, the scalar reference, and the choice between it and the vector code.
 *
 * The vector code multiplies 16-bit numbers: a tap of 23 bits is split into two halves whose sums are added at the end, which is
 * exact. It takes four taps at once, so each output's taps are filled up with zeros, to the right where there are inputs, else to the
 * left. An image of fewer inputs than a filled-up filter has taps is left to the reference.
 */
#include "image/resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "image/resize_taps.h"

struct sl_resizer {
    sl_taps across, down;
    unsigned char *rows; /* between the passes */
    size_t rows_capacity;
    double *weights; /* of one output */
    size_t weights_capacity;
    bool vector;
};

sl_status sl_resizer_create(sl_resizer **out)
{
    SL_TRY(sl_alloc(out, 1, sizeof **out));
#ifdef SL_HAVE_AVX2
    const char *asked = getenv("SLUICE_ISA");
    (*out)->vector = __builtin_cpu_supports("avx2") && !(asked && strcmp(asked, "scalar") == 0);
#endif
    return SL_OK;
}

static void free_taps(sl_taps *taps)
{
    sl_free(taps->first);
}

void sl_resizer_destroy(sl_resizer *resizer)
{
    if (!resizer)
        return;
    free_taps(&resizer->across);
    free_taps(&resizer->down);
    sl_free(resizer->rows);
    sl_free(resizer->weights);
    sl_free(resizer);
}

static sl_status reserve(void **memory, size_t *capacity, size_t bytes)
{
    if (bytes <= *capacity)
        return SL_OK;
    sl_free(*memory);
    *memory = NULL;
    *capacity = 0;
    SL_TRY(sl_alloc_impl(memory, bytes, 1, 64));
    *capacity = bytes;
    return SL_OK;
}

/* One allocation for all arrays. */
static sl_status reserve_taps(sl_taps *taps, int64_t outputs, int64_t stride)
{
    size_t n = (size_t) outputs, taps_bytes = n * (size_t) stride * sizeof(int32_t);
    SL_TRY(reserve((void **) &taps->first, &taps->capacity, 4 * n * sizeof(int64_t) + 2 * taps_bytes));
    taps->outputs = outputs;
    taps->stride = stride;
    taps->count = taps->first + n;
    taps->group_first = taps->count + n;
    taps->groups = taps->group_first + n;
    taps->tap = (int32_t *) (taps->groups + n);
    taps->pairs = taps->tap + n * (size_t) stride;
    return SL_OK;
}

static double cubic(double x)
{
    const double a = -0.5;
    x = x < 0 ? -x : x;
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static int32_t pair_of(int32_t first, int32_t second)
{
    return (int32_t) (((uint32_t) second << 16) | ((uint32_t) first & 0xffff));
}

/* False: there are too few inputs for whole groups. */
static bool group_taps(sl_taps *taps, int64_t output, int64_t inputs)
{
    int64_t count = taps->count[output], groups = SL_DIV_UP(count, SL_TAP_GROUP), first = taps->first[output];
    int64_t lead = SL_MAX(first + groups * SL_TAP_GROUP - inputs, 0);
    if (lead > first)
        return false;
    taps->group_first[output] = first - lead;
    taps->groups[output] = groups;
    const int32_t *tap = taps->tap + output * taps->stride;
    int32_t *pairs = taps->pairs + output * taps->stride;
    for (int64_t g = 0; g < groups; g++) {
        int32_t high[SL_TAP_GROUP], low[SL_TAP_GROUP];
        for (int64_t i = 0; i < SL_TAP_GROUP; i++) {
            int64_t at = g * SL_TAP_GROUP + i - lead;
            int32_t value = at >= 0 && at < count ? tap[at] : 0;
            low[i] = value & ((1 << SL_TAP_HALF_BITS) - 1);
            high[i] = (value - low[i]) / (1 << SL_TAP_HALF_BITS);
        }
        pairs[g * 4] = pair_of(high[0], high[1]);
        pairs[g * 4 + 1] = pair_of(high[2], high[3]);
        pairs[g * 4 + 2] = pair_of(low[0], low[1]);
        pairs[g * 4 + 3] = pair_of(low[2], low[3]);
    }
    return true;
}

/* One direction of what to make: [from, to) of the inputs become `size` outputs, `outputs` of which are wanted from `offset` on. */
typedef struct range {
    int64_t inputs;
    double from, to;
    int64_t size, offset, outputs;
} range;

/* PIL keeps a box in floats, so their rounding is part of the result. */
static sl_status make_taps(sl_resizer *r, const range *d, sl_taps *taps, bool *grouped)
{
    double scale = (double) ((float) d->to - (float) d->from) / (double) d->size, wide = SL_MAX(scale, 1.0);
    double support = 2 * wide;
    int64_t most = (int64_t) ceil(support) * 2 + 1;
    SL_TRY(reserve_taps(taps, d->outputs, SL_ROUND_UP(most, SL_TAP_GROUP)));
    SL_TRY(reserve((void **) &r->weights, &r->weights_capacity, (size_t) most * sizeof(double)));
    *grouped = true;
    for (int64_t x = 0; x < d->outputs; x++) {
        double center = (double) (float) d->from + ((double) (x + d->offset) + 0.5) * scale, sum = 0;
        int64_t first = SL_MAX((int64_t) (center - support + 0.5), 0);
        int64_t count = SL_MIN((int64_t) (center + support + 0.5), d->inputs) - first;
        SL_ASSERT(count >= 1 && count <= most);
        for (int64_t t = 0; t < count; t++) {
            r->weights[t] = cubic(((double) (t + first) - center + 0.5) * (1 / wide));
            sum += r->weights[t];
        }
        taps->first[x] = first;
        taps->count[x] = count;
        for (int64_t t = 0; t < count; t++) {
            double weight = (sum != 0 ? r->weights[t] / sum : r->weights[t]) * (1 << SL_TAP_BITS);
            taps->tap[x * taps->stride + t] = (int32_t) (weight < 0 ? weight - 0.5 : weight + 0.5);
        }
        *grouped = *grouped && group_taps(taps, x, d->inputs);
    }
    return SL_OK;
}

static unsigned char round_pixel(int32_t sum)
{
    int32_t value = sum >> SL_TAP_BITS;
    return (unsigned char) SL_MIN(SL_MAX(value, 0), 255);
}

static void rows_reference(const sl_taps *taps, const sl_pixels *from, int64_t begin, int64_t end, unsigned char *out,
                           size_t stride)
{
    for (int64_t y = begin; y < end; y++, out += stride)
        for (int64_t x = 0; x < taps->outputs; x++)
            for (int64_t c = 0; c < SL_PIXEL_BYTES; c++) {
                const unsigned char *in = from->at + (size_t) y * from->stride + taps->first[x] * SL_PIXEL_BYTES + c;
                int32_t sum = 1 << (SL_TAP_BITS - 1);
                for (int64_t t = 0; t < taps->count[x]; t++)
                    sum += taps->tap[x * taps->stride + t] * in[t * SL_PIXEL_BYTES];
                out[x * SL_PIXEL_BYTES + c] = round_pixel(sum);
            }
}

static void columns_reference(const sl_taps *taps, const unsigned char *rows, int64_t begin, size_t stride,
                              unsigned char *out, size_t bytes)
{
    for (int64_t y = 0; y < taps->outputs; y++, out += bytes)
        for (size_t x = 0; x < bytes; x++) {
            const unsigned char *in = rows + (size_t) (taps->first[y] - begin) * stride + x;
            int32_t sum = 1 << (SL_TAP_BITS - 1);
            for (int64_t t = 0; t < taps->count[y]; t++)
                sum += taps->tap[y * taps->stride + t] * in[(size_t) t * stride];
            out[x] = round_pixel(sum);
        }
}

static sl_status resize(sl_resizer *r, const sl_pixels *from, const sl_resize_to *to, bool vector, unsigned char *out)
{
    const sl_image_box *box = &to->box;
    range across_from = {from->width, box->left, box->right, to->width, to->left, to->columns};
    range down_from = {from->height, box->top, box->bottom, to->height, to->top, to->rows};
    bool across = false, down = false;
    SL_ASSERT(to->columns >= 1 && to->rows >= 1 && to->left >= 0 && to->top >= 0 &&
              to->left + to->columns <= to->width && to->top + to->rows <= to->height && box->right > box->left &&
              box->bottom > box->top);
    SL_TRY(make_taps(r, &across_from, &r->across, &across));
    SL_TRY(make_taps(r, &down_from, &r->down, &down));
    int64_t width = to->columns, height = to->rows;
    /* Rows that no output reads are not filtered. Those of a group that is filled up have the tap zero, but exist. */
    int64_t begin = r->down.first[0], end = r->down.first[height - 1] + r->down.count[height - 1];
    for (int64_t y = 0; y < height && down && vector; y++) {
        begin = SL_MIN(begin, r->down.group_first[y]);
        end = SL_MAX(end, r->down.group_first[y] + r->down.groups[y] * SL_TAP_GROUP);
    }
    size_t bytes = (size_t) width * SL_PIXEL_BYTES;
    SL_TRY(reserve((void **) &r->rows, &r->rows_capacity, (size_t) (end - begin) * bytes + SL_RESIZE_PADDING));
#ifdef SL_HAVE_AVX2
    if (vector && across)
        sl_resize_rows_avx2(&r->across, from, begin, end, r->rows, bytes);
    else
        rows_reference(&r->across, from, begin, end, r->rows, bytes);
    if (vector && down)
        sl_resize_columns_avx2(&r->down, r->rows, begin, bytes, out, bytes);
    else
        columns_reference(&r->down, r->rows, begin, bytes, out, bytes);
#else
    (void) vector;
    rows_reference(&r->across, from, begin, end, r->rows, bytes);
    columns_reference(&r->down, r->rows, begin, bytes, out, bytes);
#endif
    return SL_OK;
}

sl_status sl_resize(sl_resizer *resizer, const sl_pixels *from, const sl_resize_to *to, unsigned char *out)
{
    return resize(resizer, from, to, resizer->vector, out);
}

sl_status sl_resize_reference(sl_resizer *resizer, const sl_pixels *from, const sl_resize_to *to, unsigned char *out)
{
    return resize(resizer, from, to, false, out);
}

sl_resize_to sl_resize_whole(const sl_image_box *box, int64_t width, int64_t height)
{
    return (sl_resize_to){*box, width, height, 0, 0, width, height};
}

sl_pixels sl_pixels_crop(const sl_image *image, const sl_image_box *box, sl_image_box *within)
{
    int64_t left = (int64_t) box->left, top = (int64_t) box->top;
    int64_t right = SL_MIN((int64_t) ceil(box->right), image->width);
    int64_t bottom = SL_MIN((int64_t) ceil(box->bottom), image->height);
    size_t stride = (size_t) image->width * SL_PIXEL_BYTES;
    *within = (sl_image_box){box->left - (double) left, box->top - (double) top,
                             SL_MIN(box->right, (double) image->width) - (double) left,
                             SL_MIN(box->bottom, (double) image->height) - (double) top};
    return (sl_pixels){image->pixels + (size_t) top * stride + (size_t) left * SL_PIXEL_BYTES, right - left,
                       bottom - top, stride};
}
