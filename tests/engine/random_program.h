/* Small random programs: additions, scalings and matrix products over data, activations with random lifetimes, accumulators,
 * objects written in parts, and persistent objects updated at the end. Everything a plan can get wrong, in a few KiB. */
#ifndef SL_TESTS_RANDOM_PROGRAM_H
#define SL_TESTS_RANDOM_PROGRAM_H

#include "core/mem.h"
#include "core/rng.h"
#include "ops/scale.h"
#include "program/program.h"
#include "test.h"

typedef struct test_rng {
    uint64_t key, count;
} test_rng;

static inline int32_t test_draw(test_rng *rng, int32_t below) /* [0, below) */
{
    return (int32_t) (sl_philox(rng->key, rng->count++, 7).v[0] % (uint32_t) SL_MAX(below, 1));
}

enum { TEST_SIDE = 16, TEST_MOST = 400 }; /* matrices are 16 x 16 */

static inline int32_t test_object(sl_program *p, sl_object_class class, size_t bytes, bool persistent)
{
    const char *name;
    CHECK_OK(sl_region_printf(p->region, &name, "%c%d", "pgoachwdr"[class], p -> n_objects));
    p->objects[p->n_objects] = (sl_object){.name = name,
                                           .class = class,
                                           .bytes = bytes,
                                           .block = -1,
                                           .chunk = -1,
                                           .round = -1,
                                           .persistent = persistent,
                                           .producer = -1,
                                           .group = -1};
    return p->n_objects++;
}

static inline sl_use test_use(const sl_program *p, int32_t object)
{
    bool matrix = p->objects[object].bytes == TEST_SIDE * TEST_SIDE * 4;
    sl_use use = {.object = object};
    use.type =
        matrix ? sl_type_2d(SL_F32, TEST_SIDE, TEST_SIDE) : sl_type_1d(SL_F32, (int64_t) p->objects[object].bytes / 4);
    return use;
}

/* Appends op(a[, b]) -> c. */
static inline sl_task *test_task(sl_program *p, sl_op_id op, sl_phase phase, int32_t a, int32_t b, int32_t c)
{
    sl_task *task = &p->tasks[p->n_tasks];
    const char *name;
    CHECK_OK(sl_region_printf(p->region, &name, "t%d", p->n_tasks));
    *task =
        (sl_task){.op = op, .name = name, .phase = phase, .block = 0, .chunk = -1, .round = 0, .signature = p->n_tasks};
    for (int i = 0; i < SL_MAX_IN; i++)
        task->in[i].object = -1;
    for (int k = 0; k < SL_MAX_OUT; k++)
        task->out[k].object = -1;
    task->in[0] = test_use(p, a);
    if (b >= 0)
        task->in[1] = test_use(p, b);
    task->out[0] = test_use(p, c);
    if (op == SL_OP_SCALE)
        sl_scale_set(&task->attrs)->value = 0.25f;
    p->n_tasks++;
    return task;
}

static inline void test_finish_kinds(sl_program *p)
{
    CHECK_OK(sl_region_alloc(p->region, &p->signatures, p->n_tasks, sizeof *p->signatures));
    for (int32_t t = 0; t < p->n_tasks; t++) {
        const sl_task *task = &p->tasks[t];
        sl_launch launch = {.op = task->op, .attrs = task->attrs, .accumulate = task->accumulate};
        for (int i = 0; i < SL_MAX_IN; i++)
            launch.in[i].type = task->in[i].type;
        for (int k = 0; k < SL_MAX_OUT; k++)
            launch.out[k].type = task->out[k].type;
        p->signatures[t] = (sl_task_signature){.example = t, .count = 1};
        sl_op(task->op)->work(&launch, &p->signatures[t].work);
        p->flops += p->signatures[t].work.flops;
    }
    p->n_signatures = p->n_tasks;
}

static inline sl_program *test_program_begin(void)
{
    sl_region *region;
    sl_program *p;
    CHECK_OK(sl_region_create(&region));
    CHECK_OK(sl_region_alloc(region, &p, 1, sizeof *p));
    p->region = region;
    CHECK_OK(sl_region_alloc(region, &p->objects, TEST_MOST, sizeof *p->objects));
    CHECK_OK(sl_region_alloc(region, &p->tasks, TEST_MOST, sizeof *p->tasks));
    p->n_blocks = p->n_rounds = 1;
    p->tokens = 1;
    p->step_object = p->losses_object = p->gate_object = -1;
    return p;
}

static inline void test_program_destroy(sl_program *p)
{
    sl_region_destroy(p->region);
}

/* A random earlier object of this size: data, persistent or an activation already made; recent ones are likelier. */
static inline int32_t test_pick(test_rng *rng, const sl_program *p, size_t bytes, const bool *made)
{
    int32_t best = -1;
    for (int tries = 0; tries < 40; tries++) {
        int32_t o = test_draw(rng, p->n_objects);
        if (test_draw(rng, 3) > 0)
            o = p->n_objects - 1 - test_draw(rng, SL_MIN(p->n_objects, 8));
        if (made[o] && p->objects[o].bytes == bytes)
            best = o;
    }
    for (int32_t o = 0; best < 0 && o < p->n_objects; o++)
        if (made[o] && p->objects[o].bytes == bytes)
            best = o;
    return best;
}

