/*
 * The measuring itself: signatures one at a time, links alone and together, compute beside copies and host tasks.
 *
 * What makes such figures wrong, and what is done about it:
 *  - caches. In a step a launch finds its weights, saved activations and outputs in memory, and its first input, which the task
 *    before it made, in the cache. So between two runs of a signature a block larger than the caches is copied through, and on a
 *    CPU the first input is read again if it is small. (A product of `small` touches 47 MB, as much as a third-level cache
 *    holds: copying 24 MB through left much of it there.)
 *  - outliers. On a shared machine times have a long tail, and a step adds up hundreds of them: medians would leave the
 *    tail out. The mean is taken, with nothing above half as much again as the median.
 *  - special numbers. Kernels run faster on zeros: operands are random. Where any numbers will do they are taken from memory that
 *    is prefilled with normal ones once (pairs of bf16 are normal f32 numbers too); drawing them for each signature by the op's own rule
 *    took more than half of the time.
 *  - an idle machine. An accelerator that was idle runs its first products up to a fifth faster than its power allows for long:
 *    where compute has cores of its own, signatures are timed behind a few milliseconds of a step's heavy work, and after seconds of it.
 *  - neighbours. On a CPU copies and host tasks take cores from compute: a matrix product is timed with each beside it. And copies
 *    are timed beside a matrix product, an accelerator's too, to and from more memory than the processors' caches hold: with
 *    nothing beside them, to and fro between two places, copies towards an H200 were predicted 8 to 12 % faster than in a step.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/mem.h"
#include "cost/internal.h"
#include "ops/fill.h"

enum { MOST_RUNS = 6, LEAST_RUNS = 3, MOST_BESIDE = 64, MOST_LOAD = 960, SLOWDOWN_RUNS = 3, SPREAD = 16 };
#define HEAT_SECONDS 0.006  /* of load before each timed launch */
#define REWARM_SECONDS 0.1  /* before each signature: the device was idle while operands were filled */
#define WARM_UP_SECONDS 1.5 /* until the clock has settled */
#define DRAWING_RATE 3e8    /* bytes of operands drawn in a second, until one has been timed */
#define STEADY 0.01         /* runs this near to each other need no more beside them */
#define BESIDE_SECONDS 0.1  /* of each group of commands that run beside each other */
#define HOT_BESIDE_SECONDS 0.04
#define SIGNATURE_SECONDS 0.06 /* spent on one signature, unless it takes longer to run LEAST_RUNS times */
#define LONG_SECONDS 0.2       /* a signature that takes this long is timed just once */

#define LEAST_SCRUB ((size_t) 24 << 20)
#define MOST_SCRUB ((size_t) 192 << 20)
#define WARM_INPUT ((size_t) 8 << 20) /* a first input of at most this is still in the cache */
#define TAIL 1.5                      /* of the median: what is longer counts as this */

/* More than the last cache, where compute runs on the host's cores; an accelerator's is not known here. */
static size_t scrub_bytes(const char *device)
{
    long cache = -1;
#ifdef _SC_LEVEL3_CACHE_SIZE
    if (sl_device_def_find(device)->shared_cores)
        cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    const size_t wanted = cache > 0 ? (size_t) cache + (size_t) cache / 4 : 0;
    return SL_ROUND_UP(SL_MIN(SL_MAX(wanted, LEAST_SCRUB), MOST_SCRUB), (size_t) SL_ALIGN);
}

size_t sl_bench_operand_bytes(const sl_launch *launch)
{
    size_t bytes = 0;
    for (int i = 0; i < SL_MAX_IN; i++)
        bytes += SL_ROUND_UP(sl_type_bytes(&launch->in[i].type), (size_t) SL_ALIGN);
    for (int k = 0; k < SL_MAX_OUT; k++)
        bytes += SL_ROUND_UP(sl_type_bytes(&launch->out[k].type), (size_t) SL_ALIGN);
    return bytes;
}

/* Bytes that each tier may take beside `taken`. */
static size_t space_beside(const size_t *most, const size_t taken[SL_TIER_COUNT])
{
    size_t space = SIZE_MAX;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        if (most[tier])
            space = SL_MIN(space, most[tier] - SL_MIN(taken[tier], most[tier]));
    return space / SL_ALIGN * SL_ALIGN;
}

