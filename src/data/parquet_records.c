/*
 * Rows of a parquet file as records. The schema says which columns make a record, by the same names as for JSON; a row becomes the
 * object that a line of JSON would have been, so what a record is has one definition. A list of structures of strings is a list of
 * messages: its columns advance together, element by element.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "data/parquet.h"
#include "data/records.h"

enum { MOST_COLUMNS = 16, LIST_DEPTH = 4 };

typedef struct parquet_records {
    sl_records base;
    sl_reader *reader;
    sl_region *region; /* metadata */
    sl_parquet_meta meta;
    sl_parquet_column columns[MOST_COLUMNS];
    int64_t leaf[MOST_COLUMNS]; /* of each column */
    int n_columns;
    int64_t group, rows_left, number;
} parquet_records;

static void close_parquet(sl_records *records)
{
    parquet_records *p = (parquet_records *) records;
    for (int i = 0; i < MOST_COLUMNS; i++)
        sl_parquet_column_free(&p->columns[i]);
    sl_reader_close(p->reader);
    sl_region_destroy(p->region);
    sl_free(p);
}

/* ---- which columns ---- */

static bool is_readable(const sl_parquet_leaf *leaf)
{
    return leaf->is_string && ((leaf->max_rep == 0 && leaf->depth == 1) ||
                               (leaf->max_rep == 1 && leaf->depth > 1 && leaf->depth <= LIST_DEPTH));
}

/* Adds the columns of a field; false: there are none. */
static bool add_field(parquet_records *p, const char *field)
{
    int before = p->n_columns;
    for (int64_t i = 0; i < p->meta.n_leaves && p->n_columns < MOST_COLUMNS; i++) {
        const sl_parquet_leaf *leaf = &p->meta.leaves[i];
        if (strcmp(leaf->top, field) != 0 || !is_readable(leaf))
            continue;
        p->leaf[p->n_columns] = i;
        p->columns[p->n_columns++] =
            (sl_parquet_column){.path = p->base.config.path, .reader = p->reader, .leaf = leaf};
    }
    return p->n_columns > before;
}

static bool add_fields(parquet_records *p, const char *const fields[4])
{
    p->n_columns = 0;
    for (int i = 0; i < 2; i++) /* the others may be missing */
        if (fields[i] && !add_field(p, fields[i]))
            return false;
    for (int i = 2; i < 4; i++)
        if (fields[i])
            add_field(p, fields[i]);
    return true;
}

