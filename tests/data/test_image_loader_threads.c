/* The image loader: the same bits for any number of threads, prefetch depth and resume position; every image once an epoch; broken images. */
#include "core/file.h"
#include "core/mem.h"
#include "data/image/image_source.h"
#include "test.h"

#define GOLDEN SL_SOURCE_DIR "/tests/golden/images/"
enum { SIZE = 12, VALUES = 3 * SIZE * SIZE, IMAGES = 10, BATCH = 4, BATCHES = 6 };

static void copy(const char *golden, const char *to, size_t cut)
{
    char from[512], path[512], *bytes;
    size_t length;
    snprintf(from, sizeof from, "%s%s", GOLDEN, golden);
    snprintf(path, sizeof path, "%s", test_path(to));
    CHECK_OK(sl_file_read_all(from, 1 << 20, &bytes, &length));
    CHECK_OK(sl_file_write_atomic(path, bytes, cut ? cut : length));
    sl_free(bytes);
}

/* Ten images of three classes. */
static void write_images(void)
{
    static const char *const names[IMAGES] = {"a/0.jpg", "a/1.jpg", "a/2.png", "b/0.jpg", "b/1.png",
                                              "b/2.jpg", "b/3.jpg", "c/0.png", "c/1.jpg", "c/2.jpg"};
    static const char *const golden[2][3] = {{"444.jpg", "420.jpg", "progressive.jpg"},
                                             {"rgb.png", "palette.png", "interlaced.png"}};
    for (int c = 'a'; c <= 'c'; c++) {
        char folder[8] = {(char) c, 0};
        CHECK_OK(sl_dir_create(test_path(folder)));
    }
    for (int i = 0; i < IMAGES; i++)
        copy(golden[strstr(names[i], ".png") != NULL][i % 3], names[i], 0);
}

static sl_image_loader_config config_of(const sl_image_set *set)
{
    sl_image_loader_config config = {.set = set,
                                     .recipe = sl_image_recipe_default(SIZE, true),
                                     .batch = BATCH,
                                     .prefetch = 2,
                                     .repeats = 1,
                                     .threads = 2,
                                     .seed = 9,
                                     .shuffle = true};
    config.recipe.three_augment = true;
    config.recipe.jitter[0] = config.recipe.jitter[1] = config.recipe.jitter[2] = 0.3;
    return config;
}

static sl_status next(sl_image_loader *loader, sl_image_batch *batch)
{
    sl_status status = sl_image_loader_next(loader, batch);
    if (status == SL_E_UNSUPPORTED)
        SKIP("%s", sl_error_message());
    return status;
}

TEST(same_bits)
{
    static const struct {
        int threads;
        int64_t prefetch, start;
    } runs[] = {{1, 1, 0}, {4, 1, 0}, {3, 5, 0}, {7, 2, 2}, {2, 9, 5}};
    static unsigned char planes[BATCHES * BATCH * VALUES];
    static int32_t labels[BATCHES * BATCH];
    sl_image_set *set;
    sl_image_loader *loader;
    sl_image_batch batch;
    CHECK_OK(sl_image_set_open(test_dir(), NULL, &set));
    CHECK_I64(sl_image_set_count(set), IMAGES);
    for (int64_t r = 0; r < SL_COUNT(runs); r++) {
        sl_image_loader_config config = config_of(set);
        config.threads = runs[r].threads;
        config.prefetch = runs[r].prefetch;
        config.position = runs[r].start * BATCH;
        CHECK_OK(sl_image_loader_open(&config, &loader));
        for (int64_t b = runs[r].start; b < BATCHES; b++) {
            CHECK_OK(next(loader, &batch));
            CHECK_I64(batch.position, b * BATCH);
            if (r == 0) {
                memcpy(planes + b * BATCH * VALUES, batch.planes, BATCH * VALUES);
                memcpy(labels + b * BATCH, batch.labels, sizeof(int32_t) * BATCH);
            }
            CHECK_MSG(memcmp(planes + b * BATCH * VALUES, batch.planes, BATCH * VALUES) == 0,
                      "run %lld, batch %lld differs", (long long) r, (long long) b);
            CHECK(memcmp(labels + b * BATCH, batch.labels, sizeof(int32_t) * BATCH) == 0);
        }
        if (r == 2) { /* back and forth, with samples in work */
            for (int64_t b = BATCHES - 1; b >= 0; b--) {
                CHECK_OK(sl_image_loader_seek(loader, b * BATCH));
                CHECK_OK(next(loader, &batch));
                CHECK_I64(batch.position, b * BATCH);
                CHECK(memcmp(planes + b * BATCH * VALUES, batch.planes, BATCH * VALUES) == 0);
            }
            CHECK_FAILS(sl_image_loader_seek(loader, -1), SL_E_USAGE);
        }
        CHECK_I64(sl_image_loader_figures_of(loader).bad, 0);
        sl_image_loader_close(loader);
    }
    /* As f32, the same samples normalized. */
    sl_image_loader_config config = config_of(set);
    float want[VALUES];
    config.norm = &sl_imagenet_norm;
    CHECK_OK(sl_image_loader_open(&config, &loader));
    CHECK_OK(next(loader, &batch));
    CHECK(batch.planes == NULL);
    sl_image_normalize(&sl_imagenet_norm, planes + VALUES, SIZE * SIZE, want);
    CHECK(memcmp(want, batch.values + VALUES, sizeof want) == 0);
    CHECK_I64(sl_image_loader_figures_of(loader).bytes, 3 * BATCH * (VALUES * 4 + 4 + 160));
    sl_image_loader_close(loader);
    sl_image_set_close(set);
}

