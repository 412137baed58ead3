/*
 * Evaluates a choice: sweeps it, times it, and keeps it as the best if it is faster. A program that represents a larger
 * step is evaluated as that step: its second middle round repeats the choices of the first, and the time between their
 * ends counts for all omitted rounds. The fastest choices of each origin form a short list, since the whole step may
 * rank them differently.
 */
#include "plan/search/search.h"

#include <math.h>
#include <string.h>
#include <time.h>

/* Processor time of this thread: a busy machine must not make plans worse. */
double sl_search_clock_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double) now.tv_sec + 1e-9 * (double) now.tv_nsec;
}

bool sl_search_over(const sl_search *s)
{
    return s->evaluated >= s->max_evaluations ||
           (s->found && (s->best_s <= s->enough_s || sl_search_clock_s() > s->deadline_s));
}

/* Tasks of the second middle round repeat the choices of the first. */
static void repeat_choices(const sl_search *s, sl_choice *choice)
{
    const sl_analysis *a = s->a;
    for (int32_t t = 0; t < a->program->n_tasks; t++) {
        int32_t like = s->like[t], count = a->first[t + 1] - a->first[t];
        if (like == t || count != a->first[like + 1] - a->first[like])
            continue;
        for (int32_t i = 0; i < count; i++) {
            int32_t e = a->first[t] + i;
            sl_gap gap = (sl_gap) choice->gap[a->first[like] + i];
            choice->gap[e] = gap == SL_GAP_DROP && !a->entries[e].can_drop ? SL_GAP_KEEP : (uint8_t) gap;
        }
    }
}

/* Remembers `trial` if it is one of the fastest, and the fastest of its origin: several choices of one origin are nearly the
 * same. */
static sl_status shortlist(sl_search *s, double step_s)
{
    int from = 0, at;
    while (from < s->n_shortlist && s->shortlist_origin[from] != s->origin)
        from++;
    if (from == s->n_shortlist && s->n_shortlist < SL_SEARCH_SHORTLIST) {
        SL_TRY(sl_choice_new(s->a, &s->shortlist[from]));
        s->shortlist_s[s->n_shortlist++] = INFINITY;
    }
    from = SL_MIN(from, s->n_shortlist - 1);
    if (step_s >= s->shortlist_s[from])
        return SL_OK;
    sl_choice mine = s->shortlist[from];
    sl_choice_copy(s->a, &mine, &s->trial);
    for (at = from; at > 0 && step_s < s->shortlist_s[at - 1]; at--) {
        s->shortlist[at] = s->shortlist[at - 1];
        s->shortlist_s[at] = s->shortlist_s[at - 1];
        s->shortlist_origin[at] = s->shortlist_origin[at - 1];
    }
    s->shortlist[at] = mine;
    s->shortlist_s[at] = step_s;
    s->shortlist_origin[at] = s->origin;
    return SL_OK;
}

sl_status sl_search_consider(sl_search *s, sl_outcome *outcome)
{
    if (s->like)
        repeat_choices(s, &s->trial);
    SL_TRY(sl_sweep_run(s->sweep, &s->trial, s->budget, s->actual, outcome));
    if (s->like && outcome->feasible)
        outcome->step_s += s->repeat * (sl_sweep_round_end_s(s->sweep, 2) - sl_sweep_round_end_s(s->sweep, 1));
    s->evaluated++;
    if (outcome->feasible)
        s->pass_s = fmin(s->pass_s, outcome->step_s);
    if (s->like && outcome->feasible)
        SL_TRY(shortlist(s, outcome->step_s));
    outcome->best = outcome->feasible && (!s->found || outcome->step_s < s->best_s * (1 - 1e-9));
    if (outcome->best) {
        s->found = true;
        s->forced = outcome->forced;
        s->best_s = outcome->step_s;
        if (s->paced)
            sl_sweep_set_pace(s->sweep);
        sl_choice_copy(s->a, &s->best, &s->trial);
        sl_plan_destroy(s->plan);
        s->plan = NULL;
        if (!s->small) /* running it a second time would take longer than keeping it */
            return sl_sweep_export(s->sweep, &s->plan);
    }
    return SL_OK;
}

sl_status sl_search_settle(sl_search *s, int times)
{
    for (int i = 0; i < times && !sl_search_over(s); i++) {
        sl_outcome outcome;
        SL_TRY(sl_search_consider(s, &outcome));
        if (!outcome.feasible || !outcome.forced || !memcmp(s->trial.gap, s->actual, (size_t) s->a->n_entries))
            break;
        memcpy(s->trial.gap, s->actual, (size_t) s->a->n_entries);
    }
    return SL_OK;
}

sl_status sl_search_plan(sl_search *s, sl_plan **plan)
{
    sl_outcome outcome;
    if (!s->plan) {
        SL_TRY(sl_sweep_run(s->sweep, &s->best, s->budget, NULL, &outcome));
        SL_ASSERT(outcome.feasible);
        SL_TRY(sl_sweep_export(s->sweep, &s->plan));
    }
    *plan = s->plan;
    s->plan = NULL;
    return SL_OK;
}
