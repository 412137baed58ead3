/* Files, their cache, and the corpus over its tokens. */
#include "data/tokenized.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/log.h"
#include "data/internal.h"

enum { MOST_BYTE_VOCABULARY = 512 };

static sl_status check_vocabulary(const sl_corpus_config *files, const sl_tokenize_config *config,
                                  const sl_encoding *encoding)
{
    if (encoding->size > files->vocab)
        return sl_fail(SL_E_USAGE,
                       "%s has tokens up to %" PRId64 ", but the model's vocabulary has %" PRId64
                       ": use the tokenizer that belongs to the model",
                       encoding->name, encoding->size - 1, files->vocab);
    if (!config->tokenizer && files->vocab > MOST_BYTE_VOCABULARY)
        return sl_fail(SL_E_USAGE,
                       "%s holds text, and the model's vocabulary of %" PRId64
                       " tokens needs a tokenizer: give --tokenizer DIR, a folder with a tokenizer.json",
                       files->paths, files->vocab);
    return SL_OK;
}

/* Whether its files are whole; opens the one of the tokens' bytes. */
static sl_status check_cache(const sl_token_cache *cache, int64_t tokens, sl_corpus *corpus)
{
    char path[1100];
    if (tokens != cache->tokens)
        return sl_fail(SL_E_FORMAT, "%s should hold %" PRId64 " tokens, but its files hold %" PRId64 ": remove it",
                       cache->folder, cache->tokens, tokens);
    snprintf(path, sizeof path, "%s/bytes", cache->folder);
    sl_status status = sl_reader_open(path, &corpus->bytes);
    if (status == SL_OK && sl_reader_size(corpus->bytes) != tokens)
        status = sl_fail(SL_E_FORMAT, "%s has %" PRId64 " bytes, not one for each of %" PRId64 " tokens", path,
                         sl_reader_size(corpus->bytes), tokens);
    return status == SL_OK ? SL_OK
                           : sl_fail_at(status, "this cache of tokens cannot be used, remove %s", cache->folder);
}

/* The corpus over the cache, which knows what it was made of. */
static sl_status open_cache(const sl_corpus *files, const sl_token_cache *cache, const sl_encoding *encoding,
                            sl_corpus **out)
{
    char path[1100];
    sl_corpus *corpus;
    snprintf(path, sizeof path, "%s/tokens", cache->folder);
    sl_corpus_config config = {.paths = path,
                               .vocab = files->config.vocab,
                               .document_token = files->config.document_token,
                               .format = SL_DATA_SHARDS};
    if (config.document_token < 0)
        config.document_token = cache->document_token;
    sl_status status = sl_corpus_open(&config, &corpus);
    if (status != SL_OK)
        return sl_fail_at(status, "this cache of tokens cannot be used, remove %s", cache->folder);
    int64_t tokens = corpus->contents.tokens;
    corpus->config.paths = files->config.paths; /* `path` ends here */
    corpus->cache = *cache;
    snprintf(corpus->encoding, sizeof corpus->encoding, "%s", encoding->name);
    corpus->contents = files->contents;
    corpus->contents.tokens = tokens;
    corpus->contents.cache = &corpus->cache;
    corpus->contents.encoding = corpus->encoding;
    status = check_cache(cache, tokens, corpus);
    if (status == SL_OK)
        *out = corpus;
    else
        sl_corpus_close(corpus);
    return status;
}

static sl_status tokenize(const sl_corpus *files, const sl_tokenize_config *config, sl_corpus **corpus)
{
    sl_encoding *encoding;
    sl_token_cache cache;
    sl_status status;
    sl_encoding_config how = {
        .tokenizer = config->tokenizer, .document_token = files->config.document_token, .train_on = config->train_on};
    SL_TRY(sl_encoding_open(&how, &encoding));
    sl_token_cache_config made = {files, encoding, config->cache, config->field, config->threads};
    SL_TRY_GOTO(check_vocabulary(&files->config, config, encoding), done);
    SL_TRY_GOTO(sl_token_cache_open(&made, &cache), done);
    if (cache.records.first[0] && !cache.reused)
        sl_info("the first record that is left out: %s", cache.records.first);
    status = open_cache(files, &cache, encoding, corpus);
done:
    sl_encoding_close(encoding);
    return status;
}

sl_status sl_tokenized_open(const sl_corpus_config *files, const sl_tokenize_config *config, sl_corpus **corpus)
{
    sl_corpus_config wanted = *files;
    sl_corpus *found;
    wanted.records = true;
    wanted.tokenize = config->tokenizer && files->format != SL_DATA_BYTES;
    SL_TRY(sl_corpus_open(&wanted, &found));
    if (!sl_corpus_holds_records(found)) {
        *corpus = found;
        return SL_OK;
    }
    sl_status status = tokenize(found, config, corpus);
    sl_corpus_close(found);
    return status;
}

sl_status sl_corpus_open_records(const sl_corpus *corpus, int64_t file, const char *field, sl_record_counts *counts,
                                 sl_records **records)
{
    const sl_corpus_file *f = &corpus->sources[file];
    sl_record_format format = f->kind == SL_TOKENS_JSON      ? SL_FORMAT_JSON
                              : f->kind == SL_TOKENS_PARQUET ? SL_FORMAT_PARQUET
                                                             : SL_FORMAT_TEXT;
    return sl_records_open(&(sl_records_config){f->path, format, field, counts}, records);
}

const char *sl_corpus_path(const sl_corpus *corpus, int64_t file)
{
    return corpus->sources[file].path;
}

int64_t sl_corpus_file_bytes(const sl_corpus *corpus)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < corpus->n_sources; i++)
        bytes += corpus->sources[i].bytes;
    return bytes;
}
