/*
 * The text of a token depends on those before it (a space that a tokenizer joins to words, characters of several tokens), so decoding goes
 * on from a token whose text was whole: the text of all tokens since, less what they had come to before.
 */
#include "text/words.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/json.h"

enum { FEWEST_BYTES = 256, MOST_BYTES = 512, MOST_ENDS = 16, LARGEST_CONFIG = 16 << 20, MOST_SINCE = 32 };

struct sl_words {
    char model[64];
    int64_t vocab;
    bool bytes;
    sl_tokenizer *tokenizer; /* NULL: none */
    sl_encoder *encoder;
    int32_t ends[MOST_ENDS];
    int n_ends;
    sl_tokens since; /* tokens whose text depends on each other */
    size_t known;    /* bytes of their text that have been given */
};

static sl_status append(sl_tokens *tokens, int32_t id)
{
    if (tokens->count == tokens->capacity) {
        const int64_t capacity = SL_MAX(64, 2 * tokens->capacity);
        SL_TRY(sl_grow(&tokens->ids, tokens->count, capacity, sizeof *tokens->ids));
        tokens->capacity = capacity;
    }
    tokens->ids[tokens->count++] = id;
    return SL_OK;
}

/* ---- opening ---- */

void sl_words_add_end(sl_words *w, int64_t id)
{
    if (id >= 0 && id < w->vocab && w->n_ends < MOST_ENDS)
        w->ends[w->n_ends++] = (int32_t) id;
}

/* "eos_token_id": one or a list. */
static void list_ends(sl_words *w, const sl_json *ends)
{
    if (ends && ends->kind == SL_JSON_NUMBER && ends->is_integer)
        sl_words_add_end(w, ends->integer);
    for (const sl_json *one = ends && ends->kind == SL_JSON_ARRAY ? ends->child : NULL; one; one = one->next)
        if (one->kind == SL_JSON_NUMBER && one->is_integer)
            sl_words_add_end(w, one->integer);
}

static sl_status read_ends(sl_words *w, const char *folder, const char *name)
{
    char path[1200];
    sl_region *region;
    const sl_json *root = NULL;
    char *data;
    size_t length;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!sl_file_exists(path))
        return SL_OK;
    SL_TRY(sl_file_read_all(path, LARGEST_CONFIG, &data, &length));
    sl_status status = sl_region_create(&region);
    if (status == SL_OK) {
        status = sl_json_parse(region, path, data, length, &root);
        if (status == SL_OK)
            list_ends(w, sl_json_get(root, "eos_token_id"));
        sl_region_destroy(region);
    }
    sl_free(data);
    return status;
}

/* generation_config.json says best what ends a text, then config.json, then the tokenizer. */
static sl_status find_ends(sl_words *w, const char *folder)
{
    if (folder[0])
        SL_TRY(read_ends(w, folder, "generation_config.json"));
    if (w->n_ends == 0 && folder[0])
        SL_TRY(read_ends(w, folder, "config.json"));
    if (w->n_ends == 0 && w->tokenizer)
        sl_words_add_end(w, sl_tokenizer_eos(w->tokenizer));
    return SL_OK;
}

static sl_status open_words(const sl_words_config *config, sl_words *w)
{
    w->vocab = config->vocab;
    snprintf(w->model, sizeof w->model, "%s", config->model);
    if (config->tokenizer[0]) {
        SL_TRY(sl_tokenizer_open(config->tokenizer, &w->tokenizer));
        SL_TRY(sl_encoder_create(w->tokenizer, &w->encoder));
    }
    w->bytes = !w->tokenizer && w->vocab >= FEWEST_BYTES && w->vocab <= MOST_BYTES;
    if (!w->bytes)
        return find_ends(w, config->folder);
    sl_words_add_end(w, 0); /* the separator of documents */
    return SL_OK;
}

sl_status sl_words_open(const sl_words_config *config, sl_words **out)
{
    sl_words *w;
    SL_TRY(sl_alloc(&w, 1, sizeof *w));
    const sl_status status = open_words(config, w);
    if (status != SL_OK) {
        sl_words_close(w);
        return status;
    }
    *out = w;
    return SL_OK;
}

void sl_words_close(sl_words *words)
{
    if (!words)
        return;
    sl_encoder_destroy(words->encoder);
    sl_tokenizer_close(words->tokenizer);
    sl_tokens_free(&words->since);
    sl_free(words);
}

bool sl_words_know_text(const sl_words *w)
{
    return w->tokenizer || w->bytes;
}

sl_encoder *sl_words_encoder(sl_words *w)
{
    return w->encoder;
}

/* ---- both ways ---- */

static sl_status encode_bytes(const char *text, sl_tokens *tokens)
{
    SL_TRY(append(tokens, 0));
    for (const char *c = text; *c; c++)
        SL_TRY(append(tokens, (unsigned char) *c));
    return SL_OK;
}

