/*
 * The best plan of a small chain (chain.h), by trying everything.
 *
 * Every weight lives on the device or in host memory, from where it is fetched as often as a plan likes. Everything the
 * tasks make, gradients included, may leave the device at any time: released, with or without a copy out, and fetched or
 * recomputed later. Memory is a counter without addresses, so no plan can be faster than the optimum, and the
 * planner's can be a little slower for lack of a hole.
 *
 * Why the optimum is exact: order the actions of any schedule by their start. Starting each one in that order as early
 * as stream, inputs and bytes allow, but no earlier than the one before it, ends no later. So all orders are tried, as far as
 * a lower bound of what is left does not exclude them.
 */
#ifndef SL_TESTS_PLAN_ORACLE_H
#define SL_TESTS_PLAN_ORACLE_H

#include "chain.h"

/* What has been started so far, in the order of starts. Sets are bit masks: of weights, and of what tasks make, by task
 * (task t of the program makes A(t) or G(2n-1-t)). */
typedef struct chain_state {
    int next;                         /* program task */
    unsigned resident, weights, made; /* on the device or on the way there; resident: weights that stay all step */
    unsigned host;                    /* made, and a copy to the host has been issued */
    unsigned new_weights, new_made;   /* fetched or recomputed, and not used yet */
    double weight_ready[CHAIN_MAX], made_ready[2 * CHAIN_MAX], host_ready[2 * CHAIN_MAX];
    double weight_idle[CHAIN_MAX], made_idle[2 * CHAIN_MAX]; /* end of the last user so far */
    double compute_free, in_free, out_free;
    double last_start; /* of actions that take bytes: the next ones start no earlier */
    double taken;      /* bytes, those not released yet included */
    double release_time[4 * CHAIN_MAX], release_bytes[4 * CHAIN_MAX];
    int n_releases;
} chain_state;

typedef struct chain_search {
    const chain *c;
    double best;
    double rest_s[2 * CHAIN_MAX + 1]; /* compute of the program tasks from this one on */
} chain_search;

typedef enum chain_action { CHAIN_TASK, CHAIN_RECOMPUTE, CHAIN_FETCH_WEIGHT, CHAIN_FETCH_MADE } chain_action;

static inline int chain_layer(const chain *c, int task)
{
    return task < c->n ? task : chain_tasks(c) - 1 - task;
}

static inline double chain_seconds(const chain *c, int task)
{
    return task < c->n ? c->forward_s[task] : c->backward_s[chain_layer(c, task)];
}

static inline double chain_made_bytes(const chain *c, int task)
{
    return task < c->n ? c->act[task] : c->grad[chain_layer(c, task)];
}

/* What a task reads of what others made. */
static inline unsigned chain_inputs(const chain *c, int task)
{
    int i = chain_layer(c, task);
    return (i > 0 ? 1u << (i - 1) : 0) | (task > c->n ? 1u << (task - 1) : 0);
}

/* The last program task that reads what `task` makes; -1: none. */
static inline int chain_last_reader(const chain *c, int task)
{
    int tasks = chain_tasks(c);
    if (task == c->n - 1 || task == tasks - 1)
        return -1;
    return task < c->n ? tasks - 2 - task : task + 1;
}

static inline void chain_release(chain_state *s, double time, double bytes)
{
    if (s->n_releases >= 4 * CHAIN_MAX)
        abort();
    s->release_time[s->n_releases] = time;
    s->release_bytes[s->n_releases++] = bytes;
}

/* Forgets releases that lie before every later start. */
static inline void chain_settle(chain_state *s)
{
    int kept = 0;
    for (int i = 0; i < s->n_releases; i++)
        if (s->release_time[i] <= s->last_start) {
            s->taken -= s->release_bytes[i];
        } else {
            s->release_time[kept] = s->release_time[i];
            s->release_bytes[kept++] = s->release_bytes[i];
        }
    s->n_releases = kept;
}

