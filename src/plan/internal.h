/*
 * Inside the planner. The pieces, in the order a plan passes through them:
 *
 *   rounds.c    ways to cut the step into rounds (candidate.c, interleave.c, unroll.c, guide.c)
 *   create.c    from the program of one of them and its budgets to a plan, by way of:
 *   analyze.c   the program as arrays: who uses what, which gaps between uses exist, what may be recomputed
 *   search.c    picks choices: per gap keep/evict/drop, per persistent object its placement, per update host or device
 *               (choice.c, feasible.c, evaluate.c, local_search.c, stall_repair.c)
 *   lagrangian.c    good choices from Lagrangian prices of bytes and links (gaps.c, demand.c, knapsack.c)
 *   sweep.c     converts a choice into allocations, copies, recomputations and dependencies (walk.c, task.c, prefetch.c,
 *               eviction.c, moves.c, issue.c)
 *   arena.c     one tier's addresses during that walk
 *   compact.c   removes addresses that no allocation of the finished plan uses
 *   timeline.c  times a list of actions: streams in order, dependencies, links that slow each other
 *   waits.c     what the compute stream waited for
 *   check.c     proves a finished plan, sharing no code with the above
 *
 * A "gap" is the time between two consecutive uses of an object, named by the entry (use) it follows.
 */
#ifndef SL_PLAN_INTERNAL_H
#define SL_PLAN_INTERNAL_H

#include "plan/plan.h"

/* What a task does with an object; operands that share an object are one entry. */
enum {
    SL_ENTRY_READ = 1, /* the content is read, or a part of it must survive a partial write */
    SL_ENTRY_WRITE = 2,
    SL_ENTRY_FRESH = 4, /* written without needing what was there before */
};

typedef struct sl_entry {
    int32_t task, object;
    int32_t next;       /* entry of the same object's next use; -1: none */
    int32_t next_write; /* task of the next use that writes; n_tasks: none */
    uint8_t flags;
    uint8_t can_drop;   /* the content after this use can be recomputed for the next one */
    uint8_t drops_near; /* and only from what the task's piece of backward has anyway */
} sl_entry;

typedef struct sl_analysis {
    sl_region *region;
    const sl_program *program;
    const sl_costs *costs;
    sl_entry *entries;
    int32_t n_entries;
    int32_t *first;                      /* by task, n_tasks + 1: its entries */
    int32_t *object_first, *object_last; /* entries by object; -1: never used */
    size_t *bytes;                       /* by object, rounded up to SL_ALIGN */
    uint8_t *can_clone;                  /* by task */
    uint8_t *disjoint;                   /* by object: no byte is written twice in a step */
    size_t *need;                        /* by task: device bytes at once, workspace included */
    int32_t *operand_entry;              /* by task and operand (SL_MAX_IN + SL_MAX_OUT): entry, -1 absent */
} sl_analysis;

sl_status sl_analysis_create(const sl_program *program, const sl_costs *costs, sl_analysis **analysis);
void sl_analysis_destroy(sl_analysis *analysis);
/* Whether the piece of backward (block, chunk, phase) that task `at` belongs to uses the object, from there on. */
bool sl_analysis_used_near(const sl_analysis *analysis, int32_t object, int32_t at);

typedef enum sl_gap { SL_GAP_KEEP, SL_GAP_EVICT, SL_GAP_DROP } sl_gap;

/* How allocations are laid out: in the smallest free range that fits instead of the outermost; all at low addresses instead of
 * short-lived ones at high addresses. SL_FIT_FORESEE, for large steps: beside neighbours that end at about the same time, and
 * prefetches take only space that no task needs until their use. */
enum { SL_FIT_BEST = 1, SL_FIT_LOW = 2, SL_FIT_FORESEE = 4 };

typedef enum sl_side { SL_SIDE_AUTO, SL_SIDE_LOW, SL_SIDE_HIGH, SL_SIDE_COUNT } sl_side;

/* A candidate's decisions. */
typedef struct sl_choice {
    uint8_t *gap;       /* by entry: sl_gap */
    uint8_t *placement; /* by object: sl_tier of persistent objects */
    uint8_t *on_host;   /* by task, where host_allowed */
    int32_t *lead;      /* by entry: task before which its fetch is issued; -1: just in time */
    uint8_t *side;      /* by entry: at which end of the arena its allocation is placed (sl_side) */
    double slack;       /* prefetches aim to end this share of their own time early */
    int fit;            /* layout variant: SL_FIT_ flags */
    bool on_demand;     /* no prefetch: slow, with the smallest memory */
    bool as_it_is;      /* infeasible if it needs more bytes than there are: nothing is evicted to make it fit */
} sl_choice;

