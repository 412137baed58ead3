/*
 * Charts for tables of any kind, chosen by the columns of the table:
 *
 *   - rates of arithmetic and of bytes in the same row (units FLOP/s and B/s): a roofline
 *   - a first whole-number column with three or more values, that others follow: lines over it, one for each column of the same
 *     unit, or one for each combination of the text columns where the numbers repeat. Where two such columns vary, a grid, lines go over
 *     the one with more values, and the other is held at one of its own
 *   - otherwise: bars of the first column with a unit, beside the names in the text columns
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/panel_charts.h"

void sl_table_short_name(const sl_table_column *column, char out[64])
{
    snprintf(out, 64, "%s", column->name);
    size_t unit = strlen(column->unit), name = strlen(out);
    if (unit && name > unit + 1 && out[name - unit - 1] == '_' && strcasecmp(out + name - unit, column->unit) == 0)
        out[name - unit - 1] = 0;
    for (char *at = out; *at; at++)
        *at = *at == '_' ? ' ' : *at;
}

static double scale_of_unit(const char *unit, const char *ends)
{
    static const struct {
        const char *letter;
        double scale;
    } letters[] = {{"T", 1e12}, {"G", 1e9}, {"M", 1e6}, {"k", 1e3}, {"", 1}};
    for (int64_t i = 0; i < SL_COUNT(letters); i++) {
        char whole[32];
        snprintf(whole, sizeof whole, "%s%s", letters[i].letter, ends);
        if (strcmp(unit, whole) == 0)
            return letters[i].scale;
    }
    return 0;
}

static int64_t find_rate(const sl_grid *g, const char *ends, double *scale)
{
    for (int64_t c = 0; c < g->n_columns; c++) {
        *scale = scale_of_unit(g->columns[c].unit, ends);
        if (g->columns[c].numeric && *scale > 0)
            return c;
    }
    return -1;
}

/* Does the column say the same in every row? */
static bool is_constant(const sl_grid *g, int64_t c)
{
    for (int64_t row = 1; row < g->n_rows; row++)
        if (strcmp(sl_grid_text(g, row, c), sl_grid_text(g, 0, c)) != 0 ||
            (g->columns[c].numeric && sl_grid_number(g, row, c) != sl_grid_number(g, 0, c)))
            return false;
    return true;
}

void sl_table_row_texts(const sl_grid *g, int64_t row, int64_t end, bool numbers, char out[96])
{
    size_t length = 0;
    char name[64], number[32];
    out[0] = 0;
    for (int64_t c = 0; c < end && length < 80; c++) {
        const char *text = sl_grid_text(g, row, c);
        bool count = g->columns[c].numeric && numbers;
        if ((g->columns[c].numeric && !count) || (g->n_rows > 1 && is_constant(g, c)) || strlen(text) > 40)
            continue;
        sl_table_short_name(&g->columns[c], name);
        int wrote = count ? snprintf(out + length, 96 - length, "%s%s %s", length ? " " : "", name,
                                     sl_show(sl_grid_number(g, row, c), number))
                          : snprintf(out + length, 96 - length, "%s%s", length && *text ? " " : "", text);
        length += (size_t) SL_MAX(wrote, 0);
    }
}

void sl_table_row_label(const sl_grid *g, int64_t row, int64_t end, bool numbers, char out[96])
{
    sl_table_row_texts(g, row, end, numbers, out);
    if (!out[0])
        snprintf(out, 96, "row %lld", (long long) row + 1);
}

int64_t sl_table_first_measured(const sl_grid *g)
{
    int64_t c = 0;
    while (c < g->n_columns && !(g->columns[c].numeric && *g->columns[c].unit))
        c++;
    return c;
}

/* ---- roofline ---- */

/* What the table itself says the roof is, by a column of percentages of it: the widest band of rows without arithmetic, and the
 * highest roof above one with. */
static void roof_of_rows(const sl_grid *g, int64_t flops, double flop_scale, int64_t bytes, double byte_scale,
                         double *peak, double *width)
{
    int64_t percent = sl_grid_find(g, "roofline_percent");
    *peak = *width = 0;
    for (int64_t row = 0; row < g->n_rows; row++) {
        double share = sl_grid_number(g, row, percent) / 100, rate = sl_grid_number(g, row, flops) * flop_scale;
        double moved = sl_grid_number(g, row, bytes) * byte_scale;
        if (!(share > 0))
            continue;
        if (rate > 0)
            *peak = fmax(*peak, rate / share);
        else if (moved > 0)
            *width = fmax(*width, moved / share);
    }
}

static const char *row_color(const sl_grid *g, int64_t row, const char *op)
{
    int64_t at = sl_grid_find(g, "category");
    return sl_category_color(at >= 0 ? sl_grid_text(g, row, at) : sl_op_category(op));
}

