/* Loss, gradient norm, learning rate and throughput over the steps. Where there are many steps the raw values stand pale behind
 * their moving average. A resume under another budget is marked in all of them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/curves.h"
#include "report/panels.h"
#include "report/sessions.h"

static void draw_chart(sl_text *out, const char *id, const char *title, const char *sub, const char *y_label,
                       const sl_series *series, int n, const sl_session_marks *marks)
{
    sl_panel_lines(out, id, false, title, sub,
                   &(sl_lines){.name = title,
                               .x_label = "step",
                               .x_quantity = SL_WHOLE,
                               .y_label = y_label,
                               .zero_y = strcmp(id, "loss") != 0, /* a loss stays far from 0 */
                               .series = series,
                               .n_series = n,
                               .events = marks->marks,
                               .n_events = marks->n,
                               .events_name = "resumed with another budget"});
}

/* Each step and, where there are many, its moving average in front of it. `sub` gets what is drawn and how it is smoothed. */
static int add_steps(const sl_curves *c, const char *color, const double *values, const double *smooth,
                     const char *what, sl_series *series, char sub[256])
{
    int n = 0;
    char steps[32];
    snprintf(sub, 256, "%s", what);
    sl_series_add(series, &n, &(sl_series){.name = "each step", .color = color, .x = c->step, .y = values, .n = c->n});
    if (c->n < SL_SMOOTHED_FROM)
        return n;
    series[0].style = SL_FAINT;
    sl_series_add(series, &n, &(sl_series){.name = "smoothed", .color = color, .x = c->step, .y = smooth, .n = c->n});
    snprintf(sub, 256, "%s The bold line is smoothed: an exponential moving average over about %s steps.", what,
             sl_show(nearbyint(c->window), steps));
    return n;
}

static void draw_loss(sl_text *out, const sl_curves *c, const sl_session_marks *marks)
{
    bool smoothed = c->n >= SL_SMOOTHED_FROM;
    sl_series series[3];
    char title[128], sub[256], first[32], last[32];
    int n = add_steps(c, "c-loss", c->loss, c->smooth_loss, "Mean loss per token of each step.", series, sub);
    if (c->n_val)
        sl_series_add(series, &n,
                      &(sl_series){.name = "validation",
                                   .color = "c-validation",
                                   .x = c->val_step,
                                   .y = c->val_loss,
                                   .n = c->n_val,
                                   .style = SL_DOTS});
    snprintf(title, sizeof title, smoothed ? "Smoothed loss went from %s to %s" : "Loss went from %s to %s",
             sl_show(c->loss[0], first), sl_show((smoothed ? c->smooth_loss : c->loss)[c->n - 1], last));
    draw_chart(out, "loss", title, sub, "loss", series, n, marks);
}

/* Each session against its own prediction: the segments are separated by a point that is none. */
static sl_status predicted_speed(const sl_run_log *log, double **memory, sl_series *series)
{
    double *x;
    int64_t n = 0, count = log->n_sessions;
    SL_TRY(sl_alloc(memory, 6 * count + 2, sizeof *x));
    x = *memory;
    double *y = x + 3 * count + 1;
    for (int64_t i = 0; i < count; i++) {
        const sl_log_session *s = &log->sessions[i];
        double ends[3] = {(double) s->first_step + 1, (double) sl_session_last_step(log, i), (double) NAN};
        for (int k = 0; k < 3; k++, n++) {
            x[n] = ends[k];
            y[n] = k < 2 && ends[1] >= ends[0] ? s->predicted_tokens_per_s : (double) NAN;
        }
    }
    *series =
        (sl_series){.name = "predicted", .color = "c-predicted", .x = x, .y = y, .n = n, .style = SL_DASHED, .dash = 1};
    return SL_OK;
}

static void draw_speed(sl_text *out, const sl_run_log *log, const sl_curves *c, const sl_session_marks *marks)
{
    double predicted = log->predicted.tokens_per_s, median = (double) log->tokens_per_step / sl_log_median_step(log),
           *memory = NULL;
    bool known = isfinite(predicted);
    char title[128], a[32], b[32];
    sl_series series[2] = {{.name = "measured", .color = "c-compute", .x = c->step, .y = c->speed, .n = c->n}};
    if (predicted_speed(log, &memory, &series[1]) != SL_OK) {
        out->failed = true;
        return;
    }
    if (known && isfinite(median))
        snprintf(title, sizeof title, "%s tokens a second, %s predicted", sl_show(median, a), sl_show(predicted, b));
    else
        snprintf(title, sizeof title, "Tokens a second");
    draw_chart(out, "throughput", title,
               log->n_sessions > 1 ? "Throughput of each step. The title is about the steps since the last resume."
                                   : "Throughput of each step. The first one also warms caches and memory up.",
               "tokens per second", series, 1 + known, marks);
    sl_free(memory);
}

static void draw_norm(sl_text *out, const sl_run_log *log, const sl_curves *c, const sl_session_marks *marks)
{
    bool clipped = log->clip > 0 && isfinite(log->clip);
    double ends[2] = {c->step[0], c->step[c->n - 1]}, clip[2] = {log->clip, log->clip};
    sl_series series[3];
    int64_t above = 0;
    char title[128], sub[256], a[32], b[32], limit[32];
    if (!sl_curve_is_known(c->norm, c->n))
        return;
    for (int64_t i = 0; i < c->n; i++)
        above += clipped && c->norm[i] > log->clip;
    int n = add_steps(c, "c-norm", c->norm, c->smooth_norm, "Norm of all gradients together, before clipping.", series,
                      sub);
    if (clipped)
        sl_series_add(series, &n,
                      &(sl_series){.name = "clipped above",
                                   .color = "c-predicted",
                                   .x = ends,
                                   .y = clip,
                                   .n = 2,
                                   .style = SL_DASHED,
                                   .dash = 1});
    if (clipped)
        snprintf(title, sizeof title, "Gradient norm: %s of %s steps were clipped at %s", sl_show((double) above, a),
                 sl_show((double) c->n, b), sl_show(log->clip, limit));
    else
        snprintf(title, sizeof title, "Gradient norm: %s at the last step", sl_show(c->norm[c->n - 1], a));
    draw_chart(out, "grad-norm", title, sub, "gradient norm", series, n, marks);
}

static void draw_rate(sl_text *out, const sl_curves *c, const sl_session_marks *marks)
{
    double most = -(double) INFINITY;
    char title[128], a[32], b[32];
    if (!sl_curve_is_known(c->rate, c->n))
        return;
    for (int64_t i = 0; i < c->n; i++)
        most = isfinite(c->rate[i]) ? fmax(most, c->rate[i]) : most;
    snprintf(title, sizeof title, "Learning rate: %s at most, %s at the end", sl_show(most, a),
             sl_show(c->rate[c->n - 1], b));
    draw_chart(out, "learning-rate", title, "The rate each step used.", "learning rate",
               &(sl_series){.name = "each step", .color = "c-rate", .x = c->step, .y = c->rate, .n = c->n}, 1, marks);
}

void sl_panel_curves(sl_text *out, const sl_run_log *log)
{
    sl_curves c;
    sl_session_marks marks;
    if (log->n_steps == 0)
        return;
    if (sl_curves_of(log, &c) != SL_OK) {
        out->failed = true;
        return;
    }
    sl_session_marks_of(log, &marks);
    draw_loss(out, &c, &marks);
    draw_speed(out, log, &c, &marks);
    draw_norm(out, log, &c, &marks);
    draw_rate(out, &c, &marks);
    sl_curves_free(&c);
}
