/*
 * How many bytes of a text each of its tokens stands for. Mostly the tokens' own texts, one behind the other, are the text. Where they
 * have another length than the text, its normalizer goes over it once more, one cluster (a character and the marks behind it) at a
 * time, to see what became of each:
 *
 *     text         e  ´  t  é  s        ´: a mark of two bytes, so there are 7 bytes in 4 clusters
 *     normalized   é     t  é  s        6 bytes
 *     tokens       é     tés            stand for 3 and 4 bytes
 *
 * A cluster whose length changed counts where its last byte is. What a normalizer does beyond clusters is not followed.
 */
#include <string.h>

#include "text/internal.h"
#include "text/unicode.h"

enum { MOST_BYTES = 255 };

/* ---- lengths as text ---- */

static size_t occurrences(const char *text, size_t length, const char *what, size_t what_length)
{
    size_t count = 0;
    const char *end = text + length;
    while (what_length && (text = memmem(text, (size_t) (end - text), what, what_length))) {
        count++;
        text += what_length;
    }
    return count;
}

/* Of normalized text: marks stand for spaces. */
static size_t marked_length(const sl_tokenizer *t, const char *text, size_t length)
{
    size_t result = length;
    for (int64_t i = 0; i < t->n_decoders && length; i++) {
        const sl_decoder *d = &t->decoders[i];
        if (d->kind == SL_DECODE_REPLACE || d->kind == SL_DECODE_MARKS) {
            size_t count = occurrences(text, length, d->from, d->from_length);
            result = result - count * d->from_length + count * (d->kind == SL_DECODE_MARKS ? 1 : d->to_length);
        }
    }
    return result;
}

static size_t alphabet_length(const char *text, size_t length)
{
    const char *end = text + length;
    size_t count = 0;
    for (; text < end; count++)
        if (sl_alphabet_byte(sl_utf8_next(&text)) < 0)
            return length;
    return count;
}

static size_t token_length(const sl_tokenizer *t, int32_t id)
{
    size_t length;
    const char *text = sl_vocab_text(&t->bpe.vocab, id, &length);
    if (!text)
        return 0;
    if (t->added_of[id] >= 0)
        return t->added[t->added_of[id]].length;
    for (int64_t i = 0; i < t->n_decoders; i++) {
        if (t->decoders[i].kind == SL_DECODE_BYTES)
            return alphabet_length(text, length);
        if (t->decoders[i].kind == SL_DECODE_FALLBACK && sl_fallback_byte(text, length) >= 0)
            return 1;
    }
    return marked_length(t, text, length);
}

/* Of what a tokenizer puts in front of a text; 0: nothing. */
static size_t prefix_length(const sl_tokenizer *t)
{
    for (int64_t i = 0; i < t->n_changes; i++)
        if (t->changes[i].kind == SL_CHANGE_PREPEND)
            return marked_length(t, t->changes[i].to, t->changes[i].to_length);
    for (int64_t i = 0; i < t->n_stages; i++)
        if (t->stages[i].kind == SL_STAGE_SPACE ||
            (t->stages[i].kind == SL_STAGE_REPLACE && t->stages[i].prepend != SL_PREPEND_NEVER))
            return 1;
    return 0;
}

/* ---- clusters ---- */

typedef struct clusters {
    const sl_tokenizer *t;
    const char *at, *end;
    sl_text clean, normalized;
    size_t length, becomes; /* of the last one */
    bool plain;             /* the normalizer leaves ASCII as it is */
} clusters;

static const char *cluster_end(const clusters *c)
{
    const sl_classes *classes = sl_unicode_table();
    const char *at = c->at;
    if (!sl_utf8_length(at, c->end))
        return at + sl_utf8_bad_bytes(at, c->end);
    for (sl_utf8_next(&at); at < c->end && sl_utf8_length(at, c->end);) {
        const char *behind = at;
        if (!(sl_class_of(classes, sl_utf8_next(&behind)) & (SL_UNICODE_COMPOSES | SL_UNICODE_COMBINES)))
            break;
        at = behind;
    }
    return at;
}

