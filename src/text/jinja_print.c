/* Values as text: Python's str and repr, and json.dumps as transformers calls it (no ASCII escapes, ", " and ": " between). Text inside
 * keeps its marks. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja_internal.h"

/* Python's repr: the shortest digits that read back, with an exponent outside 1e-4 ... 1e16, and always recognisable as a float. */
char *sl_jinja_format_f64(double value, char out[40])
{
    if (isnan(value) || isinf(value)) {
        snprintf(out, 40, "%s", isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
        return out;
    }
    char shortest[32], digits[32];
    sl_format_f64(value, shortest);
    int count = 0, exponent = 0, point = -1;
    const char *at = shortest;
    bool negative = *at == '-', leading = true;
    for (at += negative; *at && *at != 'e'; at++) {
        if (*at == '.') {
            point = count;
            continue;
        }
        if (leading && *at == '0') { /* zeros in front are no digits: they move the point */
            exponent -= point >= 0;
            continue;
        }
        leading = false;
        digits[count++] = *at;
    }
    if (point < 0)
        point = count;
    if (*at == 'e') {
        int sign = at[1] == '-' ? -1 : 1, e = 0;
        for (at += 1 + (at[1] == '-' || at[1] == '+'); *at; at++)
            e = e * 10 + (*at - '0');
        exponent += sign * e;
    }
    int place = point + exponent; /* 0.DIGITS * 10^place */
    while (count > 1 && digits[count - 1] == '0')
        count--;
    digits[count] = 0;
    const char *minus = negative ? "-" : "";
    if (count == 0)
        snprintf(out, 40, "%s0.0", minus);
    else if (place > 16 || place < -3)
        snprintf(out, 40, "%s%c%s%se%c%02d", minus, digits[0], count > 1 ? "." : "", digits + 1, place > 0 ? '+' : '-',
                 place > 0 ? place - 1 : 1 - place);
    else if (place <= 0)
        snprintf(out, 40, "%s0.%.*s%s", minus, -place, "000", digits);
    else if (count <= place)
        snprintf(out, 40, "%s%s%.*s.0", minus, digits, place - count, "0000000000000000");
    else
        snprintf(out, 40, "%s%.*s.%s", minus, place, digits, digits + place);
    return out;
}

/* ---- Python's repr ---- */

static uint32_t code_at(const char *at, int length)
{
    static const unsigned char masks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t code = (unsigned char) at[0] & masks[length];
    for (int i = 1; i < length; i++)
        code = code << 6 | ((unsigned char) at[i] & 0x3f);
    return code;
}

/* What repr writes as an escape, as far as chats may contain it: controls, separators, formatting and private characters. */
static bool is_printable(uint32_t c)
{
    static const struct {
        uint32_t first, last;
    } hidden[] = {{0, 0x1f},        {0x7f, 0xa0},     {0xad, 0xad},       {0x61c, 0x61c},
                  {0x1680, 0x1680}, {0x180e, 0x180e}, {0x2000, 0x200f},   {0x2028, 0x202f},
                  {0x205f, 0x206f}, {0x3000, 0x3000}, {0xe000, 0xf8ff},   {0xfeff, 0xfeff},
                  {0xfff0, 0xfffb}, {0xfffe, 0xffff}, {0xe0000, 0xe00ff}, {0xf0000, 0x10ffff}};
    for (int64_t i = 0; i < SL_COUNT(hidden); i++)
        if (c >= hidden[i].first && c <= hidden[i].last)
            return false;
    return true;
}

static sl_status put_repr(sl_jinja_run *run, jinja_builder *b, const jinja_string *s)
{
    bool doubles = memchr(s->bytes, '\'', s->length) && !memchr(s->bytes, '"', s->length);
    char quote = doubles ? '"' : '\'';
    SL_TRY(sl_jinja_put(run, b, &quote, 1, 0));
    size_t plain = 0; /* from here on nothing needed an escape */
    for (size_t at = 0; at < s->length;) {
        char escape[16];
        int length = sl_utf8_length(s->bytes + at, s->bytes + s->length);
        uint32_t code = code_at(s->bytes + at, length);
        escape[0] = 0;
        if (code == '\n' || code == '\r' || code == '\t')
            snprintf(escape, sizeof escape, "\\%c", code == '\n' ? 'n' : code == '\r' ? 'r' : 't');
        else if (code == '\\' || code == (uint32_t) quote)
            snprintf(escape, sizeof escape, "\\%c", (char) code);
        else if (!is_printable(code))
            snprintf(escape, sizeof escape, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
        if (escape[0]) {
            SL_TRY(sl_jinja_put_part(run, b, s, plain, at));
            SL_TRY(sl_jinja_put(run, b, escape, strlen(escape), sl_jinja_mark_at(s, at)));
            plain = at + (size_t) length;
        }
        at += (size_t) length;
    }
    SL_TRY(sl_jinja_put_part(run, b, s, plain, s->length));
    return sl_jinja_put(run, b, &quote, 1, 0);
}

static sl_status put_repr_value(sl_jinja_run *run, jinja_builder *b, const jinja_value *v)
{
    return v->kind == JINJA_STRING ? put_repr(run, b, v->string) : sl_jinja_put_value(run, b, v);
}

static sl_status put_list(sl_jinja_run *run, jinja_builder *b, const jinja_value *v)
{
    bool tuple = v->kind == JINJA_TUPLE;
    SL_TRY(sl_jinja_put_text(run, b, tuple ? "(" : "["));
    for (int64_t i = 0; i < v->list->count; i++) {
        if (i > 0)
            SL_TRY(sl_jinja_put_text(run, b, ", "));
        SL_TRY(put_repr_value(run, b, &v->list->items[i]));
    }
    if (tuple && v->list->count == 1)
        SL_TRY(sl_jinja_put_text(run, b, ","));
    return sl_jinja_put_text(run, b, tuple ? ")" : "]");
}

static sl_status put_dict(sl_jinja_run *run, jinja_builder *b, const jinja_dict *dict)
{
    SL_TRY(sl_jinja_put_text(run, b, "{"));
    for (int64_t i = 0; i < dict->count; i++) {
        if (i > 0)
            SL_TRY(sl_jinja_put_text(run, b, ", "));
        SL_TRY(put_repr_value(run, b, &dict->entries[i].key));
        SL_TRY(sl_jinja_put_text(run, b, ": "));
        SL_TRY(put_repr_value(run, b, &dict->entries[i].value));
    }
    return sl_jinja_put_text(run, b, "}");
}

sl_status sl_jinja_put_value(sl_jinja_run *run, jinja_builder *b, const jinja_value *v)
{
    char text[40];
    SL_TRY(sl_jinja_spend(run, 1));
    switch (v->kind) {
    case JINJA_UNDEFINED:
        return SL_OK;
    case JINJA_NONE:
        return sl_jinja_put_text(run, b, "None");
    case JINJA_BOOL:
        return sl_jinja_put_text(run, b, v->boolean ? "True" : "False");
    case JINJA_INT:
        snprintf(text, sizeof text, "%lld", (long long) v->integer);
        return sl_jinja_put_text(run, b, text);
    case JINJA_FLOAT:
        return sl_jinja_put_text(run, b, sl_jinja_format_f64(v->number, text));
    case JINJA_STRING:
        return sl_jinja_put_string(run, b, v->string);
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
        if (++run->depth > JINJA_MOST_DEPTH)
            return sl_jinja_fail(run, "a value is nested too deeply to be written");
        SL_TRY(v->kind == JINJA_DICT ? put_dict(run, b, v->dict) : put_list(run, b, v));
        run->depth--;
        return SL_OK;
    default:
        return sl_jinja_fail(run, "a %s cannot be written as text", sl_jinja_kind_name(v->kind));
    }
}

sl_status sl_jinja_to_string(sl_jinja_run *run, const jinja_value *v, const jinja_string **out)
{
    if (v->kind == JINJA_STRING) {
        *out = v->string;
        return SL_OK;
    }
    jinja_builder b = {0};
    jinja_value built;
    SL_TRY(sl_jinja_put_value(run, &b, v));
    SL_TRY(sl_jinja_built(run, &b, &built));
    *out = built.string;
    return SL_OK;
}

/* ---- json.dumps ---- */

static sl_status dump_string(sl_jinja_run *run, jinja_builder *b, const jinja_string *s, bool ascii)
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    SL_TRY(sl_jinja_put_text(run, b, "\""));
    size_t plain = 0;
    for (size_t at = 0; at < s->length;) {
        char escape[16];
        int length = sl_utf8_length(s->bytes + at, s->bytes + s->length);
        uint32_t code = code_at(s->bytes + at, length);
        const char *known = code && code < 0x80 ? strchr(from, (int) code) : NULL;
        escape[0] = 0;
        if (known)
            snprintf(escape, sizeof escape, "\\%c", to[known - from]);
        else if (code < 0x20 || (ascii && code >= 0x7f && code < 0x10000 && code != 0x7f))
            snprintf(escape, sizeof escape, "\\u%04x", code);
        else if (ascii && code >= 0x10000)
            snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                     0xdc00 + ((code - 0x10000) & 0x3ff));
        if (escape[0]) {
            SL_TRY(sl_jinja_put_part(run, b, s, plain, at));
            SL_TRY(sl_jinja_put(run, b, escape, strlen(escape), sl_jinja_mark_at(s, at)));
            plain = at + (size_t) length;
        }
        at += (size_t) length;
    }
    SL_TRY(sl_jinja_put_part(run, b, s, plain, s->length));
    return sl_jinja_put_text(run, b, "\"");
}

