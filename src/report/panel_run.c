/* The top of a run's page: five numbers, what limited it, and how its time is made up. The rest follows in order of use. */
#include <math.h>
#include <stdio.h>

#include "report/panels.h"
#include "report/report.h"

/* What happened where the log tells it, what was predicted otherwise. */
static double first_known(double a, double b)
{
    return isfinite(a) ? a : b;
}

static void draw_speed_tiles(sl_text *out, const sl_run_log *log, double step)
{
    char text[32], note[96], a[32];
    double predicted = log->predicted.step_s, measured = isfinite(step) ? step : log->measured.step_s;
    double speed = measured > 0 && log->tokens_per_step > 0 ? (double) log->tokens_per_step / measured : (double) NAN;
    const char *told = NULL;
    if (isfinite(predicted)) {
        snprintf(note, sizeof note, isfinite(speed) ? "predicted %s" : "predicted",
                 sl_show(log->predicted.tokens_per_s, a));
        told = note;
    }
    sl_tile(out, "speed", sl_show(first_known(speed, log->predicted.tokens_per_s), text), "tokens per second", told);
    if (isfinite(measured) && predicted > 0)
        snprintf(note, sizeof note, "predicted %s (%+.1f %%)", sl_show_as(predicted, SL_SECONDS, a),
                 fmin(fmax(100 * (measured / predicted - 1), -999), 9999));
    sl_tile(out, "step", sl_show_as(first_known(measured, predicted), SL_SECONDS, text), "a step", told);
}

static void draw_tiles(sl_text *out, const sl_run_log *log)
{
    const sl_figures *m = &log->measured, *p = &log->predicted;
    double step = sl_log_median_step(log), peak = first_known(m->peak_bytes[0], p->peak_bytes[0]);
    double budget = first_known(m->budget_bytes[0], p->budget_bytes[0]), mfu = m->mfu;
    char text[32], note[96], a[32];
    if (!isfinite(mfu) && isfinite(step) && step > 0)
        mfu = p->mfu * p->step_s / step; /* under way: the prediction's, at the speed that is reached */
    sl_text_printf(out, "<div class=\"tiles\">");
    draw_speed_tiles(out, log, step);
    snprintf(note, sizeof note, "HFU %s", sl_show_as(first_known(m->hfu, p->hfu), SL_SHARE, a));
    sl_tile(out, "mfu", sl_show_as(first_known(mfu, p->mfu), SL_SHARE, text), "of peak arithmetic (MFU)",
            isfinite(first_known(m->hfu, p->hfu)) ? note : NULL);
    snprintf(note, sizeof note, "budget %s", sl_show_budget(budget, a));
    sl_tile(out, "device-memory", sl_show_as(peak, SL_BYTES, text), "device memory at most", note);
    if (log->n_steps > 0) {
        snprintf(note, sizeof note, "%s at step %lld", sl_show(log->steps[0].loss, a), (long long) log->steps[0].step);
        double last = log->steps[log->n_steps - 1].loss;
        char name[64];
        snprintf(name, sizeof name, "loss at step %lld", (long long) log->steps[log->n_steps - 1].step);
        sl_tile(out, "last-loss", sl_show(last, text), name, note);
    }
    sl_text_printf(out, "</div>\n");
}

static void draw_verdict(sl_text *out, const sl_run_log *log)
{
    sl_verdict v;
    sl_part parts[SL_BOUND_COUNT];
    char text[32], seconds[32], item[96];
    if (!sl_limits(log, &v))
        return;
    sl_text_printf(out, "<section class=\"panel verdict full\" id=\"limit\" data-limit=\"%s\"><h2>",
                   sl_bound_names[v.limit]);
    sl_html(out, v.sentence);
    sl_html_in(out, "</h2>\n<p class=\"sub\">", v.advice, "</p>\n");
    for (int i = 0; i < SL_BOUND_COUNT; i++)
        parts[i] = (sl_part){sl_bound_names[i], sl_bound_colors[i], v.seconds[i]};
    sl_draw_twice(out, sl_draw_parts, &(sl_parts){"Where a step's time goes", parts, SL_BOUND_COUNT}, SL_FULL);
    sl_legend_begin(out);
    for (int i = 0; i < SL_BOUND_COUNT; i++) {
        if (v.seconds[i] < 5e-4 * v.step_s)
            continue;
        snprintf(item, sizeof item, "%s %s (%s)", sl_bound_names[i],
                 sl_show_as(v.seconds[i] / v.step_s, SL_SHARE, text), sl_show_as(v.seconds[i], SL_SECONDS, seconds));
        sl_legend_item(out, sl_bound_colors[i], item);
    }
    sl_legend_end(out);
    sl_panel_end(out);
}

