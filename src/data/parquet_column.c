/*
 * The values of a column, from its pages:
 *
 *     version 1   header | repetition levels, with their length | definition levels, with theirs | values       compressed as one
 *     version 2   header | repetition levels | definition levels | values                         the values alone compressed
 *
 * A dictionary is a page of plain strings before them. A value points into its page, so it is used before the next one is asked for.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "data/parquet.h"

enum { PLAIN = 0, PLAIN_DICTIONARY = 2, DELTA_LENGTH = 6, RLE_DICTIONARY = 8 };
enum { DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 };
enum { MOST_HEADER_BYTES = 1 << 16 };
static const int64_t most_page_bytes = (int64_t) 512 << 20;

typedef struct page_header {
    int64_t type, bytes, stored; /* decoded; in the file */
    int64_t values, encoding;
    int64_t def_bytes, rep_bytes; /* version 2 */
    bool compressed;
} page_header;

static sl_status broken(const sl_parquet_column *c, const char *what)
{
    char text[200];
    snprintf(text, sizeof text, "column %.80s: %s", c->leaf->top, what);
    return sl_parquet_damaged(c->path, text);
}

/* ---- headers ---- */

/* The three kinds number their fields differently. */
static void read_kind(sl_thrift *t, int kind, page_header *h)
{
    int id = 0;
    sl_thrift_type type;
    const bool v2 = kind == 8;
    while (sl_thrift_field(t, &id, &type)) {
        if (type == SL_THRIFT_I32 && id == 1)
            h->values = sl_thrift_int(t);
        else if (type == SL_THRIFT_I32 && id == (v2 ? 4 : 2))
            h->encoding = sl_thrift_int(t);
        else if (type == SL_THRIFT_I32 && v2 && id == 5)
            h->def_bytes = sl_thrift_int(t);
        else if (type == SL_THRIFT_I32 && v2 && id == 6)
            h->rep_bytes = sl_thrift_int(t);
        else if (v2 && id == 7)
            h->compressed = type == SL_THRIFT_TRUE;
        else
            sl_thrift_skip(t, type);
    }
}

static void read_header(sl_thrift *t, page_header *h)
{
    int id = 0;
    sl_thrift_type type;
    *h = (page_header){.type = -1, .compressed = true};
    while (sl_thrift_field(t, &id, &type)) {
        if (type == SL_THRIFT_I32 && id == 1)
            h->type = sl_thrift_int(t);
        else if (type == SL_THRIFT_I32 && id == 2)
            h->bytes = sl_thrift_int(t);
        else if (type == SL_THRIFT_I32 && id == 3)
            h->stored = sl_thrift_int(t);
        else if (type == SL_THRIFT_STRUCT && (id == 5 || id == 7 || id == 8))
            read_kind(t, id, h);
        else
            sl_thrift_skip(t, type);
    }
}

/* At least a byte: an address behind an empty page's is one as well. */
static sl_status grow(unsigned char **buffer, size_t *capacity, int64_t bytes)
{
    if (*buffer && (size_t) bytes <= *capacity)
        return SL_OK;
    sl_free(*buffer);
    *buffer = NULL, *capacity = 0;
    SL_TRY(sl_alloc(buffer, bytes ? bytes : 1, 1));
    *capacity = (size_t) bytes;
    return SL_OK;
}

/* The header, and the page's bytes as they are stored. */
static sl_status read_page(sl_parquet_column *c, page_header *h)
{
    unsigned char bytes[4096];
    unsigned char *large = NULL, *from = bytes;
    int64_t some = SL_MIN(c->chunk.bytes, (int64_t) sizeof bytes);
    SL_TRY(sl_reader_read(c->reader, c->chunk.start, bytes, (size_t) some));
    sl_thrift t = {from, from + some, false};
    read_header(&t, h);
    if (t.damaged && c->chunk.bytes > some) { /* statistics may be long strings */
        some = SL_MIN(c->chunk.bytes, (int64_t) MOST_HEADER_BYTES);
        SL_TRY(sl_alloc(&large, some, 1));
        sl_status status = sl_reader_read(c->reader, c->chunk.start, large, (size_t) some);
        t = (sl_thrift){large, large + some, false};
        from = large;
        if (status == SL_OK)
            read_header(&t, h);
        sl_free(large);
        SL_TRY(status);
    }
    int64_t header = t.at - from;
    if (t.damaged || h->stored < 0 || h->bytes < 0 || h->stored > c->chunk.bytes - header || h->values < 0)
        return broken(c, "a page's header cannot be read");
    if (h->bytes > most_page_bytes)
        return broken(c, "a page claims more than 512 MiB");
    SL_TRY(grow(&c->raw, &c->raw_bytes, h->stored));
    SL_TRY(sl_reader_read(c->reader, c->chunk.start + header, c->raw, (size_t) h->stored));
    c->chunk.start += header + h->stored;
    c->chunk.bytes -= header + h->stored;
    return SL_OK;
}