/* In the order in which the fields of JSON are looked at. */
static sl_status choose_columns(parquet_records *p)
{
    static const char *const choices[][4] = {
        {"messages", NULL, "system"},
        {"conversations", NULL, "system"},
        {"conversation", NULL, "system"},
        {"prompt", "completion"},
        {"instruction", "output", "input", "system"},
        {"text"},
        {"content"},
    };
    const char *field = p->base.config.field;
    if (field && add_fields(p, (const char *const[4]){field}))
        return SL_OK;
    for (int64_t i = 0; !field && i < SL_COUNT(choices); i++)
        if (add_fields(p, choices[i]))
            return SL_OK;
    char names[200] = "";
    for (int64_t i = 0; i < p->meta.n_leaves && strlen(names) < 150; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%.40s", i ? ", " : "", p->meta.leaves[i].top);
    return sl_fail(SL_E_FORMAT,
                   "%s has no %s%.80s column of strings or messages (its columns: %s): name one with --data-field",
                   p->base.config.path, field ? "" : "text", field ? field : "", names);
}

/* ---- rows ---- */

static sl_status add_node(sl_region *region, sl_json *parent, sl_json_kind kind, const char *key, sl_json **last,
                          sl_json **out)
{
    sl_json *node;
    SL_TRY(sl_region_alloc(region, &node, 1, sizeof *node));
    node->kind = kind;
    if (key) /* a record may outlive the reader */
        SL_TRY(sl_region_strdup(region, key, &node->key));
    if (*last)
        (*last)->next = node;
    else
        parent->child = node;
    *last = node;
    parent->count++;
    *out = node;
    return SL_OK;
}

/* Bytes that are no UTF-8 are the tokenizer's business. */
static sl_status set_string(sl_region *region, const sl_parquet_string *value, sl_json *node)
{
    char *copy;
    SL_TRY(sl_region_alloc(region, &copy, value->length + 1, 1));
    memcpy(copy, value->bytes, value->length);
    node->string = copy;
    node->length = value->length;
    return SL_OK;
}

static sl_status row_ends_early(const parquet_records *p)
{
    return sl_parquet_damaged(p->base.config.path, "its columns have different numbers of rows");
}

static sl_status read_flat(parquet_records *p, sl_parquet_column *c, sl_region *region, sl_json *row, sl_json **last)
{
    bool any;
    sl_json *node;
    SL_TRY(sl_parquet_column_peek(c, &any));
    if (!any)
        return row_ends_early(p);
    sl_parquet_column_take(c);
    if (!c->value.bytes)
        return SL_OK;
    SL_TRY(add_node(region, row, SL_JSON_STRING, c->leaf->top, last, &node));
    return set_string(region, &c->value, node);
}

/* The next element of the row's list for columns [first, end): false where the list has ended. */
static sl_status read_element(parquet_records *p, int first, int end, bool begins, sl_region *region, sl_json *list,
                              sl_json **last, bool *more)
{
    sl_json *object = NULL, *last_member = NULL, *node;
    for (int i = first; i < end; i++) {
        sl_parquet_column *c = &p->columns[i];
        bool any;
        SL_TRY(sl_parquet_column_peek(c, &any));
        bool here = any && (begins ? c->rep == 0 : c->rep == 1);
        if (i > first && here != *more)
            return row_ends_early(p);
        *more = here;
        if (begins && !here)
            return row_ends_early(p);
        if (!here)
            continue;
        sl_parquet_column_take(c);
        if (c->def < (uint32_t) c->leaf->list_def)
            continue; /* the list is empty or missing */
        if (!object)
            SL_TRY(add_node(region, list, SL_JSON_OBJECT, NULL, last, &object));
        if (!c->value.bytes)
            continue;
        SL_TRY(add_node(region, object, SL_JSON_STRING, c->leaf->name, &last_member, &node));
        SL_TRY(set_string(region, &c->value, node));
    }
    return SL_OK;
}

static sl_status read_list(parquet_records *p, int first, int end, sl_region *region, sl_json *row, sl_json **last)
{
    sl_json *list, *last_element = NULL;
    bool more = true;
    SL_TRY(add_node(region, row, SL_JSON_ARRAY, p->columns[first].leaf->top, last, &list));
    for (bool begins = true; more; begins = false)
        SL_TRY(read_element(p, first, end, begins, region, list, &last_element, &more));
    return SL_OK;
}

static sl_status read_row(parquet_records *p, sl_region *region, sl_json **out)
{
    sl_json *row, *last = NULL;
    SL_TRY(sl_region_alloc(region, &row, 1, sizeof *row));
    row->kind = SL_JSON_OBJECT;
    for (int i = 0; i < p->n_columns;) {
        const sl_parquet_leaf *leaf = p->columns[i].leaf;
        int end = i + 1;
        while (end < p->n_columns && leaf->max_rep && p->columns[end].leaf->top == leaf->top)
            end++;
        if (leaf->max_rep)
            SL_TRY(read_list(p, i, end, region, row, &last));
        else
            SL_TRY(read_flat(p, &p->columns[i], region, row, &last));
        i = end;
    }
    *out = row;
    return SL_OK;
}

static void begin_group(parquet_records *p)
{
    for (int i = 0; i < p->n_columns; i++)
        sl_parquet_column_begin(&p->columns[i], &p->meta.chunks[p->group * p->meta.n_leaves + p->leaf[i]]);
    p->rows_left = p->meta.group_rows[p->group++];
}

static sl_status next_row(sl_records *records, sl_record *record, bool *more)
{
    parquet_records *p = (parquet_records *) records;
    while (!*more) {
        char name[256];
        sl_json *row;
        while (p->rows_left == 0) {
            if (p->group == p->meta.n_groups)
                return SL_OK;
            begin_group(p);
        }
        p->rows_left--;
        p->number++;
        records->config.counts->records++;
        snprintf(name, sizeof name, "%.200s, record %" PRId64, records->config.path, p->number);
        SL_TRY(sl_region_create(&record->region));
        SL_TRY(read_row(p, record->region, &row));
        SL_TRY(sl_record_of(&records->config, name, row, record, more));
        if (!*more)
            sl_record_free(record);
    }
    return SL_OK;
}

sl_status sl_parquet_records_open(const sl_records_config *config, sl_records **out)
{
    static const sl_records_class class = {next_row, close_parquet};
    parquet_records *p;
    sl_status status;
    SL_TRY(sl_alloc(&p, 1, sizeof *p));
    p->base = (sl_records){&class, *config};
    SL_TRY_GOTO(sl_region_create(&p->region), fail);
    SL_TRY_GOTO(sl_reader_open(config->path, &p->reader), fail);
    SL_TRY_GOTO(sl_parquet_read_meta(config->path, p->reader, p->region, &p->meta), fail);
    SL_TRY_GOTO(choose_columns(p), fail);
    *out = &p->base;
    return SL_OK;
fail:
    close_parquet(&p->base);
    return status;
}
