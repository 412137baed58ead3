/*
 * What a measurement leaves behind: facts of the machine, tables, and sentences. One structure is shown in three ways:
 * text for people, JSON for `sluice report` and scripts, a file for later.
 *
 *   {"kind": "bench", "name": "ops", "machine": {...}, "table", "title", "columns": [{"name", "unit"}], "rows": [{...}]}
 *
 * With several tables these stand in "tables": [{"name", "title", "columns", "rows"}]. A failed allocation
 * sticks, as in sl_text: callers ask sl_results_status once, at the end.
 */
#ifndef SL_BENCH_RESULTS_H
#define SL_BENCH_RESULTS_H

#include "core/json.h"
#include "core/mem.h"

typedef enum sl_cell_kind { SL_CELL_NONE, SL_CELL_TEXT, SL_CELL_COUNT, SL_CELL_NUMBER, SL_CELL_FLAG } sl_cell_kind;
typedef struct sl_cell {
    sl_cell_kind kind;
    union {
        const char *text;
        int64_t count; /* FLAG: 0 or 1 */
        double number; /* not finite: shown as a dash, null in JSON */
    } as;
} sl_cell;

static inline sl_cell sl_cell_none(void)
{
    return (sl_cell){.kind = SL_CELL_NONE};
}
static inline sl_cell sl_cell_text(const char *text)
{
    return (sl_cell){.kind = text ? SL_CELL_TEXT : SL_CELL_NONE, .as.text = text};
}
static inline sl_cell sl_cell_count(int64_t count)
{
    return (sl_cell){.kind = SL_CELL_COUNT, .as.count = count};
}
static inline sl_cell sl_cell_number(double number)
{
    return (sl_cell){.kind = SL_CELL_NUMBER, .as.number = number};
}
static inline sl_cell sl_cell_flag(bool flag)
{
    return (sl_cell){.kind = SL_CELL_FLAG, .as.count = flag};
}

/* The number where there is one to show. */
static inline sl_cell sl_cell_if(bool known, double number)
{
    return known ? sl_cell_number(number) : sl_cell_none();
}
static inline sl_cell sl_cell_same(sl_cell cell)
{
    return cell;
}
/* The cell of a value by its C type. A comparison is an int: flags need sl_cell_flag. */
#define SL_CELL(x) \
    _Generic((x),            \
        sl_cell: sl_cell_same,        \
        char *: sl_cell_text,         \
        const char *: sl_cell_text,   \
        float: sl_cell_number,        \
        double: sl_cell_number,       \
        default: sl_cell_count)(x)

typedef struct sl_column {
    const char *name; /* the JSON key; the heading shows its underscores as spaces */
    const char *unit; /* "" for none */
    int decimals;     /* of numbers in text; -1: four significant digits */
    bool bar;         /* on a terminal, a bar of this column's share of its largest value */
} sl_column;

typedef struct sl_table sl_table;
typedef struct sl_results sl_results;

sl_status sl_results_create(const char *kind, const char *name, sl_results **results);
void sl_results_destroy(sl_results *results);
sl_status sl_results_status(const sl_results *results);

/* Members of "machine". Texts are copied, here and below. */
void sl_results_fact(sl_results *results, const char *key, sl_cell value);
/* A sentence below the tables ("notes" in JSON). */
void sl_results_note(sl_results *results, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Further top-level members of the JSON, written by `put`. `bytes` of context are copied. */
void sl_results_extend(sl_results *results, void (*put)(const void *context, sl_json_writer *w), const void *context,
                       size_t bytes);
/* The table is the results' own. Its columns are one text, "name", "name:unit.decimals" or "name:.decimals" for each, with spaces
 * between them and a * behind those with a bar; decimals are 0 where none are given, and g means four significant digits. */
sl_table *sl_results_table(sl_results *results, const char *name, const char *title, const char *columns);
void sl_table_row(sl_table *table, const sl_cell *cells, int64_t count);
/* A value of any C type for each column. */
#define SL_ROW(table, ...) sl_table_row(table, (const sl_cell[]){SL_CELLS(__VA_ARGS__)}, SL_CELLS_COUNT(__VA_ARGS__))
#define SL_CELLS_NTH(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, ...) q
#define SL_CELLS_COUNT(...) SL_CELLS_NTH(__VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define SL_CELLS(...) SL_CELLS_OF(SL_CELLS_COUNT(__VA_ARGS__), __VA_ARGS__)
#define SL_CELLS_OF(count, ...) SL_CELLS_EXPAND(count, __VA_ARGS__)
#define SL_CELLS_EXPAND(count, ...) SL_CELLS_##count(__VA_ARGS__)
#define SL_CELLS_1(x) SL_CELL(x)
#define SL_CELLS_2(x, ...) SL_CELL(x), SL_CELLS_1(__VA_ARGS__)
#define SL_CELLS_3(x, ...) SL_CELL(x), SL_CELLS_2(__VA_ARGS__)
#define SL_CELLS_4(x, ...) SL_CELL(x), SL_CELLS_3(__VA_ARGS__)
#define SL_CELLS_5(x, ...) SL_CELL(x), SL_CELLS_4(__VA_ARGS__)
#define SL_CELLS_6(x, ...) SL_CELL(x), SL_CELLS_5(__VA_ARGS__)
#define SL_CELLS_7(x, ...) SL_CELL(x), SL_CELLS_6(__VA_ARGS__)
#define SL_CELLS_8(x, ...) SL_CELL(x), SL_CELLS_7(__VA_ARGS__)
#define SL_CELLS_9(x, ...) SL_CELL(x), SL_CELLS_8(__VA_ARGS__)
#define SL_CELLS_10(x, ...) SL_CELL(x), SL_CELLS_9(__VA_ARGS__)
#define SL_CELLS_11(x, ...) SL_CELL(x), SL_CELLS_10(__VA_ARGS__)
#define SL_CELLS_12(x, ...) SL_CELL(x), SL_CELLS_11(__VA_ARGS__)
#define SL_CELLS_13(x, ...) SL_CELL(x), SL_CELLS_12(__VA_ARGS__)
#define SL_CELLS_14(x, ...) SL_CELL(x), SL_CELLS_13(__VA_ARGS__)
#define SL_CELLS_15(x, ...) SL_CELL(x), SL_CELLS_14(__VA_ARGS__)
#define SL_CELLS_16(x, ...) SL_CELL(x), SL_CELLS_15(__VA_ARGS__)

/* A row whose output differed from its baseline and whose speed is therefore withheld (S13). */
void sl_results_refuse(sl_results *results, const char *format, ...) __attribute__((format(printf, 2, 3)));
int64_t sl_results_refused(const sl_results *results);
/* What was being measured failed: the rows before it stay, and a note says why (sl_error_message). */
void sl_results_end_early(sl_results *results);
bool sl_results_incomplete(const sl_results *results);

/* Looking back, for tests and for benches that build on each other. NULL where there is none. */
const sl_table *sl_results_find(const sl_results *results, const char *table);
int64_t sl_table_rows(const sl_table *table);
const sl_cell *sl_table_cell(const sl_table *table, int64_t row, const char *column);

/* `columns` > 0: a terminal of that width, where bars are drawn. */
void sl_results_text(const sl_results *results, int columns, sl_text *out);
void sl_results_json(const sl_results *results, sl_json_writer *w);

#endif
