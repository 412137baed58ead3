/* The words of a text and how often each occurs: a hash table in front of an array of words, whose bytes stand one behind the other. */
#include <string.h>

#include "text/bpe_train.h"
#include "text/internal.h"
#include "text/lexers.h"
#include "text/unicode.h"

enum { FEWEST_SLOTS = 1 << 10 };

static uint32_t hash_of(const char *word, size_t length)
{
    uint64_t h = length * 0x9e3779b97f4a7c15u, part;
    for (; length >= 8; word += 8, length -= 8) {
        memcpy(&part, word, 8);
        h = (h ^ part) * 0xbf58476d1ce4e5b9u;
        h ^= h >> 32;
    }
    part = 0;
    memcpy(&part, word, length);
    h = (h ^ part) * 0x94d049bb133111ebu;
    return (uint32_t) (h >> 32);
}

/* The slot of a word, or the empty one where it belongs. */
static uint64_t slot_of(const sl_word_counts *c, const char *word, size_t length, uint32_t hash)
{
    uint64_t slot = hash & (c->n_slots - 1);
    for (; c->slots[slot]; slot = (slot + 1) & (c->n_slots - 1)) {
        const sl_word *w = &c->words[c->slots[slot] - 1];
        if (w->hash == hash && w->length == length && memcmp(c->bytes + w->start, word, length) == 0)
            break;
    }
    return slot;
}

/* Fills an empty hash table; the words differ, so none is compared. */
static void fill_slots(sl_word_counts *c)
{
    for (int64_t i = 0; i < c->n_words; i++) {
        uint64_t slot = c->words[i].hash & (c->n_slots - 1);
        while (c->slots[slot])
            slot = (slot + 1) & (c->n_slots - 1);
        c->slots[slot] = (uint32_t) i + 1;
    }
}

static sl_status more_slots(sl_word_counts *c)
{
    uint64_t n_slots = c->n_slots ? c->n_slots * 2 : FEWEST_SLOTS;
    uint32_t *slots;
    SL_TRY(sl_alloc(&slots, n_slots, sizeof *slots));
    sl_free(c->slots);
    c->slots = slots, c->n_slots = n_slots;
    fill_slots(c);
    return SL_OK;
}

static sl_status append(sl_word_counts *c, const char *word, size_t length, uint32_t hash, int64_t count)
{
    if (length >= UINT32_MAX || c->n_words >= INT32_MAX)
        return sl_fail(SL_E_UNSUPPORTED, "the text has words of 4 GiB, or more than %d: give less of it", INT32_MAX);
    if (c->byte_capacity - c->n_bytes < length) {
        size_t capacity = c->byte_capacity * 2 + length + 4096;
        SL_TRY(sl_grow(&c->bytes, c->byte_capacity, capacity, 1));
        c->byte_capacity = capacity;
    }
    if (c->n_words == c->capacity) {
        int64_t capacity = c->capacity * 2 + 512;
        SL_TRY(sl_grow(&c->words, c->capacity, capacity, sizeof *c->words));
        c->capacity = capacity;
    }
    memcpy(c->bytes + c->n_bytes, word, length);
    c->words[c->n_words++] = (sl_word){.start = c->n_bytes, .length = (uint32_t) length, .hash = hash, .count = count};
    c->n_bytes += length;
    return SL_OK;
}

static sl_status add_hashed(sl_word_counts *c, const char *word, size_t length, uint32_t hash, int64_t count)
{
    if ((uint64_t) c->n_words * 2 >= c->n_slots)
        SL_TRY(more_slots(c));
    uint64_t slot = slot_of(c, word, length, hash);
    if (c->slots[slot]) {
        c->words[c->slots[slot] - 1].count += count;
        return SL_OK;
    }
    SL_TRY(append(c, word, length, hash, count));
    c->slots[slot] = (uint32_t) c->n_words;
    return SL_OK;
}

sl_status sl_word_counts_add(sl_word_counts *c, const char *word, size_t length, int64_t count)
{
    return length && count > 0 ? add_hashed(c, word, length, hash_of(word, length), count) : SL_OK;
}

sl_status sl_word_counts_text(sl_word_counts *c, const char *text, size_t length)
{
    const sl_classes *classes = sl_unicode_table();
    sl_lexer lexer = sl_lexer_find(sl_pattern_llama3, strlen(sl_pattern_llama3));
    bool matched;
    c->clean.length = 0;
    sl_text_append_utf8(&c->clean, text, length);
    SL_TRY(sl_text_status(&c->clean));
    const char *at = c->clean.data, *end = sl_text_end(&c->clean);
    while (at < end) {
        const char *stop = lexer(classes, at, end, &matched);
        SL_TRY(sl_word_counts_add(c, at, (size_t) (stop - at), 1));
        at = stop;
    }
    return SL_OK;
}

static void clear(sl_word_counts *c)
{
    if (c->n_slots)
        memset(c->slots, 0, c->n_slots * sizeof *c->slots);
    c->n_words = 0;
    c->n_bytes = 0;
}

sl_status sl_word_counts_join(sl_word_counts *c, sl_word_counts *from)
{
    for (int64_t i = 0; i < from->n_words; i++) {
        const sl_word *w = &from->words[i];
        SL_TRY(add_hashed(c, from->bytes + w->start, w->length, w->hash, w->count));
    }
    clear(from);
    return SL_OK;
}

sl_status sl_word_counts_bound(sl_word_counts *c, size_t most, int64_t *left_out)
{
    if (c->n_bytes <= most)
        return SL_OK;
    for (int64_t floor = 1; c->n_bytes > most / 2; floor++) {
        int64_t kept = 0;
        size_t bytes = 0;
        for (int64_t i = 0; i < c->n_words; i++) {
            sl_word w = c->words[i];
            if (w.count <= floor)
                continue;
            memmove(c->bytes + bytes, c->bytes + w.start, w.length);
            w.start = bytes;
            bytes += w.length;
            c->words[kept++] = w;
        }
        *left_out += c->n_words - kept;
        c->n_words = kept, c->n_bytes = bytes;
    }
    memset(c->slots, 0, c->n_slots * sizeof *c->slots);
    fill_slots(c);
    return SL_OK;
}

void sl_word_counts_free(sl_word_counts *c)
{
    sl_free(c->bytes);
    sl_free(c->words);
    sl_free(c->slots);
    sl_text_free(&c->clean);
    *c = (sl_word_counts){.bytes = NULL};
}
