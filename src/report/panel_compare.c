/*
 * Several runs in the same charts. A run is identified by its number, which is on its line and in the legend, by the
 * pattern of the line and by its colour; any one of the three is enough.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/curves.h"
#include "report/panels.h"

enum { MOST_RUNS = 12 };

typedef struct compared {
    const sl_run_log *logs[MOST_RUNS];
    const char *paths[MOST_RUNS];
    char marks[MOST_RUNS][8], names[MOST_RUNS][96];
    sl_curves curves[MOST_RUNS];
    int n;
    int64_t left_out;
    bool smoothed; /* all runs alike */
} compared;

/* The folder of "runs/a/events.jsonl", the file's name otherwise. */
static void name_run(const char *path, char out[96])
{
    const char *end = path + strlen(path), *tail = "/events.jsonl";
    size_t length = strlen(tail);
    if ((size_t) (end - path) > length && strcmp(end - length, tail) == 0)
        end -= length;
    /* The end of a long path is what differs. */
    const char *from = end - path > 60 ? end - 60 : path;
    while (from < end && ((unsigned char) *from & 0xc0) == 0x80)
        from++;
    snprintf(out, 96, "%s%.*s", from > path ? "…" : "", (int) (end - from), from);
}

static sl_status collect(const sl_input *const *inputs, int64_t count, compared *c)
{
    *c = (compared){.smoothed = false};
    for (int64_t i = 0; i < count; i++) {
        const sl_run_log *log = inputs[i]->log;
        if (!log || log->n_steps == 0)
            continue;
        if (c->n == MOST_RUNS) {
            c->left_out++;
            continue;
        }
        SL_TRY(sl_curves_of(log, &c->curves[c->n]));
        c->logs[c->n] = log;
        name_run(inputs[i]->path, c->names[c->n]);
        snprintf(c->marks[c->n], sizeof c->marks[0], "%d", c->n + 1);
        c->smoothed |= log->n_steps >= SL_SMOOTHED_FROM;
        c->n++;
    }
    return SL_OK;
}

/* Neighbours differ more than in the order of sl_series_color. */
static const char *run_color(int i)
{
    static const int order[] = {0, 3, 2, 5, 6, 4, 7, 1};
    return sl_series_color(order[i % SL_COUNT(order)]);
}

static void draw_chart(sl_text *out, const compared *c, const char *id, const char *title, const char *sub,
                       const char *y_label, size_t member, bool zero)
{
    sl_series series[MOST_RUNS];
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        const double *values = *(double *const *) ((const char *) &c->curves[i] + member);
        if (sl_curve_is_known(values, c->curves[i].n))
            sl_series_add(series, &n,
                          &(sl_series){.name = c->names[i],
                                       .color = run_color(i),
                                       .x = c->curves[i].step,
                                       .y = values,
                                       .n = c->curves[i].n,
                                       .dash = (i + i / 8) % SL_DASHES,
                                       .mark = c->marks[i]});
    }
    if (n == 0)
        return;
    sl_panel_lines(out, id, false, title, sub,
                   &(sl_lines){.name = title,
                               .x_label = "step",
                               .x_quantity = SL_WHOLE,
                               .y_label = y_label,
                               .zero_y = zero,
                               .series = series,
                               .n_series = n});
}

