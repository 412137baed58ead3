/* The CPU device's streams, with kernels made for the purpose: order, overlap, no lost wake-ups, errors, no waiting host. */
#include <stdatomic.h>
#include <time.h>

#include "core/clock.h"
#include "core/mem.h"
#include "device/cpu/runtime/cpu.h"
#include "test.h"

static void nap(double seconds)
{
    struct timespec t = {0, (long) (seconds * 1e9)};
    nanosleep(&t, NULL);
}

/* A kernel that takes time without needing a core: sleeps for workspace_bytes microseconds. */
static void run_nap(const sl_launch *launch, sl_pool *pool)
{
    (void) pool;
    nap((double) launch->workspace_bytes * 1e-6);
}

/* out[0] += 1 without atomics: a race detector for whatever should be ordered. */
static void run_count(const sl_launch *launch, sl_pool *pool)
{
    (void) pool;
    ++*(int64_t *) launch->out[0].data;
}

static const sl_cpu_kernel nap_kernel = {.name = "nap", .run = run_nap};
static const sl_cpu_kernel count_kernel = {.name = "count", .run = run_count};

static sl_cpu_streams *make_streams(int64_t commands, int64_t events)
{
    sl_cpu_streams *streams;
    sl_pool *pools[SL_STREAM_COUNT] = {NULL};
    CHECK_OK(sl_cpu_streams_create(commands, events, pools, &streams));
    return streams;
}

static void push_run(sl_cpu_streams *s, sl_stream stream, const sl_cpu_kernel *kernel, const sl_launch *launch,
                     sl_span *span)
{
    sl_command c = {.kind = SL_COMMAND_RUN, .kernel = kernel, .launch = launch, .span = span};
    CHECK_OK(sl_cpu_streams_push(s, stream, &c));
}

static sl_status push_event(sl_cpu_streams *s, sl_stream stream, sl_command_kind kind, int64_t event)
{
    sl_command c = {.kind = kind, .event = event};
    return sl_cpu_streams_push(s, stream, &c);
}

/* A kernel that ends only when `want` kernels of its meeting have begun: it shows what runs at once on a machine as busy as you
 * like, where naps would have to be longer than any delay. Nobody comes for half a minute: `missed`. */
typedef struct meeting {
    atomic_int come, missed;
    int want;
} meeting;

static void run_meet(const sl_launch *launch, sl_pool *pool)
{
    (void) pool;
    meeting *m = launch->workspace;
    atomic_fetch_add(&m->come, 1);
    for (int i = 0; i < 30000 && atomic_load(&m->come) < m->want; i++)
        nap(1e-3);
    if (atomic_load(&m->come) < m->want)
        atomic_fetch_add(&m->missed, 1);
}

static const sl_cpu_kernel meet_kernel = {.name = "meet", .run = run_meet};

/* Four kernels and the host meet: had issuing waited for a kernel, or one stream for another, somebody would be missed. */
TEST(streams_overlap)
{
    sl_cpu_streams *s = make_streams(4, 1);
    meeting m = {.want = SL_STREAM_COUNT + 1};
    sl_launch launch = {.workspace = &m};
    sl_span spans[SL_STREAM_COUNT];
    sl_cpu_streams_begin(s);
    for (int i = 0; i < SL_STREAM_COUNT; i++)
        push_run(s, (sl_stream) i, &meet_kernel, &launch, &spans[i]);
    run_meet(&launch, NULL);
    sl_cpu_streams_finish(s);
    CHECK_MSG(m.missed == 0, "%d of %d waited in vain for the others", m.missed, m.want);
    for (int i = 0; i < SL_STREAM_COUNT; i++)
        for (int j = 0; j < SL_STREAM_COUNT; j++)
            CHECK_MSG(spans[i].start <= spans[j].end, "stream %d began at %g s, stream %d ended at %g s", i,
                      spans[i].start, j, spans[j].end);
    sl_cpu_streams_destroy(s);
}

/* A span holds the kernel's time. */
TEST(a_span_is_as_long_as_its_kernel)
{
    sl_cpu_streams *s = make_streams(1, 1);
    sl_launch launch = {.workspace_bytes = 60000};
    sl_span span;
    double start = sl_clock_s();
    sl_cpu_streams_begin(s);
    push_run(s, SL_STREAM_COMPUTE, &nap_kernel, &launch, &span);
    sl_cpu_streams_finish(s);
    double took = sl_clock_s() - start;
    CHECK_MSG(span.start >= 0 && span.end - span.start >= 0.055 && span.end <= took, "from %g to %g s of %g s",
              span.start, span.end, took);
    sl_cpu_streams_destroy(s);
}

