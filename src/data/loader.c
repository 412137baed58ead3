/*
 * One sequence is held at a time: slices of a sequence come one after the other and find it still there.
 *
 * Segments. Attention must not cross sequences, and with masked documents not documents either. A document begins at its
 * separator token, so the separator plays both parts: target of the last token before, first input of what follows.
 * A sequence with more documents than `max_documents` keeps the first ones apart and leaves the rest together.
 */
#include "data/loader.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/hash.h"
#include "core/mem.h"
#include "data/packed.h"
#include "data/permute.h"

typedef struct sl_loader {
    sl_source source;
    sl_loader_config config;
    sl_corpus *train, *validation; /* the same one when a share is held out */
    int64_t val_first;             /* sequence of `validation` that the split begins with */
    int32_t *sequence;             /* seqlen + 1 tokens */
    float *weights;                /* of its targets; NULL: all count 1 */
    int64_t held;                  /* position of `sequence`; -1: none */
    sl_split held_split;
} sl_loader;

static int64_t sequences_of(const sl_corpus *corpus, int64_t seqlen)
{
    return (sl_corpus_tokens(corpus) - 1) / seqlen;
}

static const char *name_of(const sl_loader_config *c)
{
    return c->callback.read ? "the data callback" : c->data;
}

static sl_status too_little(const char *paths, int64_t tokens, int64_t seqlen, int64_t sequences)
{
    return sl_fail(SL_E_USAGE,
                   "%s holds %" PRId64 " tokens, but %" PRId64 " sequence%s of %" PRId64 " needs %" PRId64
                   " (inputs and one more target): use a smaller --seqlen or more data",
                   paths, tokens, sequences, sequences == 1 ? "" : "s", seqlen, sequences * seqlen + 1);
}

sl_status sl_loader_open_corpus(const sl_loader_config *c, const char *paths, sl_corpus **corpus)
{
    sl_corpus_config config = {.paths = paths,
                               .leave_out = c->run,
                               .vocab = c->vocab,
                               .document_token = c->document_token,
                               .format = c->format};
    return sl_tokenized_open(&config, &c->tokenize, corpus);
}

static sl_status open_one(const sl_loader_config *c, const char *paths, sl_corpus **corpus, int64_t *sequences)
{
    if (!*corpus)
        SL_TRY(sl_loader_open_corpus(c, paths, corpus));
    *sequences = sequences_of(*corpus, c->seqlen);
    return *sequences < 1 ? too_little(paths, sl_corpus_tokens(*corpus), c->seqlen, 1) : SL_OK;
}

/* Opens the files and fixes which sequences belong to which split. */
static sl_status open_splits(sl_loader *loader)
{
    const sl_loader_config *c = &loader->config;
    int64_t *sequences = loader->source.sequences;
    sequences[SL_SPLIT_TRAIN] = c->callback.sequences;
    sequences[SL_SPLIT_VALIDATION] = c->callback.val_sequences;
    if (!c->callback.read)
        SL_TRY(open_one(c, c->data, &loader->train, &sequences[SL_SPLIT_TRAIN]));
    int64_t all = sequences[SL_SPLIT_TRAIN];
    if (c->val_data) {
        SL_TRY(open_one(c, c->val_data, &loader->validation, &sequences[SL_SPLIT_VALIDATION]));
    } else if (c->val_share > 0 && !sequences[SL_SPLIT_VALIDATION]) {
        /* The end of the stream in one piece: scattered sequences would share documents with the training data. */
        int64_t held_out = SL_MAX((int64_t) ((double) all * c->val_share), 1);
        if (held_out >= all)
            return too_little(name_of(c), loader->train ? sl_corpus_tokens(loader->train) : all * c->seqlen + 1,
                              c->seqlen, 2);
        loader->validation = loader->train;
        sequences[SL_SPLIT_TRAIN] = all - held_out;
        sequences[SL_SPLIT_VALIDATION] = held_out;
        loader->val_first = all - held_out;
    }
    return SL_OK;
}

