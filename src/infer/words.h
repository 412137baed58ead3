/*
 * Text to tokens of a model and back: by the tokenizer.json of its folder. A byte-level model (a vocabulary of 256 to 512 and no
 * tokenizer) has its bytes for tokens, and token 0 begins a document, as in training.
 */
#ifndef SL_INFER_WORDS_H
#define SL_INFER_WORDS_H

#include "core/text.h"
#include "text/tokenizer.h"
#include "train/job.h"

typedef struct sl_words sl_words;

/* Of the model's folder. Without a tokenizer and bytes there are only ids: texts are then refused. */
sl_status sl_words_open(const sl_setup *setup, sl_words **words);
void sl_words_close(sl_words *words);

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

#endif
