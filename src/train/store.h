/*
 * The persistent state of a run, parameter by parameter: weights, moments, master weights, wherever they live. Initialisation,
 * checkpoints and the weights' hash stream it through one small buffer; none of them knows of tiers, addresses or groups.
 */
#ifndef SL_TRAIN_STORE_H
#define SL_TRAIN_STORE_H

#include "core/pool.h"
#include "engine/engine.h"
#include "model/safetensors.h"
#include "program/program.h"

/* What a parameter consists of: its weight, the states of the optimizer from SL_PART_STATE on, and the master copy. */
typedef int32_t sl_part;
enum { SL_PART_WEIGHT, SL_PART_STATE, SL_PART_MASTER = SL_PART_STATE + SL_STATE_SLOTS, SL_PART_COUNT };

/* Bytes of a persistent object, between steps: the engine, or plain memory in tests. */
typedef struct sl_store_access {
    void *context; /* both may be called from several threads at a time */
    sl_status (*read)(void *context, int32_t object, size_t offset, void *bytes, size_t length);
    sl_status (*write)(void *context, int32_t object, size_t offset, const void *bytes,
                       size_t length); /* NULL: zeros */
} sl_store_access;

sl_store_access sl_store_engine(sl_engine *engine);

typedef struct sl_store {
    const sl_program *program;
    sl_store_access access;
    void *buffer;                                     /* SL_PARAM_BUFFER_BYTES */
    void (*progress)(void *context, double fraction); /* of weights being read or initialized; NULL: not reported */
    void *progress_context;
} sl_store;

sl_status sl_store_open(sl_store *store, const sl_program *program, sl_store_access access);
void sl_store_close(sl_store *store);

/* Frozen parameters have weights alone. */
bool sl_store_has(const sl_store *store, sl_part part, int32_t param);
/* What stands before tensor names in optimizer.safetensors: "moment1."; "" for weights. */
const char *sl_store_prefix(sl_part part, char out[32]);
sl_dtype sl_store_dtype(const sl_store *store, sl_part part);
/* The parameter as this part is in files: itself or, of 8-bit codes, a vector of bytes of its name. */
sl_param sl_store_param(const sl_store *store, sl_part part, int32_t param);

/* A parameter's part as an sl_param_io: the context for sl_store_read_part and sl_store_write_part. */
typedef struct sl_store_part {
    const sl_store *store;
    int32_t param;
    sl_part part;
} sl_store_part;
sl_status sl_store_read_part(void *store_part, size_t offset, void *bytes, size_t length);
sl_status sl_store_write_part(void *store_part, size_t offset, void *bytes, size_t length);

/* Everything, the padding between parameters too: nothing reads that, but it is then the same in every run. */
sl_status sl_store_zero(sl_store *store);
/* Zeroes everything, then draws the weights: element i of parameter `name` is a pure function of (seed, name, i), so neither
 * threads nor placement nor grouping change it. */
sl_status sl_store_init_random(sl_store *store, uint64_t seed, sl_pool *pool);
/* The same values without a store: an sl_param_io that draws a parameter's bytes wherever they are asked for. */
typedef struct sl_store_drawn {
    const sl_param *param;
    uint64_t seed;
    sl_dtype dtype; /* f32 or bf16 */
    sl_pool *pool;
} sl_store_drawn;
sl_status sl_store_read_drawn(void *store_drawn, size_t offset, void *bytes, size_t length);
/* Zeroes everything, then takes the weights from Hugging Face's files: all of them, with the right shapes and finite. Adapters have files
 * of their own and stay zero. */
sl_status sl_store_init_from(sl_store *store, sl_tensors *tensors);
/* The adapters alone, in a store that holds the model: new ones, or those of a file. */
sl_status sl_store_init_adapters_random(sl_store *store, uint64_t seed, sl_pool *pool);
sl_status sl_store_init_adapters_from(sl_store *store, sl_tensors *tensors);
/* Over all weights in order of their names. */
sl_status sl_store_hash(sl_store *store, uint64_t *hash);
/* Of the model below the adapters: the first 64 KiB of every parameter, which tells apart any two that were trained. */
sl_status sl_store_hash_base(sl_store *store, uint64_t *hash);

#endif
