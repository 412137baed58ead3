/*
 * Which choices to try. First whether anything fits (sl_search_feasible): a ladder of extremes, the frugal ones first. Then the
 * good ones.
 */
#include "plan/internal.h"

#include <math.h>
#include <string.h>

#include "core/clock.h"

static sl_status new_choice(const sl_analysis *a, sl_choice *choice)
{
    SL_TRY(sl_alloc(&choice->gap, a->n_entries + 1, 1));
    SL_TRY(sl_alloc(&choice->home, a->program->n_objects + 1, 1));
    SL_TRY(sl_alloc(&choice->on_host, a->program->n_tasks + 1, 1));
    SL_TRY(sl_alloc(&choice->lead, a->n_entries + 1, sizeof *choice->lead));
    memset(choice->lead, 0xff, (size_t) a->n_entries * sizeof *choice->lead);
    return SL_OK;
}

static void free_choice(sl_choice *choice)
{
    sl_free(choice->gap);
    sl_free(choice->home);
    sl_free(choice->on_host);
    sl_free(choice->lead);
}

static void copy_choice(const sl_analysis *a, sl_choice *to, const sl_choice *from)
{
    memcpy(to->gap, from->gap, (size_t) a->n_entries);
    memcpy(to->home, from->home, (size_t) a->program->n_objects);
    memcpy(to->on_host, from->on_host, (size_t) a->program->n_tasks);
    memcpy(to->lead, from->lead, (size_t) a->n_entries * sizeof *to->lead);
    to->slack = from->slack;
    to->fit = from->fit;
    to->on_demand = from->on_demand;
}

sl_status sl_search_create(const sl_analysis *a, const sl_fixed_homes *fixed, const size_t budget[SL_TIER_COUNT],
                           sl_search **search)
{
    sl_search *s;
    SL_TRY(sl_alloc(&s, 1, sizeof *s));
    s->a = a;
    s->fixed = fixed;
    memcpy(s->budget, budget, sizeof s->budget);
    sl_status status;
    SL_TRY_GOTO(new_choice(a, &s->best), destroy);
    SL_TRY_GOTO(new_choice(a, &s->trial), destroy);
    SL_TRY_GOTO(sl_alloc(&s->actual, a->n_entries + 1, 1), destroy);
    SL_TRY_GOTO(sl_sweep_create(a, fixed, &s->sweep), destroy);
    *search = s;
    return SL_OK;
destroy:
    sl_search_destroy(s);
    return status;
}

void sl_search_destroy(sl_search *s)
{
    if (!s)
        return;
    free_choice(&s->best);
    free_choice(&s->trial);
    sl_free(s->actual);
    sl_sweep_destroy(s->sweep);
    sl_free(s);
}

/* ---- building blocks ------------------------------------------------------------------------------------------------ */

typedef enum sl_gaps { GAPS_EVICT, GAPS_DROP_OR_EVICT, GAPS_KEEP, GAPS_DROP_OR_KEEP, GAPS_COUNT } sl_gaps;

static void set_gaps(const sl_search *s, sl_choice *choice, sl_gaps gaps)
{
    for (int32_t e = 0; e < s->a->n_entries; e++) {
        bool drop = s->a->entries[e].can_drop && (gaps == GAPS_DROP_OR_EVICT || gaps == GAPS_DROP_OR_KEEP);
        choice->gap[e] = drop                                             ? SL_GAP_DROP
                         : gaps == GAPS_KEEP || gaps == GAPS_DROP_OR_KEEP ? SL_GAP_KEEP
                                                                          : SL_GAP_EVICT;
    }
}

static void set_updates(const sl_search *s, sl_choice *choice, bool on_host)
{
    const sl_program *p = s->a->program;
    for (int32_t t = 0; t < p->n_tasks; t++)
        choice->on_host[t] = on_host && p->tasks[t].host_allowed && isfinite(s->a->costs->host_s[p->tasks[t].kind]);
}

static size_t largest_need(const sl_search *s, const sl_choice *choice)
{
    size_t largest = 0;
    for (int32_t t = 0; t < s->a->program->n_tasks; t++)
        if (!choice->on_host[t])
            largest = SL_MAX(largest, sl_analysis_need(s->a, t, SL_TIER_DEVICE));
    return largest;
}

/* Homes: at most `device_bytes` of persistent objects live on the device, the rest in host memory. */
static void set_homes(const sl_search *s, sl_choice *choice, size_t device_bytes)
{
    const sl_program *p = s->a->program;
    for (int32_t o = 0; o < p->n_objects; o++) {
        choice->home[o] = SL_TIER_HOST;
        if (!p->objects[o].persistent)
            continue;
        if (s->fixed)
            choice->home[o] = s->fixed->tier[o];
        else if (s->a->bytes[o] <= device_bytes) {
            choice->home[o] = SL_TIER_DEVICE;
            device_bytes -= s->a->bytes[o];
        }
    }
}

