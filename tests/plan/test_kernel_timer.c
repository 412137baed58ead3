/* What is measured on a machine whose every time is known: a device that runs nothing and says when it would have. */
#include "core/stats.h"
#include "cost/kernel_timer.h"
#include "test.h"

enum { MOST = 2000, MIB = 1 << 20 };
#define NEAR(x, want) CHECK_NEAR(x, want, 1e-9 * (want))

typedef struct command {
    enum { COPY, LAUNCH, RECORD, WAIT } kind;
    sl_stream stream;
    size_t bytes;
    int64_t event;
    const sl_launch *launch;
    sl_span *span;
} command;

static struct machine {
    double rate[SL_LINK_COUNT], latency_s, load_s, host_s;
    double beside_compute, beside_link;  /* factors of a link's rate */
    double lost_to_copies, lost_to_host; /* shares of compute's speed */
    double host_beside;                  /* factor of the host task's time */
    const double *runs;                  /* times of launches one by one instead of load_s */
    const sl_launch *watched;
    int n_runs, n_watched, n;
    int64_t fails_at; /* which command from now on; 0: none */
    command commands[MOST];
} m;

static sl_status ends; /* what the device says at the end of a step */
static sl_launch load = {.op = SL_OP_ADD}, host = {.op = SL_OP_ADD};

static sl_status add(command c)
{
    if (m.n == MOST || --m.fails_at == 0)
        return sl_fail(SL_E_DEVICE, "the machine failed");
    m.commands[m.n++] = c;
    return SL_OK;
}

static sl_status step_begin(sl_device *device)
{
    (void) device;
    m.n = 0;
    return SL_OK;
}

static sl_status launch(sl_device *device, sl_stream stream, const sl_launch *launch, sl_span *span)
{
    (void) device;
    return add((command){.kind = LAUNCH, .stream = stream, .launch = launch, .span = span});
}

static sl_status copy(sl_device *device, sl_stream stream, void *to, const void *from, size_t bytes, sl_span *span)
{
    (void) device, (void) to, (void) from;
    return add((command){.kind = COPY, .stream = stream, .bytes = bytes, .span = span});
}

static sl_status record(sl_device *device, sl_stream stream, int64_t event)
{
    (void) device;
    return add((command){.kind = RECORD, .stream = stream, .event = event});
}

static sl_status wait(sl_device *device, sl_stream stream, int64_t event)
{
    (void) device;
    return add((command){.kind = WAIT, .stream = stream, .event = event});
}

static bool has(sl_stream stream, int kind)
{
    for (int i = 0; i < m.n; i++)
        if (m.commands[i].stream == stream && (int) m.commands[i].kind == kind)
            return true;
    return false;
}

static double copy_s(sl_link link, size_t bytes, bool compute, bool both)
{
    return m.latency_s +
           (double) bytes / (m.rate[link] * (compute ? m.beside_compute : 1) * (both ? m.beside_link : 1));
}

static double duration(const command *c)
{
    bool copies = has(SL_STREAM_IN, COPY) || has(SL_STREAM_OUT, COPY), compute = has(SL_STREAM_COMPUTE, LAUNCH);
    if (c->kind == COPY)
        return copy_s(sl_streams[c->stream].link, c->bytes, compute,
                      has(SL_STREAM_IN, COPY) && has(SL_STREAM_OUT, COPY));
    if (c->stream == SL_STREAM_HOST)
        return m.host_s * (compute ? m.host_beside : 1);
    if (c->launch == m.watched && m.runs) {
        m.n_watched++;
        return m.runs[SL_MIN(m.n_watched, m.n_runs) - 1];
    }
    return m.load_s / (1 - m.lost_to_copies * copies - m.lost_to_host * has(SL_STREAM_HOST, LAUNCH));
}

/* Streams run in order from time 3 on. */
static sl_status step_end(sl_device *device)
{
    double now[SL_STREAM_COUNT], event[SL_TIMER_EVENTS] = {0};
    (void) device;
    for (int i = 0; i < SL_STREAM_COUNT; i++)
        now[i] = 3;
    for (int i = 0; i < m.n; i++) {
        const command *c = &m.commands[i];
        if (c->kind == WAIT)
            now[c->stream] = SL_MAX(now[c->stream], event[c->event]);
        else if (c->kind == RECORD)
            event[c->event] = now[c->stream];
        else {
            double start = now[c->stream];
            now[c->stream] += duration(c);
            if (c->span)
                *c->span = (sl_span){start, now[c->stream]};
        }
    }
    return ends == SL_OK ? SL_OK : sl_fail(ends, "the machine failed");
}

