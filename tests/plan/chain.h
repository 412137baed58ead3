/*
 * Chains small enough to try all plans of them, as programs for the planner, and the simplest plans of a chain:
 *
 *     F0 F1 .. Fn-1 Bn-1 .. B0      Fi: A(i-1), Wi -> Ai        Bi: A(i-1), Wi, G(i+1) -> Gi
 */
#ifndef SL_TESTS_PLAN_CHAIN_H
#define SL_TESTS_PLAN_CHAIN_H

#include <math.h>
#include <string.h>

#include "synthetic.h"

#define CHAIN_MAX 3
enum { CHAIN_KEEP, CHAIN_EVICT, CHAIN_DROP };

typedef struct chain {
    int n;
    double forward_s[CHAIN_MAX], backward_s[CHAIN_MAX];
    double act[CHAIN_MAX], weight[CHAIN_MAX], grad[CHAIN_MAX]; /* bytes, multiples of SL_ALIGN */
    double budget;
} chain;

/* A plan of fixed form, for the simple ones; boundaries are program tasks (2n of them). */
typedef struct chain_choice {
    bool weight_placement[CHAIN_MAX], weight_kept[CHAIN_MAX];
    int weight_first[CHAIN_MAX], weight_again[CHAIN_MAX]; /* fetch issued before this task */
    int act[CHAIN_MAX], act_again[CHAIN_MAX];             /* CHAIN_KEEP, ...; for Ai with a gap: i < n - 1 */
} chain_choice;

typedef struct chain_fetch {
    int issue, deadline;
    double bytes;
    double ready; /* host copy complete */
    double end;
    int *done; /* set when it has arrived */
    double *arrived;
} chain_fetch;

static inline int chain_tasks(const chain *c)
{
    return 2 * c->n;
}

/* Bytes that stay on the device from the start of step `task` for its own sake are counted by events: +bytes at a
 * time, -bytes at a time. The simulation advances tasks and fetches in the one order their issue boundaries allow. */
typedef struct chain_events {
    double time[64], bytes[64];
    int count;
    double capacity;
} chain_events;

/* Earliest time >= t from which `bytes` more always fit, given releases known so far. Releases are the only events
 * in the future: everything taken so far was taken before. INFINITY: never. */
static inline double chain_wait(const chain_events *e, double t, double bytes)
{
    double used = 0;
    for (int i = 0; i < e->count; i++)
        used += e->bytes[i] > 0 || e->time[i] <= t ? e->bytes[i] : 0;
    while (used + bytes > e->capacity + 1e-6) {
        double next = INFINITY;
        for (int i = 0; i < e->count; i++)
            if (e->bytes[i] < 0 && e->time[i] > t && e->time[i] < next)
                next = e->time[i];
        if (next == INFINITY)
            return INFINITY;
        t = next;
        used = 0;
        for (int i = 0; i < e->count; i++)
            used += e->bytes[i] > 0 || e->time[i] <= t ? e->bytes[i] : 0;
    }
    return t;
}

static inline void chain_event(chain_events *e, double time, double bytes)
{
    if (e->count >= 64)
        abort();
    e->time[e->count] = time;
    e->bytes[e->count++] = bytes;
}