static double first_fact(const sl_tables *t, const char *const *keys, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        double value = sl_tables_fact(t, keys[i]);
        if (value > 0)
            return value;
    }
    return 0;
}

static bool draw_roofline(sl_text *out, const sl_tables *t, const sl_grid *g, int number)
{
    static const char *const peaks[] = {"peak_flops", "peak_flops_bf16", "peak_flops_f32"};
    static const char *const widths[] = {"memory_bandwidth", "device_memory_bandwidth"};
    double flop_scale, byte_scale, best_rate = 0, best_bytes = 0;
    int64_t flops = find_rate(g, "FLOP/s", &flop_scale), bytes = find_rate(g, "B/s", &byte_scale);
    char id[32], title[160], sub[320], a[64], b[64];
    sl_roof_point *points;
    char(*names)[96];
    int n = 0;
    if (flops < 0 || bytes < 0 || g->n_rows == 0)
        return false;
    if (sl_alloc(&points, SL_MOST_POINTS, sizeof *points) != SL_OK ||
        sl_alloc(&names, SL_MOST_POINTS, sizeof *names) != SL_OK) {
        sl_free(points);
        out->failed = true;
        return true;
    }
    for (int64_t row = 0; row < g->n_rows && n < SL_MOST_POINTS; row++) {
        double rate = sl_grid_number(g, row, flops) * flop_scale, moved = sl_grid_number(g, row, bytes) * byte_scale;
        if (!(rate > 0 && moved > 0))
            continue;
        const char *op = sl_grid_text(g, row, sl_grid_find(g, "op"));
        if (*op)
            snprintf(names[n], sizeof names[n], "%.60s %.20s", op, sl_grid_text(g, row, sl_grid_find(g, "dtype")));
        else
            sl_table_row_label(g, row, g->n_columns, false, names[n]);
        points[n] = (sl_roof_point){names[n], row_color(g, row, op), rate / moved, rate, 0};
        best_rate = fmax(best_rate, rate);
        best_bytes = fmax(best_bytes, moved);
        n++;
    }
    double peak = first_fact(t, peaks, SL_COUNT(peaks)), width = first_fact(t, widths, SL_COUNT(widths));
    if (!(peak > 0 && width > 0))
        roof_of_rows(g, flops, flop_scale, bytes, byte_scale, &peak, &width);
    bool known = peak > 0 && width > 0;
    if (n > 0) {
        snprintf(id, sizeof id, "roofline-%d", number);
        snprintf(title, sizeof title, "Roofline: the best kernel reaches %s", sl_show_rate(best_rate, "FLOP/s", a));
        snprintf(sub, sizeof sub,
                 known ? "The roof is what the machine can do: %s and %s."
                       : "The file tells no peaks, so the roof is drawn through the best that was measured: %sFLOP/s "
                         "and %sB/s.",
                 sl_show_rate(known ? peak : best_rate, "FLOP/s", a),
                 sl_show_rate(known ? width : best_bytes, "B/s", b));
        sl_panel_roof(out, id, sub, &(sl_roof){title, known ? peak : best_rate, known ? width : best_bytes, points, n});
    }
    sl_free(names);
    sl_free(points);
    return n > 0;
}

/* ---- bars ---- */

static void draw_bars(sl_text *out, const sl_grid *g, int number)
{
    sl_bar bars[SL_MOST_BARS];
    char names[SL_MOST_BARS][96], id[32], title[256], metric[64];
    int64_t c = sl_table_first_measured(g), n = 0;
    bool named = false;
    for (int64_t i = 0; i < g->n_columns; i++)
        named = named || !g->columns[i].numeric;
    if (c == g->n_columns || !named || g->n_rows < 2 || g->n_rows > SL_MOST_BARS)
        return;
    for (int64_t row = 0; row < g->n_rows; row++) {
        double value = sl_grid_number(g, row, c);
        if (!isfinite(value))
            continue;
        sl_table_row_label(g, row, c, true, names[n]);
        bars[n] = (sl_bar){names[n], "s0", value};
        n++;
    }
    if (n < 2)
        return;
    sl_table_short_name(&g->columns[c], metric);
    snprintf(id, sizeof id, "bars-%d", number);
    snprintf(title, sizeof title, "%.120s: %s", g->title ? g->title : g->name, metric);
    sl_quantity quantity = sl_unit_quantity(g->columns[c].unit);
    sl_panel_begin(out, id, true, title, NULL);
    sl_draw_twice(out, sl_draw_bars,
                  &(sl_bars){title, quantity == SL_PLAIN ? g->columns[c].unit : "", quantity, bars, (int) n}, SL_FULL);
    sl_panel_end(out);
}

void sl_panel_charts(sl_text *out, const sl_tables *t, const sl_grid *g, int number)
{
    if (!draw_roofline(out, t, g, number) && !sl_draw_table_lines(out, t, g, number))
        draw_bars(out, g, number);
}
