/* Tables: of bench and system files, whole at once, and of sweeps, a line at a time. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/input_internal.h"

enum { MOST_COLUMNS = 256, MOST_FACTS = 512 };

const sl_cell_value *sl_grid_cell(const sl_grid *grid, int64_t row, int64_t column)
{
    return &grid->cells[row * grid->n_columns + column];
}

int64_t sl_grid_find(const sl_grid *grid, const char *column)
{
    for (int64_t i = 0; i < grid->n_columns; i++)
        if (strcmp(grid->columns[i].name, column) == 0)
            return i;
    return -1;
}

double sl_grid_number(const sl_grid *grid, int64_t row, int64_t column)
{
    if (column < 0)
        return (double) NAN;
    const sl_cell_value *cell = sl_grid_cell(grid, row, column);
    return cell->kind == SL_VALUE_NUMBER ? cell->number : (double) NAN;
}

const char *sl_grid_text(const sl_grid *grid, int64_t row, int64_t column)
{
    if (column < 0)
        return "";
    const sl_cell_value *cell = sl_grid_cell(grid, row, column);
    return cell->kind == SL_VALUE_TEXT ? cell->text : "";
}

double sl_tables_fact(const sl_tables *tables, const char *key)
{
    for (int64_t i = 0; i < tables->n_facts; i++)
        if (strcmp(tables->facts[i].key, key) == 0 && tables->facts[i].value.kind == SL_VALUE_NUMBER)
            return tables->facts[i].value.number;
    return (double) NAN;
}

/* Numbers, texts, flags; what has parts of its own is left out of a cell. */
static sl_status read_value(sl_reading *r, const sl_json *value, sl_cell_value *out)
{
    *out = (sl_cell_value){.kind = SL_VALUE_NONE, .number = (double) NAN};
    if (!value)
        return SL_OK;
    switch (value->kind) {
    case SL_JSON_NUMBER:
        *out = (sl_cell_value){.kind = SL_VALUE_NUMBER, .number = value->number};
        return SL_OK;
    case SL_JSON_BOOL:
        *out = (sl_cell_value){.kind = SL_VALUE_TEXT, .number = (double) NAN, .text = value->boolean ? "yes" : "no"};
        return SL_OK;
    case SL_JSON_STRING:
        out->kind = SL_VALUE_TEXT;
        return sl_reading_keep(r, value->string, &out->text);
    default:
        return SL_OK;
    }
}

static sl_status read_columns(sl_reading *r, const sl_json *owner, sl_grid *grid)
{
    const sl_json *columns = sl_json_get(owner, "columns");
    int64_t at = 0;
    if (!columns || columns->kind != SL_JSON_ARRAY || columns->count == 0 || columns->count > MOST_COLUMNS)
        return sl_reading_fail(r, columns ? columns : owner, "\"columns\" must be an array of 1 to %d columns",
                               MOST_COLUMNS);
    SL_TRY(sl_region_alloc(r->input->region, &grid->columns, columns->count, sizeof *grid->columns));
    for (const sl_json *column = columns->child; column; column = column->next, at++) {
        sl_table_column *c = &grid->columns[at];
        *c = (sl_table_column){.name = "", .unit = ""};
        if (column->kind == SL_JSON_STRING) {
            SL_TRY(sl_reading_keep(r, column->string, &c->name));
            continue;
        }
        if (column->kind != SL_JSON_OBJECT)
            return sl_reading_fail(r, column, "a column must be {\"name\", \"unit\"}");
        SL_TRY(sl_reading_text(r, column, "name", &c->name));
        SL_TRY(sl_reading_text(r, column, "unit", &c->unit));
    }
    grid->n_columns = columns->count;
    return SL_OK;
}

/* An object by the columns' names, or an array in their order. */
static sl_status read_row(sl_reading *r, const sl_json *row, sl_grid *grid, sl_cell_value *cells)
{
    if (row->kind != SL_JSON_OBJECT && row->kind != SL_JSON_ARRAY)
        return sl_reading_fail(r, row, "a row must be an object or an array");
    if (row->kind == SL_JSON_ARRAY && row->count != grid->n_columns)
        return sl_reading_fail(r, row, "a row of %lld values under %lld columns", (long long) row->count,
                               (long long) grid->n_columns);
    const sl_json *next = row->child;
    for (int64_t i = 0; i < grid->n_columns; i++) {
        SL_TRY(read_value(r, row->kind == SL_JSON_ARRAY ? next : sl_json_get(row, grid->columns[i].name), &cells[i]));
        next = next ? next->next : NULL;
    }
    return SL_OK;
}

