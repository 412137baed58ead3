/* Ids back to text: the tokens' texts, changed by one decoder after the other as the file says, then joined. */
#include <string.h>

#include "text/components.h"
#include "text/unicode.h"

/* ---- reading them ---- */

static sl_status new_decoder(sl_tokenizer *t, const char *name, sl_decoder_kind kind, sl_decoder **decoder)
{
    if (t->n_decoders == SL_MOST_COMPONENTS)
        return sl_part_too_many(name, "decoder");
    *decoder = &t->decoders[t->n_decoders++];
    (*decoder)->kind = kind;
    return SL_OK;
}

static sl_status read_metaspace(sl_tokenizer *t, const char *name, const sl_json *part)
{
    sl_decoder *d = NULL;
    const char *scheme;
    bool prefix;
    SL_TRY(sl_part_keys(name, "decoder", part, "type,replacement,prepend_scheme,split,add_prefix_space,str_rep"));
    SL_TRY(new_decoder(t, name, SL_DECODE_MARKS, &d));
    SL_TRY(sl_part_string(t, name, part, "replacement", &d->from, &d->from_length));
    SL_TRY(sl_json_bool_or(name, part, "add_prefix_space", true, &prefix));
    SL_TRY(sl_json_string_or(name, part, "prepend_scheme", prefix ? "always" : "never", &scheme));
    d->drop_first = strcmp(scheme, "never") != 0;
    return d->from_length ? SL_OK : sl_fail(SL_E_FORMAT, "%s: \"replacement\" should be one character", name);
}

sl_status sl_read_decoder(sl_tokenizer *t, const char *name, const sl_json *part)
{
    const char *type;
    sl_decoder *d = NULL;
    bool regex;
    SL_TRY(sl_part_type(name, "decoder", part, &type));
    t->has_decoder = true;
    if (strcmp(type, "Sequence") == 0)
        return sl_part_sequence(t, name, "decoder", part, "decoders", sl_read_decoder);
    if (strcmp(type, "ByteLevel") == 0)
        return new_decoder(t, name, SL_DECODE_BYTES, &d);
    if (strcmp(type, "ByteFallback") == 0)
        return new_decoder(t, name, SL_DECODE_FALLBACK, &d);
    if (strcmp(type, "Fuse") == 0)
        return new_decoder(t, name, SL_DECODE_FUSE, &d);
    if (strcmp(type, "Metaspace") == 0)
        return read_metaspace(t, name, part);
    if (strcmp(type, "Replace") == 0) {
        SL_TRY(sl_part_keys(name, "decoder", part, "type,pattern,content"));
        SL_TRY(new_decoder(t, name, SL_DECODE_REPLACE, &d));
        SL_TRY(sl_part_pattern(t, name, part, &d->from, &d->from_length, &regex));
        SL_TRY(sl_part_string(t, name, part, "content", &d->to, &d->to_length));
        if (!d->from_length || regex)
            return sl_fail(SL_E_UNSUPPORTED, "%s:%d:%d: a decoder Replace with %s", name, part->line, part->column,
                           regex ? "a regular expression" : "the empty text");
        return SL_OK;
    }
    if (strcmp(type, "Strip") == 0) {
        SL_TRY(sl_part_keys(name, "decoder", part, "type,content,start,stop"));
        SL_TRY(new_decoder(t, name, SL_DECODE_STRIP, &d));
        SL_TRY(sl_part_string(t, name, part, "content", &d->from, &d->from_length));
        SL_TRY(sl_json_i64_or(name, part, "start", 0, &d->start));
        SL_TRY(sl_json_i64_or(name, part, "stop", 0, &d->stop));
        return d->from_length ? SL_OK : sl_fail(SL_E_FORMAT, "%s: a decoder Strip without \"content\"", name);
    }
    return sl_part_unknown(name, "decoder", part, type,
                           "ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip and Sequence");
}

/* ---- using them ---- */

/* The texts of tokens, one behind the other; `stops` says where each ends. */
typedef struct pieces {
    sl_text text;
    size_t *stops;
    int64_t count, capacity;
} pieces;

static void pieces_free(pieces *p)
{
    sl_text_free(&p->text);
    sl_free(p->stops);
}

/* Ends a piece that was appended to the text. */
static sl_status end_piece(pieces *p)
{
    if (p->count == p->capacity) {
        int64_t capacity = p->capacity * 2 + 64;
        SL_TRY(sl_grow(&p->stops, p->capacity, capacity, sizeof *p->stops));
        p->capacity = capacity;
    }
    p->stops[p->count++] = p->text.length;
    return SL_OK;
}

static const char *piece(const pieces *p, int64_t i, size_t *length)
{
    size_t start = i ? p->stops[i - 1] : 0;
    *length = p->stops[i] - start;
    return p->text.data + start;
}

static void replace(const char *text, size_t length, const char *from, size_t from_length, const char *to,
                    size_t to_length, sl_text *out)
{
    const char *end = text + length;
    while (text < end) {
        const char *at = memmem(text, (size_t) (end - text), from, from_length), *stop = at ? at : end;
        sl_text_append(out, text, (size_t) (stop - text));
        if (at)
            sl_text_append(out, to, to_length);
        text = at ? at + from_length : end;
    }
}

static void strip(const sl_decoder *d, const char *text, size_t length, sl_text *out)
{
    for (int64_t i = 0; i < d->start && length >= d->from_length && memcmp(text, d->from, d->from_length) == 0; i++)
        text += d->from_length, length -= d->from_length;
    for (int64_t i = 0; i < d->stop && length >= d->from_length &&
                        memcmp(text + length - d->from_length, d->from, d->from_length) == 0;
         i++)
        length -= d->from_length;
    sl_text_append(out, text, length);
}

