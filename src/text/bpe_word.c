/*
 * The tokens of one word: the search that text/bpe.h describes, and how characters that the vocabulary does not have are put.
 *
 * Work is counted. A vocabulary made for it ("a", "aa", "aaa", ...) can make the search try every length at every position; a word that
 * takes far more look-ups than it has bytes is left to the heap, so that no word costs more than O(n log n).
 */
#include <string.h>

#include "core/text.h"
#include "text/bpe.h"
#include "text/unicode.h"

enum { WORK_PER_BYTE = 24, FREE_WORK = 4096, MEMO_BITS = 14, LENGTH_BITS = 11 };

/* ---- the search ---- */

typedef struct search {
    const sl_bpe *bpe;
    sl_bpe_scratch *s;
    const char *text;
    int64_t length, at, work;
    sl_tokens *out;
    int64_t first; /* of the word in `out` */
} search;

static bool has_bit(const uint64_t *bits, int64_t at)
{
    return bits[at >> 6] >> (at & 63) & 1;
}

static sl_status prepare(sl_bpe_scratch *s, int64_t length)
{
    int64_t words = (length >> 6) + 1;
    if (!s->memo)
        SL_TRY(sl_alloc(&s->memo, 1 << MEMO_BITS, sizeof *s->memo));
    if (words > s->bit_capacity) {
        int64_t capacity = SL_MAX(words, s->bit_capacity * 2);
        SL_TRY(sl_grow(&s->dead, s->bit_capacity, capacity, sizeof *s->dead));
        SL_TRY(sl_grow(&s->guessed, s->bit_capacity, capacity, sizeof *s->guessed));
        s->bit_capacity = capacity;
    }
    for (int64_t i = 0; i < words; i++)
        s->dead[i] = s->guessed[i] = 0;
    return SL_OK;
}

/* The token before the search's place, -1 for none. */
static inline int32_t left_of(const search *r)
{
    return r->out->count > r->first ? r->out->ids[r->out->count - 1] : -1;
}

static inline sl_status append(search *r, int32_t token, int64_t length)
{
    if (r->out->count == r->out->capacity)
        SL_TRY(sl_tokens_reserve(r->out, 1));
    r->out->ids[r->out->count++] = token;
    r->at += length;
    return SL_OK;
}

/*
 * The memo: what was taken behind a token where another was the longest that begins there, for the last such pairs. It saves asking whether
 * the two go together, and trying longer ones that led nowhere before. An entry has the length of what was taken, the key (a bit that is
 * always set, the left token, the upper bits of the longest one's slot; the lower bits follow from the entry's place), and what was taken.
 */
#define MEMO_KEY ((uint64_t) 1 << 31)

static inline uint64_t memo_key(int32_t left, uint32_t slot)
{
    return MEMO_KEY | (uint64_t) (uint32_t) left << 10 | slot >> MEMO_BITS;
}

static inline uint64_t *memo_at(const search *r, int32_t left, uint32_t slot)
{
    uint32_t mixed = (uint32_t) left * 0x9e3779b1u >> (32 - MEMO_BITS);
    return &r->s->memo[(slot ^ mixed) & ((1 << MEMO_BITS) - 1)];
}

/* A token with its length, which a longest match knows already: one load less. */
typedef struct piece {
    int32_t token; /* -1: none */
    int64_t length;
} piece;

static void remember(const search *r, int32_t left, uint32_t slot, piece taken)
{
    uint64_t length = (uint64_t) taken.length;
    if (left >= 0 && length >> LENGTH_BITS == 0)
        *memo_at(r, left, slot) =
            length << (64 - LENGTH_BITS) | memo_key(left, slot) << SL_ID_BITS | (uint32_t) taken.token;
}

static piece shorter_than(const search *r, int32_t token)
{
    int32_t shorter = r->bpe->shorter[token];
    return (piece){shorter, shorter < 0 ? 0 : r->bpe->length[shorter]};
}

/* Makes the piece the longest one, itself or shorter, that goes with `left` (-1: nothing) and does not lead nowhere. */
static sl_status choose(search *r, int32_t left, piece *chosen)
{
    for (; chosen->token >= 0; *chosen = shorter_than(r, chosen->token)) {
        bool fits = true;
        r->work += 4;
        if (has_bit(r->s->dead, r->at + chosen->length))
            continue;
        if (left >= 0)
            SL_TRY(sl_bpe_fits(r->bpe, r->s, left, chosen->token, false, &fits, &r->work));
        if (fits)
            break;
    }
    return SL_OK;
}

static piece longest_of(const search *r, const sl_trie_match *m)
{
    int64_t length = m->stop - (r->text + r->at);
    return (piece){length ? r->bpe->trie.tokens[m->slot] : -1, length};
}

