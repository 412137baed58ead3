/* What a corpus consists of, in words and as JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "data/packed.h"
#include "data/token_cache.h"

static const struct {
    const char *one, *many; /* for people */
    const char *key;        /* for programs */
} skip_names[SL_SKIP_COUNT] = {
    [SL_SKIP_HIDDEN] = {"hidden", "hidden", "hidden"},
    [SL_SKIP_BUILD] = {"build folder", "build folders", "build_folders"},
    [SL_SKIP_RUN] = {"run folder", "run folders", "run_folder"},
    [SL_SKIP_LINK] = {"link", "links", "links"},
    [SL_SKIP_SPECIAL] = {"special file", "special files", "special"},
    [SL_SKIP_EMPTY] = {"empty", "empty", "empty"},
    [SL_SKIP_PACKED] = {"record file or archive", "record files or archives", "packed"},
    [SL_SKIP_BINARY] = {"binary", "binary", "binary"},
    [SL_SKIP_BESIDE_SHARDS] = {"text beside shards", "texts beside shards", "text_beside_shards"},
    [SL_SKIP_BESIDE_RECORDS] = {"text beside records", "texts beside records", "text_beside_records"},
};

bool sl_data_format_find(const char *name, sl_data_format *format)
{
    static const char *const names[] = {
        [SL_DATA_AUTO] = "auto",  [SL_DATA_BYTES] = "bytes",     [SL_DATA_TEXT] = "text",
        [SL_DATA_JSON] = "jsonl", [SL_DATA_PARQUET] = "parquet", [SL_DATA_SHARDS] = "shards"};
    for (int i = 0; i < (int) SL_COUNT(names); i++) {
        if (strcmp(name, names[i]) != 0)
            continue;
        *format = (sl_data_format) i;
        return true;
    }
    return false;
}

const char *sl_corpus_kind(const sl_corpus_contents *c)
{
    const bool text = c->files[SL_TOKENS_TEXT] || c->files[SL_TOKENS_CODED_TEXT];
    if (c->files[SL_TOKENS_PARQUET])
        return text || c->files[SL_TOKENS_JSON] ? "parquet and other records" : "parquet records";
    if (c->files[SL_TOKENS_JSON])
        return text ? "JSON records and text" : "JSON records";
    if (c->cache)
        return "text";
    if (text)
        return "text as bytes";
    if (c->files[SL_TOKENS_U16] && c->files[SL_TOKENS_U32])
        return "uint16 and uint32 shards";
    return c->files[SL_TOKENS_U16] ? "uint16 shards" : "uint32 shards";
}

int64_t sl_corpus_file_count(const sl_corpus_contents *c)
{
    int64_t count = 0;
    for (int kind = 0; kind < SL_TOKEN_KINDS; kind++)
        count += c->files[kind];
    return count;
}

void sl_corpus_skipped_text(const sl_corpus_contents *c, char *out, size_t size)
{
    size_t length = 0;
    out[0] = 0;
    for (int i = 0; i < SL_SKIP_COUNT && length < size; i++)
        if (c->skipped[i])
            length += (size_t) snprintf(out + length, size - length, "%s%" PRId64 " %s", length ? ", " : "",
                                        c->skipped[i], c->skipped[i] == 1 ? skip_names[i].one : skip_names[i].many);
}

void sl_corpus_put(const sl_corpus_contents *c, sl_json_writer *w)
{
    sl_json_put_string(w, "kind", sl_corpus_kind(c));
    sl_json_put_i64(w, "files", sl_corpus_file_count(c));
    sl_json_put_i64(w, "tokens", c->tokens);
    sl_json_begin_object(w, "skipped");
    for (int i = 0; i < SL_SKIP_COUNT; i++)
        if (c->skipped[i])
            sl_json_put_i64(w, skip_names[i].key, c->skipped[i]);
    sl_json_end_object(w);
    if (!c->cache)
        return;
    sl_json_put_string(w, "encoding", c->encoding);
    sl_json_put_string(w, "cache", c->cache->folder);
    sl_json_put_bool(w, "cache_reused", c->cache->reused);
    sl_token_cache_put(c->cache, w);
    if (!c->packing)
        return;
    sl_json_begin_object(w, "packing");
    sl_json_put_i64(w, "documents", c->packing->documents);
    sl_json_put_i64(w, "sequences", c->packing->sequences);
    sl_json_put_i64(w, "cropped", c->packing->cropped);
    sl_json_put_i64(w, "cropped_tokens", c->packing->cropped_tokens);
    sl_json_put_i64(w, "dropped", c->packing->dropped);
    sl_json_put_i64(w, "padding", c->packing->padding);
    sl_json_end_object(w);
}

void sl_corpus_made_text(const sl_corpus_contents *c, char *out, size_t size)
{
    char a[32], b[32];
    out[0] = 0;
    if (!c->cache)
        return;
    sl_token_cache_text(c->cache, out, size);
    size_t length = strlen(out);
    if (c->packing && c->packing->cropped)
        length +=
            (size_t) snprintf(out + length, size - length, "; %s cropped by %s tokens",
                              sl_format_count(c->packing->cropped, a), sl_format_count(c->packing->cropped_tokens, b));
    if (c->packing && c->packing->dropped && length < size)
        snprintf(out + length, size - length, "; %s dropped, with nothing to learn in a sequence",
                 sl_format_count(c->packing->dropped, a));
}

void sl_corpus_summary(const sl_corpus_contents *c, char *out, size_t size)
{
    char skipped[256], made[1024], files[32], tokens[32], packed[96] = "";
    const int64_t count = sl_corpus_file_count(c);
    sl_corpus_skipped_text(c, skipped, sizeof skipped);
    sl_corpus_made_text(c, made, sizeof made);
    if (c->packing)
        snprintf(packed, sizeof packed, "; %" PRId64 " documents packed into %" PRId64 " sequences",
                 c->packing->documents, c->packing->sequences);
    snprintf(out, size, "%s: %s file%s, %s tokens%s%s%s%s%s", sl_corpus_kind(c), sl_format_count(count, files),
             count == 1 ? "" : "s", sl_format_count(c->tokens, tokens), skipped[0] ? "; skipped: " : "", skipped,
             made[0] ? "; " : "", made, packed);
}
