/* Decoders: the files of tests/golden/images against what PIL makes of them (tests/golden/make_images.py), parts against the whole, scaled
 * decoding, and files that must be refused. */
#include "core/file.h"
#include "core/mem.h"
#include "core/rng.h"
#include "image/image.h"
#include "test.h"

#define GOLDEN SL_SOURCE_DIR "/tests/golden/images/"

static unsigned char *read_golden(const char *name, size_t *length)
{
    char path[512], *bytes;
    snprintf(path, sizeof path, "%s%s", GOLDEN, name);
    CHECK_OK(sl_file_read_all(path, 1 << 24, &bytes, length));
    return (unsigned char *) bytes;
}

/* As decoded with the library that wrote the golden file, or the test is skipped: a build may be without it. */
static void decode(const char *name, sl_image_choose choose, void *context, sl_image *image)
{
    size_t length;
    unsigned char *bytes = read_golden(name, &length);
    sl_status status = sl_image_decode(bytes, length, 0, choose, context, image);
    if (status == SL_E_UNSUPPORTED) {
        sl_free(bytes);
        SKIP("%s", sl_error_message());
    }
    CHECK_MSG(status == SL_OK, "%s: %s", name, sl_error_message());
    sl_free(bytes);
}

static int64_t most_apart(const sl_image *image, const unsigned char *want)
{
    int64_t most = 0;
    for (int64_t i = 0; i < image->width * image->height; i++)
        for (int64_t c = 0; c < 3; c++) {
            int64_t apart = image->pixels[i * SL_PIXEL_BYTES + c] - want[i * 3 + c];
            most = SL_MAX(most, apart < 0 ? -apart : apart);
        }
    return most;
}

TEST(equals_pil)
{
    static const char *const names[] = {
        "444.jpg",        "422.jpg",     "420.jpg",   "progressive.jpg", "restart.jpg",   "gray.jpg",
        "cmyk.jpg",       "rotated.jpg", "rgb.png",   "rgba.png",        "palette.png",   "gray_png.png",
        "gray_alpha.png", "one_bit.png", "rgb16.png", "gray16.png",      "interlaced.png"};
    sl_image image = {0};
    for (int64_t i = 0; i < SL_COUNT(names); i++) {
        char rgb[64];
        size_t length;
        decode(names[i], NULL, NULL, &image);
        bool jpeg = strstr(names[i], ".jpg") != NULL;
        CHECK_I64(image.width, jpeg ? 61 : 23);
        CHECK_I64(image.height, jpeg ? 47 : 17);
        snprintf(rgb, sizeof rgb, "%.*s.rgb", (int) (strlen(names[i]) - 4), names[i]);
        unsigned char *want = read_golden(rgb, &length);
        REQUIRE((int64_t) length == image.width * image.height * 3);
        CHECK_MSG(most_apart(&image, want) == 0, "%s is up to %lld levels off", names[i],
                  (long long) most_apart(&image, want));
        sl_free(want);
    }
    sl_image_free(&image);
}

static void choose_given(void *context, int64_t width, int64_t height, sl_image_part *part)
{
    const sl_image_part *given = context;
    CHECK(given->left + given->width <= width && given->top + given->height <= height);
    *part = *given;
}