TEST(a_stream_runs_in_order)
{
    sl_cpu_streams *s = make_streams(8, 1);
    sl_launch launch = {.workspace_bytes = 3000};
    sl_span spans[6];
    sl_cpu_streams_begin(s);
    for (int i = 0; i < 6; i++)
        push_run(s, SL_STREAM_COMPUTE, &nap_kernel, &launch, &spans[i]);
    sl_cpu_streams_finish(s);
    for (int i = 1; i < 6; i++)
        CHECK(spans[i].start >= spans[i - 1].end);
    sl_cpu_streams_destroy(s);
}

/* `second` waits for `first` by an event; `beside` waits for nobody: `first` ends only when it has begun. */
TEST(an_event_orders_two_streams)
{
    sl_cpu_streams *s = make_streams(8, 4);
    for (int step = 0; step < 3; step++) { /* events need no reset between steps */
        meeting m = {.want = 2};
        sl_launch meet = {.workspace = &m}, rest = {.workspace_bytes = 1000};
        sl_span first, second, beside;
        sl_cpu_streams_begin(s);
        push_run(s, SL_STREAM_IN, &meet_kernel, &meet, &first);
        CHECK_OK(push_event(s, SL_STREAM_IN, SL_COMMAND_RECORD, 2));
        CHECK_OK(push_event(s, SL_STREAM_COMPUTE, SL_COMMAND_WAIT, 2));
        push_run(s, SL_STREAM_COMPUTE, &nap_kernel, &rest, &second);
        nap(5e-3); /* time to begin too early in */
        push_run(s, SL_STREAM_OUT, &meet_kernel, &meet, &beside);
        sl_cpu_streams_finish(s);
        CHECK(m.missed == 0);
        CHECK(second.start >= first.end);
        CHECK(beside.start <= first.end);
    }
    sl_cpu_streams_destroy(s);
}

/* A counter handed around between four streams in random order through events: any lost wake-up hangs, any missing order loses a
 * count (or is a data race under TSan). */
TEST(no_wakeup_is_lost)
{
    enum { STEPS = 60, LENGTH = 400 };
    sl_cpu_streams *s = make_streams(4 * LENGTH, LENGTH);
    int64_t counter = 0;
    sl_launch launch = {.out[0] = {.data = &counter}};
    uint32_t random = 12345;
    for (int step = 0; step < STEPS; step++) {
        sl_cpu_streams_begin(s);
        int last = -1;
        for (int i = 0; i < LENGTH; i++) {
            random = random * 1664525u + 1013904223u;
            int stream = (int) (random >> 24) % SL_STREAM_COUNT;
            if (last >= 0 && last != stream) {
                CHECK_OK(push_event(s, (sl_stream) last, SL_COMMAND_RECORD, i));
                CHECK_OK(push_event(s, (sl_stream) stream, SL_COMMAND_WAIT, i));
            }
            push_run(s, (sl_stream) stream, &count_kernel, &launch, NULL);
            if ((random >> 8 & 255) == 0)
                nap(20e-6); /* lets the streams fall asleep in the middle */
            last = stream;
        }
        sl_cpu_streams_finish(s);
        CHECK_I64(counter, (int64_t) (step + 1) * LENGTH);
    }
    sl_cpu_streams_destroy(s);
}

