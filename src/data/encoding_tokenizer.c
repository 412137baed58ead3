/*
 * Records through a tokenizer, and chats through the template of its folder.
 *
 *     text         <document token> text            [<eos> where it is another token]
 *     completion   <bos, if texts begin with one> prompt completion <eos>      the loss counts the completion and its end
 *     chat         as the template says; the loss counts by --train-on
 *
 * What a text begins with is found by encoding an empty one: the bos that the tokenizer's own post-processor adds; else it is the eos,
 * which then separates texts, as GPT-2 and Qwen have it. Prompt and completion are encoded together, as they are read later; a token
 * that lies in both is counted.
 */
#include <stdio.h>
#include <string.h>

#include "core/file.h"
#include "core/hash.h"
#include "data/encoding.h"

typedef struct token_encoding {
    sl_encoding base;
    sl_tokenizer *tokenizer;
    sl_chat *chat; /* NULL: there is no template; `why` says where it was looked for */
    char why[256];
    int64_t begin, end; /* of a text; -1: none */
    sl_encoding_config config;
} token_encoding;

/* A token of no text. */
static sl_status put(sl_encoded *out, int64_t token, bool is_counted)
{
    if (token < 0)
        return SL_OK;
    SL_TRY(sl_encoding_reserve(&out->tokens, 1));
    out->tokens.ids[out->tokens.count++] = (int32_t) token;
    sl_encoding_mark(&out->counted, 1, is_counted);
    sl_encoding_mark(&out->bytes.each, 1, 0);
    return SL_OK;
}

/* All but what is counted. */
static sl_status put_text(const token_encoding *e, sl_encoder *encoder, const char *text, size_t length,
                          sl_encoded *out)
{
    int64_t before = out->tokens.count;
    SL_TRY(sl_encode(encoder, text, length, e->config.special ? SL_ENCODE_SPECIAL : SL_ENCODE_PLAIN, &out->tokens));
    if (e->config.tokens_only)
        return SL_OK;
    return sl_token_bytes(e->tokenizer, text, length, out->tokens.ids + before, out->tokens.count - before,
                          &out->bytes);
}

static sl_status encode_text(const token_encoding *e, sl_encoder *encoder, const sl_record *r, sl_encoded *out)
{
    if (!r->continued)
        SL_TRY(put(out, e->base.document_token, true));
    int64_t before = out->tokens.count;
    SL_TRY(put_text(e, encoder, r->text, r->length, out));
    sl_encoding_mark(&out->counted, out->tokens.count - before, true);
    return SL_OK;
}

/* How many tokens of the whole are those of the prompt alone. */
static int64_t common_prefix(const int32_t *whole, int64_t n_whole, const int32_t *prompt, int64_t n_prompt)
{
    int64_t n = 0;
    while (n < n_whole && n < n_prompt && whole[n] == prompt[n])
        n++;
    return n;
}

static sl_status encode_completion(const token_encoding *e, sl_encoder *encoder, const sl_record *r, sl_encoded *out)
{
    sl_text whole = {0};
    sl_tokens prompt = {0};
    sl_status status;
    SL_TRY(put(out, e->begin, false));
    int64_t before = out->tokens.count;
    sl_text_append(&whole, r->text, r->length);
    sl_text_append(&whole, r->completion, r->completion_length);
    SL_TRY_GOTO(sl_text_status(&whole), done);
    SL_TRY_GOTO(put_text(e, encoder, whole.data, whole.length, out), done);
    SL_TRY_GOTO(sl_encode(encoder, r->text, r->length, SL_ENCODE_PLAIN, &prompt), done);
    int64_t n = out->tokens.count - before;
    int64_t first = common_prefix(out->tokens.ids + before, n, prompt.ids, prompt.count);
    sl_encoding_mark(&out->counted, first, false);
    sl_encoding_mark(&out->counted, n - first, true);
    status = put(out, e->end, true);
done:
    sl_text_free(&whole);
    sl_tokens_free(&prompt);
    return status;
}

static sl_status encode_chat(const token_encoding *e, sl_encoder *encoder, const sl_record *r, sl_encoded *out)
{
    if (!e->chat)
        return sl_fail(SL_E_USAGE, "a chat needs a chat template: %s", e->why);
    sl_chat_request request = {.messages = r->messages, .tools = r->tools};
    sl_train_on train_on =
        r->last_turn && e->config.train_on == SL_TRAIN_ON_ASSISTANT ? SL_TRAIN_ON_COMPLETION : e->config.train_on;
    return sl_chat_encode(e->chat, encoder, &request, train_on, &out->tokens, &out->counted, &out->bytes);
}

