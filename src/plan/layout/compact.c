/*
 * The search places long-lived allocations from address 0 upwards and short-lived ones from the budget downwards. In a
 * budget larger than needed, bytes between the two are never used. Compaction removes them: every allocation moves down by
 * the unused bytes below it.
 *
 *     before   long | long |  .  .  .  .  | short | short     budget
 *     after    long | long | short | short                    peak
 *
 * The order of addresses does not change, so allocations overlap afterwards exactly where they did before: dependencies, and
 * therefore the predicted time, stay valid. A tight plan, in which every byte is used at some time, is not changed.
 */
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "plan/internal.h"

static int by_address(const void *a, const void *b)
{
    const sl_allocation *x = *(sl_allocation *const *) a, *y = *(sl_allocation *const *) b;
    return x->address < y->address ? -1 : x->address > y->address;
}

sl_status sl_plan_compact(sl_plan *plan, const size_t fixed[SL_TIER_COUNT])
{
    size_t end[SL_TIER_COUNT], unused[SL_TIER_COUNT] = {0}; /* of the addresses seen so far, as they were */
    sl_allocation **order;
    SL_TRY(sl_alloc(&order, plan->n_allocations + 1, sizeof(sl_allocation *)));
    memcpy(end, fixed, sizeof end);
    for (int32_t i = 0; i < plan->n_allocations; i++)
        order[i] = &plan->allocations[i];
    qsort(order, (size_t) plan->n_allocations, sizeof(sl_allocation *), by_address);
    for (int32_t i = 0; i < plan->n_allocations; i++) {
        sl_allocation *place = order[i];
        size_t bytes = SL_ROUND_UP(SL_MAX(place->bytes, (size_t) 1), (size_t) SL_ALIGN);
        unused[place->tier] += place->address - SL_MIN(end[place->tier], place->address);
        end[place->tier] = SL_MAX(end[place->tier], place->address + bytes);
        place->address -= unused[place->tier];
    }
    sl_free(order);
    return SL_OK;
}
