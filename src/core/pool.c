/* One 32-bit word, the gate, says everything a worker must know:
 *
 *      31            16   15   14             0
 *     | generation     | open | workers inside |
 *
 * run():   write the job, open the gate with a new generation, take tiles like everyone, close the gate, wait until
 *          nobody is inside
 * worker:  wait for an open gate of a new generation, enter by compare-and-swap (+1), take tiles, leave (-1)
 *
 * A worker that wakes late finds the gate closed and goes back to sleep; no thread ever waits for it, so a core that is
 * busy with a copy costs only its own share. The obvious barrier "all workers check in, all check out" was not taken
 * for that reason. Entering is what makes reading the job safe: it is rewritten only when no worker is inside.
 *
 * Waiting is a short spin (about as long as a futex round trip), then a futex sleep: copy threads and the workers share
 * the cores, and a spinning thread takes time from threads that work. */
#include "core/pool.h"

#include <inttypes.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/mem.h"

#define INSIDE_MASK 0x7fffu
#define OPEN_BIT 0x8000u
#define GENERATION_ONE 0x10000u
enum { SPINS = 200, MOST_THREADS = 1024 };

typedef struct worker {
    sl_pool *pool;
    pthread_t handle;
    int index;
} worker;

struct sl_pool {
    alignas(64) atomic_int_least64_t next; /* tile to take */
    alignas(64) atomic_uint gate;
    atomic_uint done; /* changes when the last worker leaves a closed gate behind which the caller sleeps */
    atomic_int sleepers;
    atomic_bool caller_sleeps, stop;
    sl_tile_fn fn; /* the job: written while no worker is inside */
    void *context;
    int64_t tiles;
    int threads, started;
    pthread_mutex_t run_lock;
    worker *workers;
};

/* Which pool's tile this thread is inside of, and as which thread: a nested run stays there, serially. */
static _Thread_local sl_pool *current_pool;
static _Thread_local int current_thread;

static void futex_wait(atomic_uint *word, unsigned expected)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake_all(atomic_uint *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 0x7fffffff, NULL, NULL, 0);
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void take_tiles(sl_pool *pool, int thread)
{
    sl_pool *outer_pool = current_pool;
    int outer_thread = current_thread;
    current_pool = pool, current_thread = thread;
    int64_t tiles = pool->tiles, tile;
    while ((tile = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed)) < tiles)
        pool->fn(pool->context, tile, thread);
    current_pool = outer_pool, current_thread = outer_thread;
}

static bool is_new_job(unsigned gate, unsigned seen)
{
    return (gate & OPEN_BIT) && gate / GENERATION_ONE != seen;
}

/* Returns the gate value that shows a job this worker has not been in, or any when the pool stops. Counting oneself
 * among the sleepers before the futex compares the gate, and the opener changing the gate before it counts the
 * sleepers, leaves no order in which a wake-up is lost. */
static unsigned wait_for_job(sl_pool *pool, unsigned seen)
{
    unsigned gate = atomic_load(&pool->gate);
    for (int i = 0; i < SPINS && !is_new_job(gate, seen); i++) {
        relax();
        gate = atomic_load(&pool->gate);
    }
    while (!is_new_job(gate, seen) && !atomic_load(&pool->stop)) {
        atomic_fetch_add(&pool->sleepers, 1);
        futex_wait(&pool->gate, gate);
        atomic_fetch_sub(&pool->sleepers, 1);
        gate = atomic_load(&pool->gate);
    }
    return gate;
}

static void leave(sl_pool *pool)
{
    unsigned after = atomic_fetch_sub(&pool->gate, 1) - 1;
    if (!(after & OPEN_BIT) && (after & INSIDE_MASK) == 0 && atomic_load(&pool->caller_sleeps)) {
        atomic_fetch_add(&pool->done, 1);
        futex_wake_all(&pool->done);
    }
}

static void *work(void *argument)
{
    worker *self = argument;
    sl_pool *pool = self->pool;
    unsigned seen = 0;
    for (;;) {
        unsigned gate = wait_for_job(pool, seen);
        if (atomic_load(&pool->stop))
            return NULL;
        if (!atomic_compare_exchange_weak(&pool->gate, &gate, gate + 1))
            continue;
        seen = gate / GENERATION_ONE;
        take_tiles(pool, self->index);
        leave(pool);
    }
}

