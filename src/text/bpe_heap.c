/* The rule of byte-pair encoding to the letter: symbols in a linked list, mergeable pairs in a heap by rank and place. An entry whose
 * symbols have changed since is dropped when it comes up. */
#include "text/bpe.h"

typedef struct sl_heap_item {
    uint32_t rank;
    int32_t id; /* what the two become */
    int64_t at; /* the left one */
    int32_t left, right;
} sl_heap_item;

typedef struct sl_link {
    int64_t before, behind; /* -1: none */
} sl_link;

static bool comes_first(const sl_heap_item *a, const sl_heap_item *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static sl_status push(sl_bpe_scratch *s, sl_heap_item item)
{
    if (s->heap_count == s->heap_capacity) {
        int64_t capacity = s->heap_capacity * 2 + 64;
        SL_TRY(sl_grow(&s->heap, s->heap_capacity, capacity, sizeof *s->heap));
        s->heap_capacity = capacity;
    }
    int64_t i = s->heap_count++;
    for (; i > 0 && comes_first(&item, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = item;
    return SL_OK;
}

static sl_heap_item pop(sl_bpe_scratch *s)
{
    sl_heap_item top = s->heap[0], last = s->heap[--s->heap_count];
    int64_t i = 0;
    for (int64_t child; (child = 2 * i + 1) < s->heap_count; i = child) {
        if (child + 1 < s->heap_count && comes_first(&s->heap[child + 1], &s->heap[child]))
            child++;
        if (!comes_first(&s->heap[child], &last))
            break;
        s->heap[i] = s->heap[child];
    }
    s->heap[i] = last;
    return top;
}

static sl_status consider(const sl_bpe *bpe, sl_bpe_scratch *s, const int32_t *symbols, int64_t at)
{
    if (at < 0 || s->links[at].behind < 0)
        return SL_OK;
    sl_heap_item item = {.at = at, .left = symbols[at], .right = symbols[s->links[at].behind]};
    if (!sl_bpe_find_merge(bpe, item.left, item.right, &item.rank, &item.id) ||
        (s->banned && item.left == s->ban_left && item.right == s->ban_right))
        return SL_OK;
    return push(s, item);
}

sl_status sl_bpe_merge(const sl_bpe *bpe, sl_bpe_scratch *s, int32_t *symbols, int64_t *count)
{
    int64_t n = *count, kept = 0;
    if (n > s->link_capacity) {
        SL_TRY(sl_grow(&s->links, s->link_capacity, n, sizeof *s->links));
        s->link_capacity = n;
    }
    s->heap_count = 0;
    for (int64_t i = 0; i < n; i++)
        s->links[i] = (sl_link){i - 1, i + 1 < n ? i + 1 : -1};
    for (int64_t i = 0; i + 1 < n; i++)
        SL_TRY(consider(bpe, s, symbols, i));
    while (s->heap_count) {
        sl_heap_item item = pop(s);
        int64_t right = s->links[item.at].behind;
        if (right < 0 || symbols[item.at] != item.left || symbols[right] != item.right)
            continue;
        symbols[item.at] = item.id;
        symbols[right] = -1;
        s->links[item.at].behind = s->links[right].behind;
        if (s->links[right].behind >= 0)
            s->links[s->links[right].behind].before = item.at;
        SL_TRY(consider(bpe, s, symbols, s->links[item.at].before));
        SL_TRY(consider(bpe, s, symbols, item.at));
    }
    for (int64_t i = 0; i < n; i++)
        if (symbols[i] >= 0)
            symbols[kept++] = symbols[i];
    *count = kept;
    return SL_OK;
}

void sl_bpe_scratch_free(sl_bpe_scratch *scratch)
{
    sl_free(scratch->heap);
    sl_free(scratch->links);
    sl_tokens_free(&scratch->symbols);
    sl_tokens_free(&scratch->stack);
    sl_free(scratch->dead);
    sl_free(scratch->guessed);
    sl_free(scratch->memo);
    sl_free(scratch->known);
    *scratch = (sl_bpe_scratch){.heap = NULL};
}
