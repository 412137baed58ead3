/* Streams of the CPU device: a queue, a thread that serves it, and events between them.
 *
 *     host     ──push──▶ [ | | | | ] ──▶ thread (runs kernels on its pool, copies, records, waits)
 *                issued ─┘         └─ done
 *
 * A queue is a ring of commands with two counters, `issued` (written by the host alone) and `done` (by the thread alone);
 * neither takes a lock. An event holds the number of the step that recorded it last, so nothing is reset between steps.
 *
 * Sleeping. A thread that finds nothing to do spins for about as long as a futex call takes and then sleeps: on two cores
 * a spinning thread takes time from threads that work. To sleep it announces in `wants` what it waits for, looks once more, and
 * only then waits on its `bell`. A thread that makes a condition true stores it first and reads `wants` second. All four accesses
 * are sequentially consistent, so at least one of the two sees the other: no wake-up is lost, and a thread that is not
 * asleep for exactly this reason costs no system call. */
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/mem.h"
#include "device/cpu/runtime/cpu.h"

enum { SPINS = 100, WANTS_NOTHING = -1, WANTS_COMMANDS = -2, WANTS_DRAIN = -3 };

/* A thread that can sleep: a stream's thread or the host's. */
typedef struct sleeper {
    alignas(64) atomic_int_least64_t wants;
    atomic_uint bell;
} sleeper;

typedef struct queue {
    alignas(64) atomic_uint_least64_t issued;
    alignas(64) atomic_uint_least64_t done;
    sleeper thread;
    sl_command *commands;
    sl_pool *pool;
    sl_cpu_streams *streams;
    pthread_t handle;
    uint64_t first; /* `issued` at the step's beginning; the host's alone */
} queue;