/* Signals belong to the program's own threads: a worker must not run its handlers. */
static sl_status start_workers(sl_pool *pool)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = 0;
    for (int i = 0; i < pool->threads - 1 && !error; i++) {
        pool->workers[i] = (worker){.pool = pool, .index = i + 1};
        error = pthread_create(&pool->workers[i].handle, NULL, work, &pool->workers[i]);
        pool->started += !error;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return sl_fail(SL_E_MEMORY, "the system refused thread %d of %d; use fewer --threads or raise ulimit -u",
                       pool->started + 2, pool->threads);
    return SL_OK;
}

int sl_pool_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return SL_MAX(1, SL_MIN(CPU_COUNT(&set), MOST_THREADS));
    long online = sysconf(_SC_NPROCESSORS_ONLN); /* more cores than a cpu_set_t holds */
    return (int) SL_MAX(1, SL_MIN(online, MOST_THREADS));
}

sl_status sl_pool_check_threads(int64_t threads)
{
    int cores = sl_pool_cores(), most = SL_MIN(SL_MAX(16, 4 * cores), MOST_THREADS);
    if (threads < 0 || threads > most)
        return sl_fail(SL_E_USAGE,
                       "--threads %" PRId64
                       " is too %s: this process may use %d core%s; give 1 to %d, or 0 for one per core",
                       threads, threads < 0 ? "small" : "large", cores, cores == 1 ? "" : "s", most);
    return SL_OK;
}

sl_status sl_pool_create(int threads, sl_pool **out)
{
    SL_TRY(sl_pool_check_threads(threads));
    sl_pool *pool;
    SL_TRY(sl_alloc_aligned(&pool, 1, sizeof *pool, 64));
    pool->threads = threads ? threads : sl_pool_cores();
    pthread_mutex_init(&pool->run_lock, NULL);
    sl_status status;
    SL_TRY_GOTO(sl_alloc(&pool->workers, pool->threads, sizeof *pool->workers), fail);
    SL_TRY_GOTO(start_workers(pool), fail);
    *out = pool;
    return SL_OK;
fail:
    sl_pool_destroy(pool);
    return status;
}

void sl_pool_destroy(sl_pool *pool)
{
    if (!pool)
        return;
    atomic_store(&pool->stop, true);
    atomic_fetch_add(&pool->gate, GENERATION_ONE); /* a changed word: no worker falls asleep any more */
    futex_wake_all(&pool->gate);
    for (int i = 0; i < pool->started; i++)
        pthread_join(pool->workers[i].handle, NULL);
    pthread_mutex_destroy(&pool->run_lock);
    sl_free(pool->workers);
    sl_free(pool);
}

int sl_pool_threads(const sl_pool *pool)
{
    return pool ? pool->threads : 1;
}

static void open_gate(sl_pool *pool)
{
    unsigned gate = atomic_load_explicit(&pool->gate, memory_order_relaxed);
    atomic_store(&pool->gate, ((gate / GENERATION_ONE + 1) * GENERATION_ONE) | OPEN_BIT);
    if (atomic_load(&pool->sleepers) > 0)
        futex_wake_all(&pool->gate);
}

static void close_gate_and_wait(sl_pool *pool)
{
    unsigned gate = atomic_fetch_and(&pool->gate, ~OPEN_BIT) & ~OPEN_BIT;
    for (int i = 0; i < SPINS && (gate & INSIDE_MASK); i++) {
        relax();
        gate = atomic_load(&pool->gate);
    }
    while (gate & INSIDE_MASK) {
        unsigned done = atomic_load(&pool->done);
        atomic_store(&pool->caller_sleeps, true);
        gate = atomic_load(&pool->gate);
        if (gate & INSIDE_MASK)
            futex_wait(&pool->done, done);
        atomic_store(&pool->caller_sleeps, false);
        gate = atomic_load(&pool->gate);
    }
}

void sl_pool_run(sl_pool *pool, sl_tile_fn fn, void *context, int64_t tiles)
{
    bool nested = pool && pool == current_pool;
    if (!pool || nested) {
        for (int64_t tile = 0; tile < tiles; tile++)
            fn(context, tile, nested ? current_thread : 0);
        return;
    }
    if (tiles <= 0)
        return;
    pthread_mutex_lock(&pool->run_lock);
    pool->fn = fn, pool->context = context, pool->tiles = tiles;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    bool alone = tiles == 1 || pool->threads == 1;
    if (!alone)
        open_gate(pool);
    take_tiles(pool, 0);
    if (!alone)
        close_gate_and_wait(pool);
    pthread_mutex_unlock(&pool->run_lock);
}
