/*
 * Which task of a short program stands for which of a long one. Rounds are walked side by side: the first by the first, the last by
 * the last, all others by the short program's second. Within a round tasks come in the same order; a last round with fewer
 * chunks lacks some, so the short one's pointer skips what does not match.
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

bool sl_unroll_match(const sl_program *shorter, const sl_program *longer, int32_t *match)
{
    if (shorter->n_rounds != 3 || longer->n_rounds < 3)
        return false;
    int32_t begin[4] = {0, 0, 0, shorter->n_tasks};
    for (int32_t t = shorter->n_tasks - 1; t >= 0; t--)
        begin[round_of(shorter, t)] = t;
    int32_t at = 0, current = -1;
    for (int32_t t = 0; t < longer->n_tasks; t++) {
        int32_t round = round_of(longer, t), like = round == 0 ? 0 : round == longer->n_rounds - 1 ? 2 : 1;
        if (round != current) {
            current = round;
            at = begin[like];
        }
        while (at < begin[like + 1] && !same_place(shorter, &shorter->tasks[at], longer, &longer->tasks[t]))
            at++;
        if (at == begin[like + 1])
            return false;
        match[t] = at++;
    }
    return true;
}
