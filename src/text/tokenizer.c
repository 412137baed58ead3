#include "text/tokenizer.h"

#include <stdio.h>
#include <string.h>

#include "core/file.h"
#include "core/hash.h"
#include "text/internal.h"
#include "text/unicode.h"

static const size_t file_limit = (size_t) 1 << 30;

sl_status sl_keep(sl_tokenizer *t, const char *text, size_t length, const char **kept)
{
    char *copy;
    SL_TRY(sl_region_alloc(t->region, &copy, length + 1, 1));
    if (length)
        memcpy(copy, text, length);
    *kept = copy;
    return SL_OK;
}

/* Where every character has tokens of its own, none is dropped or joined to another as unknown: then a word may be cut wherever no token
 * goes across. Words of the byte level are cut already. */
static bool may_cut(const sl_tokenizer *t)
{
    const sl_bpe *bpe = &t->bpe;
    bool all = bpe->byte_fallback && !bpe->byte_level && !bpe->by_heap && !bpe->ignore_merges;
    for (int i = 0; i < 256; i++)
        all = all && bpe->fallback[i] >= 0;
    return all && t->n_stages < SL_MOST_COMPONENTS;
}

sl_status sl_tokenizer_finish(sl_tokenizer *t)
{
    t->classes = sl_unicode_table();
    SL_TRY(sl_bpe_finish(&t->bpe));
    int64_t size = t->bpe.vocab.size;
    SL_TRY(sl_alloc(&t->added_of, SL_MAX(size, 1), sizeof *t->added_of));
    memset(t->added_of, 0xff, (size_t) size * sizeof *t->added_of);
    for (int64_t i = 0; i < t->n_added; i++)
        t->added_of[t->added[i].id] = (int32_t) i;
    SL_TRY(sl_matcher_build(t, false));
    SL_TRY(sl_matcher_build(t, true));
    if (may_cut(t))
        t->stages[t->n_stages++] = (sl_cut){.kind = SL_STAGE_CUT};
    if (t->bos < 0 && t->before.count)
        t->bos = t->before.ids[0];
    if (t->eos < 0 && t->behind.count)
        t->eos = t->behind.ids[t->behind.count - 1];
    return SL_OK;
}

/* ---- files ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* tokenizer.json; else the only *.tiktoken file; else tokenizer.model, which is one where Meta wrote it. */
static sl_status find_in_folder(sl_region *region, const char *folder, const char **path)
{
    const char **names, *found = NULL;
    int64_t count, tiktoken = 0;
    SL_TRY(sl_dir_list(region, folder, &names, &count));
    for (int64_t i = 0; i < count; i++) {
        if (strcmp(names[i], "tokenizer.json") == 0)
            return sl_region_printf(region, path, "%s/tokenizer.json", folder);
        if (ends_with(names[i], ".tiktoken"))
            found = names[i], tiktoken++;
        else if (!found && strcmp(names[i], "tokenizer.model") == 0)
            found = names[i];
    }
    if (tiktoken > 1)
        return sl_fail(SL_E_USAGE, "%s holds %lld .tiktoken files: name the one to use", folder, (long long) tiktoken);
    if (!found)
        return sl_fail(SL_E_USAGE, "%s holds no tokenizer.json and no .tiktoken file", folder);
    return sl_region_printf(region, path, "%s/%s", folder, found);
}

static sl_status read_file(sl_tokenizer *t, const char *path)
{
    char *text;
    size_t length;
    SL_TRY(sl_file_read_all(path, file_limit, &text, &length));
    const char *at = text;
    while (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t')
        at++;
    t->fingerprint = sl_hash64(text, length, 0);
    sl_status status;
    if (*at == '{')
        status = sl_tokenizer_read_json(t, path, text, length);
    else if (length > 2 && text[0] == '\n' && memchr(text, '\0', SL_MIN(length, 4096))) /* a protocol buffer */
        status = sl_fail(SL_E_UNSUPPORTED, "%s is a SentencePiece model: convert it to a tokenizer.json", path);
    else
        status = sl_tokenizer_read_tiktoken(t, path, text, length);
    sl_free(text);
    return status;
}

/* tokenizer_config.json in the same folder; none is no error. */
static sl_status read_config_beside(sl_tokenizer *t, const char *path)
{
    const char *slash = strrchr(path, '/'), *config;
    char *text;
    size_t length;
    SL_TRY(
        sl_region_printf(t->region, &config, "%.*stokenizer_config.json", slash ? (int) (slash + 1 - path) : 0, path));
    if (!sl_file_exists(config))
        return SL_OK;
    SL_TRY(sl_file_read_all(config, file_limit, &text, &length));
    sl_status status = sl_tokenizer_read_config(t, config, text, length);
    sl_free(text);
    return status;
}

static sl_status open_at(sl_tokenizer *t, const char *path)
{
    if (sl_dir_exists(path))
        SL_TRY(find_in_folder(t->region, path, &path));
    SL_TRY(read_file(t, path));
    SL_TRY(read_config_beside(t, path));
    sl_status status = sl_tokenizer_finish(t);
    return status == SL_OK ? SL_OK : sl_fail_at(status, "%s", path);
}

sl_status sl_tokenizer_open(const char *path, sl_tokenizer **tokenizer)
{
    sl_tokenizer *t;
    SL_TRY(sl_alloc(&t, 1, sizeof *t));
    t->bos = t->eos = t->bpe.unk = -1;
    sl_status status = sl_region_create(&t->region);
    if (status == SL_OK)
        status = open_at(t, path);
    if (status != SL_OK) {
        sl_tokenizer_close(t);
        return status;
    }
    *tokenizer = t;
    return SL_OK;
}

void sl_tokenizer_close(sl_tokenizer *t)
{
    if (!t)
        return;
    for (int64_t i = 0; i < t->n_changes; i++)
        sl_regex_destroy(t->changes[i].regex);
    for (int64_t i = 0; i < t->n_stages; i++)
        sl_regex_destroy(t->stages[i].regex);
    sl_bpe_free(&t->bpe);
    sl_trie_free(&t->raw.trie);
    sl_trie_free(&t->normalized.trie);
    sl_tokens_free(&t->before);
    sl_tokens_free(&t->behind);
    sl_free(t->added);
    sl_free(t->added_of);
    sl_region_destroy(t->region);
    sl_free(t);
}

/* ---- what it knows ---- */

int64_t sl_tokenizer_size(const sl_tokenizer *t)
{
    return t->bpe.vocab.size;
}

int32_t sl_tokenizer_find(const sl_tokenizer *t, const char *token)
{
    return sl_vocab_find(&t->bpe.vocab, token, strlen(token));
}

const char *sl_tokenizer_piece(const sl_tokenizer *t, int32_t id, size_t *length)
{
    return sl_vocab_text(&t->bpe.vocab, id, length);
}

int32_t sl_tokenizer_bos(const sl_tokenizer *t)
{
    return t->bos;
}

int32_t sl_tokenizer_eos(const sl_tokenizer *t)
{
    return t->eos;
}

bool sl_tokenizer_is_special(const sl_tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->bpe.vocab.size && t->added_of[id] >= 0 && t->added[t->added_of[id]].special;
}

uint64_t sl_tokenizer_fingerprint(const sl_tokenizer *t)
{
    return t->fingerprint;
}
