/* Writing JSON. `need_comma` says whether something already stands before us in the current object or array; closing
 * one always leaves it true for the level above. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/json.h"

/* What stands for a byte that is no UTF-8: a path may hold any, and a file with one could not be read again. */
#define REPLACEMENT "\xef\xbf\xbd"

static void put_quoted(sl_text *text, const char *string, size_t bytes)
{
    const char *from = string, *end = string + bytes;
    sl_text_append(text, "\"", 1);
    for (const char *at = string; at < end;) {
        unsigned char c = (unsigned char) *at;
        int length = sl_utf8_length(at, end);
        if (length > 1 || (c >= 0x20 && c < 0x7f && c != '"' && c != '\\')) {
            at += length;
            continue;
        }
        sl_text_append(text, from, (size_t) (at - from));
        from = ++at;
        if (length == 0)
            sl_text_append(text, REPLACEMENT, 3);
        else if (c == '"' || c == '\\')
            sl_text_printf(text, "\\%c", c);
        else if (c == '\n')
            sl_text_append(text, "\\n", 2);
        else if (c == '\t')
            sl_text_append(text, "\\t", 2);
        else
            sl_text_printf(text, "\\u%04x", c);
    }
    sl_text_append(text, from, (size_t) (end - from));
    sl_text_append(text, "\"", 1);
}

static void break_line(sl_json_writer *w)
{
    if (w->indent && w->depth > 0)
        sl_text_printf(&w->text, "\n%*s", 2 * w->depth, "");
}

static void put_key(sl_json_writer *w, const char *key)
{
    if (w->need_comma)
        sl_text_append(&w->text, ",", 1);
    w->need_comma = true;
    break_line(w);
    if (key) {
        put_quoted(&w->text, key, strlen(key));
        sl_text_append(&w->text, ": ", w->indent ? 2 : 1);
    }
}

static void begin(sl_json_writer *w, const char *key, const char *bracket)
{
    put_key(w, key);
    sl_text_append(&w->text, bracket, 1);
    w->depth++;
    w->need_comma = false;
}

static void end(sl_json_writer *w, const char *bracket)
{
    SL_ASSERT(w->depth > 0);
    w->depth--;
    if (w->need_comma && w->indent)
        sl_text_printf(&w->text, "\n%*s", 2 * w->depth, "");
    sl_text_append(&w->text, bracket, 1);
    w->need_comma = true;
}

void sl_json_begin_object(sl_json_writer *w, const char *key)
{
    begin(w, key, "{");
}

void sl_json_end_object(sl_json_writer *w)
{
    end(w, "}");
}

void sl_json_begin_array(sl_json_writer *w, const char *key)
{
    begin(w, key, "[");
}

void sl_json_end_array(sl_json_writer *w)
{
    end(w, "]");
}

void sl_json_put_i64(sl_json_writer *w, const char *key, int64_t value)
{
    put_key(w, key);
    sl_text_printf(&w->text, "%" PRId64, value);
}

void sl_json_put_bytes(sl_json_writer *w, const char *key, size_t bytes)
{
    if (bytes == SIZE_MAX)
        sl_json_put_null(w, key);
    else
        sl_json_put_i64(w, key, (int64_t) bytes);
}

void sl_json_put_f64(sl_json_writer *w, const char *key, double value)
{
    if (!isfinite(value)) {
        sl_json_put_null(w, key);
        return;
    }
    char digits[32];
    put_key(w, key);
    sl_format_f64(value, digits);
    sl_text_append(&w->text, digits, strlen(digits));
    if (value == 0 && signbit(value))
        sl_text_append(&w->text, ".0", 2); /* "-0" is an integer, which has no sign when it is read */
}

void sl_json_put_real(sl_json_writer *w, const char *key, double value)
{
    char digits[32];
    sl_json_put_f64(w, key, value);
    if (!isfinite(value) || (value == 0 && signbit(value)))
        return;
    sl_format_f64(value, digits);
    if (!strpbrk(digits, ".eE"))
        sl_text_append(&w->text, ".0", 2);
}

void sl_json_put_bool(sl_json_writer *w, const char *key, bool value)
{
    put_key(w, key);
    sl_text_append(&w->text, value ? "true" : "false", value ? 4 : 5);
}

void sl_json_put_string(sl_json_writer *w, const char *key, const char *value)
{
    if (!value) {
        sl_json_put_null(w, key);
        return;
    }
    sl_json_put_text(w, key, value, strlen(value));
}

void sl_json_put_text(sl_json_writer *w, const char *key, const char *value, size_t length)
{
    put_key(w, key);
    put_quoted(&w->text, value, length);
}

void sl_json_put_null(sl_json_writer *w, const char *key)
{
    put_key(w, key);
    sl_text_append(&w->text, "null", 4);
}

void sl_json_put_value(sl_json_writer *w, const char *key, const sl_json *value)
{
    bool object = value->kind == SL_JSON_OBJECT;
    switch (value->kind) {
    case SL_JSON_NULL:
        sl_json_put_null(w, key);
        return;
    case SL_JSON_BOOL:
        sl_json_put_bool(w, key, value->boolean);
        return;
    case SL_JSON_STRING:
        sl_json_put_text(w, key, value->string, value->length);
        return;
    case SL_JSON_NUMBER:
        if (value->is_integer && (value->integer || !signbit(value->number))) /* -0 keeps its sign */
            sl_json_put_i64(w, key, value->integer);
        else
            sl_json_put_real(w, key, value->number);
        return;
    default:
        (object ? sl_json_begin_object : sl_json_begin_array)(w, key);
        for (const sl_json *child = value->child; child; child = child->next)
            sl_json_put_value(w, object ? child->key : NULL, child);
        (object ? sl_json_end_object : sl_json_end_array)(w);
    }
}
