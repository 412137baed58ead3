/*
 * All records of all files, encoded by threads and written in order. One batch of records is held at a time, some MiB of text, so memory
 * does not depend on the files; a batch is cut by bytes and not by threads, and its records are written in the order in which they
 * were read.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/pool.h"
#include "data/internal.h"
#include "data/token_cache.h"
#include "data/tokenized.h"

enum { BATCH_RECORDS = 1024 };
static const size_t batch_bytes = (size_t) 4 << 20;

typedef struct slot {
    sl_record record;
    sl_encoded encoded;
    sl_status status;
    char message[256];
} slot;

typedef struct tokenizing {
    const sl_token_cache_config *config;
    sl_token_cache *cache;
    sl_token_sink *sink;
    sl_pool *pool;
    void **threads; /* of the encoding */
    int n_threads;
    slot *slots;
    int64_t used;
    size_t bytes;  /* of text in the batch */
    bool left_out; /* the document that may go on */
} tokenizing;

static void encode_slot(void *context, int64_t tile, int thread)
{
    tokenizing *t = context;
    slot *s = &t->slots[tile];
    const sl_encoding *encoding = t->config->encoding;
    s->encoded.tokens.count = 0;
    s->encoded.counted.length = s->encoded.bytes.each.length = 0;
    s->encoded.bytes.unknown = false;
    s->status = encoding->class->encode(encoding, t->threads[thread], &s->record, &s->encoded);
    if (s->status != SL_OK)
        snprintf(s->message, sizeof s->message, "%s", sl_error_message());
}

/* The first token of a document is no target. */
static bool has_target(const slot *s)
{
    const sl_text *counted = &s->encoded.counted;
    return s->record.kind == SL_RECORD_TEXT ||
           (counted->length > 1 && memchr(counted->data + 1, 1, counted->length - 1) != NULL);
}

/* A record that its encoding refuses is left out; anything else ends the run. */
static sl_status put_slot(tokenizing *t, const slot *s)
{
    sl_record_counts *counts = &t->cache->records;
    bool refused = s->status == SL_E_FORMAT || s->status == SL_E_USAGE || s->status == SL_E_UNSUPPORTED;
    if (s->status != SL_OK && !refused)
        return sl_fail(s->status, "%s", s->message);
    bool idle = !refused && !has_target(s);
    if (!s->record.continued)
        t->left_out = refused || idle;
    if (t->left_out && !s->record.continued) {
        counts->kinds[s->record.kind]--;
        sl_record_skip_because(counts, refused ? SL_RECORD_REFUSED : SL_RECORD_NO_TARGET, "%s",
                               refused ? s->message : "a record has no token that the loss counts");
    }
    return t->left_out ? SL_OK : sl_token_sink_add(t->sink, &s->encoded, !s->record.continued);
}

static sl_status flush(tokenizing *t)
{
    sl_status status = SL_OK;
    sl_pool_run(t->pool, encode_slot, t, t->used);
    for (int64_t i = 0; i < t->used; i++) {
        if (status == SL_OK)
            status = put_slot(t, &t->slots[i]);
        sl_record_free(&t->slots[i].record);
    }
    t->used = 0;
    t->bytes = 0;
    return status;
}

static sl_status read_file(tokenizing *t, int64_t file)
{
    sl_records *records;
    bool more = true;
    sl_status status;
    SL_TRY(sl_corpus_open_records(t->config->files, file, t->config->field, &t->cache->records, &records));
    for (;;) {
        slot *s = &t->slots[t->used];
        SL_TRY_GOTO(sl_records_next(records, &s->record, &more), done);
        if (!more)
            break;
        t->bytes += sl_region_bytes(s->record.region);
        t->used++;
        if (t->used == BATCH_RECORDS || t->bytes >= batch_bytes)
            SL_TRY_GOTO(flush(t), done);
    }
done:
    sl_records_close(records);
    return status;
}

static sl_status open_threads(tokenizing *t)
{
    SL_TRY(sl_pool_create(t->config->threads, &t->pool));
    SL_TRY(sl_alloc(&t->threads, sl_pool_threads(t->pool), sizeof *t->threads));
    for (; t->n_threads < sl_pool_threads(t->pool); t->n_threads++)
        SL_TRY(t->config->encoding->class->open_thread(t->config->encoding, &t->threads[t->n_threads]));
    return sl_alloc(&t->slots, BATCH_RECORDS, sizeof *t->slots);
}

static void close_all(tokenizing *t)
{
    for (int64_t i = 0; t->slots && i < BATCH_RECORDS; i++) {
        sl_record_free(&t->slots[i].record);
        sl_encoded_free(&t->slots[i].encoded);
    }
    for (int i = 0; i < t->n_threads; i++)
        t->config->encoding->class->close_thread(t->threads[i]);
    sl_free(t->slots);
    sl_free(t->threads);
    sl_pool_destroy(t->pool);
    sl_token_sink_destroy(t->sink);
}

sl_status sl_token_cache_fill(const sl_token_cache_config *config, const char *folder, sl_token_cache *cache)
{
    tokenizing t = {.config = config, .cache = cache};
    sl_status status;
    SL_TRY_GOTO(sl_token_sink_create(folder, config->encoding->size, &t.sink), done);
    SL_TRY_GOTO(open_threads(&t), done);
    for (int64_t i = 0; i < config->files->n_sources; i++)
        SL_TRY_GOTO(read_file(&t, i), done);
    SL_TRY_GOTO(flush(&t), done);
    status = sl_token_sink_finish(t.sink, cache);
done:
    close_all(&t);
    return status;
}
