/*
 * A text on its way through a tokenizer. Most words come again: the ids of those of up to 32 bytes and 7 tokens are kept in a table
 * of one cache line each, so that a word that was seen costs its lexer, a hash and one line. A newer word takes the place of an older
 * one. What is kept never changes an id.
 */
#include <string.h>

#include "core/hash.h"
#include "text/internal.h"
#include "text/unicode.h"

enum { CACHE_BITS = 15, KEY_BYTES = 32, KEPT_IDS = 7, WAITING = 8, BYTES_A_TOKEN = 3 /* at first */ };

typedef struct kept_word {
    uint64_t key[KEY_BYTES / 8]; /* its bytes, then zeros */
    int32_t ids[KEPT_IDS];
    uint8_t length, count; /* length 0: empty */
    uint8_t unused[2];
} kept_word;

typedef struct waiting_word {
    const char *begin;
    size_t length;
    uint64_t key[KEY_BYTES / 8];
    kept_word *kept;
} waiting_word;

struct sl_encoder {
    const sl_tokenizer *t;
    kept_word *cache;
    waiting_word waiting[WAITING]; /* in order: their lines are on the way from memory */
    uint64_t first, last;
    sl_bpe_scratch scratch;
    sl_tokens *out;
    const char *origin; /* the text's first byte, where a piece begins with it */
    const char *limit;  /* of the text that is being cut: bytes before it may be read */
    bool special;
    sl_text clean, normalized, buffers[SL_MOST_COMPONENTS];
    sl_splits splits[SL_MOST_COMPONENTS];
};

sl_status sl_encoder_create(const sl_tokenizer *tokenizer, sl_encoder **encoder)
{
    sl_encoder *e;
    SL_TRY(sl_alloc(&e, 1, sizeof *e));
    e->t = tokenizer;
    sl_status status = sl_alloc_aligned(&e->cache, 1 << CACHE_BITS, sizeof *e->cache, 64);
    if (status != SL_OK) {
        sl_free(e);
        return status;
    }
    *encoder = e;
    return SL_OK;
}

void sl_encoder_destroy(sl_encoder *encoder)
{
    if (!encoder)
        return;
    sl_bpe_scratch_free(&encoder->scratch);
    sl_text_free(&encoder->clean);
    sl_text_free(&encoder->normalized);
    for (int i = 0; i < SL_MOST_COMPONENTS; i++) {
        sl_text_free(&encoder->buffers[i]);
        sl_free(encoder->splits[i].items);
    }
    sl_free(encoder->cache);
    sl_free(encoder);
}

const sl_tokenizer *sl_encoder_tokenizer(const sl_encoder *encoder)
{
    return encoder->t;
}

/* ---- words ---- */

/* Up to 8 bytes of a word, zeros behind them; 8 bytes can be read. */
static inline uint64_t part(const char *at, size_t length)
{
    uint64_t value;
    memcpy(&value, at, 8);
    return length >= 8 ? value : value & (((uint64_t) 1 << (8 * length)) - 1);
}

static inline void make_key(const char *word, size_t length, const char *limit, uint64_t key[4])
{
    char copy[KEY_BYTES];
    if (limit - word < KEY_BYTES) {
        memset(copy, 0, sizeof copy);
        memcpy(copy, word, length);
        word = copy;
    }
    key[0] = part(word, length);
    key[1] = length > 8 ? part(word + 8, length - 8) : 0;
    key[2] = length > 16 ? part(word + 16, length - 16) : 0;
    key[3] = length > 24 ? part(word + 24, length - 24) : 0;
}

static inline uint64_t key_hash(const uint64_t key[4], size_t length)
{
    uint64_t h = (key[0] ^ length) * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 32 ^ key[1]) * 0xbf58476d1ce4e5b9u;
    if (length > 16)
        h = (h ^ h >> 32 ^ key[2] ^ key[3] * 0x94d049bb133111ebu) * 0x9e3779b97f4a7c15u;
    return h >> (64 - CACHE_BITS);
}

