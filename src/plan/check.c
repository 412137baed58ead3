/*
 * Proves a plan without knowing how it was made. The list is replayed in issue order, which dependencies may not
 * contradict; what really orders two actions is their stream or a chain of dependencies, kept as vector clocks. For
 * every pair of actions on the same bytes, one of them a write, that order must exist.
 *
 *   owners     per tier, who used each byte last, as ranges by address. Filling a place overwrites all it overlaps: their users
 *              must be over, and nobody may use them again; what is left of them still has its users. Placements may never be
 *              overwritten.
 *   versions   an object's n-th write in program order makes version n. Every read must find the version that the
 *              program means.
 *              A recomputation must find the inputs of the first time (later writes may not overlap what it reads).
 */
#include "plan/plan.h"

#include <string.h>

#define UNDEFINED (-1)

typedef struct sl_shadow {
    int32_t version; /* content; UNDEFINED: none that may be read */
    int32_t writer;
    int32_t last[SL_STREAM_COUNT];
    bool owned; /* its bytes are its own */
} sl_shadow;

typedef struct sl_range {
    size_t begin, end;
    int32_t place;
} sl_range;

typedef struct sl_write_note {
    int32_t task;
    int32_t next; /* of the same object, -1 */
    int32_t version;
    size_t begin, end;
} sl_write_note;

typedef struct sl_checker {
    sl_region *region;
    const sl_program *program;
    const sl_plan *plan;
    sl_shadow *shadows;                /* by place */
    int32_t (*clock)[SL_STREAM_COUNT]; /* by action */
    sl_range *owners[SL_TIER_COUNT];
    int32_t n_owners[SL_TIER_COUNT];
    int32_t *task_version;  /* by task and operand: version of the object before the task */
    int32_t *final_version; /* by object */
    sl_write_note *writes;
    int32_t *first_write; /* by object */
    uint8_t *ran;         /* by task */
} sl_checker;

#define OPERANDS (SL_MAX_IN + SL_MAX_OUT)
#define BAD(...) return sl_fail(SL_E_INTERNAL, __VA_ARGS__)

static const sl_use *use_at(const sl_task *task, int i)
{
    return i < SL_MAX_IN ? &task->in[i] : &task->out[i - SL_MAX_IN];
}

static bool reads_output(const sl_task *task, int i)
{
    return (task->accumulate | sl_op(task->op)->updates) >> (i - SL_MAX_IN) & 1;
}

static bool covers(const sl_program *p, const sl_use *use)
{
    return use->offset == 0 && sl_type_bytes(&use->type) >= p->objects[use->object].bytes;
}

/* ---- what the program means ------------------------------------------------------------------------------------ */

/* Version numbers in program order. A task that writes an object through several operands makes one version. */
static sl_status number_versions(sl_checker *c)
{
    const sl_program *p = c->program;
    int32_t n_writes = 0, *last_write, *written_by;
    SL_TRY(sl_region_alloc(c->region, &c->task_version, (int64_t) p->n_tasks * OPERANDS + 1, sizeof(int32_t)));
    SL_TRY(sl_region_alloc(c->region, &c->final_version, p->n_objects + 1, sizeof(int32_t)));
    SL_TRY(sl_region_alloc(c->region, &c->first_write, p->n_objects + 1, sizeof(int32_t)));
    SL_TRY(sl_region_alloc(c->region, &last_write, p->n_objects + 1, sizeof(int32_t)));
    SL_TRY(sl_region_alloc(c->region, &written_by, p->n_objects + 1, sizeof(int32_t)));
    SL_TRY(sl_region_alloc(c->region, &c->writes, (int64_t) p->n_tasks * SL_MAX_OUT + 1, sizeof *c->writes));
    for (int32_t o = 0; o < p->n_objects; o++)
        c->first_write[o] = last_write[o] = written_by[o] = -1;
    for (int32_t t = 0; t < p->n_tasks; t++) {
        for (int i = 0; i < OPERANDS; i++)
            if (use_at(&p->tasks[t], i)->object >= 0)
                c->task_version[(int64_t) t * OPERANDS + i] = c->final_version[use_at(&p->tasks[t], i)->object];
        for (int i = SL_MAX_IN; i < OPERANDS; i++) {
            const sl_use *use = use_at(&p->tasks[t], i);
            if (use->object < 0)
                continue;
            int32_t o = use->object;
            if (written_by[o] != t)
                c->final_version[o]++;
            written_by[o] = t;
            c->writes[n_writes] =
                (sl_write_note){t, -1, c->final_version[o], use->offset, use->offset + sl_type_bytes(&use->type)};
            if (last_write[o] >= 0)
                c->writes[last_write[o]].next = n_writes;
            else
                c->first_write[o] = n_writes;
            last_write[o] = n_writes++;
        }
    }
    return SL_OK;
}

