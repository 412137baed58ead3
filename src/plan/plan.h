/*
 * The plan: for every object when it is resident in which tier and at which address, every copy, every recomputation, and the
 * predicted time of all of it. A plan is a list of actions in issue order. An action runs on one stream, in order with the
 * others of that stream, after the actions it names as dependencies: exactly what the engine issues and the simulator times,
 * so a prediction and a measurement are the same list with other numbers.
 *
 *   allocation   an object's bytes in one tier at one address, from the action that fills it to the last that uses it. An object can
 *            have many allocations over a step, several at a time (a clean copy stays valid in host memory).
 *   action   TASK (a program task, or the same task again to recompute what was dropped) or COPY between two allocations of an object.
 *
 * Correctness of reuse: an action that fills an allocation depends on the last users of whatever overlapped its bytes before.
 * Persistent objects end a step where they began (`placement`), so every step is the same list.
 */
#ifndef SL_PLAN_PLAN_H
#define SL_PLAN_PLAN_H

#include "cost/cost.h"

typedef struct sl_allocation {
    int32_t object; /* -1: workspace of the one action that uses it */
    sl_tier tier;
    size_t address, bytes; /* offset into the tier's arena, SL_ALIGN aligned */
    int32_t first, last;   /* actions; -1 / n_actions: holds a persistent object or data across the step's boundary */
} sl_allocation;

typedef enum sl_action_kind { SL_ACTION_TASK, SL_ACTION_COPY } sl_action_kind;

typedef struct sl_action {
    sl_action_kind kind;
    sl_stream stream;
    int32_t task;             /* TASK: program task */
    bool recompute;           /* TASK: not the first time */
    int32_t object, from, to; /* COPY: object and allocations */
    int32_t
        first_use; /* TASK: plan->use_allocations[first_use + i]: allocation of in[0..SL_MAX_IN), then out[0..SL_MAX_OUT); -1 absent */
    int32_t workspace;         /* TASK: allocation or -1 */
    int32_t first_dep, n_deps; /* plan->deps: actions of other streams, each before this one in the list */
    double start_s, end_s;     /* predicted */
} sl_action;

/* One line of figures; predictions and measurements share it. */
typedef struct sl_summary {
    double step_s, tokens_per_s, tflops, mfu, hfu;
    size_t peak_bytes[SL_TIER_COUNT], budget_bytes[SL_TIER_COUNT];
    double link_bytes[SL_LINK_COUNT]; /* copied */
    double recompute_fraction;        /* arithmetic recomputed / arithmetic of the program */
    double busy_s[SL_STREAM_COUNT];
    double wait_s[SL_STREAM_COUNT]; /* compute stream idle, by the stream it waited for */
} sl_summary;

typedef enum sl_limit {
    SL_LIMIT_COMPUTE,
    SL_LIMIT_LINK_IN,
    SL_LIMIT_LINK_OUT,
    SL_LIMIT_HOST_COMPUTE,
    SL_LIMIT_DEVICE_BYTES,
    SL_LIMIT_HOST_BYTES
} sl_limit;
const char *sl_limit_name(sl_limit limit);

/* Where a persistent object lives between steps. */
typedef struct sl_plan_placement {
    sl_object_class class;
    int32_t group;
    sl_tier tier;
    size_t address, bytes;
} sl_plan_placement;

typedef struct sl_plan sl_plan;
struct sl_plan {
    sl_region *region; /* owns everything below */
    sl_allocation *allocations;
    sl_action *actions;
    int32_t *deps, *use_allocations;
    int32_t *
        placement; /* by object: the allocation that holds it between steps (persistent, data, results); -1 otherwise */
    sl_plan_placement
        *persistent; /* the persistent objects' placements, by what they hold: for plans that share the memory */
    int32_t n_persistent;
    int32_t n_allocations, n_actions, n_deps, n_use_allocations;
    sl_summary predicted;
    double lower_bound_s; /* no plan for these budgets can be faster: max of compute and of what must cross each link */
    sl_limit limit;       /* what limits the step most */
    double plan_s;        /* time it took */
    int64_t evaluated;    /* candidate schedules simulated */
};

typedef struct sl_plan_config {
    size_t budget[SL_TIER_COUNT];
    double
        time_limit_s; /* of processor time for the search, a safety net; a feasible plan is found regardless. 0 = default */
    int64_t max_evaluations; /* bound that makes the result independent of the machine's speed; 0 = default */
    bool no_advice;          /* refuse without searching the smallest feasible budgets */
    bool quick;              /* short search, to compare programs: no local search for small steps */
    double rival_s; /* step time of another program: large steps that are much slower get a shorter search; 0: none */
    int32_t
        stands_for; /* rounds of a larger step that this program is a part of, its middle rounds repeated: evaluated and
                           searched as that would be; 0: it is the whole step */
    int64_t chunks_per_round; /* sl_plan_best: 0: it chooses */
    size_t workspace_limit;   /* sl_plan_best: of the program */
    const sl_plan *
        placements; /* not NULL: persistent objects keep the placements of that plan (validation beside training); matched by
                              * order among persistent objects of the same group and class */
    sl_tier
        further_tier; /* with `placements`: of persistent objects that it does not have. They lie behind its own, where its
                             * plan has what does not survive a step, so their content does not survive its steps either */
} sl_plan_config;

/* The best plan found within the budgets, or SL_E_DOES_NOT_FIT with the smallest budgets that would work in the message.
 * Deterministic: the same input gives the same plan. */
sl_status sl_plan_create(const sl_program *program, const sl_costs *costs, const sl_plan_config *config,
                         sl_plan **plan);
void sl_plan_destroy(sl_plan *plan);

/* The smallest budget of `tier` for which sl_plan_create succeeds, the other as given (SIZE_MAX: unlimited). 0 and
 * SL_E_DOES_NOT_FIT if none does. Exact: one SL_ALIGN less is refused. */
sl_status sl_plan_minimum(const sl_program *program, const sl_costs *costs, const sl_plan_config *config, sl_tier tier,
                          size_t *bytes);

/* Step time, and what the streams did in it: as measured, one span per action, or (NULL) as predicted. */
void sl_summary_times(const sl_plan *plan, const sl_span *spans, sl_summary *summary);
/* What a plan moves and recomputes, and all arithmetic it does: of a prediction and of a measurement alike. */
void sl_summary_count(const sl_program *program, const sl_plan *plan, sl_summary *summary, double *hardware_flops);
/* Speeds of a summary whose step_s is set; hardware_flops: arithmetic a step does, what is recomputed included. */
void sl_summary_rates(const sl_program *program, double peak_flops, double hardware_flops, sl_summary *summary);
/* A plan's arenas: the end of the highest allocation in each tier. */
void sl_plan_extent(const sl_plan *plan, size_t bytes[SL_TIER_COUNT]);
/* Recomputes the times of a plan's actions under other costs. Fills start_s, end_s and the summary. */
void sl_plan_simulate(const sl_program *program, const sl_costs *costs, sl_plan *plan);
/* Independent of how it was made: no two live allocations overlap, budgets hold, every input is valid where and when it is read,
 * placements are restored, dependencies suffice. SL_E_INTERNAL names the first violation. */
sl_status sl_plan_check(const sl_program *program, const sl_plan *plan, const size_t budget[SL_TIER_COUNT]);

#endif
