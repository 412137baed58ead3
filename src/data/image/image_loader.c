/*
 * A ring of batches. Threads take samples in ascending order, one by one, so that the oldest batch is complete first and a slow file
 * delays its own batch alone:
 *
 *     batches     ... 4 | 5 6 7 8 | 9        given: 5, in use; 6 is what the next call waits for
 *     slot             1 2 0 1 2             a thread that would begin 8 waits until 5 is returned
 *
 * Taking and completing a sample lock one mutex: twice in the milliseconds that a sample takes.
 */
#include "data/image/image_loader.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/pool.h"
#include "data/permute.h"

enum { CAUSE = 160, NAMED = 20, MOST_THREADS = 1024, SMALL_FILE = 1 << 16 };

typedef struct slot {
    unsigned char *planes;
    float *values;
    int32_t *labels;
    float *targets;
    char (*cause)[CAUSE]; /* of a broken image; "": fine */
    int64_t left;         /* samples that are not made yet */
    bool ready;           /* and mixed */
    int64_t failed;       /* the first sample that cannot be made at all; config.batch: none */
    sl_status status;     /* its */
    char message[512];
} slot;

typedef struct maker {
    sl_image_loader *loader;
    pthread_t thread;
    sl_image_worker *worker;
    sl_file_bytes file;
    unsigned char *planes; /* of a sample that becomes f32 */
} maker;

struct sl_image_loader {
    sl_image_loader_config config;
    maker *makers;
    slot *slots;
    int64_t n_slots, started;
    pthread_mutex_t lock;
    pthread_cond_t work, ready, idle;
    int64_t position; /* of batch 0 */
    int64_t next;     /* sample to make, counted from there */
    int64_t returned; /* batches that are not in use any more */
    int64_t asked;    /* batches that were asked for */
    int64_t active;   /* samples in work */
    bool holds, paused, stop;
    sl_image_loader_figures figures;
};

sl_status sl_bad_image_parse(const char *text, sl_bad_image *bad)
{
    if (strcmp(text, "refuse") != 0 && strcmp(text, "skip") != 0)
        return sl_fail(SL_E_USAGE, "\"%s\" for broken images: use refuse or skip", text);
    *bad = text[0] == 's' ? SL_BAD_IMAGE_SKIP : SL_BAD_IMAGE_REFUSE;
    return SL_OK;
}

static int64_t index_of(const sl_image_loader *loader, int64_t position, uint64_t *epoch, int64_t *place)
{
    int64_t n = sl_image_set_count(loader->config.set);
    *epoch = (uint64_t) (position / n);
    *place = position % n;
    int64_t index = *place / loader->config.repeats;
    return loader->config.shuffle ? sl_permute(index, n, loader->config.seed, *epoch) : index;
}

static int64_t max_pixels(const sl_image_recipe *recipe)
{
    return recipe->max_pixels ? recipe->max_pixels : SL_IMAGE_MAX_PIXELS;
}

static int64_t file_limit(const sl_image_recipe *recipe)
{
    return SL_MIN(4 * SL_MIN(max_pixels(recipe), SL_IMAGE_FILE_BYTES) + SMALL_FILE, SL_IMAGE_FILE_BYTES);
}

size_t sl_image_loader_thread_bytes(const sl_image_recipe *recipe)
{
    int64_t pixels = max_pixels(recipe), size = recipe->size;
    int64_t rows = SL_MIN(pixels, SL_IMAGE_MAX_SIDE) * size * SL_PIXEL_BYTES; /* between the passes */
    return (size_t) (file_limit(recipe) + pixels * SL_DECODE_PIXEL_BYTES + SL_DECODE_BYTES + rows + size * size * 16);
}

