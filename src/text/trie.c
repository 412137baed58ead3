/*
 * A trie over bytes: added to by a hash table of edges, searched as a double array.
 *
 * A node with children has a base that no other node has, and its child by byte b stands in the slot base ^ b, with b as its label: one
 * load for each byte of a text tells whether there is such a child, its token and its own base. Slots lie in blocks of 256, and a base and
 * its children in one block. A slot without a node gets the label that no base of its block leads to it with.
 */
#include <stdlib.h>
#include <string.h>

#include "text/bpe.h"

/* Edges lie in one hash table, by node and byte. A table of 256 children for each node would take 1 KiB a node. */
static uint64_t edge_slot(const sl_trie *trie, uint32_t key)
{
    return key * 0x9e3779b97f4a7c15u >> trie->shift;
}

uint32_t sl_trie_child(const sl_trie *trie, uint32_t node, unsigned char byte)
{
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
    uint64_t old_slots = trie->n_slots, n_slots = SL_MAX(256, old_slots * 2);
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
    if (trie->nodes >= 1u << 23)
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
        if (trie->used * 2 >= trie->n_slots)
            SL_TRY(grow_edges(trie));
        put_edge(trie, (sl_trie_edge){(node << 8 | byte) + 1, child});
    }
    trie->token[node] = token;
    return SL_OK;
}

/* ---- packing ---- */

enum { BLOCK = 256, OPEN_BLOCKS = 16, MOST_BLOCKS = 1 << 15, MOST_FAILURES = 32 };

/* What is taken in a block of slots. Blocks that often had no place for children are closed, so that packing takes linear time. */
typedef struct block {
    uint64_t slots[BLOCK / 64], bases[BLOCK / 64];
    uint16_t free_slots, free_bases, failures;
} block;

typedef struct packing {
    int64_t *begin;      /* of each node's edges in `order` */
    sl_trie_edge *order; /* by node, then by byte: keys grow */
    uint32_t *queue;     /* nodes breadth first: what is close to the root stands close together */
    uint32_t *slot;      /* of each node */
    block *blocks;
    uint32_t n_blocks, block_capacity, open; /* those before `open` are closed */
} packing;

static int by_key(const void *a, const void *b)
{
    uint32_t left = ((const sl_trie_edge *) a)->key, right = ((const sl_trie_edge *) b)->key;
    return left < right ? -1 : left > right;
}

static sl_status sort_edges(const sl_trie *trie, packing *p)
{
    SL_TRY(sl_alloc(&p->begin, (size_t) trie->nodes + 2, sizeof *p->begin));
    SL_TRY(sl_alloc(&p->order, trie->used + 1, sizeof *p->order));
    SL_TRY(sl_alloc(&p->queue, trie->nodes, sizeof *p->queue));
    SL_TRY(sl_alloc(&p->slot, trie->nodes, sizeof *p->slot));
    for (uint64_t i = 0; i < trie->n_slots; i++)
        if (trie->edges[i].key)
            p->begin[((trie->edges[i].key - 1) >> 8) + 1]++;
    for (uint32_t node = 0; node < trie->nodes; node++)
        p->begin[node + 1] += p->begin[node];
    for (uint64_t i = 0; i < trie->n_slots; i++)
        if (trie->edges[i].key)
            p->order[p->begin[(trie->edges[i].key - 1) >> 8]++] = trie->edges[i];
    for (uint32_t node = trie->nodes; node > 0; node--) /* where each begins again */
        p->begin[node] = p->begin[node - 1];
    p->begin[0] = 0;
    for (uint32_t node = 0; node < trie->nodes; node++)
        qsort(p->order + p->begin[node], (size_t) (p->begin[node + 1] - p->begin[node]), sizeof *p->order, by_key);
    return SL_OK;
}

static bool has(const uint64_t *set, unsigned i)
{
    return set[i >> 6] >> (i & 63) & 1;
}

static void put(uint64_t *set, unsigned i)
{
    set[i >> 6] |= (uint64_t) 1 << (i & 63);
}

/* A base in the block under which all children have free slots, -1 for none. */
static int base_in(const block *b, const sl_trie_edge *children, int64_t count)
{
    if (b->free_slots < count || b->free_bases <= 1) /* one base stays free, for the labels of free slots */
        return -1;
    for (unsigned word = 0; word < BLOCK / 64; word++) {
        for (uint64_t left = ~b->slots[word]; left; left &= left - 1) {
            unsigned base = (word * 64 + (unsigned) __builtin_ctzll(left)) ^ (uint8_t) (children[0].key - 1);
            int64_t i = 1;
            if (has(b->bases, base))
                continue;
            while (i < count && !has(b->slots, base ^ (uint8_t) (children[i].key - 1)))
                i++;
            if (i == count)
                return (int) base;
        }
    }
    return -1;
}

