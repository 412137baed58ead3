/* Growing text, and the few ways numbers are read and shown everywhere. */
#ifndef SL_CORE_TEXT_H
#define SL_CORE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

/* A growing, always NUL-terminated string. Zero-initialise it. A failed allocation sticks: check sl_text_status once at
 * the end. */
typedef struct sl_text {
    char *data;
    size_t length, capacity;
    bool failed;
} sl_text;
void sl_text_free(sl_text *text);
void sl_text_append(sl_text *text, const char *bytes, size_t length);
void sl_text_printf(sl_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
sl_status sl_text_status(const sl_text *text);
/* The address behind the text, which is NULL for one that nothing was added to. */
static inline const char *sl_text_end(const sl_text *text)
{
    return text->length ? text->data + text->length : text->data;
}

/* For terminals: the columns that a UTF-8 text takes; the text in `width` columns, with blanks before or behind it; and a bar of this share
 * of `width` columns, in eighths of a character. */
int sl_text_columns(const char *text);
void sl_text_pad(sl_text *out, const char *text, int width, bool right);
void sl_text_bar(sl_text *out, double share, int width);

/* Moves on to the next item of "a, b,c" and copies it, as much as fits; false at the end, which NULL is too. */
bool sl_next_item(const char **list, char *item, size_t size);

/* "24GiB", "1.5 GB", "512MiB", "4096": binary for KiB/MiB/..., decimal for kB/MB/...; plain numbers are bytes.
 * "max" or "unlimited" is SIZE_MAX. */
sl_status sl_parse_bytes(const char *text, size_t *out);
/* A memory budget: an amount as above, or a share of what a job takes without budgets: "40%", "12.5 %", "250%". */
typedef struct sl_budget {
    size_t bytes; /* SIZE_MAX: not limited */
    double share; /* 0.4 for "40%"; 0: `bytes` says it */
} sl_budget;
sl_status sl_parse_budget(const char *text, sl_budget *out);
/* How many percent of `whole` the bytes are, with one digit and rounded up: as a budget it is no less than the bytes. */
double sl_percent_up(size_t bytes, size_t whole);
sl_status sl_parse_i64(const char *text, int64_t *out); /* 524288, 512k, 1M; k is 1024, as in "8k tokens" */
sl_status sl_parse_f64(const char *text, double *out);
sl_status sl_parse_bool(const char *text, bool *out);
/* 25769803776 -> "24.0 GiB"; the buffer is returned. */
char *sl_format_bytes(size_t bytes, char out[32]);
/* The same rounded up: a budget that is typed as shown is enough. */
char *sl_format_bytes_up(size_t bytes, char out[32]);
/* 0.00123 -> "1.23 ms" */
char *sl_format_seconds(double seconds, char out[32]);
/* 1234567 -> "1,234,567" */
char *sl_format_count(int64_t count, char out[32]);
/* The shortest decimal that reads back as the same number, whatever the locale. */
char *sl_format_f64(double value, char out[32]);
/* vsnprintf with a decimal point, whatever the process's locale. */
void sl_format_plain(char *out, size_t size, const char *format, va_list arguments);
/* The length of the UTF-8 sequence at `at`, or 0: overlong forms, surrogates and values past U+10FFFF are refused. */
int sl_utf8_length(const char *at, const char *end);

#endif
