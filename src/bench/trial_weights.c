/*
 * Weights for a trial. A run's own initial weights are a function of every element's name and place, which takes a
 * minute for billions of them; a trial only needs values of the right spread that are the same in every precision and
 * on every device. So one block of random values is drawn, and each parameter is that block, begun somewhere else and
 * scaled, over and over.
 */
#include <string.h>

#include "bench/trial.h"
#include "core/bf16.h"
#include "core/hash.h"
#include "core/rng.h"

enum { BLOCK = (1 << 20) - 3 }; /* no multiple of any row's length, so that no two rows are alike */

typedef struct blocks {
    float *drawn, *scaled;
    sl_bf16 *rounded;
} blocks;

static float normal(uint32_t word)
{
    int sum = (int) (word & 255) + (int) (word >> 8 & 255) + (int) (word >> 16 & 255) + (int) (word >> 24);
    return (float) (sum - 510) / 147.8f;
}

static sl_status write_part(sl_store *store, int32_t p, sl_part part, const void *block, size_t width)
{
    sl_store_part at = {store, p, part};
    size_t elements = (size_t) sl_type_count(&store->program->params[p].type);
    union {
        const void *from;
        void *bytes;
    } data = {block}; /* an sl_param_io takes no const */
    for (size_t first = 0; first < elements; first += BLOCK)
        SL_TRY(sl_store_write_part(&at, first * width, data.bytes, SL_MIN(elements - first, (size_t) BLOCK) * width));
    return SL_OK;
}

static sl_status write_param(sl_store *store, int32_t p, const blocks *b)
{
    const sl_param *param = &store->program->params[p];
    int64_t n = SL_MIN(sl_type_count(&param->type), (int64_t) BLOCK);
    uint64_t start = sl_hash64(param->name, strlen(param->name), 0) % BLOCK;
    bool drawn = param->init == SL_INIT_NORMAL || param->init == SL_INIT_TRUNCATED;
    float constant = param->init == SL_INIT_ONES ? 1 : 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = start + (uint64_t) i;
        b->scaled[i] = drawn ? param->init_std * b->drawn[at < BLOCK ? at : at - BLOCK] : constant;
        b->rounded[i] = sl_f32_to_bf16(b->scaled[i]);
    }
    if (sl_store_has(store, SL_PART_MASTER))
        SL_TRY(write_part(store, p, SL_PART_MASTER, b->scaled, sizeof *b->scaled));
    if (sl_store_dtype(store, SL_PART_WEIGHT) == SL_BF16)
        return write_part(store, p, SL_PART_WEIGHT, b->rounded, sizeof *b->rounded);
    return write_part(store, p, SL_PART_WEIGHT, b->scaled, sizeof *b->scaled);
}

sl_status sl_trial_weights(sl_store *store, uint64_t seed)
{
    blocks b = {0};
    sl_region *region;
    SL_TRY(sl_region_create(&region));
    sl_status status;
    SL_TRY_GOTO(sl_region_alloc(region, &b.drawn, BLOCK + 3, sizeof *b.drawn), done);
    SL_TRY_GOTO(sl_region_alloc(region, &b.scaled, BLOCK, sizeof *b.scaled), done);
    SL_TRY_GOTO(sl_region_alloc(region, &b.rounded, BLOCK, sizeof *b.rounded), done);
    for (int64_t i = 0; i < BLOCK; i += 4) {
        sl_rng4 words = sl_philox(seed, (uint64_t) i, 99);
        for (int j = 0; j < 4; j++)
            b.drawn[i + j] = normal(words.v[j]);
    }
    SL_TRY_GOTO(sl_store_zero(store), done);
    for (int32_t p = 0; p < store->program->n_params; p++)
        SL_TRY_GOTO(write_param(store, p, &b), done);
done:
    sl_region_destroy(region);
    return status;
}
