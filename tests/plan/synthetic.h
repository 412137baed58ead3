/* Programs made by hand for the planner's tests: a builder, random programs, and step-shaped ones (blocks, chunks,
 * rounds) of the size of real models. Every task is an ADD to the planner; what accumulates says so through the
 * accumulate bit. */
#ifndef SL_TESTS_PLAN_SYNTHETIC_H
#define SL_TESTS_PLAN_SYNTHETIC_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "cost/cost.h"
#include "plan/plan.h"

typedef struct synthetic {
    sl_program program;
    sl_costs *costs;
    int32_t capacity_objects, capacity_tasks;
    int32_t n_kinds_max;
} synthetic;

static inline void synthetic_check(sl_status status)
{
    if (status != SL_OK)
        abort();
}

static inline synthetic *synthetic_new(int32_t max_objects, int32_t max_tasks, int32_t max_kinds)
{
    sl_region *region;
    synthetic *s;
    synthetic_check(sl_region_create(&region));
    synthetic_check(sl_region_alloc(region, &s, 1, sizeof *s));
    sl_program *p = &s->program;
    p->region = region;
    synthetic_check(sl_region_alloc(region, &p->objects, max_objects, sizeof *p->objects));
    synthetic_check(sl_region_alloc(region, &p->tasks, max_tasks, sizeof *p->tasks));
    synthetic_check(sl_region_alloc(region, &p->signatures, max_kinds, sizeof *p->signatures));
    synthetic_check(sl_costs_new(max_kinds, &s->costs));
    s->capacity_objects = max_objects;
    s->capacity_tasks = max_tasks;
    s->n_kinds_max = max_kinds;
    p->tokens = 1;
    s->costs->link_bytes_per_s[0] = s->costs->link_bytes_per_s[1] = 1;
    s->costs->link_bytes_per_s_both[0] = s->costs->link_bytes_per_s_both[1] = 1;
    s->costs->n_signatures = 0;
    return s;
}

static inline void synthetic_free(synthetic *s)
{
    sl_costs_destroy(s->costs);
    sl_region_destroy(s->program.region);
}

static inline int32_t synthetic_kind(synthetic *s, double device_s, double host_s, size_t workspace)
{
    int32_t k = s->program.n_signatures++;
    if (k >= s->n_kinds_max)
        abort();
    s->costs->device_s[k] = device_s;
    s->costs->host_s[k] = host_s;
    s->costs->workspace[SL_TIER_DEVICE][k] = workspace;
    s->costs->n_signatures = s->program.n_signatures;
    s->program.signatures[k].work.flops = s->program.signatures[k].work.hardware_flops = device_s;
    return k;
}

static inline int32_t synthetic_object(synthetic *s, sl_object_class class, size_t bytes)
{
    int32_t o = s->program.n_objects++;
    if (o >= s->capacity_objects)
        abort();
    s->program.objects[o] = (sl_object){.name = "object",
                                        .class = class,
                                        .bytes = bytes,
                                        .block = -1,
                                        .chunk = -1,
                                        .round = -1,
                                        .producer = -1,
                                        .group = -1,
                                        .persistent = class == SL_CLASS_PARAMETER || class == SL_CLASS_OPTIMIZER};
    return o;
}

static inline int32_t synthetic_task(synthetic *s, int32_t kind, sl_phase phase, int32_t block, int32_t chunk,
                                     int32_t round)
{
    int32_t t = s->program.n_tasks++;
    if (t >= s->capacity_tasks)
        abort();
    sl_task *task = &s->program.tasks[t];
    *task = (sl_task){.op = SL_OP_ADD,
                      .name = "task",
                      .phase = phase,
                      .block = block,
                      .chunk = chunk,
                      .round = round,
                      .signature = kind};
    for (int i = 0; i < SL_MAX_IN; i++)
        task->in[i].object = -1;
    for (int i = 0; i < SL_MAX_OUT; i++)
        task->out[i].object = -1;
    s->program.signatures[kind].count++;
    s->program.flops += s->program.signatures[kind].work.flops;
    return t;
}

static inline sl_use synthetic_use(const synthetic *s, int32_t object)
{
    return (sl_use){object, 0, sl_type_1d(SL_F32, (int64_t) (s->program.objects[object].bytes / 4))};
}

static inline void synthetic_in(synthetic *s, int32_t task, int32_t object)
{
    sl_task *t = &s->program.tasks[task];
    for (int i = 0; i < SL_MAX_IN; i++)
        if (t->in[i].object < 0) {
            t->in[i] = synthetic_use(s, object);
            return;
        }
    abort();
}