/* How many bytes of persistent objects to put on the device: step 0 none, then from what host memory lacks to all that fits. */
static bool home_bytes(const sl_search *s, const sl_choice *choice, int step, size_t *bytes)
{
    const sl_program *p = s->a->program;
    size_t persistent = 0, lack = 0, room = 0;
    for (int32_t o = 0; o < p->n_objects; o++) {
        bool io = p->objects[o].class == SL_CLASS_DATA || p->objects[o].class == SL_CLASS_RESULT;
        if (p->objects[o].persistent)
            persistent += s->a->bytes[o];
        if (p->objects[o].persistent || io)
            lack += s->a->bytes[o];
    }
    size_t need = largest_need(s, choice), device = s->budget[SL_TIER_DEVICE] / SL_ALIGN * SL_ALIGN;
    room = device > need ? SL_MIN(device - need, persistent) : 0;
    lack = SL_MIN(lack - SL_MIN(lack, s->budget[SL_TIER_HOST]), persistent);
    *bytes = step == 0 ? 0 : step == 1 ? lack : step == 2 ? (lack + room) / 2 : room;
    if (step > 0 && (room == 0 || s->fixed))
        return false;
    return step == 0 ? lack == 0 || s->fixed : *bytes >= lack && (step != 1 || lack > 0);
}

/* ---- does it fit? ---------------------------------------------------------------------------------------------------- */

#define HOME_STEPS 4

sl_status sl_search_feasible(sl_search *s, bool *feasible)
{
    static const sl_gaps order[GAPS_COUNT] = {GAPS_EVICT, GAPS_DROP_OR_EVICT, GAPS_KEEP, GAPS_DROP_OR_KEEP};
    sl_choice *choice = &s->best;
    *feasible = false;
    choice->fit = 2;
    choice->on_demand = true;
    for (int step = 0; step < HOME_STEPS; step++)
        for (int host = 1; host >= 0; host--) {
            size_t bytes;
            set_updates(s, choice, host);
            if (!home_bytes(s, choice, step, &bytes))
                continue;
            set_homes(s, choice, bytes);
            if (largest_need(s, choice) > s->budget[SL_TIER_DEVICE])
                continue;
            for (int g = 0; g < GAPS_COUNT; g++) {
                sl_outcome outcome;
                set_gaps(s, choice, order[g]);
                SL_TRY(sl_sweep_run(s->sweep, choice, s->budget, NULL, &outcome));
                if (outcome.feasible) {
                    *feasible = true;
                    return SL_OK;
                }
            }
        }
    return SL_OK;
}

/* ---- what is good? --------------------------------------------------------------------------------------------------- */

static bool out_of_time(const sl_search *s)
{
    return s->evaluated >= s->max_evaluations || (s->found && sl_clock_s() > s->deadline_s);
}

/* Evaluates `trial`; keeps it if it is faster than the best. */
static sl_status consider(sl_search *s, sl_outcome *outcome)
{
    SL_TRY(sl_sweep_run(s->sweep, &s->trial, s->budget, s->actual, outcome));
    s->evaluated++;
    if (outcome->feasible && (!s->found || outcome->step_s < s->best_s * (1 - 1e-9))) {
        s->found = true;
        s->best_s = outcome->step_s;
        copy_choice(s->a, &s->best, &s->trial);
    }
    return SL_OK;
}

/* Evaluates `trial`, then again with the gaps that had to give planned from the start. */
static sl_status consider_settling(sl_search *s, int times)
{
    for (int i = 0; i < times && !out_of_time(s); i++) {
        sl_outcome outcome;
        SL_TRY(consider(s, &outcome));
        if (!outcome.feasible || !outcome.forced || !memcmp(s->trial.gap, s->actual, (size_t) s->a->n_entries))
            break;
        memcpy(s->trial.gap, s->actual, (size_t) s->a->n_entries);
    }
    return SL_OK;
}

static sl_status try_starts(sl_search *s)
{
    for (int host = 1; host >= 0; host--)
        for (int step = HOME_STEPS - 1; step >= 0; step--)
            for (int gaps = 0; gaps < GAPS_COUNT; gaps++) {
                size_t bytes;
                set_updates(s, &s->trial, host);
                if (!home_bytes(s, &s->trial, step, &bytes))
                    continue;
                set_homes(s, &s->trial, bytes);
                set_gaps(s, &s->trial, (sl_gaps) gaps);
                s->trial.on_demand = false;
                s->trial.fit = s->budget[SL_TIER_DEVICE] == SIZE_MAX ? 3 : 0;
                SL_TRY(consider_settling(s, 4));
            }
    return SL_OK;
}

sl_status sl_search_improve(sl_search *s)
{
    sl_outcome outcome;
    copy_choice(s->a, &s->trial, &s->best);
    SL_TRY(consider(s, &outcome));
    SL_ASSERT(s->found);
    return try_starts(s);
}

sl_status sl_search_plan(sl_search *s, sl_plan **plan)
{
    sl_outcome outcome;
    SL_TRY(sl_sweep_run(s->sweep, &s->best, s->budget, NULL, &outcome));
    SL_ASSERT(outcome.feasible);
    return sl_sweep_export(s->sweep, plan);
}
