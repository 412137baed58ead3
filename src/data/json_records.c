/*
 * JSON records: one value a line (.jsonl), or one array that holds them all. The stream passes through one buffer, which holds a
 * record at a time:
 *
 *     | used up | record ............ | scanned so far | not yet read |
 *               begin                  end of scan      held
 *
 * A record may take 64 MiB of text and a million values; a longer one is left out, and passed over without being held. Before it is
 * parsed, halves of surrogate pairs ("\ud83d" alone), which strict JSON refuses and Python writes, become U+FFFD, and are counted.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "data/records.h"
#include "data/stream.h"

enum { FIRST_BUFFER = 1 << 16, MOST_VALUES = 1 << 20 };
static const size_t most_bytes = (size_t) 64 << 20;

typedef struct json_records {
    sl_records base;
    sl_stream *stream;
    char *buffer;
    size_t capacity, begin, scan, held;
    bool at_end, array, passing; /* passing: over what is too long */
    bool in_string, escaped;     /* of the scan within an array */
    int64_t depth, number;
} json_records;

static void close_json(sl_records *records)
{
    json_records *j = (json_records *) records;
    sl_stream_close(j->stream);
    sl_free(j->buffer);
    sl_free(j);
}

/* Makes space, then reads. What is passed over is not kept. */
static sl_status read_more(json_records *j)
{
    if (j->passing)
        j->begin = j->scan;
    if (j->begin) {
        memmove(j->buffer, j->buffer + j->begin, j->held - j->begin);
        j->held -= j->begin, j->scan -= j->begin, j->begin = 0;
    }
    if (j->held == j->capacity && j->capacity >= most_bytes) {
        j->passing = true;
        return read_more(j);
    }
    if (j->held == j->capacity) {
        SL_TRY(sl_grow(&j->buffer, j->capacity, 2 * j->capacity, 1));
        j->capacity *= 2;
    }
    size_t got;
    SL_TRY(sl_stream_read(j->stream, j->buffer + j->held, j->capacity - j->held, &got));
    j->at_end = j->held + got < j->capacity;
    j->held += got;
    return SL_OK;
}

/* ---- where a record ends ---- */

/* Moves the scan on to the end of the line; false: more has to be read. */
static bool scan_line(json_records *j)
{
    const char *end = memchr(j->buffer + j->scan, '\n', j->held - j->scan);
    j->scan = end ? (size_t) (end - j->buffer) : j->held;
    return end != NULL;
}

/* To the comma or bracket behind an element. */
static bool scan_element(json_records *j)
{
    for (; j->scan < j->held; j->scan++) {
        char c = j->buffer[j->scan];
        if (j->escaped)
            j->escaped = false;
        else if (j->in_string && c == '\\')
            j->escaped = true;
        else if (c == '"')
            j->in_string = !j->in_string;
        else if (j->in_string)
            continue;
        else if (j->depth == 0 && (c == ',' || c == ']'))
            return true;
        else if (c == '{' || c == '[')
            j->depth++;
        else if (c == '}' || c == ']')
            j->depth--;
    }
    return false;
}

static bool is_blank(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!strchr(" \t\r\n", text[i]) || !text[i])
            return false;
    return true;
}

/* The next record's text, without what separates it from the next; false: there is none. */
static sl_status next_span(json_records *j, char **text, size_t *length, bool *too_long, bool *found)
{
    *found = false;
    do {
        j->scan = j->begin;
        j->passing = j->in_string = j->escaped = false;
        j->depth = 0;
        while (!(j->array ? scan_element(j) : scan_line(j))) {
            if (j->at_end)
                break;
            SL_TRY(read_more(j));
        }
        bool ends = j->scan < j->held; /* with a separator */
        *text = j->buffer + j->begin;
        *length = j->scan - j->begin;
        *too_long = j->passing;
        *found = *too_long || !is_blank(*text, *length);
        if (ends && j->array && j->buffer[j->scan] == ']')
            j->array = false; /* what follows is looked at as lines: blank, or an error that is counted */
        else if (!ends && j->array && *found)
            return sl_fail(SL_E_FORMAT, "%s ends within its array: it is truncated, download or write it again",
                           j->base.config.path);
        j->begin = j->scan + ends;
        if (!ends)
            return SL_OK;
    } while (!*found);
    return SL_OK;
}

