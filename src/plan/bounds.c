/*
 * Two bounds that need no plan.
 *
 *   compute   tasks on the device take their time. Tasks that may run beside host memory slow compute at least by their share,
 *             as do copies of data and results. The first task waits for its data, and the last one's results follow it.
 *   links     a window of tasks that reads or writes S bytes which cannot be recomputed and were not made within the window finds
 *             at most C bytes of them on a device of C bytes: S - C must come in. Of D bytes that it writes and later tasks need, at
 *             most C can stay: D - C must go out. Windows that do not overlap add up; any way to cut the step into windows
 *             gives a bound. Three are tried: passes of a round, whole rounds, and as soon as 2 C bytes are touched.
 */
#include "plan/bounds.h"

#include <math.h>
#include <string.h>

#include "core/mem.h"

/* Seconds of the link for a task's data to come, or its results to leave. */
static double io_s(const sl_analysis *a, int32_t task, sl_link link)
{
    double seconds = 0;
    for (int32_t e = a->first[task]; e < a->first[task + 1]; e++) {
        const sl_object *object = &a->program->objects[a->entries[e].object];
        const bool in = link == SL_LINK_IN;
        sl_object_class class = in ? SL_CLASS_DATA : SL_CLASS_RESULT;
        int flag = in ? SL_ENTRY_READ : SL_ENTRY_WRITE;
        bool counts = in ? a->object_first[a->entries[e].object] == e : a->entries[e].next < 0;
        if (counts && object->class == class && !object->persistent && a->entries[e].flags & flag)
            seconds += sl_costs_copy_s(a->costs, link, object->bytes, false);
    }
    return seconds;
}

static double compute_s(const sl_analysis *a)
{
    const sl_program *p = a->program;
    const sl_costs *costs = a->costs;
    /* Concurrent work leaves compute at least a tenth of its speed: a slowdown that counts for host work cannot count for copies too. */
    double felt = fmin(costs->host_slowdown, 0.9), copies = fmin(costs->copy_slowdown, (0.9 - felt) / 2);
    double seconds = 0, beside = 0;
    for (int32_t t = 0; t < p->n_tasks; t++) {
        int32_t signature = p->tasks[t].signature;
        bool aside = p->tasks[t].host_allowed && costs->host_s[signature] < INFINITY;
        seconds +=
            aside ? fmin(costs->device_s[signature], felt * costs->host_s[signature]) : costs->device_s[signature];
        for (int link = 0; link < SL_LINK_COUNT && !p->tasks[t].host_allowed; link++) {
            bool alone = t == (link == SL_LINK_IN ? 0 : p->n_tasks - 1);
            *(alone ? &seconds : &beside) += io_s(a, t, (sl_link) link);
        }
    }
    return seconds + copies * beside;
}

typedef enum sl_window_kind { WINDOW_PASS, WINDOW_ROUND, WINDOW_BYTES, WINDOW_KINDS } sl_window_kind;

typedef struct sl_window {
    const sl_analysis *a;
    double capacity;
    int32_t begin;              /* its first task */
    double in;                  /* bytes that it needs from before */
    int32_t *read_in, *written; /* by object: first task + 1 of the last window that did */
    int32_t *last;              /* by object: its last entry in the window */
    int32_t *list, n_list;      /* what the window has written */
    double total_in, total_out;
} sl_window;

static void close_window(sl_window *w, int32_t next)
{
    const sl_analysis *a = w->a;
    double out = 0;
    for (int32_t i = 0; i < w->n_list; i++) {
        int32_t o = w->list[i], after = a->entries[w->last[o]].next;
        bool needed = after >= 0 && !(a->entries[after].flags & SL_ENTRY_FRESH);
        if (needed || a->program->objects[o].persistent)
            out += (double) a->program->objects[o].bytes;
    }
    w->total_in += fmax(0, w->in - w->capacity);
    w->total_out += fmax(0, out - w->capacity);
    w->in = w->n_list = 0;
    w->begin = next;
}

static bool new_window(const sl_window *w, sl_window_kind kind, int32_t t)
{
    const sl_task *before = &w->a->program->tasks[t - 1], *task = before + 1;
    if (kind == WINDOW_BYTES)
        return w->in >= 2 * w->capacity;
    return before->round != task->round || (kind == WINDOW_PASS && before->phase != task->phase);
}

