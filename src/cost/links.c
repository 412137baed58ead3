/*
 * Speeds of the links, alone and together, and slowdowns by concurrent work.
 *
 * On a CPU copies and host tasks take cores from compute, so a matmul is timed beside each of them. Copies are timed beside a matmul on
 * every device, over more memory than the caches hold: alone, and between the same two buffers, they are faster than in a step.
 */
#include <math.h>

#include "core/stats.h"
#include "cost/kernel_timer.h"

enum { MOST_BESIDE = 64, SLOWDOWN_RUNS = 3 };
#define BESIDE_SECONDS 0.1 /* of each group of commands that run beside each other */
#define WARM_BESIDE_SECONDS 0.04

/* Copies in both directions for as long as the compute or host stream works, or a fixed number of them. */
typedef struct beside {
    const sl_launch *load, *host;
    int loads, hosts, copies[2]; /* how many of each */
    size_t piece;
    double load_s, host_s, copy_s[2]; /* seconds per one, measured */
} beside;

/* Seconds per command over the time in which all groups ran. The rest of the longest group, which runs alone, is excluded. */
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

static sl_status issue_beside(sl_timer *t, beside *x, sl_span spans[4][MOST_BESIDE])
{
    for (int link = 0; link < SL_LINK_COUNT; link++) {
        const sl_link_def *def = &sl_links[link];
        const size_t first =
            t->space + (size_t) link * (size_t) t->spread * x->piece; /* each link has pieces of its own */
        for (int i = 0; i < x->copies[link]; i++) {
            const size_t at = first + (size_t) (i % t->spread) * x->piece;
            SL_TRY(t->class->copy(t->device, def->stream, t->arena[def->to] + at, t->arena[def->from] + at, x->piece,
                                  &spans[link][i]));
        }
    }
    for (int i = 0; i < x->loads; i++)
        SL_TRY(t->class->launch(t->device, SL_STREAM_COMPUTE, x->load, &spans[2][i]));
    for (int i = 0; i < x->hosts; i++)
        SL_TRY(t->class->launch(t->device, SL_STREAM_HOST, x->host, &spans[3][i]));
    return SL_OK;
}

static sl_status run_beside(sl_timer *t, beside *x)
{
    sl_span spans[4][MOST_BESIDE];
    int counts[4] = {x->copies[0], x->copies[1], x->loads, x->hosts};
    double *results[4] = {&x->copy_s[0], &x->copy_s[1], &x->load_s, &x->host_s}, until = INFINITY;
    SL_TRY(t->class->step_begin(t->device));
    sl_status issued = issue_beside(t, x, spans), ended = t->class->step_end(t->device);
    SL_TRY(ended != SL_OK ? ended : issued);
    for (int g = 0; g < 4; g++)
        if (counts[g])
            until = SL_MIN(until, spans[g][counts[g] - 1].end);
    for (int g = 0; g < 4; g++)
        *results[g] = per_command(spans[g], counts[g], until);
    return SL_OK;
}

/* How many commands of `seconds` each make a reliable measurement. */
static int about(const sl_timer *t, double seconds)
{
    double enough_s = t->n_warmups ? WARM_BESIDE_SECONDS : BESIDE_SECONDS;
    return SL_MAX(2, SL_MIN(MOST_BESIDE, (int) (enough_s / SL_MAX(seconds, 1e-9))));
}

/* The time a small copy needs from the event it waits for to the event behind it, by a chain through both copy streams. */
static sl_status measure_latency(sl_timer *t, double *seconds)
{
    enum { LENGTH = 16 };
    sl_span spans[LENGTH] = {0};
    sl_status status = SL_OK;
    SL_TRY(t->class->step_begin(t->device));
    for (int i = 0; i < LENGTH && status == SL_OK; i++) {
        const sl_link_def *link = &sl_links[i % 2 ? SL_LINK_OUT : SL_LINK_IN];
        if (i > 0)
            status = t->class->wait(t->device, link->stream, i - 1);
        if (status == SL_OK)
            status =
                t->class->copy(t->device, link->stream, t->arena[link->to], t->arena[link->from], SL_ALIGN, &spans[i]);
        if (status == SL_OK)
            status = t->class->record(t->device, link->stream, i);
    }
    sl_status ended = t->class->step_end(t->device);
    *seconds = SL_MAX(0, (spans[LENGTH - 1].start - spans[0].start) / (LENGTH - 1));
    return ended != SL_OK ? ended : status;
}