static sl_status open_bench(sl_bench *b, const sl_bench_config *c, size_t heat_bytes)
{
    sl_device_config config = {
        .threads = c->threads, .max_commands = MOST_LOAD + MOST_BESIDE, .max_events = MOST_BESIDE};
    b->scrub = SL_ROUND_UP(SL_MAX(c->signature_bytes, heat_bytes), (size_t) SL_ALIGN);
    const size_t taken[SL_TIER_COUNT] = {[SL_TIER_DEVICE] = b->scrub + heat_bytes, [SL_TIER_HOST] = b->scrub};
    const size_t space = space_beside(c->most, taken), pair = SL_MAX(2 * c->piece, (size_t) SL_ALIGN);
    b->scrub_bytes = SL_MIN(scrub_bytes(c->device), SL_MAX(space, pair));
    b->spread = heat_bytes ? (int) SL_MAX(1, SL_MIN((size_t) SPREAD, space / pair)) : 1;
    size_t copy_bytes = 2 * (size_t) b->spread * c->piece;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        config.arena_bytes[tier] = b->scrub + SL_MAX(copy_bytes, b->scrub_bytes);
    b->n_warmups = 0;
    b->drawing = DRAWING_RATE;
    b->prefilled = 0;
    b->heat = config.arena_bytes[SL_TIER_DEVICE];
    config.arena_bytes[SL_TIER_DEVICE] += heat_bytes;
    SL_TRY(sl_device_open(c->device, &config, &b->device));
    b->class = b->device->class;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        b->arena[tier] = b->class->arena(b->device, (sl_tier) tier);
    return SL_OK;
}

sl_status sl_bench_open(sl_bench *b, const sl_bench_config *config)
{
    return open_bench(b, config, 0);
}

/* Gives every operand an address from `base` on. */
static void place_operands(sl_launch *launch, unsigned char *base)
{
    for (int i = 0; i < SL_MAX_IN + SL_MAX_OUT; i++) {
        sl_operand *operand = i < SL_MAX_IN ? &launch->in[i] : &launch->out[i - SL_MAX_IN];
        operand->data = operand->type.rank ? base : NULL;
        base += SL_ROUND_UP(sl_type_bytes(&operand->type), (size_t) SL_ALIGN);
    }
}

/* The first `bytes` of the host arena become normal bf16 numbers, repeated with an odd period. */
static sl_status paint(sl_bench *b, size_t bytes)
{
    enum { NUMBERS = (1 << 20) + 520 };
    unsigned char *base = b->arena[SL_TIER_HOST];
    size_t period = NUMBERS * sl_dtype_bytes(SL_BF16), first = SL_MIN(bytes, period);
    if (b->prefilled < first) {
        sl_operand numbers = {.type = sl_type_1d(SL_BF16, (int64_t) (first / 2)), .data = base};
        sl_fill_normal(&numbers, 1, 0, 1);
        uint16_t *words = (uint16_t *) (void *) base;
        for (size_t i = 0; i < first / 2; i++) /* a zero before another number would be a denormal f32: slow on CPUs */
            words[i] = words[i] & 0x7fff ? words[i] : 0x3f80;
        b->prefilled = first;
    }
    for (; b->prefilled < bytes; b->prefilled += SL_MIN(bytes - b->prefilled, period))
        memcpy(base + b->prefilled, base + b->prefilled - period, SL_MIN(bytes - b->prefilled, period));
    return SL_OK;
}

/* The load, for about so many seconds. */
static sl_status issue_load(sl_bench *b, double seconds)
{
    int launches = 0;
    for (int i = 0; i < b->n_warmups; i++)
        launches += b->warmups[i].times;
    const int rounds = SL_MIN((int) ceil(SL_MIN(seconds / HEAT_SECONDS, MOST_LOAD)), MOST_LOAD / SL_MAX(launches, 1));
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < b->n_warmups; i++)
            for (int n = 0; n < b->warmups[i].times; n++)
                SL_TRY(b->class->launch(b->device, SL_STREAM_COMPUTE, &b->warmups[i].launch, NULL));
    return SL_OK;
}

/* Random operands as the op wants them. Attention's are large, and it is short: an accelerator that rests while they are drawn runs
 * at its highest clock for longer than REWARM_SECONDS, and attention was predicted a fifth too fast. So it goes on with its load. */
