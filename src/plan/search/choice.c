/*
 * A choice, and the simple ways to make one: all gaps alike, all updates on the host or none, as many placements on
 * the device as fit a number of bytes. The levels for placements are: none on the device, as many as host memory
 * cannot hold, as many as fit beside the largest task, and halfway between these two.
 */
#include "plan/search/search.h"

#include <math.h>
#include <string.h>

sl_status sl_choice_new(const sl_analysis *a, sl_choice *choice)
{
    SL_TRY(sl_alloc(&choice->gap, a->n_entries + 1, 1));
    SL_TRY(sl_alloc(&choice->placement, a->program->n_objects + 1, 1));
    SL_TRY(sl_alloc(&choice->on_host, a->program->n_tasks + 1, 1));
    SL_TRY(sl_alloc(&choice->side, a->n_entries + 1, 1));
    SL_TRY(sl_alloc(&choice->lead, a->n_entries + 1, sizeof *choice->lead));
    memset(choice->lead, 0xff, (size_t) a->n_entries * sizeof *choice->lead);
    return SL_OK;
}

void sl_choice_free(sl_choice *choice)
{
    sl_free(choice->gap);
    sl_free(choice->placement);
    sl_free(choice->on_host);
    sl_free(choice->side);
    sl_free(choice->lead);
}

void sl_choice_copy(const sl_analysis *a, sl_choice *to, const sl_choice *from)
{
    memcpy(to->gap, from->gap, (size_t) a->n_entries);
    memcpy(to->placement, from->placement, (size_t) a->program->n_objects);
    memcpy(to->on_host, from->on_host, (size_t) a->program->n_tasks);
    memcpy(to->side, from->side, (size_t) a->n_entries);
    memcpy(to->lead, from->lead, (size_t) a->n_entries * sizeof *to->lead);
    to->slack = from->slack;
    to->fit = from->fit;
    to->on_demand = from->on_demand;
    to->as_it_is = from->as_it_is;
}

void sl_search_set_gaps(const sl_search *s, sl_choice *choice, sl_extreme extreme)
{
    bool drop = extreme == SL_EXTREME_DROP_OR_EVICT || extreme == SL_EXTREME_DROP_OR_KEEP;
    bool keep = extreme == SL_EXTREME_KEEP || extreme == SL_EXTREME_DROP_OR_KEEP;
    for (int32_t e = 0; e < s->a->n_entries; e++) {
        const sl_entry *entry = &s->a->entries[e];
        bool can_drop = s->small ? entry->can_drop : entry->drops_near;
        choice->gap[e] = drop && can_drop ? SL_GAP_DROP : keep ? SL_GAP_KEEP : SL_GAP_EVICT;
    }
}

void sl_search_set_updates(const sl_search *s, sl_choice *choice, bool on_host)
{
    const sl_program *p = s->a->program;
    for (int32_t t = 0; t < p->n_tasks; t++)
        choice->on_host[t] =
            on_host && p->tasks[t].host_allowed && isfinite(s->a->costs->host_s[p->tasks[t].signature]);
}

size_t sl_search_largest_need(const sl_search *s, const sl_choice *choice)
{
    size_t largest = 0;
    for (int32_t t = 0; t < s->a->program->n_tasks; t++)
        if (!choice->on_host[t])
            largest = SL_MAX(largest, s->a->need[t]);
    return largest;
}

size_t sl_search_persistent_bytes(const sl_search *s)
{
    size_t total = 0;
    for (int32_t o = 0; o < s->a->program->n_objects; o++)
        total += s->a->program->objects[o].persistent ? s->a->bytes[o] : 0;
    return total;
}

void sl_search_set_placements(const sl_search *s, sl_choice *choice, size_t device_bytes)
{
    const sl_program *p = s->a->program;
    for (int32_t o = 0; o < p->n_objects; o++) {
        choice->placement[o] = SL_TIER_HOST;
        if (!p->objects[o].persistent)
            continue;
        if (s->fixed)
            choice->placement[o] = s->fixed->tier[o];
        else if (s->a->bytes[o] <= device_bytes) {
            choice->placement[o] = SL_TIER_DEVICE;
            device_bytes -= s->a->bytes[o];
        }
    }
}

/* The bytes of persistent objects that a level puts on the device. False: none to try. */
static bool placement_bytes(const sl_search *s, const sl_choice *choice, int level, size_t *bytes)
{
    const sl_program *p = s->a->program;
    size_t persistent = 0, lack = 0, space = 0;
    for (int32_t o = 0; o < p->n_objects; o++) {
        bool io = p->objects[o].class == SL_CLASS_DATA || p->objects[o].class == SL_CLASS_RESULT;
        if (p->objects[o].persistent)
            persistent += s->a->bytes[o];
        if (p->objects[o].persistent || io)
            lack += s->a->bytes[o];
    }
    size_t need = sl_search_largest_need(s, choice), device = s->budget[SL_TIER_DEVICE] / SL_ALIGN * SL_ALIGN;
    space = device > need ? SL_MIN(device - need, persistent) : 0;
    lack = SL_MIN(lack - SL_MIN(lack, s->budget[SL_TIER_HOST]), persistent);
    if (lack && !s->small) /* few trials: leave some host memory for evictions */
        lack = SL_MIN(lack + s->budget[SL_TIER_HOST] / 8, persistent);
    *bytes = level == 0 ? 0 : level == 1 ? lack : level == 2 ? (lack + space) / 2 : space;
    if (level > 0 && (space == 0 || s->fixed))
        return false;
    return level == 0 ? lack == 0 || s->fixed : *bytes >= lack && (level != 1 || lack > 0);
}

bool sl_search_set_level(const sl_search *s, sl_choice *choice, bool on_host, int level)
{
    size_t bytes;
    sl_search_set_updates(s, choice, on_host);
    if (!placement_bytes(s, choice, level, &bytes))
        return false;
    sl_search_set_placements(s, choice, bytes);
    return true;
}
