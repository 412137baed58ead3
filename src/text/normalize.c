/* Normalizers in the order of the file. Each reads one text and writes another. */
#include <string.h>

#include "text/internal.h"
#include "text/unicode.h"

static sl_status replace_string(const sl_change *change, const char *text, size_t length, sl_text *out)
{
    const char *end = text + length;
    while (text < end) {
        const char *at = change->from_length == 1
                             ? memchr(text, *change->from, (size_t) (end - text))
                             : memmem(text, (size_t) (end - text), change->from, change->from_length);
        const char *stop = at ? at : end;
        sl_text_append(out, text, (size_t) (stop - text));
        if (at)
            sl_text_append(out, change->to, change->to_length);
        text = at ? at + change->from_length : end;
    }
    return sl_text_status(out);
}

static sl_status replace_regex(const sl_change *change, const char *text, size_t length, sl_text *out)
{
    size_t done = 0, from = 0, begin, end;
    bool found;
    while (from <= length) {
        SL_TRY(sl_regex_find(change->regex, text, length, from, &found, &begin, &end));
        if (!found)
            break;
        sl_text_append(out, text + done, begin - done);
        sl_text_append(out, change->to, change->to_length);
        done = from = end;
        if (begin == end) { /* an empty match: go on behind the next character */
            const char *next = text + end;
            if (end == length)
                break;
            sl_utf8_next(&next);
            from = (size_t) (next - text);
        }
    }
    sl_text_append(out, text + done, length - done);
    return sl_text_status(out);
}

static sl_status strip(const sl_change *change, const char *text, size_t length, sl_text *out)
{
    const sl_classes *classes = sl_unicode_table();
    const char *end = text + length;
    while (change->left && text < end) {
        const char *behind = text;
        if ((sl_class_of(classes, sl_utf8_next(&behind)) & SL_CLASS_MASK) != SL_CLASS_SPACE)
            break;
        text = behind;
    }
    while (change->right && end > text) {
        const char *before = end;
        if ((sl_class_of(classes, sl_utf8_before(text, &before)) & SL_CLASS_MASK) != SL_CLASS_SPACE)
            break;
        end = before;
    }
    sl_text_append(out, text, (size_t) (end - text));
    return sl_text_status(out);
}

static sl_status apply(const sl_change *change, const char *text, size_t length, sl_text *out)
{
    switch (change->kind) {
    case SL_CHANGE_FORM:
        return sl_form_apply(change->form, text, length, out);
    case SL_CHANGE_PREPEND:
        if (length)
            sl_text_append(out, change->to, change->to_length);
        sl_text_append(out, text, length);
        return sl_text_status(out);
    case SL_CHANGE_REPLACE:
        return change->regex ? replace_regex(change, text, length, out) : replace_string(change, text, length, out);
    case SL_CHANGE_LOWER:
        return sl_lower_apply(text, length, out);
    case SL_CHANGE_STRIP:
        return strip(change, text, length, out);
    }
    return SL_OK;
}

sl_status sl_normalize(const sl_tokenizer *t, const char *text, size_t length, sl_text *out)
{
    sl_text now = {0}, next = {0};
    sl_status status = SL_OK;
    sl_text_append(&next, text, t->n_changes == 0 ? length : 0);
    for (int64_t i = 0; i < t->n_changes && status == SL_OK; i++) {
        next.length = 0;
        status = apply(&t->changes[i], i ? now.data : text, i ? now.length : length, &next);
        sl_text_append(&next, "", 0); /* so that `data` is there for an empty text too */
        sl_text swap = now;
        now = next, next = swap;
    }
    if (status == SL_OK)
        sl_text_append(out, t->n_changes ? now.data : next.data, t->n_changes ? now.length : next.length);
    sl_text_free(&now);
    sl_text_free(&next);
    return status == SL_OK ? sl_text_status(out) : status;
}
