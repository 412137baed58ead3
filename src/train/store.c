/*
 * Parameters lie in groups. Weights and master weights have the group's element layout: element e of a group is at byte e * sizeof(dtype)
 * of both, so a parameter is found by its first element, offset / sizeof(weight). In a state it begins where the program says, since
 * only some parameters of a group may have it.
 */
#include "train/store.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bf16.h"
#include "core/hash.h"
#include "core/normal.h"
#include "core/rng.h"

const char *sl_store_prefix(sl_part part, char out[32])
{
    if (part == SL_PART_WEIGHT)
        out[0] = 0;
    else
        snprintf(out, 32, "%s.", part == SL_PART_MASTER ? "master" : sl_state_name(part - SL_PART_STATE));
    return out;
}

static sl_status engine_read(void *engine, int32_t object, size_t offset, void *bytes, size_t length)
{
    return sl_engine_read(engine, object, offset, bytes, length);
}

static sl_status engine_write(void *engine, int32_t object, size_t offset, const void *bytes, size_t length)
{
    return sl_engine_write(engine, object, offset, bytes, length);
}

sl_store_access sl_store_engine(sl_engine *engine)
{
    return (sl_store_access){engine, engine_read, engine_write};
}

sl_status sl_store_open(sl_store *store, const sl_program *program, sl_store_access access)
{
    *store = (sl_store){.program = program, .access = access};
    return sl_alloc_aligned(&store->buffer, SL_PARAM_BUFFER_BYTES, 1, 4096);
}

void sl_store_close(sl_store *store)
{
    sl_free(store->buffer);
    store->buffer = NULL;
}

static void tell_progress(const sl_store *store, int32_t params)
{
    if (store->progress)
        store->progress(store->progress_context, (double) params / store->program->n_params);
}

static int32_t object_of(const sl_store *store, sl_part part, int32_t group)
{
    const sl_program *p = store->program;
    const int32_t *objects = part == SL_PART_WEIGHT   ? p->param_object
                             : part == SL_PART_MASTER ? p->master_object
                                                      : p->state_object[part - SL_PART_STATE];
    return objects ? objects[group] : -1;
}

static bool is_state(sl_part part)
{
    return part != SL_PART_WEIGHT && part != SL_PART_MASTER;
}

bool sl_store_has(const sl_store *store, sl_part part, int32_t param)
{
    const sl_program *p = store->program;
    return object_of(store, part, p->params[param].group_index) >= 0 &&
           (!is_state(part) || p->state_first[part - SL_PART_STATE][param] >= 0);
}

static sl_type state_type(const sl_store *store, sl_part part, int64_t count)
{
    return sl_state_type(part - SL_PART_STATE, sl_policy_of(store->program->config.precision)->moments, count);
}

sl_dtype sl_store_dtype(const sl_store *store, sl_part part)
{
    if (part == SL_PART_WEIGHT)
        return store->program->params[0].type.dtype;
    return part == SL_PART_MASTER ? SL_F32 : state_type(store, part, 0).dtype;
}

sl_param sl_store_param(const sl_store *store, sl_part part, int32_t param)
{
    sl_param all = store->program->params[param];
    if (!is_state(part) || sl_store_dtype(store, part) != SL_U8)
        return all;
    all.type = state_type(store, part, sl_type_count(&all.type));
    all.n_parts = 1;
    all.parts[0] = (sl_param_part){.name = all.name, .rows = all.type.dim[0]};
    return all;
}

/* Byte of the part's object at which the parameter begins. */
static size_t part_offset(const sl_store_part *at)
{
    const sl_param *param = &at->store->program->params[at->param];
    if (!is_state(at->part))
        return param->offset / sl_dtype_bytes(param->type.dtype) * sl_dtype_bytes(sl_store_dtype(at->store, at->part));
    const sl_type before =
        state_type(at->store, at->part, at->store->program->state_first[at->part - SL_PART_STATE][at->param]);
    return sl_type_bytes(&before);
}

