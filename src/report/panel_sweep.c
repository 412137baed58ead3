/*
 * A sweep's cells as heat maps: host memory upwards, device memory to the right, one map for each figure, one set for each model and
 * sequence length. Cells that do not fit, or have not been reached yet, are empty.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/stats.h"
#include "report/panels.h"

enum { MOST_SIDE = 64, MOST_LINES = 8, MOST_GROUPS = 24, WIDE_FROM = 14 };

/* One model at one sequence length. */
typedef struct group {
    const sl_grid *grid;
    const char *model;
    double seqlen;
    double device[MOST_SIDE], host[MOST_SIDE];
    int n_device, n_host;
    int64_t model_at, seqlen_at, device_at, host_at;
} group;

static bool is_member(const group *g, int64_t row)
{
    return strcmp(sl_grid_text(g->grid, row, g->model_at), g->model) == 0 &&
           sl_grid_number(g->grid, row, g->seqlen_at) == g->seqlen;
}

/* Budgets; not limited is null in the file and infinite here. */
static double budget(const sl_grid *grid, int64_t row, int64_t column)
{
    double bytes = sl_grid_number(grid, row, column);
    return isfinite(bytes) ? bytes : (double) INFINITY;
}

static void add_value(double *values, int *n, double value)
{
    for (int i = 0; i < *n; i++)
        if (values[i] == value)
            return;
    if (*n < MOST_SIDE)
        values[(*n)++] = value;
}

static void find_sides(group *g)
{
    for (int64_t row = 0; row < g->grid->n_rows; row++)
        if (is_member(g, row)) {
            add_value(g->device, &g->n_device, budget(g->grid, row, g->device_at));
            add_value(g->host, &g->n_host, budget(g->grid, row, g->host_at));
        }
    qsort(g->device, (size_t) g->n_device, sizeof *g->device, sl_ascending);
    qsort(g->host, (size_t) g->n_host, sizeof *g->host, sl_ascending);
}

static int index_of(const double *values, int n, double value)
{
    for (int i = 0; i < n; i++)
        if (values[i] == value)
            return i;
    return -1;
}

/* Names along a side: in the unit of the axis, without it. */
static void name_side(const double *values, int n, const char **unit, char (*text)[32], const char **names)
{
    double largest = 0;
    for (int i = 0; i < n; i++)
        largest = isfinite(values[i]) ? fmax(largest, values[i]) : largest;
    double factor = sl_axis_unit(largest, SL_BYTES, unit);
    for (int i = 0; i < n; i++) {
        if (isfinite(values[i]))
            sl_show_short(values[i] * factor, text[i]);
        else
            strcpy(text[i], "∞");
        names[i] = text[i];
    }
}

static void draw_map(sl_text *out, const group *g, const char *column, const char *what, sl_quantity quantity,
                     const char *id)
{
    int64_t at = sl_grid_find(g->grid, column);
    char x_text[MOST_SIDE][32], y_text[MOST_SIDE][32], x_label[64], y_label[64], title[160], best[32], where[2][32];
    const char *x_names[MOST_SIDE], *y_names[MOST_SIDE], *unit;
    double values[MOST_SIDE * MOST_SIDE], host[MOST_SIDE];
    int64_t top = -1;
    if (at < 0)
        return;
    for (int i = 0; i < g->n_host; i++) /* the largest host memory on top */
        host[i] = g->host[g->n_host - 1 - i];
    for (int i = 0; i < g->n_device * g->n_host; i++)
        values[i] = (double) NAN;
    for (int64_t row = 0; row < g->grid->n_rows; row++) {
        if (!is_member(g, row))
            continue;
        int x = index_of(g->device, g->n_device, budget(g->grid, row, g->device_at));
        int y = index_of(host, g->n_host, budget(g->grid, row, g->host_at));
        double value = sl_grid_number(g->grid, row, at);
        if (x < 0 || y < 0)
            continue;
        values[y * g->n_device + x] = value;
        if (isfinite(value) && (top < 0 || value > sl_grid_number(g->grid, top, at)))
            top = row;
    }
    name_side(g->device, g->n_device, &unit, x_text, x_names);
    snprintf(x_label, sizeof x_label, "device memory (%s)", unit);
    name_side(host, g->n_host, &unit, y_text, y_names);
    snprintf(y_label, sizeof y_label, "host memory (%s)", unit);
    if (top >= 0)
        snprintf(title, sizeof title, "%s: best %s (%s device, %s host)", what,
                 sl_show_as(sl_grid_number(g->grid, top, at), quantity, best),
                 sl_show_budget(budget(g->grid, top, g->device_at), where[0]),
                 sl_show_budget(budget(g->grid, top, g->host_at), where[1]));
    else
        snprintf(title, sizeof title, "%s: no cell fits", what);
    sl_panel_begin(out, id, g->n_device > WIDE_FROM, title, NULL);
    sl_draw_twice(out, sl_draw_heat,
                  &(sl_heat){title, x_label, y_label, x_names, y_names, values, g->n_device, g->n_host, quantity},
                  g->n_device > WIDE_FROM ? SL_FULL : SL_HALF);
    sl_panel_end(out);
}

