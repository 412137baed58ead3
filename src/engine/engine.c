/* From a plan to commands. Creation does all the work: addresses become pointers, tasks become launches, dependencies
 * become events. A step walks the list once:
 *
 *     wait(events of other streams) ... launch or copy ... record(event, if another stream waits for it)
 *
 * Few of a plan's dependencies need a command. Streams run in order, so a stream that has waited for action 7 of another
 * stream has waited for its actions 0..6 too: `waited` below remembers the latest by pair of streams and drops the rest. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/mem.h"
#include "engine/internal.h"

/* The latest action of every stream that each stream has waited for. */
typedef struct waited {
    int32_t action[SL_STREAM_COUNT][SL_STREAM_COUNT];
} waited;

static void waited_for_nothing(waited *w)
{
    for (int i = 0; i < SL_STREAM_COUNT; i++)
        for (int j = 0; j < SL_STREAM_COUNT; j++)
            w->action[i][j] = -1;
}

/* Must `stream` wait for `dep`, given the order within streams and earlier waits? */
static bool must_wait(const sl_plan *plan, waited *w, sl_stream stream, int32_t dep)
{
    sl_stream of = plan->actions[dep].stream;
    if (of == stream || w->action[stream][of] >= dep)
        return false;
    w->action[stream][of] = dep;
    return true;
}

void sl_engine_needs(const sl_plan *plan, int64_t *max_commands, int64_t *max_events)
{
    waited w;
    int64_t commands[SL_STREAM_COUNT] = {0}, waits = 0;
    waited_for_nothing(&w);
    for (int32_t i = 0; i < plan->n_actions; i++) {
        const sl_action *action = &plan->actions[i];
        commands[action->stream] += 2; /* its command and perhaps a record */
        for (int32_t d = 0; d < action->n_deps; d++) {
            if (!must_wait(plan, &w, action->stream, plan->deps[action->first_dep + d]))
                continue;
            commands[action->stream]++;
            waits++;
        }
    }
    *max_commands = 1;
    for (int s = 0; s < SL_STREAM_COUNT; s++)
        *max_commands = SL_MAX(*max_commands, commands[s]);
    *max_events = SL_MAX(1, SL_MIN(waits, (int64_t) plan->n_actions));
}

/* ---- creation ---- */

static sl_status broken_plan(const sl_engine *engine, int32_t action, const char *what)
{
    char name[160] = "copy";
    if (engine->plan->actions[action].kind == SL_ACTION_TASK)
        sl_task_describe(engine->program, engine->plan->actions[action].task, name);
    return sl_fail(SL_E_INTERNAL, "plan, action %d (%s): %s", action, name, what);
}

static void touch(sl_engine_item *item, const sl_allocation *place, size_t offset, size_t bytes)
{
    item->top[place->tier] = SL_MAX(item->top[place->tier], place->address + offset + bytes);
}

/* The allocation `index` of an action must exist and hold `object`. */
static const sl_allocation *find_place(const sl_plan *plan, int32_t index, int32_t object)
{
    if (index < 0 || index >= plan->n_allocations || plan->allocations[index].object != object)
        return NULL;
    return &plan->allocations[index];
}

static sl_status bind_operand(sl_engine *engine, int32_t action, const sl_use *use, int32_t place_index,
                              sl_operand *operand)
{
    if (use->object < 0)
        return SL_OK;
    const sl_allocation *place = find_place(engine->plan, place_index, use->object);
    size_t bytes = sl_type_bytes(&use->type);
    if (!place)
        return broken_plan(engine, action, "an operand has no place");
    if (use->offset > place->bytes || bytes > place->bytes - use->offset)
        return broken_plan(engine, action, "an operand reaches beyond its place");
    operand->type = use->type;
    operand->data = engine->base[place->tier] + place->address + use->offset;
    touch(&engine->items[action], place, use->offset, bytes);
    return SL_OK;
}

static sl_status bind_workspace(sl_engine *engine, int32_t index, sl_launch *launch)
{
    const sl_plan *plan = engine->plan;
    const sl_action *action = &plan->actions[index];
    const sl_allocation *place = action->workspace < 0 ? NULL : find_place(plan, action->workspace, -1);
    size_t has = place ? place->bytes : 0;
    launch->workspace_bytes = SL_MAX(has, (size_t) 1); /* the limit for the kernel; 0 would mean no limit */
    size_t needed = engine->device->class->workspace(engine->device, launch, action->stream);
    launch->workspace_bytes = has;
    if (needed > has || (action->workspace >= 0 && !place))
        return broken_plan(engine, index, "its kernel needs more workspace than it has");
    if (!place)
        return SL_OK;
    launch->workspace = engine->base[place->tier] + place->address;
    touch(&engine->items[index], place, 0, place->bytes);
    return SL_OK;
}

