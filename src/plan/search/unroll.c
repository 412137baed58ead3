/*
 * Maps tasks of a long program to those of a short one. The first round corresponds to the first, the last to the last,
 * and all others to the short program's second. Within a round tasks come in the same order, whatever lies
 * between them; a last round with fewer chunks lacks some, so what does not match is skipped.
 */
#include "plan/search/unroll.h"

#include <string.h>

static bool same_place(const sl_program *a, const sl_task *x, const sl_program *b, const sl_task *y)
{
    if (x->op != y->op || x->phase != y->phase || x->block != y->block || strcmp(x->name, y->name) != 0)
        return false;
    if (x->chunk < 0 || y->chunk < 0)
        return x->chunk == y->chunk;
    return x->chunk % a->config.chunks_per_round == y->chunk % b->config.chunks_per_round;
}

/* One program's tasks chained by round. */
typedef struct sl_chains {
    int32_t *next, *first;
} sl_chains;

static void free_chains(sl_chains *c)
{
    sl_free(c->next);
    sl_free(c->first);
}

static sl_status chain(const sl_program *p, sl_chains *c)
{
    SL_TRY(sl_alloc(&c->next, p->n_tasks + 1, sizeof *c->next));
    SL_TRY(sl_alloc(&c->first, p->n_rounds + 1, sizeof *c->first));
    memset(c->first, 0xff, (size_t) p->n_rounds * sizeof *c->first);
    for (int32_t t = p->n_tasks - 1; t >= 0; t--) {
        c->next[t] = c->first[sl_task_round(p, t)];
        c->first[sl_task_round(p, t)] = t;
    }
    return SL_OK;
}

static int32_t like_round(const sl_program *longer, int32_t round)
{
    return round == 0 ? 0 : round == longer->n_rounds - 1 ? SL_UNROLL_ROUNDS - 1 : 1;
}

/* at[r]: the short program's first task not matched yet by one of the long one's round r. */
static bool match_tasks(const sl_program *shorter, const sl_program *longer, const sl_chains *chains, int32_t *at,
                        int32_t *match)
{
    for (int32_t r = 0; r < longer->n_rounds; r++)
        at[r] = chains->first[like_round(longer, r)];
    for (int32_t t = 0; t < longer->n_tasks; t++) {
        int32_t *like = &at[sl_task_round(longer, t)];
        while (*like >= 0 && !same_place(shorter, &shorter->tasks[*like], longer, &longer->tasks[t]))
            *like = chains->next[*like];
        if (*like < 0)
            return false;
        match[t] = *like;
        *like = chains->next[*like];
    }
    return true;
}

sl_status sl_unroll_match(const sl_program *shorter, const sl_program *longer, int32_t *match, bool *matches)
{
    sl_chains chains = {0};
    int32_t *at = NULL;
    *matches = false;
    if (shorter->n_rounds != SL_UNROLL_ROUNDS || longer->n_rounds < SL_UNROLL_ROUNDS)
        return SL_OK;
    sl_status status = chain(shorter, &chains);
    if (status == SL_OK)
        status = sl_alloc(&at, longer->n_rounds, sizeof *at);
    if (status == SL_OK)
        *matches = match_tasks(shorter, longer, &chains, at, match);
    sl_free(at);
    free_chains(&chains);
    return status;
}
