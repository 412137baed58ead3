/*
 * The program as arrays. Operands of a task that share an object become one entry; entries of one object are chained in
 * task order. What may be recomputed is determined once, here: the value of a gap can be rematerialized if its producer can run
 * a second time (it accumulates into nothing), every input still has its former value (no write in between), and every
 * input is available at that time (resident in some tier, or recomputable itself).
 */
#include "plan/internal.h"

#include <string.h>

#define OPERANDS (SL_MAX_IN + SL_MAX_OUT)
#define MAX_DEPTH 12 /* of recomputations that need recomputations */

static uint32_t reads_out(const sl_task *task)
{
    return task->accumulate | sl_op(task->op)->updates;
}

static const sl_use *operand(const sl_task *task, int i)
{
    return i < SL_MAX_IN ? &task->in[i] : &task->out[i - SL_MAX_IN];
}

static sl_entry *entry_of(sl_analysis *a, int32_t task, int32_t object)
{
    for (int32_t e = a->first[task]; e < a->n_entries; e++)
        if (a->entries[e].object == object)
            return &a->entries[e];
    sl_entry *entry = &a->entries[a->n_entries++];
    *entry = (sl_entry){.task = task, .object = object, .next = -1};
    return entry;
}

/* Entries of one task, given which objects have content before it. */
static void add_task(sl_analysis *a, int32_t t, uint8_t *defined)
{
    const sl_task *task = &a->program->tasks[t];
    uint32_t updated = reads_out(task);
    a->first[t] = a->n_entries;
    for (int i = 0; i < OPERANDS; i++) {
        const sl_use *use = operand(task, i);
        a->operand_entry[(int64_t) t * OPERANDS + i] = -1;
        if (use->object < 0)
            continue;
        sl_entry *entry = entry_of(a, t, use->object);
        a->operand_entry[(int64_t) t * OPERANDS + i] = (int32_t) (entry - a->entries);
        if (i < SL_MAX_IN) {
            entry->flags |= SL_ENTRY_READ;
            continue;
        }
        const sl_object *object = &a->program->objects[use->object];
        bool whole = object->producer == t || (use->offset == 0 && sl_type_bytes(&use->type) >= object->bytes);
        entry->flags |= SL_ENTRY_WRITE;
        if (updated >> (i - SL_MAX_IN) & 1 || (!whole && defined[use->object]))
            entry->flags |= SL_ENTRY_READ;
    }
    for (int32_t e = a->first[t]; e < a->n_entries; e++) {
        sl_entry *entry = &a->entries[e];
        if (entry->flags & SL_ENTRY_WRITE) {
            defined[entry->object] = 1;
            if (!(entry->flags & SL_ENTRY_READ))
                entry->flags |= SL_ENTRY_FRESH;
        }
    }
}

static void chain_entries(sl_analysis *a)
{
    const sl_program *p = a->program;
    for (int32_t o = 0; o < p->n_objects; o++)
        a->object_first[o] = a->object_last[o] = -1;
    for (int32_t e = a->n_entries - 1; e >= 0; e--) {
        sl_entry *entry = &a->entries[e];
        int32_t next = a->object_first[entry->object];
        entry->next = next;
        entry->next_write = p->n_tasks;
        if (next >= 0)
            entry->next_write =
                a->entries[next].flags & SL_ENTRY_WRITE ? a->entries[next].task : a->entries[next].next_write;
        if (a->object_last[entry->object] < 0)
            a->object_last[entry->object] = e;
        a->object_first[entry->object] = e;
    }
}

/* An object is disjoint if no two of its writes touch the same byte (slices that fill a context row by row). Writes
 * come in task order and usually by ascending address, so it suffices to compare each with the hull of the earlier ones. */
