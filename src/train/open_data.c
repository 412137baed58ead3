#include "train/open_data.h"

#include <stdio.h>

#include "core/mem.h"
#include "data/loader.h"

static sl_status open_loader(const sl_setup *s, sl_source **source)
{
    if (!s->data && !s->hooks.data.read)
        return sl_fail(SL_E_USAGE, "--data is missing: a text file, a folder of them, or token shards");
    sl_loader_config config = {
        .callback = s->hooks.data,
        .identity = s->hooks.data_identity,
        .data = s->data,
        .val_data = s->program.forward_only ? s->data : s->val_data, /* evaluation takes all of it, in order */
        .val_share = s->val_share,
        .run = s->out,
        .seqlen = s->program.chunking.seqlen,
        .vocab = s->model.vocab,
        .document_token = s->document_token,
        .max_documents = s->max_documents,
        .format = s->data_format,
        .tokenize = s->tokenize,
        .seed = s->seed,
    };
    config.tokenize.tokenizer = s->tokenizer[0] ? s->tokenizer : NULL;
    /* Opening files takes little, which plans count. A tokenizer takes what it needs, before there is a plan. */
    const bool limited = config.tokenize.tokenizer && s->limited[SL_TIER_HOST] && s->share[SL_TIER_HOST] == 0;
    if (limited)
        sl_heap_limit(s->budget[SL_TIER_HOST]);
    sl_status status = sl_loader_open(&config, source);
    sl_heap_limit(SIZE_MAX);
    if (limited && (status == SL_E_DOES_NOT_FIT || status == SL_E_MEMORY)) {
        char message[512];
        snprintf(message, sizeof message, "%s", sl_error_message());
        return sl_fail(SL_E_DOES_NOT_FIT,
                       "tokenizing the data: %s; raise --host-mem, take fewer --threads, or tokenize it first, without "
                       "the budget",
                       message);
    }
    return status;
}

bool sl_data_given(const sl_setup *s)
{
    return s->hooks.source || s->hooks.data.read || s->data;
}

void sl_data_close(const sl_setup *s, sl_source *source)
{
    if (source != s->hooks.source)
        sl_source_close(source);
}

static void complete(sl_setup *s, const sl_source *source)
{
    s->data_bytes = source->bytes;
    if (source->most_segments)
        s->max_documents = source->most_segments;
    s->program.token_weights = source->kinds >> SL_INPUT_TOKEN_WEIGHTS & 1u;
    sl_setup_shorten(s,
                     s->program.forward_only ? source->sequences[SL_SPLIT_VALIDATION] : s->program.chunking.sequences);
}

sl_status sl_data_open(sl_setup *s, sl_source **out)
{
    sl_source *source = s->hooks.source;
    if (!source)
        SL_TRY(open_loader(s, &source));
    if (s->val_every && !source->sequences[SL_SPLIT_VALIDATION]) {
        sl_data_close(s, source);
        return sl_fail(SL_E_USAGE, "--val-every needs data to validate on, and there is none");
    }
    complete(s, source);
    *out = source;
    return SL_OK;
}
