/* `sluice tokenize`: printing, shards that depend on no thread count, and the way back. */
#include "run_cli.h"

#include "data/corpus.h"
#include "data/shard.h"
#include "data/tokenized.h"

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

/* A NUL is text like any other. */
TEST(prints_nul)
{
    CHECK_OK(sl_file_write_atomic(test_path("nul.txt"), "a\0b", 3));
    run_ok("tokenize --tokenizer " GOLDEN "gpt2 --data nul.txt --data-format text --out nul.bin --separator none");
    run_ok("tokenize --tokenizer " GOLDEN "gpt2 --data nul.bin --decode --json");
    CHECK_CONTAINS(out, "{\"text\":\"a\\u0000b\"}");
    run_ok("tokenize --tokenizer " GOLDEN "gpt2 --data nul.bin --decode");
    CHECK(memcmp(out, "a\0b\n", 5) == 0);
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
                   "llama3 --data many.jsonl,a.txt --separator '<|end_of_text|>' --out t.bin --threads 3 --json"
                 : "tokenize --tokenizer " GOLDEN
                   "llama3 --data many.jsonl,a.txt --separator '<|end_of_text|>' --out t.bin --threads 1 --json");
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
    run_ok("tokenize --tokenizer " GOLDEN "llama3 --data t.bin --decode --plain");
    CHECK(strncmp(out, "record 0 of many, isn't it? 0\nrecord 1 of", 41) == 0);
    run_ok("tokenize --tokenizer " GOLDEN "llama3 --data many.jsonl --separator none --out s.bin --shard-tokens 10000");
    CHECK(sl_file_exists(test_path("s.bin")) && sl_file_exists(test_path("s-00001.bin")));
}

static void same_as_training(const char *family, const char *data)
{
    char args[1200], tokenizer[400];
    sl_corpus *made, *shard;
    snprintf(tokenizer, sizeof tokenizer, GOLDEN "%s", family);
    snprintf(args, sizeof args, "tokenize --tokenizer %s --data %s --out same.bin", tokenizer, data);
    int code = sluice(args);
    if (code != 0 && strstr(err, "install") && !getenv("CI"))
        return; /* the build lacks a library */
    CHECK_MSG(code == 0, "sluice %s: exit code %d: %s", args, code, err);
    const char *path = data[0] == '/' ? data : test_path(data);
    sl_corpus_config config = {.paths = path, .vocab = 100000, .document_token = -1};
    sl_tokenize_config with = {.tokenizer = tokenizer, .cache = test_path("cache"), .threads = 1};
    CHECK_OK(sl_tokenized_open(&config, &with, &made));
    config.paths = test_path("same.bin");
    CHECK_OK(sl_corpus_open(&config, &shard));
    int64_t count = sl_corpus_tokens(made), done = 0, differ = 0;
    CHECK(count > 0);
    CHECK_I64(sl_corpus_tokens(shard), count);
    CHECK_I64(sl_corpus_document_token(shard), sl_corpus_document_token(made));
    for (int64_t n; count == sl_corpus_tokens(shard) && done < count; done += n) {
        int32_t a[4096], b[4096];
        n = SL_MIN(count - done, (int64_t) SL_COUNT(a));
        CHECK_OK(sl_corpus_read(made, done, n, a));
        CHECK_OK(sl_corpus_read(shard, done, n, b));
        differ += memcmp(a, b, (size_t) n * sizeof *a) != 0;
    }
    CHECK_MSG(differ == 0, "%s, %s: the shard is not what training reads", family, data);
    sl_corpus_close(made);
    sl_corpus_close(shard);
}

/* Every format, through tokenizers that begin texts and those that only end them. */
TEST(shards_are_what_training_reads)
{
    static const char *const data[] = {"many.jsonl",
                                       "a.txt",
                                       "pairs.jsonl",
                                       SL_SOURCE_DIR "/tests/golden/data/members.jsonl.gz",
                                       SL_SOURCE_DIR "/tests/golden/data/frames.jsonl.zst",
                                       SL_SOURCE_DIR "/tests/golden/data/snappy.parquet",
                                       SL_SOURCE_DIR "/tests/golden/data/zstd-delta.parquet"};
    static const char *const families[] = {"gpt2", "llama3", "llama2", "qwen2"};
    write_text("pairs.jsonl", "{\"prompt\": \"one t\", \"completion\": \"wo\"}\n{\"text\": \"three\"}\n");
    for (int64_t i = 0; i < SL_COUNT(data); i++)
        same_as_training(families[i % SL_COUNT(families)], data[i]);
    for (int64_t f = 0; f < SL_COUNT(families); f++)
        same_as_training(families[f], "pairs.jsonl");
    run_ok("tokenize --tokenizer " GOLDEN "gpt2 --data pairs.jsonl --json"); /* printed, they are texts too */
    CHECK_CONTAINS(out, "\"pieces\":[\"on\",\"e\",\"\xc4\xa0t\",\"w\",\"o\",");
    write_text("named.jsonl", "{\"title\": \"a\", \"body\": \"one two\"}\n");
    run_ok("tokenize --tokenizer " GOLDEN "gpt2 --data named.jsonl --data-field body --out n.bin --json");
    CHECK_CONTAINS(out, "\"documents\":1,\"bytes\":7,");
}