static sl_status draw_operands(sl_bench *b, sl_launch *launch, int64_t sequences)
{
    double bytes = 0;
    for (int i = 0; i < SL_MAX_IN && sl_op(launch->op)->category == SL_CAT_ATTENTION; i++)
        bytes += (double) sl_type_bytes(&launch->in[i].type);
    SL_TRY(b->class->step_begin(b->device));
    double start = sl_clock_s();
    sl_status loaded = issue_load(b, bytes / b->drawing), drawn = sl_op_fill_timed(launch, sequences);
    if (bytes > 0)
        b->drawing = bytes / SL_MAX(sl_clock_s() - start, 1e-9);
    sl_status ended = b->class->step_end(b->device);
    return drawn != SL_OK ? drawn : loaded != SL_OK ? loaded : ended;
}

/* By way of the host arena: a device's own memory need not be addressable from here. So host operands are there as well. */
static sl_status fill_at(sl_bench *b, sl_launch *launch, int64_t sequences, size_t offset)
{
    unsigned char *staging = b->arena[SL_TIER_HOST];
    place_operands(launch, staging);
    if (sl_op(launch->op)->any_values)
        SL_TRY(paint(b, sl_bench_operand_bytes(launch)));
    else {
        b->prefilled = 0;
        SL_TRY(draw_operands(b, launch, sequences));
    }
    return b->class->write(b->device, SL_TIER_DEVICE, b->arena[SL_TIER_DEVICE] + offset, staging,
                           sl_bench_operand_bytes(launch));
}

sl_status sl_bench_fill(sl_bench *b, sl_launch *launch, int64_t sequences)
{
    return fill_at(b, launch, sequences, 0);
}

void sl_bench_place(const sl_bench *b, sl_launch *launch, sl_tier tier, size_t workspace)
{
    place_operands(launch, b->arena[tier]);
    launch->workspace = workspace ? b->arena[tier] + sl_bench_operand_bytes(launch) : NULL;
    launch->workspace_bytes = workspace;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t) n, sizeof *values, compare_doubles);
    return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

/* The mean of what a step would add up, less what was plainly something else's time. */
static double mean_of(double *values, int n)
{
    double sum = 0, most = TAIL * median(values, n);
    for (int i = 0; i < n; i++)
        sum += SL_MIN(values[i], most);
    return sum / n;
}

/* Copies through the caches, then the first input. */
static sl_status scrub(sl_bench *b, const sl_launch *launch)
{
    unsigned char *device = b->arena[SL_TIER_DEVICE] + b->scrub, *host = b->arena[SL_TIER_HOST] + b->scrub;
    SL_TRY(b->class->copy(b->device, SL_STREAM_IN, device, host, b->scrub_bytes, NULL));
    const sl_operand *first = &launch->in[0];
    size_t bytes = sl_type_bytes(&first->type);
    if (b->scrub_bytes <= LEAST_SCRUB || !first->data || bytes > WARM_INPUT)
        return SL_OK;
    return b->class->copy(b->device, SL_STREAM_IN, device, first->data, bytes, NULL);
}

/* The launch once on its stream, behind copies that take the caches. */
static sl_status run_once(sl_bench *b, const sl_launch *launch, sl_stream stream, double *seconds)
{
    sl_span span = {0};
    SL_TRY(b->class->step_begin(b->device));
    sl_status status = scrub(b, launch);
    if (status == SL_OK)
        status = b->class->record(b->device, SL_STREAM_IN, 0);
    if (status == SL_OK && stream == SL_STREAM_COMPUTE)
        status = issue_load(b, HEAT_SECONDS);
    if (status == SL_OK)
        status = b->class->wait(b->device, stream, 0);
    if (status == SL_OK)
        status = b->class->launch(b->device, stream, launch, &span);
    sl_status ended = b->class->step_end(b->device);
    *seconds = span.end - span.start;
    return ended != SL_OK ? ended : status;
}

/* For as long as it was idle is not enough: with that, steps of 8B took 7 to 9 % longer than predicted. */
static sl_status reheat(sl_bench *b, double seconds)
{
    double start = sl_clock_s(), unused;
    while (b->n_warmups && sl_clock_s() - start < seconds)
        SL_TRY(run_once(b, &b->warmups[0].launch, SL_STREAM_COMPUTE, &unused));
    return SL_OK;
}