sl_status sl_store_read_part(void *store_part, size_t offset, void *bytes, size_t length)
{
    const sl_store_part *at = store_part;
    const sl_param *param = &at->store->program->params[at->param];
    int32_t object = object_of(at->store, at->part, param->group_index);
    return at->store->access.read(at->store->access.context, object, part_offset(at) + offset, bytes, length);
}

sl_status sl_store_write_part(void *store_part, size_t offset, void *bytes, size_t length)
{
    const sl_store_part *at = store_part;
    const sl_param *param = &at->store->program->params[at->param];
    int32_t object = object_of(at->store, at->part, param->group_index);
    return at->store->access.write(at->store->access.context, object, part_offset(at) + offset, bytes, length);
}

sl_status sl_store_zero(sl_store *store)
{
    for (sl_part part = 0; part < SL_PART_COUNT; part++)
        for (int32_t g = 0; g < store->program->n_groups; g++) {
            int32_t object = object_of(store, part, g);
            if (object < 0)
                continue;
            SL_TRY(store->access.write(store->access.context, object, 0, NULL, store->program->objects[object].bytes));
        }
    return SL_OK;
}

/* ---- random weights ---- */

enum { TILE = 4096 };

typedef struct draw {
    const sl_param *param;
    uint64_t seed, name;
    int64_t first, count; /* elements */
    float *out;           /* one of them may be NULL */
    sl_bf16 *rounded;
} draw;

/* Redraws what lies beyond three standard deviations, each element by further blocks of its own. */
static void truncate_tails(const draw *d, int64_t block, int64_t blocks, float *values)
{
    float again[4];
    for (int64_t i = 0; i < 4 * blocks; i++)
        for (uint64_t attempt = 1; fabsf(values[i]) > 3 && attempt < 256; attempt++) {
            sl_normal_fill(d->seed, (uint64_t) (block + i / 4) | attempt << 56, d->name, 1, again);
            values[i] = again[i % 4];
        }
}

/* Of standard deviation 1: between -sqrt(3) and sqrt(3). */
static float uniform(const draw *d, int64_t element)
{
    const sl_rng4 random = sl_philox(d->seed, (uint64_t) element / 4, d->name);
    return (2 * sl_rng_uniform(random.v[element % 4]) - 1) * 1.7320508f;
}

/* Elements [first, end) of the parameter; they need not begin on a block of four. */
static void draw_values(const draw *d, int64_t first, int64_t end, float *values)
{
    float drawn[TILE + 8];
    if (d->param->init == SL_INIT_ZEROS || d->param->init == SL_INIT_ONES) {
        for (int64_t i = first; i < end; i++)
            values[i - first] = d->param->init == SL_INIT_ONES;
        return;
    }
    int64_t block = first / 4, blocks = SL_DIV_UP(end, 4) - block;
    if (d->param->init == SL_INIT_UNIFORM) {
        for (int64_t i = first; i < end; i++)
            values[i - first] = uniform(d, i) * d->param->init_std;
        return;
    }
    sl_normal_fill(d->seed, (uint64_t) block, d->name, blocks, drawn);
    if (d->param->init == SL_INIT_TRUNCATED)
        truncate_tails(d, block, blocks, drawn);
    for (int64_t i = first; i < end; i++)
        values[i - first] = drawn[i - 4 * block] * d->param->init_std;
}

static void draw_tile(void *context, int64_t tile, int thread)
{
    const draw *d = context;
    (void) thread;
    float values[TILE];
    int64_t begin = tile * TILE, count = SL_MIN(d->count - begin, (int64_t) TILE);
    draw_values(d, d->first + begin, d->first + begin + count, d->out ? d->out + begin : values);
    for (int64_t i = 0; i < count && d->rounded; i++)
        d->rounded[begin + i] = sl_f32_to_bf16(d->out ? d->out[begin + i] : values[i]);
}

