/*
 * Memory over a step, from the places of its plan and the times of its actions. Bytes are taken from the start of the action that
 * fills them to the end of the last one that uses them, so the sums are those of the arenas at every moment. A drawing has room
 * for a few hundred moments: each shows the fullest of its part of the step, so that no peak is lost between two of them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/panels.h"

typedef struct change {
    int64_t at;
    double bytes; /* negative: given back */
    int class;
} change;

static int by_time(const void *a, const void *b)
{
    const change *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* what is given back can be taken at once */
}

int64_t sl_log_end_ns(const sl_run_log *log, bool predicted)
{
    int64_t end = 0;
    for (int64_t i = 0; i < log->n_actions; i++)
        end = SL_MAX(end, predicted ? log->actions[i].predicted.end : log->actions[i].measured.end);
    return end;
}

static int64_t list_changes(const sl_run_log *log, int tier, int64_t end, change *changes)
{
    int64_t n = 0;
    for (int64_t i = 0; i < log->n_allocations; i++) {
        const sl_log_place *p = &log->places[i];
        if (p->tier != tier || p->bytes == 0)
            continue;
        int64_t from = p->first < 0 || p->first >= log->n_actions ? 0 : log->actions[p->first].measured.start;
        int64_t to = p->last < 0 || p->last >= log->n_actions ? end + 1 : log->actions[p->last].measured.end;
        if (to <= from) /* an action too short for the clock still had its memory */
            to = from + 1;
        changes[n++] = (change){from, (double) p->bytes, p->class};
        changes[n++] = (change){to, -(double) p->bytes, p->class};
    }
    qsort(changes, (size_t) n, sizeof *changes, by_time);
    return n;
}

static double total(const sl_memory *m)
{
    double sum = 0;
    for (int c = 0; c < SL_LOG_CLASSES; c++)
        sum += m->bytes[c];
    return sum;
}

sl_status sl_memory_over_time(const sl_run_log *log, int tier, int n, sl_memory *moments, double *peak, bool *there)
{
    int64_t end = sl_log_end_ns(log, false);
    change *changes;
    sl_memory now = {{0}};
    *peak = 0;
    *there = false;
    memset(moments, 0, (size_t) n * sizeof *moments);
    if (end == 0 || log->n_allocations == 0)
        return SL_OK;
    SL_TRY(sl_alloc(&changes, 2 * log->n_allocations, sizeof *changes));
    int64_t count = list_changes(log, tier, end, changes), at = 0;
    for (int m = 0; m < n; m++) {
        double until = (double) end * (m + 1) / n;
        moments[m] = now;
        double most = total(&now);
        while (at < count && (double) changes[at].at < until) {
            int64_t when = changes[at].at;
            for (; at < count && changes[at].at == when; at++)
                now.bytes[changes[at].class] += changes[at].bytes;
            double sum = total(&now);
            if (sum > most) {
                most = sum;
                moments[m] = now;
            }
        }
        *peak = fmax(*peak, most);
    }
    sl_free(changes);
    *there = count > 0;
    return SL_OK;
}