static sl_timer timer_of_machine(void)
{
    static unsigned char arena[4 * MIB];
    static const sl_device_class class = {
        .step_begin = step_begin, .launch = launch, .copy = copy, .record = record, .wait = wait, .step_end = step_end};
    m = (struct machine){.rate = {4e9, 2e9},
                         .latency_s = 1e-5,
                         .load_s = 1e-3,
                         .host_s = 4e-3,
                         .beside_compute = 0.8,
                         .beside_link = 0.6,
                         .lost_to_copies = 0.25,
                         .lost_to_host = 0.1,
                         .host_beside = 1.5};
    return (sl_timer){.class = &class, .arena = {arena, arena}, .spread = 1};
}

TEST(links)
{
    sl_timer t = timer_of_machine();
    sl_measured measured = {0};
    CHECK_OK(sl_timer_links(&t, MIB, &measured));
    for (int link = 0; link < SL_LINK_COUNT; link++) {
        NEAR(measured.link[link], MIB / copy_s((sl_link) link, MIB, false, false));
        NEAR(measured.link_both[link], MIB / copy_s((sl_link) link, MIB, false, true));
    }
    NEAR(measured.latency_s,
         (8 * copy_s(SL_LINK_IN, SL_ALIGN, false, true) + 7 * copy_s(SL_LINK_OUT, SL_ALIGN, false, true)) / 15);
    m.beside_link = 1.5; /* nothing is faster beside others */
    CHECK_OK(sl_timer_links(&t, MIB, &measured));
    CHECK(measured.link_both[0] == measured.link[0] && measured.link_both[1] == measured.link[1]);
}

/* Compute loses a share for as long as a copy takes beside it, and so do copies; figures are per second of theirs. */
TEST(slowdowns)
{
    for (int with_host = 0; with_host < 2; with_host++) {
        sl_timer t = timer_of_machine();
        sl_measured measured = {.host_slowdown = -1};
        CHECK_OK(sl_timer_links(&t, MIB, &measured));
        CHECK_OK(sl_timer_slowdowns(&t, &load, m.load_s, with_host ? &host : NULL, m.host_s, MIB, &measured));
        NEAR(measured.copy_slowdown, 0.25);
        CHECK_NEAR(measured.host_slowdown, with_host ? 0.1 * 1.5 : -1, 1e-9);
        for (int link = 0; link < SL_LINK_COUNT; link++) {
            NEAR(measured.link[link], MIB / copy_s((sl_link) link, MIB, true, false));
            NEAR(measured.link_both[link], MIB / copy_s((sl_link) link, MIB, true, true));
        }
    }
}

/* How often a launch runs, and what is made of the times. */
TEST(runs_of_a_launch)
{
    static const struct {
        double runs[8];
        int n, launches;
        double want;
    } cases[] = {
        {{5e-3, 1e-2}, 2, 7, 1e-2},                                   /* six times behind the first */
        {{5e-3, 3e-2}, 2, 4, 3e-2},                                   /* until it has taken long enough */
        {{5e-3, 9e-2}, 2, 4, 9e-2},                                   /* but three times */
        {{0.3}, 1, 1, 0.3},                                           /* a long one once */
        {{5e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1}, 7, 7, 6.5e-3 / 6}}; /* an outlier counts half as much again */
    for (int64_t i = 0; i < SL_COUNT(cases); i++)
        for (int warm = 0; warm < 2; warm++) {
            sl_timer t = timer_of_machine();
            double seconds;
            if (warm) { /* what is steady needs no more, and the first of a long one does not count */
                t.n_warmups = 1;
                t.warmups[0] = (sl_warmup){.launch = host, .share = 1, .times = 2};
            }
            m.watched = &load, m.runs = cases[i].runs, m.n_runs = cases[i].n;
            CHECK_OK(sl_timer_time(&t, &load, SL_STREAM_COMPUTE, &seconds));
            CHECK_I64(m.n_watched, warm ? (i == 3 ? 2 : 4) : cases[i].launches);
            NEAR(seconds, warm && i == 4 ? 1e-3 : cases[i].want);
        }
}

/* Caches are cleared first, the first input read again, then the load, then the launches; the time is theirs. */
TEST(a_run)
{
    sl_timer t = timer_of_machine();
    double seconds;
    static unsigned char input[64];
    sl_launch read = {.op = SL_OP_ADD, .in[0] = {.data = input, .type = sl_type_1d(SL_F32, 16)}},
              both[2] = {read, load};
    t.clear_bytes = MIB, t.warm_input = true, t.n_warmups = 1;
    t.warmups[0] = (sl_warmup){.launch = host, .share = 1, .times = 3};
    CHECK_OK(sl_timer_run(&t, both, 2, SL_STREAM_COMPUTE, &seconds));
    static const int kinds[] = {COPY, COPY, RECORD, LAUNCH, LAUNCH, LAUNCH, WAIT, LAUNCH, LAUNCH};
    CHECK_I64(m.n, SL_COUNT(kinds));
    for (int i = 0; i < m.n && i < (int) SL_COUNT(kinds); i++) {
        CHECK_I64((int) m.commands[i].kind, kinds[i]);
        CHECK((m.commands[i].span != NULL) == (i > 6));
        CHECK((int) m.commands[i].stream == (i < 3 ? SL_STREAM_IN : SL_STREAM_COMPUTE));
    }
    CHECK_U64(m.commands[0].bytes, MIB);
    CHECK_U64(m.commands[1].bytes, 64);
    NEAR(seconds, 2 * m.load_s / (1 - m.lost_to_copies));
    CHECK_OK(sl_timer_run(&t, both, 1, SL_STREAM_HOST, &seconds)); /* no load for the host */
    CHECK_I64(m.n, 5);
    NEAR(seconds, m.host_s);
    t.clear_bytes = 0;
    CHECK_OK(sl_timer_run(&t, both, 1, SL_STREAM_HOST, &seconds));
    CHECK_I64(m.n, 1);
}