sl_status sl_store_read_drawn(void *drawn, size_t offset, void *bytes, size_t length)
{
    const sl_store_drawn *from = drawn;
    size_t width = sl_dtype_bytes(from->dtype);
    draw d = {.param = from->param, .seed = from->seed};
    d.name = sl_hash64(d.param->name, strlen(d.param->name), 0);
    d.first = (int64_t) (offset / width);
    d.count = (int64_t) (length / width);
    if (from->dtype == SL_BF16)
        d.rounded = bytes;
    else
        d.out = bytes;
    sl_pool_run(from->pool, draw_tile, &d, SL_DIV_UP(d.count, TILE));
    return SL_OK;
}

/* Drawn elements into every part that holds weights. */
static sl_status put_values(const sl_store *store, int32_t param, const draw *d)
{
    sl_store_part weight = {store, param, SL_PART_WEIGHT}, master = {store, param, SL_PART_MASTER};
    size_t first = (size_t) d->first, count = (size_t) d->count;
    if (sl_store_has(store, SL_PART_MASTER, param))
        SL_TRY(sl_store_write_part(&master, first * 4, d->out, count * 4));
    if (d->rounded)
        return sl_store_write_part(&weight, first * 2, d->rounded, count * 2);
    return sl_store_write_part(&weight, first * 4, d->out, count * 4);
}

/* Drawing a parameter: every thread has a share of the store's buffer, draws a piece into it and brings it to its place. (One
 * bufferful after the other, drawn by all and written by the caller, left 16 cores waiting most of the time: 10 s for 8B.) */
typedef struct drawing {
    const sl_store *store;
    draw draw;
    int32_t param;
    bool floats, rounded; /* which of them are wanted */
    size_t share_bytes;   /* of a thread */
    int64_t piece;        /* elements that fit it */
    atomic_flag failed;
    sl_status status; /* of the first that failed, and its message: those are a thread's own */
    char message[512];
} drawing;

static void draw_piece(void *context, int64_t tile, int thread)
{
    drawing *all = context;
    draw d = all->draw;
    char *share = (char *) all->store->buffer + (size_t) thread * all->share_bytes;
    d.first = tile * all->piece;
    d.count = SL_MIN(sl_type_count(&d.param->type) - d.first, all->piece);
    d.out = all->floats ? (float *) (void *) share : NULL;
    d.rounded = all->rounded ? (sl_bf16 *) (void *) (share + (all->floats ? all->piece * 4 : 0)) : NULL;
    for (int64_t i = 0; i < SL_DIV_UP(d.count, TILE); i++)
        draw_tile(&d, i, thread);
    sl_status status = put_values(all->store, all->param, &d);
    if (status == SL_OK || atomic_flag_test_and_set(&all->failed))
        return;
    all->status = status;
    snprintf(all->message, sizeof all->message, "%s", sl_error_message());
}

static sl_status draw_params(sl_store *store, uint64_t seed, sl_pool *pool, bool adapters_only)
{
    drawing all = {
        .store = store, .failed = ATOMIC_FLAG_INIT, .rounded = sl_store_dtype(store, SL_PART_WEIGHT) == SL_BF16};
    all.floats = !all.rounded || sl_policy_of(store->program->config.precision)->master;
    all.share_bytes = SL_PARAM_BUFFER_BYTES / (size_t) sl_pool_threads(pool) / 64 * 64;
    all.piece = (int64_t) all.share_bytes / (4 * all.floats + 2 * all.rounded) / 16 * 16;
    for (; all.param < store->program->n_params && all.status == SL_OK; all.param++) {
        const sl_param *param = &store->program->params[all.param];
        if (adapters_only && !param->adapter)
            continue;
        all.draw = (draw){.param = param, .seed = seed, .name = sl_hash64(param->name, strlen(param->name), 0)};
        sl_pool_run(pool, draw_piece, &all, SL_DIV_UP(sl_type_count(&param->type), all.piece));
        tell_progress(store, all.param);
    }
    return all.status == SL_OK ? SL_OK : sl_fail(all.status, "%s", all.message);
}

