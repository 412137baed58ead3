/*
 *     tokens    | a0 a1 a2 a3 | b0 b1 | c0 c1 c2 | 0 0 |     a and c have a last token more, which is only a target
 *     targets   | -  -  a3 a4 | b1 b2 | -  c2 c3 | - - |     -: not counted
 *     positions | 0  1  2  3  | 0  1  | 0  1  2  | 0 1 |
 */
#include "data/packed.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/file.h"
#include "core/hash.h"
#include "data/internal.h"
#include "data/packing.h"
#include "data/permute.h"
#include "graph/graph.h"

enum { READ_DOCUMENTS = 4096 };

/* The documents of one corpus. */
typedef struct side {
    sl_corpus *corpus;
    sl_reader *counted; /* NULL: all tokens are */
    sl_packing packing;
    sl_packing_counts counts;
} side;

typedef struct packed {
    sl_source source;
    sl_loader_config config;
    side train, validation; /* of the second, nothing where a share of the first is held out */
    int64_t val_first;
    int32_t *tokens, *targets, *positions, *bounds; /* of the sequence that is held; n_bounds of the last */
    int32_t *document;                              /* seqlen + 1 tokens */
    unsigned char *marks;                           /* as many, counted or not */
    int64_t n_bounds, held;
    sl_split held_split;
} packed;

bool sl_packed_wanted(const sl_corpus *corpus)
{
    const sl_token_cache *cache = sl_corpus_contents_of(corpus)->cache;
    return cache && (cache->counted < cache->tokens || cache->records.kinds[SL_RECORD_COMPLETION] ||
                     cache->records.kinds[SL_RECORD_CHAT]);
}

/* ---- opening ---- */

static sl_status read_marks(const side *s, int64_t first, int64_t count, unsigned char *marks)
{
    if (s->counted)
        return sl_reader_read(s->counted, first, marks, (size_t) count);
    memset(marks, 1, (size_t) count);
    return SL_OK;
}

/* A document that is too long loses its end. Is a target left that counts? */
static sl_status add_document(packed *p, side *s, sl_packed_document *list, int64_t *n, int64_t start, int64_t tokens)
{
    int64_t seqlen = p->config.seqlen, span = SL_MIN(tokens - 1, seqlen);
    bool keep = span > 0;
    if (tokens - 1 > seqlen) {
        SL_TRY(read_marks(s, start + 1, span, p->marks));
        keep = memchr(p->marks, 1, (size_t) span) != NULL;
        s->counts.cropped += keep;
        s->counts.cropped_tokens += keep ? tokens - 1 - span : 0;
    }
    s->counts.dropped += !keep;
    if (keep)
        list[(*n)++] = (sl_packed_document){start, (int32_t) span};
    return SL_OK;
}

static sl_status read_documents(packed *p, side *s, sl_reader *lengths, sl_packed_document *list, int64_t *n)
{
    unsigned char bytes[READ_DOCUMENTS * 8];
    int64_t count = sl_corpus_contents_of(s->corpus)->cache->documents, start = 0;
    int64_t all = sl_corpus_tokens(s->corpus);
    for (int64_t i = 0; i < count; i += READ_DOCUMENTS) {
        int64_t some = SL_MIN(count - i, (int64_t) READ_DOCUMENTS);
        SL_TRY(sl_reader_read(lengths, 8 * i, bytes, (size_t) (8 * some)));
        for (int64_t k = 0; k < some; k++) {
            uint64_t tokens = 0;
            for (int b = 7; b >= 0; b--)
                tokens = tokens << 8 | bytes[8 * k + b];
            if (tokens == 0 || tokens > (uint64_t) (all - start))
                return sl_fail(SL_E_FORMAT, "%s is damaged: remove it",
                               sl_corpus_contents_of(s->corpus)->cache->folder);
            SL_TRY(add_document(p, s, list, n, start, (int64_t) tokens));
            start += (int64_t) tokens;
        }
    }
    return SL_OK;
}