/* The oldest word that waits. */
static sl_status resolve(sl_encoder *e)
{
    const waiting_word *w = &e->waiting[e->first++ % WAITING];
    kept_word *kept = w->kept;
    if (kept->length == w->length && kept->key[0] == w->key[0] && kept->key[1] == w->key[1] &&
        kept->key[2] == w->key[2] && kept->key[3] == w->key[3]) {
        if (e->out->capacity - e->out->count < KEPT_IDS)
            SL_TRY(sl_tokens_reserve(e->out, KEPT_IDS));
        memcpy(e->out->ids + e->out->count, kept->ids, sizeof kept->ids);
        e->out->count += kept->count;
        return SL_OK;
    }
    int64_t first = e->out->count;
    SL_TRY(sl_bpe_word(&e->t->bpe, &e->scratch, w->begin, w->length, e->out));
    int64_t count = e->out->count - first;
    if (count <= KEPT_IDS) {
        memcpy(kept->key, w->key, sizeof w->key);
        if (count)
            memcpy(kept->ids, e->out->ids + first, (size_t) count * sizeof *kept->ids);
        kept->length = (uint8_t) w->length, kept->count = (uint8_t) count;
    }
    return SL_OK;
}

static sl_status resolve_all(sl_encoder *e)
{
    while (e->first != e->last)
        SL_TRY(resolve(e));
    return SL_OK;
}

static sl_status word(sl_encoder *e, const char *begin, const char *end)
{
    size_t length = (size_t) (end - begin);
    if (length > KEY_BYTES || !length) {
        SL_TRY(resolve_all(e));
        return length ? sl_bpe_word(&e->t->bpe, &e->scratch, begin, length, e->out) : SL_OK;
    }
    if (e->last - e->first == WAITING)
        SL_TRY(resolve(e));
    waiting_word *w = &e->waiting[e->last++ % WAITING];
    w->begin = begin, w->length = length;
    make_key(begin, length, e->limit, w->key);
    w->kept = &e->cache[key_hash(w->key, length)];
    __builtin_prefetch(w->kept);
    return SL_OK;
}

/* ---- stages ---- */

static sl_status pieces(sl_encoder *e, int64_t stage, const char *begin, const char *end);

/* Text that a stage changed lies in a buffer of its own. */
static sl_status changed_piece(sl_encoder *e, int64_t stage, sl_text *buffer)
{
    const char *limit = e->limit;
    SL_TRY(sl_text_status(buffer));
    e->limit = sl_text_end(buffer);
    sl_status status = pieces(e, stage + 1, buffer->data, e->limit);
    if (status == SL_OK)
        status = resolve_all(e); /* the buffer may be used again */
    e->limit = limit;
    return status;
}

static sl_status replace_spaces(sl_encoder *e, int64_t stage, const char *begin, const char *end)
{
    const sl_cut *s = &e->t->stages[stage];
    sl_text *buffer = &e->buffers[stage];
    size_t length = (size_t) (end - begin);
    bool marked = *begin == ' ' || (length >= s->length && memcmp(begin, s->string, s->length) == 0);
    bool prepend = s->prepend == SL_PREPEND_ALWAYS || (s->prepend == SL_PREPEND_FIRST && begin == e->origin);
    buffer->length = 0;
    if (prepend && !marked)
        sl_text_append(buffer, s->string, s->length);
    while (begin < end) {
        const char *space = memchr(begin, ' ', (size_t) (end - begin));
        sl_text_append(buffer, begin, (size_t) ((space ? space : end) - begin));
        if (space)
            sl_text_append(buffer, s->string, s->length);
        begin = space ? space + 1 : end;
    }
    return changed_piece(e, stage, buffer);
}

