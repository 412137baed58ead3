/*
 * The metadata of a file:  PAR1 | pages ... | metadata | length of the metadata, 4 bytes | PAR1
 *
 * The schema is a tree in pre-order. A leaf's levels count what lies above it: a definition level for everything that may be missing, a
 * repetition level for every list.
 */
#include <inttypes.h>
#include <string.h>

#include "data/parquet.h"

enum { TAIL_BYTES = 8, MOST_META_BYTES = 256 << 20, MOST_SCHEMA_DEPTH = 32, BYTE_ARRAY = 6 };
enum { REQUIRED, OPTIONAL, REPEATED };

sl_status sl_parquet_damaged(const char *path, const char *what)
{
    return sl_fail(SL_E_FORMAT, "%s is a damaged parquet file: %s; download or write it again", path, what);
}

typedef struct element {
    const char *name;
    size_t length;
    int64_t type, children, repetition;
} element;

/* ---- schema ---- */

static element read_element(sl_thrift *t)
{
    element e = {.type = -1};
    int id = 0;
    sl_thrift_type type;
    while (sl_thrift_field(t, &id, &type)) {
        if (id == 1 && type == SL_THRIFT_I32)
            e.type = sl_thrift_int(t);
        else if (id == 3 && type == SL_THRIFT_I32)
            e.repetition = sl_thrift_int(t);
        else if (id == 4 && type == SL_THRIFT_BINARY)
            e.name = sl_thrift_binary(t, &e.length);
        else if (id == 5 && type == SL_THRIFT_I32)
            e.children = sl_thrift_int(t);
        else
            sl_thrift_skip(t, type);
    }
    return e;
}

typedef struct level {
    const char *top;
    int depth, def, rep, list_def;
} level;

static sl_status copy_name(sl_region *region, const element *e, const char **out)
{
    return sl_region_printf(region, out, "%.*s", (int) SL_MIN(e->length, (size_t) 1000), e->name ? e->name : "");
}

/* One node and all below it; *left counts the elements that there are still. */
static sl_status read_node(sl_thrift *t, sl_region *region, level above, int64_t *left, sl_parquet_meta *meta)
{
    if (*left <= 0 || above.depth >= MOST_SCHEMA_DEPTH) {
        t->damaged = true;
        return SL_OK;
    }
    --*left;
    const char *name;
    element e = read_element(t);
    level here = above;
    SL_TRY(copy_name(region, &e, &name));
    here.depth++;
    here.def += e.repetition != REQUIRED;
    here.rep += e.repetition == REPEATED;
    if (e.repetition == REPEATED)
        here.list_def = here.def;
    if (here.depth == 1)
        here.top = name;
    for (int64_t i = 0; i < e.children && !t->damaged; i++)
        SL_TRY(read_node(t, region, here, left, meta));
    if (e.children <= 0)
        meta->leaves[meta->n_leaves++] =
            (sl_parquet_leaf){here.top, name, e.type == BYTE_ARRAY, here.depth, here.def, here.rep, here.list_def};
    return SL_OK;
}

static sl_status read_schema(sl_thrift *t, sl_region *region, sl_parquet_meta *meta)
{
    sl_thrift_type type;
    int64_t left = sl_thrift_list(t, &type);
    if (type != SL_THRIFT_STRUCT || left < 1 || meta->leaves)
        return SL_OK; /* without leaves it is refused */
    SL_TRY(sl_region_alloc(region, &meta->leaves, left, sizeof *meta->leaves));
    element root = read_element(t);
    left--;
    for (int64_t i = 0; i < root.children && !t->damaged; i++)
        SL_TRY(read_node(t, region, (level){.top = ""}, &left, meta));
    t->damaged |= left != 0;
    return SL_OK;
}

/* ---- row groups ---- */

static void read_column_meta(sl_thrift *t, sl_parquet_chunk *chunk)
{
    int id = 0;
    int64_t data = 0, dictionary = 0;
    sl_thrift_type type;
    while (sl_thrift_field(t, &id, &type)) {
        if (id == 4 && type == SL_THRIFT_I32)
            chunk->codec = (int) sl_thrift_int(t);
        else if (id == 5 && type == SL_THRIFT_I64)
            chunk->values = sl_thrift_int(t);
        else if (id == 7 && type == SL_THRIFT_I64)
            chunk->bytes = sl_thrift_int(t);
        else if (id == 9 && type == SL_THRIFT_I64)
            data = sl_thrift_int(t);
        else if (id == 11 && type == SL_THRIFT_I64)
            dictionary = sl_thrift_int(t);
        else
            sl_thrift_skip(t, type);
    }
    chunk->start = dictionary > 0 && dictionary < data ? dictionary : data;
}

