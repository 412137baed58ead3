/* Random numbers of one sample: a function of (seed, epoch, place in the epoch) alone, so that any thread may make any sample, and a
 * resumed run sees the same ones. */
#ifndef SL_IMAGE_DRAWS_H
#define SL_IMAGE_DRAWS_H

#include <stdint.h>

#include "core/rng.h"

typedef struct sl_draws {
    uint64_t key, place, epoch;
    uint32_t used;
} sl_draws;

static inline sl_draws sl_draws_of(uint64_t seed, uint64_t epoch, uint64_t place)
{
    return (sl_draws){seed ^ UINT64_C(0x696d616765), place, epoch, 0}; /* not the numbers that shuffle */
}

/* [0, 1) with 32 bits. */
static inline double sl_draw(sl_draws *draws)
{
    uint32_t n = draws->used++;
    sl_rng4 four = sl_philox(draws->key, draws->place, (draws->epoch << 20) | (n / 4));
    return four.v[n % 4] * (1.0 / 4294967296.0);
}

static inline double sl_draw_between(sl_draws *draws, double least, double most)
{
    return least + (most - least) * sl_draw(draws);
}

/* [0, count) */
static inline int64_t sl_draw_below(sl_draws *draws, int64_t count)
{
    return (int64_t) (sl_draw(draws) * (double) count);
}

#endif
