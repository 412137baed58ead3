/*
 * Kinds: tasks that cost the same. A kind's signature is op, accumulate bits, operand types and attributes, less those
 * attributes that only say which part of a random stream a launch uses. Signatures are interned in a small hash table; the
 * builder remembers the kind per node, so the table is asked per node and not per task.
 */
#include <string.h>

#include "core/hash.h"
#include "program/internal.h"

typedef struct signature {
    uint32_t op, accumulate;
    sl_attrs attrs;
    sl_type in[SL_MAX_IN], out[SL_MAX_OUT];
} signature;

sl_attrs sl_kind_attrs(const sl_task *task)
{
    sl_attrs attrs = task->attrs;
    if (sl_op(task->op)->clear_stream)
        sl_op(task->op)->clear_stream(&attrs);
    return attrs;
}

static signature signature_of(const sl_task *task)
{
    signature s;
    memset(&s, 0, sizeof s);
    s.op = (uint32_t) task->op;
    s.accumulate = task->accumulate;
    s.attrs = sl_kind_attrs(task);
    for (int i = 0; i < SL_MAX_IN; i++)
        s.in[i] = task->in[i].type;
    for (int k = 0; k < SL_MAX_OUT; k++)
        s.out[k] = task->out[k].type;
    return s;
}

static void work_of(const sl_task *task, sl_work *work)
{
    sl_launch launch = {.op = task->op, .accumulate = task->accumulate, .attrs = task->attrs};
    for (int i = 0; i < SL_MAX_IN; i++)
        launch.in[i].type = task->in[i].type;
    for (int k = 0; k < SL_MAX_OUT; k++)
        launch.out[k].type = task->out[k].type;
    *work = (sl_work){0};
    sl_op(task->op)->work(&launch, work);
}

/* Twice the size whenever half full. */
static sl_status rehash(builder *b)
{
    sl_program *p = b->program;
    int32_t capacity = b->kind_capacity ? b->kind_capacity * 2 : 256, *table;
    sl_task_kind *kinds;
    SL_TRY(sl_region_alloc(p->region, &kinds, capacity / 2 + 1, sizeof *kinds));
    SL_TRY(sl_alloc(&table, capacity, sizeof *table));
    if (p->n_kinds)
        memcpy(kinds, p->kinds, (size_t) p->n_kinds * sizeof *kinds);
    for (int32_t kind = 0; kind < p->n_kinds; kind++) {
        signature s = signature_of(&p->tasks[kinds[kind].example]);
        uint64_t at = sl_hash64(&s, sizeof s, 0);
        while (table[at & (uint64_t) (capacity - 1)])
            at++;
        table[at & (uint64_t) (capacity - 1)] = kind + 1;
    }
    sl_free(b->kind_table);
    b->kind_table = table;
    b->kind_capacity = capacity;
    p->kinds = kinds;
    return SL_OK;
}

sl_status sl_program_kind(builder *b, const sl_task *task, int32_t *kind)
{
    sl_program *p = b->program;
    signature s = signature_of(task);
    if (p->n_kinds * 2 >= b->kind_capacity)
        SL_TRY(rehash(b));
    for (uint64_t at = sl_hash64(&s, sizeof s, 0);; at++) {
        int32_t *entry = &b->kind_table[at & (uint64_t) (b->kind_capacity - 1)];
        if (*entry) {
            signature other = signature_of(&p->tasks[p->kinds[*entry - 1].example]);
            if (memcmp(&s, &other, sizeof s) != 0)
                continue;
            *kind = *entry - 1;
            return SL_OK;
        }
        *kind = p->n_kinds++;
        *entry = *kind + 1;
        p->kinds[*kind].example = p->n_tasks; /* the task about to be added */
        work_of(task, &p->kinds[*kind].work);
        return SL_OK;
    }
}

/* Counts, and the arithmetic of a step as MFU sees it: matrix multiplies and attention. */
void sl_program_finish_kinds(builder *b)
{
    sl_program *p = b->program;
    for (int32_t task = 0; task < p->n_tasks; task++)
        p->kinds[p->tasks[task].kind].count++;
    for (int32_t kind = 0; kind < p->n_kinds; kind++) {
        sl_category category = sl_op(p->tasks[p->kinds[kind].example].op)->category;
        if (category == SL_CAT_DOT_PRODUCT || category == SL_CAT_ATTENTION)
            p->flops += (double) p->kinds[kind].count * p->kinds[kind].work.flops;
    }
}