/* Whatever goes wrong is noted in the batch, for the caller of sl_image_loader_next. */
static sl_status make_sample(maker *m, slot *s, int64_t row, int64_t position)
{
    const sl_image_loader_config *config = &m->loader->config;
    int64_t n = config->recipe.size * config->recipe.size, place;
    uint64_t epoch;
    int64_t index = index_of(m->loader, position, &epoch, &place);
    unsigned char *planes = config->norm ? m->planes : s->planes + row * 3 * n;
    sl_draws draws = sl_draws_of(config->seed, epoch, (uint64_t) place);
    s->cause[row][0] = 0;
    s->labels[row] = sl_image_set_label(config->set, index);
    sl_status status = sl_image_set_read(config->set, index, file_limit(&config->recipe), &m->file);
    if (status == SL_OK)
        status = sl_image_sample(m->worker, m->file.bytes, m->file.length, &draws, planes);
    if (status == SL_E_FORMAT && config->bad == SL_BAD_IMAGE_SKIP) {
        snprintf(s->cause[row], CAUSE, "%s", sl_error_message());
        s->labels[row] = SL_NO_LABEL;
        memset(planes, 0, (size_t) (3 * n));
        status = SL_OK;
    }
    if (status == SL_OK && config->norm)
        sl_image_normalize(config->norm, planes, n, s->values + row * 3 * n);
    return status;
}

/* The first sample that failed is reported, whichever thread was first. Locked. */
static void note_failure(sl_image_loader *loader, slot *s, int64_t row, int64_t position, sl_status status)
{
    char name[256], cause[256];
    uint64_t epoch;
    int64_t place;
    if (status == SL_OK || row >= s->failed)
        return;
    snprintf(cause, sizeof cause, "%s", sl_error_message());
    sl_image_set_name(loader->config.set, index_of(loader, position, &epoch, &place), name, sizeof name);
    snprintf(s->message, sizeof s->message, "%s: %s", name, cause);
    s->failed = row;
    s->status = status;
}

/* By the thread that made the last sample of a batch. */
static void finish(const sl_image_loader *loader, slot *s, int64_t position)
{
    const sl_image_loader_config *c = &loader->config;
    int64_t size = c->recipe.size;
    sl_mix mix = sl_mix_of(&c->mix, c->seed, (uint64_t) (position / c->batch), size, size);
    if (s->values)
        sl_mix_floats(&mix, s->labels, s->values, c->batch, size, size);
    else
        sl_mix_bytes(&mix, s->labels, s->planes, c->batch, size, size);
    if (s->targets)
        sl_mix_targets(&mix, c->mix.smoothing, s->labels, c->batch, c->classes, s->targets);
}

/* The batch behind the last one that may be begun. */
static int64_t limit_of(const sl_image_loader *loader)
{
    int64_t last = loader->returned + loader->n_slots, end = loader->config.end - loader->position;
    if (loader->config.end)
        last = SL_MIN(last, SL_MAX(end > 0 ? SL_DIV_UP(end, loader->config.batch) : 0, loader->asked));
    return last;
}