struct sl_cpu_streams {
    queue queues[SL_STREAM_COUNT];
    sleeper host;
    atomic_bool stop;
    atomic_uint_least64_t *events; /* step that recorded it */
    uint64_t *recorded;            /* the same when it was issued: the host's alone */
    int64_t max_commands, max_events;
    uint64_t step;
    int64_t step_start_ns;
    uint64_t host_waits;
    int started;
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void ring(sleeper *who, int64_t what)
{
    if (atomic_load(&who->wants) != what)
        return;
    atomic_fetch_add(&who->bell, 1);
    syscall(SYS_futex, &who->bell, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* What one can wait for; `n` is a count of commands or an event. */
typedef bool (*condition)(queue *q, int64_t n);

static bool has_command(queue *q, int64_t taken)
{
    return atomic_load(&q->issued) != (uint64_t) taken || atomic_load(&q->streams->stop);
}

static bool is_recorded(queue *q, int64_t event)
{
    return atomic_load(&q->streams->events[event]) == q->streams->step;
}

static bool is_drained(queue *q, int64_t unused)
{
    (void) unused;
    return atomic_load(&q->done) == atomic_load_explicit(&q->issued, memory_order_relaxed);
}

/* Returns when the condition holds; tells how often that took a sleep. */
static uint64_t await(sleeper *who, int64_t what, condition holds, queue *q, int64_t n)
{
    for (int i = 0; i < SPINS; i++) {
        if (holds(q, n))
            return 0;
        relax();
    }
    for (uint64_t sleeps = 0;; sleeps++) {
        unsigned bell = atomic_load(&who->bell);
        atomic_store(&who->wants, what);
        bool ready = holds(q, n);
        if (!ready)
            syscall(SYS_futex, &who->bell, FUTEX_WAIT_PRIVATE, bell, NULL, NULL, 0);
        atomic_store(&who->wants, WANTS_NOTHING);
        if (ready)
            return sleeps;
    }
}

static double seconds_since(const sl_cpu_streams *streams)
{
    return (double) (sl_clock_ns() - streams->step_start_ns) * 1e-9;
}

static void execute(queue *q, const sl_command *command)
{
    sl_cpu_streams *streams = q->streams;
    const sl_cpu_kernel *kernel = command->kernel; /* NULL: the op's reference */
    if (command->kind == SL_COMMAND_WAIT) {
        await(&q->thread, command->event, is_recorded, q, command->event);
        return;
    }
    if (command->kind == SL_COMMAND_RECORD) {
        atomic_store(&streams->events[command->event], streams->step);
        for (int s = 0; s < SL_STREAM_COUNT; s++)
            ring(&streams->queues[s].thread, command->event);
        return;
    }
    double start = seconds_since(streams);
    if (command->kind == SL_COMMAND_COPY)
        sl_cpu_copy(command->to, command->from, command->bytes);
    else if (kernel)
        kernel->run(command->launch, q->pool);
    else
        sl_op(command->launch->op)->reference(command->launch);
    if (command->span)
        *command->span = (sl_span){start, seconds_since(streams)};
}

static void *serve(void *argument)
{
    queue *q = argument;
    sl_cpu_streams *streams = q->streams;
    for (uint64_t taken = 0;; taken++) {
        await(&q->thread, WANTS_COMMANDS, has_command, q, (int64_t) taken);
        if (atomic_load_explicit(&q->issued, memory_order_acquire) == taken)
            return NULL; /* stopped, with nothing left to do */
        execute(q, &q->commands[taken % (uint64_t) streams->max_commands]);
        atomic_store(&q->done, taken + 1);
        if (atomic_load_explicit(&q->issued, memory_order_relaxed) == taken + 1)
            ring(&streams->host, WANTS_DRAIN);
    }
}

static sl_status start_threads(sl_cpu_streams *streams)
{
    sigset_t all, before; /* signals belong to the program's own threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = 0;
    for (int s = 0; s < SL_STREAM_COUNT && !error; s++) {
        error = pthread_create(&streams->queues[s].handle, NULL, serve, &streams->queues[s]);
        streams->started += !error;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return sl_fail(SL_E_MEMORY, "the system refused a thread for stream %d of %d; raise ulimit -u",
                       streams->started + 1, SL_STREAM_COUNT);
    return SL_OK;
}

sl_status sl_cpu_streams_create(int64_t max_commands, int64_t max_events, sl_pool *const pools[SL_STREAM_COUNT],
                                sl_cpu_streams **out)
{
    sl_cpu_streams *streams;
    sl_status status;
    SL_TRY(sl_alloc_aligned(&streams, 1, sizeof *streams, 64));
    streams->max_commands = SL_MAX(max_commands, 1);
    streams->max_events = max_events;
    streams->host.wants = WANTS_NOTHING;
    for (int s = 0; s < SL_STREAM_COUNT; s++) {
        queue *q = &streams->queues[s];
        q->streams = streams;
        q->pool = pools[s];
        q->thread.wants = WANTS_NOTHING;
        SL_TRY_GOTO(sl_alloc(&q->commands, streams->max_commands, sizeof *q->commands), fail);
    }
    SL_TRY_GOTO(sl_alloc(&streams->events, SL_MAX(max_events, 1), sizeof *streams->events), fail);
    SL_TRY_GOTO(sl_alloc(&streams->recorded, SL_MAX(max_events, 1), sizeof *streams->recorded), fail);
    SL_TRY_GOTO(start_threads(streams), fail);
    *out = streams;
    return SL_OK;
fail:
    sl_cpu_streams_destroy(streams);
    return status;
}

void sl_cpu_streams_destroy(sl_cpu_streams *streams)
{
    if (!streams)
        return;
    atomic_store(&streams->stop, true);
    for (int s = 0; s < streams->started; s++)
        ring(&streams->queues[s].thread, WANTS_COMMANDS);
    for (int s = 0; s < streams->started; s++)
        pthread_join(streams->queues[s].handle, NULL);
    for (int s = 0; s < SL_STREAM_COUNT; s++)
        sl_free(streams->queues[s].commands);
    sl_free(streams->events);
    sl_free(streams->recorded);
    sl_free(streams);
}

void sl_cpu_streams_begin(sl_cpu_streams *streams)
{
    streams->step++; /* the threads are drained; the first push publishes it */
    streams->step_start_ns = sl_clock_ns();
    for (int s = 0; s < SL_STREAM_COUNT; s++)
        streams->queues[s].first = atomic_load_explicit(&streams->queues[s].issued, memory_order_relaxed);
}

sl_status sl_cpu_streams_push(sl_cpu_streams *streams, sl_stream stream, const sl_command *command)
{
    queue *q = &streams->queues[stream];
    uint64_t issued = atomic_load_explicit(&q->issued, memory_order_relaxed);
    if (issued - q->first >= (uint64_t) streams->max_commands)
        return sl_fail(SL_E_INTERNAL, "stream %s: more than the %lld commands per step the device was opened for",
                       sl_streams[stream].name, (long long) streams->max_commands);
    SL_TRY(sl_event_issue(streams->recorded, streams->max_events, streams->step, stream, command));
    q->commands[issued % (uint64_t) streams->max_commands] = *command;
    atomic_store(&q->issued, issued + 1);
    ring(&q->thread, WANTS_COMMANDS);
    return SL_OK;
}

void sl_cpu_streams_finish(sl_cpu_streams *streams)
{
    for (int s = 0; s < SL_STREAM_COUNT; s++)
        streams->host_waits += await(&streams->host, WANTS_DRAIN, is_drained, &streams->queues[s], 0);
}

uint64_t sl_cpu_streams_host_waits(const sl_cpu_streams *streams)
{
    return streams->host_waits;
}