static sl_status bind_task(sl_engine *engine, int32_t index, sl_launch *launch)
{
    const sl_action *action = &engine->plan->actions[index];
    const sl_task *task = &engine->program->tasks[action->task];
    const int32_t *places = &engine->plan->use_allocations[action->first_use];
    launch->op = task->op;
    launch->accumulate = task->accumulate;
    launch->attrs = task->attrs;
    launch->constants = task->constants;
    for (int i = 0; i < SL_MAX_IN; i++)
        SL_TRY(bind_operand(engine, index, &task->in[i], places[i], &launch->in[i]));
    for (int k = 0; k < SL_MAX_OUT; k++)
        SL_TRY(bind_operand(engine, index, &task->out[k], places[SL_MAX_IN + k], &launch->out[k]));
    SL_TRY(engine->device->class->supports(engine->device, launch));
    SL_TRY(bind_workspace(engine, index, launch));
    engine->items[index].launch = launch;
    return SL_OK;
}

static sl_status bind_copy(sl_engine *engine, int32_t index)
{
    const sl_action *action = &engine->plan->actions[index];
    const sl_allocation *from = find_place(engine->plan, action->from, action->object);
    const sl_allocation *to = find_place(engine->plan, action->to, action->object);
    sl_engine_item *item = &engine->items[index];
    if (!from || !to || from->bytes != to->bytes)
        return broken_plan(engine, index, "its two places do not hold one object");
    item->bytes = SL_MIN(from->bytes, engine->program->objects[action->object].bytes);
    item->from = engine->base[from->tier] + from->address;
    item->to = engine->base[to->tier] + to->address;
    touch(item, from, 0, item->bytes);
    touch(item, to, 0, item->bytes);
    return SL_OK;
}

/* Fills waits and events of all items. */
static sl_status bind_events(sl_engine *engine)
{
    const sl_plan *plan = engine->plan;
    waited w;
    int32_t n_waits = 0, n_events = 0;
    waited_for_nothing(&w);
    for (int32_t i = 0; i < plan->n_actions; i++) {
        const sl_action *action = &plan->actions[i];
        sl_engine_item *item = &engine->items[i];
        item->event = -1;
        item->first_wait = n_waits;
        for (int32_t d = 0; d < action->n_deps; d++) {
            int32_t dep = plan->deps[action->first_dep + d];
            if (dep < 0 || dep >= i)
                return broken_plan(engine, i, "it depends on an action that does not come before it");
            if (!must_wait(plan, &w, action->stream, dep))
                continue;
            if (engine->items[dep].event < 0)
                engine->items[dep].event = n_events++;
            engine->waits[n_waits++] = engine->items[dep].event;
        }
        item->n_waits = n_waits - item->first_wait;
    }
    return SL_OK;
}

static sl_status bind(sl_engine *engine)
{
    const sl_plan *plan = engine->plan;
    int64_t n_launches = 0;
    for (int32_t i = 0; i < plan->n_actions; i++)
        n_launches += plan->actions[i].kind == SL_ACTION_TASK;
    SL_TRY(sl_alloc(&engine->launches, SL_MAX(n_launches, 1), sizeof *engine->launches));
    SL_TRY(sl_alloc(&engine->items, SL_MAX(plan->n_actions, 1), sizeof *engine->items));
    SL_TRY(sl_alloc(&engine->spans, SL_MAX(plan->n_actions, 1), sizeof *engine->spans));
    SL_TRY(sl_alloc(&engine->waits, SL_MAX(plan->n_deps, 1), sizeof *engine->waits));
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        engine->base[tier] = engine->device->class->arena(engine->device, (sl_tier) tier);
    sl_launch *next = engine->launches;
    for (int32_t i = 0; i < plan->n_actions; i++) {
        engine->items[i].stream = plan->actions[i].stream;
        if (plan->actions[i].kind == SL_ACTION_TASK)
            SL_TRY(bind_task(engine, i, next++));
        else
            SL_TRY(bind_copy(engine, i));
    }
    return bind_events(engine);
}

sl_status sl_engine_create(sl_device *device, const sl_program *program, const sl_plan *plan, sl_engine **out)
{
    static atomic_uint_fast64_t engines;
    sl_engine *engine;
    SL_TRY(sl_alloc(&engine, 1, sizeof *engine));
    engine->id = atomic_fetch_add(&engines, 1) + 1;
    engine->device = device;
    engine->program = program;
    engine->plan = plan;
    sl_status status = bind(engine);
    if (status != SL_OK)
        sl_engine_destroy(engine);
    else
        *out = engine;
    return status;
}

void sl_engine_destroy(sl_engine *engine)
{
    if (!engine)
        return;
    sl_free(engine->launches);
    sl_free(engine->items);
    sl_free(engine->waits);
    sl_free(engine->spans);
    sl_free(engine);
}