static bool steady(const double *runs, int n)
{
    double least = INFINITY, most = 0;
    for (int i = 0; i < n; i++) {
        least = SL_MIN(least, runs[i]);
        most = SL_MAX(most, runs[i]);
    }
    return most - least <= STEADY * least;
}

sl_status sl_bench_time(sl_bench *b, const sl_launch *launch, sl_stream stream, double *seconds)
{
    double runs[MOST_RUNS], total = 0;
    int n = 0;
    SL_TRY(reheat(b, REWARM_SECONDS));
    /* First touch, a thread pool waking up, a library that loads a kernel's code: the first two are not much of a long run. */
    SL_TRY(run_once(b, launch, stream, &runs[0]));
    bool is_long = runs[0] > LONG_SECONDS;
    if (is_long && !b->n_warmups)
        n = 1, total = runs[0];
    int least = is_long ? 1 : LEAST_RUNS;
    while (n < least || (n < MOST_RUNS && total < SIGNATURE_SECONDS && !(b->n_warmups && steady(runs, n)))) {
        SL_TRY(run_once(b, launch, stream, &runs[n]));
        total += runs[n++];
    }
    *seconds = mean_of(runs, n);
    return SL_OK;
}

static size_t warmup_bytes(const sl_warmup *warmup)
{
    return sl_bench_operand_bytes(&warmup->launch) + SL_ROUND_UP(warmup->workspace, (size_t) SL_ALIGN);
}

/* Timed while those before it are the load, so that all have their share of it. */
static sl_status add_warmup(sl_bench *b, const sl_warmup *warmup, size_t at)
{
    sl_warmup *own = &b->warmups[b->n_warmups];
    double seconds;
    *own = *warmup;
    SL_TRY(fill_at(b, &own->launch, warmup->sequences, at));
    place_operands(&own->launch, b->arena[SL_TIER_DEVICE] + at);
    own->launch.workspace =
        warmup->workspace ? b->arena[SL_TIER_DEVICE] + at + sl_bench_operand_bytes(&own->launch) : NULL;
    own->launch.workspace_bytes = warmup->workspace;
    SL_TRY(sl_bench_time(b, &own->launch, SL_STREAM_COMPUTE, &seconds));
    own->times = SL_MAX(1, SL_MIN(MOST_BESIDE, (int) (warmup->share * HEAT_SECONDS / seconds)));
    b->n_warmups++;
    return SL_OK;
}

sl_status sl_bench_open_warm(sl_bench *b, const sl_bench_config *config, const sl_warmup *warmups, int n_warmups)
{
    size_t bytes = 0, at;
    for (int i = 0; i < n_warmups; i++)
        bytes += warmup_bytes(&warmups[i]);
    for (; n_warmups > 1 && config->most[SL_TIER_DEVICE] &&
           config->signature_bytes + bytes > config->most[SL_TIER_DEVICE];
         n_warmups--)
        bytes -= warmup_bytes(&warmups[n_warmups - 1]);
    SL_TRY(open_bench(b, config, bytes));
    at = b->heat;
    for (int i = 0; i < n_warmups; i++) {
        SL_TRY(add_warmup(b, &warmups[i], at));
        at += warmup_bytes(&warmups[i]);
    }
    return reheat(b, WARM_UP_SECONDS);
}

/* ---- links and what runs beside what ---- */

/* Pieces of copies to and fro as long as the compute (or host) stream works, or for a fixed number of them. */
typedef struct beside {
    const sl_launch *load, *host;
    int loads, hosts, copies[2]; /* how many of each */
    size_t piece;
    double load_s, host_s, copy_s[2]; /* seconds per one, measured */
} beside;

/* Seconds per command over the time when all groups ran, so that a group's lonely tail does not flatter it. */
static double per_command(const sl_span *spans, int n, double until)
{
    double done = 0, start = n ? spans[0].start : 0, end = start;
    for (int i = 0; i < n && spans[i].start < until; i++) {
        double length = spans[i].end - spans[i].start, inside = SL_MIN(spans[i].end, until) - spans[i].start;
        done += length > 0 ? inside / length : 0;
        end = SL_MIN(spans[i].end, until);
    }
    return done > 0 ? (end - start) / done : 0;
}

