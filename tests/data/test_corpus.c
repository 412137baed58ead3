/* Files as a token stream: what is taken, in which order, and that damage is a sentence with the file's name. */
#include <sys/stat.h>

#include "core/file.h"
#include "data/corpus.h"
#include "data/shard.h"
#include "test.h"

static void put(const char *name, const void *bytes, size_t length)
{
    char folder[512];
    snprintf(folder, sizeof folder, "%s", test_path(name));
    *strrchr(folder, '/') = 0;
    CHECK_OK(sl_dir_create(folder));
    CHECK_OK(sl_file_write_atomic(test_path(name), bytes, length));
}

static void put_text(const char *name, const char *text)
{
    put(name, text, strlen(text));
}

/* A shard with `count` tokens announced and `present` written. */
static void put_shard(const char *name, int32_t magic, int32_t version, int64_t count, int64_t present, uint32_t first)
{
    static unsigned char bytes[SL_SHARD_HEADER_BYTES + 4096 * 4];
    int32_t header[3] = {magic, version, (int32_t) count};
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, header, sizeof header);
    size_t width = magic == 20240520 && version == 1 ? 2 : 4;
    for (int64_t i = 0; i < present; i++) {
        uint32_t token = first + (uint32_t) i;
        memcpy(bytes + SL_SHARD_HEADER_BYTES + (size_t) i * width, &token, width);
    }
    put(name, bytes, SL_SHARD_HEADER_BYTES + (size_t) present * width);
}

static sl_status open_corpus(const char *paths, const char *leave_out, int64_t vocab, int64_t document_token,
                             sl_corpus **corpus)
{
    sl_corpus_config config = {
        .paths = paths, .leave_out = leave_out, .vocab = vocab, .document_token = document_token};
    return sl_corpus_open(&config, corpus);
}

static int64_t file_count(const sl_corpus *corpus)
{
    return sl_corpus_file_count(sl_corpus_contents_of(corpus));
}

static void check_skipped(const sl_corpus *corpus, const char *want)
{
    char skipped[256];
    sl_corpus_skipped_text(sl_corpus_contents_of(corpus), skipped, sizeof skipped);
    CHECK_STR(skipped, want);
}

TEST(folder_as_documents)
{
    sl_corpus *corpus;
    int32_t tokens[64];
    put_text("tree/b.txt", "bb");
    put_text("tree/a/deep/x.c", "x");
    put_text("tree/.hidden/secret.txt", "no");
    put_text("tree/.dot", "no");
    put_text("tree/build/made.txt", "no");
    put_text("tree/empty.txt", "");
    put("tree/binary.png", "PNG\0\1\2", 6);
    put_text("tree/records.jsonl", "{}");
    put_text("tree/packed.GZ", "no NUL in it");
    REQUIRE(symlink("b.txt", test_path("tree/link.txt")) == 0);
    REQUIRE(symlink("a", test_path("tree/link")) == 0);
    REQUIRE(mkfifo(test_path("tree/fifo"), 0600) == 0);
    CHECK_OK(open_corpus(test_path("tree/"), NULL, 256, -1, &corpus));
    CHECK_I64(file_count(corpus), 2);
    CHECK_STR(sl_corpus_kind(sl_corpus_contents_of(corpus)), "text as bytes");
    check_skipped(corpus, "2 hidden, 1 build folder, 2 links, 1 special file, 1 empty, 2 record files or archives, "
                          "1 binary");
    CHECK_I64(sl_corpus_tokens(corpus), 5);
    CHECK_I64(sl_corpus_document_token(corpus), 0);
    CHECK_OK(sl_corpus_read(corpus, 0, 5, tokens));
    int32_t want[] = {0, 'x', 0, 'b', 'b'};
    CHECK(memcmp(tokens, want, sizeof want) == 0);
    for (int64_t first = 0; first < 5; first++) /* any piece is the same piece */
        for (int64_t count = 0; first + count <= 5; count++) {
            CHECK_OK(sl_corpus_read(corpus, first, count, tokens));
            CHECK(memcmp(tokens, want + first, (size_t) count * 4) == 0);
        }
    sl_corpus_close(corpus);
}

/* However a folder is written, its files have the same names and their messages the same paths. */
TEST(slashes_do_not_matter)
{
    static const char *const written[] = {"slashes", "slashes/", "slashes///"};
    sl_corpus *corpus;
    uint64_t fingerprint = 0;
    char want[600];
    put_text("slashes/a.txt", "a");
    put_text("slashes/b/c.txt", "c");
    for (int64_t i = 0; i < SL_COUNT(written); i++) {
        CHECK_OK(open_corpus(test_path(written[i]), NULL, 256, -1, &corpus));
        fingerprint = i ? fingerprint : sl_corpus_fingerprint(corpus);
        CHECK_U64(sl_corpus_fingerprint(corpus), fingerprint);
        sl_corpus_close(corpus);
    }
    put_shard("slashes/damaged.bin", 20240520, 1, 10, 5, 0);
    snprintf(want, sizeof want, "%s/damaged.bin", test_path("slashes"));
    for (int64_t i = 0; i < SL_COUNT(written); i++) {
        CHECK(open_corpus(test_path(written[i]), NULL, 256, -1, &corpus) != SL_OK);
        CHECK_CONTAINS(sl_error_message(), want);
    }
}