/* A part is the same pixels as in the whole image, whatever the decoder skips around it. */
TEST(part_equals_whole)
{
    static const char *const names[] = {"444.jpg",  "422.jpg",  "420.jpg", "progressive.jpg", "restart.jpg",
                                        "gray.jpg", "cmyk.jpg", "rgb.png", "interlaced.png"};
    sl_image whole = {0}, image = {0};
    for (int64_t i = 0; i < SL_COUNT(names); i++) {
        decode(names[i], NULL, NULL, &whole);
        for (uint64_t k = 0; k < 200; k++) {
            sl_rng4 r = sl_philox(7, k, 0);
            sl_image_part part = {.width = 1 + r.v[0] % (uint64_t) whole.width,
                                  .height = 1 + r.v[1] % (uint64_t) whole.height};
            part.left = r.v[2] % (uint64_t) (whole.width - part.width + 1);
            part.top = r.v[3] % (uint64_t) (whole.height - part.height + 1);
            decode(names[i], choose_given, &part, &image);
            int64_t left = (int64_t) image.part.left, top = (int64_t) image.part.top, wrong = 0;
            CHECK((int64_t) image.part.right == left + part.width && (int64_t) image.part.bottom == top + part.height);
            CHECK(image.part.right <= (double) image.width && image.part.bottom <= (double) image.height);
            for (int64_t y = 0; y < part.height; y++)
                for (int64_t x = 0; x < part.width; x++)
                    wrong +=
                        memcmp(image.pixels + ((top + y) * image.width + left + x) * SL_PIXEL_BYTES,
                               whole.pixels + ((part.top + y) * whole.width + part.left + x) * SL_PIXEL_BYTES, 3) != 0;
            CHECK_MSG(wrong == 0, "%s: %lld of %lld x %lld pixels from (%lld, %lld) differ", names[i],
                      (long long) wrong, (long long) part.width, (long long) part.height, (long long) part.left,
                      (long long) part.top);
        }
    }
    sl_image_free(&whole);
    sl_image_free(&image);
}

/* The smallest scale with enough pixels, whose pixels are near the averages of those they stand for. */
TEST(scales_down)
{
    static const struct {
        int64_t least;
        double scale;
    } cases[] = {{4, 0.125}, {5, 0.125}, {6, 0.25}, {11, 0.25}, {12, 0.5}, {20, 0.5}, {24, 1}, {300, 1}};
    sl_image whole = {0}, image = {0};
    decode("444.jpg", NULL, NULL, &whole);
    for (int64_t i = 0; i < SL_COUNT(cases); i++) {
        sl_image_part part = {8, 0, 48, 44, cases[i].least, cases[i].least};
        decode("444.jpg", choose_given, &part, &image);
        CHECK_NEAR((image.part.right - image.part.left) / 48, cases[i].scale, 0);
        CHECK_NEAR((image.part.bottom - image.part.top) / 44, cases[i].scale, 0);
        int64_t step = (int64_t) (1 / cases[i].scale);
        double off = 0;
        for (int64_t y = 0; y < 40 / step; y++)
            for (int64_t x = 0; x < 48 / step; x++) {
                double sum = 0;
                for (int64_t k = 0; k < step * step; k++)
                    sum +=
                        whole.pixels[((y * step + k / step) * whole.width + 8 + x * step + k % step) * SL_PIXEL_BYTES +
                                     1];
                int64_t at = ((int64_t) image.part.top + y) * image.width + (int64_t) image.part.left + x;
                off += fabs(sum / (double) (step * step) - image.pixels[at * SL_PIXEL_BYTES + 1]);
            }
        CHECK_MSG(off / (double) ((40 / step) * (48 / step)) < 2, "scale %g: off by %.2f levels on average",
                  cases[i].scale, off / (double) ((40 / step) * (48 / step)));
    }
    sl_image_free(&whole);
    sl_image_free(&image);
}

TEST(refuses_broken_files)
{
    static const char *const names[] = {"420.jpg", "progressive.jpg", "gray.jpg", "rgb.png", "interlaced.png"};
    sl_image image = {0};
    decode("420.jpg", NULL, NULL, &image); /* or skip */
    decode("rgb.png", NULL, NULL, &image);
    CHECK_FAILS(sl_image_decode("", 0, 0, NULL, NULL, &image), SL_E_FORMAT);
    CHECK_FAILS(sl_image_decode("GIF89a....", 10, 0, NULL, NULL, &image), SL_E_FORMAT);
    CHECK_CONTAINS(sl_error_message(), "neither a JPEG nor a PNG");
    for (int64_t i = 0; i < SL_COUNT(names); i++) {
        size_t length;
        unsigned char *bytes = read_golden(names[i], &length);
        for (size_t cut = 0; cut < length; cut += 7)
            CHECK_FAILS(sl_image_decode(bytes, cut, 0, NULL, NULL, &image), SL_E_FORMAT);
        /* Of a file that ends early, nothing is taken, though the part that is asked for may be there. */
        sl_image_part part = {0, 0, 3, 1, 0, 0};
        CHECK_FAILS(sl_image_decode(bytes, length - 9, 0, choose_given, &part, &image), SL_E_FORMAT);
        CHECK_CONTAINS(sl_error_message(), "ends early");
        sl_free(bytes);
    }
    sl_image_free(&image);
}

