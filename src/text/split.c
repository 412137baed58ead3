/* Splitting a piece where a pattern matches, and what happens to the matches. Lexers that isolate do not come here: encoder.c hands
 * on their pieces one by one. */
#include <string.h>

#include "text/internal.h"
#include "text/unicode.h"

static sl_status put(sl_splits *splits, const char *begin, const char *end, bool matched)
{
    if (splits->count == splits->capacity) {
        int64_t capacity = splits->capacity * 2 + 16;
        SL_TRY(sl_grow(&splits->items, splits->capacity, capacity, sizeof *splits->items));
        splits->capacity = capacity;
    }
    splits->items[splits->count++] = (sl_split){begin, end, matched};
    return SL_OK;
}

static sl_status by_lexer(const sl_cut *stage, const sl_classes *classes, const char *begin, const char *end,
                          sl_splits *splits)
{
    while (begin < end) {
        bool matched;
        const char *stop = stage->lexer(classes, begin, end, &matched);
        SL_TRY(put(splits, begin, stop, matched));
        begin = stop;
    }
    return SL_OK;
}

static sl_status by_regex(const sl_cut *stage, const char *begin, const char *end, sl_splits *splits)
{
    size_t length = (size_t) (end - begin), done = 0, from = 0;
    while (from <= length) {
        bool found;
        size_t first, last;
        SL_TRY(sl_regex_find(stage->regex, begin, length, from, &found, &first, &last));
        if (!found)
            break;
        if (first > done)
            SL_TRY(put(splits, begin + done, begin + first, false));
        if (last > first)
            SL_TRY(put(splits, begin + first, begin + last, true));
        done = last;
        from = last;
        if (first == last) { /* an empty match: go on behind the next character */
            const char *next = begin + last;
            if (next == end)
                break;
            sl_utf8_next(&next);
            from = (size_t) (next - begin);
        }
    }
    return done < length ? put(splits, begin + done, end, false) : SL_OK;
}

static sl_status by_string(const sl_cut *stage, const char *begin, const char *end, sl_splits *splits)
{
    while (begin < end) {
        const char *at = memmem(begin, (size_t) (end - begin), stage->string, stage->length);
        const char *stop = at ? at : end;
        if (stop > begin)
            SL_TRY(put(splits, begin, stop, false));
        if (at)
            SL_TRY(put(splits, at, at + stage->length, true));
        begin = at ? at + stage->length : end;
    }
    return SL_OK;
}

static sl_status by_class(const sl_cut *stage, const sl_classes *classes, const char *begin, const char *end,
                          sl_splits *splits)
{
    const char *at = begin, *first = begin;
    bool was = false;
    while (at < end) {
        const char *behind = at;
        uint32_t code = sl_utf8_next(&behind);
        bool is = 1u << (sl_class_of(classes, code) & SL_CLASS_MASK) & stage->set;
        /* Rust's ASCII punctuation: some of it are symbols to Unicode. */
        if (stage->set & SL_SET_P)
            is = is || (code < 0x80 && (sl_class_of(classes, code) & SL_CLASS_MASK) == SL_CLASS_SYMBOL);
        if (at > first && (is != was || (is && stage->single))) {
            SL_TRY(put(splits, first, at, was));
            first = at;
        }
        was = is;
        at = behind;
    }
    return put(splits, first, end, was);
}

/* \w+|[^\w\s]+ matches; white space is what is between. */
static sl_status by_words(const sl_classes *classes, const char *begin, const char *end, sl_splits *splits)
{
    const char *at = begin, *first = begin;
    int was = -1;
    while (at < end) {
        const char *behind = at;
        uint8_t class = sl_class_of(classes, sl_utf8_next(&behind));
        int is = class & SL_UNICODE_WORD ? 0 : (class & SL_CLASS_MASK) == SL_CLASS_SPACE ? 1 : 2;
        if (is != was && at > first) {
            SL_TRY(put(splits, first, at, was != 1));
            first = at;
        }
        was = is;
        at = behind;
    }
    return put(splits, first, end, was != 1);
}

static void removed(sl_splits *splits)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < splits->count; i++)
        if (!splits->items[i].matched)
            splits->items[kept++] = splits->items[i];
    splits->count = kept;
}

/* Joins neighbours where `joins(left matched, right matched)`; a joined part counts as its last. */
static void merged(sl_splits *splits, sl_behavior behavior)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < splits->count; i++) {
        sl_split now = splits->items[i];
        sl_split *last = kept ? &splits->items[kept - 1] : NULL;
        bool joins = last && (behavior == SL_CONTIGUOUS             ? last->matched == now.matched
                              : behavior == SL_MERGED_WITH_PREVIOUS ? now.matched && !last->matched
                                                                    : last->matched && !now.matched);
        if (joins)
            last->end = now.end, last->matched = now.matched;
        else
            splits->items[kept++] = now;
    }
    splits->count = kept;
}

sl_status sl_cut_split(const sl_cut *stage, const sl_classes *classes, const char *begin, const char *end,
                       sl_splits *splits)
{
    splits->count = 0;
    if (begin == end)
        return SL_OK;
    switch (stage->kind) {
    case SL_STAGE_LEXER:
        SL_TRY(by_lexer(stage, classes, begin, end, splits));
        break;
    case SL_STAGE_REGEX:
        SL_TRY(by_regex(stage, begin, end, splits));
        break;
    case SL_STAGE_CLASS:
        SL_TRY(by_class(stage, classes, begin, end, splits));
        break;
    case SL_STAGE_WORDS:
        SL_TRY(by_words(classes, begin, end, splits));
        break;
    default:
        SL_TRY(by_string(stage, begin, end, splits));
    }
    for (int64_t i = 0; i < splits->count && stage->invert; i++)
        splits->items[i].matched = !splits->items[i].matched;
    if (stage->behavior == SL_REMOVED)
        removed(splits);
    else if (stage->behavior != SL_ISOLATED)
        merged(splits, stage->behavior);
    return SL_OK;
}
