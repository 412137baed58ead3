/*
 * Charts for tables nobody has told us about. What a table is about shows in its columns:
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

#include "report/panels.h"

enum { MOST_SERIES = 8, MOST_BARS = 24, MOST_POINTS = 400, MOST_VALUES = 64 };

/* "attention_gflop" in "GFLOP" -> "attention": the unit is told once. */
static void short_name(const sl_table_column *column, char out[64])
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

/* What a row is about: the texts that stand before column `end` and, if `numbers`, the counts among them ("dim 64"). What is the
 * same in all rows tells none apart. */
static void row_texts(const sl_grid *g, int64_t row, int64_t end, bool numbers, char out[96])
{
    size_t length = 0;
    char name[64], number[32];
    out[0] = 0;
    for (int64_t c = 0; c < end && length < 80; c++) {
        const char *text = sl_grid_text(g, row, c);
        bool count = g->columns[c].numeric && numbers;
        if ((g->columns[c].numeric && !count) || (g->n_rows > 1 && is_constant(g, c)) || strlen(text) > 40)
            continue;
        short_name(&g->columns[c], name);
        int wrote = count ? snprintf(out + length, 96 - length, "%s%s %s", length ? " " : "", name,
                                     sl_show(sl_grid_number(g, row, c), number))
                          : snprintf(out + length, 96 - length, "%s%s", length && *text ? " " : "", text);
        length += (size_t) SL_MAX(wrote, 0);
    }
}

