/* Runs a bench inside the test program and looks its results up by name. */
#ifndef SL_TESTS_BENCH_RUN_BENCH_H
#define SL_TESTS_BENCH_RUN_BENCH_H

#include "bench/bench.h"
#include "test.h"

static sl_results *bench_results;

/* `arguments` as on the command line, separated by blanks. The results stay in bench_results until the next call. */
static inline sl_status bench_try(const char *name, const char *arguments)
{
    const sl_bench_def *def = sl_bench_find(name);
    char text[512], *argv[32];
    int argc = 0;
    sl_option *table;
    sl_options *options;
    int64_t count;
    REQUIRE(def != NULL);
    snprintf(text, sizeof text, "%s", arguments);
    for (char *item = strtok(text, " "); item && argc < 32; item = strtok(NULL, " "))
        argv[argc++] = item;
    CHECK_OK(sl_bench_options(def, &table, &count));
    CHECK_OK(sl_options_create(table, count, &options));
    sl_results_destroy(bench_results);
    bench_results = NULL;
    sl_status status = sl_options_parse_args(options, argc, argv);
    if (status == SL_OK)
        status = sl_bench_run(def, options, NULL, &bench_results);
    sl_options_destroy(options);
    sl_free(table);
    return status;
}

static inline const sl_table *bench_table(const char *name)
{
    const sl_table *table = sl_results_find(bench_results, name);
    if (!table)
        printf("there is no table \"%s\"\n", name);
    REQUIRE(table != NULL);
    return table;
}

static inline const sl_cell *bench_cell(const char *table, int64_t row, const char *column)
{
    const sl_cell *cell = sl_table_cell(bench_table(table), row, column);
    if (!cell)
        printf("table \"%s\" has no row %lld or no column \"%s\"\n", table, (long long) row, column);
    REQUIRE(cell != NULL);
    return cell;
}

/* NaN where the cell is empty or a text. */
static inline double bench_number(const char *table, int64_t row, const char *column)
{
    const sl_cell *cell = bench_cell(table, row, column);
    return cell->kind == SL_CELL_NUMBER                                ? cell->as.number
           : cell->kind == SL_CELL_COUNT || cell->kind == SL_CELL_FLAG ? (double) cell->as.count
                                                                       : (double) NAN;
}

static inline const char *bench_text(const char *table, int64_t row, const char *column)
{
    const sl_cell *cell = bench_cell(table, row, column);
    return cell->kind == SL_CELL_TEXT ? cell->as.text : "";
}

/* The row of a table whose `column` is this text; ends the program where there is none. */
static inline int64_t bench_row(const char *table, const char *column, const char *text)
{
    for (int64_t r = 0; r < sl_table_rows(bench_table(table)); r++)
        if (strcmp(bench_text(table, r, column), text) == 0)
            return r;
    printf("table \"%s\" has no row whose %s is \"%s\"\n", table, column, text);
    REQUIRE(false);
    return -1;
}

static inline int64_t bench_row_of(const char *table, const char *column, double number)
{
    for (int64_t r = 0; r < sl_table_rows(bench_table(table)); r++)
        if (bench_number(table, r, column) == number)
            return r;
    printf("table \"%s\" has no row whose %s is %g\n", table, column, number);
    REQUIRE(false);
    return -1;
}

#endif