sl_status sl_store_init_random(sl_store *store, uint64_t seed, sl_pool *pool)
{
    SL_TRY(sl_store_zero(store));
    return draw_params(store, seed, pool, false);
}

sl_status sl_store_init_adapters_random(sl_store *store, uint64_t seed, sl_pool *pool)
{
    return draw_params(store, seed, pool, true);
}

/* ---- weights from elsewhere ---- */

/* All of the model's parameters, or all adapters: checked before the first is changed. */
static sl_status check_params(const sl_store *store, const sl_tensors *tensors, bool adapters)
{
    const sl_program *program = store->program;
    for (int32_t p = 0; p < program->n_params; p++)
        if (program->params[p].adapter == adapters)
            SL_TRY(sl_param_check(tensors, &program->params[p]));
    return sl_params_check_unused(tensors, program->params, program->n_params);
}

static sl_status load_params(sl_store *store, sl_tensors *tensors, bool adapters)
{
    const sl_program *program = store->program;
    for (int32_t p = 0; p < program->n_params; p++) {
        sl_store_part weight = {store, p, SL_PART_WEIGHT}, master = {store, p, SL_PART_MASTER};
        tell_progress(store, p);
        if (program->params[p].adapter != adapters)
            continue;
        SL_TRY(sl_param_load(tensors, &program->params[p], sl_store_dtype(store, SL_PART_WEIGHT), store->buffer,
                             SL_PARAM_BUFFER_BYTES, sl_store_write_part, &weight));
        if (sl_store_has(store, SL_PART_MASTER, p))
            SL_TRY(sl_param_load(tensors, &program->params[p], SL_F32, store->buffer, SL_PARAM_BUFFER_BYTES,
                                 sl_store_write_part, &master));
    }
    return SL_OK;
}

sl_status sl_store_init_from(sl_store *store, sl_tensors *tensors)
{
    SL_TRY(check_params(store, tensors, false));
    SL_TRY(sl_store_zero(store));
    return load_params(store, tensors, false);
}

sl_status sl_store_init_adapters_from(sl_store *store, sl_tensors *tensors)
{
    SL_TRY(check_params(store, tensors, true));
    return load_params(store, tensors, true);
}

/* ---- hash ---- */

typedef struct named {
    const char *name;
    int32_t param;
} named;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const named *) a)->name, ((const named *) b)->name);
}

/* At most `most` bytes of each, with or without the adapters. */
static sl_status hash_params(sl_store *store, bool adapters, size_t most, uint64_t *hash)
{
    const sl_program *program = store->program;
    named *order;
    sl_status status = SL_OK;
    sl_hasher hasher;
    SL_TRY(sl_alloc(&order, program->n_params, sizeof *order));
    for (int32_t p = 0; p < program->n_params; p++)
        order[p] = (named){program->params[p].name, p};
    qsort(order, (size_t) program->n_params, sizeof *order, by_name);
    sl_hash_begin(&hasher, 0);
    for (int32_t i = 0; i < program->n_params; i++) {
        sl_store_part weight = {store, order[i].param, SL_PART_WEIGHT};
        size_t bytes = SL_MIN(sl_type_bytes(&program->params[order[i].param].type), most);
        if (program->params[order[i].param].adapter && !adapters)
            continue;
        sl_hash_add(&hasher, order[i].name, strlen(order[i].name) + 1);
        for (size_t at = 0; at < bytes;) {
            size_t n = SL_MIN(bytes - at, (size_t) SL_PARAM_BUFFER_BYTES);
            SL_TRY_GOTO(sl_store_read_part(&weight, at, store->buffer, n), done);
            sl_hash_add(&hasher, store->buffer, n);
            at += n;
        }
    }
    *hash = sl_hash_end(&hasher);
done:
    sl_free(order);
    return status;
}

sl_status sl_store_hash(sl_store *store, uint64_t *hash)
{
    return hash_params(store, true, SIZE_MAX, hash);
}

sl_status sl_store_hash_base(sl_store *store, uint64_t *hash)
{
    return hash_params(store, false, 64 << 10, hash);
}
