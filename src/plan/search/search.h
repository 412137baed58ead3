/* The search's state, shared by its parts: search.c (what is tried, in which order), choice.c (simple choices),
 * feasible.c (feasibility and the smallest budgets), evaluate.c (time of a choice), local_search.c (small changes) and stall_repair.c
 * (copies that cause stalls). */
#ifndef SL_PLAN_SEARCH_H
#define SL_PLAN_SEARCH_H

#include "plan/internal.h"

/* Shares of bytes and link time that choices by prices of a large step aim for: how many there are, and how many are
 * tried before it is known whether the step's rounds are worth more. And how many choices for a part of a step are
 * tried on all of it. */
enum { SL_SEARCH_VARIANTS = 6, SL_SEARCH_QUICK = 2, SL_SEARCH_SHORTLIST = 3 };

typedef struct sl_search {
    const sl_analysis *a;
    const sl_fixed_placements *fixed;
    sl_sweep *sweep;
    size_t budget[SL_TIER_COUNT], used[SL_TIER_COUNT]; /* used: by the plan that showed that it fits */
    sl_choice best, trial;
    uint8_t *actual; /* by entry: the resulting gaps of the last trial */
    int32_t *like;  /* by task: the task whose choices it repeats, where the program represents a larger one; or NULL */
    int32_t repeat; /* how often the larger one repeats its middle round */
    sl_plan *plan;  /* of the best, where it is kept */
    sl_choice shortlist[SL_SEARCH_SHORTLIST]; /* the best of a program that stands for a larger one, fastest first */
    double shortlist_s[SL_SEARCH_SHORTLIST];
    int shortlist_origin[SL_SEARCH_SHORTLIST]; /* one choice of each origin */
    int n_shortlist, origin;
    bool found;
    bool forced;                         /* the best did not fit as chosen */
    bool settled;                        /* nothing can be faster but updates elsewhere */
    bool small;                          /* evaluations are cheap: many trials */
    bool paced;                          /* choices that are slower than the best are abandoned early */
    bool quick;                          /* no small changes: another program may be better */
    int first_variant, end_variant;      /* of the shares that prices of a large step aim for */
    double best_s, deadline_s, enough_s; /* enough: not worth improving */
    double pass_s,
        resident_s; /* the best of the choices by prices so far; of those with everything resident on the device */
    double rival_s; /* of another program; 0: none */
    double bound_s; /* no plan is faster */
    int64_t evaluated, max_evaluations;
} sl_search;

/* ---- search.c ---- */
sl_status sl_search_create(const sl_analysis *analysis, const sl_fixed_placements *fixed,
                           const size_t budget[SL_TIER_COUNT], sl_search **search);
void sl_search_destroy(sl_search *search);
/* Makes `best` better, within the bounds on evaluations and time. */
sl_status sl_search_improve(sl_search *search);
/* For large steps: continues with what was not tried yet. */
sl_status sl_search_refine(sl_search *search, bool *better);

/* ---- feasible.c ---- */
/* The feasibility check, used by sl_plan_create and sl_plan_minimum. On success `best` is a feasible choice. */
sl_status sl_search_feasible(sl_search *search, bool *feasible);
/* The smallest budget of `tier` that the feasibility check accepts, the other as given; 0: none. */
sl_status sl_search_minimum(sl_search *search, sl_tier tier, size_t *bytes);

/* ---- evaluate.c ---- */
bool sl_search_over(const sl_search *search); /* whether to stop */
double sl_search_clock_s(void);
/* Evaluates `trial`, which becomes `best` if it is faster. */
sl_status sl_search_consider(sl_search *search, sl_outcome *outcome);
/* The same, up to `times` times, each with the resulting gaps of the previous trial as its choice. */
sl_status sl_search_settle(sl_search *search, int times);
/* Runs `best` and returns it. */
sl_status sl_search_plan(sl_search *search, sl_plan **plan);

/* ---- choice.c ---- */
sl_status sl_choice_new(const sl_analysis *analysis, sl_choice *choice);
void sl_choice_free(sl_choice *choice);
void sl_choice_copy(const sl_analysis *analysis, sl_choice *to, const sl_choice *from);
/* All gaps alike, as far as they can be. */
typedef enum sl_extreme {
    SL_EXTREME_EVICT,
    SL_EXTREME_DROP_OR_EVICT,
    SL_EXTREME_KEEP,
    SL_EXTREME_DROP_OR_KEEP,
    SL_EXTREME_COUNT
} sl_extreme;
void sl_search_set_gaps(const sl_search *search, sl_choice *choice, sl_extreme extreme);
void sl_search_set_updates(const sl_search *search, sl_choice *choice, bool on_host);
/* At most `device_bytes` of persistent objects live on the device, the rest in host memory. */
void sl_search_set_placements(const sl_search *search, sl_choice *choice, size_t device_bytes);
/* Updates, and placements by a level, from none on the device to all that fit. False: not worth a trial. */
enum { SL_PLACEMENT_LEVELS = 4 };
bool sl_search_set_level(const sl_search *search, sl_choice *choice, bool on_host, int level);
size_t sl_search_largest_need(const sl_search *search, const sl_choice *choice); /* device bytes of a task at once */
size_t sl_search_persistent_bytes(const sl_search *search);

/* ---- local_search.c ---- */
/* Changes to `best`, one or two at a time. */
sl_status sl_search_local(sl_search *search);

/* ---- stall_repair.c ---- */
/* Drops evicted gaps that cause stalls in a simulated list; returns how many. */
int32_t sl_stall_repair(const sl_analysis *analysis, const sl_action *actions, int32_t n_actions, const int32_t *deps,
                        uint8_t *gap);

#endif