/* Mixed batches are those of sl_mix_of applied to the unmixed ones, and nothing is made behind the end before it is asked for. */
TEST(mixes_batches)
{
    enum { CLASSES = 5 };
    static unsigned char planes[BATCHES * BATCH * VALUES];
    static float targets[BATCH * CLASSES];
    sl_image_set *set;
    sl_image_loader *loader;
    sl_image_batch batch;
    int64_t mixed = 0;
    CHECK_OK(sl_image_set_open(test_dir(), NULL, &set));
    sl_image_loader_config config = config_of(set);
    config.classes = CLASSES;
    config.end = 2 * BATCH - 1;
    CHECK_OK(sl_image_loader_open(&config, &loader));
    for (int64_t b = 0; b < BATCHES; b++) {
        CHECK_OK(next(loader, &batch));
        memcpy(planes + b * BATCH * VALUES, batch.planes, BATCH * VALUES);
        for (int64_t i = 0; i < BATCH * CLASSES; i++)
            CHECK(batch.targets[i] == (float) (i % CLASSES == batch.labels[i / CLASSES]));
    }
    sl_image_loader_close(loader);
    config.mix = (sl_mix_recipe){0.8, 1, 0.8, 0.5, 0.1};
    config.threads = 3;
    config.position = BATCH;
    CHECK_OK(sl_image_loader_open(&config, &loader));
    for (int64_t b = 1; b < BATCHES; b++) {
        sl_mix mix = sl_mix_of(&config.mix, config.seed, (uint64_t) b, SIZE, SIZE);
        CHECK_OK(next(loader, &batch));
        mixed += mix.kind != SL_MIX_NONE;
        sl_mix_bytes(&mix, batch.labels, planes + b * BATCH * VALUES, BATCH, SIZE, SIZE);
        sl_mix_targets(&mix, 0.1, batch.labels, BATCH, CLASSES, targets);
        CHECK_MSG(memcmp(planes + b * BATCH * VALUES, batch.planes, BATCH * VALUES) == 0, "batch %lld", (long long) b);
        CHECK(memcmp(targets, batch.targets, sizeof targets) == 0);
    }
    CHECK(mixed > 0);
    CHECK_FAILS(sl_image_loader_seek(loader, 3), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "multiples");
    sl_image_loader_close(loader);
    config.classes = 2;
    CHECK_FAILS(sl_image_loader_open(&config, &loader), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "3 classes");
    sl_image_set_close(set);
}

