/*
 * The page: one file that needs nothing but itself. The style sheet is inline, there are no scripts to run and no links to
 * anywhere, and a content security policy says so to the browser. What the page shows as pictures it also carries as JSON
 * (<script type="application/json">, which no browser executes), for programs that read it.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/json.h"
#include "report/panels.h"
#include "report/report.h"
#include "report/style.h"

void sl_panel_begin(sl_text *out, const char *id, bool full, const char *title, const char *sub)
{
    sl_text_printf(out, "<section class=\"panel %s\" id=\"", full ? "full" : "half");
    sl_html(out, id);
    sl_html_in(out, "\"><h2>", title, "</h2>\n");
    if (!sub)
        return;
    sl_html_in(out, "<p class=\"sub\">", sub, "</p>\n");
}

void sl_panel_end(sl_text *out)
{
    sl_text_printf(out, "</section>\n");
}

void sl_panel_lines(sl_text *out, const char *id, bool full, const char *title, const char *sub, const sl_lines *lines)
{
    sl_panel_begin(out, id, full, title, sub);
    sl_legend_begin(out);
    for (int i = 0; i < lines->n_series; i++)
        if (lines->series[i].style == SL_DOTS)
            sl_legend_item(out, lines->series[i].color, lines->series[i].name);
        else
            sl_legend_line(out, &lines->series[i]);
    if (lines->n_events)
        sl_legend_event(out, lines->events_name);
    sl_legend_end(out);
    sl_draw_twice(out, sl_draw_lines, lines, full ? SL_FULL : SL_HALF);
    sl_panel_end(out);
}

void sl_panel_roof(sl_text *out, const char *id, const char *sub, const sl_roof *roof)
{
    sl_panel_begin(out, id, true, roof->name, sub);
    sl_roof_legend(out, roof->points, roof->n_points);
    sl_draw_twice(out, sl_draw_roof, roof, SL_FULL);
    sl_panel_end(out);
}

void sl_html_table_begin(sl_text *out, const char *columns)
{
    sl_text_printf(out, "<div class=\"scroll\"><table><thead><tr>");
    for (const char *at = columns;;) {
        bool number = *at == '#', extra = at[number] == '+';
        at += number + extra;
        int length = (int) strcspn(at, "|");
        sl_text_printf(out, number || extra ? "<th class=\"%s%s%s\">" : "<th>", number ? "n" : "",
                       number && extra ? " " : "", extra ? "extra" : "");
        sl_text_printf(out, "%.*s</th>", length, at);
        at += length;
        if (!*at++)
            break;
    }
    sl_text_printf(out, "</tr></thead><tbody>\n");
}

void sl_html_table_end(sl_text *out)
{
    sl_text_printf(out, "</tbody></table></div>\n");
}

void sl_html_cell(sl_text *out, const char *class, const char *text)
{
    sl_text_printf(out, "<td class=\"%s\">", class);
    sl_html_in(out, "", text ? text : "–", "</td>");
}

void sl_tile(sl_text *out, const char *id, const char *value, const char *name, const char *note)
{
    sl_text_printf(out, "<div class=\"tile\" id=\"tile-%s\"><b>", id);
    sl_html(out, value);
    sl_html_in(out, "</b><span>", name, "</span>");
    if (note) {
        sl_html_in(out, "<small>", note, "</small>");
    }
    sl_text_printf(out, "</div>");
}

/* ---- what the page is about ---- */

static void describe_run(const sl_run_log *log, char title[256], char sub[512])
{
    char a[32], b[32], c[32];
    snprintf(title, 256, "%.100s on %.100s", log->model ? log->model : "A run",
             log->numerics ? log->numerics
             : log->device ? log->device
                           : "an unknown device");
    int length = snprintf(sub, 512, "%s parameters, %s; steps of %s tokens in sequences of %s",
                          sl_show((double) log->parameters, a), log->precision ? log->precision : "precision not told",
                          sl_show((double) log->tokens_per_step, b), sl_show((double) log->seqlen, c));
    length = SL_MIN(length, 400);
    if (log->n_steps > 0)
        length +=
            snprintf(sub + length, (size_t) (512 - length), "; %s of %s steps",
                     sl_show((double) log->steps[log->n_steps - 1].step, a), sl_show((double) log->steps_wanted, b));
    length = SL_MIN(length, 450);
    snprintf(sub + length, (size_t) (512 - length), "; %s%s%s",
             log->reason ? log->reason : "no end in the log: still running, or killed", log->time ? "; " : "",
             log->time ? log->time : "");
}

static void describe_tables(const sl_tables *t, char title[256], char sub[512])
{
    int64_t rows = 0, grids = 0;
    for (const sl_grid *g = t->grids; g; g = g->next, grids++)
        rows += g->n_rows;
    bool sweep = strcmp(t->kind, "sweep") == 0;
    if (strcmp(t->kind, "system") == 0)
        snprintf(title, 256, "What this machine is and can do");
    else
        snprintf(title, 256, "%s: %.200s", sweep ? "Sweep" : "Benchmark", t->name);
    snprintf(sub, 512, "%lld %s%s in %lld table%s", (long long) rows, sweep ? "cell" : "row", rows == 1 ? "" : "s",
             (long long) grids, grids == 1 ? "" : "s");
}