/* Step time of a choice; INFINITY: it does not fit. */
static inline double chain_time(const chain *c, const chain_choice *x)
{
    int n = c->n, tasks = chain_tasks(c);
    chain_events mem = {.capacity = c->budget};
    chain_fetch fetches[3 * CHAIN_MAX];
    int n_fetches = 0, next_fetch = 0;
    double in_free = 0, out_free = 0, now = 0, end = 0;
    double weight_at[CHAIN_MAX], act_at[CHAIN_MAX], act_host[CHAIN_MAX];
    for (int i = 0; i < n; i++) {
        weight_at[i] = act_at[i] = 0;
        act_host[i] = INFINITY;
        if (x->weight_placement[i]) {
            chain_event(&mem, 0, c->weight[i]);
            continue;
        }
        fetches[n_fetches++] = (chain_fetch){x->weight_first[i], i, c->weight[i], 0, 0, NULL, &weight_at[i]};
        if (!x->weight_kept[i])
            fetches[n_fetches++] =
                (chain_fetch){x->weight_again[i], tasks - 1 - i, c->weight[i], 0, 0, NULL, &weight_at[i]};
    }
    for (int i = 0; i + 1 < n; i++)
        if (x->act[i] == CHAIN_EVICT)
            fetches[n_fetches++] = (chain_fetch){x->act_again[i], tasks - 2 - i, c->act[i], -1, 0, NULL, &act_at[i]};
    for (int i = 1; i < n_fetches; i++) /* by issue, then deadline */
        for (int k = i;
             k > 0 && (fetches[k].issue < fetches[k - 1].issue ||
                       (fetches[k].issue == fetches[k - 1].issue && fetches[k].deadline < fetches[k - 1].deadline));
             k--) {
            chain_fetch swap = fetches[k];
            fetches[k] = fetches[k - 1];
            fetches[k - 1] = swap;
        }
    for (int t = 0; t < tasks; t++) {
        for (; next_fetch < n_fetches && fetches[next_fetch].issue <= t; next_fetch++) {
            chain_fetch *f = &fetches[next_fetch];
            double ready = f->ready < 0 ? act_host[tasks - 2 - f->deadline] : 0;
            if (ready == INFINITY)
                return INFINITY;
            double start = chain_wait(&mem, fmax(fmax(in_free, ready), t ? now : 0), f->bytes);
            if (start == INFINITY)
                return INFINITY;
            chain_event(&mem, start, f->bytes);
            in_free = start + f->bytes;
            *f->arrived = in_free;
        }
        int i = t < n ? t : tasks - 1 - t;
        bool forward = t < n;
        if (!forward && i > 0 &&
            x->act[i - 1] == CHAIN_DROP) { /* F(i-1) again: needs A(i-2) and W(i-1) on the device */
            int k = i - 1;
            bool weight_there = x->weight_placement[k] || x->weight_kept[k] || x->weight_again[k] <= t;
            bool input_there =
                k == 0 || x->act[k - 1] == CHAIN_KEEP || (x->act[k - 1] == CHAIN_EVICT && x->act_again[k - 1] <= t);
            if (!weight_there || !input_there)
                return INFINITY;
            double start = fmax(now, fmax(weight_at[k], k ? act_at[k - 1] : 0));
            start = chain_wait(&mem, start, c->act[k]);
            if (start == INFINITY)
                return INFINITY;
            chain_event(&mem, start, c->act[k]);
            now = start + c->forward_s[k];
            act_at[k] = now;
        }
        double start = fmax(now, weight_at[i]);
        if (i > 0)
            start = fmax(start, act_at[i - 1]);
        double made = forward ? c->act[i] : c->grad[i];
        start = chain_wait(&mem, start, made);
        if (start == INFINITY)
            return INFINITY;
        chain_event(&mem, start, made);
        now = start + (forward ? c->forward_s[i] : c->backward_s[i]);
        end = fmax(end, now);
        if (forward)
            act_at[i] = now;
        if (forward && i + 1 < n && x->act[i] == CHAIN_EVICT) {
            out_free = fmax(out_free, now) + c->act[i];
            act_host[i] = out_free;
        }
        /* What leaves now: weights between forward and backward, activations after their last use before a gap, all
         * that is dead. */
        if (!x->weight_placement[i] && (!forward || !x->weight_kept[i]))
            chain_event(&mem, now, -c->weight[i]);
        if (forward && i > 0 && x->act[i - 1] != CHAIN_KEEP)
            chain_event(&mem, x->act[i - 1] == CHAIN_EVICT ? fmax(now, act_host[i - 1]) : now, -c->act[i - 1]);
        if (!forward && i > 0)
            chain_event(&mem, now, -c->act[i - 1]);
        if (forward && i == n - 1)
            chain_event(&mem, now, -c->act[i]); /* nobody reads the last activation */
        if (!forward && i < n - 1)
            chain_event(&mem, now, -c->grad[i + 1]);
        if (!forward && i == 0)
            chain_event(&mem, now, -c->grad[0]);
    }
    return fmax(end, out_free);
}

