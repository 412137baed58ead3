/*
 * Which task of a short program stands for which of a long one. The first round stands for the first, the
 * last for the last, the short program's second for all others. Within a round tasks come in the same order, whatever lies
 * between them; a last round with fewer chunks lacks some, so what does not match is skipped.
 */
#include "plan/unroll.h"

#include <string.h>

static bool same_place(const sl_program *a, const sl_task *x, const sl_program *b, const sl_task *y)
{
    if (x->op != y->op || x->phase != y->phase || x->block != y->block || strcmp(x->name, y->name) != 0)
        return false;
    if (x->chunk < 0 || y->chunk < 0)
        return x->chunk == y->chunk;
    return x->chunk % a->config.chunks_per_round == y->chunk % b->config.chunks_per_round;
}

/* Tasks after the rounds (updates behind the gate) count as the last round's. */
static int32_t round_of(const sl_program *p, int32_t task)
{
    int32_t round = p->tasks[task].round;
    return round < 0 ? p->n_rounds - 1 : round;
}

sl_status sl_unroll_match(const sl_program *shorter, const sl_program *longer, int32_t *match, bool *matches)
{
    *matches = false;
    if (shorter->n_rounds != 3 || longer->n_rounds < 3)
        return SL_OK;
    int32_t *next,
        *at; /* the short program's tasks chained by round; by round of the long one, the first not matched yet */
    int32_t first[3] = {-1, -1, -1};
    SL_TRY(sl_alloc(&next, shorter->n_tasks, sizeof *next));
    sl_status status = sl_alloc(&at, longer->n_rounds, sizeof *at);
    if (status != SL_OK) {
        sl_free(next);
        return status;
    }
    for (int32_t t = shorter->n_tasks - 1; t >= 0; t--) {
        next[t] = first[round_of(shorter, t)];
        first[round_of(shorter, t)] = t;
    }
    for (int32_t r = 0; r < longer->n_rounds; r++)
        at[r] = first[r == 0 ? 0 : r == longer->n_rounds - 1 ? 2 : 1];
    *matches = true;
    for (int32_t t = 0; t < longer->n_tasks && *matches; t++) {
        int32_t *like = &at[round_of(longer, t)];
        while (*like >= 0 && !same_place(shorter, &shorter->tasks[*like], longer, &longer->tasks[t]))
            *like = next[*like];
        *matches = *like >= 0;
        if (*matches) {
            match[t] = *like;
            *like = next[*like];
        }
    }
    sl_free(at);
    sl_free(next);
    return SL_OK;
}