/* Whether version `have` still holds, in the bytes of `use`, what version `want` held there. */
static bool same_there(const sl_checker *c, const sl_use *use, int32_t want, int32_t have)
{
    size_t begin = use->offset, end = begin + sl_type_bytes(&use->type);
    if (have < want)
        return false;
    for (int32_t w = c->first_write[use->object]; w >= 0 && have > want; w = c->writes[w].next) {
        const sl_write_note *write = &c->writes[w];
        if (write->version > want && write->version <= have && write->begin < end && write->end > begin)
            return false;
    }
    return true;
}

/* ---- order ----------------------------------------------------------------------------------------------------- */

static bool over(const sl_checker *c, int32_t earlier, int32_t later)
{
    return earlier < 0 || c->clock[later][c->plan->actions[earlier].stream] >= earlier;
}

static bool all_over(const sl_checker *c, const sl_shadow *shadow, int32_t later)
{
    for (int r = 0; r < SL_STREAM_COUNT; r++)
        if (!over(c, shadow->last[r], later))
            return false;
    return true;
}

static sl_status set_clock(sl_checker *c, int32_t index, int32_t stream_last[SL_STREAM_COUNT])
{
    const sl_action *a = &c->plan->actions[index];
    int32_t *clock = c->clock[index];
    if ((unsigned) a->stream >= SL_STREAM_COUNT)
        BAD("action %d names no stream", index);
    int32_t before = stream_last[a->stream];
    for (int r = 0; r < SL_STREAM_COUNT; r++)
        clock[r] = before >= 0 ? c->clock[before][r] : -1;
    clock[a->stream] = before;
    if (a->n_deps < 0 || a->first_dep < 0 || a->first_dep + a->n_deps > c->plan->n_deps)
        BAD("action %d: dependencies outside the list", index);
    for (int32_t i = 0; i < a->n_deps; i++) {
        int32_t dep = c->plan->deps[a->first_dep + i];
        if (dep < 0 || dep >= index || c->plan->actions[dep].stream == a->stream)
            BAD("action %d depends on action %d: not an earlier one of another stream", index, dep);
        for (int r = 0; r < SL_STREAM_COUNT; r++)
            clock[r] = SL_MAX(clock[r], c->clock[dep][r]);
        clock[c->plan->actions[dep].stream] = SL_MAX(clock[c->plan->actions[dep].stream], dep);
    }
    stream_last[a->stream] = index;
    return SL_OK;
}

/* ---- bytes ----------------------------------------------------------------------------------------------------- */

