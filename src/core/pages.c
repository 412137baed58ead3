/* Touching ahead. Memory costs most when it is first touched: the kernel clears it, and on a virtual machine the hypervisor may
 * have to find it first. 100 GiB took 22 s on all cores of one, time in which the program did nothing else. Begun while costs
 * are measured on an accelerator, with most of the cores and at the lowest priority there is, it is hidden behind that. The
 * size is a guess made before there is a plan; mremap moves page tables, not pages, so being wrong costs nothing. */
#include "core/pages.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "core/fault.h"
#include "core/mem.h"
#include "core/pool.h"
#include "core/text.h"

#define PIECE ((size_t) 2 << 20) /* a huge page: taken, touched, then looked up whether to stop */
enum { LEAST_PAGE = 4096, MOST_TOUCHERS = 64 };

static sl_status no_memory(size_t bytes)
{
    char need[32];
    return sl_fail(SL_E_MEMORY, "the system has no %s for an arena; lower --device-mem or --host-mem",
                   sl_format_bytes(bytes, need));
}

sl_status sl_pages_map(size_t bytes, void **out)
{
    void *pages = MAP_FAILED;
    if (!sl_fault_hit(SL_FAULT_ALLOC))
        pages = mmap(NULL, SL_MAX(bytes, (size_t) 1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return no_memory(bytes);
    madvise(pages, bytes, MADV_HUGEPAGE); /* a wish: fewer TLB misses where the kernel grants it */
    *out = pages;
    return SL_OK;
}

void sl_pages_unmap(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, SL_MAX(bytes, (size_t) 1));
}

struct sl_pages_ahead {
    char *memory; /* NULL: taken */
    size_t bytes;
    atomic_size_t next; /* piece to touch */
    atomic_bool stop;
    int touchers;
    pthread_t threads[MOST_TOUCHERS];
};

static void set_policy(pthread_t thread, int policy)
{
    struct sched_param none = {0};
    pthread_setschedparam(thread, policy, &none); /* where it may not, they touch like anybody else */
}

static void *touch(void *argument)
{
    sl_pages_ahead *ahead = argument;
    set_policy(pthread_self(), SCHED_IDLE);
    for (;;) {
        size_t begin = atomic_fetch_add(&ahead->next, PIECE);
        if (begin >= ahead->bytes || atomic_load(&ahead->stop))
            return NULL;
        for (size_t at = begin; at < SL_MIN(begin + PIECE, ahead->bytes); at += LEAST_PAGE)
            ((volatile char *) ahead->memory)[at] = 0;
    }
}

void sl_pages_ahead_stop(sl_pages_ahead *ahead)
{
    if (!ahead)
        return;
    atomic_store(&ahead->stop, true);
    for (; ahead->touchers > 0; ahead->touchers--) {
        set_policy(ahead->threads[ahead->touchers - 1], SCHED_OTHER); /* no longer waits for an idle core */
        pthread_join(ahead->threads[ahead->touchers - 1], NULL);
    }
}

/* Signals are for the program's own threads. No thread at all is fine too: then nothing is touched ahead. */
void sl_pages_ahead_go_on(sl_pages_ahead *ahead)
{
    const int wanted = SL_MIN(SL_MAX(sl_pool_cores() * 3 / 4, 1), MOST_TOUCHERS);
    sigset_t all, before;
    if (!ahead || !ahead->memory)
        return;
    atomic_store(&ahead->stop, false);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (ahead->touchers < wanted && pthread_create(&ahead->threads[ahead->touchers], NULL, touch, ahead) == 0)
        ahead->touchers++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

sl_status sl_pages_ahead_begin(size_t bytes, sl_pages_ahead **out)
{
    sl_pages_ahead *ahead;
    SL_TRY(sl_alloc(&ahead, 1, sizeof *ahead));
    sl_status status = sl_pages_map(bytes, (void **) &ahead->memory);
    if (status != SL_OK) {
        sl_free(ahead);
        return status;
    }
    ahead->bytes = bytes;
    sl_pages_ahead_go_on(ahead);
    *out = ahead;
    return SL_OK;
}

size_t sl_pages_ahead_bytes(const sl_pages_ahead *ahead)
{
    return ahead && ahead->memory ? ahead->bytes : 0;
}

sl_status sl_pages_ahead_take(sl_pages_ahead *ahead, size_t bytes, void **out)
{
    if (!ahead || !ahead->memory)
        return sl_pages_map(bytes, out);
    sl_pages_ahead_stop(ahead);
    void *pages = mremap(ahead->memory, SL_MAX(ahead->bytes, (size_t) 1), SL_MAX(bytes, (size_t) 1), MREMAP_MAYMOVE);
    if (pages == MAP_FAILED)
        return no_memory(bytes);
    ahead->memory = NULL;
    *out = pages;
    return SL_OK;
}

void sl_pages_ahead_end(sl_pages_ahead *ahead)
{
    if (!ahead)
        return;
    sl_pages_ahead_stop(ahead);
    sl_pages_unmap(ahead->memory, ahead->bytes);
    sl_free(ahead);
}
