/* Strings with marks. A string whose bytes all come from one place has its mark in itself; others have spans, which parts and
 * concatenations cut and join. */
#include <string.h>

#include "text/jinja_internal.h"

/* ---- building ---- */

static sl_status reserve(sl_jinja_run *run, jinja_builder *b, size_t more)
{
    if (b->capacity - b->length >= more)
        return SL_OK;
    size_t capacity = SL_MAX(SL_MAX(b->capacity * 2, b->length + more), (size_t) 64);
    char *bytes;
    SL_TRY(sl_jinja_alloc(run, &bytes, capacity, 1));
    if (b->length)
        memcpy(bytes, b->bytes, b->length);
    b->bytes = bytes;
    b->capacity = capacity;
    return SL_OK;
}

static sl_status mark_to_end(sl_jinja_run *run, jinja_builder *b, sl_jinja_mark mark)
{
    if (b->span_count > 0 && b->spans[b->span_count - 1].mark == mark) {
        b->spans[b->span_count - 1].end = b->length;
        return SL_OK;
    }
    if (b->span_count == b->span_capacity) {
        int64_t capacity = SL_MAX(b->span_capacity * 2, (int64_t) 4);
        sl_jinja_span *spans;
        SL_TRY(sl_jinja_alloc(run, &spans, capacity, sizeof *spans));
        if (b->span_count)
            memcpy(spans, b->spans, (size_t) b->span_count * sizeof *spans);
        b->spans = spans;
        b->span_capacity = capacity;
    }
    b->spans[b->span_count++] = (sl_jinja_span){b->length, mark};
    return SL_OK;
}

sl_status sl_jinja_put(sl_jinja_run *run, jinja_builder *b, const char *bytes, size_t length, sl_jinja_mark mark)
{
    if (length == 0)
        return SL_OK;
    SL_TRY(sl_jinja_spend(run, (int64_t) (length / JINJA_BYTES_PER_STEP)));
    SL_TRY(reserve(run, b, length));
    memcpy(b->bytes + b->length, bytes, length);
    b->length += length;
    return mark_to_end(run, b, mark | run->generated);
}

sl_status sl_jinja_put_text(sl_jinja_run *run, jinja_builder *b, const char *text)
{
    return sl_jinja_put(run, b, text, strlen(text), 0);
}

sl_status sl_jinja_put_part(sl_jinja_run *run, jinja_builder *b, const jinja_string *s, size_t from, size_t to)
{
    if (s->span_count == 0)
        return sl_jinja_put(run, b, s->bytes + from, to - from, s->mark);
    SL_TRY(sl_jinja_spend(run, s->span_count / 8));
    for (int64_t i = 0; i < s->span_count && from < to; i++) {
        if (s->spans[i].end <= from)
            continue;
        size_t end = SL_MIN(to, s->spans[i].end);
        SL_TRY(sl_jinja_put(run, b, s->bytes + from, end - from, s->spans[i].mark));
        from = end;
    }
    return SL_OK;
}

sl_status sl_jinja_put_string(sl_jinja_run *run, jinja_builder *b, const jinja_string *s)
{
    return sl_jinja_put_part(run, b, s, 0, s->length);
}

static sl_status new_string(sl_jinja_run *run, jinja_value *out, jinja_string **string)
{
    SL_TRY(sl_jinja_alloc(run, string, 1, sizeof **string));
    *out = (jinja_value){.kind = JINJA_STRING, .string = *string};
    return SL_OK;
}

sl_status sl_jinja_built(sl_jinja_run *run, const jinja_builder *b, jinja_value *out)
{
    jinja_string *s;
    SL_TRY(new_string(run, out, &s));
    s->bytes = b->length ? b->bytes : "";
    s->length = b->length;
    if (b->span_count == 1) {
        s->mark = b->spans[0].mark;
    } else {
        s->spans = b->spans;
        s->span_count = b->span_count;
    }
    return SL_OK;
}

sl_status sl_jinja_string(sl_jinja_run *run, const char *bytes, size_t length, sl_jinja_mark mark, jinja_value *out)
{
    jinja_builder b = {0};
    SL_TRY(sl_jinja_put(run, &b, bytes, length, mark));
    return sl_jinja_built(run, &b, out);
}

sl_status sl_jinja_part(sl_jinja_run *run, const jinja_string *s, size_t from, size_t to, jinja_value *out)
{
    jinja_string *part;
    SL_TRY(new_string(run, out, &part));
    part->bytes = s->bytes + from;
    part->length = to - from;
    part->mark = s->mark;
    int64_t first = 0, last;
    while (first < s->span_count && s->spans[first].end <= from)
        first++;
    for (last = first; last < s->span_count && s->spans[last].end < to; last++)
        continue;
    SL_TRY(sl_jinja_spend(run, last / 4));
    if (from == to || s->span_count == 0)
        return SL_OK;
    part->mark = s->spans[first].mark;
    if (first == last)
        return SL_OK;
    sl_jinja_span *spans;
    SL_TRY(sl_jinja_alloc(run, &spans, last - first + 1, sizeof *spans));
    for (int64_t i = first; i <= last; i++)
        spans[i - first] = (sl_jinja_span){SL_MIN(s->spans[i].end, to) - from, s->spans[i].mark};
    part->spans = spans;
    part->span_count = last - first + 1;
    return SL_OK;
}

