/* Colors, samples and mixing: PIL's and torchvision's values (tests/golden/make_images.py), and what must hold for any. */
#include "core/file.h"
#include "core/mem.h"
#include "image/augment.h"
#include "image/mix.h"
#include "image/transform.h"
#include "test.h"

#define GOLDEN SL_SOURCE_DIR "/tests/golden/images/"
enum { WIDTH = 23, HEIGHT = 17, N = WIDTH * HEIGHT };

static unsigned char *read_golden(const char *name, size_t *length)
{
    char path[512], *bytes;
    snprintf(path, sizeof path, "%s%s", GOLDEN, name);
    CHECK_OK(sl_file_read_all(path, 1 << 24, &bytes, length));
    return (unsigned char *) bytes;
}

static void planes_of(const unsigned char *rgb, int64_t n, unsigned char *planes)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < 3; c++)
            planes[c * n + i] = rgb[i * 3 + c];
}

static int64_t most_apart(const unsigned char *got, const unsigned char *rgb, int64_t n)
{
    int64_t most = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < 3; c++) {
            int64_t apart = got[c * n + i] - rgb[i * 3 + c];
            most = SL_MAX(most, apart < 0 ? -apart : apart);
        }
    return most;
}

TEST(colors_equal_pil)
{
    size_t length;
    unsigned char *from = read_golden("rgb.rgb", &length), *want = read_golden("colored.rgb", &length), planes[3 * N];
    REQUIRE(length == 8 * 3 * N);
    for (int i = 0; i < 8; i++) {
        planes_of(from, N, planes);
        if (i == 0)
            sl_augment_grayscale(planes, N);
        else if (i == 1)
            sl_augment_solarize(planes, N, 128);
        else if (i < 4)
            sl_augment_brightness(planes, N, i == 2 ? 0.7f : 1.25f);
        else if (i < 6)
            sl_augment_contrast(planes, N, i == 4 ? 0.8f : 1.3f);
        else
            sl_augment_saturation(planes, N, i == 6 ? 0.75f : 1.2f);
        int64_t apart = most_apart(planes, want + i * 3 * N, N);
        CHECK_MSG(apart == 0, "change %d is up to %lld levels off", i, (long long) apart);
    }
    sl_free(from);
    sl_free(want);
}

TEST(blur_equals_torchvision)
{
    static const double sigma[] = {0.1, 0.9, 2};
    size_t length;
    uint16_t scratch[N];
    unsigned char *from = read_golden("rgb.rgb", &length), *want = read_golden("blurred.rgb", &length), planes[3 * N];
    REQUIRE(length == 3 * 3 * N);
    for (int i = 0; i < 3; i++) {
        planes_of(from, N, planes);
        sl_augment_blur(planes, WIDTH, HEIGHT, sigma[i], scratch);
        int64_t apart = most_apart(planes, want + i * 3 * N, N);
        CHECK_MSG(apart <= (i > 0), "sigma %g is up to %lld levels off", sigma[i], (long long) apart);
    }
    unsigned char one[3] = {5, 100, 255};
    sl_augment_blur(one, 1, 1, 1, scratch);
    CHECK(one[0] == 5 && one[1] == 100 && one[2] == 255);
    sl_free(from);
    sl_free(want);
}

static void sample(const sl_image_recipe *recipe, const char *name, uint64_t seed, uint64_t place,
                   unsigned char *planes)
{
    size_t length;
    unsigned char *bytes = read_golden(name, &length);
    sl_image_worker *worker;
    sl_draws draws = sl_draws_of(seed, 0, place);
    CHECK_OK(sl_image_worker_create(recipe, &worker));
    sl_status status = sl_image_sample(worker, bytes, length, &draws, planes);
    sl_image_worker_destroy(worker);
    sl_free(bytes);
    if (status == SL_E_UNSUPPORTED)
        SKIP("%s", sl_error_message());
    CHECK_OK(status);
}

