/* Operations on text that methods and filters share: case, splitting, lines, format. */
#include <stdio.h>
#include <string.h>

#include "text/jinja_internal.h"

/* Upper and lower case of ASCII letters. Other letters need tables that templates have no use for (they change the case of roles and
 * flags), so a wrong result is refused instead of given. */
sl_status sl_jinja_case(sl_jinja_run *run, const jinja_string *s, jinja_case to, jinja_value *out)
{
    char *bytes;
    SL_TRY(sl_jinja_spend(run, (int64_t) (s->length / JINJA_BYTES_PER_STEP)));
    SL_TRY(sl_jinja_alloc(run, &bytes, s->length + 1, 1));
    bool first = true; /* of a word, or of the text */
    for (size_t i = 0; i < s->length; i++) {
        char c = s->bytes[i], lower = (char) (c | 32);
        bool letter = lower >= 'a' && lower <= 'z';
        if ((unsigned char) c >= 0x80)
            return sl_jinja_fail(run, "upper and lower case are supported for ASCII letters only");
        bool up = to == JINJA_UPPER || (first && to != JINJA_LOWER);
        bytes[i] = letter ? (char) (up ? c & ~32 : lower) : c;
        if (to == JINJA_TITLE)
            first = !letter; /* Python: every letter behind something else */
        else if (to == JINJA_TITLE_FILTER)
            first = c != 0 && strchr(" \t\n\r\f\v-({[<", c) != NULL;
        else
            first = false;
    }
    jinja_string *result;
    SL_TRY(sl_jinja_alloc(run, &result, 1, sizeof *result));
    *result = *s; /* the same marks */
    result->bytes = bytes;
    *out = (jinja_value){.kind = JINJA_STRING, .string = result};
    return SL_OK;
}

/* ---- splitting ---- */

typedef struct part {
    size_t from, to;
} part;

typedef struct part_list {
    part *parts;
    int64_t count, capacity;
} part_list;

static sl_status add_part(sl_jinja_run *run, part_list *list, size_t from, size_t to)
{
    SL_TRY(sl_jinja_spend(run, 1));
    if (list->count == list->capacity) {
        int64_t capacity = SL_MAX(list->capacity * 2, (int64_t) 8);
        part *parts;
        SL_TRY(sl_jinja_alloc(run, &parts, capacity, sizeof *parts));
        if (list->count)
            memcpy(parts, list->parts, (size_t) list->count * sizeof *parts);
        list->parts = parts;
        list->capacity = capacity;
    }
    list->parts[list->count++] = (part){from, to};
    return SL_OK;
}

static sl_status split_at(sl_jinja_run *run, const jinja_string *s, const jinja_string *separator, part_list *list)
{
    if (separator->length == 0)
        return sl_jinja_fail(run, "split: the separator is empty");
    size_t from = 0;
    for (int64_t found; (found = sl_jinja_find(s, separator, from)) >= 0; from = (size_t) found + separator->length)
        SL_TRY(add_part(run, list, from, (size_t) found));
    return add_part(run, list, from, s->length);
}

static sl_status split_words(sl_jinja_run *run, const jinja_string *s, part_list *list)
{
    const char *end = s->bytes + s->length, *word = NULL;
    for (const char *at = s->bytes; at < end;) {
        int space = sl_jinja_space(at, end);
        if (space && word)
            SL_TRY(add_part(run, list, (size_t) (word - s->bytes), (size_t) (at - s->bytes)));
        if (space)
            word = NULL;
        else if (!word)
            word = at;
        at += space ? space : sl_utf8_length(at, end);
    }
    return word ? add_part(run, list, (size_t) (word - s->bytes), s->length) : SL_OK;
}

static sl_status strings_of(sl_jinja_run *run, const jinja_string *s, const part_list *list, jinja_value *out)
{
    jinja_value *items;
    SL_TRY(sl_jinja_list(run, JINJA_LIST, list->count, out, &items));
    for (int64_t i = 0; i < list->count; i++)
        SL_TRY(sl_jinja_part(run, s, list->parts[i].from, list->parts[i].to, &items[i]));
    return SL_OK;
}