/* A run's folder inside its data is no data, before it is there and after; the data's own folder cannot be the run's. */
TEST(the_run_is_left_out)
{
    sl_corpus *corpus;
    put_text("home/a.txt", "a");
    CHECK_OK(open_corpus(test_path("home"), test_path("home/runs/1"), 256, -1, &corpus));
    uint64_t before = sl_corpus_fingerprint(corpus);
    sl_corpus_close(corpus);
    put_text("home/runs/1/log.txt", "{}");
    put_text("home/runs/1/checkpoints/step-00000001/config.json", "{}");
    CHECK_OK(open_corpus(test_path("home"), test_path("home/../home/runs/1/"), 256, -1, &corpus));
    CHECK_I64(file_count(corpus), 1);
    CHECK_U64(sl_corpus_fingerprint(corpus), before);
    check_skipped(corpus, "1 run folder");
    sl_corpus_close(corpus);
    CHECK_OK(open_corpus(test_path("home"), test_path("home/runs/2"), 256, -1, &corpus));
    CHECK_I64(file_count(corpus), 3);
    sl_corpus_close(corpus);
    CHECK_FAILS(open_corpus(test_path("home"), test_path("home"), 256, -1, &corpus), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "another --out");
}

TEST(shards_and_lists)
{
    sl_corpus *corpus;
    int32_t tokens[5000];
    put_shard("s/two.bin", 20240520, 1, 4000, 4000, 10);
    put_shard("s/one.bin", 20240520, 2, 100, 100, 70000);
    put_text("s/README.md", "left out beside shards");
    CHECK_OK(open_corpus(test_path("s"), NULL, 128256, -1, &corpus));
    CHECK_I64(file_count(corpus), 2);
    CHECK_I64(sl_corpus_tokens(corpus), 4100);
    CHECK_OK(sl_corpus_read(corpus, 0, 4100, tokens));
    CHECK_I64(tokens[0], 70000);
    CHECK_I64(tokens[99], 70099);
    CHECK_I64(tokens[100], 10);
    CHECK_I64(tokens[4099], 4009);
    uint64_t before = sl_corpus_fingerprint(corpus);
    CHECK_STR(sl_corpus_kind(sl_corpus_contents_of(corpus)), "uint16 and uint32 shards");
    check_skipped(corpus, "1 text beside shards");
    sl_corpus_close(corpus);
    put_text("s/README.md", "and so no matter of the fingerprint's");
    CHECK_OK(open_corpus(test_path("s"), NULL, 128256, -1, &corpus));
    CHECK_U64(sl_corpus_fingerprint(corpus), before);
    sl_corpus_close(corpus);

    char list[1200];
    put_shard("llama.bin", 20240801, 7, 3, 3, 128000);
    snprintf(list, sizeof list, "%s,%s", test_path("llama.bin"), test_path("s/two.bin"));
    CHECK_OK(open_corpus(list, NULL, 128256, -1, &corpus));
    CHECK_I64(sl_corpus_tokens(corpus), 4003);
    CHECK_I64(sl_corpus_document_token(corpus), 128000);
    CHECK(sl_corpus_fingerprint(corpus) != before);
    sl_corpus_close(corpus);
}

TEST(more_files_than_descriptors)
{
    sl_corpus *corpus;
    char name[64];
    int32_t tokens[40];
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "many/%02d.txt", i);
        put_text(name, "z");
    }
    size_t heap = sl_heap_bytes();
    CHECK_OK(open_corpus(test_path("many"), NULL, 256, -1, &corpus));
    CHECK(sl_corpus_bytes(corpus) >= sl_heap_bytes() - heap && sl_corpus_bytes(corpus) < 20000);
    uint64_t calls = sl_heap_calls();
    for (int turn = 0; turn < 3; turn++)
        CHECK_OK(sl_corpus_read(corpus, turn * 20, 40, tokens));
    CHECK_I64(sl_heap_calls() - calls, 0);
    CHECK_I64(tokens[0], 0);
    CHECK_I64(tokens[39], 'z');
    sl_corpus_close(corpus);
}

static void refused(const char *path, int64_t vocab, sl_status want, const char *part)
{
    sl_corpus *corpus;
    CHECK_FAILS(open_corpus(path, NULL, vocab, -1, &corpus), want);
    CHECK_CONTAINS(sl_error_message(), part);
}

