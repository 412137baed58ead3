/*
 * Launch signatures: tasks that cost the same. A signature consists of op, accumulate bits, operand types and attributes, without the
 * attributes that only select a part of a random stream. Signatures are interned in a small hash table. The builder remembers the
 * signature of each node, so it searches the table per node and not per task.
 */
#include <string.h>

#include "core/hash.h"
#include "program/internal.h"

typedef struct signature_key {
    uint32_t op, accumulate;
    sl_attrs attrs;
    sl_type in[SL_MAX_IN], out[SL_MAX_OUT];
} signature_key;

sl_attrs sl_signature_attrs(const sl_task *task)
{
    sl_attrs attrs = task->attrs;
    if (sl_op(task->op)->clear_stream)
        sl_op(task->op)->clear_stream(&attrs);
    return attrs;
}

static signature_key key_of(const sl_task *task)
{
    signature_key s;
    memset(&s, 0, sizeof s);
    s.op = (uint32_t) task->op;
    s.accumulate = task->accumulate;
    s.attrs = sl_signature_attrs(task);
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
    int32_t capacity = b->signature_capacity ? b->signature_capacity * 2 : 256, *table;
    sl_task_signature *signatures;
    SL_TRY(sl_region_alloc(p->region, &signatures, capacity / 2 + 1, sizeof *signatures));
    SL_TRY(sl_alloc(&table, capacity, sizeof *table));
    if (p->n_signatures)
        memcpy(signatures, p->signatures, (size_t) p->n_signatures * sizeof *signatures);
    for (int32_t signature = 0; signature < p->n_signatures; signature++) {
        signature_key s = key_of(&p->tasks[signatures[signature].example]);
        uint64_t at = sl_hash64(&s, sizeof s, 0);
        while (table[at & (uint64_t) (capacity - 1)])
            at++;
        table[at & (uint64_t) (capacity - 1)] = signature + 1;
    }
    sl_free(b->signature_table);
    b->signature_table = table;
    b->signature_capacity = capacity;
    p->signatures = signatures;
    return SL_OK;
}

sl_status sl_program_signature(builder *b, const sl_task *task, int32_t *signature)
{
    sl_program *p = b->program;
    signature_key s = key_of(task);
    if (p->n_signatures * 2 >= b->signature_capacity)
        SL_TRY(rehash(b));
    for (uint64_t at = sl_hash64(&s, sizeof s, 0);; at++) {
        int32_t *entry = &b->signature_table[at & (uint64_t) (b->signature_capacity - 1)];
        if (*entry) {
            signature_key other = key_of(&p->tasks[p->signatures[*entry - 1].example]);
            if (memcmp(&s, &other, sizeof s) != 0)
                continue;
            *signature = *entry - 1;
            return SL_OK;
        }
        *signature = p->n_signatures++;
        *entry = *signature + 1;
        p->signatures[*signature].example = p->n_tasks; /* the task about to be added */
        work_of(task, &p->signatures[*signature].work);
        return SL_OK;
    }
}

/* Counts, and the arithmetic of a step as MFU sees it: matrix multiplies and attention. */
void sl_program_finish_signatures(builder *b)
{
    sl_program *p = b->program;
    for (int32_t task = 0; task < p->n_tasks; task++)
        p->signatures[p->tasks[task].signature].count++;
    for (int32_t signature = 0; signature < p->n_signatures; signature++) {
        sl_category category = sl_op(p->tasks[p->signatures[signature].example].op)->category;
        if (category == SL_CAT_DOT_PRODUCT || category == SL_CAT_ATTENTION)
            p->flops += (double) p->signatures[signature].count * p->signatures[signature].work.flops;
    }
}