/* Documents are kept apart by a token that the data can hold. */
static sl_status check_document_token(const sl_loader_config *c, int64_t token)
{
    if (c->max_documents == 1)
        return SL_OK;
    if (token < 0)
        return sl_fail(SL_E_USAGE,
                       "%s does not say which token begins a document: give --document-token N with --mask-documents",
                       name_of(c));
    if (token >= c->vocab)
        return sl_fail(SL_E_USAGE,
                       "token %" PRId64 " (%s) begins a document, but the vocabulary has %" PRId64
                       " tokens: give a --document-token below that, or leave out --mask-documents",
                       token, c->document_token < 0 ? "by the data's format" : "--document-token", c->vocab);
    return SL_OK;
}

static void close_loader(sl_source *source)
{
    sl_loader *loader = (sl_loader *) source;
    if (loader->validation != loader->train)
        sl_corpus_close(loader->validation);
    sl_corpus_close(loader->train);
    sl_free(loader->sequence);
    sl_free(loader->weights);
    sl_free(loader);
}

/* What others may know of it. */
static void describe(sl_loader *loader)
{
    const sl_loader_config *c = &loader->config;
    sl_source *source = &loader->source;
    source->kinds = 1u << SL_INPUT_TOKENS | 1u << SL_INPUT_TARGETS | 1u << SL_INPUT_POSITIONS | 1u << SL_INPUT_SEGMENTS;
    if (c->callback.read) {
        source->kinds |= loader->weights ? 1u << SL_INPUT_TOKEN_WEIGHTS : 0;
        int length =
            snprintf(source->identity, sizeof source->identity, "callback %s: %" PRId64 " sequences %s", c->identity,
                     source->sequences[SL_SPLIT_TRAIN], c->callback.in_order ? "in order" : "shuffled");
        if (c->max_documents > 1)
            snprintf(source->identity + length, sizeof source->identity - (size_t) length,
                     ", %" PRId64 " documents by %" PRId64, c->max_documents, c->document_token);
        for (int split = 0; split < SL_SPLIT_COUNT; split++)
            source->text_unknown[split] = "the data comes from a callback";
        return;
    }
    int64_t parts[] = {(int64_t) sl_corpus_fingerprint(loader->train),
                       source->sequences[SL_SPLIT_TRAIN],
                       c->seqlen,
                       c->max_documents,
                       c->max_documents > 1 ? c->document_token : -1,
                       (int64_t) c->seed};
    bool two = loader->validation && loader->validation != loader->train;
    snprintf(source->identity, sizeof source->identity, "%016" PRIx64, sl_hash64(parts, sizeof parts, 0));
    snprintf(source->sample, sizeof source->sample, "%016" PRIx64, sl_corpus_sample(loader->train));
    source->bytes = sl_corpus_bytes(loader->train) + (two ? sl_corpus_bytes(loader->validation) : 0);
    source->contents[SL_SPLIT_TRAIN] = sl_corpus_contents_of(loader->train);
    source->contents[SL_SPLIT_VALIDATION] = two ? sl_corpus_contents_of(loader->validation) : NULL;
    source->text_unknown[SL_SPLIT_TRAIN] = sl_corpus_text_unknown(loader->train);
    source->text_unknown[SL_SPLIT_VALIDATION] = sl_corpus_text_unknown(two ? loader->validation : loader->train);
}

/* What the callback has filled. */
static sl_status check_sequence(const sl_loader *loader, const sl_sequence *s)
{
    const char *split = s->validation ? "validation" : "training";
    for (int64_t i = 0; i <= s->seqlen; i++)
        if (s->tokens[i] < 0 || s->tokens[i] >= loader->config.vocab)
            return sl_fail(SL_E_USAGE,
                           "the data callback gave token %" PRId32 " at %" PRId64 " of %s sequence %" PRId64
                           ", but the model's vocabulary has %" PRId64,
                           s->tokens[i], i, split, s->index, loader->config.vocab);
    for (int64_t i = 0; s->weights && i < s->seqlen; i++)
        if (!(s->weights[i] >= 0) || isinf(s->weights[i]))
            return sl_fail(SL_E_USAGE,
                           "the data callback gave weight %g to target %" PRId64 " of %s sequence %" PRId64
                           ": give 0 or a positive number",
                           (double) s->weights[i], i, split, s->index);
    return SL_OK;
}

