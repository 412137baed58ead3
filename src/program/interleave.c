/*
 * A round alone uses each link only half of the time: activations leave in the forward and return in the backward, and what the idle
 * links could carry is recomputed instead. Therefore the backward of a round and the forward of the next are interleaved, block by
 * block:
 *
 *   round 0   F0 F1 F2 F3 | B3    B2    B1    B0
 *   round 1               |    F0    F1    F2    F3 | B3    B2    B1    B0
 *   round 2                                         |    F0    F1    F2    F3 | B3 B2 B1 B0
 *
 * Activations of one round are released while those of the next are written, so their sum never exceeds those of one round. At
 * the ends the top blocks' weights serve the end of a forward and the start of its backward, the bottom blocks' the end of a
 * backward and the start of a forward; in the middle one copy serves both directions.
 */
#include "program/interleave.h"

#include <string.h>

/* End of the piece that begins at `task`: one block of one pass, all chunks, updates included. */
static int32_t piece_end(const sl_program *p, int32_t task, int32_t end)
{
    const sl_task *first = &p->tasks[task];
    int32_t t = task + 1;
    while (t < end && (p->tasks[t].phase == SL_PHASE_OPTIMIZER ||
                       (p->tasks[t].block == first->block && p->tasks[t].phase == first->phase)))
        t++;
    return t;
}

static int32_t count_pieces(const sl_program *p, int32_t begin, int32_t end)
{
    int32_t count = 0;
    for (int32_t t = begin; t < end; t = piece_end(p, t, end))
        count++;
    return count;
}

static int32_t emit(int32_t *order, int32_t n, int32_t begin, int32_t end)
{
    for (int32_t t = begin; t < end; t++)
        order[n++] = t;
    return n;
}

/* Interleaves one backward [b, b_end) with the next forward [f, f_end): each piece of one is followed by its share of the other. */
static int32_t merge(const sl_program *p, int32_t *order, int32_t n, int32_t b, int32_t b_end, int32_t f, int32_t f_end)
{
    int64_t backward = count_pieces(p, b, b_end), forward = count_pieces(p, f, f_end), done = 0;
    for (int64_t i = 1; i <= backward; i++) {
        int32_t end = piece_end(p, b, b_end);
        n = emit(order, n, b, end);
        b = end;
        for (; done < i * forward / backward; done++) {
            end = piece_end(p, f, f_end);
            n = emit(order, n, f, end);
            f = end;
        }
    }
    return n;
}

/* Where each round's forward and backward begin; false: not all rounds have both, forward first. */
static bool find_rounds(const sl_program *p, int32_t (*begin)[2])
{
    int32_t round = -1;
    bool backward = true;
    for (int32_t t = 0; t < p->n_tasks; t++) {
        if (sl_task_round(p, t) != round) {
            if (!backward || sl_task_round(p, t) != round + 1 || p->tasks[t].phase != SL_PHASE_FORWARD)
                return false;
            begin[++round][0] = t;
            backward = false;
        } else if (!backward && p->tasks[t].phase != SL_PHASE_FORWARD) {
            begin[round][1] = t;
            backward = true;
        }
    }
    begin[p->n_rounds][0] = p->n_tasks;
    return backward && round == p->n_rounds - 1;
}

static void apply(sl_program *p, const int32_t *order, sl_task *tasks, int32_t *place)
{
    for (int32_t t = 0; t < p->n_tasks; t++) {
        tasks[t] = p->tasks[order[t]];
        place[order[t]] = t;
    }
    memcpy(p->tasks, tasks, (size_t) p->n_tasks * sizeof *tasks);
    for (int32_t o = 0; o < p->n_objects; o++)
        if (p->objects[o].producer >= 0)
            p->objects[o].producer = place[p->objects[o].producer];
    for (int32_t k = 0; k < p->n_signatures; k++)
        p->signatures[k].example = place[p->signatures[k].example];
}

sl_status sl_interleave(sl_program *p, bool *changed)
{
    int32_t(*begin)[2] = NULL, *order = NULL, *place = NULL;
    sl_task *tasks = NULL;
    *changed = false;
    if (p->n_rounds < 2 || p->config.forward_only)
        return SL_OK;
    sl_status status;
    SL_TRY_GOTO(sl_alloc(&begin, p->n_rounds + 1, sizeof *begin), end);
    SL_TRY_GOTO(sl_alloc(&order, p->n_tasks, sizeof *order), end);
    SL_TRY_GOTO(sl_alloc(&place, p->n_tasks, sizeof *place), end);
    SL_TRY_GOTO(sl_alloc(&tasks, p->n_tasks, sizeof *tasks), end);
    if (find_rounds(p, begin)) {
        int32_t n = emit(order, 0, begin[0][0], begin[0][1]), r = 0;
        for (; r + 1 < p->n_rounds; r++)
            n = merge(p, order, n, begin[r][1], begin[r + 1][0], begin[r + 1][0], begin[r + 1][1]);
        n = emit(order, n, begin[r][1], begin[r + 1][0]);
        SL_ASSERT(n == p->n_tasks);
        apply(p, order, tasks, place);
        *changed = true;
    }
    status = SL_OK;
end:
    sl_free(begin);
    sl_free(order);
    sl_free(place);
    sl_free(tasks);
    return status;
}