static sl_status pack(packed *p, side *s, sl_reader *lengths)
{
    const sl_token_cache *cache = sl_corpus_contents_of(s->corpus)->cache;
    sl_packed_document *list;
    sl_status status;
    int64_t n = 0, used = 0;
    SL_TRY(sl_alloc(&list, SL_MAX(cache->documents, 1), sizeof *list));
    SL_TRY_GOTO(read_documents(p, s, lengths, list, &n), fail);
    for (int64_t i = 0; i < n; i++)
        used += list[i].span;
    SL_TRY_GOTO(sl_packing_create(list, n, p->config.seqlen, &s->packing), fail);
    s->counts.documents = n;
    s->counts.sequences = s->packing.n_sequences;
    s->counts.padding = s->packing.n_sequences * p->config.seqlen - used;
    sl_corpus_set_packing(s->corpus, &s->counts);
    return SL_OK;
fail:
    sl_free(list);
    return status;
}

/* Its files beside the tokens. */
static sl_status open_side(packed *p, side *s)
{
    char path[1200];
    const sl_token_cache *cache = sl_corpus_contents_of(s->corpus)->cache;
    sl_reader *lengths;
    if (!cache)
        return sl_fail(SL_E_USAGE,
                       "%s holds tokens, but the training data is chats or completions: validate on such "
                       "records",
                       p->config.val_data);
    if (cache->counted < cache->tokens) {
        snprintf(path, sizeof path, "%s/counted", cache->folder);
        SL_TRY(sl_reader_open(path, &s->counted));
    }
    snprintf(path, sizeof path, "%s/documents", cache->folder);
    SL_TRY(sl_reader_open(path, &lengths));
    sl_status status = pack(p, s, lengths);
    sl_reader_close(lengths);
    SL_TRY(status);
    if (s->packing.n_sequences)
        return SL_OK;
    return sl_fail(SL_E_USAGE,
                   "none of the %" PRId64 " documents has a target that counts within --seqlen %" PRId64
                   ": use a larger --seqlen",
                   cache->documents, p->config.seqlen);
}

static sl_status open_splits(packed *p)
{
    const sl_loader_config *c = &p->config;
    int64_t *sequences = p->source.sequences;
    SL_TRY(open_side(p, &p->train));
    int64_t all = p->train.packing.n_sequences;
    sequences[SL_SPLIT_TRAIN] = all;
    if (c->val_data) {
        SL_TRY(sl_loader_open_corpus(c, c->val_data, &p->validation.corpus));
        SL_TRY(open_side(p, &p->validation));
        sequences[SL_SPLIT_VALIDATION] = p->validation.packing.n_sequences;
    } else if (c->val_share > 0) {
        int64_t held_out = SL_MAX((int64_t) ((double) all * c->val_share), 1);
        if (held_out >= all)
            return sl_fail(SL_E_USAGE,
                           "%s fills %" PRId64 " sequence%s of %" PRId64
                           " tokens: too few to hold some out, give more data or --val-data",
                           c->data, all, all == 1 ? "" : "s", c->seqlen);
        sequences[SL_SPLIT_TRAIN] = p->val_first = all - held_out;
        sequences[SL_SPLIT_VALIDATION] = held_out;
    }
    return SL_OK;
}

static const side *side_of(const packed *p, sl_split split)
{
    return split == SL_SPLIT_VALIDATION && p->validation.corpus ? &p->validation : &p->train;
}

static size_t side_bytes(const side *s)
{
    return s->corpus ? sl_corpus_bytes(s->corpus) + (size_t) s->packing.n_documents * sizeof *s->packing.documents +
                           (size_t) s->packing.capacity * sizeof *s->packing.first
                     : 0;
}

