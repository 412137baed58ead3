/* Results are lists in a region: written once from front to back, then shown. */
#include "bench/results.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/internal.h"

sl_status sl_results_create(const char *kind, const char *name, sl_results **out)
{
    sl_region *region;
    sl_results *results;
    SL_TRY(sl_region_create(&region));
    sl_status status = sl_region_alloc(region, &results, 1, sizeof *results);
    if (status == SL_OK) {
        results->region = region;
        results->facts.end = &results->facts.first;
        results->notes.end = &results->notes.first;
        results->end = &results->first;
        status = sl_region_strdup(region, kind, &results->kind);
    }
    if (status == SL_OK)
        status = sl_region_strdup(region, name, &results->name);
    if (status != SL_OK) {
        sl_region_destroy(region);
        return status;
    }
    *out = results;
    return SL_OK;
}

void sl_results_destroy(sl_results *results)
{
    if (results)
        sl_region_destroy(results->region);
}

sl_status sl_results_status(const sl_results *results)
{
    return results->status;
}

/* The first failure stays; what comes after it is dropped. */
static bool failed(sl_results *results, sl_status status)
{
    if (results->status == SL_OK)
        results->status = status;
    return results->status != SL_OK;
}

static sl_cell keep(sl_results *results, sl_cell cell)
{
    if (cell.kind == SL_CELL_TEXT && failed(results, sl_region_strdup(results->region, cell.as.text, &cell.as.text)))
        return sl_cell_none();
    if (cell.kind == SL_CELL_NUMBER && !isfinite(cell.as.number))
        return sl_cell_none();
    return cell;
}

static void append(sl_results *results, sl_entries *entries, const char *key, sl_cell value)
{
    sl_entry *entry;
    if (failed(results, sl_region_alloc(results->region, &entry, 1, sizeof *entry)) ||
        (key && failed(results, sl_region_strdup(results->region, key, &entry->key))))
        return;
    entry->value = keep(results, value);
    *entries->end = entry;
    entries->end = &entry->next;
}

void sl_results_fact(sl_results *results, const char *key, sl_cell value)
{
    append(results, &results->facts, key, value);
}

__attribute__((format(printf, 2, 0))) static void append_note(sl_results *results, const char *format,
                                                              va_list arguments)
{
    char text[1024];
    vsnprintf(text, sizeof text, format, arguments);
    append(results, &results->notes, NULL, sl_cell_text(text));
}

void sl_results_note(sl_results *results, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    append_note(results, format, arguments);
    va_end(arguments);
}

void sl_results_refuse(sl_results *results, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    append_note(results, format, arguments);
    va_end(arguments);
    results->refused++;
}

int64_t sl_results_refused(const sl_results *results)
{
    return results->refused;
}

void sl_results_end_early(sl_results *results)
{
    sl_results_note(results, "The bench ended early: %s", sl_error_message());
    results->incomplete = true;
}

bool sl_results_incomplete(const sl_results *results)
{
    return results->incomplete;
}

void sl_results_extend(sl_results *results, void (*put)(const void *context, sl_json_writer *w), const void *context,
                       size_t bytes)
{
    if (failed(results, sl_region_alloc(results->region, &results->extend_context, bytes, 1)))
        return;
    memcpy(results->extend_context, context, bytes);
    results->extend = put;
}

/* A table that could not be had: rows put into it go nowhere. */
static sl_table nowhere;

/* Ends `text` at the first `mark`; returns what stands behind it, NULL where there is none. */
static char *cut(char *text, char mark)
{
    char *at = text ? strchr(text, mark) : NULL;
    if (at)
        *at++ = 0;
    return at;
}

static void parse_columns(sl_table *table, char *text)
{
    for (char *name; (name = strtok_r(text, " ", &text)); table->n_columns++) {
        bool bar = cut(name, '*') != NULL;
        char *unit = cut(name, ':'), *decimals = cut(unit, '.');
        int digits = !decimals ? 0 : *decimals == 'g' ? -1 : atoi(decimals);
        table->columns[table->n_columns] = (sl_column){name, unit ? unit : "", digits, bar};
    }
}

sl_table *sl_results_table(sl_results *results, const char *name, const char *title, const char *columns)
{
    sl_table *table;
    char *text;
    size_t size = strlen(columns) + 1;
    if (failed(results, sl_region_alloc(results->region, &table, 1, sizeof *table)) ||
        failed(results, sl_region_alloc(results->region, &table->columns, size, sizeof *table->columns)) ||
        failed(results, sl_region_alloc(results->region, &text, size, 1)) ||
        failed(results, sl_region_strdup(results->region, name, &table->name)) ||
        failed(results, sl_region_strdup(results->region, title, &table->title)))
        return &nowhere;
    parse_columns(table, memcpy(text, columns, size));
    table->results = results;
    table->end = &table->first;
    *results->end = table;
    results->end = &table->next;
    results->n_tables++;
    return table;
}