/* First range of the tier that ends behind `address`. */
static int32_t first_behind(const sl_checker *c, sl_tier tier, size_t address)
{
    int32_t low = 0, high = c->n_owners[tier];
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (c->owners[tier][middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* `place` takes its bytes over at action `index` (-1: before the first). */
static sl_status own(sl_checker *c, int32_t place, int32_t index)
{
    const sl_allocation *p = &c->plan->allocations[place];
    size_t p_end = p->address + p->bytes;
    int32_t at = first_behind(c, p->tier, p->address), end = at, n_with = 0;
    sl_range *owners = c->owners[p->tier], with[3];
    for (; end < c->n_owners[p->tier] && owners[end].begin < p_end; end++) {
        const sl_allocation *former = &c->plan->allocations[owners[end].place];
        if (former->first < 0) /* only placements have taken their bytes over before the first action */
            BAD("action %d: place %d overlaps the placement of %s", index, place,
                c->program->objects[former->object].name);
        if (!all_over(c, &c->shadows[owners[end].place], index))
            BAD("action %d fills place %d while place %d at the same bytes is still in use", index, place,
                owners[end].place);
        c->shadows[owners[end].place].owned = false;
    }
    if (end > at && owners[at].begin < p->address)
        with[n_with++] = (sl_range){owners[at].begin, p->address, owners[at].place};
    with[n_with++] = (sl_range){p->address, p_end, place};
    if (end > at && owners[end - 1].end > p_end)
        with[n_with++] = (sl_range){p_end, owners[end - 1].end, owners[end - 1].place};
    memmove(owners + at + n_with, owners + end, (size_t) (c->n_owners[p->tier] - end) * sizeof *owners);
    memcpy(owners + at, with, (size_t) n_with * sizeof *with);
    c->n_owners[p->tier] += n_with - (end - at);
    c->shadows[place].owned = true;
    return SL_OK;
}

static sl_status touch(sl_checker *c, int32_t place, int32_t index, bool write)
{
    if (place < 0 || place >= c->plan->n_allocations)
        BAD("action %d uses place %d of %d", index, place, c->plan->n_allocations);
    const sl_allocation *p = &c->plan->allocations[place];
    sl_shadow *shadow = &c->shadows[place];
    if (index < p->first || index > p->last)
        BAD("action %d uses place %d outside its life [%d, %d]", index, place, p->first, p->last);
    if (!shadow->owned) {
        if (index != p->first)
            BAD("action %d uses place %d after others overwrote it", index, place);
        SL_TRY(own(c, place, index));
    }
    if (!over(c, shadow->writer, index) || (write && !all_over(c, shadow, index)))
        BAD("action %d is not ordered behind the users of place %d", index, place);
    return SL_OK;
}

static void touched(sl_checker *c, int32_t place, int32_t index, bool write)
{
    sl_shadow *shadow = &c->shadows[place];
    shadow->last[c->plan->actions[index].stream] = index;
    if (write)
        shadow->writer = index;
}

/* ---- actions --------------------------------------------------------------------------------------------------- */

static sl_status check_copy(sl_checker *c, int32_t index)
{
    const sl_action *a = &c->plan->actions[index];
    SL_TRY(touch(c, a->from, index, false));
    int32_t version = c->shadows[a->from].version;
    SL_TRY(touch(c, a->to, index, true));
    const sl_allocation *from = &c->plan->allocations[a->from], *to = &c->plan->allocations[a->to];
    const sl_stream_def *stream = &sl_streams[a->stream];
    if (from->object != a->object || to->object != a->object || from->tier == to->tier || from->tier != stream->from ||
        to->tier != stream->to)
        BAD("action %d: copy between places %d and %d on the wrong stream or of another object", index, a->from, a->to);
    if (version == UNDEFINED)
        BAD("action %d copies %s, which has no content there", index, c->program->objects[a->object].name);
    touched(c, a->from, index, false);
    touched(c, a->to, index, true);
    c->shadows[a->to].version = version;
    return SL_OK;
}

/* One operand before the task runs: the right place, and for reads the right content. */
static sl_status check_operand(sl_checker *c, int32_t index, int i)
{
    const sl_action *a = &c->plan->actions[index];
    const sl_task *task = &c->program->tasks[a->task];
    const sl_use *use = use_at(task, i);
    int32_t place = c->plan->use_allocations[a->first_use + i];
    if (use->object < 0) {
        if (place >= 0)
            BAD("action %d: a place for an absent operand", index);
        return SL_OK;
    }
    SL_TRY(touch(c, place, index, i >= SL_MAX_IN));
    const sl_allocation *p = &c->plan->allocations[place];
    const sl_object *object = &c->program->objects[use->object];
    if (p->object != use->object || p->tier != sl_streams[a->stream].to)
        BAD("action %d: operand %d (%s) at place %d of another object or tier", index, i, object->name, place);
    int32_t want = c->task_version[(int64_t) a->task * OPERANDS + i], have = c->shadows[place].version;
    bool content = want > 0 || object->persistent || object->class == SL_CLASS_DATA;
    bool read = i < SL_MAX_IN || reads_output(task, i);
    if (read && !content)
        BAD("action %d: task %d reads %s before anything wrote it", index, a->task, object->name);
    bool keeps = i >= SL_MAX_IN && !covers(c->program, use) && object->producer != a->task && content;
    if (a->recompute) {
        if (i >= SL_MAX_IN && reads_output(task, i))
            BAD("action %d runs task %d again, which accumulates", index, a->task);
        if (i < SL_MAX_IN && !same_there(c, use, want, have))
            BAD("action %d runs task %d again with another %s", index, a->task, object->name);
    } else if ((read || keeps) && have != want)
        BAD("action %d: task %d finds version %d of %s, not %d", index, a->task, have, object->name, want);
    return SL_OK;
}

static void write_output(sl_checker *c, int32_t index, int i)
{
    const sl_action *a = &c->plan->actions[index];
    const sl_use *use = use_at(&c->program->tasks[a->task], i);
    int32_t place = c->plan->use_allocations[a->first_use + i];
    sl_shadow *shadow = &c->shadows[place];
    int32_t after = c->task_version[(int64_t) a->task * OPERANDS + i] + 1;
    if (!a->recompute || c->program->objects[use->object].producer == a->task)
        shadow->version = after;
    else if (!(shadow->version >= after && same_there(c, use, after, shadow->version)))
        shadow->version = UNDEFINED; /* a part of something whose rest is not there: good for nobody */
}

static sl_status check_task(sl_checker *c, int32_t index)
{
    const sl_action *a = &c->plan->actions[index];
    if (a->task < 0 || a->task >= c->program->n_tasks)
        BAD("action %d runs task %d of %d", index, a->task, c->program->n_tasks);
    const sl_task *task = &c->program->tasks[a->task];
    if (a->stream != SL_STREAM_COMPUTE && (sl_stream_copies(a->stream) || !task->host_allowed))
        BAD("action %d runs task %d on stream %d", index, a->task, a->stream);
    if (c->ran[a->task] != (a->recompute ? 1 : 0))
        BAD("action %d runs task %d %s", index, a->task, a->recompute ? "again before the first time" : "twice");
    c->ran[a->task] = 1;
    if (a->first_use < 0 || a->first_use + OPERANDS > c->plan->n_use_allocations)
        BAD("action %d: operand places outside the list", index);
    for (int i = 0; i < OPERANDS; i++)
        SL_TRY(check_operand(c, index, i));
    if (a->workspace >= 0) {
        SL_TRY(touch(c, a->workspace, index, true));
        const sl_allocation *p = &c->plan->allocations[a->workspace];
        if (p->object != -1 || p->first != index || p->last != index || p->tier != sl_streams[a->stream].to)
            BAD("action %d: place %d is not its workspace", index, a->workspace);
        touched(c, a->workspace, index, true);
    }
    for (int i = 0; i < OPERANDS; i++) {
        int32_t place = c->plan->use_allocations[a->first_use + i];
        if (place < 0)
            continue;
        if (!c->shadows[place].owned)
            BAD("action %d: operands of task %d overlap", index, a->task);
        touched(c, place, index, i >= SL_MAX_IN);
        if (i >= SL_MAX_IN)
            write_output(c, index, i);
    }
    return SL_OK;
}

/* ---- placements and budgets ----------------------------------------------------------------------------------------- */

static bool has_placement(const sl_object *object)
{
    return object->persistent || object->class == SL_CLASS_DATA || object->class == SL_CLASS_RESULT;
}

static sl_status check_places(sl_checker *c, const size_t budget[SL_TIER_COUNT])
{
    for (int32_t i = 0; i < c->plan->n_allocations; i++) {
        const sl_allocation *p = &c->plan->allocations[i];
        if ((unsigned) p->tier >= SL_TIER_COUNT || p->address % SL_ALIGN || !p->bytes || p->object < -1 ||
            p->object >= c->program->n_objects)
            BAD("place %d is malformed", i);
        if (p->object >= 0 && p->bytes < c->program->objects[p->object].bytes)
            BAD("place %d has %zu bytes for %s, which has %zu", i, p->bytes, c->program->objects[p->object].name,
                c->program->objects[p->object].bytes);
        if (p->address > budget[p->tier] || p->bytes > budget[p->tier] - p->address)
            BAD("place %d ends at byte %zu of tier %d, whose budget is %zu", i, p->address + p->bytes, p->tier,
                budget[p->tier]);
        c->shadows[i] = (sl_shadow){.version = UNDEFINED, .writer = -1, .last = {-1, -1, -1, -1}};
    }
    return SL_OK;
}

static sl_status check_placements(sl_checker *c, bool end)
{
    for (int32_t o = 0; o < c->program->n_objects; o++) {
        const sl_object *object = &c->program->objects[o];
        int32_t place = c->plan->placement[o];
        if (!has_placement(object)) {
            if (place >= 0)
                BAD("%s has a placement but does not outlive the step", object->name);
            continue;
        }
        if (place < 0 || place >= c->plan->n_allocations || c->plan->allocations[place].object != o ||
            c->plan->allocations[place].first != -1 || c->plan->allocations[place].last != c->plan->n_actions ||
            (!object->persistent && c->plan->allocations[place].tier != SL_TIER_HOST))
            BAD("%s has no proper placement", object->name);
        if (!end) {
            SL_TRY(own(c, place, -1));
            if (object->class != SL_CLASS_RESULT)
                c->shadows[place].version = 0;
        } else if (c->final_version[o] > 0 && c->shadows[place].version != c->final_version[o])
            BAD("%s ends the step at placement as version %d, not %d", object->name, c->shadows[place].version,
                c->final_version[o]);
    }
    return SL_OK;
}

static sl_status check_all(sl_checker *c, const size_t budget[SL_TIER_COUNT])
{
    const sl_plan *plan = c->plan;
    SL_TRY(sl_region_alloc(c->region, &c->shadows, plan->n_allocations + 1, sizeof *c->shadows));
    SL_TRY(sl_region_alloc(c->region, &c->clock, plan->n_actions + 1, sizeof *c->clock));
    SL_TRY(sl_region_alloc(c->region, &c->ran, c->program->n_tasks + 1, 1));
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        SL_TRY(sl_region_alloc(c->region, &c->owners[tier], 2 * (int64_t) plan->n_allocations + 3, sizeof(sl_range)));
    SL_TRY(number_versions(c));
    SL_TRY(check_places(c, budget));
    SL_TRY(check_placements(c, false));
    int32_t stream_last[SL_STREAM_COUNT];
    memset(stream_last, 0xff, sizeof stream_last);
    for (int32_t i = 0; i < plan->n_actions; i++) {
        SL_TRY(set_clock(c, i, stream_last));
        SL_TRY(plan->actions[i].kind == SL_ACTION_COPY ? check_copy(c, i) : check_task(c, i));
    }
    for (int32_t t = 0; t < c->program->n_tasks; t++)
        if (!c->ran[t])
            BAD("task %d never runs", t);
    return check_placements(c, true);
}

sl_status sl_plan_check(const sl_program *program, const sl_plan *plan, const size_t budget[SL_TIER_COUNT])
{
    sl_checker c = {.program = program, .plan = plan};
    SL_TRY(sl_region_create(&c.region));
    sl_status status = check_all(&c, budget);
    sl_region_destroy(c.region);
    return status;
}