static sl_status decode(const sl_parquet_column *c, const unsigned char *in, int64_t in_bytes, unsigned char *out,
                        int64_t out_bytes)
{
    static const sl_codec *const codecs[] = {[1] = &sl_codec_snappy, [2] = &sl_codec_gzip, [6] = &sl_codec_zstd};
    const sl_codec *codec = c->chunk.codec > 0 && c->chunk.codec < SL_COUNT(codecs) ? codecs[c->chunk.codec] : NULL;
    if (!codec)
        return sl_fail(SL_E_UNSUPPORTED,
                       "%s: column %.80s is compressed with parquet's codec %d; read are snappy, gzip and zstd: write "
                       "it again with one of them",
                       c->path, c->leaf->top, c->chunk.codec);
    if (out_bytes == 0)
        return SL_OK;
    sl_status status = codec->block(in, (size_t) in_bytes, out, (size_t) out_bytes);
    return status == SL_OK ? SL_OK : sl_fail_at(status, "%s: column %.80s", c->path, c->leaf->top);
}

/* Into `out`: all of it, or behind the first `plain` bytes, which are stored as they are. */
static sl_status unpack(sl_parquet_column *c, const page_header *h, int64_t plain, unsigned char **out,
                        size_t *capacity)
{
    SL_TRY(grow(out, capacity, h->bytes));
    if (c->chunk.codec == 0 || !h->compressed) {
        if (h->stored != h->bytes)
            return broken(c, "a page that is not compressed has two sizes");
        if (h->bytes)
            memcpy(*out, c->raw, (size_t) h->bytes);
        return SL_OK;
    }
    if (plain)
        memcpy(*out, c->raw, (size_t) plain);
    return decode(c, c->raw + plain, h->stored - plain, *out + plain, h->bytes - plain);
}

/* ---- pages ---- */

static uint32_t word(const unsigned char *b)
{
    return (uint32_t) b[0] | (uint32_t) b[1] << 8 | (uint32_t) b[2] << 16 | (uint32_t) b[3] << 24;
}

static bool plain_string(const unsigned char **at, const unsigned char *end, sl_parquet_string *out)
{
    if (end - *at < 4)
        return false;
    uint32_t length = word(*at);
    if (length > (uint64_t) (end - *at - 4))
        return false;
    *out = (sl_parquet_string){(const char *) *at + 4, length};
    *at += 4 + (size_t) length;
    return true;
}

static sl_status read_dictionary(sl_parquet_column *c, const page_header *h)
{
    if (h->values > h->bytes / 4 || (h->encoding != PLAIN && h->encoding != PLAIN_DICTIONARY))
        return broken(c, "its dictionary cannot be read");
    SL_TRY(unpack(c, h, 0, &c->dictionary_page, &c->dictionary_bytes));
    sl_free(c->dictionary);
    c->dictionary = NULL;
    SL_TRY(sl_alloc(&c->dictionary, SL_MAX(h->values, 1), sizeof *c->dictionary));
    const unsigned char *at = c->dictionary_page, *end = at + h->bytes;
    for (c->n_dictionary = 0; c->n_dictionary < h->values; c->n_dictionary++)
        if (!plain_string(&at, end, &c->dictionary[c->n_dictionary]))
            return broken(c, "its dictionary cannot be read");
    return SL_OK;
}

static int width_of(int most)
{
    return most ? 32 - __builtin_clz((unsigned) most) : 0;
}

/* Levels of a page of version 1 begin with their length. */
static bool take_levels(int most, const unsigned char **at, const unsigned char *end, sl_parquet_runs *runs)
{
    if (most == 0)
        return true;
    if (end - *at < 4 || word(*at) > (uint64_t) (end - *at - 4))
        return false;
    sl_parquet_runs_begin(runs, *at + 4, *at + 4 + word(*at), width_of(most));
    *at += 4 + (size_t) word(*at);
    return true;
}