static sl_status next_cluster(clusters *c)
{
    const sl_tokenizer *t = c->t;
    const char *begin = c->at;
    c->at = cluster_end(c);
    c->length = c->becomes = (size_t) (c->at - begin);
    if (c->plain && c->length == 1 && (unsigned char) *begin < 0x80)
        return SL_OK;
    c->clean.length = c->normalized.length = 0;
    sl_text_append_utf8(&c->clean, begin, c->length);
    SL_TRY(sl_text_status(&c->clean));
    SL_TRY(sl_normalize(t, c->clean.data, c->clean.length, &c->normalized));
    c->becomes = marked_length(t, c->normalized.data, c->normalized.length);
    for (int64_t i = 0; i < t->n_changes; i++) /* which it did to each of them */
        if (t->changes[i].kind == SL_CHANGE_PREPEND)
            c->becomes -= SL_MIN(c->becomes, prefix_length(t));
    return SL_OK;
}

static clusters begin(const sl_tokenizer *t, const char *text, size_t length)
{
    clusters c = {.t = t, .at = text, .end = text + length, .plain = true};
    for (int64_t i = 0; i < t->n_changes; i++)
        c.plain = c.plain && t->changes[i].kind == SL_CHANGE_FORM;
    return c;
}

static void end(clusters *c)
{
    sl_text_free(&c->clean);
    sl_text_free(&c->normalized);
}

static sl_status normalized_length(const sl_tokenizer *t, const char *text, size_t length, size_t *out)
{
    clusters c = begin(t, text, length);
    sl_status status = SL_OK;
    for (*out = 0; c.at < c.end && status == SL_OK; *out += c.becomes)
        if ((status = next_cluster(&c)) != SL_OK)
            break;
    end(&c);
    return status;
}

/* ---- shares ---- */

static void put(sl_byte_counts *out, size_t bytes)
{
    unsigned char byte = (unsigned char) SL_MIN(bytes, (size_t) MOST_BYTES);
    out->unknown = out->unknown || bytes > MOST_BYTES;
    sl_text_append(&out->each, (const char *) &byte, 1);
}

/* The tokens' texts are the text, or the text behind a prefix, which stands for nothing. */
static void put_lengths(const sl_tokenizer *t, const int32_t *ids, int64_t count, size_t prefix, sl_byte_counts *out)
{
    for (int64_t i = 0; i < count; i++) {
        size_t length = token_length(t, ids[i]), less = SL_MIN(length, prefix);
        prefix -= less;
        put(out, length - less);
    }
}

static sl_status put_clusters(const sl_tokenizer *t, const char *text, size_t length, const int32_t *ids, int64_t count,
                              size_t prefix, sl_byte_counts *out)
{
    clusters c = begin(t, text, length);
    size_t stop = 0, done = 0; /* of the token, normalized; what is given to tokens */
    size_t first = 0;          /* normalized byte of the last cluster */
    sl_status status = SL_OK;
    for (int64_t i = 0; i < count; i++) {
        size_t bytes = token_length(t, ids[i]), less = SL_MIN(bytes, prefix);
        prefix -= less;
        stop += bytes - less;
        while (c.at < c.end && first + c.becomes <= stop) {
            first += c.becomes;
            SL_TRY_GOTO(next_cluster(&c), done);
        }
        size_t now = (size_t) (c.at - text);
        if (first + c.becomes > stop) /* it ends within the last one */
            now = now - c.length + (c.length == c.becomes ? stop - first : 0);
        now = i + 1 == count ? length : now;
        put(out, now - done);
        done = now;
    }
done:
    end(&c);
    return status;
}

sl_status sl_token_bytes(const sl_tokenizer *t, const char *text, size_t length, const int32_t *ids, int64_t count,
                         sl_byte_counts *out)
{
    size_t sum = 0, becomes, prefix = prefix_length(t);
    for (int64_t i = 0; i < count; i++)
        sum += token_length(t, ids[i]);
    /* What lacks the prefix but begins with no space may be one byte short elsewhere. */
    if (sum == length + prefix || (sum == length && length && *text == ' ')) {
        put_lengths(t, ids, count, sum - length, out);
        return sl_text_status(&out->each);
    }
    SL_TRY(normalized_length(t, text, length, &becomes));
    if ((count || !length) && (sum == becomes || sum == becomes + prefix)) {
        SL_TRY(put_clusters(t, text, length, ids, count, sum - becomes, out));
    } else {
        put_lengths(t, ids, count, 0, out);
        out->unknown = true;
    }
    return sl_text_status(&out->each);
}