sl_status sl_timer_links(sl_timer *t, size_t piece, sl_measured *m)
{
    beside in = {.copies = {4, 0}, .piece = piece}, out = {.copies = {0, 4}, .piece = piece};
    SL_TRY(run_beside(t, &in)); /* touches the memory */
    SL_TRY(run_beside(t, &out));
    int n = about(t, in.copy_s[0]);
    in.copies[0] = out.copies[1] = n;
    beside both = {.copies = {n, n}, .piece = piece};
    SL_TRY(run_beside(t, &in));
    SL_TRY(run_beside(t, &out));
    SL_TRY(run_beside(t, &both));
    m->link[0] = (double) piece / in.copy_s[0];
    m->link[1] = (double) piece / out.copy_s[1];
    for (int d = 0; d < 2; d++)
        m->link_both[d] = SL_MIN((double) piece / both.copy_s[d], m->link[d]);
    return measure_latency(t, &m->latency_s);
}

/* The share of its own undisturbed time that concurrent work takes from compute. Both are slower together, and the concurrent work
 * disturbs for longer, so the measure is the compute time lost per command of the concurrent work. */
static double slowdown(double load_alone, double load_beside, double other_alone, double other_beside)
{
    double lost_per_second = 1 - load_alone / load_beside;
    return SL_MAX(0, SL_MIN(1, lost_per_second * other_beside / other_alone));
}

/* The slowdown by concurrent work. Runs alone and runs beside it alternate, so that a drifting clock or a short disturbance by other
 * processes does not count. */
static sl_status measure_slowdown(sl_timer *t, beside *alone, beside *with, double other_alone,
                                  double (*other)(const beside *), double *out)
{
    double values[SLOWDOWN_RUNS];
    SL_TRY(run_beside(t, with)); /* warms up */
    for (int i = 0; i < SLOWDOWN_RUNS; i++) {
        SL_TRY(run_beside(t, alone));
        SL_TRY(run_beside(t, with));
        values[i] = slowdown(alone->load_s, with->load_s, other_alone, other(with));
    }
    *out = sl_median(values, SLOWDOWN_RUNS);
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

/* Uses the rates of copies beside compute, because nearly all copies run there. The slowdown of compute refers to one second of such a
 * copy. */
static sl_status measure_links_beside(sl_timer *t, beside *alone, size_t piece, sl_measured *m)
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
            SL_TRY(run_beside(t, &runs[r]));
        }
        for (int d = 0; d < 2; d++) {
            rates[d][i] = (double) piece / runs[d].copy_s[d];
            rates[2 + d][i] = (double) piece / runs[2].copy_s[d];
        }
    }
    for (int d = 0; d < 2; d++) {
        double lonely = m->link[d], shared = SL_MIN(sl_median(rates[d], SLOWDOWN_RUNS), lonely);
        if (d == 0)
            m->copy_slowdown *= shared / lonely;
        m->link[d] = shared;
        m->link_both[d] = SL_MIN(sl_median(rates[2 + d], SLOWDOWN_RUNS), SL_MIN(shared, m->link_both[d]));
    }
    return SL_OK;
}

sl_status sl_timer_slowdowns(sl_timer *t, const sl_launch *load, double load_s, const sl_launch *host, double host_s,
                             size_t piece, sl_measured *m)
{
    int n = about(t, load_s);
    double piece_s = (double) piece / m->link[0]; /* alone */
    beside alone = {.load = load, .loads = n}, copies = {.load = load, .loads = n, .piece = piece};
    copies.copies[0] = SL_MIN(MOST_BESIDE, (int) (n * load_s / piece_s) + 2);
    SL_TRY(measure_slowdown(t, &alone, &copies, piece_s, copy_time, &m->copy_slowdown));
    SL_TRY(measure_links_beside(t, &alone, piece, m));
    if (!host)
        return SL_OK;
    beside hosts = {.load = load, .loads = n, .host = host};
    hosts.hosts = SL_MIN(MOST_BESIDE, (int) (n * load_s / host_s) + 2);
    return measure_slowdown(t, &alone, &hosts, host_s, host_time, &m->host_slowdown);
}