static sl_status issue_beside(sl_bench *b, beside *x, sl_span spans[4][MOST_BESIDE])
{
    const size_t half = (size_t) b->spread * x->piece; /* what comes in, then what goes out */
    unsigned char *dev = b->arena[SL_TIER_DEVICE] + b->scrub, *host = b->arena[SL_TIER_HOST] + b->scrub;
    for (int i = 0; i < x->copies[0]; i++) {
        size_t at = (size_t) (i % b->spread) * x->piece;
        SL_TRY(b->class->copy(b->device, SL_STREAM_IN, dev + at, host + at, x->piece, &spans[0][i]));
    }
    for (int i = 0; i < x->copies[1]; i++) {
        size_t at = half + (size_t) (i % b->spread) * x->piece;
        SL_TRY(b->class->copy(b->device, SL_STREAM_OUT, host + at, dev + at, x->piece, &spans[1][i]));
    }
    for (int i = 0; i < x->loads; i++)
        SL_TRY(b->class->launch(b->device, SL_STREAM_COMPUTE, x->load, &spans[2][i]));
    for (int i = 0; i < x->hosts; i++)
        SL_TRY(b->class->launch(b->device, SL_STREAM_HOST, x->host, &spans[3][i]));
    return SL_OK;
}

static sl_status run_beside(sl_bench *b, beside *x)
{
    sl_span spans[4][MOST_BESIDE];
    int counts[4] = {x->copies[0], x->copies[1], x->loads, x->hosts};
    double *results[4] = {&x->copy_s[0], &x->copy_s[1], &x->load_s, &x->host_s}, until = INFINITY;
    SL_TRY(b->class->step_begin(b->device));
    sl_status issued = issue_beside(b, x, spans), ended = b->class->step_end(b->device);
    SL_TRY(ended != SL_OK ? ended : issued);
    for (int g = 0; g < 4; g++)
        if (counts[g])
            until = SL_MIN(until, spans[g][counts[g] - 1].end);
    for (int g = 0; g < 4; g++)
        *results[g] = per_command(spans[g], counts[g], until);
    return SL_OK;
}

/* How many commands of `seconds` each last long enough to tell. */
static int about(const sl_bench *b, double seconds)
{
    double enough_s = b->n_warmups ? HOT_BESIDE_SECONDS : BESIDE_SECONDS;
    return SL_MAX(2, SL_MIN(MOST_BESIDE, (int) (enough_s / SL_MAX(seconds, 1e-9))));
}

/* The time a small copy needs from the event it waits for to the event behind it, by a chain through both copy streams. */
static sl_status measure_latency(sl_bench *b, double *seconds)
{
    enum { LENGTH = 16 };
    sl_span spans[LENGTH] = {0};
    unsigned char *dev = b->arena[SL_TIER_DEVICE], *host = b->arena[SL_TIER_HOST];
    sl_status status = SL_OK;
    SL_TRY(b->class->step_begin(b->device));
    for (int i = 0; i < LENGTH && status == SL_OK; i++) {
        sl_stream stream = i % 2 ? SL_STREAM_OUT : SL_STREAM_IN;
        if (i > 0)
            status = b->class->wait(b->device, stream, i - 1);
        if (status == SL_OK)
            status = b->class->copy(b->device, stream, i % 2 ? host : dev, i % 2 ? dev : host, SL_ALIGN, &spans[i]);
        if (status == SL_OK)
            status = b->class->record(b->device, stream, i);
    }
    sl_status ended = b->class->step_end(b->device);
    *seconds = SL_MAX(0, (spans[LENGTH - 1].start - spans[0].start) / (LENGTH - 1));
    return ended != SL_OK ? ended : status;
}

sl_status sl_bench_links(sl_bench *b, size_t piece, sl_measured *m)
{
    beside in = {.copies = {4, 0}, .piece = piece}, out = {.copies = {0, 4}, .piece = piece};
    SL_TRY(run_beside(b, &in)); /* touches the memory */
    SL_TRY(run_beside(b, &out));
    int n = about(b, in.copy_s[0]);
    in.copies[0] = out.copies[1] = n;
    beside both = {.copies = {n, n}, .piece = piece};
    SL_TRY(run_beside(b, &in));
    SL_TRY(run_beside(b, &out));
    SL_TRY(run_beside(b, &both));
    m->link[0] = (double) piece / in.copy_s[0];
    m->link[1] = (double) piece / out.copy_s[1];
    for (int d = 0; d < 2; d++)
        m->link_both[d] = SL_MIN((double) piece / both.copy_s[d], m->link[d]);
    return measure_latency(b, &m->latency_s);
}