static void read_chunk(sl_thrift *t, sl_parquet_chunk *chunk)
{
    int id = 0;
    sl_thrift_type type;
    while (sl_thrift_field(t, &id, &type)) {
        if (id == 3 && type == SL_THRIFT_STRUCT)
            read_column_meta(t, chunk);
        else
            sl_thrift_skip(t, type);
    }
}

static void read_group(sl_thrift *t, sl_parquet_meta *meta, int64_t group)
{
    int id = 0;
    sl_thrift_type type, item;
    while (sl_thrift_field(t, &id, &type)) {
        if (id == 1 && type == SL_THRIFT_LIST) {
            int64_t count = sl_thrift_list(t, &item);
            t->damaged |= count != meta->n_leaves || item != SL_THRIFT_STRUCT;
            for (int64_t i = 0; i < count && !t->damaged; i++)
                read_chunk(t, &meta->chunks[group * meta->n_leaves + i]);
        } else if (id == 3 && type == SL_THRIFT_I64) {
            meta->group_rows[group] = sl_thrift_int(t);
        } else {
            sl_thrift_skip(t, type);
        }
    }
}

/* The schema stands before them. A column of a group takes a few bytes, so their number is bounded by the metadata's size. */
static sl_status read_groups(sl_thrift *t, sl_region *region, sl_parquet_meta *meta)
{
    sl_thrift_type type;
    int64_t count = sl_thrift_list(t, &type);
    if (type != SL_THRIFT_STRUCT || meta->n_leaves < 1 || meta->chunks || count > (t->end - t->at) / meta->n_leaves) {
        t->damaged |= count > 0;
        return SL_OK;
    }
    SL_TRY(sl_region_alloc(region, &meta->chunks, SL_MAX(count * meta->n_leaves, 1), sizeof *meta->chunks));
    SL_TRY(sl_region_alloc(region, &meta->group_rows, SL_MAX(count, 1), sizeof *meta->group_rows));
    for (; meta->n_groups < count && !t->damaged; meta->n_groups++)
        read_group(t, meta, meta->n_groups);
    return SL_OK;
}

static sl_status check_chunks(const char *path, const sl_parquet_meta *meta, int64_t file_bytes)
{
    for (int64_t i = 0; i < meta->n_groups * meta->n_leaves; i++) {
        const sl_parquet_chunk *c = &meta->chunks[i];
        if (c->start < 0 || c->bytes < 0 || c->values < 0 || c->start > file_bytes || c->bytes > file_bytes - c->start)
            return sl_parquet_damaged(path, "a column lies outside the file");
    }
    for (int64_t g = 0; g < meta->n_groups; g++)
        if (meta->group_rows[g] < 0)
            return sl_parquet_damaged(path, "a row group has fewer than no rows");
    return SL_OK;
}

static sl_status parse(const char *path, sl_thrift *t, sl_region *region, sl_parquet_meta *meta)
{
    int id = 0;
    sl_thrift_type type;
    while (sl_thrift_field(t, &id, &type)) {
        if (id == 2 && type == SL_THRIFT_LIST)
            SL_TRY(read_schema(t, region, meta));
        else if (id == 4 && type == SL_THRIFT_LIST)
            SL_TRY(read_groups(t, region, meta));
        else
            sl_thrift_skip(t, type);
    }
    if (t->damaged || meta->n_leaves < 1)
        return sl_parquet_damaged(path, "its metadata cannot be read");
    return SL_OK;
}

sl_status sl_parquet_read_meta(const char *path, sl_reader *reader, sl_region *region, sl_parquet_meta *meta)
{
    unsigned char tail[TAIL_BYTES], *bytes;
    int64_t size = sl_reader_size(reader);
    *meta = (sl_parquet_meta){0};
    if (size < 4 + TAIL_BYTES)
        return sl_parquet_damaged(path, "it is too short");
    SL_TRY(sl_reader_read(reader, size - TAIL_BYTES, tail, sizeof tail));
    if (memcmp(tail + 4, "PARE", 4) == 0)
        return sl_fail(SL_E_UNSUPPORTED, "%s is an encrypted parquet file: decrypt it first", path);
    if (memcmp(tail + 4, "PAR1", 4) != 0)
        return sl_parquet_damaged(path, "it does not end with PAR1, so it is truncated or another format");
    int64_t length = (int64_t) tail[0] | (int64_t) tail[1] << 8 | (int64_t) tail[2] << 16 | (int64_t) tail[3] << 24;
    if (length > size - 4 - TAIL_BYTES || length > MOST_META_BYTES)
        return sl_parquet_damaged(path, "its metadata is longer than the file");
    SL_TRY(sl_alloc(&bytes, SL_MAX(length, 1), 1));
    sl_status status = sl_reader_read(reader, size - TAIL_BYTES - length, bytes, (size_t) length);
    if (status == SL_OK)
        status = parse(path, &(sl_thrift){bytes, bytes + length, false}, region, meta);
    sl_free(bytes);
    return status == SL_OK ? check_chunks(path, meta, size) : status;
}