static sl_status call_back(const sl_loader *loader, sl_split split, int64_t index, int64_t epoch)
{
    const sl_data *data = &loader->config.callback;
    sl_sequence s = {.struct_size = sizeof s,
                     .index = index,
                     .validation = split == SL_SPLIT_VALIDATION && data->val_sequences > 0,
                     .epoch = split == SL_SPLIT_TRAIN ? epoch : 0,
                     .seqlen = loader->config.seqlen,
                     .tokens = loader->sequence,
                     .weights = loader->weights};
    memset(s.tokens, -1, (size_t) (s.seqlen + 1) * sizeof *s.tokens); /* what it leaves out is an error */
    for (int64_t i = 0; s.weights && i < s.seqlen; i++)
        s.weights[i] = 1;
    sl_error_set(SL_OK, "");
    sl_status status = data->read(data->user, &s);
    if (status == SL_OK)
        return check_sequence(loader, &s);
    return sl_error_message()[0]
               ? status
               : sl_fail(status, "the data callback failed at sequence %" PRId64 " and did not say why (sl_error_set)",
                         index);
}

/* Which sequence of the data a position is. */
static int64_t index_of(const sl_loader *loader, sl_split split, int64_t position)
{
    int64_t n = loader->source.sequences[split];
    SL_ASSERT(n > 0 && position >= 0);
    int64_t index = position % n;
    if (split == SL_SPLIT_VALIDATION)
        return index + loader->val_first;
    return loader->config.callback.in_order ? index
                                            : sl_permute(index, n, loader->config.seed, (uint64_t) (position / n));
}

static sl_status hold(sl_loader *loader, sl_split split, int64_t position)
{
    if (loader->held == position && loader->held_split == split)
        return SL_OK;
    int64_t index = index_of(loader, split, position), seqlen = loader->config.seqlen;
    loader->held = -1; /* a failed read leaves nothing to be found */
    sl_corpus *corpus = split == SL_SPLIT_TRAIN ? loader->train : loader->validation;
    if (loader->config.callback.read)
        SL_TRY(call_back(loader, split, index, position / loader->source.sequences[split]));
    else
        SL_TRY(sl_corpus_read(corpus, index * seqlen, seqlen + 1, loader->sequence));
    loader->held = position;
    loader->held_split = split;
    return SL_OK;
}

/* Appends the bounds of the held sequence's segments, which begins at `base`; returns the new number of bounds. */
static int64_t add_segments(const sl_loader *loader, int64_t base, int64_t bounds, int64_t capacity, int32_t *out)
{
    int64_t documents = 1;
    if (bounds < capacity)
        out[bounds++] = (int32_t) base;
    for (int64_t i = 1; i < loader->config.seqlen && documents < loader->config.max_documents; i++)
        if (loader->sequence[i] == loader->config.document_token && bounds < capacity) {
            out[bounds++] = (int32_t) (base + i);
            documents++;
        }
    return bounds;
}

/* Token i's distance from its segment's start, for the slice available. */
static void put_positions(const sl_loader *loader, int64_t offset, int64_t count, int32_t *out)
{
    int64_t documents = 1, start = 0;
    for (int64_t i = 0; i < offset + count; i++) {
        if (i && documents < loader->config.max_documents && loader->sequence[i] == loader->config.document_token) {
            start = i;
            documents++;
        }
        if (i >= offset)
            out[i - offset] = (int32_t) (i - start);
    }
}