/* Without a token that begins a text, an empty prompt is nothing to go on from: the one that ends a text stands for it. */
static sl_status encode_words(sl_words *w, const char *text, sl_tokens *tokens)
{
    SL_TRY(sl_encode(w->encoder, text, strlen(text), SL_ENCODE_AROUND | SL_ENCODE_SPECIAL, tokens));
    if (tokens->count > 0)
        return SL_OK;
    const int32_t bos = sl_tokenizer_bos(w->tokenizer), begin = bos < 0 && w->n_ends ? w->ends[0] : bos;
    return begin >= 0 ? append(tokens, begin)
                      : sl_fail(SL_E_USAGE,
                                "the tokenizer of model %s names no token that begins a text: give a prompt", w->model);
}

sl_status sl_words_encode(sl_words *w, const char *text, sl_tokens *tokens)
{
    if (w->tokenizer)
        return encode_words(w, text, tokens);
    if (w->bytes)
        return encode_bytes(text, tokens);
    return sl_fail(SL_E_USAGE,
                   "model %s has no tokenizer.json beside it, and its %lld tokens are not bytes: give the tokens of a "
                   "prompt with --prompt-ids 1,2,3",
                   w->model, (long long) w->vocab);
}

sl_status sl_words_parse_ids(const char *text, sl_tokens *tokens)
{
    for (const char *at = text;; at++) {
        char *end;
        errno = 0;
        const long id = strtol(at, &end, 10);
        if (end == at || errno || id < 0 || id > INT32_MAX || (*end && *end != ','))
            return sl_fail(SL_E_USAGE, "--prompt-ids \"%s\" is no list of tokens: give numbers between commas", text);
        SL_TRY(append(tokens, (int32_t) id));
        at = end;
        if (!*at)
            return SL_OK;
    }
}

static bool ends_whole(const sl_text *text)
{
    static const char unknown[] = "\xef\xbf\xbd"; /* what a part of a character decodes to */
    return text->length < 3 || memcmp(text->data + text->length - 3, unknown, 3) != 0;
}

/* Decodes from the newest token on, whose text was whole: what follows may depend on it, and not on those before. */
static sl_status begin_anew(sl_words *w, int32_t id)
{
    sl_text alone = {0};
    sl_status status = sl_decode(w->tokenizer, &id, 1, true, &alone);
    if (status == SL_OK && ends_whole(&alone)) { /* else it was the end of a character: later */
        w->since.ids[0] = id;
        w->since.count = 1;
        w->known = alone.length;
    }
    sl_text_free(&alone);
    return status;
}

/* A tokenizer may drop the space in front of a text's first word, so the prompt's last tokens stand in front of the ones to come. */
sl_status sl_words_begin(sl_words *w, const int32_t *ids, int64_t count)
{
    enum { BEFORE = 8 };
    sl_text all = {0};
    w->since.count = 0;
    w->known = 0;
    for (int64_t i = SL_MAX(count - BEFORE, 0); i < count && w->tokenizer; i++)
        SL_TRY(append(&w->since, ids[i]));
    if (w->since.count == 0)
        return SL_OK;
    sl_status status = sl_decode(w->tokenizer, w->since.ids, w->since.count, true, &all);
    w->known = all.length;
    sl_text_free(&all);
    return status;
}

static sl_status decode_word(sl_words *w, int32_t id, sl_text *out)
{
    sl_text all = {0};
    if (sl_tokenizer_piece(w->tokenizer, id, &(size_t){0}) == NULL)
        return SL_OK; /* a row of the embedding that no token has */
    SL_TRY(append(&w->since, id));
    sl_status status = sl_decode(w->tokenizer, w->since.ids, w->since.count, true, &all);
    if (status == SL_OK && ends_whole(&all) && all.length >= w->known) {
        if (all.length > w->known)
            sl_text_append(out, all.data + w->known, all.length - w->known);
        w->known = all.length;
        status = sl_text_status(out);
        if (status == SL_OK && w->since.count >= MOST_SINCE)
            status = begin_anew(w, id);
    }
    sl_text_free(&all);
    return status;
}

sl_status sl_words_decode(sl_words *w, int32_t id, sl_text *out)
{
    const char byte = (char) (unsigned char) id;
    if (w->tokenizer)
        return decode_word(w, id, out);
    if (w->bytes && id > 0 && id < 256)
        sl_text_append(out, &byte, 1);
    return sl_text_status(out);
}

bool sl_words_ends(const sl_words *w, int32_t id)
{
    bool ends = false;
    for (int i = 0; i < w->n_ends; i++)
        ends = ends || w->ends[i] == id;
    return ends;
}