TEST(validation_equals_torchvision)
{
    static const struct {
        int64_t shorter, size;
    } cases[] = {{16, 16}, {24, 16}, {60, 52}};
    size_t length, at = 0;
    unsigned char *want = read_golden("validated.rgb", &length), planes[3 * 52 * 52];
    float floats[3 * 16 * 16];
    for (int64_t i = 0; i < SL_COUNT(cases); i++) {
        sl_image_recipe recipe = sl_image_recipe_default(cases[i].size, false);
        recipe.crop_ratio = (double) cases[i].size / (double) cases[i].shorter;
        sample(&recipe, "444.jpg", 1, 1, planes);
        int64_t n = cases[i].size * cases[i].size, apart = most_apart(planes, want + at, n);
        CHECK_MSG(apart <= 1, "case %lld is up to %lld levels off", (long long) i, (long long) apart);
        for (uint64_t place = 2; place < 12; place++) { /* nothing of it is random */
            static unsigned char again[sizeof planes];
            sample(&recipe, "444.jpg", 3, place, again);
            CHECK(memcmp(again, planes, (size_t) n * 3) == 0);
        }
        at += (size_t) n * 3;
        recipe.scaled_decoding = true; /* another filter, but the same picture */
        sample(&recipe, "444.jpg", 1, 1, planes);
        apart = most_apart(planes, want + at - n * 3, n);
        CHECK_MSG(apart <= 24, "case %lld, scaled, is up to %lld levels off", (long long) i, (long long) apart);
    }
    CHECK_I64(at, length);
    planes_of(want, 16 * 16, planes);
    sl_free(want);
    want = read_golden("normalized.f32", &length);
    REQUIRE(length == sizeof floats);
    sl_image_normalize(&sl_imagenet_norm, planes, 16 * 16, floats);
    CHECK(memcmp(floats, want, sizeof floats) == 0);
    sl_free(want);
}

/* A sample depends on its place alone: not on the samples before it, and not on the instruction set. */
TEST(samples_repeat)
{
    enum { SIZE = 20, SAMPLES = 40 };
    static unsigned char planes[SAMPLES][3 * SIZE * SIZE], again[3 * SIZE * SIZE];
    static const char *const names[] = {"444.jpg", "420.jpg", "rgb.png"};
    sl_image_recipe recipe = sl_image_recipe_default(SIZE, true);
    int64_t different = 0, mirrored = 0;
    recipe.three_augment = true;
    recipe.jitter[0] = recipe.jitter[1] = recipe.jitter[2] = 0.3;
    recipe.scaled_decoding = true;
    for (uint64_t i = 0; i < SAMPLES; i++)
        sample(&recipe, names[i % 3], 5, i, planes[i]);
    setenv("SLUICE_ISA", "scalar", 1);
    for (int64_t i = SAMPLES - 1; i >= 0; i--) {
        sample(&recipe, names[i % 3], 5, (uint64_t) i, again);
        CHECK_MSG(memcmp(again, planes[i], sizeof again) == 0, "sample %lld differs", (long long) i);
        different += i > 2 && memcmp(planes[i], planes[i - 3], sizeof again) != 0;
    }
    unsetenv("SLUICE_ISA");
    CHECK_I64(different, SAMPLES - 3);
    /* Without any change but the flip, half of the samples are mirrored. */
    recipe = sl_image_recipe_default(SIZE, true);
    recipe.crop = (sl_crop_range){1, 1, 61.0 / 47, 61.0 / 47};
    for (uint64_t i = 0; i < SAMPLES; i++) {
        sample(&recipe, "444.jpg", 5, i, planes[i]);
        bool same = memcmp(planes[i], planes[0], sizeof again) == 0, flipped = true;
        for (int64_t k = 0; k < 3 * SIZE * SIZE; k++)
            flipped = flipped && planes[i][k] == planes[0][k / SIZE * SIZE + SIZE - 1 - k % SIZE];
        CHECK(same != flipped);
        mirrored += flipped;
    }
    CHECK_MSG(mirrored > 8 && mirrored < 32, "%lld mirrored", (long long) mirrored);
}

TEST(three_augment_picks_evenly)
{
    size_t length;
    uint16_t scratch[N];
    unsigned char *from = read_golden("rgb.rgb", &length), planes[3 * N], solarized[3 * N];
    int64_t gray = 0, inverted = 0;
    planes_of(from, N, solarized);
    sl_augment_solarize(solarized, N, 128);
    for (uint64_t i = 0; i < 900; i++) {
        sl_draws draws = sl_draws_of(1, 0, i);
        planes_of(from, N, planes);
        sl_augment_three(&draws, planes, WIDTH, HEIGHT, scratch);
        gray += memcmp(planes, planes + N, N) == 0;
        inverted += memcmp(planes, solarized, sizeof planes) == 0;
    }
    CHECK_MSG(gray > 240 && gray < 360 && inverted > 240 && inverted < 360, "%lld gray, %lld solarized of 900",
              (long long) gray, (long long) inverted);
    sl_free(from);
}

