/* Nothing is lost without a count: of every format, the records that are there are those of each kind and those left out, the documents
 * of the cache are those of each kind, and packing drops or places each. */
#include "core/file.h"
#include "data/packed.h"
#include "data/token_cache.h"
#include "test.h"

#define GOLDEN SL_SOURCE_DIR "/tests/golden/data/"

/* False where the build lacks a library. */
static bool open_data(const char *data, const char *tokenizer, int64_t seqlen, sl_source **source)
{
    sl_loader_config config = {
        .data = data,
        .seqlen = seqlen,
        .vocab = 100000,
        .document_token = -1,
        .max_documents = 1,
        .format = SL_DATA_AUTO,
        .tokenize = {
            .tokenizer = tokenizer, .cache = test_path("cache"), .train_on = SL_TRAIN_ON_ASSISTANT, .threads = 1}};
    if (!tokenizer)
        config.vocab = 256;
    sl_status status = sl_loader_open(&config, source);
    if (status == SL_E_UNSUPPORTED && !getenv("CI") && strstr(sl_error_message(), "install"))
        return false;
    CHECK_OK(status);
    return status == SL_OK;
}

/* `records`: that there are; -1: the files know. */
static void check_counts(const char *data, const char *tokenizer, int64_t seqlen, int64_t records)
{
    sl_source *source;
    if (!open_data(data, tokenizer, seqlen, &source))
        return;
    const sl_corpus_contents *contents = source->contents[SL_SPLIT_TRAIN];
    const sl_token_cache *cache = contents->cache;
    int64_t kept = 0, left_out = 0;
    REQUIRE(cache);
    for (int i = 0; i < SL_RECORD_KINDS; i++)
        kept += cache->records.kinds[i];
    for (int i = 0; i < SL_RECORD_SKIPS; i++)
        left_out += cache->records.skipped[i];
    CHECK_MSG(kept + left_out == cache->records.records, "%s: %lld used and %lld left out of %lld records", data,
              (long long) kept, (long long) left_out, (long long) cache->records.records);
    CHECK_MSG(records < 0 || cache->records.records == records, "%s: %lld records, not %lld", data,
              (long long) cache->records.records, (long long) records);
    CHECK_MSG(cache->documents == kept, "%s: %lld documents of %lld records", data, (long long) cache->documents,
              (long long) kept);
    if (contents->packing) {
        const sl_packing_counts *p = contents->packing;
        CHECK_MSG(p->documents + p->dropped == cache->documents, "%s: %lld packed and %lld dropped of %lld documents",
                  data, (long long) p->documents, (long long) p->dropped, (long long) cache->documents);
        CHECK(p->cropped <= p->documents);
    }
    char summary[1600], number[32];
    sl_corpus_summary(contents, summary, sizeof summary);
    for (int i = 0; i < SL_RECORD_SKIPS; i++)
        if (cache->records.skipped[i])
            CHECK_CONTAINS(summary, " left out (");
    if (contents->packing && contents->packing->cropped)
        CHECK_CONTAINS(summary, " cropped by ");
    CHECK_CONTAINS(summary, sl_format_count(cache->records.records, number));
    sl_source_close(source);
}

static const char *written(const char *name, const char *text)
{
    const char *path = test_path(name);
    CHECK_OK(sl_file_write_atomic(path, text, strlen(text)));
    return path;
}

#define MIXED                                                                                                        \
    "{\"text\": \"some text that is long enough for a sequence\"}\n{\"text\": \"\"}\nno json\n{\"other\": 1}\n"      \
    "{\"prompt\": \"ab\", \"completion\": \"cd\"}\n{\"prompt\": \"ab\", \"completion\": \"\"}\n{\"text\": null}\n\n" \
    "{\"prompt\": \"a prompt that takes all of a sequence\", \"completion\": \"c\"}\n"                               \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", \"content\": \"y\"}]}\n"    \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}\n{\"messages\": []}\n{\"text\": \"\\ud83d\"}\n[1]\n"

TEST(every_record_is_counted)
{
    char path[700];
    CHECK_OK(sl_dir_create(test_path("chatty")));
    char *tokenizer;
    size_t length;
    CHECK_OK(sl_file_read_all(SL_SOURCE_DIR "/tests/golden/chats/bytes/tokenizer.json", 1 << 20, &tokenizer, &length));
    CHECK_OK(sl_file_write_atomic(test_path("chatty/tokenizer.json"), tokenizer, length));
    sl_free(tokenizer);
    written("chatty/chat_template.jinja", "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>"
                                          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
                                          "{% endif %}");
    snprintf(path, sizeof path, "%s", test_path("chatty"));
    written("mixed.jsonl", MIXED);
    check_counts(test_path("mixed.jsonl"), NULL, 16, 13); /* as bytes, which chats cannot be */
    check_counts(test_path("mixed.jsonl"), path, 16, 13);
    check_counts(test_path("mixed.jsonl"), path, 512, 13);
    check_counts(written("array.json", "[{\"text\": \"abcdefgh\"}, {\"text\": \"\"}, 3, {\"b\": 1}]"), NULL, 4, 4);
    check_counts(written("plain.txt", "a text\nof lines\n"), path, 4, 1);
    check_counts(GOLDEN "members.jsonl.gz", path, 2, 2);
    check_counts(GOLDEN "frames.jsonl.zst", path, 2, -1);
    const char *const tables[] = {"plain", "required", "snappy", "gzip-v2", "zstd-delta", "chats", "chats-v2"};
    for (int64_t i = 0; i < SL_COUNT(tables); i++) {
        char table[600];
        snprintf(table, sizeof table, GOLDEN "%s.parquet", tables[i]);
        check_counts(table, path, i < 5 ? 4 : 64, -1);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(every_record_is_counted);
    return test_end();
}
