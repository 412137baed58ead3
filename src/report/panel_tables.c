/* Tables as they are: every row of a bench or sweep, in a container that scrolls on its own. Numbers stand right, aligned by their
 * last digit; the longest bar of a column is its largest number. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/panels.h"

enum { MOST_ROWS = 2000, TALL_FROM = 40 };

const char *sl_series_color(int64_t i)
{
    static const char *const colors[] = {"s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"};
    return colors[i % SL_COUNT(colors)];
}

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), tail = strlen(end);
    return tail > 0 && length > tail && name[length - tail - 1] == '_' && strcasecmp(name + length - tail, end) == 0;
}

/* A unit that the name repeats is printed once: "mean_us" in us -> "mean us", "device_peak_bytes" in B -> "device
 * peak", whose numbers carry theirs. */
static void heading(sl_text *out, const sl_table_column *column)
{
    bool bytes = strcmp(column->unit, "B") == 0, share = strcmp(column->unit, "share") == 0;
    const char *told = bytes ? "bytes" : share ? "fraction" : column->unit;
    char name[128];
    snprintf(name, sizeof name, "%s", column->name);
    if (ends_with(name, told))
        name[strlen(name) - strlen(told) - 1] = 0;
    else if (strcasecmp(name, told) == 0)
        name[0] = 0;
    for (char *at = name; *at; at++)
        *at = *at == '_' ? ' ' : *at;
    sl_html(out, name);
    if (*column->unit && !bytes && !share) {
        sl_text_printf(out, *name ? " <small>" : "<small>");
        sl_html(out, column->unit);
        sl_text_printf(out, "</small>");
    }
}

sl_quantity sl_unit_quantity(const char *unit)
{
    return strcmp(unit, "B") == 0 || strcmp(unit, "bytes") == 0 ? SL_BYTES
           : strcmp(unit, "share") == 0                         ? SL_SHARE
                                                                : SL_PLAIN;
}

static void show_cell(sl_text *out, const sl_cell_value *cell, const sl_table_column *column)
{
    char text[32];
    if (cell->kind == SL_VALUE_TEXT)
        sl_html(out, cell->text);
    else
        sl_text_printf(out, "%s", sl_show_as(cell->number, sl_unit_quantity(column->unit), text));
}

static void draw_table(sl_text *out, const sl_grid *grid, bool key)
{
    sl_text_printf(out, "<div class=\"scroll%s\"><table><thead><tr>", grid->n_rows > TALL_FROM ? " tall" : "");
    for (int64_t c = 0; c < grid->n_columns; c++) {
        if (!key && strcmp(grid->columns[c].name, "cell") == 0)
            continue;
        sl_text_printf(out, grid->columns[c].numeric ? "<th class=\"n\">" : "<th>");
        heading(out, &grid->columns[c]);
        sl_text_printf(out, "</th>");
    }
    sl_text_printf(out, "</tr></thead><tbody>\n");
    for (int64_t row = 0; row < grid->n_rows && row < MOST_ROWS; row++) {
        sl_text_printf(out, "<tr>");
        for (int64_t c = 0; c < grid->n_columns; c++) {
            if (!key && strcmp(grid->columns[c].name, "cell") == 0)
                continue;
            sl_text_printf(out, grid->columns[c].numeric ? "<td class=\"n\">" : "<td>");
            show_cell(out, sl_grid_cell(grid, row, c), &grid->columns[c]);
            sl_text_printf(out, "</td>");
        }
        sl_text_printf(out, "</tr>\n");
    }
    sl_html_table_end(out);
    if (grid->n_rows > MOST_ROWS)
        sl_text_printf(out, "<p class=\"sub\">The first %d of %lld rows; --csv writes all of them.</p>\n", MOST_ROWS,
                       (long long) grid->n_rows);
}

void sl_panel_grid(sl_text *out, const sl_grid *grid, int number)
{
    char id[32], sub[64];
    snprintf(id, sizeof id, "table-%d", number);
    snprintf(sub, sizeof sub, "%lld row%s.", (long long) grid->n_rows, grid->n_rows == 1 ? "" : "s");
    sl_panel_begin(out, id, true, grid->title ? grid->title : grid->name, sub);
    draw_table(out, grid, false);
    sl_panel_end(out);
}

static void draw_facts(sl_text *out, const sl_tables *t)
{
    char text[32];
    if (t->n_facts == 0)
        return;
    sl_panel_begin(out, "facts", true,
                   strcmp(t->kind, "sweep") == 0 ? "What was asked" : "The machine and the measurement", NULL);
    sl_text_printf(out, "<dl class=\"facts\">");
    for (int64_t i = 0; i < t->n_facts; i++) {
        const sl_fact *fact = &t->facts[i];
        if (strcmp(fact->key, "event") == 0 || strcmp(fact->key, "t") == 0)
            continue;
        sl_text_printf(out, "<div><dt>");
        heading(out, &(sl_table_column){fact->key, "", false});
        sl_text_printf(out, "</dt><dd>");
        if (fact->value.kind == SL_VALUE_TEXT)
            sl_html(out, fact->value.text);
        else
            sl_text_printf(out, "%s", sl_show(fact->value.number, text));
        sl_text_printf(out, "</dd></div>");
    }
    sl_text_printf(out, "</dl>\n");
    sl_panel_end(out);
}

static void draw_notes(sl_text *out, const sl_tables *t)
{
    if (t->n_notes == 0)
        return;
    sl_panel_begin(out, "notes", true, "Notes", NULL);
    sl_text_printf(out, "<ul class=\"notes\">");
    for (int64_t i = 0; i < t->n_notes; i++) {
        sl_html_in(out, "<li>", t->notes[i], "</li>");
    }
    sl_text_printf(out, "</ul>\n");
    sl_panel_end(out);
}

void sl_panels_tables(sl_text *out, const sl_tables *t)
{
    bool sweep = strcmp(t->kind, "sweep") == 0;
    int number = 1;
    for (const sl_grid *grid = t->grids; grid && sweep; grid = grid->next)
        sl_panels_sweep(out, grid);
    sl_text_printf(out, "<div class=\"panels\">");
    for (const sl_grid *grid = t->grids; grid; grid = grid->next, number++) {
        if (!sweep)
            sl_panel_charts(out, t, grid, number);
        sl_panel_grid(out, grid, number);
    }
    draw_notes(out, t);
    draw_facts(out, t);
    sl_text_printf(out, "</div>\n");
}
