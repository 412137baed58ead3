#include "bench/peak.h"

#include <stddef.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/pool.h"
#include "device/throughput.h"

typedef struct peak_job {
    sl_fma_fn fn;
    int64_t rounds;
    double *flops, *sums; /* by tile; sums keep the work from being left out */
} peak_job;

static void run_tile(void *context, int64_t tile, int thread)
{
    peak_job *job = context;
    (void) thread;
    job->sums[tile] = job->fn(job->rounds, &job->flops[tile]);
}

static double run_all(sl_pool *pool, peak_job *job, int64_t tiles)
{
    double flops = 0, start = sl_clock_s();
    sl_pool_run(pool, run_tile, job, tiles);
    double seconds = sl_clock_s() - start;
    for (int64_t t = 0; t < tiles; t++)
        flops += job->flops[t];
    return flops / SL_MAX(seconds, 1e-9);
}

double sl_peak_measure(int bits, int threads, double seconds)
{
    sl_pool *pool;
    double *memory, best = 0, began = sl_clock_s();
    peak_job job = {.fn = sl_fma_here(bits), .rounds = 20000};
    if (!job.fn || sl_pool_create(threads, &pool) != SL_OK)
        return 0;
    int64_t tiles = 8 * (int64_t) sl_pool_threads(pool); /* more than threads: one that was held up hands over */
    if (sl_alloc(&memory, 2 * tiles, sizeof *memory) == SL_OK) {
        job.flops = memory;
        job.sums = memory + tiles;
        while (sl_clock_s() - began < seconds)
            best = SL_MAX(best, run_all(pool, &job, tiles));
        sl_free(memory);
    }
    sl_pool_destroy(pool);
    return best;
}
