/*
 * Chats as tokens: a model's own chat template (Jinja, in tokenizer_config.json or chat_template.jinja) turns messages into text, and a
 * tokenizer turns that into ids. What a user wrote cannot become a special token: the template's own text is encoded with special
 * tokens, the content of messages without.
 */
#ifndef SL_TEXT_CHAT_H
#define SL_TEXT_CHAT_H

#include "core/json.h"
#include "text/tokenizer.h"

typedef struct sl_chat sl_chat;

/* The template of a model's folder: chat_template.jinja, else chat_template in tokenizer_config.json. Where several have names,
 * "tool_use" serves chats with tools and "default" the others. Where there is none, the message says where it looked. */
sl_status sl_chat_open(const char *folder, sl_chat **chat);
/* A template's source; `name` is for messages. `bos` and `eos` are the texts of these tokens ("" for none). */
sl_status sl_chat_parse(const char *name, const char *source, size_t length, const char *bos, const char *eos,
                        sl_chat **chat);
void sl_chat_close(sl_chat *chat);

typedef struct sl_chat_request {
    const sl_json *messages; /* array of {"role": ..., "content": ..., ...} */
    const sl_json *tools;    /* or NULL */
    bool add_generation_prompt;
    const sl_json *variables; /* an object of further variables, such as {"enable_thinking": false}, or NULL */
    int64_t time; /* what strftime_now reports, in seconds since 1970 (UTC); 0: a fixed day, so that the same chat is
                               * the same text on every day */
} sl_chat_request;

/* The text, as transformers' apply_chat_template gives it. */
sl_status sl_chat_render(const sl_chat *chat, const sl_chat_request *request, sl_text *out);

/* Which tokens the loss counts. */
typedef enum sl_train_on {
    SL_TRAIN_ON_ALL,
    SL_TRAIN_ON_ASSISTANT, /* every turn of the assistant, with the token that ends it */
    SL_TRAIN_ON_COMPLETION /* its last turn alone */
} sl_train_on;

/* Appends the ids to `tokens`; for each, where they are not NULL, 0 or 1 to `counted`, and its bytes of the template's text to `bytes`. Special
 * tokens stand for none. */
sl_status sl_chat_encode(const sl_chat *chat, sl_encoder *encoder, const sl_chat_request *request, sl_train_on train_on,
                         sl_tokens *tokens, sl_text *counted, sl_byte_counts *bytes);

#endif