static void describe(packed *p)
{
    sl_source *source = &p->source;
    int64_t parts[] = {(int64_t) sl_corpus_fingerprint(p->train.corpus), source->sequences[SL_SPLIT_TRAIN],
                       p->config.seqlen, (int64_t) p->config.seed};
    source->kinds = 1u << SL_INPUT_TOKENS | 1u << SL_INPUT_TARGETS | 1u << SL_INPUT_POSITIONS | 1u << SL_INPUT_SEGMENTS;
    snprintf(source->identity, sizeof source->identity, "packed %016" PRIx64, sl_hash64(parts, sizeof parts, 0));
    snprintf(source->sample, sizeof source->sample, "%016" PRIx64, sl_corpus_sample(p->train.corpus));
    source->bytes = side_bytes(&p->train) + side_bytes(&p->validation);
    source->contents[SL_SPLIT_TRAIN] = sl_corpus_contents_of(p->train.corpus);
    if (p->validation.corpus)
        source->contents[SL_SPLIT_VALIDATION] = sl_corpus_contents_of(p->validation.corpus);
    for (int split = 0; split < SL_SPLIT_COUNT; split++)
        source->text_unknown[split] = sl_corpus_text_unknown(side_of(p, split)->corpus);
    source->most_segments = SL_MAX(p->train.packing.most, p->validation.packing.most) + 1; /* what is not filled */
}

static void close_side(side *s)
{
    sl_reader_close(s->counted);
    sl_packing_free(&s->packing);
    sl_corpus_close(s->corpus);
}

static void close_packed(sl_source *source)
{
    packed *p = (packed *) source;
    close_side(&p->train);
    close_side(&p->validation);
    sl_free(p->tokens);
    sl_free(p->targets);
    sl_free(p->positions);
    sl_free(p->bounds);
    sl_free(p->document);
    sl_free(p->marks);
    sl_free(p);
}

/* ---- filling ---- */

static void put_document(packed *p, int64_t at, int64_t span)
{
    p->bounds[p->n_bounds++] = (int32_t) at;
    for (int64_t i = 0; i < span; i++) {
        p->tokens[at + i] = p->document[i];
        p->targets[at + i] = p->marks[i + 1] ? p->document[i + 1] : SL_TARGET_IGNORED;
        p->positions[at + i] = (int32_t) i;
    }
}

static void put_padding(packed *p, int64_t at)
{
    if (at < p->config.seqlen)
        p->bounds[p->n_bounds++] = (int32_t) at;
    for (int64_t i = at; i < p->config.seqlen; i++) {
        p->tokens[i] = 0;
        p->targets[i] = SL_TARGET_IGNORED;
        p->positions[i] = (int32_t) (i - at);
    }
}

/* Which sequence of the side a position is. */
static int64_t index_of(const packed *p, sl_split split, int64_t position)
{
    int64_t n = p->source.sequences[split];
    SL_ASSERT(n > 0 && position >= 0);
    if (split == SL_SPLIT_VALIDATION)
        return position % n + p->val_first;
    return sl_permute(position % n, n, p->config.seed, (uint64_t) (position / n));
}

static sl_status hold(packed *p, sl_split split, int64_t position)
{
    if (p->held == position && p->held_split == split)
        return SL_OK;
    const side *s = side_of(p, split);
    int64_t index = index_of(p, split, position), at = 0;
    p->held = -1; /* a failed read leaves nothing to be found */
    p->n_bounds = 0;
    for (int64_t d = s->packing.first[index]; d < s->packing.first[index + 1]; d++) {
        const sl_packed_document *document = &s->packing.documents[d];
        SL_TRY(sl_corpus_read(s->corpus, document->start, document->span + 1, p->document));
        SL_TRY(read_marks(s, document->start, document->span + 1, p->marks));
        put_document(p, at, document->span);
        at += document->span;
    }
    put_padding(p, at);
    p->held = position;
    p->held_split = split;
    return SL_OK;
}

static void copy(const sl_batch_input *input, int64_t s, const sl_batch *batch, const int32_t *from)
{
    if (input->data)
        memcpy((int32_t *) input->data + s * batch->tokens_each, from + batch->slice_offset,
               (size_t) batch->tokens_each * sizeof *from);
}

