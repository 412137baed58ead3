/* Loss and throughput over the steps. Where there are many steps the raw losses stand pale behind their moving mean. */
#include <math.h>
#include <stdio.h>

#include "report/panels.h"

enum { SMOOTHED_FROM = 40 };

typedef struct curves {
    double *step, *loss, *smooth, *speed, *data; /* of every step */
    double *val_step, *val_loss;
    int64_t n, n_val;
} curves;

static sl_status read_curves(const sl_run_log *log, curves *c)
{
    double *room, mean = 0, weight = 0;
    int64_t n = log->n_steps, n_val = log->n_validations;
    SL_TRY(sl_alloc(&room, 4 * n + 2 * n_val + 1, sizeof *room));
    *c =
        (curves){.step = room, .loss = room + n, .smooth = room + 2 * n, .speed = room + 3 * n, .n = n, .n_val = n_val};
    c->val_step = room + 4 * n;
    c->val_loss = c->val_step + n_val;
    /* An exponential mean over about a fiftieth of the run, corrected for its beginning. */
    double keep = 1 - 1 / fmax((double) n / 50, 4);
    for (int64_t i = 0; i < n; i++) {
        const sl_log_step *s = &log->steps[i];
        c->step[i] = (double) s->step;
        c->loss[i] = s->loss;
        c->speed[i] = s->tokens_per_s;
        if (isfinite(s->loss)) {
            mean = keep * mean + (1 - keep) * s->loss;
            weight = keep * weight + (1 - keep);
        }
        c->smooth[i] = weight > 0 ? mean / weight : (double) NAN;
    }
    for (int64_t i = 0; i < n_val; i++) {
        c->val_step[i] = (double) log->validations[i].step;
        c->val_loss[i] = log->validations[i].loss;
    }
    return SL_OK;
}

static void draw_loss(sl_text *out, const curves *c)
{
    bool smoothed = c->n >= SMOOTHED_FROM;
    sl_series series[3];
    int n = 0;
    char title[128], first[32], last[32];
    series[n++] = (sl_series){"each step", "c-loss", c->step, c->loss, c->n, smoothed ? SL_FAINT : SL_LINE};
    if (smoothed)
        series[n++] = (sl_series){"moving mean", "c-loss", c->step, c->smooth, c->n, SL_LINE};
    if (c->n_val)
        series[n++] = (sl_series){"validation", "c-validation", c->val_step, c->val_loss, c->n_val, SL_DOTS};
    snprintf(title, sizeof title, "Loss went from %s to %s", sl_show(c->loss[0], first),
             sl_show((smoothed ? c->smooth : c->loss)[c->n - 1], last));
    sl_panel_begin(out, "loss", false, title, "Mean loss per token of each step.");
    sl_legend_begin(out);
    sl_legend_item(out, smoothed ? "c-loss pale" : "c-loss", "each step");
    if (smoothed)
        sl_legend_item(out, "c-loss", "moving mean");
    if (c->n_val)
        sl_legend_item(out, "c-validation", "validation");
    sl_legend_end(out);
    sl_draw_twice(out, sl_draw_lines,
                  &(sl_lines){.name = title,
                              .x_label = "step",
                              .x_quantity = SL_WHOLE,
                              .y_label = "loss",
                              .series = series,
                              .n_series = n},
                  SL_HALF);
    sl_panel_end(out);
}

static void draw_speed(sl_text *out, const sl_run_log *log, const curves *c)
{
    double ends[2] = {c->step[0], c->step[c->n - 1]},
           predicted[2] = {log->predicted.tokens_per_s, log->predicted.tokens_per_s};
    double median = (double) log->tokens_per_step / sl_log_median_step(log);
    sl_series series[2] = {{"measured", "c-compute", c->step, c->speed, c->n, SL_LINE},
                           {"predicted", "c-predicted", ends, predicted, 2, SL_DASHED}};
    bool known = isfinite(predicted[0]);
    char title[128], a[32], b[32];
    if (known && isfinite(median))
        snprintf(title, sizeof title, "%s tokens a second, %s predicted", sl_show(median, a), sl_show(predicted[0], b));
    else
        snprintf(title, sizeof title, "Tokens a second");
    sl_panel_begin(out, "throughput", false, title,
                   "Throughput of each step. The first one also warms caches and memory up.");
    sl_legend_begin(out);
    sl_legend_item(out, "c-compute", "measured");
    if (known)
        sl_legend_item(out, "c-predicted", "predicted");
    sl_legend_end(out);
    sl_draw_twice(out, sl_draw_lines,
                  &(sl_lines){.name = title,
                              .x_label = "step",
                              .x_quantity = SL_WHOLE,
                              .y_label = "tokens per second",
                              .zero_y = true,
                              .series = series,
                              .n_series = 1 + known},
                  SL_HALF);
    sl_panel_end(out);
}

void sl_panel_curves(sl_text *out, const sl_run_log *log)
{
    curves c;
    if (log->n_steps == 0)
        return;
    if (read_curves(log, &c) != SL_OK) {
        out->failed = true;
        return;
    }
    draw_loss(out, &c);
    draw_speed(out, log, &c);
    sl_free(c.step);
}
