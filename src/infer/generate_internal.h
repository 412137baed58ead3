/* Inside infer: a generation, shared by its two files. */
#ifndef SL_INFER_GENERATE_INTERNAL_H
#define SL_INFER_GENERATE_INTERNAL_H

#include "infer/generate.h"
#include "text/chat.h"

enum { SL_MOST_STOPS = 16, SL_LONGEST_TEXT = 1 << 24 };

/* A chat: its turns so far, and what the session has read of them. */
typedef struct sl_conversation {
    sl_chat *chat;      /* NULL: the generation is none */
    sl_text messages;   /* JSON objects with commas between them */
    sl_tokens read;     /* the session's */
    int64_t capacity;   /* tokens of the longest conversation; 0: of the first answer alone */
    int64_t max_tokens; /* of an answer */
} sl_conversation;

struct sl_generate {
    sl_job *job;
    sl_session *session;
    sl_sampler *sampler;
    sl_words *words;
    sl_tokens prompt, made;
    sl_text_stream stream;
    sl_text stop_text; /* with ends instead of the bars between them */
    const char *stops[SL_MOST_STOPS];
    sl_sampling sampling;
    sl_conversation talk;
    int64_t most, drawn; /* tokens to make; tokens drawn so far */
    bool ignore_end;
    atomic_bool stop;
};

/* One text: the session has read the first `read` tokens of the prompt. */
sl_status sl_generate_text(sl_generate *g, int64_t read, sl_text_fn fn, void *user, sl_generated *out);

/* Options of --chat that do not go with the others; with --prompt, the prompt's tokens. Sets how much is planned for. (chat.c) */
sl_status sl_chat_begin(const sl_options *options, const sl_setup *setup, sl_generate *g);
void sl_chat_end(sl_generate *g);

#endif
