/* Bytes as tokens, as data/corpus.h has them for text files: tokens 1..255 are bytes, 0 begins a document and ends a completion. */
#include "data/encoding.h"

#include <stdio.h>
#include <string.h>

#include "core/hash.h"

enum { BYTE_VALUES = 256, SEPARATOR = 0 };

sl_status sl_encoding_reserve(sl_tokens *tokens, int64_t more)
{
    int64_t needed = tokens->count + more, capacity = SL_MAX(needed, tokens->capacity + tokens->capacity / 2);
    if (needed <= tokens->capacity)
        return SL_OK;
    SL_TRY(sl_grow(&tokens->ids, tokens->capacity, capacity, sizeof *tokens->ids));
    tokens->capacity = capacity;
    return SL_OK;
}

void sl_encoding_mark(sl_text *marks, int64_t count, unsigned char mark)
{
    char piece[256];
    memset(piece, mark, sizeof piece);
    for (; count > 0; count -= (int64_t) sizeof piece)
        sl_text_append(marks, piece, (size_t) SL_MIN(count, (int64_t) sizeof piece));
}

void sl_encoded_free(sl_encoded *encoded)
{
    sl_tokens_free(&encoded->tokens);
    sl_text_free(&encoded->counted);
    sl_text_free(&encoded->bytes.each);
}

static void put(const char *text, size_t length, bool is_counted, sl_encoded *out)
{
    for (size_t i = 0; i < length; i++)
        out->tokens.ids[out->tokens.count++] = (unsigned char) text[i];
    sl_encoding_mark(&out->counted, (int64_t) length, is_counted);
    sl_encoding_mark(&out->bytes.each, (int64_t) length, 1);
}

static void put_separator(bool is_counted, sl_encoded *out)
{
    out->tokens.ids[out->tokens.count++] = SEPARATOR;
    sl_encoding_mark(&out->counted, 1, is_counted);
    sl_encoding_mark(&out->bytes.each, 1, 0);
}

static sl_status encode_bytes(const sl_encoding *encoding, void *thread, const sl_record *r, sl_encoded *out)
{
    (void) encoding, (void) thread;
    if (r->kind == SL_RECORD_CHAT)
        return sl_fail(SL_E_FORMAT, "a chat needs a tokenizer with a chat template: give --tokenizer DIR");
    SL_TRY(sl_encoding_reserve(&out->tokens, (int64_t) (r->length + r->completion_length) + 2));
    bool completion = r->kind == SL_RECORD_COMPLETION;
    if (!r->continued)
        put_separator(!completion, out);
    put(r->text, r->length, !completion, out);
    if (completion) {
        put(r->completion, r->completion_length, true, out);
        put_separator(true, out);
    }
    SL_TRY(sl_text_status(&out->bytes.each));
    return sl_text_status(&out->counted);
}

static sl_status open_thread(const sl_encoding *encoding, void **thread)
{
    (void) encoding;
    *thread = NULL;
    return SL_OK;
}

static void close_thread(void *thread)
{
    (void) thread;
}

static void close_bytes(sl_encoding *encoding)
{
    sl_free(encoding);
}

sl_status sl_encoding_open_bytes(const sl_encoding_config *config, sl_encoding **out)
{
    static const sl_encoding_class class = {open_thread, close_thread, encode_bytes, close_bytes};
    sl_encoding *encoding;
    (void) config;
    SL_TRY(sl_alloc(&encoding, 1, sizeof *encoding));
    *encoding = (sl_encoding){.class = &class,
                              .size = BYTE_VALUES,
                              .document_token = SEPARATOR,
                              .fingerprint = sl_hash64("bytes", 5, 1),
                              .name = "bytes"};
    *out = encoding;
    return SL_OK;
}

sl_status sl_encoding_open(const sl_encoding_config *config, sl_encoding **encoding)
{
    return config->tokenizer ? sl_encoding_open_tokenizer(config, encoding) : sl_encoding_open_bytes(config, encoding);
}