static sl_status encode(const sl_encoding *encoding, void *thread, const sl_record *r, sl_encoded *out)
{
    const token_encoding *e = (const token_encoding *) encoding;
    sl_status status;
    if (r->kind == SL_RECORD_CHAT)
        status = encode_chat(e, thread, r, out);
    else if (r->kind == SL_RECORD_COMPLETION)
        status = encode_completion(e, thread, r, out);
    else
        status = encode_text(e, thread, r, out);
    return status == SL_OK ? sl_text_status(&out->counted) : status;
}

static sl_status open_thread(const sl_encoding *encoding, void **thread)
{
    sl_encoder *encoder;
    SL_TRY(sl_encoder_create(((const token_encoding *) encoding)->tokenizer, &encoder));
    *thread = encoder;
    return SL_OK;
}

static void close_thread(void *thread)
{
    sl_encoder_destroy(thread);
}

static void close_tokens(sl_encoding *encoding)
{
    token_encoding *e = (token_encoding *) encoding;
    sl_chat_close(e->chat);
    sl_tokenizer_close(e->tokenizer);
    sl_free(e);
}

/* What surrounds a text by the tokenizer's own rules. */
static sl_status find_ends(token_encoding *e, const sl_encoding_config *config)
{
    sl_encoder *encoder;
    sl_tokens around = {0};
    int64_t eos = sl_tokenizer_eos(e->tokenizer);
    if (eos < 0) /* GPT-2's files do not name it */
        eos = sl_tokenizer_find(e->tokenizer, "<|endoftext|>");
    SL_TRY(sl_encoder_create(e->tokenizer, &encoder));
    sl_status status = sl_encode(encoder, "", 0, SL_ENCODE_AROUND, &around);
    e->begin = status == SL_OK && around.count ? around.ids[0] : -1;
    if (e->begin == eos)
        e->begin = -1; /* it only adds an end */
    sl_tokens_free(&around);
    sl_encoder_destroy(encoder);
    SL_TRY(status);
    e->end = eos;
    if (config->no_document_token)
        e->begin = -1;
    e->base.document_token = config->no_document_token     ? -1
                             : config->document_token >= 0 ? config->document_token
                             : e->begin >= 0               ? e->begin
                                                           : eos;
    if (e->base.document_token >= 0 || config->no_document_token)
        return SL_OK;
    return sl_fail(SL_E_USAGE,
                   "%s names neither a token that begins texts nor one that ends them: give "
                   "--document-token N, and to `sluice tokenize` --separator TOKEN or none",
                   config->tokenizer);
}

/* A template is part of what a record becomes, so the key of a cache has it: the files that may hold it. */
static sl_status add_template(const char *folder, sl_hasher *hasher)
{
    static const char *const names[] = {"chat_template.jinja", "tokenizer_config.json"};
    for (int64_t i = 0; i < SL_COUNT(names); i++) {
        char path[1200], *text;
        size_t length;
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (!sl_file_exists(path))
            continue;
        SL_TRY(sl_file_read_all(path, (size_t) 64 << 20, &text, &length));
        sl_hash_add(hasher, text, length);
        sl_free(text);
    }
    return SL_OK;
}

static sl_status open_chat(token_encoding *e, const sl_encoding_config *config)
{
    int64_t parts[] = {(int64_t) sl_tokenizer_fingerprint(e->tokenizer), config->train_on};
    sl_hasher hasher;
    sl_hash_begin(&hasher, 0);
    sl_hash_add(&hasher, parts, sizeof parts);
    if (sl_dir_exists(config->tokenizer)) {
        SL_TRY(add_template(config->tokenizer, &hasher));
        if (sl_chat_open(config->tokenizer, &e->chat) != SL_OK) {
            e->chat = NULL; /* an error once there is a chat */
            snprintf(e->why, sizeof e->why, "%s", sl_error_message());
        }
    } else {
        snprintf(e->why, sizeof e->why, "%.200s is a file: give its folder", config->tokenizer);
    }
    e->base.fingerprint = sl_hash_end(&hasher);
    return SL_OK;
}

sl_status sl_encoding_open_tokenizer(const sl_encoding_config *config, sl_encoding **out)
{
    static const sl_encoding_class class = {open_thread, close_thread, encode, close_tokens};
    token_encoding *e;
    sl_status status;
    SL_TRY(sl_alloc(&e, 1, sizeof *e));
    e->base.class = &class;
    e->config = *config;
    SL_TRY_GOTO(sl_tokenizer_open(config->tokenizer, &e->tokenizer), fail);
    e->base.size = sl_tokenizer_size(e->tokenizer);
    SL_TRY_GOTO(find_ends(e, config), fail);
    SL_TRY_GOTO(open_chat(e, config), fail);
    const char *slash = strrchr(config->tokenizer, '/');
    snprintf(e->base.name, sizeof e->base.name, "%s", slash && slash[1] ? slash + 1 : config->tokenizer);
    *out = &e->base;
    return SL_OK;
fail:
    close_tokens(&e->base);
    return status;
}