TEST(refuses)
{
    put_shard("bad/short.bin", 20240520, 1, 100, 99, 0);
    refused(test_path("bad/short.bin"), 65536, SL_E_FORMAT, "truncated");
    put_shard("bad/long.bin", 20240520, 1, 100, 101, 0);
    refused(test_path("bad/long.bin"), 65536, SL_E_FORMAT, "damaged");
    put_shard("bad/negative.bin", 20240520, 1, -5, 0, 0);
    refused(test_path("bad/negative.bin"), 65536, SL_E_FORMAT, "claims -5 tokens");
    put_shard("bad/version.bin", 20240520, 9, 0, 0, 0);
    refused(test_path("bad/version.bin"), 65536, SL_E_FORMAT, "version 9");
    put("bad/stub.bin", "\x88\xd8\x34\x01", 4);
    refused(test_path("bad/stub.bin"), 65536, SL_E_FORMAT, "1024 bytes");
    put("bad/nul.dat", "a\0b", 3);
    refused(test_path("bad/nul.dat"), 65536, SL_E_FORMAT, "nul.dat");
    refused(test_path("nowhere"), 65536, SL_E_IO, "nowhere");
    put_text("plain.txt", "abc");
    refused(test_path("plain.txt"), 128, SL_E_USAGE, "at least 256");
    CHECK_OK(sl_dir_create(test_path("hollow")));
    refused(test_path("hollow"), 256, SL_E_IO, "no text file");
    REQUIRE(mkfifo(test_path("fifo"), 0600) == 0);
    refused(test_path("fifo"), 256, SL_E_IO, "regular file");
    refused("", 256, SL_E_IO, "");
}

/* Text suits byte-level models: all bytes and at most as many tokens of other uses. */
TEST(text_needs_a_byte_level_model)
{
    sl_corpus *corpus;
    put_text("words.txt", "abc");
    for (int64_t vocab = 256; vocab <= 512; vocab += 128) {
        CHECK_OK(open_corpus(test_path("words.txt"), NULL, vocab, -1, &corpus));
        sl_corpus_close(corpus);
    }
    refused(test_path("words.txt"), 255, SL_E_USAGE, "at least 256");
    refused(test_path("words.txt"), 513, SL_E_USAGE, "but the model's has 513: tokenize it");
    refused(test_path("words.txt"), 4096, SL_E_USAGE, "--data-format bytes");
    sl_corpus_config forced = {
        .paths = test_path("words.txt"), .vocab = 4096, .document_token = -1, .format = SL_DATA_BYTES};
    CHECK_OK(sl_corpus_open(&forced, &corpus));
    CHECK_I64(sl_corpus_tokens(corpus), 4);
    CHECK_I64(sl_corpus_document_token(corpus), 0);
    sl_corpus_close(corpus);
    forced.vocab = 255;
    CHECK_FAILS(sl_corpus_open(&forced, &corpus), SL_E_USAGE);
}

/* Formats whose bytes are mostly syntax: refused when named, whatever the model. */
TEST(records_and_archives_are_refused)
{
    static const char *const records[] = {"d.jsonl", "tokenizer.json", "table.CSV", "part-0.parquet", "x.arrow"};
    static const char *const archives[] = {"text.zst", "text.txt.gz", "all.tar"};
    sl_corpus *corpus;
    char name[64];
    for (int64_t i = 0; i < SL_COUNT(records); i++) {
        snprintf(name, sizeof name, "named/%s", records[i]);
        put_text(name, "{\"text\": \"abc\"}\n");
        refused(test_path(name), 256, SL_E_FORMAT, "holds records or a table");
        CHECK_CONTAINS(sl_error_message(), records[i]);
    }
    for (int64_t i = 0; i < SL_COUNT(archives); i++) {
        snprintf(name, sizeof name, "named/%s", archives[i]);
        put_text(name, "abc");
        refused(test_path(name), 256, SL_E_FORMAT, "unpack it");
    }
    sl_corpus_config forced = {
        .paths = test_path("named/d.jsonl"), .vocab = 256, .document_token = -1, .format = SL_DATA_BYTES};
    CHECK_OK(sl_corpus_open(&forced, &corpus));
    sl_corpus_close(corpus);

    /* The .json and .csv of a source tree are text like the rest of it; by themselves they are records. */
    put_text("source/code.c", "int x;");
    put_text("source/config.json", "{}");
    CHECK_OK(open_corpus(test_path("source"), NULL, 256, -1, &corpus));
    CHECK_I64(file_count(corpus), 2);
    check_skipped(corpus, "");
    sl_corpus_close(corpus);
    put_text("tables/a.json", "{}");
    put_text("tables/b.csv", "1,2");
    refused(test_path("tables"), 256, SL_E_FORMAT, "a.json holds records");
    put_text("lines/a.jsonl", "{}");
    refused(test_path("lines"), 256, SL_E_IO, "skipped: 1 record file or archive");

    /* Content says more than a name. */
    put_shard("named/tokens.json", 20240520, 1, 3, 3, 7);
    CHECK_OK(open_corpus(test_path("named/tokens.json"), NULL, 65536, -1, &corpus));
    CHECK_STR(sl_corpus_kind(sl_corpus_contents_of(corpus)), "uint16 shards");
    sl_corpus_close(corpus);
}