/* Earliest start of something that takes `bytes`; INFINITY: never without releasing more. */
static inline double chain_start(const chain *c, const chain_state *s, double earliest, double bytes)
{
    double t = fmax(earliest, s->last_start);
    for (;;) {
        double used = s->taken + bytes, next = INFINITY;
        for (int i = 0; i < s->n_releases; i++)
            if (s->release_time[i] <= t)
                used -= s->release_bytes[i];
            else
                next = fmin(next, s->release_time[i]);
        if (used <= c->budget || next == INFINITY)
            return used <= c->budget ? t : INFINITY;
        t = next;
    }
}

/* No continuation ends earlier: compute in order, and weights that are not there have to cross the link first. */
static inline double chain_bound(const chain_search *x, const chain_state *s)
{
    const chain *c = x->c;
    double bound = fmax(s->compute_free + x->rest_s[s->next], s->out_free), in = s->in_free;
    unsigned there = s->resident | s->weights;
    for (int t = s->next; t < chain_tasks(c); t++) {
        int i = chain_layer(c, t);
        if (!(there >> i & 1)) {
            in += c->weight[i];
            there |= 1u << i;
            bound = fmax(bound, in + x->rest_s[t]);
        }
    }
    return bound;
}

static inline void chain_explore(chain_search *x, const chain_state *s, bool made);

/* Ends the life of what no later task reads. */
static inline void chain_bury(const chain *c, chain_state *s)
{
    int tasks = chain_tasks(c);
    for (int i = 0; i < c->n; i++)
        if (s->weights >> i & 1 && tasks - 1 - i < s->next) {
            s->weights &= ~(1u << i);
            chain_release(s, s->weight_idle[i], c->weight[i]);
        }
    for (int t = 0; t < tasks; t++)
        if (s->made >> t & 1 && chain_last_reader(c, t) < s->next) {
            s->made &= ~(1u << t);
            chain_release(s, s->made_idle[t], chain_made_bytes(c, t));
        }
}

/* `i`: the task, the weight, or the task that made what is fetched. */
static inline void chain_perform(chain_search *x, const chain_state *before, chain_action action, int i, double start)
{
    const chain *c = x->c;
    chain_state s = *before;
    s.last_start = start;
    if (action == CHAIN_FETCH_WEIGHT) {
        s.weights |= 1u << i;
        s.new_weights |= 1u << i;
        s.taken += c->weight[i];
        s.in_free = s.weight_ready[i] = s.weight_idle[i] = start + c->weight[i];
    } else {
        s.made |= 1u << i;
        s.taken += chain_made_bytes(c, i);
        s.made_ready[i] = start + (action == CHAIN_FETCH_MADE ? chain_made_bytes(c, i) : chain_seconds(c, i));
        s.made_idle[i] = s.made_ready[i];
        s.new_made |= (unsigned) (action != CHAIN_TASK) << i;
        if (action == CHAIN_FETCH_MADE)
            s.in_free = s.made_ready[i];
    }
    if (action <= CHAIN_RECOMPUTE) {
        int layer = chain_layer(c, i);
        double end = s.compute_free = s.made_ready[i];
        s.weight_idle[layer] = end;
        s.new_weights &= ~(1u << layer);
        s.new_made &= ~chain_inputs(c, i);
        for (int t = 0; t < chain_tasks(c); t++)
            if (chain_inputs(c, i) >> t & 1)
                s.made_idle[t] = fmax(s.made_idle[t], end);
        s.next += action == CHAIN_TASK;
    }
    chain_bury(c, &s);
    chain_settle(&s);
    chain_explore(x, &s, action <= CHAIN_RECOMPUTE);
}

/* Starts an action as early as what is released for it allows: every set of objects that it does not need, that were
 * used since they came, and of which each one makes the start earlier. Releasing later than others would is no loss: bytes are
 * free from the end of their last user on, whenever that is decided. */
