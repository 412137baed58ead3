/* One way to cut a step into rounds: see candidate.c. */
#ifndef SL_PLAN_CANDIDATE_H
#define SL_PLAN_CANDIDATE_H

#include "plan/search/rounds.h"
#include "plan/search/unroll.h"

/* The step to be cut. */
typedef struct sl_step {
    const sl_program *base; /* in whatever form */
    sl_costs_fn costs_of;
    void *costs_context;
    sl_plan_config config;
    int64_t chunks;
    size_t data_bytes; /* of a chunk */
    bool large;        /* many tasks */
} sl_step;

typedef struct sl_candidate {
    int64_t chunks;      /* per round */
    sl_program *program; /* of the whole step, or cut to four rounds */
    sl_costs *costs;
    sl_plan *plan; /* NULL: not tried or does not fit */
    sl_guide *guide;
    double step_s; /* of the whole step */
    bool tried, cut;
    bool interleaved, refined;
    bool rematerialize; /* see sl_program_config */
} sl_candidate;

/* Whether there are enough rounds for four to represent all, if the step is large. */
bool sl_candidate_has_many(const sl_step *step, const sl_candidate *candidate);
/* The step's program with the candidate's rounds, cut to four of them if `cut`, and its costs. */
sl_status sl_candidate_make(const sl_step *step, sl_candidate *candidate, bool cut);
void sl_candidate_forget(sl_candidate *candidate); /* program, costs and plan; not the predicted time */
/* For large steps only: for others, planning twice as much takes longer than it saves. */
bool sl_candidate_may_interleave(const sl_step *step, const sl_candidate *candidate);
/* Four rounds are evaluated as the whole step would be: its configuration, and the host bytes of data that they lack. */
sl_plan_config sl_candidate_config(const sl_step *step, const sl_candidate *candidate);
size_t sl_candidate_missing_bytes(const sl_step *step, const sl_candidate *candidate);

/* Plans it, if that was not tried yet; one that does not fit is no error. */
sl_status sl_candidate_try(const sl_step *step, sl_candidate *candidate, bool quick, double rival_s);
/* Continues the search, for a plan of four rounds. */
sl_status sl_candidate_refine(const sl_step *step, sl_candidate *candidate);
/* From four rounds to the whole step: by their choices or, where these do not transfer, by a separate search if that is
 * better. */
sl_status sl_candidate_unroll(const sl_step *step, sl_candidate *candidate);

/* Faster; among equals (within the accuracy of four rounds) the one that uses the links less, then fewer rounds. */
bool sl_candidate_better(const sl_step *step, const sl_candidate *a, const sl_candidate *b);
double sl_candidate_bound_s(const sl_step *step,
                            const sl_candidate *candidate); /* no plan of the whole step is faster */
bool sl_candidate_nothing_lost(const sl_step *step,
                               const sl_candidate *candidate); /* too close to it to search further */

#endif