TEST(kinds_do_not_mix)
{
    char list[1200];
    put_text("mix/a.txt", "abc");
    put_shard("mixed.bin", 20240520, 1, 3, 3, 7);
    snprintf(list, sizeof list, "%s,%s", test_path("mix/a.txt"), test_path("mixed.bin"));
    refused(list, 256, SL_E_USAGE, "mixes text (");
    CHECK_CONTAINS(sl_error_message(), "mixed.bin");
    snprintf(list, sizeof list, "%s,%s", test_path("mixed.bin"), test_path("mix"));
    refused(list, 256, SL_E_USAGE, "mix/a.txt");
}

static uint64_t sample_of(const char *path, uint64_t *fingerprint)
{
    sl_corpus *corpus;
    CHECK_OK(open_corpus(path, NULL, 256, -1, &corpus));
    uint64_t sample = sl_corpus_sample(corpus);
    *fingerprint = sl_corpus_fingerprint(corpus);
    sl_corpus_close(corpus);
    return sample;
}

/* Other content is noticed where names and sizes are the same; a copy is the same data. */
TEST(changed_content)
{
    static char text[300000];
    static const int64_t sizes[] = {1, 4096, 65536, sizeof text};
    uint64_t names, now;
    for (int64_t k = 0; k < SL_COUNT(sizes); k++) {
        memset(text, 'a', sizeof text);
        put("then/data.txt", text, (size_t) sizes[k]);
        uint64_t sample = sample_of(test_path("then"), &names);
        put("copy/data.txt", text, (size_t) sizes[k]);
        CHECK_U64(sample_of(test_path("copy"), &now), sample);
        CHECK_U64(now, names);
        const int64_t changed[] = {0, sizes[k] / 2, sizes[k] - 1};
        for (int64_t i = 0; i < SL_COUNT(changed); i++) {
            if (changed[i] == sizes[k] / 2 && sizes[k] > 65536)
                continue; /* between two samples */
            text[changed[i]] = 'b';
            put("then/data.txt", text, (size_t) sizes[k]);
            CHECK(sample_of(test_path("then"), &now) != sample);
            CHECK_U64(now, names);
            text[changed[i]] = 'a';
        }
        memset(text, 'c', sizeof text);
        memset(text, 'a', 4096); /* the same beginning */
        put("then/data.txt", text, (size_t) sizes[k]);
        CHECK(sizes[k] <= 4096 || sample_of(test_path("then"), &now) != sample);
    }
    put("then/data.txt", text, sizeof text - 1);
    sample_of(test_path("then"), &now);
    CHECK(now != names);
}

TEST(token_out_of_vocabulary_is_named)
{
    sl_corpus *corpus;
    int32_t tokens[16];
    put_shard("v.bin", 20240520, 1, 10, 10, 95);
    CHECK_OK(open_corpus(test_path("v.bin"), NULL, 100, -1, &corpus));
    CHECK_OK(sl_corpus_read(corpus, 0, 5, tokens));
    CHECK_FAILS(sl_corpus_read(corpus, 3, 5, tokens), SL_E_FORMAT);
    CHECK_CONTAINS(sl_error_message(), "v.bin: token 5 (at byte 1034) is 100");
    sl_corpus_close(corpus);
}

TEST(file_cut_while_in_use)
{
    sl_corpus *corpus;
    int32_t tokens[16];
    put_text("cut.txt", "0123456789");
    CHECK_OK(open_corpus(test_path("cut.txt"), NULL, 256, -1, &corpus));
    REQUIRE(truncate(test_path("cut.txt"), 4) == 0);
    CHECK_FAILS(sl_corpus_read(corpus, 0, 11, tokens), SL_E_IO);
    CHECK_CONTAINS(sl_error_message(), "ends at byte 4");
    sl_corpus_close(corpus);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(folder_as_documents);
    RUN(slashes_do_not_matter);
    RUN(the_run_is_left_out);
    RUN(shards_and_lists);
    RUN(more_files_than_descriptors);
    RUN(refuses);
    RUN(text_needs_a_byte_level_model);
    RUN(records_and_archives_are_refused);
    RUN(kinds_do_not_mix);
    RUN(changed_content);
    RUN(token_out_of_vocabulary_is_named);
    RUN(file_cut_while_in_use);
    return test_end();
}
