/* Loss, gradient norm, learning rate and throughput over the steps. Where there are many steps the raw values stand pale behind
 * their moving average. A resume under another budget is marked in all of them. */
#include <math.h>
#include <stdio.h>

#include "report/curves.h"
#include "report/panels.h"
#include "report/sessions.h"

static void draw_chart(sl_text *out, const char *title, const char *y_label, const sl_series *series, int n,
                       const sl_session_marks *marks, bool zero)
{
    sl_legend_begin(out);
    for (int i = 0; i < n; i++)
        if (series[i].style == SL_DOTS)
            sl_legend_item(out, series[i].color, series[i].name);
        else
            sl_legend_line(out, &series[i]);
    if (marks->n)
        sl_legend_event(out, "resumed with another budget");
    sl_legend_end(out);
    sl_draw_twice(out, sl_draw_lines,
                  &(sl_lines){.name = title,
                              .x_label = "step",
                              .x_quantity = SL_WHOLE,
                              .y_label = y_label,
                              .zero_y = zero,
                              .series = series,
                              .n_series = n,
                              .events = marks->marks,
                              .n_events = marks->n},
                  SL_HALF);
    sl_panel_end(out);
}

/* "Exponential moving average over about 4 steps" */
static void smoothing_text(const sl_curves *c, char out[128])
{
    char steps[32];
    snprintf(out, 128, "The bold line is smoothed: an exponential moving average over about %s steps.",
             sl_show(nearbyint(c->window), steps));
}

static void draw_loss(sl_text *out, const sl_curves *c, const sl_session_marks *marks)
{
    bool smoothed = c->n >= SL_SMOOTHED_FROM;
    sl_series series[3];
    int n = 0;
    char title[128], how[128] = "", sub[256], first[32], last[32];
    sl_series_add(series, &n,
                  &(sl_series){.name = "each step", .color = "c-loss", .x = c->step, .y = c->loss, .n = c->n});
    if (smoothed) {
        series[0].style = SL_FAINT;
        sl_series_add(
            series, &n,
            &(sl_series){.name = "smoothed", .color = "c-loss", .x = c->step, .y = c->smooth_loss, .n = c->n});
        smoothing_text(c, how);
    }
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
    snprintf(sub, sizeof sub, "Mean loss per token of each step.%s%s", *how ? " " : "", how);
    sl_panel_begin(out, "loss", false, title, sub);
    draw_chart(out, title, "loss", series, n, marks, false);
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
    sl_panel_begin(out, "throughput", false, title,
                   log->n_sessions > 1 ? "Throughput of each step. The title is about the steps since the last resume."
                                       : "Throughput of each step. The first one also warms caches and memory up.");
    draw_chart(out, title, "tokens per second", series, 1 + known, marks, true);
    sl_free(memory);
}

static bool has_values(const double *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (isfinite(values[i]))
            return true;
    return false;
}

static void draw_norm(sl_text *out, const sl_run_log *log, const sl_curves *c, const sl_session_marks *marks)
{
    bool smoothed = c->n >= SL_SMOOTHED_FROM, clipped = log->clip > 0 && isfinite(log->clip);
    double ends[2] = {c->step[0], c->step[c->n - 1]}, clip[2] = {log->clip, log->clip};
    sl_series series[3];
    int64_t above = 0;
    int n = 0;
    char title[128], how[128] = "", sub[256], a[32], b[32], limit[32];
    if (!has_values(c->norm, c->n))
        return;
    for (int64_t i = 0; i < c->n; i++)
        above += clipped && c->norm[i] > log->clip;
    sl_series_add(series, &n,
                  &(sl_series){.name = "each step", .color = "c-norm", .x = c->step, .y = c->norm, .n = c->n});
    if (smoothed) {
        series[0].style = SL_FAINT;
        sl_series_add(
            series, &n,
            &(sl_series){.name = "smoothed", .color = "c-norm", .x = c->step, .y = c->smooth_norm, .n = c->n});
        smoothing_text(c, how);
    }
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
    snprintf(sub, sizeof sub, "Norm of all gradients together, before clipping.%s%s", *how ? " " : "", how);
    sl_panel_begin(out, "grad-norm", false, title, sub);
    draw_chart(out, title, "gradient norm", series, n, marks, true);
}

static void draw_rate(sl_text *out, const sl_curves *c, const sl_session_marks *marks)
{
    double most = -(double) INFINITY;
    char title[128], a[32], b[32];
    if (!has_values(c->rate, c->n))
        return;
    for (int64_t i = 0; i < c->n; i++)
        most = isfinite(c->rate[i]) ? fmax(most, c->rate[i]) : most;
    snprintf(title, sizeof title, "Learning rate: %s at most, %s at the end", sl_show(most, a),
             sl_show(c->rate[c->n - 1], b));
    sl_panel_begin(out, "learning-rate", false, title, "The rate each step used.");
    draw_chart(out, title, "learning rate",
               &(sl_series){.name = "each step", .color = "c-rate", .x = c->step, .y = c->rate, .n = c->n}, 1, marks,
               true);
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
