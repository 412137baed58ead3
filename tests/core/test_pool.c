/* The pool: every tile exactly once, whatever the number of threads, callers and wake-up races. */
#include "core/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "core/clock.h"
#include "core/fault.h"
#include "core/mem.h"
#include "test.h"

typedef struct job {
    sl_pool *pool;
    atomic_int *hits;
    int64_t *plain; /* written without atomics: TSan sees a missing order */
    atomic_int bad_thread, in_thread[64];
    atomic_int calls;
} job;

static void mark(void *context, int64_t tile, int thread)
{
    job *j = context;
    if (thread < 0 || thread >= sl_pool_threads(j->pool) || atomic_fetch_add(&j->in_thread[thread], 1) != 0)
        atomic_store(&j->bad_thread, 1);
    atomic_fetch_add(&j->hits[tile], 1);
    j->plain[tile] += tile;
    atomic_fetch_sub(&j->in_thread[thread], 1);
}

TEST(every_tile_once)
{
    enum { MOST = 2000 };
    static atomic_int hits[MOST];
    static int64_t plain[MOST];
    static const int64_t sizes[] = {0, 1, 2, 3, 7, 64, 1999};
    for (int threads = 0; threads <= 9; threads++) {
        sl_pool *pool;
        CHECK_OK(sl_pool_create(threads, &pool));
        CHECK(threads == 0 ? sl_pool_threads(pool) >= 1 : sl_pool_threads(pool) == threads);
        for (int64_t s = 0; s < SL_COUNT(sizes); s++) {
            memset(hits, 0, sizeof hits);
            memset(plain, 0, sizeof plain);
            job j = {.pool = pool, .hits = hits, .plain = plain};
            sl_pool_run(pool, mark, &j, sizes[s]);
            int64_t wrong = 0;
            for (int64_t i = 0; i < MOST; i++)
                wrong += hits[i] != (i < sizes[s]) || plain[i] != (i < sizes[s] ? i : 0);
            CHECK_MSG(wrong == 0, "%d threads, %d tiles: %d wrong", threads, (int) sizes[s], (int) wrong);
            CHECK(!j.bad_thread);
        }
        sl_pool_destroy(pool);
    }
    sl_pool_destroy(NULL);
}

/* Many tiny runs: each races with workers that fall asleep, wake late or are still leaving the run before. */
TEST(stress_of_tiny_runs)
{
    enum { TILES = 5 };
    static atomic_int hits[TILES];
    static int64_t plain[TILES];
    sl_pool *pool;
    CHECK_OK(sl_pool_create(4, &pool));
    job j = {.pool = pool, .hits = hits, .plain = plain};
    int64_t start = sl_clock_ns(), runs = 0;
    for (; runs < 70000 && (runs < 100 || sl_clock_ns() - start < 2000000000); runs++)
        sl_pool_run(pool, mark, &j, TILES); /* more than 65,536: the generation wraps */
    for (int i = 0; i < TILES; i++) {
        CHECK_I64(hits[i], runs);
        CHECK_I64(plain[i], runs * i);
    }
    printf("     %.2f us per run of %d empty tiles, %d runs\n", (double) (sl_clock_ns() - start) / 1e3 / (double) runs,
           TILES, (int) runs);
    sl_pool_destroy(pool);
}

static void inner(void *context, int64_t tile, int thread)
{
    job *j = context;
    (void) tile;
    if (thread < 0 || thread >= sl_pool_threads(j->pool) || atomic_load(&j->in_thread[thread]) != 1)
        atomic_store(&j->bad_thread, 1); /* not the thread of the tile around us */
    atomic_fetch_add(&j->calls, 1);
}

static void outer(void *context, int64_t tile, int thread)
{
    job *j = context;
    (void) tile;
    atomic_fetch_add(&j->in_thread[thread], 1);
    sl_pool_run(j->pool, inner, j, 10);
    atomic_fetch_sub(&j->in_thread[thread], 1);
}

TEST(nested_runs_stay_in_their_thread)
{
    sl_pool *pool;
    CHECK_OK(sl_pool_create(3, &pool));
    job j = {.pool = pool};
    sl_pool_run(pool, outer, &j, 50);
    CHECK_I64(j.calls, 500);
    CHECK(!j.bad_thread);
    sl_pool_run(pool, inner, &j, 0);
    sl_pool_destroy(pool);
}

static void *run_many(void *argument)
{
    job *j = argument;
    for (int i = 0; i < 300; i++)
        sl_pool_run(j->pool, mark, j, 8);
    return NULL;
}