static sl_status prefix_space(sl_encoder *e, int64_t stage, const char *begin, const char *end)
{
    if (*begin == ' ')
        return pieces(e, stage + 1, begin, end);
    sl_text *buffer = &e->buffers[stage];
    buffer->length = 0;
    sl_text_append(buffer, " ", 1);
    sl_text_append(buffer, begin, (size_t) (end - begin));
    return changed_piece(e, stage, buffer);
}

/* The last stage, where it is there. */
static sl_status cut_words(sl_encoder *e, const char *begin, const char *end)
{
    const bool(*joins)[SL_CUT_CLASSES] = e->t->bpe.joins;
    int before = -1;
    for (const char *at = begin; at < end;) {
        const char *behind = at;
        uint32_t code = sl_utf8_next(&behind);
        int now = code < 0x80 ? (int) code : code == 0x2581 ? SL_CUT_MARK : SL_CUT_OTHER;
        if (before >= 0 && !joins[before][now]) {
            SL_TRY(word(e, begin, at));
            begin = at;
        }
        before = now;
        at = behind;
    }
    return word(e, begin, end);
}

static sl_status by_lexer(sl_encoder *e, int64_t stage, const char *begin, const char *end)
{
    sl_lexer lexer = e->t->stages[stage].lexer;
    const sl_classes *classes = e->t->classes;
    bool last = stage + 1 == e->t->n_stages, matched;
    while (begin < end) {
        const char *stop = lexer(classes, begin, end, &matched);
        SL_TRY(last ? word(e, begin, stop) : pieces(e, stage + 1, begin, stop));
        begin = stop;
    }
    return SL_OK;
}

static sl_status pieces(sl_encoder *e, int64_t stage, const char *begin, const char *end)
{
    if (begin == end)
        return SL_OK;
    if (stage == e->t->n_stages)
        return word(e, begin, end);
    const sl_cut *s = &e->t->stages[stage];
    if (s->kind == SL_STAGE_REPLACE)
        return replace_spaces(e, stage, begin, end);
    if (s->kind == SL_STAGE_SPACE)
        return prefix_space(e, stage, begin, end);
    if (s->kind == SL_STAGE_CUT)
        return cut_words(e, begin, end);
    if (s->kind == SL_STAGE_LEXER && s->behavior == SL_ISOLATED)
        return by_lexer(e, stage, begin, end);
    sl_splits *splits = &e->splits[stage];
    SL_TRY(sl_cut_split(s, e->t->classes, begin, end, splits));
    for (int64_t i = 0; i < splits->count; i++)
        SL_TRY(pieces(e, stage + 1, splits->items[i].begin, splits->items[i].end));
    return SL_OK;
}

/* ---- texts ---- */

typedef sl_status (*between_fn)(sl_encoder *e, const char *begin, const char *end);

/* Ids of added tokens, and what is between them to `between`. */
static sl_status around_added(sl_encoder *e, const sl_matcher *matcher, const char *begin, const char *end,
                              between_fn between)
{
    const char *at = begin, *resume = begin;
    for (;;) {
        sl_added_match match = sl_matcher_find(e->t, matcher, begin, at, resume, end, e->special, &resume);
        const char *stop = match.begin ? match.begin : end;
        if (stop > at)
            SL_TRY(between(e, at, stop));
        if (!match.begin)
            return SL_OK;
        SL_TRY(sl_tokens_append(e->out, &e->t->added[match.index].id, 1));
        at = match.end;
        resume = SL_MAX(resume, at);
    }
}

static sl_status cut(sl_encoder *e, const char *begin, const char *end)
{
    SL_TRY(pieces(e, 0, begin, end));
    return resolve_all(e);
}