/* ---- one tier's addresses -------------------------------------------------------------------------------------- */

/* Address space as a sequence of segments, each allocated or free. A free segment remembers its last users (`last`, one
 * action per stream) and when, by the sweep's clock, they end. Free neighbours are merged after both have ended. */
typedef struct sl_segment {
    size_t address, bytes;
    double ready_s;
    int32_t place; /* -1: free */
    int32_t until; /* task up to which the allocation is expected to live */
    int32_t last[SL_STREAM_COUNT];
} sl_segment;

typedef struct sl_arena {
    sl_segment *segments;
    int32_t count, capacity;
    size_t peak;
    size_t fence; /* no free segment spans it: only short-lived allocations lie above */
} sl_arena;

sl_status sl_arena_reset(sl_arena *arena, size_t budget, size_t fence);
void sl_arena_free(sl_arena *arena);
/* Finds `bytes` that are free and ready by `ready_s`; low: towards address 0. -1: none; else the first segment of
 * the run. */
int32_t sl_arena_find(const sl_arena *arena, size_t bytes, double ready_s, size_t end, bool low, bool best);
/* The same beside a neighbour that ends at about the task `until`; sets `low`. The low end of the arena counts as allocated
 * forever, the high end as free. */
int32_t sl_arena_find_beside(const sl_arena *arena, size_t bytes, double ready_s, size_t end, int32_t now,
                             int32_t until, bool *low);
double sl_arena_leaving(const sl_arena *arena, double now_s); /* bytes free but not ready yet */
size_t sl_arena_largest(const sl_arena *arena);               /* free run, ready or not */
/* Takes [segments[at].address (or the run's end when !low), bytes) out of a free run for `place`; fills last[] with the
 * latest former users. Returns the address. */
sl_status sl_arena_take(sl_arena *arena, int32_t at, size_t bytes, bool low, int32_t place, int32_t until,
                        int32_t last[SL_STREAM_COUNT], size_t *address);
void sl_arena_release(sl_arena *arena, size_t address, const int32_t last[SL_STREAM_COUNT], double ready_s,
                      double now_s);
int32_t sl_arena_index(const sl_arena *arena, size_t address);

/* ---- the sweep ------------------------------------------------------------------------------------------------- */

typedef struct sl_sweep sl_sweep;

typedef struct sl_outcome {
    bool feasible;
    bool best;     /* the fastest so far (set by the search) */
    bool forced;   /* gaps had to be changed; `actual` holds them */
    bool behind;   /* abandoned since another is faster */
    double step_s; /* simulated; of the larger step where the program stands for one */
    size_t peak[SL_TIER_COUNT];
} sl_outcome;

/* Placements given by another plan that shares the device. */
typedef struct sl_fixed_placements {
    size_t *address; /* by object */
    uint8_t *tier;
    size_t end[SL_TIER_COUNT]; /* below: all that must survive, objects of the other program included */
} sl_fixed_placements;

sl_status sl_sweep_create(const sl_analysis *analysis, const sl_fixed_placements *fixed, sl_sweep **sweep);
void sl_sweep_destroy(sl_sweep *sweep);
/* Builds and times the schedule of a choice. With `actual`, the resulting gaps (by entry). */
sl_status sl_sweep_run(sl_sweep *sweep, const sl_choice *choice, const size_t budget[SL_TIER_COUNT], uint8_t *actual,
                       sl_outcome *outcome);
/* By entry, for the last run: whether its side and its lead were used. Changing others has no effect. */
enum { SL_TOUCHED_SIDE = 1, SL_TOUCHED_LEAD = 2 };
const uint8_t *sl_sweep_touched(const sl_sweep *sweep);
/* From now on runs that are slower than the last one are abandoned and count as infeasible. */
void sl_sweep_set_pace(sl_sweep *sweep);
double sl_sweep_round_end_s(const sl_sweep *sweep, int32_t round); /* in the last run */
/* The last run as a plan. */
sl_status sl_sweep_export(const sl_sweep *sweep, sl_plan **plan);
/* Moves the plan's allocations down over unused addresses from `fixed` on (compact.c). */
sl_status sl_plan_compact(sl_plan *plan, const size_t fixed[SL_TIER_COUNT]);

/* ---- timing ---------------------------------------------------------------------------------------------------- */

/* Fills start_s and end_s of the actions; returns the end of the last. */
double sl_timeline_run(const sl_program *program, const sl_costs *costs, sl_action *actions, int32_t n_actions,
                       const int32_t *deps);
/* When the device has done the last task of a round. */
double sl_timeline_round_end_s(const sl_program *program, const sl_action *actions, int32_t n_actions, int32_t round);

#endif
