/*
 * Rows are matched by their leading texts and counts (model, context, precision; op, dtype, shape). Computed values are
 * the columns named below. Between equal numerics they must agree to f32's rounding; between others (another device,
 * another instruction set) as precisions do.
 */
#include "bench/baseline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/internal.h"
#include "core/file.h"

enum { LARGEST_FILE = 16 << 20 };
#define SAME_NUMERICS 1e-5
#define OTHER_NUMERICS 2e-3

static bool is_computed(const sl_column *column)
{
    static const char *const names[] = {"loss", "first_loss", "value", "parameters", "gflop", "tflop"};
    for (int64_t i = 0; i < SL_COUNT(names); i++)
        if (strcmp(column->name, names[i]) == 0)
            return true;
    return false;
}

static bool is_speed(const sl_column *column)
{
    static const char *const units[] = {"ms", "us", "GB/s", "GFLOP/s", "TFLOP/s"};
    static const char *const names[] = {"tokens_per_s", "mfu_percent", "speed_up", "roofline_percent"};
    for (int64_t i = 0; i < SL_COUNT(units); i++)
        if (strcmp(column->unit, units[i]) == 0)
            return true;
    for (int64_t i = 0; i < SL_COUNT(names); i++)
        if (strcmp(column->name, names[i]) == 0)
            return true;
    return false;
}

/* A time of something, and no spread of times. */
static bool is_time(const sl_column *column)
{
    return (strcmp(column->unit, "ms") == 0 || strcmp(column->unit, "us") == 0) && !strstr(column->name, "std");
}

static bool same_value(const sl_cell *cell, const sl_json *value)
{
    if (cell->kind == SL_CELL_TEXT)
        return value && value->kind == SL_JSON_STRING && strcmp(value->string, cell->as.text) == 0;
    return value && value->kind == SL_JSON_NUMBER && value->is_integer && value->integer == cell->as.count;
}

/* How many leading cells name the row, and whether an earlier row has the same ones. */
static int64_t key_length(const sl_table *table, const sl_row *row)
{
    int64_t n = 0;
    while (n < table->n_columns && (row->cells[n].kind == SL_CELL_TEXT || row->cells[n].kind == SL_CELL_COUNT) &&
           !is_computed(&table->columns[n]))
        n++;
    return n;
}

static const sl_json *find_row(const sl_table *table, const sl_row *row, const sl_json *earlier)
{
    const sl_json *rows = sl_json_get(earlier, "rows");
    int64_t n = key_length(table, row);
    for (const sl_json *r = rows ? rows->child : NULL; r && n > 0; r = r->next) {
        int64_t i = 0;
        while (i < n && same_value(&row->cells[i], sl_json_get(r, table->columns[i].name)))
            i++;
        if (i == n)
            return r;
    }
    return NULL;
}

static const sl_json *find_table(const sl_json *root, const char *name, bool only_one)
{
    const sl_json *tables = sl_json_get(root, "tables");
    for (const sl_json *t = tables ? tables->child : NULL; t; t = t->next) {
        const sl_json *named = sl_json_get(t, "name");
        if (named && named->kind == SL_JSON_STRING && strcmp(named->string, name) == 0)
            return t;
    }
    return !tables && only_one ? root : NULL;
}

static void name_row(const sl_table *table, const sl_row *row, char out[160])
{
    int64_t n = key_length(table, row);
    int at = 0;
    out[0] = 0;
    for (int64_t i = 0; i < n && at < 120; i++)
        at +=
            row->cells[i].kind == SL_CELL_TEXT
                ? snprintf(out + at, (size_t) (160 - at), "%s%.60s", i ? ", " : "", row->cells[i].as.text)
                : snprintf(out + at, (size_t) (160 - at), "%s%lld", i ? ", " : "", (long long) row->cells[i].as.count);
}

static double number_of(const sl_cell *cell)
{
    return cell->kind == SL_CELL_NUMBER  ? cell->as.number
           : cell->kind == SL_CELL_COUNT ? (double) cell->as.count
                                         : (double) NAN;
}