static inline sl_program *test_random_program(test_rng *rng, int32_t length)
{
    static const size_t sizes[] = {TEST_SIDE * TEST_SIDE * 4, 1200, 4096 + 4};
    sl_program *p = test_program_begin();
    bool made[TEST_MOST] = {false};
    int32_t persistent[16], n_persistent = 0, accumulator[3], parts;
    for (int s = 0; s < 3; s++) {
        made[test_object(p, SL_CLASS_DATA, sizes[s], false)] = true;
        for (int i = 0; i < 1 + test_draw(rng, 3); i++) {
            persistent[n_persistent] = test_object(p, SL_CLASS_PARAMETER, sizes[s], true);
            made[persistent[n_persistent++]] = true;
        }
        accumulator[s] = test_object(p, SL_CLASS_GRADIENT, sizes[s], false);
    }
    parts = test_object(p, SL_CLASS_CONTEXT, 2 * sizes[0], false);
    for (int32_t i = 0; i < length; i++) {
        int s = test_draw(rng, 3);
        int32_t a = test_pick(rng, p, sizes[s], made), b = test_pick(rng, p, sizes[s], made);
        sl_phase phase = i < length / 2 ? SL_PHASE_FORWARD : SL_PHASE_BACKWARD;
        if (test_draw(rng, 4) == 0) { /* into the accumulator: set first, add later */
            sl_task *task = test_task(p, SL_OP_SCALE, phase, a, -1, accumulator[s]);
            task->accumulate = made[accumulator[s]];
            made[accumulator[s]] = true;
            continue;
        }
        sl_op_id op = s == 0 && test_draw(rng, 2) ? SL_OP_MATMUL : test_draw(rng, 2) ? SL_OP_ADD : SL_OP_SCALE;
        int32_t c = test_object(p, SL_CLASS_ACTIVATION, sizes[s], false);
        p->objects[c].producer = p->n_tasks;
        test_task(p, op, phase, a, op == SL_OP_SCALE ? -1 : b, c);
        made[c] = true;
    }
    /* An object written in two parts, then read in the middle. */
    for (int half = 0; half < 2; half++) {
        sl_task *task = test_task(p, SL_OP_SCALE, SL_PHASE_BACKWARD, test_pick(rng, p, sizes[0], made), -1, parts);
        task->out[0].type = task->in[0].type;
        task->out[0].offset = (size_t) half * sizes[0];
    }
    int32_t result = test_object(p, SL_CLASS_RESULT, sizes[0], false);
    sl_task *last = test_task(p, SL_OP_SCALE, SL_PHASE_BACKWARD, parts, -1, result);
    last->in[0].type = last->out[0].type;
    last->in[0].offset = sizes[0] / 2;
    p->objects[result].producer = p->n_tasks - 1;
    for (int32_t i = 0; i < n_persistent; i++) {
        int32_t g = test_pick(rng, p, p->objects[persistent[i]].bytes, made);
        if (g == persistent[i])
            continue;
        sl_task *task = test_task(p, SL_OP_SCALE, SL_PHASE_OPTIMIZER, g, -1, persistent[i]);
        task->accumulate = 1;
        task->host_allowed = test_draw(rng, 2);
    }
    test_finish_kinds(p);
    return p;
}

/* Initial bytes of an object, by step: small numbers, different everywhere. */
static inline void test_content(const sl_program *p, int32_t object, int step, float *out)
{
    for (size_t i = 0; i < p->objects[object].bytes / 4; i++)
        out[i] = sl_rng_uniform(sl_philox((uint64_t) object, i, (uint64_t) step).v[0]) - 0.5f;
}

/* ---- the reference: tasks one after the other, every object in memory of its own ---- */

typedef struct test_reference {
    unsigned char **bytes; /* by object */
    int32_t n;
} test_reference;

static inline test_reference test_reference_create(const sl_program *p)
{
    test_reference r = {.n = p->n_objects};
    CHECK_OK(sl_alloc(&r.bytes, r.n, sizeof *r.bytes));
    for (int32_t o = 0; o < r.n; o++) {
        CHECK_OK(sl_alloc_aligned(&r.bytes[o], p->objects[o].bytes, 1, 256));
        if (p->objects[o].persistent)
            test_content(p, o, 0, (float *) (void *) r.bytes[o]);
    }
    return r;
}

static inline void test_reference_destroy(test_reference *r)
{
    for (int32_t o = 0; o < r->n; o++)
        sl_free(r->bytes[o]);
    sl_free(r->bytes);
}

static inline void test_reference_step(test_reference *r, const sl_program *p, int step, void (*run)(sl_launch *launch))
{
    for (int32_t o = 0; o < r->n; o++)
        if (p->objects[o].class == SL_CLASS_DATA)
            test_content(p, o, step, (float *) (void *) r->bytes[o]);
    for (int32_t t = 0; t < p->n_tasks; t++) {
        const sl_task *task = &p->tasks[t];
        sl_launch launch = {.op = task->op, .attrs = task->attrs, .accumulate = task->accumulate};
        for (int i = 0; i < SL_MAX_IN; i++)
            if (task->in[i].object >= 0)
                launch.in[i] = (sl_operand){r->bytes[task->in[i].object] + task->in[i].offset, task->in[i].type};
        for (int k = 0; k < SL_MAX_OUT; k++)
            if (task->out[k].object >= 0)
                launch.out[k] = (sl_operand){r->bytes[task->out[k].object] + task->out[k].offset, task->out[k].type};
        run(&launch);
    }
}

#endif
