/*
 * Tokenizers: text to token ids and back, exactly as the tokenizer's own file says. Nothing here knows a model's name.
 *
 * A tokenizer is read-only once it is open and may be shared by threads. An encoder holds what encoding needs beside it (a cache of
 * words, buffers) and belongs to one thread. The ids of a text depend on the tokenizer alone.
 */
#ifndef SL_TEXT_TOKENIZER_H
#define SL_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"
#include "core/text.h"

typedef struct sl_tokenizer sl_tokenizer;
typedef struct sl_encoder sl_encoder;

/* A folder that holds a tokenizer.json (with tokenizer_config.json beside it, where there is one), a tokenizer.json, or a tiktoken
 * file. */
sl_status sl_tokenizer_open(const char *path, sl_tokenizer **tokenizer);
void sl_tokenizer_close(sl_tokenizer *tokenizer);

/* Every id lies below it. */
int64_t sl_tokenizer_size(const sl_tokenizer *tokenizer);
/* The id of an added token or a word of the vocabulary, as it is written in the file; -1: there is none. */
int32_t sl_tokenizer_find(const sl_tokenizer *tokenizer, const char *token);
/* The text of an id as it is written in the file, with a NUL behind it only by chance; NULL: no token has the id. */
const char *sl_tokenizer_piece(const sl_tokenizer *tokenizer, int32_t id, size_t *length);
/* By tokenizer_config.json, else by what the post-processor adds; -1: none is known. */
int32_t sl_tokenizer_bos(const sl_tokenizer *tokenizer);
int32_t sl_tokenizer_eos(const sl_tokenizer *tokenizer);
/* Whether the id is an added token that is marked special. */
bool sl_tokenizer_is_special(const sl_tokenizer *tokenizer, int32_t id);
/* The same for tokenizers that encode every text alike: names caches of tokens. */
uint64_t sl_tokenizer_fingerprint(const sl_tokenizer *tokenizer);

/* Growing ids. Zero-initialise; one array may take the ids of many texts, one behind the other. */
typedef struct sl_tokens {
    int32_t *ids;
    int64_t count, capacity;
} sl_tokens;
void sl_tokens_free(sl_tokens *tokens);

typedef enum sl_encode_flags {
    SL_ENCODE_PLAIN = 0,
    /* Adds what the post-processor adds around a text, such as a token that begins it. */
    SL_ENCODE_AROUND = 1,
    /* Recognises added tokens that are marked special. Text of a user is encoded without, so that it cannot contain any. */
    SL_ENCODE_SPECIAL = 2
} sl_encode_flags;

sl_status sl_encoder_create(const sl_tokenizer *tokenizer, sl_encoder **encoder);
void sl_encoder_destroy(sl_encoder *encoder);
const sl_tokenizer *sl_encoder_tokenizer(const sl_encoder *encoder);
/* Appends the ids of a text. Bytes that are no UTF-8 count as U+FFFD. On failure `out` is as it was. */
sl_status sl_encode(sl_encoder *encoder, const char *text, size_t length, unsigned flags, sl_tokens *out);

/* How many bytes of its text each token stands for, one byte a token. Zero-initialise. */
typedef struct sl_byte_counts {
    sl_text each;
    bool
        unknown; /* of some: its normalizer changes texts in a way that is not followed, or a token has more than 255 */
} sl_byte_counts;
/* Appends those of the ids that a text became, without any around it. They add up to `length` where none is unknown. */
sl_status sl_token_bytes(const sl_tokenizer *tokenizer, const char *text, size_t length, const int32_t *ids,
                         int64_t count, sl_byte_counts *out);

/* Appends the text of the ids; special tokens are left out with `skip_special`. */
sl_status sl_decode(const sl_tokenizer *tokenizer, const int32_t *ids, int64_t count, bool skip_special, sl_text *out);

#endif