/* The share of its own (lonely) time that a neighbour takes from compute. Beside each other both are slower, the neighbour takes
 * longer and disturbs longer: what counts is the compute time lost per neighbour's command. */
static double slowdown(double load_alone, double load_beside, double other_alone, double other_beside)
{
    double lost_per_second = 1 - load_alone / load_beside;
    return SL_MAX(0, SL_MIN(1, lost_per_second * other_beside / other_alone));
}

/* A neighbour's slowdown: the load alone and beside it in turn, so that a machine that is still getting hotter, or that something
 * else disturbs for a moment, does not count against the neighbour. */
static sl_status measure_slowdown(sl_bench *b, beside *alone, beside *with, double other_alone,
                                  double (*other)(const beside *), double *out)
{
    double values[SLOWDOWN_RUNS];
    SL_TRY(run_beside(b, with)); /* warms up */
    for (int i = 0; i < SLOWDOWN_RUNS; i++) {
        SL_TRY(run_beside(b, alone));
        SL_TRY(run_beside(b, with));
        values[i] = slowdown(alone->load_s, with->load_s, other_alone, other(with));
    }
    *out = median(values, SLOWDOWN_RUNS);
    return SL_OK;
}

static double copy_time(const beside *x)
{
    return x->copy_s[0];
}

static double host_time(const beside *x)
{
    return x->host_s;
}

/* Copies at the rates they have beside compute, which is where nearly all of them run; what they take from it is then meant per
 * second of theirs. */
static sl_status measure_links_beside(sl_bench *b, beside *alone, size_t piece, sl_measured *m)
{
    double rates[4][SLOWDOWN_RUNS];
    for (int i = 0; i < SLOWDOWN_RUNS; i++) {
        beside runs[3]; /* in, out, both */
        for (int r = 0; r < 3; r++) {
            runs[r] = *alone;
            runs[r].piece = piece;
            for (int d = 0; d < 2; d++)
                if (r == d || r == 2)
                    runs[r].copies[d] =
                        SL_MIN(MOST_BESIDE, (int) (alone->loads * alone->load_s * m->link[d] / (double) piece) + 2);
            SL_TRY(run_beside(b, &runs[r]));
        }
        for (int d = 0; d < 2; d++) {
            rates[d][i] = (double) piece / runs[d].copy_s[d];
            rates[2 + d][i] = (double) piece / runs[2].copy_s[d];
        }
    }
    for (int d = 0; d < 2; d++) {
        double lonely = m->link[d], shared = SL_MIN(median(rates[d], SLOWDOWN_RUNS), lonely);
        if (d == 0)
            m->copy_slowdown *= shared / lonely;
        m->link[d] = shared;
        m->link_both[d] = SL_MIN(median(rates[2 + d], SLOWDOWN_RUNS), SL_MIN(shared, m->link_both[d]));
    }
    return SL_OK;
}

sl_status sl_bench_slowdowns(sl_bench *b, const sl_launch *load, double load_s, const sl_launch *host, double host_s,
                             size_t piece, sl_measured *m)
{
    int n = about(b, load_s);
    double piece_s = (double) piece / m->link[0]; /* alone */
    beside alone = {.load = load, .loads = n}, copies = {.load = load, .loads = n, .piece = piece};
    copies.copies[0] = SL_MIN(MOST_BESIDE, (int) (n * load_s / piece_s) + 2);
    SL_TRY(measure_slowdown(b, &alone, &copies, piece_s, copy_time, &m->copy_slowdown));
    SL_TRY(measure_links_beside(b, &alone, piece, m));
    if (!host)
        return SL_OK;
    beside hosts = {.load = load, .loads = n, .host = host};
    hosts.hosts = SL_MIN(MOST_BESIDE, (int) (n * load_s / host_s) + 2);
    return measure_slowdown(b, &alone, &hosts, host_s, host_time, &m->host_slowdown);
}
