/*
 * Small changes to the best choice: another treatment of one gap, a fetch issued earlier or later, an update on the
 * other side, a placement in the other tier, a place at the other end of the arena. First one at a time while that helps,
 * then random walks, from the best choice of every set of placements. For programs of a dozen tasks this finds the optimum nearly
 * always; for larger ones it improves as far as the bound on evaluations allows. The walks use a fixed random sequence:
 * the same input gives the same plan.
 */
#include "plan/search/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PLACED 4 /* persistent objects up to which all their placements are tried */
#define POOL ((1 << MAX_PLACED) + 1)
#define WALK 1000 /* steps, of one to three changes each */

/* One change: the value one decision is set to. */
typedef enum sl_move_kind {
    MOVE_GAP,
    MOVE_LEAD,
    MOVE_HOST,
    MOVE_HOME,
    MOVE_FIT,
    MOVE_SLACK,
    MOVE_SIDE,
    MOVE_KINDS
} sl_move_kind;

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
        for (int32_t side = 0; side < SL_SIDE_COUNT; side++)
            SL_TRY(add(moves, MOVE_SIDE, e, side));
    for (int32_t e = 0; e < a->n_entries; e++)
        for (int32_t ahead = -1; ahead <= 4 && a->entries[e].flags & SL_ENTRY_READ; ahead++)
            if (a->entries[e].task - ahead >= 0)
                SL_TRY(add(moves, MOVE_LEAD, e, ahead < 0 ? -1 : a->entries[e].task - ahead));
    return SL_OK;
}

static int by_kind(const void *a, const void *b)
{
    const sl_move *x = a, *y = b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    return x->index != y->index ? (x->index < y->index ? -1 : 1) : (x->value > y->value) - (x->value < y->value);
}

/* False: no change. */
static bool apply(const sl_search *s, sl_choice *choice, const sl_move *move)
{
    switch (move->kind) {
    case MOVE_GAP: {
        int32_t o = s->a->entries[move->index].object;
        if (choice->gap[move->index] == move->value ||
            (s->a->program->objects[o].persistent &&
             choice->placement[o] == SL_TIER_DEVICE)) /* it is resident anyway */
            return false;
        choice->gap[move->index] = (uint8_t) move->value;
        return true;
    }
    case MOVE_LEAD:
        if (choice->lead[move->index] == move->value)
            return false;
        choice->lead[move->index] = move->value;
        return true;
    case MOVE_HOST: {
        double seconds = s->a->costs->host_s[s->a->program->tasks[move->index].signature];
        if (choice->on_host[move->index] == move->value || (move->value && seconds > 1e300))
            return false;
        choice->on_host[move->index] = (uint8_t) move->value;
        return true;
    }
    case MOVE_HOME:
        if (choice->placement[move->index] == move->value)
            return false;
        choice->placement[move->index] = (uint8_t) move->value;
        return true;
    case MOVE_FIT:
        if (choice->fit == move->value || (s->budget[SL_TIER_DEVICE] == SIZE_MAX && !(move->value & SL_FIT_LOW)))
            return false;
        choice->fit = move->value;
        return true;
    case MOVE_SIDE:
        if (choice->side[move->index] == move->value)
            return false;
        choice->side[move->index] = (uint8_t) move->value;
        return true;
    case MOVE_KINDS:
        return false;
    case MOVE_SLACK:
        if (choice->slack == move->value)
            return false;
        choice->slack = move->value;
        return true;
    }
    return false;
}

/* ---- walking --------------------------------------------------------------------------------------------------- */

typedef struct sl_local {
    sl_search *search;
    sl_moves moves;
    int32_t first_move[MOVE_KINDS + 1]; /* by kind */
    sl_choice now;                      /* the walk's current choice; the search keeps the best */
    double now_s;
    sl_choice pool[POOL]; /* starting points: one slot per set of placements, the last for all others */
    double pool_s[POOL];
    uint8_t *touched; /* by entry, where the walk stands */
    uint64_t random;
} sl_local;