static void *work(void *context)
{
    maker *m = context;
    sl_image_loader *loader = m->loader;
    int64_t batch = loader->config.batch;
    pthread_mutex_lock(&loader->lock);
    for (;;) {
        while (!loader->stop && (loader->paused || loader->next / batch >= limit_of(loader)))
            pthread_cond_wait(&loader->work, &loader->lock);
        if (loader->stop)
            break;
        int64_t sample = loader->next++, row = sample % batch, position = loader->position + sample;
        slot *s = &loader->slots[sample / batch % loader->n_slots];
        loader->active++;
        pthread_mutex_unlock(&loader->lock);
        sl_status status = make_sample(m, s, row, position);
        pthread_mutex_lock(&loader->lock);
        note_failure(loader, s, row, position, status);
        if (--s->left == 0) {
            if (s->status == SL_OK) {
                pthread_mutex_unlock(&loader->lock);
                finish(loader, s, position - row);
                pthread_mutex_lock(&loader->lock);
            }
            s->ready = true;
            pthread_cond_signal(&loader->ready);
        }
        if (--loader->active == 0)
            pthread_cond_signal(&loader->idle);
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

static void renew(const sl_image_loader *loader, slot *s)
{
    s->left = s->failed = loader->config.batch;
    s->ready = false;
    s->status = SL_OK;
}

/* Locked. */
static void begin_at(sl_image_loader *loader, int64_t position)
{
    loader->position = position;
    loader->next = loader->returned = loader->asked = 0;
    loader->holds = false;
    for (int64_t i = 0; i < loader->n_slots; i++)
        renew(loader, &loader->slots[i]);
}

static sl_status check(const sl_image_loader_config *c)
{
    if (c->batch < 1 || c->prefetch < 1 || c->repeats < 1 || c->position < 0)
        return sl_fail(
            SL_E_USAGE,
            "batches of %lld images, %lld ahead, each image %lld times from position %lld: the first three are at "
            "least 1, the position at least 0",
            (long long) c->batch, (long long) c->prefetch, (long long) c->repeats, (long long) c->position);
    if (c->batch > (1 << 20) || c->prefetch > 1024)
        return sl_fail(SL_E_USAGE, "batches of %lld images, %lld ahead: at most %d and 1024", (long long) c->batch,
                       (long long) c->prefetch, 1 << 20);
    return sl_pool_check_threads(c->threads);
}

/* Mixing pairs the samples of one batch, which must therefore not depend on where a run began. */
static sl_status check_position(const sl_image_loader_config *c, int64_t position)
{
    if (position < 0)
        return sl_fail(SL_E_USAGE, "image %lld of the data: positions begin at 0", (long long) position);
    if ((c->mix.mixup > 0 || c->mix.cutmix > 0) && position % c->batch)
        return sl_fail(SL_E_USAGE, "mixed batches of %lld images begin at multiples of that, not at %lld",
                       (long long) c->batch, (long long) position);
    return SL_OK;
}

static sl_status check_classes(const sl_image_loader_config *c)
{
    if (c->classes && c->classes < sl_image_set_classes(c->set))
        return sl_fail(SL_E_USAGE, "the images have %d classes, but the targets %lld", sl_image_set_classes(c->set),
                       (long long) c->classes);
    return sl_mix_recipe_check(&c->mix);
}

static sl_status create_slots(sl_image_loader *loader)
{
    const sl_image_loader_config *c = &loader->config;
    int64_t values = 3 * c->recipe.size * c->recipe.size * c->batch;
    loader->n_slots = c->prefetch + 1;
    SL_TRY(sl_alloc(&loader->slots, loader->n_slots, sizeof *loader->slots));
    for (int64_t i = 0; i < loader->n_slots; i++) {
        slot *s = &loader->slots[i];
        if (c->norm)
            SL_TRY(sl_alloc_aligned(&s->values, values, sizeof(float), 64));
        else
            SL_TRY(sl_alloc_aligned(&s->planes, values, 1, 64));
        SL_TRY(sl_alloc(&s->labels, c->batch, sizeof *s->labels));
        if (c->classes)
            SL_TRY(sl_alloc(&s->targets, c->batch * c->classes, sizeof *s->targets));
        SL_TRY(sl_alloc(&s->cause, c->batch, sizeof *s->cause));
    }
    loader->figures.bytes = (size_t) loader->n_slots *
                            ((size_t) values * (c->norm ? sizeof(float) : 1) +
                             (size_t) c->batch * (sizeof(int32_t) + (size_t) c->classes * sizeof(float) + CAUSE));
    begin_at(loader, c->position);
    return SL_OK;
}

static sl_status start(sl_image_loader *loader)
{
    const sl_image_loader_config *c = &loader->config;
    int64_t threads = SL_MIN(c->threads ? c->threads : sl_pool_cores(), MOST_THREADS);
    SL_TRY(sl_alloc(&loader->makers, threads + 1, sizeof *loader->makers)); /* one without a loader ends them */
    for (int64_t i = 0; i < threads; i++) {
        maker *m = &loader->makers[i];
        m->loader = loader;
        loader->started = i; /* what close has to join */
        SL_TRY(sl_image_worker_create(&c->recipe, &m->worker));
        if (c->norm)
            SL_TRY(sl_alloc_aligned(&m->planes, 3 * c->recipe.size * c->recipe.size, 1, 64));
        if (pthread_create(&m->thread, NULL, work, m) != 0)
            return sl_fail(SL_E_MEMORY, "cannot start a thread for images: %lld are running", (long long) i);
    }
    loader->started = threads;
    return SL_OK;
}

sl_status sl_image_loader_open(const sl_image_loader_config *config, sl_image_loader **out)
{
    sl_image_loader *loader;
    sl_status status;
    SL_TRY(check(config));
    SL_TRY(check_position(config, config->position));
    SL_TRY(check_classes(config));
    SL_TRY(sl_image_recipe_check(&config->recipe));
    SL_TRY(sl_alloc(&loader, 1, sizeof *loader));
    loader->config = *config;
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->work, NULL);
    pthread_cond_init(&loader->ready, NULL);
    pthread_cond_init(&loader->idle, NULL);
    SL_TRY_GOTO(create_slots(loader), close);
    SL_TRY_GOTO(start(loader), close);
    *out = loader;
    return SL_OK;
close:
    sl_image_loader_close(loader);
    return status;
}

static void free_maker(maker *m)
{
    sl_image_worker_destroy(m->worker);
    sl_file_bytes_free(&m->file);
    sl_free(m->planes);
}

void sl_image_loader_close(sl_image_loader *loader)
{
    if (!loader)
        return;
    pthread_mutex_lock(&loader->lock);
    loader->stop = true;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->lock);
    for (int64_t i = 0; i < loader->started; i++) {
        pthread_join(loader->makers[i].thread, NULL);
        free_maker(&loader->makers[i]);
    }
    if (loader->makers && loader->makers[loader->started].loader) /* the one that could not be started */
        free_maker(&loader->makers[loader->started]);
    for (int64_t i = 0; i < loader->n_slots && loader->slots; i++) {
        sl_free(loader->slots[i].planes);
        sl_free(loader->slots[i].values);
        sl_free(loader->slots[i].labels);
        sl_free(loader->slots[i].targets);
        sl_free(loader->slots[i].cause);
    }
    sl_free(loader->slots);
    sl_free(loader->makers);
    pthread_cond_destroy(&loader->work);
    pthread_cond_destroy(&loader->ready);
    pthread_cond_destroy(&loader->idle);
    pthread_mutex_destroy(&loader->lock);
    sl_free(loader);
}