/* ---- tidying ---- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* The code of "\uXXXX" at `at`, -1 where there is none. */
static int32_t escape_code(const char *at, const char *end)
{
    int32_t code = 0;
    if (end - at < 6 || at[0] != '\\' || at[1] != 'u')
        return -1;
    for (int i = 2; i < 6; i++) {
        int digit = hex_digit(at[i]);
        if (digit < 0)
            return -1;
        code = code * 16 + digit;
    }
    return code;
}

/* Behind the escape at `at`. Half a pair is overwritten in place: both spellings have six characters. */
static char *tidy_escape(char *at, const char *end, int64_t *replaced)
{
    static const char replacement[] = {'\\', 'u', 'f', 'f', 'f', 'd'};
    int32_t code = escape_code(at, end);
    if (code < 0)
        return at + (end - at > 1 ? 2 : 1);
    bool high = code >= 0xd800 && code <= 0xdbff, low = code >= 0xdc00 && code <= 0xdfff;
    if (high) {
        int32_t next = escape_code(at + 6, end);
        if (next >= 0xdc00 && next <= 0xdfff)
            return at + 12;
    }
    if (high || low) {
        memcpy(at, replacement, sizeof replacement);
        ++*replaced;
    }
    return at + 6;
}

/* How many values there may be at most. */
static int64_t tidy(char *text, size_t length, int64_t *replaced)
{
    const char *end = text + length;
    int64_t values = 1;
    bool in_string = false;
    for (char *at = text; at < end;) {
        if (in_string && *at == '\\') {
            at = tidy_escape(at, end, replaced);
            continue;
        }
        in_string ^= *at == '"';
        values += !in_string && (*at == ',' || *at == '[' || *at == '{');
        at++;
    }
    return values;
}

/* ---- records ---- */

static sl_status take(json_records *j, char *text, size_t length, sl_record *record, bool *used)
{
    sl_record_counts *counts = j->base.config.counts;
    const sl_json *value;
    char name[256];
    *used = false;
    snprintf(name, sizeof name, "%.200s, record %" PRId64, j->base.config.path, j->number);
    if (tidy(text, length, &counts->replaced) > MOST_VALUES) {
        sl_record_skip_because(counts, SL_RECORD_TOO_LONG, "%s holds more than %d values", name, MOST_VALUES);
        return SL_OK;
    }
    SL_TRY(sl_region_create(&record->region));
    sl_status status = sl_json_parse(record->region, name, text, length, &value);
    if (status == SL_E_FORMAT) {
        sl_record_skip(counts, SL_RECORD_MALFORMED);
        return SL_OK;
    }
    SL_TRY(status);
    return sl_record_of(&j->base.config, name, value, record, used);
}

static sl_status next_json(sl_records *records, sl_record *record, bool *more)
{
    json_records *j = (json_records *) records;
    bool found = true, too_long = false;
    while (!*more) {
        char *text;
        size_t length;
        SL_TRY(next_span(j, &text, &length, &too_long, &found));
        if (!found)
            return SL_OK;
        j->number++;
        records->config.counts->records++;
        if (too_long) {
            sl_record_skip_because(records->config.counts, SL_RECORD_TOO_LONG,
                                   "%s, record %" PRId64 " is longer than %zu bytes", records->config.path, j->number,
                                   most_bytes);
            continue;
        }
        SL_TRY(take(j, text, length, record, more));
        if (!*more)
            sl_record_free(record);
    }
    return SL_OK;
}

/* Over a byte-order mark and blanks to the first character, which tells an array from lines. */
static sl_status look_at_beginning(json_records *j)
{
    SL_TRY(read_more(j));
    if (j->held >= 3 && memcmp(j->buffer, "\xef\xbb\xbf", 3) == 0)
        j->begin = 3;
    while (j->begin < j->held && is_blank(j->buffer + j->begin, 1))
        j->begin++;
    j->array = j->begin < j->held && j->buffer[j->begin] == '[';
    j->begin += j->array;
    return SL_OK;
}

sl_status sl_json_records_open(const sl_records_config *config, sl_records **out)
{
    static const sl_records_class class = {next_json, close_json};
    json_records *j;
    sl_status status;
    SL_TRY(sl_alloc(&j, 1, sizeof *j));
    j->base = (sl_records){&class, *config};
    SL_TRY_GOTO(sl_alloc(&j->buffer, FIRST_BUFFER, 1), fail);
    j->capacity = FIRST_BUFFER;
    SL_TRY_GOTO(sl_stream_open(config->path, &j->stream), fail);
    SL_TRY_GOTO(look_at_beginning(j), fail);
    *out = &j->base;
    return SL_OK;
fail:
    close_json(&j->base);
    return status;
}