/* Splits everywhere, then joins what is past `most` again, which for words leaves the white space between them as it was. */
sl_status sl_jinja_split(sl_jinja_run *run, const jinja_string *s, const jinja_string *separator, int64_t most,
                         bool right, jinja_value *out)
{
    part_list list = {0};
    SL_TRY(sl_jinja_spend(run, (int64_t) (s->length / JINJA_BYTES_PER_STEP)));
    SL_TRY(separator ? split_at(run, s, separator, &list) : split_words(run, s, &list));
    if (most >= 0 && list.count >= most + 1) {
        int64_t extra = list.count - (most + 1);
        if (right) {
            list.parts[extra].from = separator ? list.parts[0].from : 0;
            list.parts += extra;
        } else {
            list.parts[most].to = s->length;
        }
        list.count = most + 1;
    }
    return strings_of(run, s, &list, out);
}

sl_status sl_jinja_lines(sl_jinja_run *run, const jinja_string *s, bool keep, jinja_value *out)
{
    part_list list = {0};
    size_t from = 0;
    SL_TRY(sl_jinja_spend(run, (int64_t) (s->length / JINJA_BYTES_PER_STEP)));
    for (size_t at = 0; at < s->length; at++) {
        size_t end = at;
        if (s->bytes[at] != '\n' && s->bytes[at] != '\r')
            continue;
        if (s->bytes[at] == '\r' && at + 1 < s->length && s->bytes[at + 1] == '\n')
            at++;
        SL_TRY(add_part(run, &list, from, keep ? at + 1 : end));
        from = at + 1;
    }
    if (from < s->length)
        SL_TRY(add_part(run, &list, from, s->length));
    return strings_of(run, s, &list, out);
}

/* ---- format ---- */

/* "{}", "{0}" and "{name}", without conversions. */
sl_status sl_jinja_format(sl_jinja_run *run, const jinja_string *s, const jinja_arguments *arguments, jinja_value *out)
{
    jinja_builder b = {0};
    int next = 0;
    for (size_t at = 0, plain = 0; at <= s->length; at++) {
        char c = at < s->length ? s->bytes[at] : 0;
        bool doubled = at + 1 < s->length && s->bytes[at + 1] == c;
        if (at < s->length && c != '{' && c != '}')
            continue;
        SL_TRY(sl_jinja_put_part(run, &b, s, plain, at + (at < s->length && doubled)));
        if (at == s->length)
            break;
        if (doubled) {
            plain = ++at + 1;
            continue;
        }
        const char *close = memchr(s->bytes + at, '}', s->length - at);
        char name[64];
        size_t length = close ? (size_t) (close - s->bytes) - at - 1 : sizeof name;
        if (c == '}' || length >= sizeof name)
            return sl_jinja_fail(run, "format: a bracket has no partner");
        memcpy(name, s->bytes + at + 1, length);
        name[length] = 0;
        bool digit = length == 1 && name[0] >= '0' && name[0] <= '9';
        int index = length == 0 ? next++ : digit ? name[0] - '0' : JINJA_MOST_ARGUMENTS;
        const jinja_value *value = sl_jinja_argument(arguments, index, name);
        if (!value)
            return sl_jinja_fail(run, "format: no argument for '{%s}'", name);
        SL_TRY(sl_jinja_put_value(run, &b, value));
        at = plain = (size_t) (close - s->bytes) + 1;
        at--;
    }
    return sl_jinja_built(run, &b, out);
}

/* "%s" and "%d" of the format filter and of '%' on strings. */
sl_status sl_jinja_format_percent(sl_jinja_run *run, const jinja_string *s, const jinja_value *values, int64_t count,
                                  jinja_value *out)
{
    jinja_builder b = {0};
    int64_t next = 0;
    size_t plain = 0;
    for (size_t at = 0; at + 1 < s->length; at++) {
        if (s->bytes[at] != '%')
            continue;
        char c = s->bytes[at + 1];
        SL_TRY(sl_jinja_put_part(run, &b, s, plain, at + (c == '%')));
        plain = ++at + 1;
        if (c == '%')
            continue;
        if ((c != 's' && c != 'd') || next == count || (c == 'd' && !sl_jinja_is_number(&values[next])))
            return sl_jinja_fail(run, "format: '%%%c' is not supported here", c);
        SL_TRY(sl_jinja_put_value(run, &b, &values[next++]));
    }
    SL_TRY(sl_jinja_put_part(run, &b, s, plain, s->length));
    return sl_jinja_built(run, &b, out);
}