static void draw_table(sl_text *out, const compared *c)
{
    char text[32];
    sl_panel_begin(out, "compared", true, "The runs", NULL);
    sl_html_table_begin(out, "run|+model|+precision|#steps|#last loss|#tokens/s|#+MFU|#+device memory|#+budget");
    for (int i = 0; i < c->n; i++) {
        const sl_run_log *log = c->logs[i];
        double peak =
            isfinite(log->measured.peak_bytes[0]) ? log->measured.peak_bytes[0] : log->predicted.peak_bytes[0];
        sl_text_printf(out, "<tr><th scope=\"row\">%s ", c->marks[i]);
        sl_html(out, c->names[i]);
        sl_text_printf(out, "</th>");
        sl_html_cell(out, "extra", log->model);
        sl_html_cell(out, "extra", log->precision);
        sl_html_cell(out, "n", sl_show((double) log->steps[log->n_steps - 1].step, text));
        sl_html_cell(out, "n", sl_show(log->steps[log->n_steps - 1].loss, text));
        sl_html_cell(out, "n", sl_show((double) log->tokens_per_step / sl_log_median_step(log), text));
        sl_html_cell(out, "n extra", sl_show_as(log->measured.mfu, SL_SHARE, text));
        sl_html_cell(out, "n extra", sl_show_as(peak, SL_BYTES, text));
        sl_html_cell(out, "n extra", sl_show_budget(log->predicted.budget_bytes[0], text));
        sl_text_printf(out, "</tr>\n");
    }
    sl_html_table_end(out);
    if (c->left_out)
        sl_text_printf(out, "<p class=\"sub\">The first %d runs; %lld more have their own sections only.</p>\n", c->n,
                       (long long) c->left_out);
    sl_panel_end(out);
}

/* The last sample of each run that made some. */
static void draw_samples(sl_text *out, const compared *c)
{
    int n = 0;
    for (int i = 0; i < c->n; i++)
        n += c->logs[i]->n_samples > 0;
    if (n == 0)
        return;
    sl_panel_begin(out, "compare-samples", true, "What the models write", "The last sample of each run.");
    sl_html_table_begin(out, "run|#step|text");
    for (int i = 0; i < c->n; i++) {
        const sl_run_log *log = c->logs[i];
        if (log->n_samples == 0)
            continue;
        const sl_log_sample *last = &log->samples[log->n_samples - 1];
        sl_text_printf(out, "<tr><th scope=\"row\">%s ", c->marks[i]);
        sl_html(out, c->names[i]);
        sl_text_printf(out, "</th><td class=\"n\">%lld</td>", (long long) last->step);
        sl_html_sample(out, last);
        sl_text_printf(out, "</tr>\n");
    }
    sl_html_table_end(out);
    sl_panel_end(out);
}

static void draw(sl_text *out, const compared *c)
{
    char title[64], loss[192];
    snprintf(title, sizeof title, "%d runs compared", c->n);
    snprintf(loss, sizeof loss,
             c->smoothed ? "Smoothed: exponential moving averages over a fiftieth of each run (at least 4 steps)."
                         : "Mean loss per token of each step.");
    sl_text_printf(out,
                   "<article id=\"comparison\">\n<header><h1>%s</h1><p>Each run's own section follows.</p></header>\n",
                   title);
    sl_text_printf(out, "<div class=\"panels\">");
    draw_chart(out, c, "compare-loss", c->smoothed ? "Smoothed loss of each run" : "Loss of each run", loss, "loss",
               c->smoothed ? offsetof(sl_curves, smooth_loss) : offsetof(sl_curves, loss), false);
    draw_chart(out, c, "compare-throughput", "Tokens a second of each run", "Throughput of each step.",
               "tokens per second", offsetof(sl_curves, speed), true);
    draw_chart(out, c, "compare-grad-norm",
               c->smoothed ? "Smoothed gradient norm of each run" : "Gradient norm of each run",
               "Norm of all gradients together, before clipping.", "gradient norm",
               c->smoothed ? offsetof(sl_curves, smooth_norm) : offsetof(sl_curves, norm), true);
    draw_chart(out, c, "compare-learning-rate", "Learning rate of each run", "The rate each step used.",
               "learning rate", offsetof(sl_curves, rate), true);
    draw_table(out, c);
    draw_samples(out, c);
    sl_text_printf(out, "</div>\n</article>\n");
}

bool sl_panels_compare(sl_text *out, const sl_input *const *inputs, int64_t count)
{
    compared c;
    sl_status status = collect(inputs, count, &c);
    bool several = c.n > 1;
    if (status != SL_OK)
        out->failed = true;
    else if (several)
        draw(out, &c);
    for (int i = 0; i < c.n; i++)
        sl_curves_free(&c.curves[i]);
    return several;
}