static sl_status begin_values(sl_parquet_column *c, const page_header *h, const unsigned char *at,
                              const unsigned char *end)
{
    c->encoding = (int) h->encoding;
    c->values = at;
    c->values_end = end;
    c->in_page = h->values;
    if (h->encoding == PLAIN)
        return SL_OK;
    if (h->encoding == PLAIN_DICTIONARY || h->encoding == RLE_DICTIONARY) {
        int width = at < end ? *at : 0;
        if (width > 32)
            return broken(c, "dictionary indices of more than 32 bits");
        sl_parquet_runs_begin(&c->indices, at + (at < end), end, width);
        return SL_OK;
    }
    if (h->encoding == DELTA_LENGTH) {
        bool good = sl_parquet_deltas_begin(&c->lengths, at, end);
        c->values = good ? sl_parquet_deltas_end(c->lengths) : NULL;
        return c->values ? SL_OK : broken(c, "lengths that cannot be read");
    }
    return sl_fail(SL_E_UNSUPPORTED,
                   "%s: column %.80s has parquet's encoding %" PRId64
                   "; read are plain, dictionary and delta lengths: write it again with one of them",
                   c->path, c->leaf->top, h->encoding);
}

static sl_status begin_page(sl_parquet_column *c, const page_header *h)
{
    const bool v2 = h->type == DATA_PAGE_V2;
    int64_t levels = v2 ? h->def_bytes + h->rep_bytes : 0;
    if (v2 && (h->def_bytes < 0 || h->rep_bytes < 0 || levels > h->stored || levels > h->bytes))
        return broken(c, "levels longer than their page");
    if (h->values > c->chunk.values)
        return broken(c, "a page with more values than its column");
    c->chunk.values -= h->values;
    SL_TRY(unpack(c, h, levels, &c->page, &c->page_bytes));
    const unsigned char *at = c->page, *end = at + h->bytes;
    if (v2) {
        sl_parquet_runs_begin(&c->reps, at, at + h->rep_bytes, width_of(c->leaf->max_rep));
        sl_parquet_runs_begin(&c->defs, at + h->rep_bytes, at + levels, width_of(c->leaf->max_def));
        at += levels;
    } else if (!take_levels(c->leaf->max_rep, &at, end, &c->reps) ||
               !take_levels(c->leaf->max_def, &at, end, &c->defs)) {
        return broken(c, "levels longer than their page");
    }
    return begin_values(c, h, at, end);
}

static sl_status next_page(sl_parquet_column *c)
{
    page_header h;
    SL_TRY(read_page(c, &h));
    if (h.type == DICTIONARY_PAGE)
        return read_dictionary(c, &h);
    if (h.type == DATA_PAGE || h.type == DATA_PAGE_V2)
        return begin_page(c, &h);
    return SL_OK; /* an index */
}

/* ---- values ---- */

static bool next_string(sl_parquet_column *c, sl_parquet_string *out)
{
    uint32_t index;
    int64_t length;
    if (c->encoding == PLAIN)
        return plain_string(&c->values, c->values_end, out);
    if (c->encoding != DELTA_LENGTH) {
        if (!sl_parquet_runs_next(&c->indices, &index) || index >= c->n_dictionary)
            return false;
        *out = c->dictionary[index];
        return true;
    }
    if (!sl_parquet_deltas_next(&c->lengths, &length) || length < 0 || length > c->values_end - c->values)
        return false;
    *out = (sl_parquet_string){(const char *) c->values, (size_t) length};
    c->values += length;
    return true;
}

void sl_parquet_column_begin(sl_parquet_column *c, const sl_parquet_chunk *chunk)
{
    c->chunk = *chunk;
    c->n_dictionary = 0;
    c->in_page = 0;
    c->ready = false;
}

sl_status sl_parquet_column_peek(sl_parquet_column *c, bool *any)
{
    *any = true;
    if (c->ready)
        return SL_OK;
    while (c->in_page == 0 && c->chunk.bytes > 0 && c->chunk.values > 0)
        SL_TRY(next_page(c));
    *any = c->in_page > 0;
    if (!*any)
        return c->chunk.values == 0 ? SL_OK : broken(c, "fewer values than it should have");
    c->rep = 0;
    c->def = 0;
    c->value = (sl_parquet_string){NULL, 0};
    if ((c->leaf->max_rep && !sl_parquet_runs_next(&c->reps, &c->rep)) ||
        (c->leaf->max_def && !sl_parquet_runs_next(&c->defs, &c->def)) || c->rep > (uint32_t) c->leaf->max_rep ||
        c->def > (uint32_t) c->leaf->max_def)
        return broken(c, "levels that cannot be read");
    if (c->def == (uint32_t) c->leaf->max_def && !next_string(c, &c->value))
        return broken(c, "a string that cannot be read");
    c->in_page--;
    c->ready = true;
    return SL_OK;
}

void sl_parquet_column_take(sl_parquet_column *c)
{
    c->ready = false;
}

void sl_parquet_column_free(sl_parquet_column *c)
{
    sl_free(c->raw);
    sl_free(c->page);
    sl_free(c->dictionary_page);
    sl_free(c->dictionary);
}
