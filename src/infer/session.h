/*
 * A model that reads a text token by token: two planned programs on one device with the same weights and the same cache of K/V.
 *
 *     prefill   a chunk of tokens of a prompt at a time      decode   one token
 *
 * Both end with the logits of their last token. Weights and cache are persistent objects, in device memory as far as the budget goes and in
 * host memory otherwise, from where they are streamed. Placement changes no bit of the logits, and neither do threads.
 */
#ifndef SL_INFER_SESSION_H
#define SL_INFER_SESSION_H

#include "engine/engine.h"
#include "text/continuation.h"
#include "train/job.h"
#include "train/weights.h"

typedef struct sl_session sl_session;

/* For texts of up to `tokens`, which must lie within the positions that the model has learned. The job gives model, device, precision and
 * budgets, and outlives nothing: it is copied. */
sl_status sl_session_create(const sl_job *job, int64_t tokens, sl_session **session);
void sl_session_destroy(sl_session *session);

/* Reads further tokens of the text. Long ones go by chunks, a single one by itself. */
sl_status sl_session_read(sl_session *session, const int32_t *tokens, int64_t count);
/* Forgets the text but for its first tokens. */
void sl_session_rewind(sl_session *session, int64_t keep);
/* Of the token behind the last one read, one per word of the vocabulary. Valid until the next read. */
const float *sl_session_logits(const sl_session *session);
/* For sl_continue. */
sl_token_model sl_session_model(sl_session *session);

typedef struct sl_session_view {
    const sl_setup *setup;
    const char *weights; /* where they came from, in words */
    int64_t words;       /* of the vocabulary */
    int64_t read;        /* tokens of the text so far */
    int64_t capacity, chunk;
    double predicted_decode_s, predicted_prefill_s;
    size_t budget_bytes[SL_TIER_COUNT], unlimited_bytes[SL_TIER_COUNT], peak_bytes[SL_TIER_COUNT];
    size_t cache_bytes;
    size_t streamed_bytes; /* to the device for one token */
} sl_session_view;
void sl_session_look(const sl_session *session, sl_session_view *view);

#endif