/* accumulate: read and written. Otherwise the first task to write an object is its producer as long as no other
 * writes it. */
static inline void synthetic_out(synthetic *s, int32_t task, int32_t object, bool accumulate)
{
    sl_task *t = &s->program.tasks[task];
    sl_object *o = &s->program.objects[object];
    for (int i = 0; i < SL_MAX_OUT; i++)
        if (t->out[i].object < 0) {
            t->out[i] = synthetic_use(s, object);
            t->accumulate |= (uint32_t) accumulate << i;
            bool written = o->group == -2;
            o->producer = !written && !accumulate && !o->persistent ? task : -1;
            o->group = -2;
            return;
        }
    abort();
}

/* ---- random programs ------------------------------------------------------------------------------------------- */

typedef struct rng {
    uint64_t state;
} rng;

static inline uint64_t rng_next(rng *r)
{
    uint64_t z = (r->state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static inline int32_t rng_below(rng *r, int32_t n)
{
    return (int32_t) (rng_next(r) % (uint64_t) n);
}

static inline double rng_unit(rng *r)
{
    return (double) (rng_next(r) >> 11) * 0x1p-53;
}

/* Any program the contract allows: several writers, partial writes, host tasks, multi-output producers, data and
 * results. */
static inline synthetic *synthetic_random(uint64_t seed, int32_t n_tasks, int32_t n_objects)
{
    rng r = {seed};
    synthetic *s = synthetic_new(n_objects + 2, n_tasks, n_tasks);
    int32_t data = synthetic_object(s, SL_CLASS_DATA, 256), result = synthetic_object(s, SL_CLASS_RESULT, 1024);
    int32_t n_persistent = 1 + rng_below(&r, n_objects / 2 > 0 ? n_objects / 2 : 1);
    for (int32_t i = 0; i < n_objects; i++)
        synthetic_object(s, i < n_persistent ? (i % 2 ? SL_CLASS_OPTIMIZER : SL_CLASS_PARAMETER) : SL_CLASS_ACTIVATION,
                         (size_t) (1 + rng_below(&r, 16)) * 128);
    int32_t defined = 2 + n_persistent;
    for (int32_t i = 0; i < n_tasks; i++) {
        int32_t kind = synthetic_kind(s, 100 + 4000 * rng_unit(&r), 200 + 4000 * rng_unit(&r),
                                      rng_below(&r, 3) ? 0 : (size_t) rng_below(&r, 2000));
        int32_t t = synthetic_task(s, kind, SL_PHASE_FORWARD, i / 4, 0, 0);
        sl_task *task = &s->program.tasks[t];
        int32_t n_in = rng_below(&r, 4);
        if (!rng_below(&r, 4))
            synthetic_in(s, t, data);
        for (int32_t k = 0; k < n_in; k++) {
            int32_t o = 2 + rng_below(&r, defined - 2);
            synthetic_in(s, t, o);
        }
        int32_t fresh = 0;
        while (defined < n_objects + 2 && fresh < 2 && rng_below(&r, 2)) {
            synthetic_out(s, t, defined++, false);
            fresh++;
        }
        if (!fresh || !rng_below(&r, 3)) { /* update something, whole or in part */
            int32_t o = 2 + rng_below(&r, defined - fresh - 2);
            synthetic_out(s, t, o, rng_below(&r, 2));
            int last = fresh;
            if (!rng_below(&r, 3) && s->program.objects[o].bytes > 256) {
                task->out[last].offset = 256;
                task->out[last].type = sl_type_1d(SL_F32, 4);
                s->program.objects[o].producer = -1;
            }
            task->host_allowed = rng_below(&r, 2);
        }
        if (!rng_below(&r, 5) && task->out[2].object < 0) {
            synthetic_out(s, t, result, false);
            for (int k = 0; k < SL_MAX_OUT; k++)
                if (task->out[k].object == result) {
                    task->out[k].offset = (size_t) rng_below(&r, 4) * 256;
                    task->out[k].type = sl_type_1d(SL_F32, 1);
                }
            s->program.objects[result].producer = -1;
        }
    }
    for (int32_t o = 0; o < s->program.n_objects; o++)
        s->program.objects[o].group = s->program.objects[o].persistent ? o : -1;
    return s;
}

/* A step with much to recompute: forwards that each write a slice of a context and read the slices before it, then
 * backwards in reverse that accumulate gradients, then updates. Some forwards write two activations, some write theirs in two
 * parts. */
static inline synthetic *synthetic_sliced(uint64_t seed, int32_t n)
{
    rng r = {seed};
    const size_t slice = 256;
    synthetic *s = synthetic_new(5 * n + 1, 5 * n, 5 * n);
    bool down = rng_below(&r, 2);
    int32_t context = synthetic_object(s, SL_CLASS_CONTEXT, (size_t) n * slice);
    int32_t param[16], grad[16], act[16], second[16];
    for (int32_t i = 0; i < n; i++) {
        param[i] = synthetic_object(s, SL_CLASS_PARAMETER, (size_t) (1 + rng_below(&r, 8)) * 256);
        grad[i] = synthetic_object(s, SL_CLASS_GRADIENT, s->program.objects[param[i]].bytes);
        act[i] = synthetic_object(s, SL_CLASS_ACTIVATION, (size_t) (2 + rng_below(&r, 8)) * 256);
        second[i] = rng_below(&r, 2) ? synthetic_object(s, SL_CLASS_ACTIVATION, 256) : -1;
    }
    for (int32_t i = 0; i < n; i++) {
        int32_t at = down ? n - 1 - i : i; /* its slice; slices are filled upwards or downwards */
        int32_t t =
            synthetic_task(s, synthetic_kind(s, 100 + 900 * rng_unit(&r), INFINITY, 0), SL_PHASE_FORWARD, i, 0, 0);
        if (i > 0)
            synthetic_in(s, t, act[i - 1]);
        synthetic_out(s, t, context, false);
        s->program.tasks[t].out[0].offset = (size_t) at * slice;
        s->program.tasks[t].out[0].type = sl_type_1d(SL_F32, (int64_t) (slice / 4));
        t = synthetic_task(s, synthetic_kind(s, 100 + 900 * rng_unit(&r), INFINITY, (size_t) rng_below(&r, 300)),
                           SL_PHASE_FORWARD, i, 0, 0);
        sl_task *task = &s->program.tasks[t];
        synthetic_in(s, t, context);
        task->in[0].offset = down ? (size_t) at * slice : 0;
        task->in[0].type = sl_type_1d(SL_F32, (int64_t) ((size_t) (i + 1) * slice / 4));
        synthetic_in(s, t, param[i]);
        if (i > 0)
            synthetic_in(s, t, act[i - 1]);
        synthetic_out(s, t, act[i], false);
        if (second[i] >= 0)
            synthetic_out(s, t, second[i], false);
        if (rng_below(&r, 4) == 0) { /* the rest of the activation comes later */
            task->out[0].type = sl_type_1d(SL_F32, 64);
            t = synthetic_task(s, synthetic_kind(s, 100, INFINITY, 0), SL_PHASE_FORWARD, i, 0, 0);
            synthetic_in(s, t, param[i]);
            synthetic_out(s, t, act[i], false);
            s->program.tasks[t].out[0].offset = 256;
            s->program.tasks[t].out[0].type = sl_type_1d(SL_F32, (int64_t) (s->program.objects[act[i]].bytes / 4) - 64);
            s->program.objects[act[i]].producer = -1;
        }
    }
    s->program.objects[context].producer = -1;
    for (int32_t i = n - 1; i >= 0; i--) {
        int32_t t =
            synthetic_task(s, synthetic_kind(s, 200 + 900 * rng_unit(&r), INFINITY, (size_t) rng_below(&r, 300)),
                           SL_PHASE_BACKWARD, i, 0, 0);
        synthetic_in(s, t, param[i]);
        synthetic_in(s, t, act[i]);
        if (second[i] >= 0)
            synthetic_in(s, t, second[i]);
        if (i % 2)
            synthetic_in(s, t, context);
        synthetic_out(s, t, grad[i], i + 1 < n);
        if (i > 0) /* the next backward adds to it */
            synthetic_out(s, t, grad[i - 1], false);
    }
    for (int32_t i = 0; i < n; i++) {
        int32_t t = synthetic_task(s, synthetic_kind(s, 100, 300, 0), SL_PHASE_OPTIMIZER, i, 0, 0);
        synthetic_in(s, t, grad[i]);
        synthetic_out(s, t, param[i], true);
        s->program.tasks[t].host_allowed = true;
    }
    for (int32_t o = 0; o < s->program.n_objects; o++)
        s->program.objects[o].group = s->program.objects[o].persistent ? o : -1;
    return s;
}

#endif
