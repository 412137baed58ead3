/* A loader for each split, and the batch of each that is handed out. Validation has the same pictures every time: it is neither shuffled nor
 * mixed, and its loader rests at the end of the data until the next one begins. */
#include "data/image/image_source.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/hash.h"
#include "core/mem.h"

typedef struct side {
    sl_image_set *set;
    sl_image_loader *loader;
    sl_image_batch batch; /* count 0: none */
    int64_t next;         /* position of the loader's next batch */
} side;

typedef struct image_source {
    sl_source source;
    sl_image_source_config config;
    sl_image_norm norm;
    side sides[SL_SPLIT_COUNT];
} image_source;

static void close_source(sl_source *source)
{
    image_source *s = (image_source *) source;
    for (int split = 0; split < SL_SPLIT_COUNT; split++) {
        sl_image_loader_close(s->sides[split].loader);
        sl_image_set_close(s->sides[split].set);
    }
    sl_free(s);
}

static sl_status go_to(side *d, int64_t position)
{
    d->batch.count = 0;
    d->next = position;
    return sl_image_loader_seek(d->loader, position);
}

static sl_status seek(sl_source *source, int64_t position)
{
    image_source *s = (image_source *) source;
    side *d = &s->sides[SL_SPLIT_TRAIN];
    position -= position % s->config.step;
    return d->next == position && d->batch.count == 0 ? SL_OK : go_to(d, position);
}

/* Makes the batch that holds `position` the current one. */
static sl_status take(const image_source *s, side *d, int64_t position)
{
    int64_t begin = position - position % s->config.step;
    if (d->batch.count && d->batch.position == begin)
        return SL_OK;
    if (d->next != begin)
        SL_TRY(go_to(d, begin));
    d->batch.count = 0;
    SL_TRY(sl_image_loader_next(d->loader, &d->batch));
    d->next = begin + d->batch.count;
    return SL_OK;
}

static int64_t values_of(const image_source *s, sl_input_kind kind)
{
    int64_t size = s->config.train.size;
    return kind == SL_INPUT_LABELS ? 1 : kind == SL_INPUT_SOFT_TARGETS ? s->config.classes : 3 * size * size;
}

static const void *row_of(const image_source *s, const sl_image_batch *batch, int64_t row, sl_input_kind kind)
{
    int64_t at = row * values_of(s, kind);
    switch (kind) {
    case SL_INPUT_IMAGES:
        return batch->values + at;
    case SL_INPUT_IMAGES_U8:
        return batch->planes + at;
    case SL_INPUT_LABELS:
        return batch->labels + at;
    default:
        return batch->targets + at;
    }
}

static sl_status check_inputs(const image_source *s, const sl_batch *batch)
{
    for (int kind = 0; kind < SL_INPUT_COUNT; kind++) {
        const sl_batch_input *input = &batch->input[kind];
        int64_t values = values_of(s, (sl_input_kind) kind);
        if (!input->data)
            continue;
        SL_ASSERT(s->source.kinds & 1u << kind);
        if (sl_type_count(&input->type) != values * batch->n_sequences)
            return sl_fail(SL_E_USAGE,
                           "the model reads %" PRId64
                           " values of %s for each image, but the data has images of 3 x %" PRId64 " x %" PRId64
                           " pixels and %" PRId64 " classes",
                           sl_type_count(&input->type) / batch->n_sequences, sl_input_of((sl_input_kind) kind)->name,
                           s->config.train.size, s->config.train.size, s->config.classes);
    }
    return SL_OK;
}

static sl_status fill(sl_source *source, sl_split split, const sl_batch *batch)
{
    image_source *s = (image_source *) source;
    side *d = &s->sides[split];
    SL_TRY(check_inputs(s, batch));
    for (int64_t i = 0; i < batch->n_sequences; i++) {
        SL_TRY(take(s, d, batch->position + i));
        for (int kind = 0; kind < SL_INPUT_COUNT; kind++) {
            const sl_batch_input *input = &batch->input[kind];
            if (!input->data)
                continue;
            size_t bytes = sl_type_bytes(&input->type) / (size_t) batch->n_sequences;
            const void *row = row_of(s, &d->batch, batch->position + i - d->batch.position, (sl_input_kind) kind);
            memcpy((char *) input->data + (size_t) i * bytes, row, bytes);
        }
    }
    return SL_OK;
}

