/* Finds the task that produced a NaN. Runs the step again, one action at a time, and scans everything a task wrote before the next
 * one starts. Skips the optimizer phase, because parameters must not change, and runs all copies, so that every object is where
 * the plan expects it. Slow, so it runs only after a failed step. */
#include <math.h>
#include <stdio.h>

#include "core/mem.h"
#include "engine/internal.h"

enum { PIECE = 1 << 16 };

/* The first of `count` values that is not finite becomes the culprit's; `first` is the index of values[0] in its tensor. */
static bool find_in(const unsigned char *values, sl_dtype dtype, size_t count, size_t first, sl_culprit *culprit)
{
    for (size_t i = 0; i < count && !culprit->found; i++) {
        float value = sl_dtype_load(dtype, values, (int64_t) i);
        if (isfinite(value))
            continue;
        culprit->found = true;
        culprit->element = (int64_t) (first + i);
        snprintf(culprit->value, sizeof culprit->value, "%s",
                 isnan(value) ? "NaN"
                 : value > 0  ? "infinity"
                              : "-infinity");
    }
    return culprit->found;
}

static sl_status scan(sl_engine *engine, int32_t action, int k, unsigned char *buffer, sl_culprit *culprit)
{
    const sl_operand *out = &engine->items[action].launch->out[k];
    const sl_action *a = &engine->plan->actions[action];
    const sl_task *task = &engine->program->tasks[a->task];
    sl_tier tier = engine->plan->allocations[engine->plan->use_allocations[a->first_use + SL_MAX_IN + k]].tier;
    size_t size = sl_dtype_bytes(out->type.dtype), total = sl_type_bytes(&out->type);
    for (size_t done = 0; done < total; done += PIECE) {
        size_t bytes = SL_MIN((size_t) PIECE, total - done);
        SL_TRY(
            engine->device->class->read(engine->device, tier, buffer, (const unsigned char *) out->data + done, bytes));
        if (!find_in(buffer, out->type.dtype, bytes / size, done / size, culprit))
            continue;
        culprit->task = a->task;
        sl_task_describe(engine->program, a->task, culprit->task_name);
        snprintf(culprit->tensor_name, sizeof culprit->tensor_name, "%s",
                 engine->program->objects[task->out[k].object].name);
        return SL_OK;
    }
    return SL_OK;
}

/* A parameter of this group that is not finite. */
static sl_status scan_weights(sl_engine *engine, int32_t group, unsigned char *buffer, sl_culprit *culprit)
{
    const sl_program *p = engine->program;
    for (int32_t i = 0; i < p->groups[group].n_params && !culprit->found; i++) {
        const sl_param *param = &p->params[p->groups[group].first_param + i];
        const sl_dtype dtype = sl_policy_of(p->config.precision)->compute;
        const size_t size = sl_dtype_bytes(dtype), total = (size_t) sl_type_count(&param->type) * size;
        for (size_t done = 0; done < total && !culprit->found; done += PIECE) {
            size_t bytes = SL_MIN((size_t) PIECE, total - done);
            SL_TRY(sl_engine_read(engine, p->param_object[group], param->offset + done, buffer, bytes));
            if (find_in(buffer, dtype, bytes / size, done / size, culprit))
                snprintf(culprit->tensor_name, sizeof culprit->tensor_name, "%s", param->name);
        }
    }
    return SL_OK;
}

static sl_status run_alone(sl_engine *engine, int32_t action)
{
    sl_device *device = engine->device;
    SL_TRY(device->class->step_begin(device));
    sl_status issued = sl_engine_issue(engine, action), ended = device->class->step_end(device);
    return ended != SL_OK ? ended : issued;
}

static sl_status walk(sl_engine *engine, unsigned char *buffer, sl_culprit *culprit)
{
    for (int32_t i = 0; i < engine->plan->n_actions && !culprit->found; i++) {
        const sl_action *action = &engine->plan->actions[i];
        bool is_task = action->kind == SL_ACTION_TASK;
        if (is_task && engine->program->tasks[action->task].phase == SL_PHASE_OPTIMIZER)
            continue;
        SL_TRY(run_alone(engine, i));
        for (int k = 0; is_task && k < SL_MAX_OUT && !culprit->found; k++)
            if (engine->items[i].launch->out[k].data && engine->items[i].launch->out[k].type.dtype != SL_I32)
                SL_TRY(scan(engine, i, k, buffer, culprit));
    }
    return SL_OK;
}

sl_status sl_engine_diagnose(sl_engine *engine, sl_culprit *culprit)
{
    unsigned char *buffer;
    sl_culprit found = {.task = -1};
    SL_TRY(sl_alloc(&buffer, PIECE, 1));
    sl_status status = SL_OK;
    for (int32_t g = 0; g < engine->program->n_groups && status == SL_OK && !found.found; g++)
        status = scan_weights(engine, g, buffer, &found);
    if (status == SL_OK && !found.found)
        status = walk(engine, buffer, &found);
    sl_free(buffer);
    if (status == SL_OK)
        *culprit = found;
    return status;
}
