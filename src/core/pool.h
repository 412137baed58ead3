/* A pool of worker threads for data-parallel loops. Work is cut into tiles by the caller, independently of the number
 * of threads, and threads take tiles dynamically: so results never depend on the thread count, and a core that is busy
 * elsewhere (a copy, another program) slows nothing but its own share. */
#ifndef SL_CORE_POOL_H
#define SL_CORE_POOL_H

#include <stdint.h>

#include "core/status.h"

typedef struct sl_pool sl_pool;

/* Cores this process may use. */
int sl_pool_cores(void);
/* What --threads may be: 0 (one per core) up to a few per core, as tests of other machines' counts want; more can only be a mistake. */
sl_status sl_pool_check_threads(int64_t threads);

/* `threads` in all, the caller of sl_pool_run included; 0 = one per core the process may use. */
sl_status sl_pool_create(int threads, sl_pool **pool);
void sl_pool_destroy(sl_pool *pool);
int sl_pool_threads(const sl_pool *pool);

typedef void (*sl_tile_fn)(void *context, int64_t tile, int thread); /* thread in [0, sl_pool_threads) */

/* Runs fn for tiles 0..tiles-1 and returns when all are done. No allocation. One run at a time per pool (others wait).
 * pool NULL: serial, in the calling thread. */
void sl_pool_run(sl_pool *pool, sl_tile_fn fn, void *context, int64_t tiles);

#endif
