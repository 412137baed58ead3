/* Added tokens: whole ids that stand in a text as they are written, before anything else looks at it. Of those that begin at the
 * leftmost place the longest counts. A table of first bytes passes over text where none can begin. */
#include <string.h>

#include "text/internal.h"
#include "text/unicode.h"

sl_status sl_add_token(sl_tokenizer *t, const sl_added *token)
{
    if (t->n_added == t->added_capacity) {
        int64_t capacity = t->added_capacity * 2 + 64;
        SL_TRY(sl_grow(&t->added, t->added_capacity, capacity, sizeof *t->added));
        t->added_capacity = capacity;
    }
    sl_added *a = &t->added[t->n_added];
    *a = *token;
    SL_TRY(sl_keep(t, token->content, token->length, &a->content));
    SL_TRY(sl_vocab_add(&t->bpe.vocab, token->id, a->content, a->length));
    t->n_added++;
    return SL_OK;
}

sl_status sl_matcher_build(sl_tokenizer *t, bool normalized)
{
    sl_matcher *matcher = normalized ? &t->normalized : &t->raw;
    for (int64_t i = 0; i < t->n_added; i++) {
        sl_added *a = &t->added[i];
        if (a->normalized != normalized || !a->length)
            continue;
        if (normalized && t->n_changes) {
            sl_text text = {0};
            sl_status status = sl_normalize(t, a->content, a->length, &text);
            if (status == SL_OK)
                status = sl_keep(t, text.data, text.length, &a->content);
            a->length = text.length;
            sl_text_free(&text);
            SL_TRY(status);
            if (!a->length)
                continue;
        }
        SL_TRY(sl_trie_add(&matcher->trie, a->content, a->length, (int32_t) i));
        unsigned char first = (unsigned char) a->content[0];
        matcher->only = matcher->count == 0 || matcher->only == a->content[0] ? a->content[0] : 0;
        matcher->first[first] = true;
        matcher->count++;
    }
    return sl_trie_pack(&matcher->trie, NULL);
}

static unsigned class_at(const sl_tokenizer *t, const char *at)
{
    return sl_class_of(t->classes, sl_utf8_next(&at));
}

static unsigned class_before(const sl_tokenizer *t, const char *begin, const char **at)
{
    return sl_class_of(t->classes, sl_utf8_before(begin, at));
}

static bool is_space(unsigned class)
{
    return (class & SL_CLASS_MASK) == SL_CLASS_SPACE;
}

/* Whether no word goes on beyond either end. */
static bool stands_alone(const sl_tokenizer *t, const char *begin, const char *from, const char *to, const char *end)
{
    const char *before = from;
    return !(from > begin && (class_before(t, begin, &before) & SL_UNICODE_WORD)) &&
           !(to < end && (class_at(t, to) & SL_UNICODE_WORD));
}

/* The next byte that an added token begins with, else `end`. */
static const char *next_first(const sl_matcher *matcher, const char *at, const char *end)
{
    const bool *first = matcher->first;
    const unsigned char *p = (const unsigned char *) at, *stop = (const unsigned char *) end;
    if (matcher->only) {
        at = memchr(at, matcher->only, (size_t) (end - at));
        return at ? at : end;
    }
    while (stop - p >= 4 && !(first[p[0]] | first[p[1]] | first[p[2]] | first[p[3]]))
        p += 4;
    while (p < stop && !first[*p])
        p++;
    return (const char *) p;
}

sl_added_match sl_matcher_find(const sl_tokenizer *t, const sl_matcher *matcher, const char *begin, const char *least,
                               const char *from, const char *end, bool special, const char **resume)
{
    sl_added_match none = {NULL, NULL, -1};
    const char *stop;
    for (const char *at = from; matcher->count && (at = next_first(matcher, at, end)) < end; at++) {
        int32_t index = sl_trie_longest(&matcher->trie, at, end, &stop);
        if (index < 0)
            continue;
        const sl_added *a = &t->added[index];
        if ((a->special && !special) || (a->single_word && !stands_alone(t, begin, at, stop, end))) {
            at = stop - 1; /* its text is text, and no other token begins inside it */
            continue;
        }
        const char *left = at, *before = at;
        *resume = stop;
        while (a->left && left > least && is_space(class_before(t, begin, &before)))
            left = before;
        while (a->right && stop < end && is_space(class_at(t, stop)))
            sl_utf8_next(&stop);
        return (sl_added_match){SL_MAX(left, least), stop, index};
    }
    return none;
}