/* A source gives the loader's batches, chunk by chunk, for a run that is resumed too; validation begins anew each time. */
TEST(fills_inputs)
{
    enum { CLASSES = 3 };
    static unsigned char planes[BATCHES * BATCH * VALUES], got[BATCH * VALUES];
    static float targets[BATCH * CLASSES];
    int32_t labels[BATCH];
    char folder[512];
    sl_image_set *set;
    sl_image_loader *loader;
    sl_image_batch loaded;
    sl_source *source;
    snprintf(folder, sizeof folder, "%s", test_dir());
    CHECK_OK(sl_image_set_open(folder, NULL, &set));
    sl_image_loader_config plain = config_of(set);
    plain.mix = (sl_mix_recipe){0.8, 1, 1, 0.5, 0};
    CHECK_OK(sl_image_loader_open(&plain, &loader));
    for (int64_t b = 0; b < BATCHES; b++) {
        CHECK_OK(next(loader, &loaded));
        memcpy(planes + b * BATCH * VALUES, loaded.planes, BATCH * VALUES);
    }
    sl_image_loader_close(loader);
    sl_image_source_config config = {.data = folder,
                                     .val_data = folder,
                                     .train = plain.recipe,
                                     .validation = sl_image_recipe_default(SIZE, false),
                                     .mix = plain.mix,
                                     .classes = CLASSES,
                                     .step = BATCH,
                                     .repeats = 1,
                                     .prefetch = 2,
                                     .threads = 2,
                                     .seed = plain.seed};
    CHECK_OK(sl_image_source_open(&config, &source));
    CHECK(source->kinds == (1u << SL_INPUT_IMAGES_U8 | 1u << SL_INPUT_LABELS | 1u << SL_INPUT_SOFT_TARGETS));
    CHECK(source->sequences[SL_SPLIT_TRAIN] == IMAGES && source->sequences[SL_SPLIT_VALIDATION] == IMAGES);
    CHECK(source->bytes > 2 * 3 * BATCH * VALUES);
    static const int64_t positions[] = {0, 2, 4, 6, 16, 18, 8, 10, 20, 22};
    for (int64_t i = 0; i < SL_COUNT(positions); i++) {
        sl_batch batch = {.position = positions[i], .n_sequences = 2, .tokens_each = 1};
        batch.input[SL_INPUT_IMAGES_U8] =
            (sl_batch_input){got, {.dtype = SL_U8, .rank = 3, .dim = {2, 3, SIZE * SIZE}}};
        batch.input[SL_INPUT_LABELS] = (sl_batch_input){labels, sl_type_1d(SL_I32, 2)};
        batch.input[SL_INPUT_SOFT_TARGETS] = (sl_batch_input){targets, sl_type_2d(SL_F32, 2, CLASSES)};
        if (positions[i] == 8) /* a run that is resumed */
            CHECK_OK(source->class->seek(source, 8));
        CHECK_OK(source->class->fill(source, SL_SPLIT_TRAIN, &batch));
        CHECK_MSG(memcmp(got, planes + positions[i] * VALUES, 2 * VALUES) == 0, "position %lld",
                  (long long) positions[i]);
        CHECK_NEAR(targets[0] + targets[1] + targets[2], 1, 1e-6);
        if (i % 2)
            continue;
        batch.position = 8; /* beyond the images: the trainer counts none of these */
        batch.n_sequences = 2;
        CHECK_OK(source->class->fill(source, SL_SPLIT_VALIDATION, &batch));
        CHECK(labels[0] == 2 && labels[1] == 2 && targets[2] == 1 && targets[5] == 1);
        batch.position = 0;
        CHECK_OK(source->class->fill(source, SL_SPLIT_VALIDATION, &batch));
        CHECK(labels[0] == 0 && labels[1] == 0);
    }
    CHECK(sl_image_source_figures(source, SL_SPLIT_TRAIN).samples == 5 * BATCH);
    sl_batch wrong = {.position = 0, .n_sequences = 1};
    wrong.input[SL_INPUT_IMAGES_U8] = (sl_batch_input){got, sl_type_2d(SL_U8, 1, 100)};
    CHECK_FAILS(source->class->fill(source, SL_SPLIT_TRAIN, &wrong), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "3 x 12 x 12");
    /* Whatever changes the pictures changes the identity; threads and prefetching do not. */
    char identity[128];
    snprintf(identity, sizeof identity, "%s", source->identity);
    sl_source_close(source);
    for (int change = 0; change < 5; change++) {
        sl_image_source_config other = config;
        if (change == 0)
            other.threads = 5, other.prefetch = 1, other.val_data = NULL;
        else if (change == 1)
            other.seed++;
        else if (change == 2)
            other.train.flip = 0;
        else if (change == 3)
            other.mix.mixup = 0.4;
        else
            other.step = 2 * BATCH;
        CHECK_OK(sl_image_source_open(&other, &source));
        CHECK((strcmp(identity, source->identity) == 0) == (change == 0));
        sl_source_close(source);
    }
    sl_image_set_close(set);
}

/* Two epochs of single images: each label as often as there are images of its class, in another order each epoch; with repeats, half of the
 * images twice. */
TEST(epochs)
{
    sl_image_set *set;
    sl_image_loader *loader;
    sl_image_batch batch;
    CHECK_OK(sl_image_set_open(test_dir(), NULL, &set));
    for (int64_t repeats = 1; repeats <= 2; repeats++) {
        sl_image_loader_config config = config_of(set);
        int32_t order[2][IMAGES];
        config.batch = 1;
        config.repeats = repeats;
        config.recipe.three_augment = false;
        CHECK_OK(sl_image_loader_open(&config, &loader));
        for (int epoch = 0; epoch < 2; epoch++) {
            int seen[3] = {0};
            for (int i = 0; i < IMAGES; i++) {
                CHECK_OK(next(loader, &batch));
                order[epoch][i] = batch.labels[0];
                seen[batch.labels[0]]++;
                if (repeats == 2 && i % 2)
                    CHECK_I64(order[epoch][i], order[epoch][i - 1]);
            }
            if (repeats == 1)
                CHECK(seen[0] == 3 && seen[1] == 4 && seen[2] == 3);
        }
        CHECK(memcmp(order[0], order[1], sizeof order[0]) != 0);
        sl_image_loader_close(loader);
    }
    /* Validation: as listed, and one picture for every epoch. */
    sl_image_loader_config config = config_of(set);
    static unsigned char first[IMAGES * VALUES];
    config.recipe = sl_image_recipe_default(SIZE, false);
    config.shuffle = false;
    config.batch = IMAGES;
    CHECK_OK(sl_image_loader_open(&config, &loader));
    CHECK_OK(next(loader, &batch));
    for (int i = 0; i < IMAGES; i++)
        CHECK_I64(batch.labels[i], i < 3 ? 0 : i < 7 ? 1 : 2);
    memcpy(first, batch.planes, sizeof first);
    CHECK_OK(next(loader, &batch));
    CHECK(memcmp(first, batch.planes, sizeof first) == 0);
    sl_image_loader_close(loader);
    sl_image_set_close(set);
}

