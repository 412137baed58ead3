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

enum { WORK_PER_BYTE = 24, FREE_WORK = 4096, MEMO_BITS = 13 };

static bool is_dead(const sl_bpe_scratch *s, int64_t at)
{
    return s->dead[at >> 6] >> (at & 63) & 1;
}

static sl_status clear_dead(sl_bpe_scratch *s, int64_t length)
{
    int64_t words = (length >> 6) + 1;
    if (words > s->dead_capacity) {
        int64_t capacity = SL_MAX(words, s->dead_capacity * 2);
        SL_TRY(sl_grow(&s->dead, s->dead_capacity, capacity, sizeof *s->dead));
        s->dead_capacity = capacity;
    }
    memset(s->dead, 0, (size_t) words * sizeof *s->dead);
    return SL_OK;
}

/* sl_bpe_fits for tokens that often stand side by side. The lowest bit of an entry is the answer. */
static sl_status fits_behind(const sl_bpe *bpe, sl_bpe_scratch *s, int32_t left, int32_t right, bool *fits,
                             int64_t *work)
{
    if (!s->memo)
        SL_TRY(sl_alloc(&s->memo, 1 << MEMO_BITS, sizeof *s->memo));
    uint64_t key = ((uint64_t) (uint32_t) left << 32 | (uint32_t) right) + 1;
    uint64_t *entry = &s->memo[key * 0x9e3779b97f4a7c15u >> (64 - MEMO_BITS)];
    if (*entry >> 1 == key) {
        *fits = *entry & 1;
        return SL_OK;
    }
    SL_TRY(sl_bpe_fits(bpe, s, left, right, false, fits, work));
    *entry = key << 1 | *fits;
    return SL_OK;
}

/* A text all of whose characters are symbols. `done` false: it took too much work, `out` is as before. */
static sl_status search(const sl_bpe *bpe, sl_bpe_scratch *s, const char *text, int64_t length, sl_tokens *out,
                        bool *done)
{
    const char *stop = text;
    int64_t at = 0, first = out->count, work = -(WORK_PER_BYTE * length + FREE_WORK);
    int32_t token = sl_trie_longest(&bpe->trie, text, text + length, &stop);
    *done = true;
    if (stop == text + length)
        return sl_tokens_append(out, &token, 1);
    SL_TRY(clear_dead(s, length));
    while (at < length && work < 0) {
        bool fits = false;
        int64_t next = token < 0 ? 0 : at + bpe->length[token];
        work += 4;
        if (token >= 0 && !is_dead(s, next)) {
            fits = true;
            if (out->count > first)
                SL_TRY(fits_behind(bpe, s, out->ids[out->count - 1], token, &fits, &work));
        }
        if (fits) {
            SL_TRY(sl_tokens_append(out, &token, 1));
            at = next;
            token = sl_trie_longest(&bpe->trie, text + at, text + length, &stop);
        } else if (token >= 0) {
            token = bpe->shorter[token];
        } else if (out->count == first) {
            break;
        } else { /* nothing goes on from here: the token before it has to be another */
            s->dead[at >> 6] |= (uint64_t) 1 << (at & 63);
            token = out->ids[--out->count];
            at -= bpe->length[token];
            token = bpe->shorter[token];
        }
    }
    *done = at == length;
    if (!*done)
        out->count = first;
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
    SL_TRY(search(bpe, s, text, (int64_t) length, out, &done));
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
