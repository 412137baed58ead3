#include "report/curves.h"

#include <math.h>

double sl_smoothing_window(int64_t steps)
{
    return fmax((double) steps / 50, 4);
}

void sl_smooth(const double *values, int64_t n, double window, double *smooth)
{
    double keep = 1 - 1 / window, mean = 0, weight = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(values[i])) {
            mean = keep * mean + (1 - keep) * values[i];
            weight = keep * weight + (1 - keep);
        }
        smooth[i] = weight > 0 ? mean / weight : (double) NAN;
    }
}

sl_status sl_curves_of(const sl_run_log *log, sl_curves *c)
{
    double *memory;
    int64_t n = log->n_steps, n_val = log->n_validations;
    SL_TRY(sl_alloc(&memory, 7 * n + 2 * n_val + 1, sizeof *memory));
    *c = (sl_curves){.step = memory,
                     .loss = memory + n,
                     .smooth_loss = memory + 2 * n,
                     .norm = memory + 3 * n,
                     .smooth_norm = memory + 4 * n,
                     .rate = memory + 5 * n,
                     .speed = memory + 6 * n,
                     .val_step = memory + 7 * n,
                     .val_loss = memory + 7 * n + n_val,
                     .n = n,
                     .n_val = n_val,
                     .window = sl_smoothing_window(n),
                     .memory = memory};
    for (int64_t i = 0; i < n; i++) {
        const sl_log_step *s = &log->steps[i];
        c->step[i] = (double) s->step;
        c->loss[i] = s->loss;
        c->norm[i] = s->grad_norm;
        c->rate[i] = s->learning_rate;
        c->speed[i] = s->tokens_per_s;
    }
    sl_smooth(c->loss, n, c->window, c->smooth_loss);
    sl_smooth(c->norm, n, c->window, c->smooth_norm);
    for (int64_t i = 0; i < n_val; i++) {
        c->val_step[i] = (double) log->validations[i].step;
        c->val_loss[i] = log->validations[i].loss;
    }
    return SL_OK;
}

bool sl_curve_is_known(const double *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (isfinite(values[i]))
            return true;
    return false;
}

void sl_curves_free(sl_curves *c)
{
    sl_free(c->memory);
    *c = (sl_curves){.n = 0};
}