static sl_status new_block(sl_trie *trie, packing *p)
{
    if (p->n_blocks == MOST_BLOCKS)
        return sl_fail(SL_E_FORMAT, "the tokens have %u different beginnings: too many for one vocabulary",
                       trie->nodes);
    if (p->n_blocks == p->block_capacity) {
        uint32_t capacity = p->block_capacity * 2 + 16;
        SL_TRY(sl_grow(&p->blocks, p->block_capacity, capacity, sizeof *p->blocks));
        SL_TRY(
            sl_grow(&trie->units, (size_t) p->block_capacity * BLOCK, (size_t) capacity * BLOCK, sizeof *trie->units));
        p->block_capacity = capacity;
    }
    p->blocks[p->n_blocks++] = (block){.free_slots = BLOCK, .free_bases = BLOCK};
    return SL_OK;
}

/* Takes slots for a node's children. */
static sl_status place(sl_trie *trie, packing *p, const sl_trie_edge *children, int64_t count, uint32_t *base)
{
    int found = -1;
    uint32_t i;
    if (p->n_blocks - p->open > OPEN_BLOCKS)
        p->open = p->n_blocks - OPEN_BLOCKS;
    for (i = p->open; i < p->n_blocks; i++) {
        block *b = &p->blocks[i];
        if (b->failures == MOST_FAILURES)
            continue;
        if ((found = base_in(b, children, count)) >= 0)
            break;
        b->failures += b->free_slots >= count;
    }
    if (found < 0) {
        SL_TRY(new_block(trie, p));
        if (i == 0) /* base 0 is that of nodes without children */
            put(p->blocks[0].bases, 0), p->blocks[0].free_bases--;
        found = base_in(&p->blocks[i], children, count);
    }
    block *b = &p->blocks[i];
    put(b->bases, (unsigned) found);
    b->free_bases--;
    b->free_slots = (uint16_t) (b->free_slots - count);
    for (int64_t c = 0; c < count; c++)
        put(b->slots, (unsigned) found ^ (uint8_t) (children[c].key - 1));
    *base = i * BLOCK + (uint32_t) found;
    return SL_OK;
}

static sl_status place_children(sl_trie *trie, packing *p, uint32_t node, const uint8_t *flags, uint32_t *queued)
{
    const sl_trie_edge *children = p->order + p->begin[node];
    int64_t count = p->begin[node + 1] - p->begin[node];
    uint32_t base;
    if (!count)
        return SL_OK;
    SL_TRY(place(trie, p, children, count, &base));
    if (node)
        trie->units[p->slot[node]] |= base << SL_TRIE_BASE;
    else
        trie->root = base;
    for (int64_t i = 0; i < count; i++) {
        uint32_t child = children[i].child;
        uint8_t label = (uint8_t) (children[i].key - 1);
        int32_t token = trie->token[child];
        p->slot[child] = base ^ label;
        p->queue[(*queued)++] = child;
        bool counts = token >= 0 && (!flags || (flags[token] & 1));
        trie->units[base ^ label] = label | (counts ? SL_TRIE_ENDS : 0);
    }
    return SL_OK;
}

/* Free slots lead nowhere. */
static void fill_free(sl_trie *trie, const packing *p)
{
    for (uint32_t i = 0; i < p->n_blocks; i++) {
        const block *b = &p->blocks[i];
        unsigned unused = 0;
        while (has(b->bases, unused))
            unused++;
        for (unsigned slot = 0; slot < BLOCK; slot++)
            if (!has(b->slots, slot))
                trie->units[i * BLOCK + slot] = slot ^ unused;
    }
}

sl_status sl_trie_pack(sl_trie *trie, const uint8_t *flags)
{
    packing p = {.begin = NULL};
    sl_status status;
    uint32_t queued = 1;
    if (!trie->nodes)
        return SL_OK;
    SL_TRY_GOTO(sort_edges(trie, &p), done);
    for (uint32_t i = 0; i < queued; i++)
        SL_TRY_GOTO(place_children(trie, &p, p.queue[i], flags, &queued), done);
    if (!p.n_blocks)
        goto done; /* only the empty word */
    fill_free(trie, &p);
    SL_TRY_GOTO(sl_alloc(&trie->tokens, (size_t) p.n_blocks * BLOCK, sizeof *trie->tokens), done);
    for (uint32_t node = 1; node < trie->nodes; node++)
        trie->tokens[p.slot[node]] = trie->token[node];
    sl_free(trie->edges);
    sl_free(trie->token);
    trie->edges = NULL, trie->token = NULL;
    trie->n_slots = 0;
done:
    sl_free(p.begin);
    sl_free(p.order);
    sl_free(p.queue);
    sl_free(p.slot);
    sl_free(p.blocks);
    return status;
}

int32_t sl_trie_find(const sl_trie *trie, const char *text, size_t length)
{
    const char *end = text + length;
    sl_trie_match match = sl_trie_walk(trie, text, end);
    return length && match.reached == end ? trie->tokens[match.last] : -1;
}

void sl_trie_free(sl_trie *trie)
{
    sl_free(trie->edges);
    sl_free(trie->token);
    sl_free(trie->units);
    sl_free(trie->tokens);
    *trie = (sl_trie){.edges = NULL};
}
