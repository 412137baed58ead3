/* `sluice generate`: text from a prompt. */
#ifndef SL_INFER_GENERATE_H
#define SL_INFER_GENERATE_H

#include "infer/session.h"

const sl_option *sl_generate_table(int64_t *count);

typedef struct sl_generate sl_generate;
sl_status sl_generate_create(const sl_options *options, sl_progress_fn progress, void *user, sl_generate **generate);
void sl_generate_destroy(sl_generate *generate);
/* May be called from another thread, or a signal handler: the text ends behind the token that is being made. */
void sl_generate_request_stop(sl_generate *generate);

typedef struct sl_generated {
    const char *text;           /* valid UTF-8; "" where only ids are known */
    const int32_t *tokens;      /* those that were made */
    int64_t n_tokens, n_prompt; /* the prompt's with what begins a text; in a conversation all before the answer */
    int64_t n_read;             /* of these, those that had to be read */
    const char *stop; /* why it ended: "end" (the model said so), "stop" (a stop string), "length", "interrupted" */
    double prefill_s, decode_s; /* reading the prompt; the tokens behind the first one */
} sl_generated;
/* Tokens per second, without the first one, which comes from reading the prompt; 0 for fewer than two. */
double sl_generated_speed(const sl_generated *result);
/* `fn` (NULL: nobody) sees the text as it appears. The result is valid until the generation is destroyed. Once. */
sl_status sl_generate_run(sl_generate *generate, sl_text_fn fn, void *user, sl_generated *result);

/* --chat without --prompt: one turn of the user, and its answer. After a failure the conversation is as before. */
sl_status sl_generate_say(sl_generate *generate, const char *turn, sl_text_fn fn, void *user, sl_generated *result);

void sl_generate_look(const sl_generate *generate, sl_session_view *view);
void sl_generate_put(const sl_generate *generate, const sl_generated *result, sl_json_writer *w);

#endif