static sl_status write_bytes(sl_device *device, sl_tier tier, void *to, const void *from, size_t bytes)
{
    (void) device, (void) tier;
    memcpy(to, from, bytes);
    return SL_OK;
}

/* Whichever command fails, so does the measurement. */
TEST(failures)
{
    sl_status status = SL_OK;
    for (int what = 0; what < 3; what++) {
        int64_t n = 0;
        do {
            sl_timer t = timer_of_machine();
            sl_measured measured = {0};
            double seconds;
            if (what == 1)
                CHECK_OK(sl_timer_links(&t, MIB, &measured));
            m.fails_at = ++n;
            status = what == 0   ? sl_timer_links(&t, MIB, &measured)
                     : what == 1 ? sl_timer_slowdowns(&t, &load, m.load_s, &host, m.host_s, MIB, &measured)
                                 : sl_timer_time(&t, &load, SL_STREAM_COMPUTE, &seconds);
            CHECK_I64(status, m.fails_at > 0 ? SL_OK : SL_E_DEVICE);
        } while (m.fails_at <= 0);
        CHECK(status == SL_OK && n > (what == 2 ? 6 : 50));
    }
    sl_timer t = timer_of_machine();
    sl_launch own = {.op = SL_OP_EMBEDDING}; /* the load goes on while values are sampled */
    sl_device_class class = *t.class;
    class.write = write_bytes;
    t.class = &class;
    own.in[0].type = sl_type_2d(SL_F32, 16, 32);
    own.in[1].type = sl_type_1d(SL_I32, 64);
    sl_launch_place(&own, t.arena[SL_TIER_DEVICE], 0);
    ends = SL_E_DEVICE;
    CHECK_FAILS(sl_timer_fill(&t, &own, t.arena[SL_TIER_HOST] + MIB, 0), SL_E_DEVICE);
    ends = SL_OK;
    CHECK_OK(sl_timer_fill(&t, &own, t.arena[SL_TIER_HOST] + MIB, 0));
}

/* Memory that is filled once for all ops that take any values is filled again after an op with values of its own used it. */
TEST(operands)
{
    sl_timer t = timer_of_machine();
    sl_device_class class = *t.class;
    static unsigned char before[2 * 4096];
    unsigned char *device = t.arena[SL_TIER_DEVICE], *staging = t.arena[SL_TIER_HOST] + MIB;
    sl_launch any = {.op = SL_OP_MUL}, own = {.op = SL_OP_EMBEDDING};
    class.write = write_bytes;
    t.class = &class;
    any.in[0].type = any.in[1].type = any.out[0].type = sl_type_1d(SL_F32, 1024);
    own.in[0].type = sl_type_2d(SL_F32, 16, 32);
    own.in[1].type = sl_type_1d(SL_I32, 64);
    own.out[0].type = sl_type_2d(SL_F32, 64, 32);
    REQUIRE(sl_op(any.op)->any_values && !sl_op(own.op)->any_values);
    for (int round = 0; round < 2; round++) {
        sl_launch_place(&any, device, 0);
        memset(device, 0, sizeof before);
        CHECK_OK(sl_timer_fill(&t, &any, staging, 0));
        for (int64_t i = 0; i < 2048; i++) {
            float x = fabsf(((const float *) (const void *) device)[i]);
            CHECK(x > 1e-30F && x < 1e6F); /* nothing that a processor is slow with */
        }
        CHECK(!round || memcmp(before, device, sizeof before) == 0);
        memcpy(before, device, sizeof before);
        sl_launch_place(&own, device, 0);
        CHECK_OK(sl_timer_fill(&t, &own, staging, 0));
        const int32_t *tokens = own.in[1].data;
        for (int64_t i = 0; i < 64; i++)
            CHECK(tokens[i] >= 0 && tokens[i] < 16);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(links);
    RUN(slowdowns);
    RUN(runs_of_a_launch);
    RUN(a_run);
    RUN(failures);
    RUN(operands);
    return test_end();
}