static sl_status fill(sl_source *source, sl_split split, const sl_batch *batch)
{
    packed *p = (packed *) source;
    const sl_batch_input *in = batch->input;
    int32_t *segments = in[SL_INPUT_SEGMENTS].data;
    int64_t bounds = 0, capacity = in[SL_INPUT_SEGMENTS].type.dim[0], seqlen = p->config.seqlen;
    for (int64_t s = 0; s < batch->n_sequences; s++) {
        SL_TRY(hold(p, split, batch->position + s));
        copy(&in[SL_INPUT_TOKENS], s, batch, p->tokens);
        copy(&in[SL_INPUT_TARGETS], s, batch, p->targets);
        copy(&in[SL_INPUT_POSITIONS], s, batch, p->positions);
        SL_ASSERT(!segments || bounds + p->n_bounds < capacity);
        for (int64_t b = 0; segments && b < p->n_bounds; b++)
            segments[bounds++] = (int32_t) (s * seqlen + p->bounds[b]);
    }
    for (; segments && bounds < capacity; bounds++)
        segments[bounds] = (int32_t) (batch->n_sequences * seqlen);
    return SL_OK;
}

/* Of a sequence's slice, document by document: target i of a document is its token i + 1. */
static sl_status sequence_bytes(const packed *p, sl_split split, int64_t position, const sl_batch *batch,
                                const int32_t *targets, int64_t *bytes)
{
    const side *s = side_of(p, split);
    int64_t index = index_of(p, split, position), at = -batch->slice_offset, some;
    for (int64_t d = s->packing.first[index]; d < s->packing.first[index + 1]; d++) {
        const sl_packed_document *document = &s->packing.documents[d];
        int64_t first = SL_MAX(at, 0), end = SL_MIN(at + document->span, batch->tokens_each);
        if (first < end) {
            SL_TRY(
                sl_corpus_text_bytes(s->corpus, document->start + 1 + first - at, end - first, targets + first, &some));
            *bytes += some;
        }
        at += document->span;
    }
    return SL_OK;
}

static sl_status text_bytes(sl_source *source, sl_split split, const sl_batch *batch, int64_t *bytes)
{
    const int32_t *targets = batch->input[SL_INPUT_TARGETS].data;
    *bytes = 0;
    for (int64_t s = 0; s < batch->n_sequences; s++)
        SL_TRY(sequence_bytes((packed *) source, split, batch->position + s, batch, targets + s * batch->tokens_each,
                              bytes));
    return SL_OK;
}

static sl_status allocate(packed *p)
{
    int64_t seqlen = p->config.seqlen;
    SL_TRY(sl_alloc(&p->tokens, seqlen, sizeof *p->tokens));
    SL_TRY(sl_alloc(&p->targets, seqlen, sizeof *p->targets));
    SL_TRY(sl_alloc(&p->positions, seqlen, sizeof *p->positions));
    SL_TRY(sl_alloc(&p->bounds, seqlen + 1, sizeof *p->bounds));
    SL_TRY(sl_alloc(&p->document, seqlen + 1, sizeof *p->document));
    return sl_alloc(&p->marks, seqlen + 1, 1);
}

sl_status sl_packed_open(const sl_loader_config *config, sl_corpus *train, sl_source **out)
{
    static const sl_source_class class = {.fill = fill, .close = close_packed, .text_bytes = text_bytes};
    packed *p;
    sl_status status = sl_alloc(&p, 1, sizeof *p);
    if (status != SL_OK) {
        sl_corpus_close(train);
        return status;
    }
    p->source.class = &class;
    p->config = *config;
    p->train.corpus = train;
    p->held = -1;
    SL_TRY_GOTO(allocate(p), fail);
    SL_TRY_GOTO(open_splits(p), fail);
    describe(p);
    *out = &p->source;
    return SL_OK;
fail:
    close_packed(&p->source);
    return status;
}