TEST(broken_images)
{
    sl_image_set *set;
    sl_image_loader *loader;
    sl_image_batch batch;
    sl_bad_image bad;
    copy("444.jpg", "b/1.jpg", 700);
    CHECK_OK(sl_image_set_open(test_dir(), NULL, &set));
    CHECK_I64(sl_image_set_count(set), IMAGES + 1);
    sl_image_loader_config config = config_of(set);
    config.shuffle = false; /* position 4 */
    config.threads = 3;
    CHECK_OK(sl_bad_image_parse("refuse", &config.bad));
    CHECK_OK(sl_image_loader_open(&config, &loader));
    CHECK_OK(next(loader, &batch));
    for (int i = 0; i < 2; i++) { /* the same answer again: nothing is lost */
        CHECK_FAILS(sl_image_loader_next(loader, &batch), SL_E_FORMAT);
        CHECK_CONTAINS(sl_error_message(), "b/1.jpg: damaged JPEG: it ends early");
    }
    CHECK_OK(sl_image_loader_seek(loader, 8));
    CHECK_OK(next(loader, &batch));
    CHECK_FAILS(sl_image_loader_next(loader, &batch), SL_E_FORMAT); /* position 15 */
    sl_image_loader_close(loader);

    CHECK_OK(sl_bad_image_parse("skip", &config.bad));
    test_expect_warnings(2, "b/1.jpg is skipped: damaged JPEG");
    CHECK_OK(sl_image_loader_open(&config, &loader));
    for (int b = 0; b < 5; b++) {
        CHECK_OK(next(loader, &batch));
        for (int i = 0; i < BATCH; i++) {
            bool broken = (b * BATCH + i) % (IMAGES + 1) == 4;
            int64_t sum = 0;
            for (int v = 0; v < VALUES; v++)
                sum += batch.planes[i * VALUES + v];
            CHECK(broken == (sum == 0) && broken == (batch.labels[i] == SL_NO_LABEL));
        }
    }
    sl_image_loader_figures figures = sl_image_loader_figures_of(loader);
    CHECK_I64(figures.samples, 20);
    CHECK_I64(figures.bad, 2);
    sl_image_loader_close(loader);

    /* A file that is gone is no broken image. */
    CHECK(remove(test_path("b/1.jpg")) == 0);
    CHECK_OK(sl_image_loader_open(&config, &loader));
    CHECK_OK(next(loader, &batch));
    CHECK_FAILS(sl_image_loader_next(loader, &batch), SL_E_IO);
    sl_image_loader_close(loader);
    sl_image_set_close(set);
    CHECK_FAILS(sl_bad_image_parse("ignore", &bad), SL_E_USAGE);
}

TEST(refuses_configurations)
{
    sl_image_set *set;
    sl_image_loader *loader;
    CHECK_OK(sl_image_set_open(test_dir(), NULL, &set));
    for (int i = 0; i < 5; i++) {
        sl_image_loader_config config = config_of(set);
        if (i == 0)
            config.batch = 0;
        else if (i == 1)
            config.prefetch = 0;
        else if (i == 2)
            config.threads = -1;
        else if (i == 3)
            config.position = -1;
        else
            config.recipe.size = 0;
        CHECK_FAILS(sl_image_loader_open(&config, &loader), SL_E_USAGE);
    }
    /* Closed at once, with threads at work. */
    sl_image_loader_config config = config_of(set);
    size_t before = sl_heap_bytes();
    for (int i = 0; i < 20; i++) {
        CHECK_OK(sl_image_loader_open(&config, &loader));
        sl_image_loader_close(loader);
    }
    CHECK_I64(sl_heap_bytes(), before);
    sl_image_set_close(set);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    write_images();
    RUN(same_bits);
    RUN(mixes_batches);
    RUN(fills_inputs);
    RUN(epochs);
    RUN(broken_images);
    RUN(refuses_configurations);
    return test_end();
}