static void row_label(const sl_grid *g, int64_t row, int64_t end, bool numbers, char out[96])
{
    row_texts(g, row, end, numbers, out);
    if (!out[0])
        snprintf(out, 96, "row %lld", (long long) row + 1);
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

static const char *category_color(const sl_grid *g, int64_t row, const char *op)
{
    int64_t at = sl_grid_find(g, "category");
    const char *category = at >= 0 ? sl_grid_text(g, row, at) : sl_op_category(op);
    return strcmp(category, "dot-product") == 0 || strcmp(category, "attention") == 0 ? "g-product"
           : strcmp(category, "reduction") == 0                                       ? "g-reduction"
                                                                                      : "g-elementwise";
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
    if (sl_alloc(&points, MOST_POINTS, sizeof *points) != SL_OK ||
        sl_alloc(&names, MOST_POINTS, sizeof *names) != SL_OK) {
        sl_free(points);
        out->failed = true;
        return true;
    }
    for (int64_t row = 0; row < g->n_rows && n < MOST_POINTS; row++) {
        double rate = sl_grid_number(g, row, flops) * flop_scale, moved = sl_grid_number(g, row, bytes) * byte_scale;
        if (!(rate > 0 && moved > 0))
            continue;
        const char *op = sl_grid_text(g, row, sl_grid_find(g, "op"));
        if (*op)
            snprintf(names[n], sizeof names[n], "%.60s %.20s", op, sl_grid_text(g, row, sl_grid_find(g, "dtype")));
        else
            row_label(g, row, g->n_columns, false, names[n]);
        points[n] = (sl_roof_point){names[n], category_color(g, row, op), rate / moved, rate, 0};
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
        sl_panel_begin(out, id, true, title, sub);
        sl_roof_legend(out, points, n);
        sl_draw_twice(out, sl_draw_roof,
                      &(sl_roof){title, known ? peak : best_rate, known ? width : best_bytes, points, n}, SL_FULL);
        sl_panel_end(out);
    }
    sl_free(names);
    sl_free(points);
    return n > 0;
}

/* ---- lines ---- */

/* Has every row a text of its own in this column? Then it names the rows, and numbers behind it are theirs. */
static bool names_rows(const sl_grid *g, int64_t c)
{
    if (g->columns[c].numeric || g->n_rows > MOST_BARS)
        return false;
    for (int64_t row = 1; row < g->n_rows; row++)
        for (int64_t before = 0; before < row; before++)
            if (strcmp(sl_grid_text(g, row, c), sl_grid_text(g, before, c)) == 0)
                return false;
    return true;
}

/* Does a value of x come twice? Then the text columns tell the lines apart. */
static bool repeats(const sl_grid *g, int64_t x)
{
    for (int64_t row = 1; row < g->n_rows; row++)
        if (!(sl_grid_number(g, row, x) > sl_grid_number(g, row - 1, x)))
            return true;
    return false;
}

/* How many different values a column of whole numbers has, and the middle one of them; 0: it holds others too. */
static int64_t distinct_values(const sl_grid *g, int64_t c, double *middle)
{
    double values[MOST_VALUES];
    int64_t n = 0;
    for (int64_t row = 0; row < g->n_rows; row++) {
        double value = sl_grid_number(g, row, c);
        int64_t at = 0;
        if (!isfinite(value) || value != floor(value) || value < 0)
            return 0;
        while (at < n && values[at] < value)
            at++;
        if (at < n && values[at] == value)
            continue;
        if (n == MOST_VALUES) {
            *middle = values[n / 2];
            return n + 1;
        }
        memmove(values + at + 1, values + at, (size_t) (n - at) * sizeof *values);
        values[at] = value;
        n++;
    }
    *middle = n ? values[n / 2] : 0;
    return n;
}

/* Are there two rows of the same name, by the texts before column `end`, at the same x? */
static bool is_ambiguous(const sl_grid *g, int64_t x, int64_t end)
{
    char(*names)[96];
    bool twice = false;
    if (g->n_rows > MOST_POINTS || sl_alloc(&names, g->n_rows, sizeof *names) != SL_OK)
        return false;
    for (int64_t row = 0; row < g->n_rows; row++) {
        row_texts(g, row, end, false, names[row]);
        for (int64_t before = 0; before < row && !twice; before++)
            twice = sl_grid_number(g, row, x) == sl_grid_number(g, before, x) && strcmp(names[row], names[before]) == 0;
    }
    sl_free(names);
    return twice;
}

/* Along which column a table is walked, and what else is counted, held at one value. */
typedef struct walk {
    int64_t x, held; /* -1: none */
    double at;
} walk;

/* Both of a grid's: the one with more values becomes x. */
static walk walk_grid(const sl_grid *g, int64_t first, int64_t end)
{
    walk w = {first, -1, 0};
    double first_middle, middle;
    int64_t most = distinct_values(g, first, &first_middle);
    for (int64_t c = first + 1; c < end && w.held < 0; c++) {
        int64_t distinct = g->columns[c].numeric ? distinct_values(g, c, &middle) : 0;
        if (distinct < 2 || !is_ambiguous(g, first, end))
            continue;
        w = distinct > most ? (walk){c, first, first_middle} : (walk){first, c, middle};
    }
    return w;
}

static int64_t first_measured(const sl_grid *g)
{
    int64_t c = 0;
    while (c < g->n_columns && !(g->columns[c].numeric && *g->columns[c].unit))
        c++;
    return c;
}

static walk find_walk(const sl_grid *g)
{
    int64_t patches = sl_grid_find(g, "patches"), end = first_measured(g);
    double middle;
    if (patches >= 0 && g->columns[patches].numeric)
        return (walk){patches, -1, 0};
    for (int64_t c = 0; c < g->n_columns; c++)
        if (strncmp(g->columns[c].name, "time", 4) == 0 && g->columns[c].numeric && g->n_rows > 2 && !repeats(g, c))
            return (walk){c, -1, 0}; /* something over time */
    for (int64_t c = 0; c < SL_MIN(end + 1, g->n_columns);
         c++) { /* a measured column may be walked along, none behind it */
        if (names_rows(g, c))
            break;
        if (g->columns[c].numeric && distinct_values(g, c, &middle) >= 3)
            return walk_grid(g, c, end);
    }
    return (walk){-1, -1, 0};
}

typedef struct line_set {
    char names[MOST_SERIES][96];
    double *x[MOST_SERIES], *y[MOST_SERIES];
    int64_t count[MOST_SERIES], room; /* points of each, and what there is place for */
    int n;
    bool many; /* more than can be told apart */
} line_set;

static void free_set(line_set *set)
{
    for (int i = 0; i < set->n; i++) {
        sl_free(set->x[i]);
        sl_free(set->y[i]);
    }
}

static int add_line(line_set *set, const char *name)
{
    for (int i = 0; i < set->n; i++)
        if (strcmp(set->names[i], name) == 0)
            return i;
    if (set->n == MOST_SERIES) {
        set->many = true;
        return -1;
    }
    if (sl_alloc(&set->x[set->n], set->room, sizeof(double)) != SL_OK)
        return -1;
    if (sl_alloc(&set->y[set->n], set->room, sizeof(double)) != SL_OK) {
        sl_free(set->x[set->n]);
        return -1;
    }
    snprintf(set->names[set->n], sizeof set->names[0], "%.95s", name);
    return set->n++;
}

static void add_point(line_set *set, int line, double x, double y)
{
    if (line < 0 || set->count[line] == set->room) /* columns of the same name */
        return;
    set->x[line][set->count[line]] = x;
    set->y[line][set->count[line]++] = y;
}

static void collect(const sl_grid *g, const walk *w, int64_t first, line_set *set)
{
    const int64_t x = w->x;
    bool by_text = repeats(g, x);
    set->room = g->n_rows;
    for (int64_t c = first; c < g->n_columns; c++) {
        if (!g->columns[c].numeric || c == x || strcmp(g->columns[c].unit, g->columns[first].unit) != 0)
            continue;
        char name[96];
        short_name(&g->columns[c], name);
        for (int64_t row = 0; row < g->n_rows; row++) {
            if (by_text && w->held < 0)
                row_label(g, row, first, false, name);
            else if (by_text)
                row_texts(g, row, first, false, name);
            if (!name[0])
                short_name(&g->columns[c], name);
            if (w->held >= 0 && sl_grid_number(g, row, w->held) != w->at)
                continue;
            if (isfinite(sl_grid_number(g, row, c)))
                add_point(set, add_line(set, name), sl_grid_number(g, row, x), sl_grid_number(g, row, c));
        }
        if (by_text)
            return;
    }
}

static bool wide_range(double *const *values, const int64_t *counts, int n, double ratio)
{
    double low = (double) INFINITY, high = 0;
    for (int s = 0; s < n; s++)
        for (int64_t i = 0; i < counts[s]; i++) {
            if (!(values[s][i] > 0))
                return false;
            low = fmin(low, values[s][i]);
            high = fmax(high, values[s][i]);
        }
    return high > ratio * low;
}

typedef struct line_chart {
    line_set set;
    int64_t column; /* the first of those drawn */
} line_chart;

static void draw_chart(sl_text *out, const sl_grid *g, const walk *w, const line_chart *chart, const char *id,
                       bool full, bool flops)
{
    const int64_t x = w->x;
    const line_set *set = &chart->set;
    const sl_table_column *column = &g->columns[chart->column];
    sl_series series[MOST_SERIES];
    char x_name[64], y_name[64], held[64], value[32], label[128], title[256], sub[192];
    bool one = set->n == 1 || repeats(g, x); /* one column is drawn: it names the axis */
    short_name(&g->columns[x], x_name);
    short_name(column, y_name);
    for (int i = 0; i < set->n; i++)
        series[i] = (sl_series){set->names[i], sl_series_color(i), set->x[i], set->y[i], set->count[i], SL_LINE};
    snprintf(label, sizeof label, "%s%s%s", one ? y_name : "", one ? ", " : "", column->unit);
    snprintf(title, sizeof title, flops ? "FLOP scaling: %.150s" : "%.150s", g->title ? g->title : g->name);
    if (w->held >= 0) {
        short_name(&g->columns[w->held], held);
        snprintf(sub, sizeof sub, "With %s %s; the table has the others.", held, sl_show(w->at, value));
    }
    sl_panel_begin(out, id, full, title, w->held >= 0 ? sub : NULL);
    sl_legend_begin(out);
    for (int i = 0; i < set->n; i++)
        sl_legend_item(out, series[i].color, set->names[i]);
    sl_legend_end(out);
    sl_draw_twice(out, sl_draw_lines,
                  &(sl_lines){.name = title,
                              .x_label = x_name,
                              .y_label = label,
                              .log_x = wide_range(set->x, set->count, set->n, 12),
                              .log_y = wide_range(set->y, set->count, set->n, 40),
                              .zero_y = true,
                              .series = series,
                              .n_series = set->n},
                  full ? SL_FULL : SL_HALF);
    sl_panel_end(out);
}

/* Lines for the first two units that are measured, side by side; false: the table is not of that kind. */
static bool draw_lines(sl_text *out, const sl_tables *t, const sl_grid *g, int number)
{
    bool flops = strcmp(t->name, "flops") == 0;
    line_chart charts[2];
    int n = 0, most = flops ? 1 : 2;
    const walk w = find_walk(g);
    const char *last = "";
    if (w.x < 0)
        return false;
    for (int64_t c = 0; c < g->n_columns && n < most; c++) {
        const sl_table_column *column = &g->columns[c];
        bool clock =
            strcmp(g->columns[w.x].name, "action") == 0 && strncmp(column->name, "time", 4) == 0; /* says nothing */
        if (!column->numeric || c == w.x || !*column->unit || strcmp(column->unit, last) == 0 || clock)
            continue;
        charts[n] = (line_chart){.column = c};
        collect(g, &w, c, &charts[n].set);
        last = column->unit;
        if (charts[n].set.n > 0 && !charts[n].set.many)
            n++;
        else
            free_set(&charts[n].set);
    }
    for (int i = 0; i < n; i++) {
        char id[48];
        snprintf(id, sizeof id, flops && number == 1 ? "flop-scaling" : "lines-%d-%d", number, i + 1);
        draw_chart(out, g, &w, &charts[i], id, n == 1, flops);
        free_set(&charts[i].set);
    }
    return n > 0;
}

/* ---- bars ---- */

static void draw_bars(sl_text *out, const sl_grid *g, int number)
{
    sl_bar bars[MOST_BARS];
    char names[MOST_BARS][96], id[32], title[256], metric[64];
    int64_t c = first_measured(g), n = 0;
    bool named = false;
    for (int64_t i = 0; i < g->n_columns; i++)
        named = named || !g->columns[i].numeric;
    if (c == g->n_columns || !named || g->n_rows < 2 || g->n_rows > MOST_BARS)
        return;
    for (int64_t row = 0; row < g->n_rows; row++) {
        double value = sl_grid_number(g, row, c);
        if (!isfinite(value))
            continue;
        row_label(g, row, c, true, names[n]);
        bars[n] = (sl_bar){names[n], "s0", value};
        n++;
    }
    if (n < 2)
        return;
    short_name(&g->columns[c], metric);
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
    if (!draw_roofline(out, t, g, number) && !draw_lines(out, t, g, number))
        draw_bars(out, g, number);
}
