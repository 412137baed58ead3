/* `sluice tokenize`: printing, shards that depend on no thread count, and the way back. */
#include "run_cli.h"

#include "data/corpus.h"
#include "data/shard.h"

#define GOLDEN SL_SOURCE_DIR "/tests/golden/text/"

static void run_ok(const char *args)
{
    int code = sluice(args);
    CHECK_MSG(code == 0, "sluice %s: exit code %d: %s", args, code, err);
}

TEST(prints_tokens)
{
    run_ok("tokenize --tokenizer " GOLDEN "llama3 --text 'a<|eot_id|>' --json");
    CHECK_CONTAINS(out, "\"pieces\":[\"<|begin_of_text|>\",\"a\",\"<|eot_id|>\"]");
    run_ok("tokenize --tokenizer " GOLDEN "llama3 --text 'a<|eot_id|>' --plain --json");
    CHECK(!strstr(out, "<|eot_id|>"));
    CHECK(!strstr(out, "<|begin_of_text|>"));
    write_text("a.txt", "one two\n");
    run_ok("tokenize --tokenizer " GOLDEN "gpt2 --data a.txt");
    char ids[256], args[512];
    snprintf(ids, sizeof ids, "%.*s", (int) strcspn(out, "\n"), out);
    snprintf(args, sizeof args, "tokenize --tokenizer " GOLDEN "gpt2 --decode --text '%s'", ids);
    run_ok(args);
    CHECK_STR(out, "one two\n\n");
}

static void write_many(void)
{
    sl_text text = {0};
    for (int i = 0; i < 3000; i++)
        sl_text_printf(&text, "{\"text\": \"record %d of many, isn't it? %d\\n\"}\n", i, i * i);
    CHECK_OK(sl_file_write_atomic(test_path("many.jsonl"), text.data, text.length));
    sl_text_free(&text);
}

TEST(shards)
{
    char *bytes[2];
    size_t length[2];
    sl_shard shard;
    write_many();
    for (int i = 0; i < 2; i++) {
        run_ok(i ? "tokenize --tokenizer " GOLDEN
                   "qwen2 --data many.jsonl,a.txt --separator '<|endoftext|>' --out t.bin --threads 3 --json"
                 : "tokenize --tokenizer " GOLDEN
                   "qwen2 --data many.jsonl,a.txt --separator '<|endoftext|>' --out t.bin --threads 1 --json");
        CHECK_CONTAINS(out, "\"documents\":3001");
        CHECK_OK(sl_file_read_all(test_path("t.bin"), 1 << 24, &bytes[i], &length[i]));
    }
    CHECK(length[0] == length[1] && memcmp(bytes[0], bytes[1], length[0]) == 0);
    CHECK_OK(sl_shard_parse("t.bin", bytes[0], length[0], (int64_t) length[0], &shard));
    CHECK(shard.kind == SL_TOKENS_U16);
    int64_t separators = 0;
    for (size_t at = SL_SHARD_HEADER_BYTES; at < length[0]; at += 2)
        separators += (unsigned char) bytes[0][at] + 256 * (unsigned char) bytes[0][at + 1] == shard.document_token;
    CHECK_I64(separators, 3001);
    sl_free(bytes[0]);
    sl_free(bytes[1]);
    run_ok("tokenize --tokenizer " GOLDEN "qwen2 --data t.bin --decode --plain");
    CHECK(strncmp(out, "record 0 of many, isn't it? 0\nrecord 1 of", 41) == 0);
    run_ok("tokenize --tokenizer " GOLDEN "qwen2 --data many.jsonl --separator none --out s.bin --shard-tokens 10000");
    CHECK(sl_file_exists(test_path("s.bin")) && sl_file_exists(test_path("s-00001.bin")));
}

TEST(refuses)
{
    refused(2, "tokenize --text a", "--tokenizer");
    refused(2, "tokenize --tokenizer . --text a", "tokenizer.json");
    refused(2, "tokenize --tokenizer " GOLDEN "gpt2 --data a.txt --out x.bin", "--separator");
    refused(2, "tokenize --tokenizer " GOLDEN "gpt2 --data a.txt --out x.bin --separator nope", "nope");
    refused(2, "tokenize --tokenizer " GOLDEN "gpt2 --decode --text '1 x'", "\"x\"");
    refused(1, "tokenize --tokenizer " GOLDEN "gpt2 --data t.parquet", "t.parquet");
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(prints_tokens);
    RUN(shards);
    RUN(refuses);
    return test_end();
}