static void count_task(sl_window *w, int32_t t)
{
    const sl_analysis *a = w->a;
    int32_t window = w->begin + 1;
    for (int32_t e = a->first[t]; e < a->first[t + 1]; e++) {
        const sl_entry *entry = &a->entries[e];
        const sl_object *object = &a->program->objects[entry->object];
        int32_t o = entry->object;
        if (object->producer >= 0 && !object->persistent)
            continue; /* might be recomputed instead */
        w->last[o] = e;
        if (entry->flags & SL_ENTRY_READ && w->read_in[o] != window && w->written[o] != window) {
            w->in += (double) object->bytes;
            w->read_in[o] = window;
        }
        if (entry->flags & SL_ENTRY_WRITE && w->written[o] != window) {
            w->written[o] = window;
            w->list[w->n_list++] = o;
        }
    }
}

static double count_windows(sl_window *w, sl_window_kind kind)
{
    const sl_program *p = w->a->program;
    memset(w->read_in, 0, (size_t) p->n_objects * sizeof *w->read_in);
    memset(w->written, 0, (size_t) p->n_objects * sizeof *w->written);
    w->begin = 0;
    w->total_in = w->total_out = 0;
    for (int32_t t = 0; t < p->n_tasks; t++) {
        if (t > 0 && new_window(w, kind, t))
            close_window(w, t);
        if (!p->tasks[t].host_allowed)
            count_task(w, t);
    }
    close_window(w, p->n_tasks);
    return fmax(w->total_in / w->a->costs->link_bytes_per_s[SL_LINK_IN],
                w->total_out / w->a->costs->link_bytes_per_s[SL_LINK_OUT]);
}

static sl_status links_s(const sl_analysis *a, double capacity, double *seconds)
{
    sl_region *region;
    sl_window w = {.a = a, .capacity = capacity};
    int32_t n = a->program->n_objects + 1;
    SL_TRY(sl_region_create(&region));
    sl_status status;
    SL_TRY_GOTO(sl_region_alloc(region, &w.read_in, n, sizeof *w.read_in), destroy);
    SL_TRY_GOTO(sl_region_alloc(region, &w.written, n, sizeof *w.written), destroy);
    SL_TRY_GOTO(sl_region_alloc(region, &w.last, n, sizeof *w.last), destroy);
    SL_TRY_GOTO(sl_region_alloc(region, &w.list, n, sizeof *w.list), destroy);
    for (int kind = 0; kind < WINDOW_KINDS; kind++)
        *seconds = fmax(*seconds, count_windows(&w, (sl_window_kind) kind));
destroy:
    sl_region_destroy(region);
    return status;
}

sl_status sl_bound_s(const sl_analysis *a, size_t device_budget, double *seconds)
{
    *seconds = compute_s(a);
    return device_budget == SIZE_MAX ? SL_OK : links_s(a, (double) device_budget, seconds);
}

/* A step recomputes only when another resource is short. */
static sl_limit why_recompute(const sl_summary *s)
{
    const double full = 0.98, busy = 0.85;
    bool host_full = s->budget_bytes[SL_TIER_HOST] != SIZE_MAX &&
                     (double) s->peak_bytes[SL_TIER_HOST] > full * (double) s->budget_bytes[SL_TIER_HOST];
    if (host_full)
        return SL_LIMIT_HOST_BYTES;
    if (s->busy_s[SL_STREAM_IN] > busy * s->step_s)
        return SL_LIMIT_LINK_IN;
    if (s->busy_s[SL_STREAM_OUT] > busy * s->step_s)
        return SL_LIMIT_LINK_OUT;
    return SL_LIMIT_DEVICE_BYTES;
}

sl_limit sl_find_limit(const sl_program *p, const sl_costs *costs, const sl_plan *plan)
{
    const sl_summary *s = &plan->predicted;
    double again = 0;
    for (int32_t i = 0; i < plan->n_actions; i++)
        if (plan->actions[i].kind == SL_ACTION_TASK && plan->actions[i].recompute)
            again += costs->device_s[p->tasks[plan->actions[i].task].signature];
    /* below 2 % only compute is named */
    double loss[] = {0.02 * s->step_s, again, s->wait_s[SL_STREAM_IN], s->wait_s[SL_STREAM_OUT],
                     s->wait_s[SL_STREAM_HOST]};
    const sl_limit which[] = {SL_LIMIT_COMPUTE, why_recompute(s), SL_LIMIT_LINK_IN, SL_LIMIT_LINK_OUT,
                              SL_LIMIT_HOST_COMPUTE};
    int worst = 0;
    for (int i = 1; i < 5; i++)
        if (loss[i] > loss[worst])
            worst = i;
    return which[worst];
}