static sl_status dump_break(sl_jinja_run *run, jinja_builder *b, const jinja_dump *dump, int level)
{
    if (dump->indent < 0)
        return SL_OK;
    SL_TRY(sl_jinja_put_text(run, b, "\n"));
    for (int i = 0; i < dump->indent * level; i++)
        SL_TRY(sl_jinja_put_text(run, b, " "));
    return SL_OK;
}

static sl_status dump_key(sl_jinja_run *run, jinja_builder *b, const jinja_value *key, const jinja_dump *dump)
{
    char text[40];
    if (key->kind == JINJA_STRING)
        return dump_string(run, b, key->string, dump->ascii);
    if (key->kind == JINJA_BOOL)
        return sl_jinja_put_text(run, b, key->boolean ? "\"true\"" : "\"false\"");
    if (key->kind == JINJA_NONE)
        return sl_jinja_put_text(run, b, "\"null\"");
    if (key->kind != JINJA_INT && key->kind != JINJA_FLOAT)
        return sl_jinja_fail(run, "tojson: a key of type %s", sl_jinja_kind_name(key->kind));
    if (key->kind == JINJA_INT)
        snprintf(text, sizeof text, "%lld", (long long) key->integer);
    else
        sl_jinja_format_f64(key->number, text);
    SL_TRY(sl_jinja_put_text(run, b, "\""));
    SL_TRY(sl_jinja_put_text(run, b, text));
    return sl_jinja_put_text(run, b, "\"");
}