static inline void chain_try(chain_search *x, const chain_state *s, chain_action action, int i)
{
    const chain *c = x->c;
    unsigned weights = s->weights & ~s->new_weights, made = s->made & ~s->new_made;
    double earliest = s->in_free, bytes = action == CHAIN_FETCH_WEIGHT ? c->weight[i] : chain_made_bytes(c, i);
    if (action == CHAIN_FETCH_MADE)
        earliest = fmax(earliest, s->host_ready[i]);
    if (action <= CHAIN_RECOMPUTE) {
        int layer = chain_layer(c, i);
        unsigned inputs = chain_inputs(c, i);
        if (!((s->resident | s->weights) >> layer & 1) || (s->made & inputs) != inputs)
            return;
        earliest = fmax(s->compute_free, s->weight_ready[layer]);
        for (int t = 0; t < chain_tasks(c); t++)
            if (inputs >> t & 1)
                earliest = fmax(earliest, s->made_ready[t]);
        weights &= ~(1u << layer);
        made &= ~inputs;
    }
    unsigned candidates = weights | made << CHAIN_MAX;
    double starts[1 << (3 * CHAIN_MAX)];
    for (unsigned set = 0;; set = (set - candidates) & candidates) { /* subsets before their supersets */
        chain_state after = *s;
        for (int k = 0; k < 3 * CHAIN_MAX; k++)
            if (set >> k & 1 && k < CHAIN_MAX)
                chain_release(&after, after.weight_idle[k], c->weight[k]);
            else if (set >> k & 1)
                chain_release(&after, after.made_idle[k - CHAIN_MAX], chain_made_bytes(c, k - CHAIN_MAX));
        after.weights &= ~set;
        after.made &= ~(set >> CHAIN_MAX);
        double start = starts[set] = chain_start(c, &after, earliest, bytes);
        bool minimal = start < INFINITY;
        for (int k = 0; minimal && k < 3 * CHAIN_MAX; k++)
            minimal = !(set >> k & 1) || starts[set & ~(1u << k)] > start;
        if (minimal)
            chain_perform(x, &after, action, i, start);
        if (set == candidates)
            break;
    }
}

/* `made`: the last action made something or copied it out. Copies out take no device bytes, so when they are issued
 * matters only for their order: it is enough to issue them behind something made. */
static inline void chain_explore(chain_search *x, const chain_state *s, bool made)
{
    const chain *c = x->c;
    int tasks = chain_tasks(c);
    if (s->next == tasks) {
        x->best = fmin(x->best, fmax(s->compute_free, s->out_free));
        return;
    }
    if (chain_bound(x, s) >= x->best * (1 - 1e-12))
        return;
    chain_try(x, s, CHAIN_TASK, s->next);
    for (int i = 0; i < c->n; i++)
        if (!((s->resident | s->weights) >> i & 1) && tasks - 1 - i >= s->next)
            chain_try(x, s, CHAIN_FETCH_WEIGHT, i);
    for (int t = 0; t < s->next; t++) {
        if (s->made >> t & 1 || chain_last_reader(c, t) < s->next)
            continue;
        chain_try(x, s, CHAIN_RECOMPUTE, t);
        if (s->host >> t & 1)
            chain_try(x, s, CHAIN_FETCH_MADE, t);
    }
    for (int t = 0; made && t < s->next; t++)
        if (s->made >> t & 1 && !(s->host >> t & 1)) {
            chain_state after = *s;
            after.host |= 1u << t;
            after.new_made &= ~(1u << t);
            after.out_free = after.host_ready[t] = fmax(s->out_free, s->made_ready[t]) + chain_made_bytes(c, t);
            after.made_idle[t] = fmax(s->made_idle[t], after.out_free);
            chain_explore(x, &after, true);
        }
}

static inline double chain_optimum(const chain *c)
{
    chain_search x = {.c = c, .best = INFINITY};
    for (int t = chain_tasks(c) - 1; t >= 0; t--)
        x.rest_s[t] = x.rest_s[t + 1] + chain_seconds(c, t);
    for (unsigned resident = 0; resident < 1u << c->n; resident++) {
        chain_state s = {.resident = resident};
        for (int i = 0; i < c->n; i++)
            s.taken += resident >> i & 1 ? c->weight[i] : 0;
        if (s.taken <= c->budget)
            chain_explore(&x, &s, false);
    }
    return x.best;
}

#endif