static void find_disjoint(sl_analysis *a, size_t *low, size_t *high)
{
    const sl_program *p = a->program;
    memset(a->disjoint, 1, (size_t) p->n_objects);
    for (int32_t t = 0; t < p->n_tasks; t++) {
        const sl_task *task = &p->tasks[t];
        for (int i = 0; i < SL_MAX_OUT; i++) {
            const sl_use *use = &task->out[i];
            if (use->object < 0)
                continue;
            int32_t o = use->object;
            size_t begin = use->offset, end = begin + sl_type_bytes(&use->type);
            if (reads_out(task) >> i & 1 || p->objects[o].persistent || (high[o] && begin < high[o] && end > low[o]))
                a->disjoint[o] = 0;
            low[o] = high[o] ? SL_MIN(low[o], begin) : begin;
            high[o] = SL_MAX(high[o], end);
        }
    }
}

static bool can_run_again(const sl_analysis *a, int32_t t)
{
    const sl_task *task = &a->program->tasks[t];
    if (reads_out(task))
        return false;
    for (int i = 0; i < SL_MAX_OUT; i++) {
        int32_t o = task->out[i].object;
        if (o >= 0 && a->program->objects[o].producer != t && !a->disjoint[o])
            return false;
        for (int k = 0; k < SL_MAX_IN && o >= 0; k++)
            if (task->in[k].object == o)
                return false;
    }
    return true;
}

static bool can_have(const sl_analysis *a, int32_t entry, int32_t before, int depth);

/* Whether task `t` can run again just before task `before`. */
static bool can_rerun_at(const sl_analysis *a, int32_t t, int32_t before, int depth)
{
    if (t < 0 || !a->can_clone[t] || depth > MAX_DEPTH)
        return false;
    for (int32_t e = a->first[t]; e < a->first[t + 1]; e++) {
        const sl_entry *entry = &a->entries[e];
        if (entry->flags & SL_ENTRY_WRITE)
            continue;
        if (entry->next_write < before && !a->disjoint[entry->object])
            return false;
        if (!can_have(a, e, before, depth))
            return false;
    }
    return true;
}

/* Whether the content of an object at `entry` can be provided just before task `before`. */
static bool can_have(const sl_analysis *a, int32_t entry, int32_t before, int depth)
{
    int32_t o = a->entries[entry].object;
    const sl_object *object = &a->program->objects[o];
    if (object->persistent || object->class == SL_CLASS_DATA)
        return true;
    if (a->entries[a->object_last[o]].task >= before) {
        int32_t e = entry;
        while (a->entries[e].task < before)
            e = a->entries[e].next;
        if (!(a->entries[e].flags & SL_ENTRY_FRESH))
            return true;
    }
    return can_rerun_at(a, object->producer, before, depth + 1);
}

bool sl_analysis_used_near(const sl_analysis *a, int32_t object, int32_t at)
{
    const sl_program *program = a->program;
    const sl_task *cause = &program->tasks[at];
    for (int32_t t = at; t < program->n_tasks; t++) {
        const sl_task *task = &program->tasks[t];
        if (task->block != cause->block || task->chunk != cause->chunk || task->phase != cause->phase)
            return false;
        for (int32_t e = a->first[t]; e < a->first[t + 1]; e++)
            if (a->entries[e].object == object)
                return true;
    }
    return false;
}

/* Whether the producer's inputs will be resident anyway, or can be recomputed from such inputs: recomputation stays
 * within its piece of the backward instead of continuing through layer after layer. */
static bool stays_near(const sl_analysis *a, int32_t t, int32_t before, int depth)
{
    for (int32_t e = a->first[t]; e < a->first[t + 1]; e++) {
        const sl_entry *entry = &a->entries[e];
        const sl_object *object = &a->program->objects[entry->object];
        if (entry->flags & SL_ENTRY_WRITE || object->class == SL_CLASS_DATA ||
            sl_analysis_used_near(a, entry->object, before))
            continue;
        if (object->producer < 0 || depth > 3 || !stays_near(a, object->producer, before, depth + 1))
            return false;
    }
    return true;
}

static void find_droppable(sl_analysis *a)
{
    for (int32_t e = 0; e < a->n_entries; e++) {
        sl_entry *entry = &a->entries[e];
        const sl_object *object = &a->program->objects[entry->object];
        if (entry->next < 0 || object->producer < 0 || object->persistent || entry->task < object->producer)
            continue;
        const sl_entry *next = &a->entries[entry->next];
        entry->can_drop = !(next->flags & SL_ENTRY_WRITE) && can_rerun_at(a, object->producer, next->task, 0);
        entry->drops_near = entry->can_drop && stays_near(a, object->producer, next->task, 0);
    }
}