static sl_status dump_value(sl_jinja_run *run, jinja_builder *b, const jinja_value *v, const jinja_dump *dump,
                            int level);

/* The entries in the order to write them. */
static sl_status sorted(sl_jinja_run *run, const jinja_dict *dict, const jinja_entry **out)
{
    jinja_entry *entries;
    SL_TRY(sl_jinja_alloc(run, &entries, dict->count, sizeof *entries));
    for (int64_t i = 0; i < dict->count; i++) {
        int64_t at = i;
        for (int order; at > 0; at--) {
            SL_TRY(sl_jinja_order(run, &entries[at - 1].key, &dict->entries[i].key, &order));
            if (order <= 0)
                break;
            entries[at] = entries[at - 1];
        }
        entries[at] = dict->entries[i];
    }
    *out = entries;
    return SL_OK;
}

static sl_status dump_comma(sl_jinja_run *run, jinja_builder *b, const jinja_dump *dump)
{
    return dump->comma ? sl_jinja_put_string(run, b, dump->comma)
                       : sl_jinja_put_text(run, b, dump->indent < 0 ? ", " : ",");
}

static sl_status dump_items(sl_jinja_run *run, jinja_builder *b, const jinja_value *v, const jinja_dump *dump,
                            int level)
{
    bool dict = v->kind == JINJA_DICT;
    int64_t count = dict ? v->dict->count : v->list->count;
    const jinja_entry *entries = dict ? v->dict->entries : NULL;
    if (count == 0)
        return sl_jinja_put_text(run, b, dict ? "{}" : "[]");
    if (dict && dump->sort)
        SL_TRY(sorted(run, v->dict, &entries));
    SL_TRY(sl_jinja_put_text(run, b, dict ? "{" : "["));
    for (int64_t i = 0; i < count; i++) {
        if (i > 0)
            SL_TRY(dump_comma(run, b, dump));
        SL_TRY(dump_break(run, b, dump, level + 1));
        if (dict) {
            SL_TRY(dump_key(run, b, &entries[i].key, dump));
            SL_TRY(dump->colon ? sl_jinja_put_string(run, b, dump->colon) : sl_jinja_put_text(run, b, ": "));
        }
        SL_TRY(dump_value(run, b, dict ? &entries[i].value : &v->list->items[i], dump, level + 1));
    }
    SL_TRY(dump_break(run, b, dump, level));
    return sl_jinja_put_text(run, b, dict ? "}" : "]");
}

static sl_status dump_value(sl_jinja_run *run, jinja_builder *b, const jinja_value *v, const jinja_dump *dump,
                            int level)
{
    SL_TRY(sl_jinja_spend(run, 1));
    switch (v->kind) {
    case JINJA_NONE:
        return sl_jinja_put_text(run, b, "null");
    case JINJA_BOOL:
        return sl_jinja_put_text(run, b, v->boolean ? "true" : "false");
    case JINJA_INT:
        return sl_jinja_put_value(run, b, v);
    case JINJA_FLOAT:
        if (isnan(v->number) || isinf(v->number))
            return sl_jinja_put_text(run, b, isnan(v->number) ? "NaN" : v->number > 0 ? "Infinity" : "-Infinity");
        return sl_jinja_put_value(run, b, v);
    case JINJA_STRING:
        return dump_string(run, b, v->string, dump->ascii);
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
        if (++run->depth > JINJA_MOST_DEPTH)
            return sl_jinja_fail(run, "tojson: a value is nested too deeply");
        SL_TRY(dump_items(run, b, v, dump, level));
        run->depth--;
        return SL_OK;
    default:
        return sl_jinja_fail(run, "tojson: a value of type %s", sl_jinja_kind_name(v->kind));
    }
}

sl_status sl_jinja_dump(sl_jinja_run *run, jinja_builder *b, const jinja_value *v, const jinja_dump *dump)
{
    return dump_value(run, b, v, dump, 0);
}
