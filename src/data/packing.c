/*
 * Sequences that are being filled hang in lists by the positions that they have left; a bitmap says which lists are not empty. The best
 * one for a span is the first list at or above it:
 *
 *     left      0    1    2    3    4 ...  seqlen
 *     bitmap    1    0    1    0    1 ...
 *     list      s3        s7        s1 -> s5
 */
#include "data/packing.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

enum { WINDOW = 65536, WORD = 64 };

typedef struct packer {
    sl_packing *out;
    int64_t seqlen, n_words;
    uint64_t *bitmap;
    int32_t *head;               /* by positions left: a sequence of the window, -1: none */
    int32_t *next, *left, *fill; /* by sequence */
    int32_t *sequence;           /* by document of the window */
    sl_packed_document *sorted;
} packer;

/* Longest first; equal ones in the data's order, which is that of `start`. */
static int by_span(const void *a, const void *b)
{
    const sl_packed_document *x = a, *y = b;
    if (x->span != y->span)
        return x->span < y->span ? 1 : -1;
    return x->start < y->start ? -1 : x->start > y->start;
}

static void push(packer *p, int32_t s)
{
    int32_t left = p->left[s];
    p->next[s] = p->head[left];
    p->head[left] = s;
    p->bitmap[left / WORD] |= UINT64_C(1) << left % WORD;
}

static int32_t pop(packer *p, int32_t left)
{
    int32_t s = p->head[left];
    p->head[left] = p->next[s];
    if (p->head[left] < 0)
        p->bitmap[left / WORD] &= ~(UINT64_C(1) << left % WORD);
    return s;
}

/* The sequence with the fewest positions left that are enough, -1: none. */
static int32_t best_for(packer *p, int32_t span)
{
    int64_t w = span / WORD;
    uint64_t bits = p->bitmap[w] & ~UINT64_C(0) << span % WORD;
    while (!bits && ++w < p->n_words)
        bits = p->bitmap[w];
    return bits ? pop(p, (int32_t) (w * WORD + __builtin_ctzll(bits))) : -1;
}

static sl_status grow_sequences(sl_packing *out, int64_t more)
{
    int64_t needed = out->n_sequences + more + 1;
    if (needed <= out->capacity)
        return SL_OK;
    int64_t capacity = SL_MAX(needed, 2 * out->capacity);
    SL_TRY(sl_grow(&out->first, out->capacity, capacity, sizeof *out->first));
    out->capacity = capacity;
    return SL_OK;
}

/* Documents of one sequence come to stand together: a counting sort by sequence. */
static sl_status emit(packer *p, sl_packed_document *documents, int64_t count, int64_t begin, int32_t sequences)
{
    sl_packing *out = p->out;
    SL_TRY(grow_sequences(out, sequences));
    int64_t at = 0;
    for (int32_t s = 0; s < sequences; s++) {
        int32_t n = p->fill[s];
        out->first[out->n_sequences++] = begin + at;
        out->most = SL_MAX(out->most, n);
        p->fill[s] = (int32_t) at;
        at += n;
    }
    memcpy(p->sorted, documents, (size_t) count * sizeof *documents);
    for (int64_t i = 0; i < count; i++)
        documents[p->fill[p->sequence[i]]++] = p->sorted[i];
    out->first[out->n_sequences] = begin + count;
    return SL_OK;
}

static sl_status pack_window(packer *p, sl_packed_document *documents, int64_t count, int64_t begin)
{
    int32_t sequences = 0;
    qsort(documents, (size_t) count, sizeof *documents, by_span);
    memset(p->bitmap, 0, (size_t) p->n_words * sizeof *p->bitmap);
    for (int64_t i = 0; i <= p->seqlen; i++)
        p->head[i] = -1;
    for (int64_t i = 0; i < count; i++) {
        int32_t s = best_for(p, documents[i].span);
        if (s < 0) {
            s = sequences++;
            p->left[s] = (int32_t) p->seqlen;
            p->fill[s] = 0;
        }
        p->left[s] -= documents[i].span;
        p->fill[s]++;
        p->sequence[i] = s;
        if (p->left[s] > 0)
            push(p, s);
    }
    return emit(p, documents, count, begin, sequences);
}

static sl_status allocate(packer *p, int64_t window)
{
    SL_TRY(sl_alloc(&p->bitmap, p->n_words, sizeof *p->bitmap));
    SL_TRY(sl_alloc(&p->head, p->seqlen + 1, sizeof *p->head));
    SL_TRY(sl_alloc(&p->next, window, sizeof *p->next));
    SL_TRY(sl_alloc(&p->left, window, sizeof *p->left));
    SL_TRY(sl_alloc(&p->fill, window, sizeof *p->fill));
    SL_TRY(sl_alloc(&p->sequence, window, sizeof *p->sequence));
    return sl_alloc(&p->sorted, window, sizeof *p->sorted);
}

sl_status sl_packing_create(sl_packed_document *documents, int64_t count, int64_t seqlen, sl_packing *out)
{
    *out = (sl_packing){.n_documents = count};
    packer p = {.out = out, .seqlen = seqlen, .n_words = seqlen / WORD + 1};
    sl_status status = allocate(&p, SL_MIN(SL_MAX(count, 1), (int64_t) WINDOW));
    if (status == SL_OK)
        status = grow_sequences(out, 0);
    for (int64_t begin = 0; status == SL_OK && begin < count; begin += WINDOW)
        status = pack_window(&p, documents + begin, SL_MIN(count - begin, (int64_t) WINDOW), begin);
    sl_free(p.bitmap);
    sl_free(p.head);
    sl_free(p.next);
    sl_free(p.left);
    sl_free(p.fill);
    sl_free(p.sequence);
    sl_free(p.sorted);
    if (status == SL_OK)
        out->documents = documents;
    else
        sl_packing_free(out);
    return status;
}

void sl_packing_free(sl_packing *packing)
{
    sl_free(packing->documents);
    sl_free(packing->first);
    *packing = (sl_packing){0};
}
