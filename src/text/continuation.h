/*
 * Continuing a text: tokens of a prompt -> a model reads them -> logits -> a token -> text, one token after the other. Whatever has logits
 * can be the model: a session of its own (infer/session.h), or a training run between two steps (train/samples.c).
 */
#ifndef SL_TEXT_CONTINUATION_H
#define SL_TEXT_CONTINUATION_H

#include <stdatomic.h>

#include "text/sampler.h"
#include "text/text_stream.h"
#include "text/words.h"

/* A model that reads a text token by token. */
typedef struct sl_token_model {
    void *context;
    sl_status (*read)(void *context, const int32_t *tokens, int64_t count);
    const float *(*logits)(void *context); /* of the token behind the last one read */
    int64_t chunk;                         /* tokens that it reads at once: between chunks a request to stop is seen */
} sl_token_model;

typedef struct sl_continuation {
    sl_token_model model;
    sl_words *words;
    sl_sampler *sampler;
    sl_text_stream *stream;
    const atomic_bool *stop; /* somebody asks it to; NULL: nobody can */
    int64_t most;            /* tokens to make; `made` has space for so many */
    int64_t drawn;           /* tokens drawn before, for texts that go on: the sampler counts them all */
    bool ignore_end;
    sl_tokens *made;
    const char *why;  /* it ended: "end" (the model said so), "stop" (a stop string), "length", "interrupted" */
    double prefill_s; /* reading the prompt */
} sl_continuation;

/* `prompt` is all of the text so far, of which the model has read `read` tokens already. No allocation but for the text. */
sl_status sl_continue(sl_continuation *continuation, const sl_tokens *prompt, int64_t read);

#endif