static void raise_peak(sl_engine *engine, int tier, size_t top)
{
    size_t peak = atomic_load_explicit(&engine->peak_bytes[tier], memory_order_relaxed);
    while (top > peak && !atomic_compare_exchange_weak(&engine->peak_bytes[tier], &peak, top))
        ;
}

/* ---- between steps ---- */

static sl_status find_placement(sl_engine *engine, int32_t object, size_t offset, size_t length,
                                const sl_allocation **placement)
{
    const sl_plan *plan = engine->plan;
    if (object < 0 || object >= engine->program->n_objects || plan->placement[object] < 0)
        return sl_fail(SL_E_INTERNAL, "object %d has no place between steps", object);
    size_t bytes = engine->program->objects[object].bytes;
    if (offset > bytes || length > bytes - offset)
        return sl_fail(SL_E_INTERNAL, "%zu bytes at %zu of %s, which has %zu", length, offset,
                       engine->program->objects[object].name, bytes);
    *placement = &plan->allocations[plan->placement[object]];
    raise_peak(engine, (*placement)->tier, (*placement)->address + offset + length);
    return SL_OK;
}

sl_status sl_engine_write(sl_engine *engine, int32_t object, size_t offset, const void *bytes, size_t length)
{
    const sl_allocation *placement;
    SL_TRY(find_placement(engine, object, offset, length, &placement));
    return engine->device->class->write(engine->device, placement->tier,
                                        engine->base[placement->tier] + placement->address + offset, bytes, length);
}

sl_status sl_engine_read(sl_engine *engine, int32_t object, size_t offset, void *bytes, size_t length)
{
    const sl_allocation *placement;
    SL_TRY(find_placement(engine, object, offset, length, &placement));
    return engine->device->class->read(engine->device, placement->tier, bytes,
                                       engine->base[placement->tier] + placement->address + offset, length);
}

/* ---- a step ---- */

sl_status sl_engine_issue(sl_engine *engine, int32_t action)
{
    sl_device *device = engine->device;
    const sl_engine_item *item = &engine->items[action];
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        raise_peak(engine, tier, item->top[tier]);
    sl_status status = item->launch ? device->class->launch(device, item->stream, item->launch, &engine->spans[action])
                                    : device->class->copy(device, item->stream, item->to, item->from, item->bytes,
                                                          &engine->spans[action]);
    return status == SL_OK ? SL_OK : sl_engine_name_failure(engine, action, status);
}

static sl_status issue_all(sl_engine *engine, sl_engine_scopes *scopes)
{
    sl_device *device = engine->device;
    for (int32_t i = 0; i < engine->plan->n_actions; i++) {
        const sl_engine_item *item = &engine->items[i];
        for (int32_t w = 0; w < item->n_waits; w++)
            SL_TRY(device->class->wait(device, item->stream, engine->waits[item->first_wait + w]));
        sl_engine_scopes_enter(engine, scopes, i);
        sl_status status = sl_engine_issue(engine, i);
        sl_engine_scopes_leave(engine, scopes);
        SL_TRY(status);
        if (item->event >= 0)
            SL_TRY(device->class->record(device, item->stream, item->event));
    }
    return SL_OK;
}

/* An error while issuing names its task, so it takes precedence over errors at the end of the step. */
static sl_status issue_step(sl_engine *engine, sl_engine_scopes *scopes)
{
    sl_device *device = engine->device;
    char message[1024];
    SL_TRY(device->class->step_begin(device));
    sl_status issued = issue_all(engine, scopes);
    if (issued != SL_OK)
        snprintf(message, sizeof message, "%s", sl_error_message());
    sl_status ended = device->class->step_end(device); /* drains even what failed to issue */
    return issued == SL_OK ? ended : sl_fail(issued, "%s", message);
}

sl_status sl_engine_step(sl_engine *engine)
{
    sl_device *device = engine->device;
    sl_engine_scopes scopes;
    sl_status status = SL_OK;
    bool started = false;
    sl_engine_scopes_begin(engine, &scopes);
    if (device->class->replay)
        status = device->class->replay(device, engine->id, &started);
    if (status == SL_OK)
        status = started ? device->class->step_end(device) : issue_step(engine, &scopes);
    sl_engine_scopes_end(engine, &scopes);
    return status;
}

const sl_span *sl_engine_spans(const sl_engine *engine)
{
    return engine->spans;
}

size_t sl_engine_peak_bytes(const sl_engine *engine, sl_tier tier)
{
    return engine->peak_bytes[tier];
}

void sl_engine_set_peak_flops(sl_engine *engine, double peak_flops)
{
    engine->peak_flops = peak_flops;
}
