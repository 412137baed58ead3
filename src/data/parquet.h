/*
 * Inside data: the part of the parquet format that text data uses. A file ends with its metadata (Thrift's compact protocol), which
 * says where the pages of every column lie. Read are columns of strings, flat or within one list of structures; pages of both
 * versions, plain, by dictionary or with delta-encoded lengths; not compressed, or with snappy, gzip or zstd.
 *
 * Nothing that a file claims is believed: offsets and sizes are held against the file's size, counts against the bytes that would hold
 * them, and a page is decoded whole or not at all. Memory: a page and a dictionary for each column that is read.
 */
#ifndef SL_DATA_PARQUET_H
#define SL_DATA_PARQUET_H

#include <stdbool.h>
#include <stdint.h>

#include "core/file.h"
#include "core/mem.h"
#include "data/codec.h"

/* ---- Thrift, parquet_thrift.c ---- */

typedef struct sl_thrift {
    const unsigned char *at, *end;
    bool damaged; /* sticks: what is read then is 0 */
} sl_thrift;

typedef enum sl_thrift_type {
    SL_THRIFT_STOP,
    SL_THRIFT_TRUE,
    SL_THRIFT_FALSE,
    SL_THRIFT_BYTE,
    SL_THRIFT_I16,
    SL_THRIFT_I32,
    SL_THRIFT_I64,
    SL_THRIFT_DOUBLE,
    SL_THRIFT_BINARY,
    SL_THRIFT_LIST,
    SL_THRIFT_SET,
    SL_THRIFT_MAP,
    SL_THRIFT_STRUCT
} sl_thrift_type;

uint64_t sl_thrift_varint(sl_thrift *t);
int64_t sl_thrift_int(sl_thrift *t); /* zigzag */
const char *sl_thrift_binary(sl_thrift *t, size_t *length);
/* Moves on to the next field of a structure; false at its end. `id`: that of the field before, 0 at first. */
bool sl_thrift_field(sl_thrift *t, int *id, sl_thrift_type *type);
/* Elements of a list, each of `type`. */
int64_t sl_thrift_list(sl_thrift *t, sl_thrift_type *type);
void sl_thrift_skip(sl_thrift *t, sl_thrift_type type);

/* ---- metadata, parquet_meta.c ---- */

typedef struct sl_parquet_leaf {
    const char *top, *name; /* the field of a row that it belongs to, and its own */
    bool is_string;         /* BYTE_ARRAY */
    int depth;              /* 1: the field itself */
    int max_def, max_rep;
    int list_def; /* the level from which on an element of the list exists; max_rep 1 */
} sl_parquet_leaf;

typedef struct sl_parquet_chunk {
    int64_t start, bytes; /* of its pages */
    int64_t values;       /* nulls included */
    int codec;
} sl_parquet_chunk;

typedef struct sl_parquet_meta {
    sl_parquet_leaf *leaves;
    int64_t n_leaves, n_groups;
    sl_parquet_chunk *chunks; /* [n_groups][n_leaves] */
    int64_t *group_rows;
} sl_parquet_meta;

/* Everything lives in `region`. */
sl_status sl_parquet_read_meta(const char *path, sl_reader *reader, sl_region *region, sl_parquet_meta *meta);

/* ---- a column's values, parquet_column.c ---- */

/* Runs of equal numbers and of bit-packed ones, in turn. */
typedef struct sl_parquet_runs {
    const unsigned char *at, *end;
    int width; /* bits */
    uint64_t left;
    bool packed;
    uint32_t value;
    uint64_t bit; /* of the packed run */
    const unsigned char *packed_at;
} sl_parquet_runs;
void sl_parquet_runs_begin(sl_parquet_runs *r, const unsigned char *at, const unsigned char *end, int width);
bool sl_parquet_runs_next(sl_parquet_runs *r, uint32_t *value); /* false: damaged */

/* Delta-encoded numbers. */
typedef struct sl_parquet_deltas {
    const unsigned char *at, *end;
    uint64_t count, taken;
    uint64_t block, minis; /* numbers of a block, and its parts */
    int64_t value, least;
    const unsigned char *widths;
    uint64_t in_block, bit;
} sl_parquet_deltas;
bool sl_parquet_deltas_begin(sl_parquet_deltas *d, const unsigned char *at, const unsigned char *end);
bool sl_parquet_deltas_next(sl_parquet_deltas *d, int64_t *value);
/* Behind the last one; NULL: damaged. */
const unsigned char *sl_parquet_deltas_end(sl_parquet_deltas d);

typedef struct sl_parquet_string {
    const char *bytes; /* NULL: null */
    size_t length;
} sl_parquet_string;

typedef struct sl_parquet_column {
    const char *path;
    sl_reader *reader;
    const sl_parquet_leaf *leaf;
    sl_parquet_chunk chunk; /* what is left of it */
    unsigned char *raw, *page, *dictionary_page;
    size_t raw_bytes, page_bytes, dictionary_bytes;
    sl_parquet_string *dictionary;
    int64_t n_dictionary;
    int64_t in_page; /* values left */
    int encoding;
    sl_parquet_runs reps, defs, indices;
    sl_parquet_deltas lengths;
    const unsigned char *values, *values_end;
    bool ready; /* the value below has not been taken */
    uint32_t rep, def;
    sl_parquet_string value;
} sl_parquet_column;

/* Goes on to a chunk; buffers are kept from one to the next. Zero-initialise the column. */
void sl_parquet_column_begin(sl_parquet_column *c, const sl_parquet_chunk *chunk);
/* Makes the next value stand in `rep`, `def` and `value`; `any` false at the end. It stands until the next peek behind a take. */
sl_status sl_parquet_column_peek(sl_parquet_column *c, bool *any);
void sl_parquet_column_take(sl_parquet_column *c);
void sl_parquet_column_free(sl_parquet_column *c);

sl_status sl_parquet_damaged(const char *path, const char *what);

#endif
