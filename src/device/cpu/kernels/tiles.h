/* Cutting rows and elements into tiles. The sizes depend on shapes alone, never on the number of threads. */
#ifndef SL_DEVICE_CPU_TILES_H
#define SL_DEVICE_CPU_TILES_H

#include "core/pool.h"
#include "ops/op.h"

enum {
    TILE_ELEMENTS =
        16384,         /* of an elementwise kernel: small enough for the second cache, large enough to hide the pool */
    PARTIAL_ROWS = 32, /* rows that one partial sum over tokens covers */
};

static inline int64_t tile_count(int64_t items, int64_t per_tile)
{
    return (items + per_tile - 1) / per_tile;
}

/* Rows of `width` elements per tile. */
static inline int64_t tile_rows(int64_t width)
{
    return width >= TILE_ELEMENTS ? 1 : TILE_ELEMENTS / width;
}

/* The tile function `name`: the call, with `job` and `tile`, compiled once for each dtype, with a constant `bf16`. */
#define SL_CPU_TILES(name, job_type, ...)                     \
    static void name(void *context, int64_t tile, int thread) \
    {                                                         \
        const job_type *job = context;                        \
        (void) thread;                                        \
        if (job->bf16) {                                      \
            const bool bf16 = true;                           \
            __VA_ARGS__;                                      \
        } else {                                              \
            const bool bf16 = false;                          \
            __VA_ARGS__;                                      \
        }                                                     \
    }

#endif
