/* Tables that tokenizers are made of: the vocabulary, a trie over bytes, growing ids and GPT-2's byte alphabet. */
#include <string.h>

#include "core/hash.h"
#include "text/bpe.h"
#include "text/unicode.h"

/* ---- growing ids ---- */

void sl_tokens_free(sl_tokens *tokens)
{
    sl_free(tokens->ids);
    *tokens = (sl_tokens){NULL, 0, 0};
}

sl_status sl_tokens_reserve(sl_tokens *tokens, int64_t more)
{
    if (tokens->count + more <= tokens->capacity)
        return SL_OK;
    int64_t capacity = SL_MAX(tokens->count + more, tokens->capacity * 2 + 64);
    SL_TRY(sl_grow(&tokens->ids, tokens->capacity, capacity, sizeof *tokens->ids));
    tokens->capacity = capacity;
    return SL_OK;
}

sl_status sl_tokens_append(sl_tokens *tokens, const int32_t *ids, int64_t count)
{
    SL_TRY(sl_tokens_reserve(tokens, count));
    if (count)
        memcpy(tokens->ids + tokens->count, ids, (size_t) count * sizeof *ids);
    tokens->count += count;
    return SL_OK;
}

/* ---- vocabulary ---- */

static int64_t first_slot(const sl_vocab *vocab, const char *text, size_t length)
{
    return (int64_t) (sl_hash64(text, length, 0) & (uint64_t) (vocab->n_slots - 1));
}

static bool is_text(const sl_vocab *vocab, int32_t id, const char *text, size_t length)
{
    return vocab->length[id] == length && memcmp(vocab->bytes + vocab->start[id], text, length) == 0;
}

int32_t sl_vocab_find(const sl_vocab *vocab, const char *text, size_t length)
{
    if (!vocab->n_slots)
        return -1;
    for (int64_t i = first_slot(vocab, text, length);; i = (i + 1) & (vocab->n_slots - 1)) {
        if (vocab->slots[i] < 0 || is_text(vocab, vocab->slots[i], text, length))
            return vocab->slots[i];
    }
}

static sl_status rehash(sl_vocab *vocab)
{
    int64_t n_slots = SL_MAX(1024, vocab->n_slots * 4);
    int32_t *slots;
    SL_TRY(sl_alloc(&slots, n_slots, sizeof *slots));
    memset(slots, 0xff, (size_t) n_slots * sizeof *slots);
    int32_t *old = vocab->slots;
    int64_t old_slots = vocab->n_slots;
    vocab->slots = slots, vocab->n_slots = n_slots;
    for (int64_t k = 0; k < old_slots; k++) {
        if (old[k] < 0)
            continue;
        int64_t i = first_slot(vocab, vocab->bytes + vocab->start[old[k]], vocab->length[old[k]]);
        while (slots[i] >= 0)
            i = (i + 1) & (n_slots - 1);
        slots[i] = old[k];
    }
    sl_free(old);
    return SL_OK;
}

static sl_status make_space(sl_vocab *vocab, int64_t id, size_t length)
{
    if (id >= vocab->capacity) {
        int64_t capacity = SL_MAX(id + 1, vocab->capacity * 2 + 256);
        SL_TRY(sl_grow(&vocab->start, vocab->capacity, capacity, sizeof *vocab->start));
        SL_TRY(sl_grow(&vocab->length, vocab->capacity, capacity, sizeof *vocab->length));
        vocab->capacity = capacity;
    }
    if (vocab->n_bytes + length > vocab->byte_capacity) {
        size_t capacity = SL_MAX(vocab->n_bytes + length, vocab->byte_capacity * 2 + 4096);
        SL_TRY(sl_grow(&vocab->bytes, vocab->byte_capacity, capacity, 1));
        vocab->byte_capacity = capacity;
    }
    return vocab->used * 2 >= vocab->n_slots ? rehash(vocab) : SL_OK;
}

sl_status sl_vocab_add(sl_vocab *vocab, int64_t id, const char *text, size_t length)
{
    if (id < 0 || id >= SL_MOST_IDS)
        return sl_fail(SL_E_FORMAT, "token \"%.40s\" has the id %lld; ids are 0 to %d", text, (long long) id,
                       SL_MOST_IDS - 1);
    if (id < vocab->size && vocab->start[id] != SIZE_MAX) {
        if (is_text(vocab, (int32_t) id, text, length))
            return SL_OK;
        return sl_fail(SL_E_FORMAT, "id %lld stands for \"%.*s\" and for \"%.40s\"", (long long) id,
                       (int) SL_MIN(vocab->length[id], 40), vocab->bytes + vocab->start[id], text);
    }
    int32_t other = sl_vocab_find(vocab, text, length);
    if (other >= 0)
        return sl_fail(SL_E_FORMAT, "token \"%.40s\" has the ids %d and %lld", text, other, (long long) id);
    SL_TRY(make_space(vocab, id, length));
    for (; vocab->size <= id; vocab->size++)
        vocab->start[vocab->size] = SIZE_MAX;
    vocab->start[id] = vocab->n_bytes;
    vocab->length[id] = (uint32_t) length;
    if (length)
        memcpy(vocab->bytes + vocab->n_bytes, text, length);
    vocab->n_bytes += length;
    int64_t i = first_slot(vocab, text, length);
    while (vocab->slots[i] >= 0)
        i = (i + 1) & (vocab->n_slots - 1);
    vocab->slots[i] = (int32_t) id;
    vocab->used++;
    return SL_OK;
}

const char *sl_vocab_text(const sl_vocab *vocab, int64_t id, size_t *length)
{
    if (id < 0 || id >= vocab->size || vocab->start[id] == SIZE_MAX)
        return NULL;
    *length = vocab->length[id];
    return vocab->bytes + vocab->start[id];
}

void sl_vocab_free(sl_vocab *vocab)
{
    sl_free(vocab->bytes);
    sl_free(vocab->start);
    sl_free(vocab->length);
    sl_free(vocab->slots);
    *vocab = (sl_vocab){.bytes = NULL};
}

/* ---- GPT-2's alphabet ---- */

static bool is_plain(uint32_t c)
{
    return (c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff);
}

/* The others in order: 0-32, 127-160, 173. */
uint32_t sl_alphabet_of(unsigned char byte)
{
    if (is_plain(byte))
        return byte;
    return byte <= 0x20 ? 0x100u + byte : byte <= 0xa0 ? 0x121u + byte - 0x7f : 0x143u;
}

int sl_alphabet_byte(uint32_t code)
{
    if (is_plain(code))
        return (int) code;
    if (code < 0x100 || code > 0x143)
        return -1;
    return code <= 0x120 ? (int) (code - 0x100) : code <= 0x142 ? (int) (code - 0x121 + 0x7f) : 0xad;
}

bool sl_alphabet_decode(const char *text, size_t length, char *out, size_t *out_length)
{
    const char *end = text + length;
    size_t count = 0;
    while (text < end) {
        int byte = sl_alphabet_byte(sl_utf8_next(&text));
        if (byte < 0)
            return false;
        out[count++] = (char) byte;
    }
    *out_length = count;
    return true;
}
