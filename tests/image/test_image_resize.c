/* Resizing: PIL's pixels (tests/golden/make_images.py), the vector code against the reference, and crops. */
#include "core/file.h"
#include "core/mem.h"
#include "image/crop.h"
#include "image/resize.h"
#include "test.h"

#define GOLDEN SL_SOURCE_DIR "/tests/golden/images/"

static unsigned char *read_golden(const char *name, size_t *length)
{
    char path[512], *bytes;
    snprintf(path, sizeof path, "%s%s", GOLDEN, name);
    CHECK_OK(sl_file_read_all(path, 1 << 24, &bytes, length));
    return (unsigned char *) bytes;
}

/* The golden rows of three bytes as pixels: this test needs no decoder. */
static void load(const char *name, int64_t width, int64_t height, sl_image *image)
{
    size_t length;
    unsigned char *rgb = read_golden(name, &length);
    REQUIRE((int64_t) length == width * height * 3);
    CHECK_OK(sl_image_reserve(image, width, height));
    for (int64_t i = 0; i < width * height; i++)
        for (int64_t c = 0; c < SL_PIXEL_BYTES; c++)
            image->pixels[i * SL_PIXEL_BYTES + c] = c < 3 ? rgb[i * 3 + c] : (unsigned char) i;
    sl_free(rgb);
}

TEST(equals_pil)
{
    static const struct {
        int64_t width, height;
        sl_image_box box;
        bool cut; /* out of the image first */
    } cases[] = {
        {20, 16, {0, 0, 61, 47}, false}, {90, 70, {0, 0, 61, 47}, false}, {1, 1, {0, 0, 61, 47}, false},
        {61, 9, {0, 0, 61, 47}, false},  {16, 16, {5, 3, 50, 40}, false}, {24, 25, {0.5, 1.25, 60.3, 46.9}, false},
        {16, 16, {7, 9, 40, 31}, true},  {7, 5, {60, 9, 61, 12}, true},
    };
    static unsigned char out[90 * 70 * SL_PIXEL_BYTES];
    size_t length, at = 0;
    sl_image image = {0};
    sl_resizer *resizer;
    unsigned char *want = read_golden("resized.rgb", &length);
    load("444.rgb", 61, 47, &image);
    CHECK_OK(sl_resizer_create(&resizer));
    for (int64_t i = 0; i < SL_COUNT(cases); i++) {
        sl_image_box box = cases[i].box;
        sl_pixels from = {image.pixels, image.width, image.height, (size_t) image.width * SL_PIXEL_BYTES};
        if (cases[i].cut)
            from = sl_pixels_crop(&image, &cases[i].box, &box);
        sl_resize_to to = sl_resize_whole(&box, cases[i].width, cases[i].height);
        int64_t wrong = 0, pixels = cases[i].width * cases[i].height;
        REQUIRE(at + (size_t) pixels * 3 <= length);
        CHECK_OK(sl_resize(resizer, &from, &to, out));
        for (int64_t p = 0; p < pixels; p++)
            wrong += memcmp(out + p * SL_PIXEL_BYTES, want + at + (size_t) p * 3, 3) != 0;
        CHECK_MSG(wrong == 0, "case %lld: %lld of %lld pixels differ", (long long) i, (long long) wrong,
                  (long long) pixels);
        at += (size_t) pixels * 3;
    }
    CHECK_I64(at, length);
    sl_resizer_destroy(resizer);
    sl_image_free(&image);
    sl_free(want);
}

