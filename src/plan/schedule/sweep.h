/* The sweep's state, shared by its parts: sweep.c (both walks), walk.c (one of them), task.c (one task of it),
 * prefetch.c (fetches ahead), eviction.c (addresses for new places), moves.c (copies, evictions) and issue.c (actions and
 * their order). */
#ifndef SL_PLAN_SWEEP_H
#define SL_PLAN_SWEEP_H

#include "plan/internal.h"

/* An allocation during the walk: sl_allocation and the walk's own state. */
typedef struct sl_residency {
    sl_allocation place;
    int32_t writer;                /* action that gave it its content; -1: had it from the start */
    int32_t last[SL_STREAM_COUNT]; /* last action of each stream that touched it */
    bool permanent;                /* a placement: never released */
} sl_residency;

typedef struct sl_object_state {
    int32_t residency[SL_TIER_COUNT]; /* -1: no bytes there */
    bool valid[SL_TIER_COUNT];        /* the bytes there are the object's content */
    bool defined;                     /* has content somewhere, or had and dropped it */
    bool transient;                   /* on the device for a recomputation only */
    int32_t gap;                      /* entry of the last use; -1: before the first */
    int32_t cursor;                   /* entry of the next use; -1: none */
    int32_t pins;                     /* operand of the task being issued: may not leave */
    int32_t wanted;                   /* operand of a task waiting for recomputations: may leave, may not be dropped */
} sl_object_state;

/* Where the content is: on the device, and in the nearest of the tiers behind it that has it (SL_TIER_COUNT: in none). */
static inline bool sl_state_resident(const sl_object_state *state)
{
    return state->valid[SL_TIER_DEVICE];
}
static inline sl_tier sl_state_backing(const sl_object_state *state)
{
    int tier = SL_TIER_DEVICE + 1;
    while (tier < SL_TIER_COUNT && !state->valid[tier])
        tier++;
    return (sl_tier) tier;
}
static inline bool sl_state_backed(const sl_object_state *state)
{
    return sl_state_backing(state) != SL_TIER_COUNT;
}

typedef struct sl_fetch {
    int32_t object, task; /* for which program task */
    int32_t issue;        /* task before which it should be issued */
    bool clone;           /* for a recomputation before that task */
    double deadline_s, earliest_s;
} sl_fetch;

struct sl_sweep {
    const sl_analysis *a;
    const sl_fixed_placements *fixed; /* NULL: placements are this plan's own */
    const sl_choice *choice;
    size_t budget[SL_TIER_COUNT];
    bool bounded; /* false: dry walk with unlimited memory, to find the fetches and their deadlines */
    uint8_t *actual;
    uint8_t *touched; /* by entry: SL_TOUCHED_ flags of the last run */
    sl_outcome *outcome;
    int32_t task; /* program task being walked */
    sl_object_state *objects;
    double *task_start_s;     /* by program task, in the dry walk */
    double *clock_s, *pace_s; /* by program task, in the bounded walk: of this run, of the one to compete with */
    bool paced;
    double *committed;          /* by program task: device bytes it will see in use, fetches ahead so far included */
    double live;                /* device bytes in use, in the dry walk */
    int32_t *stays;             /* by entry: the use up to which an object made or fetched for it will stay */
    int32_t *next_large;        /* by program task: the next one, itself included, with a large workspace */
    int32_t until;              /* how long the place being made will stay (task) */
    double gone_s;              /* and when it will have left, by the dry walk's clock */
    int32_t *placement;         /* by object: residency; -1 */
    size_t base[SL_TIER_COUNT]; /* bytes of placements below the arenas */
    sl_arena arena[SL_TIER_COUNT];