static void describe(const sl_input *input, char title[256], char sub[512])
{
    if (input->log)
        describe_run(input->log, title, sub);
    else
        describe_tables(input->tables, title, sub);
}

/* ---- numbers for programs ---- */

static void put_streams(sl_json_writer *w, const sl_run_log *log, const char *key, bool predicted)
{
    sl_json_begin_object(w, key);
    for (int s = 0; s < SL_LOG_STREAMS; s++)
        sl_json_put_i64(w, sl_log_stream_names[s], sl_report_busy_ns(log, s, predicted));
    sl_json_end_object(w);
}

static void put_run(sl_json_writer *w, const sl_run_log *log)
{
    sl_verdict v;
    double step = sl_log_median_step(log);
    sl_json_put_string(w, "model", log->model);
    sl_json_put_f64(w, "step_s", step);
    sl_json_put_f64(w, "predicted_step_s", log->predicted.step_s);
    sl_json_put_f64(w, "tokens_per_s", (double) log->tokens_per_step / step);
    sl_json_put_f64(w, "mfu", log->measured.mfu);
    sl_json_put_f64(w, "device_peak_bytes", log->measured.peak_bytes[0]);
    sl_json_put_i64(w, "steps", log->n_steps);
    sl_json_put_f64(w, "last_loss", log->n_steps ? log->steps[log->n_steps - 1].loss : (double) NAN);
    put_streams(w, log, "busy_ns", false);
    put_streams(w, log, "predicted_busy_ns", true);
    if (!sl_limits(log, &v))
        return;
    sl_json_put_string(w, "limit", sl_bound_names[v.limit]);
    sl_json_begin_object(w, "shares");
    for (int i = 0; i < SL_BOUND_COUNT; i++)
        sl_json_put_f64(w, sl_bound_names[i], v.seconds[i] / v.step_s);
    sl_json_end_object(w);
}

/* "<" could end the element; it and its like are written as escapes. */
static void append_figures(sl_text *out, const sl_input *input)
{
    sl_json_writer w = {0};
    sl_json_begin_object(&w, NULL);
    sl_json_put_string(&w, "kind", input->log ? "run" : input->tables->kind);
    sl_json_put_string(&w, "file", input->path);
    if (input->log)
        put_run(&w, input->log);
    else
        sl_json_put_string(&w, "name", input->tables->name);
    sl_json_end_object(&w);
    if (sl_text_status(&w.text) != SL_OK)
        out->failed = true;
    sl_text_printf(out, "<script type=\"application/json\" class=\"figures\">");
    for (const char *at = w.text.data; at && *at; at++)
        if (strchr("<>&", *at))
            sl_text_printf(out, "\\u%04x", *at);
        else
            sl_text_append(out, at, 1);
    sl_text_printf(out, "</script>\n");
    sl_text_free(&w.text);
}

/* ---- */

static void append_input(sl_text *out, const sl_input *input, bool first)
{
    char title[256], sub[512];
    describe(input, title, sub);
    sl_text_printf(out, "<article>\n<header><h1%s>", first ? "" : " class=\"next\"");
    sl_html(out, title);
    sl_html_in(out, "</h1><p>", sub, "</p>");
    if (input->log && input->log->data[0])
        sl_html_in(out, "<p class=\"data\">Data: ", input->log->data[0], "</p>");
    if (input->log && input->log->data[1])
        sl_html_in(out, "<p class=\"data\">Validation: ", input->log->data[1], "</p>");
    sl_text_printf(out, "</header>\n");
    if (input->log)
        sl_panels_run(out, input->log);
    else
        sl_panels_tables(out, input->tables);
    append_figures(out, input);
    sl_text_printf(out, "<footer>From ");
    sl_html(out, input->path);
    sl_text_printf(out, "%s, by sluice %s.</footer>\n</article>\n",
                   input->cut ? " (its last line has no end and was left out)" : "", sl_version());
}

void sl_report_page(sl_text *out, const sl_input *const *inputs, int64_t count)
{
    char title[256], sub[512];
    describe(inputs[0], title, sub);
    sl_text_printf(
        out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
             "<meta name=\"color-scheme\" content=\"light dark\"/>\n"
             "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src "
             "'unsafe-inline'\"/>\n<link rel=\"icon\" href=\"data:,\"/>\n<title>");
    sl_html(out, title);
    sl_text_printf(out, "</title>\n<style>\n");
    for (const char *const *piece = sl_report_style; *piece; piece++)
        sl_text_append(out, *piece, strlen(*piece));
    sl_text_printf(out, "</style>\n</head>\n<body>\n<main>\n");
    bool compared = sl_panels_compare(out, inputs, count);
    for (int64_t i = 0; i < count; i++)
        append_input(out, inputs[i], i == 0 && !compared);
    sl_text_printf(out, "</main>\n</body>\n</html>\n");
}