/* Bytes a task needs at once on the device, workspace included. */
static size_t need_of(const sl_analysis *a, int32_t task)
{
    size_t need =
        SL_ROUND_UP(a->costs->workspace[SL_TIER_DEVICE][a->program->tasks[task].signature], (size_t) SL_ALIGN);
    for (int32_t e = a->first[task]; e < a->first[task + 1]; e++)
        need += a->bytes[a->entries[e].object];
    return need;
}

static sl_status allocate(sl_analysis *a, int64_t max_entries, uint8_t **defined, size_t **low, size_t **high)
{
    const sl_program *p = a->program;
    SL_TRY(sl_region_alloc(a->region, &a->entries, max_entries + 1, sizeof *a->entries));
    SL_TRY(sl_region_alloc(a->region, &a->first, p->n_tasks + 1, sizeof *a->first));
    SL_TRY(sl_region_alloc(a->region, &a->object_first, p->n_objects + 1, sizeof *a->object_first));
    SL_TRY(sl_region_alloc(a->region, &a->object_last, p->n_objects + 1, sizeof *a->object_last));
    SL_TRY(sl_region_alloc(a->region, &a->bytes, p->n_objects + 1, sizeof *a->bytes));
    SL_TRY(sl_region_alloc(a->region, &a->need, p->n_tasks + 1, sizeof *a->need));
    SL_TRY(sl_region_alloc(a->region, &a->can_clone, p->n_tasks + 1, 1));
    SL_TRY(sl_region_alloc(a->region, &a->disjoint, p->n_objects + 1, 1));
    SL_TRY(
        sl_region_alloc(a->region, &a->operand_entry, (int64_t) p->n_tasks * OPERANDS + 1, sizeof *a->operand_entry));
    SL_TRY(sl_region_alloc(a->region, defined, p->n_objects + 1, 1));
    SL_TRY(sl_region_alloc(a->region, low, p->n_objects + 1, sizeof **low));
    return sl_region_alloc(a->region, high, p->n_objects + 1, sizeof **high);
}

static sl_status fill(sl_analysis *a)
{
    const sl_program *p = a->program;
    int64_t max_entries = 0;
    for (int32_t t = 0; t < p->n_tasks; t++)
        for (int i = 0; i < OPERANDS; i++)
            max_entries += operand(&p->tasks[t], i)->object >= 0;
    uint8_t *defined;
    size_t *low, *high;
    SL_TRY(allocate(a, max_entries, &defined, &low, &high));
    for (int32_t o = 0; o < p->n_objects; o++) {
        a->bytes[o] = SL_ROUND_UP(SL_MAX(p->objects[o].bytes, (size_t) 1), (size_t) SL_ALIGN);
        defined[o] = p->objects[o].persistent || p->objects[o].class == SL_CLASS_DATA;
    }
    for (int32_t t = 0; t < p->n_tasks; t++)
        add_task(a, t, defined);
    a->first[p->n_tasks] = a->n_entries;
    chain_entries(a);
    find_disjoint(a, low, high);
    for (int32_t t = 0; t < p->n_tasks; t++)
        a->can_clone[t] = can_run_again(a, t);
    find_droppable(a);
    for (int32_t t = 0; t < p->n_tasks; t++)
        a->need[t] = need_of(a, t);
    return SL_OK;
}

sl_status sl_analysis_create(const sl_program *program, const sl_costs *costs, sl_analysis **analysis)
{
    sl_region *region;
    SL_TRY(sl_region_create(&region));
    sl_analysis *a;
    sl_status status = sl_region_alloc(region, &a, 1, sizeof *a);
    if (status == SL_OK) {
        a->region = region;
        a->program = program;
        a->costs = costs;
        status = fill(a);
    }
    if (status != SL_OK) {
        sl_region_destroy(region);
        return status;
    }
    *analysis = a;
    return SL_OK;
}

void sl_analysis_destroy(sl_analysis *analysis)
{
    if (analysis)
        sl_region_destroy(analysis->region);
}
