/* One worker holds every buffer that a sample needs, so that after the first few samples nothing is allocated. */
#include "image/transform.h"

#include <math.h>

#include "core/mem.h"
#include "image/augment.h"

enum { MAX_SIZE = 4096 };

const sl_image_norm sl_imagenet_norm = {{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};

struct sl_image_worker {
    sl_image_recipe recipe;
    sl_image image;
    sl_resizer *resizer;
    unsigned char *pixels; /* resized */
    uint16_t *scratch;
    sl_draws draws;       /* of the sample in work */
    sl_image_part chosen; /* of its file */
    sl_resize_to to;      /* validation: of the whole image */
};

sl_image_recipe sl_image_recipe_default(int64_t size, bool train)
{
    return (sl_image_recipe){
        .size = size, .train = train, .crop = {0.08, 1, 3.0 / 4, 4.0 / 3}, .flip = 0.5, .crop_ratio = 1};
}

sl_status sl_image_recipe_check(const sl_image_recipe *r)
{
    const sl_crop_range *c = &r->crop;
    if (r->size < 1 || r->size > MAX_SIZE)
        return sl_fail(SL_E_USAGE, "images of %lld x %lld pixels: a side is 1 to %d", (long long) r->size,
                       (long long) r->size, MAX_SIZE);
    if (r->max_pixels < 0)
        return sl_fail(SL_E_USAGE, "a limit of %lld pixels: use 0 for %d", (long long) r->max_pixels,
                       SL_IMAGE_MAX_PIXELS);
    if (r->train && !(c->least_area > 0 && c->least_area <= c->most_area && c->most_area <= 1))
        return sl_fail(SL_E_USAGE, "crops of area %g to %g: these are shares of the image, above 0 and at most 1",
                       c->least_area, c->most_area);
    if (r->train && !(c->least_ratio > 0 && c->least_ratio <= c->most_ratio && c->most_ratio < 1e3))
        return sl_fail(SL_E_USAGE, "crops of width / height %g to %g: the first is above 0 and not above the second",
                       c->least_ratio, c->most_ratio);
    if (r->train && !(r->flip >= 0 && r->flip <= 1))
        return sl_fail(SL_E_USAGE, "mirrored with probability %g: use 0 to 1", r->flip);
    for (int i = 0; r->train && i < 3; i++)
        if (!(r->jitter[i] >= 0 && r->jitter[i] <= 10))
            return sl_fail(SL_E_USAGE, "color jitter of %g: use 0 to 10", r->jitter[i]);
    if (!r->train && !(r->crop_ratio >= 0.1 && r->crop_ratio <= 1))
        return sl_fail(SL_E_USAGE, "a central crop of %g of the shorter side: use 0.1 to 1", r->crop_ratio);
    return SL_OK;
}

sl_status sl_image_worker_create(const sl_image_recipe *recipe, sl_image_worker **out)
{
    sl_image_worker *worker;
    sl_status status;
    SL_TRY(sl_image_recipe_check(recipe));
    SL_TRY(sl_alloc(&worker, 1, sizeof *worker));
    worker->recipe = *recipe;
    SL_TRY_GOTO(sl_resizer_create(&worker->resizer), destroy);
    SL_TRY_GOTO(sl_alloc_aligned(&worker->pixels, recipe->size * recipe->size, SL_PIXEL_BYTES, 64), destroy);
    if (recipe->train && recipe->three_augment)
        SL_TRY_GOTO(sl_alloc_aligned(&worker->scratch, recipe->size * recipe->size, sizeof(uint16_t), 64), destroy);
    *out = worker;
    return SL_OK;
destroy:
    sl_image_worker_destroy(worker);
    return status;
}

void sl_image_worker_destroy(sl_image_worker *worker)
{
    if (!worker)
        return;
    sl_image_free(&worker->image);
    sl_resizer_destroy(worker->resizer);
    sl_free(worker->pixels);
    sl_free(worker->scratch);
    sl_free(worker);
}

static void choose(void *context, int64_t width, int64_t height, sl_image_part *part)
{
    sl_image_worker *w = context;
    const sl_image_recipe *recipe = &w->recipe;
    if (recipe->train) {
        sl_crop_random(&w->draws, &recipe->crop, width, height, part);
        if (recipe->scaled_decoding)
            part->least_width = part->least_height = recipe->size;
    } else {
        sl_crop_center(width, height, (int64_t) rint((double) recipe->size / recipe->crop_ratio), recipe->size, &w->to,
                       part);
        if (recipe->scaled_decoding) { /* the whole image keeps at least the size that it is resized to */
            part->least_width = SL_DIV_UP(part->width * w->to.width, width);
            part->least_height = SL_DIV_UP(part->height * w->to.height, height);
        }
    }
    w->chosen = *part;
}

/* Training shows the crop alone, as if it had been cut out; validation shows the filter what lies around it. */
static sl_status resize(sl_image_worker *w)
{
    const sl_image *image = &w->image;
    if (w->recipe.train) {
        sl_image_box within;
        sl_pixels crop = sl_pixels_crop(image, &image->part, &within);
        sl_resize_to to = sl_resize_whole(&within, w->recipe.size, w->recipe.size);
        return sl_resize(w->resizer, &crop, &to, w->pixels);
    }
    sl_pixels all = {image->pixels, image->width, image->height, (size_t) image->width * SL_PIXEL_BYTES};
    double scale = (image->part.right - image->part.left) / (double) w->chosen.width;
    double left = image->part.left - (double) w->chosen.left * scale,
           top = image->part.top - (double) w->chosen.top * scale;
    w->to.box = (sl_image_box){left, top, left + w->to.box.right * scale, top + w->to.box.bottom * scale};
    return sl_resize(w->resizer, &all, &w->to, w->pixels);
}

static void split_planes(const unsigned char *pixels, int64_t size, bool mirrored, unsigned char *planes)
{
    unsigned char *red = planes, *green = red + size * size, *blue = green + size * size;
    for (int64_t y = 0; y < size; y++, pixels += size * SL_PIXEL_BYTES, red += size, green += size, blue += size)
        for (int64_t x = 0; x < size; x++) {
            const unsigned char *pixel = pixels + (mirrored ? size - 1 - x : x) * SL_PIXEL_BYTES;
            red[x] = pixel[0];
            green[x] = pixel[1];
            blue[x] = pixel[2];
        }
}

sl_status sl_image_sample(sl_image_worker *w, const void *bytes, size_t length, const sl_draws *draws,
                          unsigned char *planes)
{
    const sl_image_recipe *recipe = &w->recipe;
    w->draws = *draws;
    SL_TRY(sl_image_decode(bytes, length, recipe->max_pixels, choose, w, &w->image));
    SL_TRY(resize(w));
    bool mirrored = recipe->train && sl_draw(&w->draws) < recipe->flip;
    split_planes(w->pixels, recipe->size, mirrored, planes);
    if (!recipe->train)
        return SL_OK;
    if (recipe->three_augment)
        sl_augment_three(&w->draws, planes, recipe->size, recipe->size, w->scratch);
    sl_augment_jitter(&w->draws, planes, recipe->size * recipe->size, recipe->jitter);
    return SL_OK;
}

void sl_image_normalize(const sl_image_norm *norm, const unsigned char *planes, int64_t n, float *out)
{
    for (int c = 0; c < 3; c++, planes += n, out += n) {
        float table[256]; /* a byte has few values, and a division costs more than a load */
        for (int i = 0; i < 256; i++)
            table[i] = ((float) i / 255.0f - norm->mean[c]) / norm->deviation[c];
        for (int64_t i = 0; i < n; i++)
            out[i] = table[planes[i]];
    }
}