sl_jinja_mark sl_jinja_mark_at(const jinja_string *s, size_t at)
{
    for (int64_t i = 0; i < s->span_count; i++)
        if (at < s->spans[i].end)
            return s->spans[i].mark;
    return s->mark;
}

/* ---- characters ---- */

static bool starts_character(char c)
{
    return ((unsigned char) c & 0xc0) != 0x80;
}

int64_t sl_jinja_characters(const jinja_string *s)
{
    int64_t count = 0;
    for (size_t i = 0; i < s->length; i++)
        count += starts_character(s->bytes[i]);
    return count;
}

size_t sl_jinja_offset(const jinja_string *s, int64_t character)
{
    size_t at = 0;
    while (at < s->length && (character > 0 || !starts_character(s->bytes[at]))) {
        at++;
        if (at == s->length || starts_character(s->bytes[at]))
            character--;
    }
    return at;
}

int sl_jinja_space(const char *at, const char *end)
{
    static const uint32_t wide[] = {0x85, 0xa0, 0x1680, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000};
    if (at >= end)
        return 0;
    unsigned char c = (unsigned char) *at;
    if (c < 0x80)
        return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20);
    int length = sl_utf8_length(at, end);
    if (length != 2 && length != 3)
        return 0;
    uint32_t code = length == 2 ? (uint32_t) (c & 0x1f) : (uint32_t) (c & 0x0f);
    for (int i = 1; i < length; i++)
        code = code << 6 | ((unsigned char) at[i] & 0x3f);
    for (int64_t i = 0; i < SL_COUNT(wide); i++)
        if (code == wide[i])
            return length;
    return code >= 0x2000 && code <= 0x200a ? length : 0;
}

/* The bytes of the character at `at` where it belongs to the set (NULL: white space), or 0. */
static int belongs(const char *at, const char *end, const jinja_string *set)
{
    if (!set)
        return sl_jinja_space(at, end);
    int length = sl_utf8_length(at, end);
    for (size_t i = 0; i + (size_t) length <= set->length; i++)
        if (memcmp(set->bytes + i, at, (size_t) length) == 0)
            return length;
    return 0;
}

sl_status sl_jinja_strip(sl_jinja_run *run, const jinja_string *s, const jinja_string *set, bool left, bool right,
                         jinja_value *out)
{
    const char *from = s->bytes, *to = s->bytes + s->length;
    int length;
    SL_TRY(sl_jinja_spend(run, (int64_t) (s->length / JINJA_BYTES_PER_STEP) * (set ? (int64_t) set->length : 1)));
    while (left && from < to && (length = belongs(from, to, set)) > 0)
        from += length;
    while (right && from < to) {
        const char *last = to - 1;
        while (last > from && !starts_character(*last))
            last--;
        if (!belongs(last, to, set))
            break;
        to = last;
    }
    return sl_jinja_part(run, s, (size_t) (from - s->bytes), (size_t) (to - s->bytes), out);
}

int64_t sl_jinja_find(const jinja_string *s, const jinja_string *part, size_t from)
{
    if (from > s->length || part->length > s->length - from)
        return -1;
    if (part->length == 0)
        return (int64_t) from;
    const char *found = memmem(s->bytes + from, s->length - from, part->bytes, part->length);
    return found ? found - s->bytes : -1;
}

sl_status sl_jinja_replace(sl_jinja_run *run, const jinja_string *s, const jinja_string *old, const jinja_string *new,
                           int64_t most, jinja_value *out)
{
    jinja_builder b = {0};
    size_t at = 0;
    SL_TRY(sl_jinja_spend(run, (int64_t) (s->length / JINJA_BYTES_PER_STEP)));
    for (int64_t count = 0; most < 0 || count < most; count++) {
        SL_TRY(sl_jinja_spend(run, 1));
        int64_t found = sl_jinja_find(s, old, at);
        if (found < 0)
            break;
        SL_TRY(sl_jinja_put_part(run, &b, s, at, (size_t) found));
        SL_TRY(sl_jinja_put_string(run, &b, new));
        at = (size_t) found + old->length;
        if (old->length > 0)
            continue;
        if (at == s->length) /* an empty text is found before every character and at the end */
            break;
        size_t next = at + (size_t) sl_utf8_length(s->bytes + at, s->bytes + s->length);
        SL_TRY(sl_jinja_put_part(run, &b, s, at, next));
        at = next;
    }
    SL_TRY(sl_jinja_put_part(run, &b, s, at, s->length));
    return sl_jinja_built(run, &b, out);
}
