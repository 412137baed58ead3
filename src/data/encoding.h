/*
 * How records become tokens: as bytes, for byte-level models, or with a tokenizer and, for chats, its template. Every text begins with
 * the document token. The end of a completion, and of an assistant's turn, is a token that the loss counts: a model that never sees
 * it does not learn to stop.
 */
#ifndef SL_DATA_ENCODING_H
#define SL_DATA_ENCODING_H

#include "data/records.h"
#include "text/chat.h"

/* What records became. Of each token: whether the loss counts it as a target, and the bytes of the record's text that it stands for. A
 * record's text is what was tokenized: the UTF-8 of its fields, for a chat what the template makes of it. Tokens that the pipeline adds,
 * and special tokens of a template, stand for no bytes. Zero-initialise. */
typedef struct sl_encoded {
    sl_tokens tokens;
    sl_text counted;
    sl_byte_counts bytes;
} sl_encoded;

typedef struct sl_encoding sl_encoding;
typedef struct sl_encoding_class {
    /* What one thread needs beside the encoding. */
    sl_status (*open_thread)(const sl_encoding *encoding, void **thread);
    void (*close_thread)(void *thread);
    /* Appends the record's tokens. */
    sl_status (*encode)(const sl_encoding *encoding, void *thread, const sl_record *record, sl_encoded *out);
    void (*close)(sl_encoding *encoding);
} sl_encoding_class;

struct sl_encoding {
    const sl_encoding_class *class;
    int64_t size;           /* every token lies below */
    int64_t document_token; /* begins a text */
    uint64_t fingerprint;   /* the same for encodings that encode every record alike */
    char name[64];          /* for people: "bytes" */
};

typedef struct sl_encoding_config {
    const char *tokenizer;  /* folder or file; NULL: bytes */
    int64_t document_token; /* -1: what the tokenizer says */
    sl_train_on train_on;
    bool no_document_token; /* texts begin with none */
    bool special;           /* special tokens that a text writes out are tokens, not text */
    bool tokens_only;       /* neither what is counted nor bytes are wanted */
} sl_encoding_config;

sl_status sl_encoding_open(const sl_encoding_config *config, sl_encoding **encoding);
static inline void sl_encoding_close(sl_encoding *encoding)
{
    if (encoding)
        encoding->class->close(encoding);
}

/* ---- within the encodings ---- */

sl_status sl_encoding_open_bytes(const sl_encoding_config *config, sl_encoding **encoding);
sl_status sl_encoding_open_tokenizer(const sl_encoding_config *config, sl_encoding **encoding);
/* Space for `more` tokens. */
sl_status sl_encoding_reserve(sl_tokens *tokens, int64_t more);
/* Appends a byte `count` times: to `counted`, or to the bytes of tokens. */
void sl_encoding_mark(sl_text *marks, int64_t count, unsigned char mark);
void sl_encoded_free(sl_encoded *encoded);

#endif
