/* The page's main points as text: for a look without leaving the terminal. Bars are made of eighths of a character. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/panels.h"
#include "report/report.h"

enum { BAR = 24, MOST_OPS = 12, MOST_CELLS = 12, CELL = 24 };

static void put_limits(sl_text *out, const sl_run_log *log, int columns)
{
    sl_verdict v;
    char share[32], seconds[32];
    if (!sl_limits(log, &v))
        return;
    sl_text_printf(out, "%s\n", v.sentence);
    for (int i = 0; i < SL_BOUND_COUNT; i++) {
        double part = v.seconds[i] / v.step_s;
        sl_text_printf(out, "  %-18s", sl_bound_names[i]);
        sl_text_pad(out, sl_show_as(part, SL_SHARE, share), 8, true);
        sl_text_pad(out, sl_show_as(v.seconds[i], SL_SECONDS, seconds), 11, true);
        sl_text_printf(out, "  ");
        if (columns > 0)
            sl_text_bar(out, part, BAR);
        sl_text_printf(out, "\n");
    }
}

static void put_ops(sl_text *out, const sl_run_log *log, int columns)
{
    char text[32];
    if (log->n_ops == 0)
        return;
    sl_text_printf(out, "\n  %-18s   share       time   calls\n", "op");
    for (int64_t i = 0; i < log->n_ops && i < MOST_OPS; i++) {
        const sl_log_op *op = &log->ops[i];
        double share = log->op_seconds > 0 ? op->measured_s / log->op_seconds : 0;
        sl_text_printf(out, "  %-18.18s", op->name);
        sl_text_pad(out, sl_show_as(share, SL_SHARE, text), 8, true);
        sl_text_pad(out, sl_show_as(op->measured_s, SL_SECONDS, text), 11, true);
        sl_text_printf(out, "%8lld  ", (long long) op->count);
        if (columns > 0)
            sl_text_bar(out, share, BAR);
        sl_text_printf(out, "\n");
    }
    if (log->n_ops > MOST_OPS)
        sl_text_printf(out, "  and %lld more\n", (long long) log->n_ops - MOST_OPS);
}

static void put_pair(sl_text *out, const char *name, double predicted, double measured, sl_quantity quantity)
{
    char text[32];
    sl_text_printf(out, "  %-18s", name);
    sl_text_pad(out, sl_show_as(predicted, quantity, text), 14, true);
    sl_text_pad(out, sl_show_as(measured, quantity, text), 14, true);
    sl_text_printf(out, "\n");
}

static void put_run(sl_text *out, const sl_run_log *log, int columns)
{
    char steps[32];
    sl_text_printf(out, "%s on %s, %s steps\n\n", log->model ? log->model : "a run",
                   log->numerics ? log->numerics : "?", sl_show((double) log->n_steps, steps));
    sl_text_printf(out, "  %-18s%14s%14s\n", "", "predicted", "measured");
    put_pair(out, "step", log->predicted.step_s, sl_log_median_step(log), SL_SECONDS);
    put_pair(out, "tokens/s", log->predicted.tokens_per_s, (double) log->tokens_per_step / sl_log_median_step(log),
             SL_PLAIN);
    put_pair(out, "MFU", log->predicted.mfu, log->measured.mfu, SL_SHARE);
    put_pair(out, "device memory", log->predicted.peak_bytes[0], log->measured.peak_bytes[0], SL_BYTES);
    put_pair(out, "host memory", log->predicted.peak_bytes[1], log->measured.peak_bytes[1], SL_BYTES);
    sl_text_printf(out, "\n");
    put_limits(out, log, columns);
    put_ops(out, log, columns);
}

/* ---- tables ---- */

static const char *cell_text(const sl_grid *g, int64_t row, int64_t c, char out[64])
{
    const sl_cell_value *cell = sl_grid_cell(g, row, c);
    char text[32];
    if (cell->kind == SL_VALUE_TEXT)
        snprintf(out, 64, "%.*s", CELL, cell->text);
    else
        snprintf(out, 64, "%s", sl_show_as(cell->number, sl_unit_quantity(g->columns[c].unit), text));
    return out;
}

/* The columns that fit the width, from the left; one that would not is left out with all behind it. Keys are for programs. */
static void put_grid(sl_text *out, const sl_grid *g, int columns)
{
    int64_t shown[MOST_CELLS];
    int widths[MOST_CELLS], n = 0, total = 0, most = columns > 0 ? columns : 120;
    char text[64];
    for (int64_t c = 0; c < g->n_columns && n < MOST_CELLS; c++) {
        if (strcmp(g->columns[c].name, "cell") == 0)
            continue;
        widths[n] = SL_MIN(sl_text_columns(g->columns[c].name), CELL);
        for (int64_t row = 0; row < g->n_rows; row++)
            widths[n] = SL_MAX(widths[n], sl_text_columns(cell_text(g, row, c, text)));
        total += widths[n] + 2;
        if (total > most && n > 0)
            break;
        shown[n++] = c;
    }
    sl_text_printf(out, "%s\n", g->title ? g->title : g->name);
    for (int64_t row = -1; row < g->n_rows; row++)
        for (int i = 0; i < n; i++) {
            if (row < 0)
                snprintf(text, sizeof text, "%.*s", CELL, g->columns[shown[i]].name);
            else
                cell_text(g, row, shown[i], text);
            sl_text_pad(out, text, widths[i], g->columns[shown[i]].numeric);
            sl_text_printf(out, i + 1 < n ? "  " : "\n");
        }
    if (n > 0 && shown[n - 1] + 1 < g->n_columns)
        sl_text_printf(out, "(%lld more columns: see the page)\n", (long long) (g->n_columns - shown[n - 1] - 1));
}

void sl_report_terminal(sl_text *out, const sl_input *input, int columns)
{
    if (input->log) {
        put_run(out, input->log, columns);
        return;
    }
    for (const sl_grid *grid = input->tables->grids; grid; grid = grid->next) {
        put_grid(out, grid, columns);
        sl_text_printf(out, "\n");
    }
}