/* The log names the first few; the count goes on. */
static void count_bad(sl_image_loader *loader, const slot *s, int64_t position)
{
    for (int64_t row = 0; row < loader->config.batch; row++) {
        char name[256];
        uint64_t epoch;
        int64_t place;
        if (!s->cause[row][0] || loader->figures.bad++ >= NAMED)
            continue;
        sl_image_set_name(loader->config.set, index_of(loader, position + row, &epoch, &place), name, sizeof name);
        sl_warn("%s is skipped: %s%s", name, s->cause[row],
                loader->figures.bad == NAMED ? "; further ones are only counted" : "");
    }
}

sl_status sl_image_loader_next(sl_image_loader *loader, sl_image_batch *batch)
{
    double begin = sl_clock_s();
    pthread_mutex_lock(&loader->lock);
    if (loader->holds) {
        renew(loader, &loader->slots[loader->returned % loader->n_slots]);
        loader->returned++;
        loader->holds = false;
        pthread_cond_broadcast(&loader->work);
    }
    int64_t number = loader->returned;
    slot *s = &loader->slots[number % loader->n_slots];
    if (loader->asked <= number) {
        loader->asked = number + 1;
        pthread_cond_broadcast(&loader->work);
    }
    while (!s->ready)
        pthread_cond_wait(&loader->ready, &loader->lock);
    loader->holds = s->status == SL_OK;
    pthread_mutex_unlock(&loader->lock);
    loader->figures.waited += sl_clock_s() - begin;
    if (s->status != SL_OK)
        return sl_fail(s->status, "%s", s->message);
    int64_t position = loader->position + number * loader->config.batch;
    *batch = (sl_image_batch){position, loader->config.batch, s->planes, s->values, s->labels, s->targets};
    loader->figures.samples += loader->config.batch;
    count_bad(loader, s, position);
    return SL_OK;
}

sl_status sl_image_loader_seek(sl_image_loader *loader, int64_t position)
{
    SL_TRY(check_position(&loader->config, position));
    pthread_mutex_lock(&loader->lock);
    loader->paused = true;
    while (loader->active > 0)
        pthread_cond_wait(&loader->idle, &loader->lock);
    begin_at(loader, position);
    loader->paused = false;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->lock);
    return SL_OK;
}

sl_image_loader_figures sl_image_loader_figures_of(const sl_image_loader *loader)
{
    return loader->figures;
}

int sl_image_loader_threads(const sl_image_loader *loader)
{
    return (int) loader->started;
}