/* A chat as training sees it, with what the loss counts. */
TEST(shows_chats)
{
    char *tokenizer;
    size_t length;
    CHECK_OK(sl_file_read_all(SL_SOURCE_DIR "/tests/golden/chats/bytes/tokenizer.json", 1 << 20, &tokenizer, &length));
    CHECK_OK(sl_dir_create(test_path("model")));
    CHECK_OK(sl_file_write_atomic(test_path("model/tokenizer.json"), tokenizer, length));
    sl_free(tokenizer);
    write_text("chats.jsonl",
               "{\"messages\": [{\"role\": \"user\", \"content\": \"<|im_end|>\"}, {\"role\": \"assistant\", "
               "\"content\": \"a\"}, {\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", "
               "\"content\": \"b\"}]}\n");
    refused(1, "tokenize --tokenizer model --data chats.jsonl --chat assistant", "has no chat template");
    write_text("model/chat_template.jinja",
               "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
               "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}");
    run_ok("tokenize --tokenizer model --data chats.jsonl --chat assistant");
    CHECK_CONTAINS(out, "<|im_start|>user\n<|im_end|><|im_end|><|im_start|>assistant\n«a<|im_end|>»<|im_start|>user\n"
                        "q<|im_end|><|im_start|>assistant\n«b<|im_end|>»\n-- ");
    CHECK_CONTAINS(out, " tokens, 4 counted\n");
    run_ok("tokenize --tokenizer model --data chats.jsonl --chat completion --json");
    CHECK_CONTAINS(out, "0,1,1]}\n");
    refused(2, "tokenize --tokenizer model --data chats.jsonl --chat answers", "choose all, assistant or completion");
    refused(2, "tokenize --tokenizer model --data chats.jsonl --chat all --out x.bin", "--chat prints the chats");
    refused(1, "tokenize --tokenizer model --data many.jsonl --chat all", "no chats");
    refused(1, "tokenize --tokenizer model --data chats.jsonl --out x.bin --separator none", "holds chats");
}

/* A tokenizer of the texts themselves, which training data and chats can use. */
TEST(trains)
{
    char *bytes[2];
    size_t length[2];
    for (int i = 0; i < 2; i++) {
        run_ok(i ? "tokenize --train --vocab 300 --data many.jsonl,a.txt --out made3 --threads 3 --json"
                 : "tokenize --train --vocab 300 --data many.jsonl,a.txt --out made1 --threads 1 --json");
        CHECK_CONTAINS(out, "\"vocab\":300,\"merges\":43,");
        CHECK_STR(err, "");
        const char *path = i ? "made3/tokenizer.json" : "made1/tokenizer.json";
        CHECK_OK(sl_file_read_all(test_path(path), 1 << 20, &bytes[i], &length[i]));
    }
    CHECK(length[0] == length[1] && memcmp(bytes[0], bytes[1], length[0]) == 0);
    sl_free(bytes[0]);
    sl_free(bytes[1]);
    run_ok("tokenize --tokenizer made1 --text ' record<|endoftext|>' --json");
    CHECK_CONTAINS(out, "\"<|endoftext|>\"]}");
    CHECK(strstr(out, "\"tokens\":[") && strstr(out, ",0],\"pieces\":[\""));
    run_ok("tokenize --tokenizer made1 --data many.jsonl --out made.bin --json");
    CHECK_CONTAINS(out, "\"separator\":0,");
    run_ok("tokenize --train --vocab 1000 --data a.txt --min-count 1 --special-tokens '<s>,<t>' --out few");
    CHECK_CONTAINS(out, "few: 263 tokens from 3 distinct words");
    CHECK_CONTAINS(err, "warning: the text gives 263 tokens, not 1,000: no two of them meet 1 time or more");
    refused(2, "tokenize --train --vocab 1000 --data a.txt --out few", "few/tokenizer.json is there already");
    refused(2, "tokenize --train --vocab 256 --data a.txt --out f", "give 257");
    refused(2, "tokenize --train --vocab 300 --data a.txt", "--train needs --vocab, --data and --out");
    refused(2, "tokenize --train --vocab 300 --data a.txt --out f --tokenizer made1", "leave out --tokenizer");
    refused(2, "tokenize --train --vocab 300 --data a.txt --out f --special-tokens a", "\"a\" is one character");
    refused(2, "tokenize --train --vocab 300 --data a.txt --out f --special-tokens '<s>,<s>'", "twice");
    refused(2, "tokenize --train --vocab 300 --data a.txt --out f --special-tokens ,", "lists none");
    refused(2, "tokenize --train --vocab 300 --data a.txt --out f --min-count 0", "--min-count 0");
    refused(2, "tokenize --tokenizer made1 --vocab 300 --data a.txt", "add --train");
    write_text("empty.txt", "");
    refused(1, "tokenize --train --vocab 300 --data empty.txt --out f", "holds no tokens");
    CHECK(!sl_dir_exists(test_path("f")));
}

TEST(refuses)
{
    refused(2, "tokenize --text a", "--tokenizer");
    refused(2, "tokenize --tokenizer . --text a", "tokenizer.json");
    refused(2, "tokenize --tokenizer " GOLDEN "words --data a.txt --out x.bin", "--separator");
    refused(2, "tokenize --tokenizer " GOLDEN "gpt2 --data t.bin --out x.bin", "holds tokens already");
    refused(2, "tokenize --tokenizer " GOLDEN "gpt2 --data a.txt --data-format bytes --out x.bin", "choose auto");
    refused(2, "tokenize --tokenizer " GOLDEN "gpt2 --data a.txt --out x.bin --separator nope", "nope");
    refused(2, "tokenize --tokenizer " GOLDEN "gpt2 --decode --text '1 x'", "\"x\"");
    refused(1, "tokenize --tokenizer " GOLDEN "gpt2 --data t.parquet", "t.parquet");
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(prints_tokens);
    RUN(prints_nul);
    RUN(shards);
    RUN(shards_are_what_training_reads);
    RUN(shows_chats);
    RUN(trains);
    RUN(refuses);
    return test_end();
}