/* Random images, boxes and sizes, behind guard bytes: few inputs, single pixels, shrinking by up to 30 and enlarging. */
TEST(vector_equals_reference)
{
    enum { MOST = 80, GUARD = 64 };
    static unsigned char got[MOST * MOST * SL_PIXEL_BYTES + GUARD], want[sizeof got];
    sl_image image = {0};
    sl_resizer *resizer;
    CHECK_OK(sl_resizer_create(&resizer));
    for (uint64_t k = 0; k < 600; k++) {
        sl_draws draws = sl_draws_of(3, 0, k);
        int64_t most = k % 3 == 0 ? 8 : k % 3 == 1 ? 60 : 400;
        CHECK_OK(sl_image_reserve(&image, 1 + sl_draw_below(&draws, most), 1 + sl_draw_below(&draws, most)));
        int64_t extremes = sl_draw_below(&draws, 2); /* pixels of 0 and 255 alone clamp most */
        for (int64_t i = 0; i < image.width * image.height * SL_PIXEL_BYTES; i++) {
            unsigned value = sl_philox(k, (uint64_t) i, 1).v[0];
            image.pixels[i] = (unsigned char) (extremes ? 255 * (value & 1) : value);
        }
        double left = sl_draw(&draws), right = sl_draw(&draws), top = sl_draw(&draws), bottom = sl_draw(&draws);
        sl_image_box box = {SL_MIN(left, right) * (double) image.width, SL_MIN(top, bottom) * (double) image.height,
                            SL_MAX(left, right) * (double) image.width + 1e-3,
                            SL_MAX(top, bottom) * (double) image.height + 1e-3};
        box.right = SL_MIN(box.right, (double) image.width);
        box.bottom = SL_MIN(box.bottom, (double) image.height);
        if (k % 5 == 0)
            box = (sl_image_box){0, 0, (double) image.width, (double) image.height};
        sl_pixels from = {image.pixels, image.width, image.height, (size_t) image.width * SL_PIXEL_BYTES};
        sl_resize_to to = sl_resize_whole(&box, 1 + sl_draw_below(&draws, MOST), 1 + sl_draw_below(&draws, MOST));
        to.left = sl_draw_below(&draws, to.width);
        to.top = sl_draw_below(&draws, to.height);
        to.columns = 1 + sl_draw_below(&draws, to.width - to.left);
        to.rows = 1 + sl_draw_below(&draws, to.height - to.top);
        size_t bytes = (size_t) (to.columns * to.rows) * SL_PIXEL_BYTES;
        memset(got, 0xa5, sizeof got);
        CHECK_OK(sl_resize(resizer, &from, &to, got));
        CHECK_OK(sl_resize_reference(resizer, &from, &to, want));
        CHECK_MSG(memcmp(got, want, bytes) == 0, "case %llu differs", (unsigned long long) k);
        for (size_t i = bytes; i < bytes + GUARD; i++)
            CHECK(got[i] == 0xa5);
    }
    sl_resizer_destroy(resizer);
    sl_image_free(&image);
}

/* A window of the result is the same pixels as in all of it, and so is what a part of the image gives. */
TEST(window_equals_whole)
{
    sl_image image = {0};
    sl_resizer *resizer;
    static unsigned char whole[40 * 31 * SL_PIXEL_BYTES], window[12 * 9 * SL_PIXEL_BYTES];
    load("444.rgb", 61, 47, &image);
    CHECK_OK(sl_resizer_create(&resizer));
    sl_pixels from = {image.pixels, 61, 47, (size_t) 61 * SL_PIXEL_BYTES};
    sl_resize_to to = sl_resize_whole(&image.part, 40, 31);
    CHECK_OK(sl_resize(resizer, &from, &to, whole));
    to.left = 20, to.top = 15, to.columns = 12, to.rows = 9;
    for (int part = 0; part < 2; part++) {
        if (part) { /* columns 25 to 54 and rows 18 to 42 are what the window needs */
            from = (sl_pixels){image.pixels + (18 * 61 + 25) * SL_PIXEL_BYTES, 29, 24, (size_t) 61 * SL_PIXEL_BYTES};
            to.box = (sl_image_box){-25, -18, 36, 29};
        }
        CHECK_OK(sl_resize(resizer, &from, &to, window));
        for (int64_t y = 0; y < 9; y++)
            CHECK(memcmp(window + y * 12 * SL_PIXEL_BYTES, whole + ((15 + y) * 40 + 20) * SL_PIXEL_BYTES,
                         12 * SL_PIXEL_BYTES) == 0);
    }
    sl_resizer_destroy(resizer);
    sl_image_free(&image);
}

