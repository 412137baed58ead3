/* A store in plain memory behind a real program, for tests of initialisation and checkpoints without device and plan. */
#ifndef SL_TESTS_MEMORY_STORE_H
#define SL_TESTS_MEMORY_STORE_H

#include "model/model.h"
#include "test.h"
#include "train/store.h"

typedef struct memory_store {
    sl_model model;
    sl_program *program;
    unsigned char **bytes; /* by object; persistent ones only */
    sl_store store;
} memory_store;

static sl_status memory_read(void *context, int32_t object, size_t offset, void *bytes, size_t length)
{
    memory_store *m = context;
    if (!m->bytes[object] || offset + length > m->program->objects[object].bytes) /* any thread: no CHECK */
        return sl_fail(SL_E_INTERNAL, "object %d has no bytes %zu to %zu", object, offset, offset + length);
    memcpy(bytes, m->bytes[object] + offset, length);
    return SL_OK;
}

static sl_status memory_write(void *context, int32_t object, size_t offset, const void *bytes, size_t length)
{
    memory_store *m = context;
    if (!m->bytes[object] || offset + length > m->program->objects[object].bytes) /* any thread: no CHECK */
        return sl_fail(SL_E_INTERNAL, "object %d has no bytes %zu to %zu", object, offset, offset + length);
    if (bytes)
        memcpy(m->bytes[object] + offset, bytes, length);
    else
        memset(m->bytes[object] + offset, 0, length);
    return SL_OK;
}

static inline void memory_open(memory_store *m, const char *model, sl_precision precision, sl_optimizer optimizer)
{
    memset(m, 0, sizeof *m);
    CHECK_OK(sl_model_find(model, &m->model));
    sl_program_config config = {
        .chunking = {8, 1, 8}, .precision = precision, .optimizer = optimizer, .max_segments = 1};
    CHECK_OK(sl_program_create(&config, sl_build_model, &m->model, &m->program));
    CHECK_OK(sl_alloc(&m->bytes, m->program->n_objects, sizeof *m->bytes));
    for (int32_t i = 0; i < m->program->n_objects; i++)
        if (m->program->objects[i].persistent) {
            CHECK_OK(sl_alloc(&m->bytes[i], m->program->objects[i].bytes, 1));
            memset(m->bytes[i], 0xa5, m->program->objects[i].bytes); /* device memory is not zero by itself */
        }
    CHECK_OK(sl_store_open(&m->store, m->program, (sl_store_access){m, memory_read, memory_write}));
}

static inline void memory_close(memory_store *m)
{
    sl_store_close(&m->store);
    for (int32_t i = 0; i < m->program->n_objects; i++)
        sl_free(m->bytes[i]);
    sl_free(m->bytes);
    sl_program_destroy(m->program);
}

/* Zero padding, everything else different from element to element and finite. */
static inline void memory_scramble(memory_store *m, uint64_t seed)
{
    CHECK_OK(sl_store_zero(&m->store));
    for (int32_t p = 0; p < m->program->n_params; p++)
        for (sl_part part = 0; part < SL_PART_COUNT; part++) {
            if (!sl_store_has(&m->store, part, p))
                continue;
            sl_store_part at = {&m->store, p, part};
            int64_t n = sl_type_count(&m->program->params[p].type);
            size_t width = sl_dtype_bytes(sl_store_dtype(&m->store, part));
            unsigned char *values;
            CHECK_OK(sl_alloc(&values, n, width));
            for (int64_t i = 0; i < n; i++) {
                uint32_t bits =
                    (uint32_t) ((seed + 1) * 2654435761u + (uint64_t) i * 40503u) ^ (uint32_t) (p * 8 + (int) part);
                bits = ((bits * 2246822519u) & 0x807fffffu) | 0x3f000000u; /* in +-[0.5, 1) */
                uint32_t value = width == 4 ? bits : bits >> 16;
                memcpy(values + (size_t) i * width, &value, width);
            }
            CHECK_OK(sl_store_write_part(&at, 0, values, (size_t) n * width));
            sl_free(values);
        }
}

static inline bool memory_equal(const memory_store *a, const memory_store *b)
{
    for (int32_t i = 0; i < a->program->n_objects; i++)
        if (a->bytes[i] && memcmp(a->bytes[i], b->bytes[i], a->program->objects[i].bytes) != 0)
            return false;
    return true;
}

#endif