int sl_fallback_byte(const char *text, size_t length)
{
    if (length != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    int value = 0;
    for (int i = 3; i < 5; i++) {
        char c = text[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* Bytes that together are UTF-8 become their text; of others each becomes U+FFFD. */
static sl_status flush_bytes(sl_text *bytes, pieces *out)
{
    const char *at = bytes->data, *end = sl_text_end(bytes);
    if (!bytes->length)
        return SL_OK;
    while (at < end && sl_utf8_length(at, end))
        at += sl_utf8_length(at, end);
    if (at == end)
        sl_text_append(&out->text, bytes->data, bytes->length);
    for (size_t i = 0; at < end && i < bytes->length; i++)
        sl_text_append(&out->text, "\xef\xbf\xbd", 3);
    bytes->length = 0;
    return end_piece(out);
}

static sl_status join_bytes(const pieces *in, pieces *out)
{
    sl_text bytes = {0};
    sl_status status = SL_OK;
    for (int64_t i = 0; i < in->count && status == SL_OK; i++) {
        size_t length;
        const char *text = piece(in, i, &length);
        int byte = sl_fallback_byte(text, length);
        char c = (char) byte;
        if (byte >= 0) {
            sl_text_append(&bytes, &c, 1);
            status = sl_text_status(&bytes);
            continue;
        }
        status = flush_bytes(&bytes, out);
        sl_text_append(&out->text, text, length);
        if (status == SL_OK)
            status = end_piece(out);
    }
    if (status == SL_OK)
        status = flush_bytes(&bytes, out);
    sl_text_free(&bytes);
    return status;
}

/* Characters of the alphabet as bytes, token by token, and all of them together as UTF-8. */
static sl_status from_alphabet(const pieces *in, pieces *out)
{
    sl_text bytes = {0};
    char *buffer;
    size_t longest = 0, length;
    for (int64_t i = 0; i < in->count; i++) {
        piece(in, i, &length);
        longest = SL_MAX(longest, length);
    }
    SL_TRY(sl_alloc(&buffer, longest + 1, 1));
    for (int64_t i = 0; i < in->count; i++) {
        const char *text = piece(in, i, &length);
        size_t count;
        if (sl_alphabet_decode(text, length, buffer, &count))
            sl_text_append(&bytes, buffer, count);
        else
            sl_text_append(&bytes, text, length);
    }
    sl_free(buffer);
    sl_status status = sl_text_status(&bytes);
    if (status == SL_OK && bytes.length)
        sl_text_append_utf8(&out->text, bytes.data, bytes.length);
    sl_text_free(&bytes);
    return status == SL_OK ? end_piece(out) : status;
}

static sl_status run(const sl_decoder *d, const pieces *in, pieces *out)
{
    if (d->kind == SL_DECODE_FALLBACK)
        return join_bytes(in, out);
    if (d->kind == SL_DECODE_BYTES)
        return from_alphabet(in, out);
    for (int64_t i = 0; i < in->count; i++) {
        size_t length;
        const char *text = piece(in, i, &length);
        if (d->kind == SL_DECODE_FUSE)
            sl_text_append(&out->text, text, length);
        else if (d->kind == SL_DECODE_STRIP)
            strip(d, text, length, &out->text);
        else if (d->kind == SL_DECODE_MARKS)
            replace(text, length, d->from, d->from_length, " ", i == 0 && d->drop_first ? 0 : 1, &out->text);
        else
            replace(text, length, d->from, d->from_length, d->to, d->to_length, &out->text);
        if (d->kind != SL_DECODE_FUSE || i + 1 == in->count)
            SL_TRY(end_piece(out));
    }
    return SL_OK;
}

static sl_status gather(const sl_tokenizer *t, const int32_t *ids, int64_t count, bool skip_special, pieces *out)
{
    sl_text_append(&out->text, "", 0);
    for (int64_t i = 0; i < count; i++) {
        size_t length;
        const char *text = sl_vocab_text(&t->bpe.vocab, ids[i], &length);
        if (!text || (skip_special && sl_tokenizer_is_special(t, ids[i])))
            continue;                   /* a model's vocabulary may be larger than its tokenizer's */
        if (t->added_of[ids[i]] >= 0) { /* of those that are matched in normalized text, the normalized form */
            text = t->added[t->added_of[ids[i]]].content;
            length = t->added[t->added_of[ids[i]]].length;
        }
        if (!t->has_decoder && out->count)
            sl_text_append(&out->text, " ", 1);
        sl_text_append(&out->text, text, length);
        SL_TRY(end_piece(out));
    }
    return SL_OK;
}

sl_status sl_decode(const sl_tokenizer *t, const int32_t *ids, int64_t count, bool skip_special, sl_text *out)
{
    pieces now = {.count = 0}, next = {.count = 0};
    sl_status status = gather(t, ids, count, skip_special, &now);
    for (int64_t i = 0; i < t->n_decoders && status == SL_OK; i++) {
        next.text.length = 0, next.count = 0;
        sl_text_append(&next.text, "", 0);
        status = run(&t->decoders[i], &now, &next);
        pieces swap = now;
        now = next, next = swap;
        if (status == SL_OK)
            status = sl_text_status(&now.text);
    }
    if (status == SL_OK && now.text.length)
        sl_text_append(out, now.text.data, now.text.length);
    if (status == SL_OK)
        status = sl_text_status(&now.text);
    pieces_free(&now);
    pieces_free(&next);
    return status == SL_OK ? sl_text_status(out) : status;
}