/* What decides which pictures a run sees, and in which order. */
static void identify(image_source *s)
{
    const sl_image_source_config *c = &s->config;
    const sl_image_recipe *r = &c->train;
    bool mixed = c->mix.mixup > 0 || c->mix.cutmix > 0;
    double recipe[] = {(double) r->size,
                       r->scaled_decoding,
                       r->crop.least_area,
                       r->crop.most_area,
                       r->crop.least_ratio,
                       r->crop.most_ratio,
                       r->flip,
                       r->three_augment,
                       r->jitter[0],
                       r->jitter[1],
                       r->jitter[2],
                       (double) c->repeats,
                       c->mix.mixup,
                       c->mix.cutmix,
                       c->mix.probability,
                       c->mix.switch_to_cut,
                       c->mix.smoothing,
                       mixed ? (double) c->step : 0,
                       c->bad};
    uint64_t parts[] = {sl_image_set_identity(s->sides[SL_SPLIT_TRAIN].set), c->seed,
                        sl_hash64(recipe, sizeof recipe, 0), c->norm ? sl_hash64(&s->norm, sizeof s->norm, 0) : 0};
    snprintf(s->source.identity, sizeof s->source.identity, "images %016" PRIx64, sl_hash64(parts, sizeof parts, 0));
}

static sl_status open_side(image_source *s, sl_split split)
{
    const sl_image_source_config *c = &s->config;
    bool train = split == SL_SPLIT_TRAIN;
    side *d = &s->sides[split];
    const char *paths = train ? c->data : c->val_data;
    if (!paths)
        return SL_OK;
    SL_TRY(sl_image_set_open(paths, train ? NULL : s->sides[SL_SPLIT_TRAIN].set, &d->set));
    int64_t count = sl_image_set_count(d->set);
    sl_image_loader_config config = {.set = d->set,
                                     .recipe = train ? c->train : c->validation,
                                     .norm = c->norm ? &s->norm : NULL,
                                     .classes = c->classes,
                                     .batch = c->step,
                                     .prefetch = c->prefetch,
                                     .repeats = train ? c->repeats : 1,
                                     .end = train ? 0 : count,
                                     .threads = c->threads,
                                     .seed = c->seed,
                                     .shuffle = train,
                                     .bad = c->bad};
    if (train)
        config.mix = c->mix;
    SL_TRY(sl_image_loader_open(&config, &d->loader));
    s->source.sequences[split] = count;
    s->source.text_unknown[split] = "the data are images";
    s->source.bytes += sl_image_set_bytes(d->set) + sl_image_loader_figures_of(d->loader).bytes +
                       (size_t) sl_image_loader_threads(d->loader) * sl_image_loader_thread_bytes(&config.recipe);
    return SL_OK;
}

sl_status sl_image_source_open(const sl_image_source_config *config, sl_source **out)
{
    static const sl_source_class class = {fill, seek, close_source, NULL};
    image_source *s;
    sl_status status;
    if (config->train.size != config->validation.size && config->val_data)
        return sl_fail(SL_E_USAGE, "training has images of %" PRId64 " pixels a side, but validation of %" PRId64,
                       config->train.size, config->validation.size);
    SL_TRY(sl_alloc(&s, 1, sizeof *s));
    s->source.class = &class;
    s->config = *config;
    if (config->norm)
        s->norm = *config->norm;
    SL_TRY_GOTO(open_side(s, SL_SPLIT_TRAIN), close);
    SL_TRY_GOTO(open_side(s, SL_SPLIT_VALIDATION), close);
    s->source.kinds = 1u << (config->norm ? SL_INPUT_IMAGES : SL_INPUT_IMAGES_U8) | 1u << SL_INPUT_LABELS |
                      (config->classes ? 1u << SL_INPUT_SOFT_TARGETS : 0);
    identify(s);
    *out = &s->source;
    return SL_OK;
close:
    close_source(&s->source);
    return status;
}

sl_image_loader_figures sl_image_source_figures(const sl_source *source, sl_split split)
{
    const image_source *s = (const image_source *) source;
    return s->sides[split].loader ? sl_image_loader_figures_of(s->sides[split].loader) : (sl_image_loader_figures){0};
}