/* Speed over device memory, a line for each host memory: where more memory stops helping. */
static void draw_curves(sl_text *out, const group *g, const char *id)
{
    double x[MOST_LINES][MOST_SIDE], y[MOST_LINES][MOST_SIDE];
    char names[MOST_LINES][48], bytes[32];
    sl_series series[MOST_LINES];
    int64_t at = sl_grid_find(g->grid, "tokens_per_s");
    int n = 0, every = SL_DIV_UP(g->n_host, MOST_LINES);
    if (at < 0 || g->n_device < 3)
        return;
    for (int h = g->n_host - 1; h >= 0 && n < MOST_LINES; h -= SL_MAX(every, 1)) {
        int64_t points = 0;
        for (int d = 0; d < g->n_device; d++)
            for (int64_t row = 0; row < g->grid->n_rows; row++)
                if (is_member(g, row) && budget(g->grid, row, g->device_at) == g->device[d] &&
                    budget(g->grid, row, g->host_at) == g->host[h] && isfinite(sl_grid_number(g->grid, row, at)) &&
                    isfinite(g->device[d])) {
                    x[n][points] = g->device[d];
                    y[n][points++] = sl_grid_number(g->grid, row, at);
                    break;
                }
        if (points == 0)
            continue;
        snprintf(names[n], sizeof names[n], "%s host", sl_show_budget(g->host[h], bytes));
        series[n] = (sl_series){
            .name = names[n], .color = sl_series_color(n), .x = x[n], .y = y[n], .n = points, .dash = n % SL_DASHES};
        n++;
    }
    if (n == 0)
        return;
    sl_panel_lines(out, id, true, "Speed over device memory: where a line is flat, more memory brings nothing", NULL,
                   &(sl_lines){.name = "Speed over device memory",
                               .x_label = "device memory",
                               .y_label = "tokens per second",
                               .x_quantity = SL_BYTES,
                               .zero_y = true,
                               .series = series,
                               .n_series = n});
}

static void draw_tiles(sl_text *out, const group *g)
{
    int64_t at = sl_grid_find(g->grid, "tokens_per_s"), mfu = sl_grid_find(g->grid, "mfu"), n = 0, fits = 0, best = -1,
            least = -1;
    char text[32], note[96], a[32], b[32];
    for (int64_t row = 0; row < g->grid->n_rows; row++) {
        if (!is_member(g, row))
            continue;
        n++;
        if (!isfinite(sl_grid_number(g->grid, row, at)))
            continue;
        fits++;
        if (best < 0 || sl_grid_number(g->grid, row, at) > sl_grid_number(g->grid, best, at))
            best = row;
        double device = budget(g->grid, row, g->device_at),
               smallest = least < 0 ? 0 : budget(g->grid, least, g->device_at);
        if (least < 0 || device < smallest ||
            (device == smallest && sl_grid_number(g->grid, row, at) > sl_grid_number(g->grid, least, at)))
            least = row;
    }
    sl_text_printf(out, "<div class=\"tiles\">");
    snprintf(note, sizeof note, "of %lld cells", (long long) n);
    sl_tile(out, "fits", sl_show((double) fits, text), "cells that fit", note);
    if (best >= 0) {
        snprintf(note, sizeof note, "%s device, %s host", sl_show_as(budget(g->grid, best, g->device_at), SL_BYTES, a),
                 sl_show_as(budget(g->grid, best, g->host_at), SL_BYTES, b));
        sl_tile(out, "best", sl_show(sl_grid_number(g->grid, best, at), text), "tokens/s at best", note);
        sl_tile(out, "mfu", sl_show_as(sl_grid_number(g->grid, best, mfu), SL_SHARE, text), "MFU at best", NULL);
        sl_tile(out, "least", sl_show_as(budget(g->grid, least, g->device_at), SL_BYTES, text),
                "least device memory that fits", NULL);
        snprintf(note, sizeof note, "%s of the best",
                 sl_show_as(sl_grid_number(g->grid, least, at) / sl_grid_number(g->grid, best, at), SL_SHARE, a));
        sl_tile(out, "slowest", sl_show(sl_grid_number(g->grid, least, at), text), "tokens/s there", note);
    }
    sl_text_printf(out, "</div>\n");
}

static void draw_group(sl_text *out, const group *g, int number)
{
    static const struct {
        const char *column, *what;
        sl_quantity quantity;
    } maps[] = {{"tokens_per_s", "Tokens per second", SL_PLAIN},
                {"tflops", "TFLOP/s", SL_PLAIN},
                {"mfu", "MFU", SL_SHARE},
                {"hfu", "HFU", SL_SHARE}};
    char title[160], text[32], id[48];
    snprintf(title, sizeof title, "%.80s at %s tokens", g->model, sl_show(g->seqlen, text));
    sl_html_in(out, "<h2 class=\"group\">", title, "</h2>\n");
    draw_tiles(out, g);
    sl_text_printf(out, "<div class=\"panels\">");
    for (int64_t i = 0; i < SL_COUNT(maps); i++) {
        snprintf(id, sizeof id, "heat-%s-%d", maps[i].column, number);
        draw_map(out, g, maps[i].column, maps[i].what, maps[i].quantity, id);
    }
    snprintf(id, sizeof id, "speed-%d", number);
    draw_curves(out, g, id);
    sl_text_printf(out, "</div>\n");
}

void sl_panels_sweep(sl_text *out, const sl_grid *grid)
{
    int64_t model = sl_grid_find(grid, "model"), seqlen = sl_grid_find(grid, "seqlen");
    int64_t device = sl_grid_find(grid, "device_budget_bytes"), host = sl_grid_find(grid, "host_budget_bytes");
    int number = 1;
    if (model < 0 || seqlen < 0 || device < 0 || host < 0)
        return;
    for (int64_t row = 0; row < grid->n_rows && number <= MOST_GROUPS; row++) {
        group g = {.grid = grid,
                   .model = sl_grid_text(grid, row, model),
                   .seqlen = sl_grid_number(grid, row, seqlen),
                   .model_at = model,
                   .seqlen_at = seqlen,
                   .device_at = device,
                   .host_at = host};
        bool seen = !isfinite(g.seqlen);
        for (int64_t before = 0; before < row && !seen; before++)
            seen = is_member(&g, before);
        if (seen)
            continue;
        find_sides(&g);
        draw_group(out, &g, number++);
    }
}
