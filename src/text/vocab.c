/* Tables that tokenizers are made of: the vocabulary, a trie over bytes, growing ids and GPT-2's byte alphabet. */
#include <string.h>

#include "core/hash.h"
#include "text/bpe.h"
#include "text/unicode.h"

/* An id far above all others would make every table as long: no tokenizer has more tokens than this. */
enum { MOST_IDS = 1 << 24 };

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
    if (id < 0 || id >= MOST_IDS)
        return sl_fail(SL_E_FORMAT, "token \"%.40s\" has the id %lld; ids are 0 to %d", text, (long long) id,
                       MOST_IDS - 1);
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

/* ---- trie ---- */

/* Edges lie in one hash table, by node and byte. A table of 256 children for each node would take 1 KiB a node. */
static uint64_t edge_slot(const sl_trie *trie, uint32_t key)
{
    return key * 0x9e3779b97f4a7c15u >> trie->shift;
}

uint32_t sl_trie_child(const sl_trie *trie, uint32_t node, unsigned char byte)
{
    if (!node)
        return trie->root[byte];
    if (!trie->n_slots)
        return 0;
    uint32_t key = (node << 8 | byte) + 1;
    for (uint64_t i = edge_slot(trie, key);; i = (i + 1) & (trie->n_slots - 1)) {
        if (trie->edges[i].key == key)
            return trie->edges[i].child;
        if (!trie->edges[i].key)
            return 0;
    }
}

static void put_edge(sl_trie *trie, sl_trie_edge edge)
{
    uint64_t i = edge_slot(trie, edge.key);
    while (trie->edges[i].key)
        i = (i + 1) & (trie->n_slots - 1);
    trie->edges[i] = edge;
    trie->used++;
}

static sl_status grow_edges(sl_trie *trie)
{
    sl_trie_edge *old = trie->edges;
    uint64_t old_slots = trie->n_slots, n_slots = SL_MAX(256, old_slots * 4);
    sl_trie_edge *edges;
    SL_TRY(sl_alloc(&edges, n_slots, sizeof *edges));
    trie->edges = edges, trie->n_slots = n_slots, trie->used = 0;
    trie->shift = 64 - __builtin_ctzll(n_slots);
    for (uint64_t i = 0; i < old_slots; i++)
        if (old[i].key)
            put_edge(trie, old[i]);
    sl_free(old);
    return SL_OK;
}

static sl_status new_node(sl_trie *trie, uint32_t *node)
{
    if (trie->nodes == trie->capacity) {
        uint32_t capacity = trie->capacity * 2 + 256;
        SL_TRY(sl_grow(&trie->token, trie->capacity, capacity, sizeof *trie->token));
        trie->capacity = capacity;
    }
    if (trie->nodes >= (1u << 24) - 1)
        return sl_fail(SL_E_FORMAT, "the tokens have more than %u different beginnings: too many for one vocabulary",
                       trie->nodes);
    *node = trie->nodes++;
    trie->token[*node] = -1;
    return SL_OK;
}

sl_status sl_trie_add(sl_trie *trie, const char *text, size_t length, int32_t token)
{
    uint32_t node = 0, child;
    if (!trie->nodes)
        SL_TRY(new_node(trie, &node));
    for (size_t i = 0; i < length; i++, node = child) {
        unsigned char byte = (unsigned char) text[i];
        child = sl_trie_child(trie, node, byte);
        if (child)
            continue;
        SL_TRY(new_node(trie, &child));
        if (!node) {
            trie->root[byte] = child;
            continue;
        }
        if (trie->used * 2 >= trie->n_slots)
            SL_TRY(grow_edges(trie));
        put_edge(trie, (sl_trie_edge){(node << 8 | byte) + 1, child});
    }
    trie->token[node] = token;
    return SL_OK;
}

int32_t sl_trie_longest(const sl_trie *trie, const uint8_t *flags, const char *at, const char *end, const char **stop)
{
    int32_t found = -1;
    uint32_t node = 0;
    while (at < end && (node = sl_trie_child(trie, node, (unsigned char) *at)) != 0) {
        at++;
        int32_t token = trie->token[node];
        if (token >= 0 && (!flags || (flags[token] & 1)))
            found = token, *stop = at;
    }
    return found;
}

int32_t sl_trie_find(const sl_trie *trie, const char *text, size_t length)
{
    uint32_t node = 0;
    for (size_t i = 0; i < length; i++)
        if ((node = sl_trie_child(trie, node, (unsigned char) text[i])) == 0)
            return -1;
    return node ? trie->token[node] : -1;
}

void sl_trie_free(sl_trie *trie)
{
    sl_free(trie->edges);
    sl_free(trie->token);
    *trie = (sl_trie){.edges = NULL};
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