TEST(mixing)
{
    enum { SIDE = 6, COUNT = 5, VALUES = 3 * SIDE * SIDE, CLASSES = 4 };
    const sl_mix_recipe recipe = {0.8, 1, 1, 0.5, 0};
    const int32_t label[COUNT] = {0, 1, 2, 3, -100};
    static unsigned char bytes[COUNT * VALUES], was[sizeof bytes];
    static float floats[COUNT * VALUES], targets[COUNT * CLASSES];
    double mean = 0, square = 0;
    int64_t cut = 0, up = 0;
    for (uint64_t k = 0; k < 4000; k++) {
        sl_mix mix = sl_mix_of(&recipe, 11, k, SIDE, SIDE);
        CHECK(mix.kind != SL_MIX_NONE && mix.lambda >= 0 && mix.lambda <= 1);
        cut += mix.kind == SL_MIX_CUT;
        if (mix.kind == SL_MIX_UP) {
            mean += mix.lambda;
            square += mix.lambda * mix.lambda;
            up++;
        }
        if (k >= 40)
            continue;
        for (int64_t i = 0; i < COUNT * VALUES; i++) {
            bytes[i] = was[i] = (unsigned char) sl_philox(k, (uint64_t) i, 0).v[0];
            floats[i] = was[i];
        }
        sl_mix_bytes(&mix, label, bytes, COUNT, SIDE, SIDE);
        sl_mix_floats(&mix, label, floats, COUNT, SIDE, SIDE);
        sl_mix_targets(&mix, 0, label, COUNT, CLASSES, targets);
        for (int64_t i = 0; i < COUNT; i++) { /* only samples 1 and 3 have partners: 4 has no label, and 2 is its own */
            int64_t j = COUNT - 1 - i, kept = 0;
            bool mixed = i == 1 || i == 3;
            for (int64_t v = 0; v < VALUES; v++) {
                double mine = was[i * VALUES + v], other = was[j * VALUES + v];
                double want = !mixed ? mine : mix.lambda * mine + (1 - mix.lambda) * other;
                int64_t x = v % SIDE, y = v / SIDE % SIDE;
                bool inside = x >= mix.left && x < mix.right && y >= mix.top && y < mix.bottom;
                if (mix.kind == SL_MIX_CUT)
                    want = mixed && inside ? other : mine;
                kept += !inside;
                CHECK_NEAR(bytes[i * VALUES + v], want, 0.51);
                CHECK_NEAR(floats[i * VALUES + v], want, 1e-4);
            }
            if (mix.kind == SL_MIX_CUT)
                CHECK_NEAR(mix.lambda, (double) kept / VALUES, 1e-12);
            for (int64_t c = 0; c < CLASSES; c++) {
                double want = label[i] < 0 ? 0
                              : mixed      ? mix.lambda * (c == label[i]) + (1 - mix.lambda) * (c == label[j])
                                           : c == label[i];
                CHECK_NEAR(targets[i * CLASSES + c], want, 1e-6);
            }
        }
    }
    CHECK_MSG(cut > 1800 && cut < 2200, "%lld of 4000 cut", (long long) cut);
    mean /= (double) up;
    CHECK_NEAR(mean, 0.5, 0.03); /* of Beta(.8, .8): variance 1 / (4 (2 * .8 + 1)) */
    CHECK_NEAR(square / (double) up - mean * mean, 1 / (4 * 2.6), 0.01);
    sl_mix none = {SL_MIX_NONE, 1, 0, 0, 0, 0};
    sl_mix_targets(&none, 0.1, label, 1, CLASSES, targets);
    CHECK_NEAR(targets[0], 0.925, 1e-6);
    CHECK_NEAR(targets[1], 0.025, 1e-6);
}

TEST(refuses_recipes)
{
    sl_image_recipe recipe = sl_image_recipe_default(224, true);
    CHECK_OK(sl_image_recipe_check(&recipe));
    recipe.crop.least_area = 0;
    CHECK_FAILS(sl_image_recipe_check(&recipe), SL_E_USAGE);
    recipe = sl_image_recipe_default(0, true);
    CHECK_FAILS(sl_image_recipe_check(&recipe), SL_E_USAGE);
    recipe = sl_image_recipe_default(224, true);
    recipe.jitter[2] = NAN;
    CHECK_FAILS(sl_image_recipe_check(&recipe), SL_E_USAGE);
    recipe = sl_image_recipe_default(224, false);
    recipe.crop_ratio = 1.5;
    CHECK_FAILS(sl_image_recipe_check(&recipe), SL_E_USAGE);
    sl_mix_recipe mix = {0.8, 1, 1.5, 0.5, 0};
    CHECK_FAILS(sl_mix_recipe_check(&mix), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "probability");
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(colors_equal_pil);
    RUN(blur_equals_torchvision);
    RUN(validation_equals_torchvision);
    RUN(samples_repeat);
    RUN(three_augment_picks_evenly);
    RUN(mixing);
    RUN(refuses_recipes);
    return test_end();
}