static uint32_t random_below(sl_local *c, uint32_t n)
{
    uint64_t z = (c->random += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (uint32_t) ((z ^ (z >> 31)) % n);
}

/* Some changes have no effect on the current choice. */
static bool pointless(const sl_local *c, const sl_move *move)
{
    return (move->kind == MOVE_SIDE && !(c->touched[move->index] & SL_TOUCHED_SIDE)) ||
           (move->kind == MOVE_LEAD && !(c->touched[move->index] & SL_TOUCHED_LEAD));
}

/* Evaluates `trial`, which becomes the current choice if it takes at most `factor` times as long. */
static sl_status step_to(sl_local *c, double factor, bool *gone)
{
    sl_search *s = c->search;
    sl_outcome outcome;
    SL_TRY(sl_search_consider(s, &outcome));
    *gone = outcome.feasible && outcome.step_s <= c->now_s * factor;
    if (*gone) {
        sl_choice_copy(s->a, &c->now, &s->trial);
        c->now_s = outcome.step_s;
        memcpy(c->touched, sl_sweep_touched(s->sweep), (size_t) s->a->n_entries);
    }
    return SL_OK;
}

static sl_status list_moves(sl_local *c)
{
    SL_TRY(list_gap_moves(c->search, &c->moves));
    SL_TRY(list_other_moves(c->search, &c->moves));
    qsort(c->moves.list, (size_t) c->moves.count, sizeof *c->moves.list, by_kind);
    for (int kind = 0, i = 0; kind <= MOVE_KINDS; kind++) {
        while (i < c->moves.count && (int) c->moves.list[i].kind < kind)
            i++;
        c->first_move[kind] = i;
    }
    return SL_OK;
}

static void stand_on(sl_local *c, const sl_choice *choice, double seconds)
{
    sl_choice_copy(c->search->a, &c->now, choice);
    c->now.on_demand = false;
    c->now_s = seconds;
    memset(c->touched, 0xff, (size_t) c->search->a->n_entries); /* not known yet */
}

/* Single changes until none helps. */
static sl_status climb_singly(sl_local *c)
{
    int32_t since = 0;
    sl_search *s = c->search;
    for (int32_t i = 0; since < c->moves.count && !sl_search_over(s); i = (i + 1) % c->moves.count) {
        bool gone = false;
        sl_choice_copy(s->a, &s->trial, &c->now);
        if (!pointless(c, &c->moves.list[i]) && apply(s, &s->trial, &c->moves.list[i]))
            SL_TRY(step_to(c, 1 - 1e-9, &gone));
        since = gone ? 0 : since + 1;
    }
    return SL_OK;
}

/* Samples a kind of change first, then a change of this kind: otherwise the many positions of fetches would dominate. */
static const sl_move *random_move(sl_local *c)
{
    int kind;
    do
        kind = (int) random_below(c, MOVE_KINDS);
    while (c->first_move[kind] == c->first_move[kind + 1]);
    uint32_t count = (uint32_t) (c->first_move[kind + 1] - c->first_move[kind]);
    return &c->moves.list[c->first_move[kind] + (int32_t) random_below(c, count)];
}

/* A random walk that accepts small losses at first and smaller ones later. It always accepts equal times, since a change
 * of layout or order often pays only with the next change. */
static sl_status wander(sl_local *c, int32_t length)
{
    sl_search *s = c->search;
    for (int32_t i = 0; i < length && !sl_search_over(s); i++) {
        double warmth = 0.15 * (1 - (double) i / length);
        bool changed = false, gone;
        sl_choice_copy(s->a, &s->trial, &c->now);
        for (uint32_t k = 1 + random_below(c, 3); k > 0; k--) {
            const sl_move *move = random_move(c);
            changed = (!pointless(c, move) && apply(s, &s->trial, move)) || changed;
        }
        if (changed)
            SL_TRY(step_to(c, 1 + warmth * random_below(c, 1000) / 1000, &gone));
    }
    return SL_OK;
}

/* ---- where walks start ----------------------------------------------------------------------------------------- */

/* Stores the walk's current choice in a pool slot if it is faster than the slot's. */
static void remember(sl_local *c, int slot)
{
    if (c->pool_s[slot] <= c->now_s)
        return;
    sl_choice_copy(c->search->a, &c->pool[slot], &c->now);
    c->pool_s[slot] = c->now_s;
}

/* For one set of placements, the best of three simple choices, improved a little, becomes a starting point. */
static sl_status try_placements(sl_local *c, const int32_t *persistent, int32_t n, uint32_t set)
{
    sl_search *s = c->search;
    c->now_s = INFINITY;
    for (int gap = SL_GAP_KEEP; gap <= SL_GAP_DROP; gap++) {
        sl_choice_copy(s->a, &s->trial, &s->best);
        s->trial.on_demand = false;
        for (int32_t i = 0; i < n; i++)
            s->trial.placement[persistent[i]] = set >> i & 1 ? SL_TIER_DEVICE : SL_TIER_HOST;
        for (int32_t e = 0; e < s->a->n_entries; e++)
            s->trial.gap[e] = gap == SL_GAP_DROP && !s->a->entries[e].can_drop ? SL_GAP_KEEP : (uint8_t) gap;
        for (int settle = 0; settle < 3 && !sl_search_over(s); settle++) {
            bool gone;
            SL_TRY(step_to(c, 1, &gone));
            if (!gone)
                break;
            memcpy(s->trial.gap, s->actual, (size_t) s->a->n_entries);
        }
    }
    if (c->now_s == INFINITY)
        return SL_OK;
    SL_TRY(climb_singly(c));
    remember(c, (int) set);
    return SL_OK;
}

static sl_status fill_pool(sl_local *c)
{
    sl_search *s = c->search;
    const sl_program *p = s->a->program;
    int32_t persistent[MAX_PLACED], n = 0;
    for (int32_t o = 0; o < p->n_objects && n <= MAX_PLACED; o++)
        if (p->objects[o].persistent) {
            if (n < MAX_PLACED)
                persistent[n] = o;
            n++;
        }
    for (int slot = 0; slot < POOL; slot++)
        c->pool_s[slot] = INFINITY;
    if (n <= MAX_PLACED && !s->fixed)
        for (uint32_t set = 0; set < 1u << n && !sl_search_over(s); set++)
            SL_TRY(try_placements(c, persistent, n, set));
    stand_on(c, &s->best, s->best_s);
    remember(c, POOL - 1);
    return SL_OK;
}

static sl_status climb(sl_local *c)
{
    sl_search *s = c->search;
    SL_TRY(list_moves(c));
    if (!c->moves.count)
        return SL_OK;
    SL_TRY(fill_pool(c));
    stand_on(c, &s->best, s->best_s);
    SL_TRY(climb_singly(c));
    remember(c, POOL - 1);
    while (!sl_search_over(s)) { /* from the better of two slots, or from the best */
        int slot = (int) random_below(c, POOL), other = (int) random_below(c, POOL);
        slot = c->pool_s[other] < c->pool_s[slot] ? other : slot;
        slot = c->pool_s[slot] == INFINITY ? POOL - 1 : slot;
        stand_on(c, &c->pool[slot], c->pool_s[slot]);
        SL_TRY(wander(c, WALK));
        remember(c, slot);
        if (c->now_s < s->best_s * 1.03)
            SL_TRY(climb_singly(c));
        remember(c, slot);
    }
    return SL_OK;
}

sl_status sl_search_local(sl_search *s)
{
    sl_local c = {.search = s, .random = 1};
    sl_status status = sl_choice_new(s->a, &c.now);
    if (status == SL_OK)
        status = sl_alloc(&c.touched, s->a->n_entries + 1, 1);
    for (int slot = 0; slot < POOL && status == SL_OK; slot++)
        status = sl_choice_new(s->a, &c.pool[slot]);
    if (status == SL_OK)
        status = climb(&c);
    for (int slot = 0; slot < POOL; slot++)
        sl_choice_free(&c.pool[slot]);
    sl_choice_free(&c.now);
    sl_free(c.moves.list);
    sl_free(c.touched);
    return status;
}
