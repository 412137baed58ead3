/* A trie over bytes: added to by a hash table of edges, searched in packed form (text/bpe.h). */
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
        if (trie->used * 2 >= trie->n_slots)
            SL_TRY(grow_edges(trie));
        put_edge(trie, (sl_trie_edge){(node << 8 | byte) + 1, child});
    }
    trie->token[node] = token;
    return SL_OK;
}

/* ---- packing ---- */

typedef struct packing {
    int64_t *begin;      /* of each node's edges in `order` */
    sl_trie_edge *order; /* by node, then by byte: keys grow */
    uint32_t *old;       /* the number of each packed node before */
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
    SL_TRY(sl_alloc(&p->old, (size_t) trie->nodes + 1, sizeof *p->old));
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

/* Numbers nodes breadth first: those of a node's children follow each other. */
static void lay_out(sl_trie *trie, const packing *p, const uint8_t *flags)
{
    uint32_t next = 1;
    for (uint32_t node = 0; node < trie->nodes; node++) {
        uint32_t was = p->old[node];
        int32_t token = trie->token[was];
        sl_trie_node *n = &trie->packed[node];
        *n = (sl_trie_node){next, token};
        trie->whole[node] = token;
        if (token >= 0 && flags && !(flags[token] & 1))
            n->token = -1;
        for (int64_t i = p->begin[was]; i < p->begin[was + 1]; i++, next++) {
            p->old[next] = p->order[i].child;
            trie->labels[next] = (uint8_t) (p->order[i].key - 1);
        }
    }
    trie->packed[trie->nodes].first = next;
}

static inline uint32_t step(const sl_trie *trie, uint32_t node, unsigned char byte)
{
    const sl_trie_node *n = &trie->packed[node];
    const uint8_t *labels = trie->labels + n->first;
    uint32_t children = n[1].first - n->first;
    if (children > 16) {
        const uint8_t *found = memchr(labels, byte, children);
        return found ? n->first + (uint32_t) (found - labels) : 0;
    }
    for (uint32_t i = 0; i < children; i++)
        if (labels[i] == byte)
            return n->first + i;
    return 0;
}

sl_status sl_trie_pack(sl_trie *trie, const uint8_t *flags)
{
    packing p = {.begin = NULL};
    sl_status status;
    if (!trie->nodes)
        return SL_OK;
    SL_TRY_GOTO(sort_edges(trie, &p), done);
    SL_TRY_GOTO(sl_alloc(&trie->packed, (size_t) trie->nodes + 1, sizeof *trie->packed), done);
    SL_TRY_GOTO(sl_alloc(&trie->whole, trie->nodes, sizeof *trie->whole), done);
    SL_TRY_GOTO(sl_alloc(&trie->labels, (size_t) trie->nodes + 1, 1), done);
    SL_TRY_GOTO(sl_alloc(&trie->pairs, 65536, sizeof *trie->pairs), done);
    lay_out(trie, &p, flags);
    for (unsigned a = 0; a < 256; a++) {
        trie->one[a] = step(trie, 0, (unsigned char) a);
        for (unsigned b = 0; b < 256 && trie->one[a]; b++)
            trie->pairs[a << 8 | b] = step(trie, trie->one[a], (unsigned char) b);
    }
    sl_free(trie->edges);
    sl_free(trie->token);
    trie->edges = NULL, trie->token = NULL;
    trie->n_slots = 0;
done:
    sl_free(p.begin);
    sl_free(p.order);
    sl_free(p.old);
    return status;
}

int32_t sl_trie_longest(const sl_trie *trie, const char *at, const char *end, const char **stop)
{
    if (!trie->packed || at == end)
        return -1;
    const unsigned char *p = (const unsigned char *) at;
    uint32_t node = trie->one[p[0]];
    int32_t found = -1;
    if (!node)
        return -1;
    if (trie->packed[node].token >= 0)
        found = trie->packed[node].token, *stop = at + 1;
    if (end - at < 2)
        return found;
    node = trie->pairs[(unsigned) p[0] << 8 | p[1]];
    for (at += 2; node; at++) {
        if (trie->packed[node].token >= 0)
            found = trie->packed[node].token, *stop = at;
        if (at == end)
            break;
        node = step(trie, node, (unsigned char) *at);
    }
    return found;
}

int32_t sl_trie_find(const sl_trie *trie, const char *text, size_t length)
{
    uint32_t node = 0;
    for (size_t i = 0; i < length; i++)
        if (!trie->packed || (node = step(trie, node, (unsigned char) text[i])) == 0)
            return -1;
    return node ? trie->whole[node] : -1;
}

void sl_trie_free(sl_trie *trie)
{
    sl_free(trie->edges);
    sl_free(trie->token);
    sl_free(trie->packed);
    sl_free(trie->whole);
    sl_free(trie->labels);
    sl_free(trie->pairs);
    *trie = (sl_trie){.edges = NULL};
}
