/*
 * A step, action by action, for the event log: what was predicted, what happened, and which bytes were alive in between. Reports
 * draw timelines, traces and memory curves from it.
 *
 * A step can have a hundred thousand actions, so they go out in lines of a few dozen: no line outgrows the log's buffer, and
 * writing them allocates nothing. Times are whole nanoseconds since the step began: exact, and shorter than fractions. Written
 * after the second step of a run, so that a run under way can be looked at, and again at its end.
 */
#include <math.h>

#include "train/run.h"

enum { ACTIONS_A_LINE = 96, PLACES_A_LINE = 256 };

static void put_ns(sl_json_writer *w, double seconds)
{
    sl_json_put_i64(w, NULL, (int64_t) llround(1e9 * seconds));
}

static void put_columns(sl_json_writer *w, const char *const *names, int64_t count)
{
    sl_json_begin_array(w, "columns");
    for (int64_t i = 0; i < count; i++)
        sl_json_put_string(w, NULL, names[i]);
    sl_json_end_array(w);
    sl_json_begin_array(w, "rows");
}

static void put_action(sl_trainer *t, sl_json_writer *w, int32_t i)
{
    const sl_program *program = t->prepared.program;
    const sl_action *a = &t->prepared.plan->actions[i];
    const sl_span *span = &sl_engine_spans(t->train.engine)[i];
    const sl_task *task = a->kind == SL_ACTION_TASK ? &program->tasks[a->task] : NULL;
    const sl_object *object = task ? NULL : &program->objects[a->object];
    sl_json_begin_array(w, NULL);
    sl_json_put_string(w, NULL, sl_streams[a->stream].name);
    sl_json_put_string(w, NULL, task ? sl_op(task->op)->name : "copy");
    sl_json_put_string(w, NULL, task ? task->name : object->name);
    sl_json_put_string(w, NULL, !task ? "copy" : a->recompute ? "recompute" : sl_phase_name(task->phase));
    sl_json_put_i64(w, NULL, task ? task->chunk : object->chunk);
    put_ns(w, a->start_s);
    put_ns(w, a->end_s);
    put_ns(w, span->start);
    put_ns(w, span->end);
    sl_json_put_i64(w, NULL, task ? 0 : (int64_t) object->bytes);
    sl_json_end_array(w);
}

static sl_status put_actions(sl_trainer *t)
{
    static const char *const columns[] = {"stream",        "op",    "name", "phase", "chunk", "predicted_start",
                                          "predicted_end", "start", "end",  "bytes"};
    int32_t count = t->prepared.plan->n_actions;
    for (int32_t i = 0; i < count;) {
        sl_json_writer *w = sl_events_begin(t->events, "timeline");
        sl_json_put_i64(w, "step", t->progress.step);
        sl_json_put_i64(w, "first", i);
        sl_json_put_i64(w, "count", count);
        put_columns(w, columns, SL_COUNT(columns));
        for (int32_t end = SL_MIN(i + ACTIONS_A_LINE, count); i < end; i++)
            put_action(t, w, i);
        sl_json_end_array(w);
        SL_TRY(sl_events_end(t->events));
    }
    return SL_OK;
}

/* first, last: the actions between which the bytes are taken; -1 and the number of actions stand for the step's ends. */
static sl_status put_places(sl_trainer *t)
{
    static const char *const columns[] = {"tier", "class", "bytes", "first", "last"};
    const sl_program *program = t->prepared.program;
    const sl_plan *plan = t->prepared.plan;
    for (int32_t i = 0; i < plan->n_allocations;) {
        sl_json_writer *w = sl_events_begin(t->events, "places");
        sl_json_put_i64(w, "step", t->progress.step);
        sl_json_put_i64(w, "first", i);
        sl_json_put_i64(w, "count", plan->n_allocations);
        put_columns(w, columns, SL_COUNT(columns));
        for (int32_t end = SL_MIN(i + PLACES_A_LINE, plan->n_allocations); i < end; i++) {
            const sl_allocation *place = &plan->allocations[i];
            sl_json_begin_array(w, NULL);
            sl_json_put_string(w, NULL, sl_tier_name(place->tier));
            sl_json_put_string(
                w, NULL,
                sl_object_class_name(place->object < 0 ? SL_CLASS_WORKSPACE : program->objects[place->object].class));
            sl_json_put_i64(w, NULL, (int64_t) place->bytes);
            sl_json_put_i64(w, NULL, place->first);
            sl_json_put_i64(w, NULL, place->last);
            sl_json_end_array(w);
        }
        sl_json_end_array(w);
        SL_TRY(sl_events_end(t->events));
    }
    return SL_OK;
}

sl_status sl_run_event_timeline(sl_trainer *t)
{
    if (!t->events)
        return SL_OK;
    SL_TRY(put_actions(t));
    return put_places(t);
}
