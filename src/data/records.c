/* What all readers of records share, and the reader of text files: a file is one document. */
#include "data/records.h"

#include <stdio.h>
#include <string.h>

#include "data/stream.h"

void sl_record_skip(sl_record_counts *counts, sl_record_fault why)
{
    counts->skipped[why]++;
    if (!counts->first[0])
        snprintf(counts->first, sizeof counts->first, "%s", sl_error_message());
}

void sl_record_skip_because(sl_record_counts *counts, sl_record_fault why, const char *format, ...)
{
    counts->skipped[why]++;
    if (counts->first[0])
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(counts->first, sizeof counts->first, format, arguments);
    va_end(arguments);
}

sl_status sl_records_open(const sl_records_config *config, sl_records **records)
{
    switch (config->format) {
    case SL_FORMAT_JSON:
        return sl_json_records_open(config, records);
    case SL_FORMAT_PARQUET:
        return sl_parquet_records_open(config, records);
    default:
        return sl_text_records_open(config, records);
    }
}

sl_status sl_records_next(sl_records *records, sl_record *record, bool *more)
{
    *more = false;
    *record = (sl_record){.region = NULL};
    sl_status status = records->class->next(records, record, more);
    if (status == SL_OK && *more)
        records->config.counts->kinds[record->kind] += !record->continued;
    else
        sl_record_free(record);
    return status;
}

void sl_records_close(sl_records *records)
{
    if (records)
        records->class->close(records);
}

void sl_record_free(sl_record *record)
{
    sl_region_destroy(record->region);
    *record = (sl_record){.region = NULL};
}

/* ---- text ---- */

/*
 * A document of any length, in pieces that end with a line whose next one does not begin with a blank. There a tokenizer that
 * splits texts into words has a boundary anyway, so pieces have the tokens of the whole.
 */
enum { PIECE_BYTES = 1 << 20, HARD_PIECE_BYTES = 4 << 20 };

typedef struct text_records {
    sl_records base;
    sl_stream *stream;
    char *buffer;
    size_t held;
    bool at_end, begun;
} text_records;

static void close_text(sl_records *records)
{
    text_records *t = (text_records *) records;
    sl_stream_close(t->stream);
    sl_free(t->buffer);
    sl_free(t);
}

/* Where the piece ends: behind the last good line end, else before the last character that may go on, which is at most 4 bytes. */
static size_t piece_end(const text_records *t)
{
    if (t->at_end)
        return t->held;
    for (size_t i = t->held - 1; i > 0; i--) {
        char next = t->buffer[i];
        if (t->buffer[i - 1] == '\n' && next != '\n' && next != '\r' && next != ' ' && next != '\t')
            return i;
    }
    size_t end = t->held;
    while (end > t->held - 4 && ((unsigned char) t->buffer[end - 1] & 0xc0) == 0x80)
        end--;
    return end - ((unsigned char) t->buffer[end - 1] >= 0xc0);
}

static sl_status read_more(text_records *t, size_t bytes)
{
    size_t got;
    SL_TRY(sl_stream_read(t->stream, t->buffer + t->held, bytes - t->held, &got));
    t->at_end = t->held + got < bytes;
    t->held += got;
    return SL_OK;
}

static sl_status next_text(sl_records *records, sl_record *record, bool *more)
{
    text_records *t = (text_records *) records;
    if (!t->at_end)
        SL_TRY(read_more(t, PIECE_BYTES));
    if (!t->at_end && !memchr(t->buffer, '\n', t->held))
        SL_TRY(read_more(t, HARD_PIECE_BYTES));
    if (!t->begun) {
        t->begun = true;
        records->config.counts->records++;
        if (t->held == 0)
            sl_record_skip_because(records->config.counts, SL_RECORD_EMPTY, "%s is empty", records->config.path);
    } else {
        record->continued = true;
    }
    if (t->held == 0)
        return SL_OK;
    size_t end = piece_end(t);
    char *text;
    SL_TRY(sl_region_create(&record->region));
    SL_TRY(sl_region_alloc(record->region, &text, end + 1, 1));
    memcpy(text, t->buffer, end);
    memmove(t->buffer, t->buffer + end, t->held - end);
    t->held -= end;
    record->kind = SL_RECORD_TEXT;
    record->text = text, record->length = end;
    *more = true;
    return SL_OK;
}

sl_status sl_text_records_open(const sl_records_config *config, sl_records **out)
{
    static const sl_records_class class = {next_text, close_text};
    text_records *t;
    sl_status status;
    SL_TRY(sl_alloc(&t, 1, sizeof *t));
    t->base = (sl_records){&class, *config};
    SL_TRY_GOTO(sl_alloc(&t->buffer, HARD_PIECE_BYTES, 1), fail);
    SL_TRY_GOTO(sl_stream_open(config->path, &t->stream), fail);
    *out = &t->base;
    return SL_OK;
fail:
    close_text(&t->base);
    return status;
}