TEST(misuse_is_refused)
{
    sl_cpu_streams *s = make_streams(3, 2);
    sl_cpu_streams_begin(s);
    CHECK_FAILS(push_event(s, SL_STREAM_COMPUTE, SL_COMMAND_WAIT, 0), SL_E_INTERNAL);
    CHECK_CONTAINS(sl_error_message(), "stream compute waits for event 0");
    CHECK_OK(push_event(s, SL_STREAM_IN, SL_COMMAND_RECORD, 0));
    CHECK_FAILS(push_event(s, SL_STREAM_OUT, SL_COMMAND_RECORD, 0), SL_E_INTERNAL);
    CHECK_FAILS(push_event(s, SL_STREAM_OUT, SL_COMMAND_RECORD, 2), SL_E_INTERNAL);
    CHECK_FAILS(push_event(s, SL_STREAM_OUT, SL_COMMAND_WAIT, -1), SL_E_INTERNAL);
    CHECK_OK(push_event(s, SL_STREAM_IN, SL_COMMAND_RECORD, 1));
    CHECK_OK(push_event(s, SL_STREAM_IN, SL_COMMAND_WAIT, 1));
    CHECK_FAILS(push_event(s, SL_STREAM_IN, SL_COMMAND_WAIT, 1), SL_E_INTERNAL); /* the fourth of three */
    sl_cpu_streams_finish(s);
    sl_cpu_streams_begin(s); /* last step's records count no more */
    CHECK_FAILS(push_event(s, SL_STREAM_COMPUTE, SL_COMMAND_WAIT, 0), SL_E_INTERNAL);
    sl_cpu_streams_finish(s);
    sl_cpu_streams_destroy(s);
}

TEST(copies_are_exact)
{
    enum { SPACE = 3 << 20 };
    unsigned char *from, *to;
    CHECK_OK(sl_alloc_aligned(&from, SPACE, 1, 256));
    CHECK_OK(sl_alloc_aligned(&to, SPACE, 1, 256));
    for (int i = 0; i < SPACE; i++)
        from[i] = (unsigned char) (i * 2654435761u >> 13);
    static const size_t sizes[] = {0,      1, 255, 4096, (256 << 10) - 1, 256 << 10, (256 << 10) + 7, (1 << 20) + 16383,
                                   2 << 20};
    for (int64_t i = 0; i < SL_COUNT(sizes); i++)
        for (size_t shift = 0; shift < 512; shift += 128 + 16 * (shift % 3)) {
            memset(to, 0xee, SPACE);
            sl_cpu_copy(to + shift, from + 2 * shift, sizes[i]);
            CHECK_MSG(memcmp(to + shift, from + 2 * shift, sizes[i]) == 0, "%zu bytes at %zu", sizes[i], shift);
            bool clean = to[shift + sizes[i]] == 0xee && (shift == 0 || to[shift - 1] == 0xee);
            CHECK_MSG(clean, "%zu bytes at %zu: written beyond", sizes[i], shift);
        }
    sl_free(from);
    sl_free(to);
}

/* ---- through the device contract ---- */

static sl_device *open_cpu(size_t arena, int threads, int64_t commands, int64_t events)
{
    sl_device *device;
    sl_device_config config = {
        .arena_bytes = {arena, arena}, .threads = threads, .max_commands = commands, .max_events = events};
    CHECK_OK(sl_device_open("cpu", &config, &device));
    return device;
}

static sl_launch add_launch(float *a, float *b, float *c, int64_t n)
{
    sl_type type = sl_type_1d(SL_F32, n);
    sl_launch launch = {.op = SL_OP_ADD, .in = {{a, type}, {b, type}}, .out = {{c, type}}};
    return launch;
}

TEST(a_step_computes_and_copies)
{
    enum { N = 100003 };
    sl_device *device = open_cpu(4 << 20, 2, 16, 4);
    const sl_device_class *class = device->class;
    unsigned char *dev = class->arena(device, SL_TIER_DEVICE), *host = class->arena(device, SL_TIER_HOST);
    float *x = (float *) (void *) host, *y = (float *) (void *) (host + (1 << 20)), *dx = (float *) (void *) dev,
          *dy = (float *) (void *) (dev + (1 << 20));
    static float values[N], got[N];
    for (int i = 0; i < N; i++)
        values[i] = (float) i;
    CHECK_OK(class->write(device, SL_TIER_HOST, x, values, sizeof values));
    sl_launch launch = add_launch(dx, dx, dy, N);
    sl_span spans[3];
    uint64_t calls = 0;
    for (int step = 0; step < 20; step++) {
        uint64_t waits = sl_cpu_device_host_waits(device);
        CHECK_OK(class->step_begin(device));
        CHECK_OK(class->copy(device, SL_STREAM_IN, dx, x, sizeof values, &spans[0]));
        CHECK_OK(class->record(device, SL_STREAM_IN, 0));
        CHECK_OK(class->wait(device, SL_STREAM_COMPUTE, 0));
        CHECK_OK(class->launch(device, SL_STREAM_COMPUTE, &launch, &spans[1]));
        CHECK_OK(class->record(device, SL_STREAM_COMPUTE, 1));
        CHECK_OK(class->wait(device, SL_STREAM_OUT, 1));
        CHECK_OK(class->copy(device, SL_STREAM_OUT, y, dy, sizeof values, &spans[2]));
        CHECK_U64(sl_cpu_device_host_waits(device), waits); /* nothing so far made the host wait */
        CHECK_OK(class->step_end(device));
        if (step == 0)
            calls = sl_heap_calls();
        CHECK(0 <= spans[0].start && spans[0].end <= spans[1].start && spans[1].end <= spans[2].start);
    }
    CHECK_U64(sl_heap_calls(), calls); /* steps 2..N allocate nothing */
    CHECK_OK(class->read(device, SL_TIER_HOST, got, y, sizeof got));
    bool right = true;
    for (int i = 0; i < N; i++)
        right &= got[i] == 2.0f * (float) i;
    CHECK(right);
    sl_device_close(device);
}

