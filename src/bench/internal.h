/* Inside bench: how results are kept, shared by their two writers. */
#ifndef SL_BENCH_INTERNAL_H
#define SL_BENCH_INTERNAL_H

#include "bench/results.h"

typedef struct sl_row {
    sl_cell *cells; /* one per column */
    struct sl_row *next;
} sl_row;

struct sl_table {
    sl_results *results;
    const char *name, *title;
    sl_column *columns;
    int64_t n_columns, n_rows;
    sl_row *first, **end;
    sl_table *next;
};

typedef struct sl_entry {
    const char *key; /* NULL for notes */
    sl_cell value;
    struct sl_entry *next;
} sl_entry;

typedef struct sl_entries {
    sl_entry *first, **end;
} sl_entries;

struct sl_results {
    sl_region *region; /* owns everything */
    const char *kind, *name;
    sl_entries facts, notes;
    void (*extend)(const void *context, sl_json_writer *w);
    void *extend_context;
    sl_table *first, **end;
    int64_t n_tables, refused;
    bool incomplete;
    sl_status status;
};

#endif