static sl_status normalize(sl_encoder *e, const char *begin, const char *end)
{
    if (!e->t->n_changes)
        return around_added(e, &e->t->normalized, begin, end, cut);
    const char *limit = e->limit, *origin = e->origin;
    sl_text *text = &e->normalized;
    text->length = 0;
    SL_TRY(sl_normalize(e->t, begin, (size_t) (end - begin), text));
    e->limit = sl_text_end(text);
    e->origin = begin == origin ? text->data : NULL;
    sl_status status = around_added(e, &e->t->normalized, text->data, e->limit, cut);
    e->limit = limit, e->origin = origin;
    return status;
}

/* sl_utf8_length, quickly for what most scripts are written in. */
static inline int character_length(const char *at, const char *end)
{
    const unsigned char *p = (const unsigned char *) at;
    if (end - at >= 3) {
        if (p[0] > 0xe0 && p[0] < 0xf0 && p[0] != 0xed && ((p[1] ^ 0x80) | (p[2] ^ 0x80)) < 0x40)
            return 3;
        if (p[0] >= 0xc2 && p[0] < 0xe0 && (p[1] ^ 0x80) < 0x40)
            return 2;
    }
    return sl_utf8_length(at, end);
}

static bool is_utf8(const char *text, size_t length)
{
    const char *end = text + length;
    while (text < end) {
        uint64_t eight;
        if (end - text >= 8 && (memcpy(&eight, text, 8), (eight & 0x8080808080808080u) == 0)) {
            text += 8;
            continue;
        }
        int bytes = character_length(text, end);
        if (!bytes)
            return false;
        text += bytes;
    }
    return true;
}

/* As much as could begin a character (Unicode 16, 3.9). */
int64_t sl_utf8_bad_bytes(const char *at, const char *end)
{
    const unsigned char *p = (const unsigned char *) at;
    int64_t left = end - at;
    int want = p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : p[0] >= 0xe0 && p[0] < 0xf0 ? 3 : p[0] >= 0xf0 && p[0] < 0xf5 ? 4 : 1;
    unsigned low = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    unsigned high = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    int count = 1;
    if (want > 1 && left > 1 && p[1] >= low && p[1] <= high)
        for (count = 2; count < want - 1 && count < left && p[count] >= 0x80 && p[count] <= 0xbf;)
            count++;
    return SL_MIN(count, want > 1 ? want - 1 : 1);
}

void sl_text_append_utf8(sl_text *out, const char *text, size_t length)
{
    const char *end = text + length, *good = text;
    while (text < end) {
        int bytes = sl_utf8_length(text, end);
        if (bytes) {
            text += bytes;
            continue;
        }
        sl_text_append(out, good, (size_t) (text - good));
        sl_text_append(out, "\xef\xbf\xbd", 3);
        text += sl_utf8_bad_bytes(text, end);
        good = text;
    }
    sl_text_append(out, good, (size_t) (end - good));
}

sl_status sl_encode(sl_encoder *e, const char *text, size_t length, unsigned flags, sl_tokens *out)
{
    const sl_tokenizer *t = e->t;
    int64_t first = out->count;
    sl_status status;
    if (!is_utf8(text, length)) {
        e->clean.length = 0;
        sl_text_append_utf8(&e->clean, text, length);
        SL_TRY(sl_text_status(&e->clean));
        text = e->clean.data, length = e->clean.length;
    }
    e->first = e->last = 0;
    e->out = out, e->origin = text, e->limit = text + length, e->special = (flags & SL_ENCODE_SPECIAL) != 0;
    SL_TRY_GOTO(sl_tokens_reserve(out, (int64_t) length / BYTES_A_TOKEN), done);
    if (flags & SL_ENCODE_AROUND)
        SL_TRY_GOTO(sl_tokens_append(out, t->before.ids, t->before.count), done);
    if (length)
        SL_TRY_GOTO(around_added(e, &t->raw, text, text + length, normalize), done);
    status = flags & SL_ENCODE_AROUND ? sl_tokens_append(out, t->behind.ids, t->behind.count) : SL_OK;
done:
    if (status != SL_OK)
        out->count = first;
    return status;
}