/* False: a computed value differs, and the row's speeds are gone. */
static bool check_row(sl_results *results, const sl_table *table, sl_row *row, const sl_json *earlier, double tolerance)
{
    char name[160];
    for (int64_t c = 0; c < table->n_columns; c++) {
        const sl_json *was = sl_json_get(earlier, table->columns[c].name);
        double now = number_of(&row->cells[c]);
        if (!is_computed(&table->columns[c]) || !isfinite(now) || !was || was->kind != SL_JSON_NUMBER)
            continue;
        if (fabs(now - was->number) <= tolerance * fabs(was->number))
            continue;
        name_row(table, row, name);
        sl_results_refuse(results, "%s, %s: no speed is reported, because its %s is %.9g where the baseline has %.9g",
                          table->name, name, table->columns[c].name, now, was->number);
        for (int64_t i = 0; i < table->n_columns; i++)
            if (is_speed(&table->columns[i]))
                row->cells[i] = sl_cell_none();
        return false;
    }
    return true;
}

static void compare_times(sl_table *out, const sl_table *table, const sl_row *row, const sl_json *earlier)
{
    char name[160];
    name_row(table, row, name);
    for (int64_t c = 0; c < table->n_columns; c++) {
        const sl_json *was = sl_json_get(earlier, table->columns[c].name);
        if (!is_time(&table->columns[c]) || row->cells[c].kind != SL_CELL_NUMBER || !was ||
            was->kind != SL_JSON_NUMBER || was->number <= 0)
            continue;
        SL_ROW(out, table->name, name, table->columns[c].name, row->cells[c], was->number,
               row->cells[c].as.number / was->number);
    }
}

static double allowed_between(const sl_results *results, const sl_json *root)
{
    const sl_json *machine = sl_json_get(root, "machine"), *was = sl_json_get(machine, "numerics");
    for (const sl_entry *fact = results->facts.first; fact; fact = fact->next)
        if (strcmp(fact->key, "numerics") == 0 && fact->value.kind == SL_CELL_TEXT && was &&
            was->kind == SL_JSON_STRING)
            return strcmp(fact->value.as.text, was->string) == 0 ? SAME_NUMERICS : OTHER_NUMERICS;
    return SAME_NUMERICS;
}

static sl_status compare(sl_results *results, const char *path, const sl_json *root)
{
    const sl_json *name = sl_json_get(root, "name");
    if (!name || name->kind != SL_JSON_STRING || strcmp(name->string, results->name) != 0)
        return sl_fail(SL_E_USAGE, "--baseline %s holds no results of `%s`: write them with --out", path,
                       results->name);
    double tolerance = allowed_between(results, root);
    int64_t n = results->n_tables, checked = 0;
    sl_table *out = sl_results_table(results, "against_baseline", "Times beside the baseline's",
                                     "table row column now:.3 baseline:.3 ratio:.3*"),
             *table = results->first;
    for (int64_t i = 0; i < n; i++, table = table->next) {
        if (strcmp(table->name, "published") == 0)
            continue; /* constants */
        const sl_json *earlier = find_table(root, table->name, n == 1);
        for (sl_row *row = earlier ? table->first : NULL; row; row = row->next) {
            const sl_json *was = find_row(table, row, earlier);
            if (!was)
                continue;
            checked++;
            if (check_row(results, table, row, was, tolerance))
                compare_times(out, table, row, was);
        }
    }
    sl_results_note(results, "%lld rows were held against the baseline %s.", (long long) checked, path);
    return SL_OK;
}

sl_status sl_baseline_compare(sl_results *results, const char *path)
{
    sl_region *region;
    const sl_json *root;
    char *text;
    size_t length;
    SL_TRY(sl_file_read_all(path, LARGEST_FILE, &text, &length));
    sl_status status = sl_region_create(&region);
    if (status == SL_OK) {
        status = sl_json_parse(region, path, text, length, &root);
        if (status == SL_OK)
            status = compare(results, path, root);
        sl_region_destroy(region);
    }
    sl_free(text);
    return status;
}
