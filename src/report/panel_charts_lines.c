/* Lines over a column of counts: which column that is, which rows belong to one line, and what they are called. */
#include "report/panel_charts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_SERIES = 8, MOST_VALUES = 64 };

/* Has every row a text of its own in this column? Then it names the rows, and numbers behind it are theirs. */
static bool names_rows(const sl_grid *g, int64_t c)
{
    if (g->columns[c].numeric || g->n_rows > SL_MOST_BARS)
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

/* How many different values a column of whole numbers has (or MOST_VALUES, if more), and the middle one of them; 0: it holds others
 * too, or texts. */
static int64_t distinct_values(const sl_grid *g, int64_t c, double *middle)
{
    double values[MOST_VALUES];
    int64_t n = 0;
    for (int64_t row = 0; row < g->n_rows; row++) {
        double value = g->columns[c].numeric ? sl_grid_number(g, row, c) : (double) NAN;
        int64_t at = 0;
        if (!isfinite(value) || value != floor(value) || value < 0)
            return 0;
        while (at < n && values[at] < value)
            at++;
        if (n == MOST_VALUES || (at < n && values[at] == value))
            continue;
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
    if (g->n_rows > SL_MOST_POINTS || sl_alloc(&names, g->n_rows, sizeof *names) != SL_OK)
        return false;
    for (int64_t row = 0; row < g->n_rows; row++) {
        sl_table_row_texts(g, row, end, false, names[row]);
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
    if (!is_ambiguous(g, first, end))
        return w;
    for (int64_t c = first + 1; c < end && w.held < 0; c++) {
        int64_t distinct = distinct_values(g, c, &middle);
        if (distinct > 1)
            w = distinct > most ? (walk){c, first, first_middle} : (walk){first, c, middle};
    }
    return w;
}

static walk find_walk(const sl_grid *g)
{
    int64_t patches = sl_grid_find(g, "patches"), end = sl_table_first_measured(g);
    double middle;
    if (patches >= 0 && g->columns[patches].numeric)
        return (walk){patches, -1, 0};
    for (int64_t c = 0; c < g->n_columns; c++)
        if (strncmp(g->columns[c].name, "time", 4) == 0 && g->columns[c].numeric && g->n_rows > 2 && !repeats(g, c))
            return (walk){c, -1, 0}; /* something over time */
    /* A measured column may be walked along itself, none behind it. */
    for (int64_t c = 0; c <= end && c < g->n_columns && !names_rows(g, c); c++)
        if (distinct_values(g, c, &middle) >= 3)
            return walk_grid(g, c, end);
    return (walk){-1, -1, 0};
}

typedef struct line_set {
    char names[MOST_SERIES][96];
    double *x[MOST_SERIES], *y[MOST_SERIES];
    int64_t count[MOST_SERIES], room; /* points of each, and what there is place for */
    int n;
    bool many; /* more than can be distinguished */
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
        sl_table_short_name(&g->columns[c], name);
        for (int64_t row = 0; row < g->n_rows; row++) {
            if (by_text && w->held < 0)
                sl_table_row_label(g, row, first, false, name);
            else if (by_text)
                sl_table_row_texts(g, row, first, false, name);
            if (!name[0])
                sl_table_short_name(&g->columns[c], name);
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
    sl_table_short_name(&g->columns[x], x_name);
    sl_table_short_name(column, y_name);
    for (int i = 0; i < set->n; i++)
        series[i] = (sl_series){.name = set->names[i],
                                .color = sl_series_color(i),
                                .x = set->x[i],
                                .y = set->y[i],
                                .n = set->count[i],
                                .dash = i % SL_DASHES};
    snprintf(label, sizeof label, "%s%s%s", one ? y_name : "", one ? ", " : "", column->unit);
    snprintf(title, sizeof title, flops ? "FLOP scaling: %.150s" : "%.150s", g->title ? g->title : g->name);
    if (w->held >= 0) {
        sl_table_short_name(&g->columns[w->held], held);
        snprintf(sub, sizeof sub, "With %s %s; the table has the others.", held, sl_show(w->at, value));
    }
    sl_panel_lines(out, id, full, title, w->held >= 0 ? sub : NULL,
                   &(sl_lines){.name = title,
                               .x_label = x_name,
                               .y_label = label,
                               .log_x = wide_range(set->x, set->count, set->n, 12),
                               .log_y = wide_range(set->y, set->count, set->n, 40),
                               .zero_y = true,
                               .series = series,
                               .n_series = set->n});
}

bool sl_draw_table_lines(sl_text *out, const sl_tables *t, const sl_grid *g, int number)
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