static size_t find_bytes(const unsigned char *bytes, size_t length, int second, size_t from)
{
    size_t at = from;
    while (at + 1 < length && !(bytes[at] == 0xff && bytes[at + 1] == second))
        at++;
    REQUIRE(at + 1 < length);
    return at;
}

/* Data that is there, but wrong: a code that the tables lack, a restart marker that is lost, a checksum. What is only odd is not. */
TEST(finds_damage)
{
    sl_image image = {0};
    size_t length;
    decode("420.jpg", NULL, NULL, &image); /* or skip */
    decode("rgb.png", NULL, NULL, &image);
    unsigned char *bytes = read_golden("420.jpg", &length);
    size_t scan = find_bytes(bytes, length, 0xda, 0);
    for (size_t i = 0; i < 40; i++) /* ones: no code has more than 15 */
        bytes[(scan + length) / 2 + i] = i % 2 ? 0 : 0xff;
    CHECK_FAILS(sl_image_decode(bytes, length, 0, NULL, NULL, &image), SL_E_FORMAT);
    CHECK_CONTAINS(sl_error_message(), "damaged JPEG");
    sl_free(bytes);
    bytes = read_golden("restart.jpg", &length);
    size_t marker = find_bytes(bytes, length, 0xd2, find_bytes(bytes, length, 0xda, 0));
    bytes[marker + 1] = 0xd6;
    CHECK_FAILS(sl_image_decode(bytes, length, 0, NULL, NULL, &image), SL_E_FORMAT);
    sl_free(bytes);
    bytes = read_golden("rgb.png", &length);
    bytes[length / 2] ^= 1;
    CHECK_FAILS(sl_image_decode(bytes, length, 0, NULL, NULL, &image), SL_E_FORMAT);
    CHECK_CONTAINS(sl_error_message(), "damaged PNG");
    sl_free(bytes);
    bytes = read_golden("420.jpg", &length);
    unsigned char *longer;
    CHECK_OK(sl_alloc(&longer, length + 7, 1));
    memcpy(longer, bytes, 20);
    memset(longer + 20, 0, 3); /* between the first two markers */
    memcpy(longer + 23, bytes + 20, length - 20);
    longer[length + 3] = 1; /* and behind the last */
    CHECK_OK(sl_image_decode(longer, length + 7, 0, NULL, NULL, &image));
    sl_free(longer);
    sl_free(bytes);
    sl_image_free(&image);
}

/* A few bytes that claim to be huge: refused before memory is taken. */
TEST(bounds_memory)
{
    sl_image image = {0};
    size_t length;
    unsigned char *bytes = read_golden("rgb.png", &length);
    decode("rgb.png", NULL, NULL, &image);
    CHECK_FAILS(sl_image_decode(bytes, length, 23 * 17 - 1, NULL, NULL, &image), SL_E_FORMAT);
    CHECK_CONTAINS(sl_error_message(), "limit");
    CHECK_OK(sl_image_decode(bytes, length, 23 * 17, NULL, NULL, &image));
    sl_free(bytes);
    bytes = read_golden("420.jpg", &length);
    for (size_t i = 0; i + 9 < length; i++)
        if (bytes[i] == 0xff && bytes[i + 1] == 0xc0)
            memset(bytes + i + 5, 0x7f, 4); /* height and width */
    size_t before = sl_heap_bytes();
    sl_heap_peak_reset();
    CHECK_FAILS(sl_image_decode(bytes, length, 0, NULL, NULL, &image), SL_E_FORMAT);
    CHECK_CONTAINS(sl_error_message(), "over the limit");
    CHECK_I64(sl_heap_peak_bytes() - before, 0);
    sl_free(bytes);
    sl_image_free(&image);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(equals_pil);
    RUN(part_equals_whole);
    RUN(scales_down);
    RUN(refuses_broken_files);
    RUN(finds_damage);
    RUN(bounds_memory);
    return test_end();
}
