/* What a step's commands are called: in the nested scopes that a profiler shows, and in the message of a command that failed.
 *
 *     Step 3 > Round 0 > Layer layers.7 backward > Chunk 5 > Op matmul layers.7.gate_up
 *
 * Scopes follow the order of issue. Consecutive tasks of one chunk stand in one Chunk, of one layer in one Layer, and so on; where
 * rounds are interleaved, a Round is left and entered again. Copies run ahead of the tasks that use them, so a copy is an Op in the
 * scope that is open. Names are made only while a profiler is attached. */
#include <stdio.h>
#include <string.h>

#include "engine/internal.h"

enum { NONE = -1, UPDATE = -2 /* the round of updates, which belong to no round */, PHASES = 4, RECOMPUTE = 3 };

static const char *phase_name(int phase)
{
    return phase == RECOMPUTE ? "recompute" : sl_phase_name((sl_phase) phase);
}

static bool scope(const sl_engine *engine, sl_scope level, const char *name)
{
    return engine->device->class->scope(engine->device, level, name);
}

void sl_engine_scopes_begin(sl_engine *engine, sl_engine_scopes *s)
{
    char name[64];
    *s = (sl_engine_scopes){.on = engine->device->class->scope != NULL};
    for (int level = 0; level < SL_SCOPE_OP; level++)
        s->open[level] = NONE;
    engine->steps++;
    if (!s->on)
        return;
    snprintf(name, sizeof name, "%s %lld", engine->program->config.forward_only ? "Validation" : "Step",
             (long long) engine->steps);
    s->on = scope(engine, SL_SCOPE_STEP, name);
}

static void close_down_to(const sl_engine *engine, sl_engine_scopes *s, int outermost)
{
    for (int level = SL_SCOPE_OP - 1; level >= outermost; level--) {
        if (s->open[level] != NONE)
            scope(engine, (sl_scope) level, NULL);
        s->open[level] = NONE;
    }
}

void sl_engine_scopes_end(const sl_engine *engine, sl_engine_scopes *s)
{
    if (!s->on)
        return;
    close_down_to(engine, s, SL_SCOPE_ROUND);
    scope(engine, SL_SCOPE_STEP, NULL);
}

static void scope_name(const sl_engine *engine, int level, int32_t which, char out[96])
{
    const sl_program *p = engine->program;
    if (level == SL_SCOPE_ROUND && which == UPDATE)
        snprintf(out, 96, "Updates");
    else if (level == SL_SCOPE_ROUND)
        snprintf(out, 96, "Round %d", which);
    else if (level == SL_SCOPE_LAYER && p->blocks)
        snprintf(out, 96, "Layer %s %s", p->blocks[which / PHASES].name, phase_name(which % PHASES));
    else if (level == SL_SCOPE_LAYER)
        snprintf(out, 96, "Layer %d %s", which / PHASES, phase_name(which % PHASES));
    else
        snprintf(out, 96, "Chunk %d", which);
}

static void enter_task(const sl_engine *engine, sl_engine_scopes *s, const sl_action *action, const sl_task *task)
{
    int32_t phase = action->recompute ? RECOMPUTE : (int32_t) task->phase;
    int32_t want[SL_SCOPE_OP] = {
        [SL_SCOPE_ROUND] = task->phase == SL_PHASE_OPTIMIZER ? UPDATE : task->round,
        [SL_SCOPE_LAYER] = task->block >= 0 ? task->block * PHASES + phase : NONE,
        [SL_SCOPE_CHUNK] = task->chunk,
    };
    int level = SL_SCOPE_ROUND;
    while (level < SL_SCOPE_OP && want[level] == s->open[level])
        level++;
    close_down_to(engine, s, level);
    for (; level < SL_SCOPE_OP; level++) {
        char name[96];
        s->open[level] = want[level];
        if (want[level] == NONE)
            continue;
        scope_name(engine, level, want[level], name);
        scope(engine, (sl_scope) level, name);
    }
}

void sl_engine_scopes_enter(const sl_engine *engine, sl_engine_scopes *s, int32_t index)
{
    const sl_program *p = engine->program;
    const sl_action *action = &engine->plan->actions[index];
    char name[192];
    if (!s->on)
        return;
    if (action->kind == SL_ACTION_TASK) {
        const sl_task *task = &p->tasks[action->task];
        enter_task(engine, s, action, task);
        snprintf(name, sizeof name, "Op %s %s", sl_op(task->op)->name, task->name);
    } else
        snprintf(name, sizeof name, "Op copy %s %s", sl_streams[action->stream].name, p->objects[action->object].name);
    scope(engine, SL_SCOPE_OP, name);
}

void sl_engine_scopes_leave(const sl_engine *engine, const sl_engine_scopes *s)
{
    if (s->on)
        scope(engine, SL_SCOPE_OP, NULL);
}

/* ---- in messages ---- */

/* ", which reads a, b": the objects of the operands, each once. */
static void append_objects(const sl_engine *engine, const char *verb, const sl_use *uses, int count, char out[1024])
{
    bool named = false;
    for (int i = 0; i < count; i++) {
        bool again = uses[i].object < 0;
        for (int j = 0; j < i; j++)
            again |= uses[j].object == uses[i].object;
        if (again)
            continue;
        size_t used = strlen(out);
        snprintf(out + used, 1024 - used, "%s %s", named ? "," : verb, engine->program->objects[uses[i].object].name);
        named = true;
    }
}

sl_status sl_engine_name_failure(const sl_engine *engine, int32_t index, sl_status status)
{
    const sl_program *p = engine->program;
    const sl_action *action = &engine->plan->actions[index];
    char text[1024], name[160];
    if (action->kind == SL_ACTION_TASK) {
        const sl_task *task = &p->tasks[action->task];
        snprintf(text, sizeof text, "task %s", sl_task_describe(p, action->task, name));
        append_objects(engine, ", which reads", task->in, SL_MAX_IN, text);
        append_objects(engine, ", and writes", task->out, SL_MAX_OUT, text);
    } else
        snprintf(text, sizeof text, "copy of %s, %zu bytes, from %s to %s memory", p->objects[action->object].name,
                 engine->items[index].bytes, sl_tier_name(sl_streams[action->stream].from),
                 sl_tier_name(sl_streams[action->stream].to));
    return sl_fail_at(status, "%s", text);
}