    sl_residency *residencies;
    sl_action *actions;
    int32_t (*clock)[SL_STREAM_COUNT]; /* by action: latest action of each stream that has ended when it starts */
    int32_t *deps, *use_allocations;
    sl_fetch *fetches;
    int32_t n_residencies, n_actions, n_deps, n_use_allocations, n_fetches;
    int64_t n_clones; /* recomputations of this walk */
    int32_t capacity_residencies, capacity_actions, capacity_deps, capacity_use_places, capacity_fetches;
    int32_t next_fetch;
    sl_fetch *again; /* fetches of objects that were evicted to make space */
    int32_t n_again, capacity_again;
    double *costs; /* by segment, while space is being made */
    int32_t capacity_costs;

    int32_t need[SL_STREAM_COUNT]; /* dependencies of the action being prepared */
    int32_t stream_last[SL_STREAM_COUNT];
    double stream_free_s[SL_STREAM_COUNT];
    double now_s; /* compute stream's clock */
};

/* ---- walk.c ---- */
sl_status sl_sweep_walk(sl_sweep *s);
bool sl_sweep_on_host(const sl_sweep *s, int32_t task);
/* The choice cannot be carried out, for lack of space in a tier: the walk ends. */
void sl_sweep_stuck(sl_sweep *s);

/* ---- task.c ---- */
sl_status sl_sweep_run_task(sl_sweep *s, int32_t task);

/* ---- prefetch.c ---- */
void sl_sweep_note_fetch(sl_sweep *s, int32_t object, bool clone); /* in the dry walk, for the current task */
void sl_sweep_pack_fetches(sl_sweep *s);                           /* after it */
sl_status sl_sweep_note_again(sl_sweep *s, int32_t object);        /* evicted: to be fetched before its next use */
sl_status sl_sweep_fetch_ahead(sl_sweep *s);                       /* what is due and finds space */

/* ---- issue.c ---- */
sl_status sl_sweep_reserve(sl_sweep *s); /* space for one more of everything a single task can add */
/* In the tier's stream, with all operands there. The workspace (a residency; -1: none) is free again afterwards. */
void sl_sweep_issue_task(sl_sweep *s, int32_t task, sl_tier tier, bool clone, int32_t workspace);
/* Between the object's two residencies; the caller updates validity. */
void sl_sweep_issue_copy(sl_sweep *s, int32_t object, sl_tier from, sl_tier to);

/* ---- eviction.c ---- */
/* Space in a tier, for an object or a workspace (-1); on the device, with `force`, others are evicted. *residency -1:
 * there is none. */
sl_status sl_sweep_make_space(sl_sweep *s, int32_t object, size_t bytes, sl_tier tier, bool force, bool low,
                              int32_t *residency);
/* Up to which task an allocation made for the use `entry` will live. */
void sl_sweep_foresee(sl_sweep *s, int32_t entry);
/* The end of the arena for an allocation made for the use `entry`, and (`until`) how long it will live. */
bool sl_sweep_goes_low(sl_sweep *s, int32_t entry);

/* ---- moves.c ---- */
int32_t sl_sweep_new_residency(sl_sweep *s, int32_t object, sl_tier tier, size_t bytes);
void sl_sweep_release(sl_sweep *s, int32_t residency);
void sl_sweep_forget(sl_sweep *s, int32_t object, sl_tier tier);
void sl_sweep_forget_others(sl_sweep *s, int32_t object, sl_tier tier); /* in all tiers but this one */
bool sl_sweep_can_drop(const sl_sweep *s, int32_t object);              /* now, for its next use */
/* Copies the content from the device to a tier, if it is not there. *done false: no space. */
sl_status sl_sweep_write_back(sl_sweep *s, int32_t object, sl_tier tier, bool *done);
/* Removes the object from the device: drops it where that is chosen, possible and cheaper, otherwise evicts it to the
 * host. */
sl_status sl_sweep_evict(sl_sweep *s, int32_t object, bool prefer_drop, bool *done);
sl_status sl_sweep_fetch(sl_sweep *s, int32_t object, bool force, bool *done);
/* Evicts everything; the arena is empty afterwards. */
sl_status sl_sweep_clear(sl_sweep *s, bool *done);

#endif