/* The part of an image that a central crop names is all that its filter reaches: whatever lies around it changes nothing. */
TEST(central_crops)
{
    enum { SIZE = 12, CROP = SIZE * SIZE * SL_PIXEL_BYTES };
    static unsigned char whole[CROP], part_of[CROP];
    sl_image image = {0};
    sl_resizer *resizer;
    CHECK_OK(sl_resizer_create(&resizer));
    for (int64_t k = 0; k < 200; k++) {
        sl_draws draws = sl_draws_of(4, 0, (uint64_t) k);
        sl_resize_to to;
        sl_image_part part = {0};
        CHECK_OK(sl_image_reserve(&image, 1 + sl_draw_below(&draws, 150), 1 + sl_draw_below(&draws, 150)));
        for (int64_t i = 0; i < image.width * image.height * SL_PIXEL_BYTES; i++)
            image.pixels[i] = (unsigned char) sl_philox((uint64_t) k, (uint64_t) i, 2).v[0];
        sl_crop_center(image.width, image.height, SIZE + sl_draw_below(&draws, 20), SIZE, &to, &part);
        CHECK(part.left >= 0 && part.top >= 0 && part.left + part.width <= image.width &&
              part.top + part.height <= image.height);
        size_t stride = (size_t) image.width * SL_PIXEL_BYTES;
        sl_pixels from = {image.pixels, image.width, image.height, stride};
        CHECK_OK(sl_resize(resizer, &from, &to, whole));
        from = (sl_pixels){image.pixels + (size_t) part.top * stride + (size_t) part.left * SL_PIXEL_BYTES, part.width,
                           part.height, stride};
        to.box.left -= (double) part.left, to.box.right -= (double) part.left;
        to.box.top -= (double) part.top, to.box.bottom -= (double) part.top;
        CHECK_OK(sl_resize(resizer, &from, &to, part_of));
        int64_t wrong = 0;
        for (int64_t i = 0; i < CROP; i++)
            wrong += abs(whole[i] - part_of[i]) > 0;
        CHECK_MSG(wrong <= 1, "case %lld: %lld values differ", (long long) k,
                  (long long) wrong); /* a tap's last bit may round otherwise */
    }
    sl_resizer_destroy(resizer);
    sl_image_free(&image);
}

/* Areas and ratios are uniform in what torchvision draws them from, and every crop lies within the image. */
TEST(random_crops)
{
    const sl_crop_range range = {0.08, 1, 3.0 / 4, 4.0 / 3};
    double area = 0, ratio = 0;
    enum { MANY = 20000 };
    for (uint64_t k = 0; k < MANY; k++) {
        sl_image_part part = {0};
        sl_draws draws = sl_draws_of(1, 2, k);
        sl_crop_random(&draws, &range, 2000, 2000, &part);
        CHECK(part.left >= 0 && part.top >= 0 && part.left + part.width <= 2000 && part.top + part.height <= 2000);
        area += (double) (part.width * part.height) / 4e6 / MANY;
        ratio += log((double) part.width / (double) part.height) / MANY;
        sl_crop_random(&draws, &range, 1 + (int64_t) (k % 50), 1 + (int64_t) (k % 7), &part);
        CHECK(part.width >= 1 && part.height >= 1 && part.left + part.width <= 1 + (int64_t) (k % 50) &&
              part.top + part.height <= 1 + (int64_t) (k % 7));
    }
    CHECK_NEAR(area, 0.478, 0.006); /* below 0.54: large crops of extreme ratios do not fit, and are tried again */
    CHECK_NEAR(ratio, 0, 0.01);
    sl_image_part part = {0};
    sl_draws draws = sl_draws_of(1, 2, 3);
    sl_crop_random(&draws, &range, 1000, 10, &part); /* never fits */
    CHECK(part.width == 13 && part.height == 10 && part.left == 493 && part.top == 0);
    sl_crop_random(&draws, &range, 10, 1000, &part);
    CHECK(part.width == 10 && part.height == 13 && part.top == 493);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(equals_pil);
    RUN(vector_equals_reference);
    RUN(window_equals_whole);
    RUN(central_crops);
    RUN(random_crops);
    return test_end();
}
