#include "bench/profile.h"

#include <stdlib.h>

static void add_step(const sl_trial *t, sl_profile *p)
{
    const sl_span *spans = sl_engine_spans(t->engine);
    double end = 0;
    for (int32_t i = 0; i < t->plan->n_actions; i++) {
        const sl_action *action = &t->plan->actions[i];
        double seconds = spans[i].end - spans[i].start;
        int row = action->stream == SL_STREAM_IN ? SL_PROFILE_COPY_IN : SL_PROFILE_COPY_OUT;
        if (action->kind == SL_ACTION_TASK) {
            const sl_task *task = &t->program->tasks[action->task];
            row = (int) task->op;
            p->phase_s[task->phase] += seconds;
        }
        p->rows[row].calls++;
        p->rows[row].self_s += seconds;
        p->busy_s += seconds;
        p->compute_s += action->stream == SL_STREAM_COMPUTE ? seconds : 0;
        end = SL_MAX(end, spans[i].end);
    }
    p->end_s += end;
}

sl_status sl_profile_run(sl_trial *t, int64_t steps, sl_profile *p)
{
    bool spans = t->watch.hide_spans, replay = t->watch.hide_replay;
    sl_status status = SL_OK;
    *p = (sl_profile){.steps = steps};
    t->watch.hide_spans = false;
    t->watch.hide_replay = true;
    for (int64_t i = 0; i < steps && status == SL_OK; i++) {
        double seconds = 0;
        status = sl_trial_step(t, &seconds);
        p->wall_s += seconds;
        if (status == SL_OK)
            add_step(t, p);
    }
    t->watch.hide_spans = spans;
    t->watch.hide_replay = replay;
    double n = (double) steps;
    for (int r = 0; r < SL_PROFILE_ROWS; r++) {
        p->rows[r].calls /= steps;
        p->rows[r].self_s /= n;
    }
    for (int phase = 0; phase < 3; phase++)
        p->phase_s[phase] /= n;
    p->busy_s /= n, p->compute_s /= n, p->wall_s /= n, p->end_s /= n;
    return status;
}

double sl_profile_matmul_share(const sl_profile *p)
{
    double seconds = 0;
    for (int op = 0; op < SL_OP_COUNT; op++)
        if (sl_op((sl_op_id) op)->category == SL_CAT_DOT_PRODUCT)
            seconds += p->rows[op].self_s;
    return p->busy_s > 0 ? seconds / p->busy_s : 0;
}

static const char *category_of(int row)
{
    return row >= SL_OP_COUNT ? "copy" : sl_category_name(sl_op((sl_op_id) row)->category);
}

static const char *name_of(int row)
{
    return row == SL_PROFILE_COPY_IN    ? "copy in"
           : row == SL_PROFILE_COPY_OUT ? "copy out"
                                        : sl_op((sl_op_id) row)->name;
}

/* A phase's total is its ops'; the step's is the wall clock, and its self time what no op accounts for. */
void sl_profile_table(const sl_profile *p, const char *name, const char *title, sl_results *results)
{
    sl_table *t = sl_results_table(results, name, title,
                                   "name category calls self_ms:ms.3 total_ms:ms.3 average_us:us.1 share_percent:%.2*");
    int order[SL_PROFILE_ROWS], count = 0;
    for (int r = 0; r < SL_PROFILE_ROWS; r++)
        if (p->rows[r].calls)
            order[count++] = r;
    for (int i = 1; i < count; i++) /* longest first */
        for (int j = i; j > 0 && p->rows[order[j]].self_s > p->rows[order[j - 1]].self_s; j--) {
            int swap = order[j];
            order[j] = order[j - 1], order[j - 1] = swap;
        }
    for (int i = 0; i < count; i++) {
        const sl_profile_row *row = &p->rows[order[i]];
        SL_ROW(t, name_of(order[i]), category_of(order[i]), row->calls, 1e3 * row->self_s, 1e3 * row->self_s,
               1e6 * row->self_s / (double) row->calls, 100 * row->self_s / p->busy_s);
    }
    for (int phase = 0; phase < 3; phase++)
        if (p->phase_s[phase] > 0)
            SL_ROW(t, sl_phase_name((sl_phase) phase), "phase", 1, 0.0, 1e3 * p->phase_s[phase], sl_cell_none(),
                   sl_cell_none());
    SL_ROW(t, "step", "all", 1, 1e3 * SL_MAX(0, p->wall_s - p->compute_s), 1e3 * p->wall_s, sl_cell_none(),
           sl_cell_none());
}