TEST(errors_reach_the_end_of_the_step)
{
    sl_device *device = open_cpu(1 << 16, 1, 4, 1);
    const sl_device_class *class = device->class;
    unsigned char *dev = class->arena(device, SL_TIER_DEVICE);
    CHECK_OK(class->step_begin(device));
    CHECK_FAILS(class->copy(device, SL_STREAM_IN, dev, dev + 256, 1 << 16, NULL), SL_E_INTERNAL);
    CHECK_FAILS(class->wait(device, SL_STREAM_IN, 0), SL_E_INTERNAL);
    sl_launch launch = add_launch((float *) (void *) dev, (float *) (void *) dev, (float *) (void *) (dev + 65280), 65);
    CHECK_FAILS(class->launch(device, SL_STREAM_COMPUTE, &launch, NULL), SL_E_INTERNAL);
    CHECK_CONTAINS(sl_error_message(), "add");
    CHECK_FAILS(class->step_end(device), SL_E_INTERNAL);
    CHECK_CONTAINS(sl_error_message(), "leaves the arenas"); /* the first one */
    CHECK_OK(class->step_begin(device));                     /* and the device goes on */
    CHECK_FAILS(class->write(device, SL_TIER_DEVICE, dev, "x", 1), SL_E_INTERNAL);
    CHECK_OK(class->step_end(device));
    CHECK_FAILS(class->step_end(device), SL_E_INTERNAL);
    CHECK_FAILS(class->record(device, SL_STREAM_IN, 0), SL_E_INTERNAL);
    sl_device_close(device);
}

TEST(instruction_sets_are_forcible)
{
    sl_isa isa;
    setenv("SLUICE_ISA", "scalar", 1);
    CHECK_OK(sl_isa_detect(&isa));
    CHECK_I64(isa, SL_ISA_SCALAR);
    sl_device *device = open_cpu(0, 1, 1, 1);
    CHECK_STR(device->class->numerics(device), "cpu scalar");
    sl_device_close(device);
    setenv("SLUICE_ISA", "sse9", 1);
    CHECK_FAILS(sl_isa_detect(&isa), SL_E_USAGE);
    unsetenv("SLUICE_ISA");
    CHECK_OK(sl_isa_detect(&isa));
    if (isa < SL_ISA_AMX) {
        setenv("SLUICE_ISA", "amx", 1);
        CHECK_FAILS(sl_isa_detect(&isa), SL_E_UNSUPPORTED);
        unsetenv("SLUICE_ISA");
    }
    int64_t count;
    const sl_cpu_kernel *const *kernels = sl_cpu_kernels(&count);
    for (int64_t i = 0; i < count; i++)
        CHECK(kernels[i]->run && kernels[i]->name && kernels[i]->op < SL_OP_COUNT);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(streams_overlap);
    RUN(a_span_is_as_long_as_its_kernel);
    RUN(a_stream_runs_in_order);
    RUN(an_event_orders_two_streams);
    RUN(no_wakeup_is_lost);
    RUN(misuse_is_refused);
    RUN(copies_are_exact);
    RUN(a_step_computes_and_copies);
    RUN(errors_reach_the_end_of_the_step);
    RUN(instruction_sets_are_forcible);
    return test_end();
}