TEST(callers_take_turns)
{
    static atomic_int hits[8];
    static int64_t plain[8];
    sl_pool *pool;
    CHECK_OK(sl_pool_create(3, &pool));
    job j = {.pool = pool, .hits = hits, .plain = plain};
    pthread_t callers[4];
    for (int i = 0; i < 4; i++)
        REQUIRE(pthread_create(&callers[i], NULL, run_many, &j) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(callers[i], NULL);
    for (int i = 0; i < 8; i++) {
        CHECK_I64(hits[i], 1200);
        CHECK_I64(plain[i], 1200 * i);
    }
    CHECK(!j.bad_thread);
    sl_pool_destroy(pool);
}

static void sleep_in_worker(void *context, int64_t tile, int thread)
{
    (void) context, (void) tile;
    if (thread)
        usleep(3000); /* the caller runs dry first and has to sleep */
    else
        usleep(500);
}

TEST(the_caller_sleeps_until_the_last_worker)
{
    sl_pool *pool;
    CHECK_OK(sl_pool_create(3, &pool));
    for (int i = 0; i < 20; i++)
        sl_pool_run(pool, sleep_in_worker, NULL, 4);
    sl_pool_destroy(pool);
}

typedef struct meeting {
    atomic_int arrived;
    int threads;
} meeting;

static void meet(void *context, int64_t tile, int thread)
{
    meeting *m = context;
    int64_t start = sl_clock_ns();
    (void) tile, (void) thread;
    atomic_fetch_add(&m->arrived, 1);
    while (atomic_load(&m->arrived) < m->threads && sl_clock_ns() - start < 20000000000)
        usleep(100);
}

/* Every thread takes part, in the first run of a pool already: tiles that wait for one another end at once. */
TEST(all_threads_work_at_once)
{
    for (int threads = 2; threads <= 4; threads++) {
        sl_pool *pool;
        CHECK_OK(sl_pool_create(threads, &pool));
        for (int run = 0; run < 3; run++) {
            meeting m = {.threads = threads};
            int64_t start = sl_clock_ns();
            sl_pool_run(pool, meet, &m, threads);
            CHECK_I64(m.arrived, threads);
            REQUIRE(sl_clock_ns() - start < 20000000000);
        }
        sl_pool_destroy(pool);
    }
}

static void count_serially(void *context, int64_t tile, int thread)
{
    int64_t *next = context;
    if (*next == tile && thread == 0)
        ++*next;
}

TEST(no_pool_is_serial)
{
    int64_t next = 0;
    sl_pool_run(NULL, count_serially, &next, 12);
    CHECK_I64(next, 12);
    CHECK_I64(sl_pool_threads(NULL), 1);
}

TEST(run_allocates_nothing)
{
    static atomic_int hits[100];
    static int64_t plain[100];
    sl_pool *pool;
    CHECK_OK(sl_pool_create(2, &pool));
    job j = {.pool = pool, .hits = hits, .plain = plain};
    uint64_t before = sl_heap_calls();
    for (int i = 0; i < 100; i++)
        sl_pool_run(pool, mark, &j, 100);
    CHECK_U64(sl_heap_calls(), before);
    sl_pool_destroy(pool);
}

TEST(failures_leave_nothing_behind)
{
    size_t before = sl_heap_bytes();
    sl_pool *pool = NULL;
    CHECK_FAILS(sl_pool_create(-1, &pool), SL_E_USAGE);
    CHECK_FAILS(sl_pool_create(100000, &pool), SL_E_USAGE);
    for (int k = 1; k <= 2; k++) {
        sl_fault_arm(SL_FAULT_ALLOC, k);
        CHECK_FAILS(sl_pool_create(2, &pool), SL_E_MEMORY);
        sl_fault_arm(SL_FAULT_ALLOC, 0);
    }
    CHECK(pool == NULL);
    CHECK_I64(sl_heap_bytes(), before);
}

/* Workers take no signals; whoever made them goes on taking its own. */
TEST(signals_are_left_alone)
{
    sigset_t before, after;
    sl_pool *pool;
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &before) == 0);
    CHECK_OK(sl_pool_create(3, &pool));
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &after) == 0);
    for (int i = 1; i < 32; i++)
        CHECK_I64(sigismember(&after, i), sigismember(&before, i));
    sl_pool_destroy(pool);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(every_tile_once);
    RUN(stress_of_tiny_runs);
    RUN(nested_runs_stay_in_their_thread);
    RUN(callers_take_turns);
    RUN(the_caller_sleeps_until_the_last_worker);
    RUN(all_threads_work_at_once);
    RUN(no_pool_is_serial);
    RUN(run_allocates_nothing);
    RUN(failures_leave_nothing_behind);
    RUN(signals_are_left_alone);
    return test_end();
}
