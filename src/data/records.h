/*
 * Records of a file, one by one: a text, a chat, or a prompt with its completion. What a record is, its fields say:
 *
 *     {"messages": [{"role": "user", "content": "..."}, ...]}          chat; so is "conversations", with from/value too
 *     {"prompt": "...", "completion": "..."}                           completion; chat where both are lists of messages
 *     {"instruction": "...", "input": "...", "output": "..."}          chat of one turn; "input" may be absent
 *     {"text": "..."} or {"content": "..."}                            text
 *
 * A record that cannot be used is left out and counted by reason; only a file that cannot be read ends the reading.
 */
#ifndef SL_DATA_RECORDS_H
#define SL_DATA_RECORDS_H

#include <stdbool.h>

#include "core/json.h"
#include "core/mem.h"

typedef enum sl_record_kind { SL_RECORD_TEXT, SL_RECORD_COMPLETION, SL_RECORD_CHAT, SL_RECORD_KINDS } sl_record_kind;

typedef struct sl_record {
    sl_region *region; /* holds all of it: sl_record_free */
    sl_record_kind kind;
    bool continued;   /* text: the next piece of the document that the record before it began */
    bool last_turn;   /* chat: made of a prompt and a completion, which alone is to be learned */
    const char *text; /* or the prompt */
    size_t length;
    const char *completion;
    size_t completion_length;
    const sl_json *messages, *tools; /* chat; `tools` may be NULL */
} sl_record;

/* Why a record is left out. */
typedef enum sl_record_fault {
    SL_RECORD_EMPTY,
    SL_RECORD_MALFORMED, /* no JSON */
    SL_RECORD_NO_FIELD,  /* none of the fields above, or of another type */
    SL_RECORD_TOO_LONG,
    SL_RECORD_REFUSED,   /* by the chat template, or for want of one */
    SL_RECORD_NO_TARGET, /* nothing in it is to be learned, such as a chat without a turn of the assistant */
    SL_RECORD_SKIPS
} sl_record_fault;

typedef struct sl_record_counts {
    int64_t records; /* all that there are, those left out included */
    int64_t kinds[SL_RECORD_KINDS];
    int64_t skipped[SL_RECORD_SKIPS];
    int64_t replaced; /* halves of surrogate pairs, which are no text: read as U+FFFD */
    char first[256];  /* what is wrong with the first one that is left out; "" */
} sl_record_counts;

void sl_record_skip(sl_record_counts *counts, sl_record_fault why); /* with the thread's error message */
void sl_record_skip_because(sl_record_counts *counts, sl_record_fault why, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

typedef enum sl_record_format { SL_FORMAT_TEXT, SL_FORMAT_JSON, SL_FORMAT_PARQUET } sl_record_format;

typedef struct sl_records sl_records;
typedef struct sl_records_config {
    const char *path;
    sl_record_format format; /* JSON: one value a line, or one array of them */
    const char *field;       /* NULL: found by the names above */
    sl_record_counts *counts;
} sl_records_config;

/* A reader embeds it as its first member. */
typedef struct sl_records_class {
    sl_status (*next)(sl_records *records, sl_record *record, bool *more);
    void (*close)(sl_records *records);
} sl_records_class;
struct sl_records {
    const sl_records_class *class;
    sl_records_config config;
};

sl_status sl_records_open(const sl_records_config *config, sl_records **records);
/* `more` false: there was none. The caller frees the record. */
sl_status sl_records_next(sl_records *records, sl_record *record, bool *more);
void sl_records_close(sl_records *records);
void sl_record_free(sl_record *record);

/* ---- within the readers ---- */

sl_status sl_text_records_open(const sl_records_config *config, sl_records **records);
sl_status sl_json_records_open(const sl_records_config *config, sl_records **records);
sl_status sl_parquet_records_open(const sl_records_config *config, sl_records **records);

/* What an object's fields are, in the region of `record`. `used` false: it is left out, and counted. `name` is for messages. */
sl_status sl_record_of(const sl_records_config *config, const char *name, const sl_json *object, sl_record *record,
                       bool *used);

#endif