/* Nothing goes on from here: takes back tokens until another one stands in place of the last. Without a token: there is none at all. */
static sl_status go_back(search *r, piece *chosen)
{
    while (chosen->token < 0 && r->out->count > r->first) {
        r->s->dead[r->at >> 6] |= (uint64_t) 1 << (r->at & 63);
        int32_t before = r->out->ids[--r->out->count], left = left_of(r);
        r->at -= r->bpe->length[before];
        sl_trie_match m = sl_trie_walk(&r->bpe->trie, r->text + r->at, r->text + r->length);
        /* A guess was not the longest that was left to try. Trying it again finds its end dead. */
        uint64_t bit = (uint64_t) 1 << (r->at & 63), *guessed = &r->s->guessed[r->at >> 6];
        *chosen = *guessed & bit ? longest_of(r, &m) : shorter_than(r, before);
        *guessed &= ~bit;
        SL_TRY(choose(r, left, chosen));
        if (chosen->token >= 0)
            remember(r, left, m.slot, *chosen);
    }
    return SL_OK;
}

static bool is_inside(const sl_bpe *bpe, const char *at)
{
    unsigned two = (unsigned) (unsigned char) at[0] << 8 | (unsigned char) at[1];
    return bpe->inside[two >> 6] >> (two & 63) & 1;
}

/* Bytes that no token has together with either neighbour: each is a token. */
static sl_status lone_bytes(search *r)
{
    const char *text = r->text;
    int64_t stop = r->at;
    if (r->at == r->length || (r->at > 0 && is_inside(r->bpe, text + r->at - 1)))
        return SL_OK;
    while (stop < r->length && (stop + 1 == r->length || !is_inside(r->bpe, text + stop)))
        stop++;
    SL_TRY(sl_tokens_reserve(r->out, stop - r->at));
    int32_t *ids = r->out->ids + r->out->count;
    r->out->count += stop - r->at;
    while (r->at < stop)
        *ids++ = r->bpe->symbol[(unsigned char) text[r->at++]];
    return SL_OK;
}

/* One token. *failed: there is no encoding. */
static sl_status step(search *r, bool *failed)
{
    sl_trie_match m = sl_trie_walk(&r->bpe->trie, r->text + r->at, r->text + r->length);
    int32_t left = left_of(r);
    r->work += 4;
    if (left >= 0) {
        uint64_t entry = *memo_at(r, left, m.slot);
        int64_t length = (int64_t) (entry >> (64 - LENGTH_BITS)), longest = m.stop - (r->text + r->at);
        if ((entry >> SL_ID_BITS & UINT32_MAX) == memo_key(left, m.slot) && !has_bit(r->s->dead, r->at + length)) {
            r->s->guessed[r->at >> 6] |= (uint64_t) (length < longest) << (r->at & 63);
            return append(r, (int32_t) (entry & (SL_MOST_IDS - 1)), length);
        }
    }
    piece chosen = longest_of(r, &m);
    SL_TRY(choose(r, left, &chosen));
    if (chosen.token >= 0)
        remember(r, left, m.slot, chosen);
    else
        SL_TRY(go_back(r, &chosen));
    *failed = chosen.token < 0;
    return *failed ? SL_OK : append(r, chosen.token, chosen.length);
}

/* A text all of whose characters are symbols. `done` false: it took too much work, `out` is as before. */
static sl_status search_word(const sl_bpe *bpe, sl_bpe_scratch *s, const char *text, int64_t length, sl_tokens *out,
                             bool *done)
{
    search r = {bpe, s, text, length, 0, -(WORK_PER_BYTE * length + FREE_WORK), out, out->count};
    sl_trie_match m = sl_trie_walk(&bpe->trie, text, text + length);
    bool failed = false;
    *done = true;
    if (m.stop == text + length)
        return sl_tokens_append(out, &bpe->trie.tokens[m.slot], 1);
    SL_TRY(prepare(s, length));
    while (r.at < length && r.work < 0 && !failed) {
        int64_t before = r.at;
        SL_TRY(step(&r, &failed));
        if (r.at - before == 1 && bpe->all_bytes)
            SL_TRY(lone_bytes(&r));
    }
    *done = r.at == length && !failed;
    if (!*done)
        out->count = r.first;
    return SL_OK;
}

/* ---- symbols ---- */

static int32_t symbol_at(const sl_bpe *bpe, const char *at, const char *end, int *bytes)
{
    unsigned char first = (unsigned char) *at;
    *bytes = 1;
    if (bpe->byte_level || first < 0x80)
        return bpe->symbol[first];
    const char *behind = at;
    sl_utf8_next(&behind);
    *bytes = (int) SL_MIN(behind - at, end - at);
    return sl_vocab_find(&bpe->vocab, at, (size_t) *bytes);
}

