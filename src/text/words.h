/*
 * Text to tokens of a model and back: by the tokenizer.json of its folder. A byte-level model (a vocabulary of 256 to 512 and no
 * tokenizer) has its bytes for tokens, and token 0 begins a document, as in training.
 */
#ifndef SL_TEXT_WORDS_H
#define SL_TEXT_WORDS_H

#include "core/text.h"
#include "text/tokenizer.h"

typedef struct sl_words sl_words;

typedef struct sl_words_config {
    const char *tokenizer; /* what sl_tokenizer_open takes; "": there is none */
    const char
        *folder; /* the model's: its generation_config.json and config.json say what ends a text; "": there is none */
    const char *model; /* its name, for messages */
    int64_t vocab;
} sl_words_config;

sl_status sl_words_open(const sl_words_config *config, sl_words **words);
void sl_words_close(sl_words *words);
/* False: neither a tokenizer nor bytes, so there are only ids, and texts are refused. */
bool sl_words_know_text(const sl_words *words);
/* What encodes texts; NULL: no tokenizer. */
sl_encoder *sl_words_encoder(sl_words *words);

/* The tokens of a prompt, with what begins a text. */
sl_status sl_words_encode(sl_words *words, const char *text, sl_tokens *tokens);
/* Numbers between commas. */
sl_status sl_words_parse_ids(const char *text, sl_tokens *tokens);
/* The text goes on behind these tokens. */
sl_status sl_words_begin(sl_words *words, const int32_t *ids, int64_t count);
/* Appends the text that the next token of a text adds: any bytes. It may be that of earlier tokens too, once they make whole characters.
 * Nothing where only ids are known. */
sl_status sl_words_decode(sl_words *words, int32_t id, sl_text *text);
/* Does the token end a text? */
bool sl_words_ends(const sl_words *words, int32_t id);
/* A further one that does. */
void sl_words_add_end(sl_words *words, int64_t id);

#endif