void sl_table_row(sl_table *table, const sl_cell *cells, int64_t count)
{
    sl_results *results = table->results;
    sl_row *row;
    if (!results)
        return;
    SL_ASSERT(count == table->n_columns);
    if (failed(results, sl_region_alloc(results->region, &row, 1, sizeof *row)) ||
        failed(results, sl_region_alloc(results->region, &row->cells, count, sizeof *cells)))
        return;
    for (int64_t i = 0; i < count; i++)
        row->cells[i] = keep(results, cells[i]);
    *table->end = row;
    table->end = &row->next;
    table->n_rows++;
}

const sl_table *sl_results_find(const sl_results *results, const char *name)
{
    for (const sl_table *table = results->first; table; table = table->next)
        if (strcmp(table->name, name) == 0)
            return table;
    return NULL;
}

int64_t sl_table_rows(const sl_table *table)
{
    return table->n_rows;
}

const sl_cell *sl_table_cell(const sl_table *table, int64_t index, const char *column)
{
    const sl_row *row = table->first;
    while (row && index-- > 0)
        row = row->next;
    for (int64_t i = 0; row && i < table->n_columns; i++)
        if (strcmp(table->columns[i].name, column) == 0)
            return &row->cells[i];
    return NULL;
}

/* ---- JSON ---- */

static void put_cell(sl_json_writer *w, const char *key, const sl_cell *cell)
{
    switch (cell->kind) {
    case SL_CELL_TEXT:
        sl_json_put_string(w, key, cell->as.text);
        break;
    case SL_CELL_COUNT:
        sl_json_put_i64(w, key, cell->as.count);
        break;
    case SL_CELL_NUMBER:
        sl_json_put_f64(w, key, cell->as.number);
        break;
    case SL_CELL_FLAG:
        sl_json_put_bool(w, key, cell->as.count != 0);
        break;
    default:
        sl_json_put_null(w, key);
    }
}

static void put_table(sl_json_writer *w, const sl_table *table)
{
    sl_json_begin_array(w, "columns");
    for (int64_t i = 0; i < table->n_columns; i++) {
        sl_json_begin_object(w, NULL);
        sl_json_put_string(w, "name", table->columns[i].name);
        sl_json_put_string(w, "unit", table->columns[i].unit);
        sl_json_end_object(w);
    }
    sl_json_end_array(w);
    sl_json_begin_array(w, "rows");
    for (const sl_row *row = table->first; row; row = row->next) {
        sl_json_begin_object(w, NULL);
        for (int64_t i = 0; i < table->n_columns; i++)
            put_cell(w, table->columns[i].name, &row->cells[i]);
        sl_json_end_object(w);
    }
    sl_json_end_array(w);
}

static void put_tables(const sl_results *results, sl_json_writer *w)
{
    if (results->n_tables == 1) {
        sl_json_put_string(w, "table", results->first->name);
        sl_json_put_string(w, "title", results->first->title);
        put_table(w, results->first);
        return;
    }
    sl_json_begin_array(w, "tables");
    for (const sl_table *table = results->first; table; table = table->next) {
        sl_json_begin_object(w, NULL);
        sl_json_put_string(w, "name", table->name);
        sl_json_put_string(w, "title", table->title);
        put_table(w, table);
        sl_json_end_object(w);
    }
    sl_json_end_array(w);
}

void sl_results_json(const sl_results *results, sl_json_writer *w)
{
    sl_json_begin_object(w, NULL);
    sl_json_put_string(w, "kind", results->kind);
    sl_json_put_string(w, "name", results->name);
    sl_json_begin_object(w, "machine");
    for (const sl_entry *fact = results->facts.first; fact; fact = fact->next)
        put_cell(w, fact->key, &fact->value);
    sl_json_end_object(w);
    if (results->extend)
        results->extend(results->extend_context, w);
    put_tables(results, w);
    sl_json_begin_array(w, "notes");
    for (const sl_entry *note = results->notes.first; note; note = note->next)
        sl_json_put_string(w, NULL, note->value.as.text);
    sl_json_end_array(w);
    sl_json_put_i64(w, "refused", results->refused);
    sl_json_end_object(w);
}