static void figure_row(sl_text *out, const char *name, double predicted, double measured, sl_quantity quantity,
                       const char *unit)
{
    char a[32], b[32], off[32] = "–";
    if (!isfinite(predicted) && !isfinite(measured))
        return;
    double ratio =
        isfinite(predicted) && isfinite(measured) && fabs(predicted) > 1e-12 ? measured / predicted : (double) NAN;
    if (ratio >= 10)
        snprintf(off, sizeof off, "× %s", sl_show(fmin(ratio, 1e6), a));
    else if (isfinite(ratio))
        snprintf(off, sizeof off, "%+.1f %%", 100 * (ratio - 1));
    sl_text_printf(out,
                   "<tr><th scope=\"row\">%s</th><td class=\"n\">%s%s</td><td class=\"n\">%s%s</td><td "
                   "class=\"n\">%s</td></tr>\n",
                   name, sl_show_as(predicted, quantity, a), unit, sl_show_as(measured, quantity, b), unit, off);
}

/* Prediction and measurement line by line: the same figures, from the plan and from the last step. */
static void draw_figures(sl_text *out, const sl_run_log *log)
{
    static const char *const busy[SL_LOG_STREAMS] = {"compute busy", "copies in busy", "copies out busy", "host busy"};
    static const char *const waits[SL_LOG_STREAMS] = {NULL, "waits for copies in", "waits for copies out",
                                                      "waits for the host"};
    const sl_figures *p = &log->predicted, *m = &log->measured;
    sl_panel_begin(out, "figures", true, "Predicted and measured",
                   "Predicted before the first step; measured: the median step, "
                   "and the last one for what streams did.");
    sl_html_table_begin(out, "|#predicted|#measured|#off by");
    figure_row(out, "step", p->step_s, m->step_s, SL_SECONDS, "");
    figure_row(out, "tokens per second", p->tokens_per_s, m->tokens_per_s, SL_PLAIN, "");
    figure_row(out, "TFLOP/s", p->tflops, m->tflops, SL_PLAIN, "");
    figure_row(out, "MFU", p->mfu, m->mfu, SL_SHARE, "");
    figure_row(out, "HFU", p->hfu, m->hfu, SL_SHARE, "");
    figure_row(out, "device memory, highest address", p->peak_bytes[0], m->peak_bytes[0], SL_BYTES, "");
    figure_row(out, "host memory, heap included", p->peak_bytes[1], m->peak_bytes[1], SL_BYTES, "");
    figure_row(out, "copied in per step", p->in_bytes, m->in_bytes, SL_BYTES, "");
    figure_row(out, "copied out per step", p->out_bytes, m->out_bytes, SL_BYTES, "");
    figure_row(out, "arithmetic recomputed", p->recompute_fraction, m->recompute_fraction, SL_SHARE, "");
    for (int i = 0; i < SL_LOG_STREAMS; i++)
        if (log->n_actions)
            figure_row(out, busy[i], 1e-9 * (double) sl_report_busy_ns(log, i, true),
                       1e-9 * (double) sl_report_busy_ns(log, i, false), SL_SECONDS, "");
        else
            figure_row(out, busy[i], p->busy_s[i], m->busy_s[i], SL_SECONDS, "");
    for (int i = 1; i < SL_LOG_STREAMS; i++)
        figure_row(out, waits[i], p->wait_s[i], m->wait_s[i], SL_SECONDS, "");
    sl_html_table_end(out);
    sl_panel_end(out);
}

void sl_panels_run(sl_text *out, const sl_run_log *log)
{
    draw_tiles(out, log);
    sl_text_printf(out, "<div class=\"panels\">");
    draw_verdict(out, log);
    sl_panel_timeline(out, log);
    sl_panel_memory(out, log);
    sl_panel_curves(out, log);
    sl_panel_samples(out, log);
    sl_panel_sessions(out, log);
    sl_panel_ops(out, log);
    draw_figures(out, log);
    sl_text_printf(out, "</div>\n");
}
