/*
 * p_i = exp((x_i - max) / temperature) / sum, in double. Then, as Hugging Face orders them: the `top_k` largest, and of these the fewest
 * of the most likely that make up `top_p`. Equal logits are ordered by their ids, lowest first, so every choice is unique.
 *
 * A vocabulary has 10^5 words, and few of them are ever candidates. So only those are sorted that can be: with top_k those of a heap, with
 * top_p those of at least (1 - top_p) / words of the mass. What is below that makes up less than 1 - top_p in all.
 */
#include "text/sampler.h"

#include <math.h>
#include <stdlib.h>

#include "core/mem.h"
#include "core/rng.h"

typedef struct candidate {
    double p; /* not normalized: exp of the distance from the largest */
    int32_t id;
} candidate;

struct sl_sampler {
    sl_sampling sampling;
    int64_t words;
    candidate *list;
};

sl_status sl_sampling_check(const sl_sampling *s)
{
    if (!(s->temperature >= 0 && s->temperature <= 100))
        return sl_fail(SL_E_USAGE, "--temperature %g is out of range: give a number from 0 (greedy) to 100",
                       s->temperature);
    if (s->top_k < 0)
        return sl_fail(SL_E_USAGE, "--top-k %lld is negative: give 1 or more, or 0 for all", (long long) s->top_k);
    if (!(s->top_p > 0 && s->top_p <= 1))
        return sl_fail(SL_E_USAGE, "--top-p %g is out of range: give a share above 0 and at most 1", s->top_p);
    return SL_OK;
}

sl_status sl_sampler_create(const sl_sampling *sampling, int64_t words, sl_sampler **out)
{
    sl_sampler *sampler;
    SL_TRY(sl_sampling_check(sampling));
    SL_TRY(sl_alloc(&sampler, 1, sizeof *sampler));
    sampler->sampling = *sampling;
    sampler->words = words;
    sl_status status = sl_alloc(&sampler->list, words, sizeof *sampler->list);
    if (status != SL_OK) {
        sl_sampler_destroy(sampler);
        return status;
    }
    *out = sampler;
    return SL_OK;
}

void sl_sampler_destroy(sl_sampler *sampler)
{
    if (!sampler)
        return;
    sl_free(sampler->list);
    sl_free(sampler);
}

/* The most likely first. */
static bool is_before(const candidate *a, const candidate *b)
{
    return a->p != b->p ? a->p > b->p : a->id < b->id;
}

static int in_order(const void *a, const void *b)
{
    return is_before(a, b) ? -1 : is_before(b, a) ? 1 : 0;
}

/* Puts `fresh` at or below place `at` of a heap of `count` whose root is the last in order. */
static void sink(candidate *heap, int64_t count, int64_t at, candidate fresh)
{
    for (int64_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && is_before(&heap[child], &heap[child + 1]))
            child++;
        if (!is_before(&fresh, &heap[child]))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = fresh;
}

/* The first `k` of the list in order, sorted, at its beginning. */
static int64_t keep_largest(candidate *list, int64_t count, int64_t k)
{
    if (k < count) {
        for (int64_t i = k / 2 - 1; i >= 0; i--)
            sink(list, k, i, list[i]);
        for (int64_t i = k; i < count; i++)
            if (is_before(&list[i], &list[0]))
                sink(list, k, 0, list[i]);
    }
    qsort(list, (size_t) k, sizeof *list, in_order);
    return k;
}

static double sum_of(const candidate *list, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += list[i].p;
    return sum;
}

/* Drops what cannot be among the most likely that make up `top_p`, keeping the order of ids. */
static int64_t drop_unlikely(candidate *list, int64_t count, double top_p)
{
    const double least = sum_of(list, count) * (1 - top_p) / (double) count;
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++)
        if (list[i].p >= least)
            list[kept++] = list[i];
    return kept;
}

/* The fewest of a sorted list that make up `share` of `total`: at least one. */
static int64_t nucleus(const candidate *list, int64_t count, double share, double total)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += list[i].p;
        if (sum >= share * total)
            return i + 1;
    }
    return count;
}

static int64_t select_candidates(sl_sampler *sampler)
{
    const sl_sampling *s = &sampler->sampling;
    candidate *list = sampler->list;
    int64_t count = sampler->words;
    if (s->top_k > 0)
        count = keep_largest(list, count, SL_MIN(s->top_k, count));
    if (s->top_p >= 1)
        return count;
    const double total = sum_of(list, count);
    if (s->top_k == 0) {
        count = drop_unlikely(list, count, s->top_p);
        qsort(list, (size_t) count, sizeof *list, in_order);
    }
    return nucleus(list, count, s->top_p, total);
}

/* [0, 1) with 53 bits. */
static double draw(uint64_t seed, int64_t index)
{
    const uint64_t stream = 0x73616d706c65; /* unlike those of weights, dropout and rounding */
    const sl_rng4 r = sl_philox(seed, (uint64_t) index, stream);
    return (double) (((uint64_t) r.v[0] << 32 | r.v[1]) >> 11) * 0x1p-53;
}

static sl_status largest_logit(const float *logits, int64_t words, int64_t *at)
{
    *at = 0;
    for (int64_t i = 0; i < words; i++) {
        if (isnan(logits[i]))
            return sl_fail(SL_E_NOT_FINITE,
                           "the logit of token %lld is NaN: the weights, or the precision, do not suit", (long long) i);
        if (logits[i] > logits[*at])
            *at = i;
    }
    return isfinite(logits[*at]) ? SL_OK
                                 : sl_fail(SL_E_NOT_FINITE,
                                           "the largest logit is %g: the weights, or the precision, do "
                                           "not suit",
                                           (double) logits[*at]);
}

sl_status sl_sampler_next(sl_sampler *sampler, const float *logits, int64_t index, int32_t *token)
{
    const sl_sampling *s = &sampler->sampling;
    int64_t largest;
    SL_TRY(largest_logit(logits, sampler->words, &largest));
    *token = (int32_t) largest;
    if (s->temperature == 0 || s->top_k == 1)
        return SL_OK;
    for (int64_t i = 0; i < sampler->words; i++) {
        const double distance = (double) logits[i] - (double) logits[largest];
        sampler->list[i] = (candidate){exp(distance / s->temperature), (int32_t) i};
    }
    const int64_t count = select_candidates(sampler);
    double left = draw(s->seed, index) * sum_of(sampler->list, count);
    int64_t chosen = 0;
    while (chosen + 1 < count && left >= sampler->list[chosen].p)
        left -= sampler->list[chosen++].p;
    *token = sampler->list[chosen].id;
    return SL_OK;
}