/* The simple plans: everything moved for every use, just in time; everything kept that is not dropped; the farthest
 * next use leaves first (weights of the first layers, then of later ones, until it fits). */
static inline double chain_simple(const chain *c)
{
    double best = INFINITY;
    int n = c->n, tasks = chain_tasks(c);
    for (int acts = CHAIN_KEEP; acts <= CHAIN_DROP; acts++)
        for (int leaving = 0; leaving <= n; leaving++) {
            chain_choice x = {0};
            for (int i = 0; i < n; i++) {
                x.weight_kept[i] = i >= leaving;
                x.weight_first[i] = i;
                x.weight_again[i] = tasks - 1 - i;
                x.act[i] = i + 1 < n ? acts : CHAIN_KEEP;
                x.act_again[i] = tasks - 2 - i;
            }
            best = fmin(best, chain_time(c, &x));
        }
    return best;
}

static inline chain chain_random(uint64_t seed)
{
    rng r = {seed};
    chain c = {.n = 3};
    double total = 0, need = 0;
    for (int i = 0; i < c.n; i++) {
        c.act[i] = SL_ALIGN * (1 + rng_below(&r, 8));
        c.weight[i] = SL_ALIGN * (1 + rng_below(&r, 8));
        c.grad[i] = SL_ALIGN * (1 + rng_below(&r, 4));
        c.forward_s[i] = SL_ALIGN * (0.5 + 6 * rng_unit(&r));
        c.backward_s[i] = c.forward_s[i] * (1 + 2 * rng_unit(&r));
        total += c.act[i] + c.weight[i] + c.grad[i];
    }
    for (int i = 0; i < c.n; i++) {
        double in = i ? c.act[i - 1] : 0, next = i + 1 < c.n ? c.grad[i + 1] : 0;
        need = fmax(need, fmax(in + c.weight[i] + c.act[i], in + c.weight[i] + c.grad[i] + next));
    }
    c.budget = need + SL_ALIGN * floor(rng_unit(&r) * (total - need) / SL_ALIGN);
    return c;
}

/* The same chain for the planner. */
static inline synthetic *chain_program(const chain *c)
{
    int n = c->n, tasks = chain_tasks(c);
    synthetic *s = synthetic_new(4 * n, tasks, tasks);
    int32_t act[CHAIN_MAX], weight[CHAIN_MAX], grad[CHAIN_MAX];
    for (int i = 0; i < n; i++) {
        weight[i] = synthetic_object(s, SL_CLASS_PARAMETER, (size_t) c->weight[i]);
        act[i] = synthetic_object(s, SL_CLASS_ACTIVATION, (size_t) c->act[i]);
        grad[i] = synthetic_object(s, SL_CLASS_HIDDEN, (size_t) c->grad[i]);
    }
    for (int t = 0; t < tasks; t++) {
        int i = t < n ? t : tasks - 1 - t;
        int32_t kind = synthetic_kind(s, t < n ? c->forward_s[i] : c->backward_s[i], INFINITY, 0);
        synthetic_task(s, kind, t < n ? SL_PHASE_FORWARD : SL_PHASE_BACKWARD, i, 0, 0);
        synthetic_in(s, t, weight[i]);
        if (i > 0)
            synthetic_in(s, t, act[i - 1]);
        if (t >= n && i + 1 < n)
            synthetic_in(s, t, grad[i + 1]);
        synthetic_out(s, t, t < n ? act[i] : grad[i], false);
    }
    for (int32_t o = 0; o < s->program.n_objects; o++)
        s->program.objects[o].group = s->program.objects[o].persistent ? o : -1;
    return s;
}

#endif