static sl_status append_grid(sl_reading *r, const sl_json *owner, const char *name, sl_grid **out)
{
    sl_grid *grid, **end = &r->input->tables->grids;
    SL_TRY(sl_region_alloc(r->input->region, &grid, 1, sizeof *grid));
    grid->name = name;
    SL_TRY(sl_reading_text(r, owner, "name", &grid->name));
    SL_TRY(sl_reading_text(r, owner, "title", &grid->title));
    SL_TRY(read_columns(r, owner, grid));
    while (*end)
        end = &(*end)->next;
    *end = grid;
    *out = grid;
    return SL_OK;
}

static sl_status read_grid(sl_reading *r, const sl_json *owner, const char *name)
{
    const sl_json *rows = sl_json_get(owner, "rows");
    sl_grid *grid;
    if (owner->kind != SL_JSON_OBJECT)
        return sl_reading_fail(r, owner, "a table must be an object with \"columns\" and \"rows\"");
    if (!rows || rows->kind != SL_JSON_ARRAY)
        return sl_reading_fail(r, rows ? rows : owner, "\"rows\" must be an array");
    SL_TRY(append_grid(r, owner, name, &grid));
    SL_TRY(sl_alloc(&grid->cells, SL_MAX(rows->count, 1) * grid->n_columns, sizeof *grid->cells));
    for (const sl_json *row = rows->child; row; row = row->next) {
        SL_TRY(read_row(r, row, grid, &grid->cells[grid->n_rows * grid->n_columns]));
        grid->n_rows++;
    }
    return SL_OK;
}

/* The names of files and tables are not facts. A fact of an earlier line of the file is kept. */
static bool is_fact(const sl_tables *t, const char *key)
{
    static const char *const names[] = {"kind", "name", "table", "title"};
    for (int64_t i = 0; i < SL_COUNT(names); i++)
        if (strcmp(key, names[i]) == 0)
            return false;
    for (int64_t i = 0; i < t->n_facts; i++)
        if (strcmp(key, t->facts[i].key) == 0)
            return false;
    return true;
}

static sl_status read_facts(sl_reading *r, const sl_json *object)
{
    sl_tables *t = r->input->tables;
    for (const sl_json *member = object->child; member && t->n_facts < MOST_FACTS; member = member->next) {
        sl_fact *fact = &t->facts[t->n_facts];
        if (!is_fact(t, member->key))
            continue;
        SL_TRY(read_value(r, member, &fact->value));
        if (fact->value.kind == SL_VALUE_NONE)
            continue;
        SL_TRY(sl_reading_keep(r, member->key, &fact->key));
        t->n_facts++;
    }
    return SL_OK;
}

static sl_status read_notes(sl_reading *r, const sl_json *notes)
{
    sl_tables *t = r->input->tables;
    const char **before = t->notes;
    if (!notes || notes->kind != SL_JSON_ARRAY)
        return SL_OK;
    SL_TRY(sl_region_alloc(r->input->region, &t->notes, SL_MAX(t->n_notes + notes->count, 1), sizeof *t->notes));
    if (t->n_notes) /* of the file's lines before this one */
        memcpy(t->notes, before, (size_t) t->n_notes * sizeof *t->notes);
    for (const sl_json *note = notes->child; note; note = note->next)
        if (note->kind == SL_JSON_STRING)
            SL_TRY(sl_reading_keep(r, note->string, &t->notes[t->n_notes++]));
    return SL_OK;
}

static sl_status the_tables(sl_reading *r, const sl_json *node, sl_tables **out)
{
    sl_input *input = r->input;
    if (input->log)
        return sl_reading_fail(r, node, "a table in the log of a run");
    if (!input->tables) {
        SL_TRY(sl_region_alloc(input->region, &input->tables, 1, sizeof *input->tables));
        input->tables->kind = "bench";
        input->tables->name = "table";
        SL_TRY(sl_region_alloc(input->region, &input->tables->facts, MOST_FACTS, sizeof *input->tables->facts));
    }
    *out = input->tables;
    return SL_OK;
}