typedef struct symbols_of {
    int32_t unknown; /* put when the next known character comes, or the end */
    sl_tokens *out;
} symbols_of;

static bool has_bytes(const sl_bpe *bpe, const char *at, int bytes)
{
    bool all = bpe->byte_fallback;
    for (int i = 0; i < bytes; i++)
        all = all && bpe->fallback[(unsigned char) at[i]] >= 0;
    return all;
}

/* What stands for a character that is no symbol: its bytes, the unknown token, or nothing. */
static sl_status put_unknown(const sl_bpe *bpe, symbols_of *s, const char *at, int bytes)
{
    if (has_bytes(bpe, at, bytes)) {
        for (int i = 0; i < bytes; i++)
            SL_TRY(sl_tokens_append(s->out, &bpe->fallback[(unsigned char) at[i]], 1));
        return SL_OK;
    }
    if (bpe->unk < 0)
        return SL_OK;
    if (s->unknown >= 0 && !bpe->fuse_unk)
        SL_TRY(sl_tokens_append(s->out, &s->unknown, 1));
    s->unknown = bpe->unk;
    return SL_OK;
}

static sl_status flush_unknown(symbols_of *s)
{
    int32_t unknown = s->unknown;
    s->unknown = -1;
    return unknown < 0 ? SL_OK : sl_tokens_append(s->out, &unknown, 1);
}

sl_status sl_bpe_word_by_heap(const sl_bpe *bpe, sl_bpe_scratch *s, const char *word, size_t length, sl_tokens *out)
{
    const char *end = word + length;
    int64_t first = out->count, count;
    symbols_of symbols = {-1, out};
    int bytes;
    for (const char *at = word; at < end; at += bytes) {
        int32_t symbol = symbol_at(bpe, at, end, &bytes);
        if (symbol < 0) {
            SL_TRY(put_unknown(bpe, &symbols, at, bytes));
            continue;
        }
        SL_TRY(flush_unknown(&symbols));
        SL_TRY(sl_tokens_append(out, &symbol, 1));
    }
    SL_TRY(flush_unknown(&symbols));
    count = out->count - first;
    if (!count)
        return SL_OK;
    SL_TRY(sl_bpe_merge(bpe, s, out->ids + first, &count));
    out->count = first + count;
    return SL_OK;
}

static sl_status encode_known(const sl_bpe *bpe, sl_bpe_scratch *s, const char *text, size_t length, sl_tokens *out)
{
    bool done;
    if (!length)
        return SL_OK;
    SL_TRY(search_word(bpe, s, text, (int64_t) length, out, &done));
    return done ? SL_OK : sl_bpe_word_by_heap(bpe, s, text, length, out);
}

/* Runs of symbols one by one. Characters that are dropped leave their neighbours side by side, so runs are collected in a copy. */
static sl_status encode_runs(const sl_bpe *bpe, sl_bpe_scratch *s, const char *word, size_t length, sl_tokens *out)
{
    const char *end = word + length;
    size_t known = 0;
    symbols_of symbols = {-1, out};
    int bytes;
    if (length > s->known_capacity) {
        SL_TRY(sl_grow(&s->known, s->known_capacity, length, 1));
        s->known_capacity = length;
    }
    for (const char *at = word; at < end; at += bytes) {
        if (symbol_at(bpe, at, end, &bytes) >= 0) {
            SL_TRY(flush_unknown(&symbols));
            memcpy(s->known + known, at, (size_t) bytes);
            known += (size_t) bytes;
            continue;
        }
        if (bpe->unk >= 0 || has_bytes(bpe, at, bytes)) {
            SL_TRY(encode_known(bpe, s, s->known, known, out));
            known = 0;
        }
        SL_TRY(put_unknown(bpe, &symbols, at, bytes));
    }
    SL_TRY(flush_unknown(&symbols));
    return encode_known(bpe, s, s->known, known, out);
}

sl_status sl_bpe_word(const sl_bpe *bpe, sl_bpe_scratch *s, const char *word, size_t length, sl_tokens *out)
{
    if (bpe->ignore_merges) {
        /* A word that is in the vocabulary is taken whole, whether or not merges lead to it. */
        int32_t token = sl_trie_find(&bpe->trie, word, length);
        if (token >= 0)
            return sl_tokens_append(out, &token, 1);
    }
    if (bpe->by_heap)
        return sl_bpe_word_by_heap(bpe, s, word, length, out);
    return bpe->all_bytes ? encode_known(bpe, s, word, length, out) : encode_runs(bpe, s, word, length, out);
}