/* The bounds of all segments of the batch (packed) or of the whole sequence (sliced), ascending; the rest repeats the end. */
static sl_status fill(sl_source *source, sl_split split, const sl_batch *batch)
{
    sl_loader *loader = (sl_loader *) source;
    int32_t *tokens = batch->input[SL_INPUT_TOKENS].data, *targets = batch->input[SL_INPUT_TARGETS].data;
    int32_t *positions = batch->input[SL_INPUT_POSITIONS].data, *segments = batch->input[SL_INPUT_SEGMENTS].data;
    float *weights = batch->input[SL_INPUT_TOKEN_WEIGHTS].data;
    int64_t each = batch->tokens_each, seqlen = loader->config.seqlen;
    int64_t bounds = 0, capacity = batch->input[SL_INPUT_SEGMENTS].type.dim[0];
    SL_ASSERT(batch->slice_offset >= 0 && batch->slice_offset + each <= seqlen);
    SL_ASSERT(each == seqlen || batch->n_sequences == 1);
    for (int64_t s = 0; s < batch->n_sequences; s++) {
        SL_TRY(hold(loader, split, batch->position + s));
        const int32_t *from = loader->sequence + batch->slice_offset;
        if (tokens)
            memcpy(tokens + s * each, from, (size_t) each * sizeof *from);
        if (targets)
            memcpy(targets + s * each, from + 1, (size_t) each * sizeof *from);
        if (weights && loader->weights)
            memcpy(weights + s * each, loader->weights + batch->slice_offset, (size_t) each * sizeof *weights);
        if (positions)
            put_positions(loader, batch->slice_offset, each, positions + s * each);
        if (segments)
            bounds = add_segments(loader, s * seqlen, bounds, capacity, segments);
    }
    for (; segments && bounds < capacity; bounds++)
        segments[bounds] = (int32_t) (batch->n_sequences * seqlen);
    return SL_OK;
}

static sl_status text_bytes(sl_source *source, sl_split split, const sl_batch *batch, int64_t *bytes)
{
    sl_loader *loader = (sl_loader *) source;
    const int32_t *targets = batch->input[SL_INPUT_TARGETS].data;
    *bytes = 0;
    for (int64_t s = 0; s < batch->n_sequences; s++) {
        int64_t some, first = index_of(loader, split, batch->position + s) * loader->config.seqlen;
        SL_TRY(sl_corpus_text_bytes(split == SL_SPLIT_TRAIN ? loader->train : loader->validation,
                                    first + batch->slice_offset + 1, batch->tokens_each,
                                    targets + s * batch->tokens_each, &some));
        *bytes += some;
    }
    return SL_OK;
}

sl_status sl_loader_open(const sl_loader_config *config, sl_source **out)
{
    static const sl_source_class class = {.fill = fill, .close = close_loader, .text_bytes = text_bytes};
    sl_loader *loader;
    sl_corpus *train = NULL;
    sl_status status;
    SL_ASSERT(config->seqlen >= 1 && config->max_documents >= 1);
    if (!config->callback.read)
        SL_TRY(sl_loader_open_corpus(config, config->data, &train));
    if (train && sl_packed_wanted(train))
        return sl_packed_open(config, train, out);
    status = sl_alloc(&loader, 1, sizeof *loader);
    if (status != SL_OK) {
        sl_corpus_close(train);
        return status;
    }
    loader->source.class = &class;
    loader->train = train;
    loader->config = *config;
    loader->held = -1;
    SL_TRY_GOTO(open_splits(loader), fail);
    SL_TRY_GOTO(sl_alloc(&loader->sequence, config->seqlen + 1, sizeof(int32_t)), fail);
    if (config->callback.weighted)
        SL_TRY_GOTO(sl_alloc(&loader->weights, config->seqlen, sizeof(float)), fail);
    int64_t document_token = loader->train ? sl_corpus_document_token(loader->train) : config->document_token;
    SL_TRY_GOTO(check_document_token(config, document_token), fail);
    loader->config.document_token = document_token;
    describe(loader);
    *out = &loader->source;
    return SL_OK;
fail:
    close_loader(&loader->source);
    return status;
}
