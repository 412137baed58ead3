/*
 * Small changes to the best choice, kept when they make the step faster: another treatment of one gap, then of two at once; a
 * fetch issued earlier or later; an update on the other side; a home in the other tier; another layout. For programs of a dozen
 * tasks this visits enough to find the optimum nearly always; for larger ones it polishes as far as the bound on evaluations
 * allows, whole keys at a time (what corresponds in all rounds changes together).
 */
#include "plan/internal.h"

#include <stdlib.h>
#include <string.h>

/* One change: the value one decision is set to. */
typedef enum sl_move_kind { MOVE_GAP, MOVE_LEAD, MOVE_HOST, MOVE_HOME, MOVE_FIT, MOVE_SLACK } sl_move_kind;

typedef struct sl_move {
    sl_move_kind kind;
    int32_t index, value;
} sl_move;

typedef struct sl_moves {
    sl_move *list;
    int32_t count, capacity;
} sl_moves;

static sl_status add(sl_moves *moves, sl_move_kind kind, int32_t index, int32_t value)
{
    if (moves->count == moves->capacity) {
        int32_t capacity = moves->capacity * 2 + 64;
        SL_TRY(sl_grow(&moves->list, moves->capacity, capacity, sizeof *moves->list));
        moves->capacity = capacity;
    }
    moves->list[moves->count++] = (sl_move){kind, index, value};
    return SL_OK;
}

static sl_status list_gap_moves(const sl_search *s, sl_moves *moves)
{
    const sl_analysis *a = s->a;
    for (int32_t e = 0; e < a->n_entries; e++) {
        const sl_entry *entry = &a->entries[e];
        if (entry->next < 0 || a->entries[entry->next].flags & SL_ENTRY_FRESH)
            continue;
        SL_TRY(add(moves, MOVE_GAP, e, SL_GAP_KEEP));
        SL_TRY(add(moves, MOVE_GAP, e, SL_GAP_EVICT));
        if (entry->can_drop)
            SL_TRY(add(moves, MOVE_GAP, e, SL_GAP_DROP));
    }
    return SL_OK;
}

static sl_status list_other_moves(const sl_search *s, sl_moves *moves)
{
    const sl_analysis *a = s->a;
    const sl_program *p = a->program;
    for (int32_t t = 0; t < p->n_tasks; t++)
        for (int32_t on = 0; on < 2 && p->tasks[t].host_allowed; on++)
            SL_TRY(add(moves, MOVE_HOST, t, on));
    for (int32_t o = 0; o < p->n_objects && !s->fixed; o++)
        for (int32_t tier = 0; tier < SL_TIER_COUNT && p->objects[o].persistent; tier++)
            SL_TRY(add(moves, MOVE_HOME, o, tier));
    for (int32_t fit = 0; fit < 4; fit++)
        SL_TRY(add(moves, MOVE_FIT, 0, fit));
    for (int32_t slack = 0; slack < 4; slack++)
        SL_TRY(add(moves, MOVE_SLACK, 0, slack));
    for (int32_t e = 0; e < a->n_entries; e++)
        for (int32_t ahead = 0; ahead <= 4 && a->entries[e].flags & SL_ENTRY_READ; ahead++)
            if (a->entries[e].task - ahead >= 0)
                SL_TRY(add(moves, MOVE_LEAD, e, ahead ? a->entries[e].task - ahead : -1));
    return SL_OK;
}

/* False: it is so already. */
static bool apply(const sl_search *s, sl_choice *choice, const sl_move *move)
{
    switch (move->kind) {
    case MOVE_GAP:
        if (choice->gap[move->index] == move->value)
            return false;
        choice->gap[move->index] = (uint8_t) move->value;
        return true;
    case MOVE_LEAD:
        if (choice->lead[move->index] == move->value)
            return false;
        choice->lead[move->index] = move->value;
        return true;
    case MOVE_HOST: {
        double seconds = s->a->costs->host_s[s->a->program->tasks[move->index].kind];
        if (choice->on_host[move->index] == move->value || (move->value && seconds > 1e300))
            return false;
        choice->on_host[move->index] = (uint8_t) move->value;
        return true;
    }
    case MOVE_HOME:
        if (choice->home[move->index] == move->value)
            return false;
        choice->home[move->index] = (uint8_t) move->value;
        return true;
    case MOVE_FIT:
        if (choice->fit == move->value || (s->budget[SL_TIER_DEVICE] == SIZE_MAX && !(move->value & SL_FIT_LOW)))
            return false;
        choice->fit = move->value;
        return true;
    case MOVE_SLACK:
        if (choice->slack == move->value)
            return false;
        choice->slack = move->value;
        return true;
    }
    return false;
}

static sl_status try_move(sl_search *s, const sl_move *first, const sl_move *second, bool *better)
{
    sl_outcome outcome;
    *better = false;
    sl_choice_copy(s->a, &s->trial, &s->best);
    s->trial.on_demand = false;
    bool changed = apply(s, &s->trial, first);
    if (second)
        changed = apply(s, &s->trial, second) && changed;
    if (!changed)
        return SL_OK;
    SL_TRY(sl_search_consider(s, &outcome));
    *better = outcome.best;
    return SL_OK;
}

/* Single changes until none helps. */
static sl_status climb_singly(sl_search *s, const sl_moves *moves)
{
    int32_t since = 0;
    for (int32_t i = 0; since < moves->count && !sl_search_over(s); i = (i + 1) % moves->count) {
        bool better;
        SL_TRY(try_move(s, &moves->list[i], NULL, &better));
        since = better ? 0 : since + 1;
    }
    return SL_OK;
}

/* Pairs, in an order that mixes near and far ones; after a success single changes get another chance. */
static sl_status climb_in_pairs(sl_search *s, const sl_moves *moves)
{
    int64_t n = moves->count, total = n * n, stride = total / 2 * 2 + 1;
    stride = (int64_t) ((double) total * 0.6180339887) | 1;
    while (total > 1) { /* a stride without a common factor visits every pair once */
        int64_t a = total, b = stride;
        while (b) {
            int64_t r = a % b;
            a = b;
            b = r;
        }
        if (a == 1)
            break;
        stride += 2;
    }
    for (int64_t i = 0, at = 0; i < total && !sl_search_over(s); i++, at = (at + stride) % total) {
        int64_t x = at / n, y = at % n;
        bool better;
        if (x >= y || (moves->list[x].kind == moves->list[y].kind && moves->list[x].index == moves->list[y].index))
            continue;
        SL_TRY(try_move(s, &moves->list[x], &moves->list[y], &better));
        if (better)
            SL_TRY(climb_singly(s, moves));
    }
    return SL_OK;
}

sl_status sl_search_climb(sl_search *s)
{
    sl_moves moves = {0};
    sl_status status;
    SL_TRY_GOTO(list_gap_moves(s, &moves), done);
    SL_TRY_GOTO(list_other_moves(s, &moves), done);
    SL_TRY_GOTO(climb_singly(s, &moves), done);
    SL_TRY_GOTO(climb_in_pairs(s, &moves), done);
done:
    sl_free(moves.list);
    return status;
}