sl_status sl_reading_tables(sl_reading *r, const sl_json *root)
{
    sl_tables *t = NULL;
    const sl_json *machine = sl_json_get(root, "machine"), *many = sl_json_get(root, "tables");
    SL_TRY(the_tables(r, root, &t));
    SL_TRY(sl_reading_text(r, root, "kind", &t->kind));
    SL_TRY(sl_reading_text(r, root, "name", &t->name));
    if (machine && machine->kind == SL_JSON_OBJECT)
        SL_TRY(read_facts(r, machine));
    SL_TRY(read_facts(r, root));
    SL_TRY(read_notes(r, sl_json_get(root, "notes")));
    if (sl_json_get(root, "columns"))
        SL_TRY(read_grid(r, root, t->name));
    if (many && many->kind != SL_JSON_ARRAY)
        return sl_reading_fail(r, many, "\"tables\" must be an array");
    for (const sl_json *one = many ? many->child : NULL; one; one = one->next)
        SL_TRY(read_grid(r, one, t->name));
    return SL_OK;
}

/* ---- sweeps ---- */

sl_status sl_reading_sweep(sl_reading *r, const sl_json *line)
{
    sl_tables *t = NULL;
    sl_grid *grid;
    SL_TRY(the_tables(r, line, &t));
    if (t->grids)
        return sl_reading_fail(r, line, "a second sweep in one file");
    t->kind = "sweep";
    SL_TRY(sl_reading_text(r, line, "name", &t->name));
    SL_TRY(read_facts(r, line));
    return append_grid(r, line, t->name, &grid);
}

/* A cell that was recomputed (two sweeps into one file) counts once, as it came out last. */
sl_status sl_reading_cell(sl_reading *r, const sl_json *line)
{
    sl_grid *grid = r->input->tables ? r->input->tables->grids : NULL;
    if (!grid || strcmp(r->input->tables->kind, "sweep") != 0)
        return sl_reading_fail(r, line, "a cell before the line that begins its sweep");
    SL_TRY(sl_reading_room(&grid->cells, grid->n_rows, &r->row_room, (size_t) grid->n_columns * sizeof *grid->cells));
    SL_TRY(read_row(r, line, grid, &grid->cells[grid->n_rows * grid->n_columns]));
    grid->n_rows++;
    int64_t key = sl_grid_find(grid, "cell");
    for (int64_t i = 0; key >= 0 && i + 1 < grid->n_rows; i++)
        if (strcmp(sl_grid_text(grid, i, key), sl_grid_text(grid, grid->n_rows - 1, key)) == 0) {
            grid->n_rows--;
            memcpy(&grid->cells[i * grid->n_columns], &grid->cells[grid->n_rows * grid->n_columns],
                   (size_t) grid->n_columns * sizeof *grid->cells);
            break;
        }
    return SL_OK;
}

/* Cells come in the order they were finished; they are read in the order of the grid. */
static int by_grid(const void *a, const void *b, void *context)
{
    static const char *const order[] = {"model", "seqlen", "host_budget_bytes", "device_budget_bytes"};
    const sl_grid *grid = context;
    const sl_cell_value *x = a, *y = b;
    for (int64_t i = 0; i < SL_COUNT(order); i++) {
        int64_t c = sl_grid_find(grid, order[i]);
        if (c < 0)
            continue;
        int texts = strcmp(x[c].text ? x[c].text : "", y[c].text ? y[c].text : "");
        /* No number is no limit: the last. */
        double p = isfinite(x[c].number) ? x[c].number : (double) INFINITY;
        double q = isfinite(y[c].number) ? y[c].number : (double) INFINITY;
        if (texts || p != q)
            return texts ? texts : p < q ? -1 : 1;
    }
    return 0;
}

void sl_reading_finish_sweep(sl_grid *grid)
{
    if (grid->n_rows > 1)
        qsort_r(grid->cells, (size_t) grid->n_rows, (size_t) grid->n_columns * sizeof *grid->cells, by_grid, grid);
}

void sl_reading_finish_columns(sl_grid *grid)
{
    for (int64_t c = 0; c < grid->n_columns; c++) {
        int64_t numbers = 0, texts = 0;
        for (int64_t row = 0; row < grid->n_rows; row++) {
            numbers += sl_grid_cell(grid, row, c)->kind == SL_VALUE_NUMBER;
            texts += sl_grid_cell(grid, row, c)->kind == SL_VALUE_TEXT;
        }
        grid->columns[c].numeric = numbers > 0 && texts == 0;
    }
}
