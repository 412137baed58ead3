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
    CHECK_OK(sl_corpus_open(test_path("tree/"), NULL, 256, -1, &corpus));
    CHECK_I64(sl_corpus_files(corpus), 2);
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

/* A run's folder inside its data is no data, before it is there and after; the data's own folder cannot be the run's. */
TEST(the_run_is_left_out)
{
    sl_corpus *corpus;
    put_text("home/a.txt", "a");
    CHECK_OK(sl_corpus_open(test_path("home"), test_path("home/runs/1"), 256, -1, &corpus));
    uint64_t before = sl_corpus_fingerprint(corpus);
    sl_corpus_close(corpus);
    put_text("home/runs/1/events.jsonl", "{}");
    put_text("home/runs/1/checkpoints/step-00000001/config.json", "{}");
    CHECK_OK(sl_corpus_open(test_path("home"), test_path("home/../home/runs/1/"), 256, -1, &corpus));
    CHECK_I64(sl_corpus_files(corpus), 1);
    CHECK_U64(sl_corpus_fingerprint(corpus), before);
    sl_corpus_close(corpus);
    CHECK_OK(sl_corpus_open(test_path("home"), test_path("home/runs/2"), 256, -1, &corpus));
    CHECK_I64(sl_corpus_files(corpus), 3);
    sl_corpus_close(corpus);
    CHECK_FAILS(sl_corpus_open(test_path("home"), test_path("home"), 256, -1, &corpus), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "another --out");
}

TEST(shards_and_lists)
{
    sl_corpus *corpus;
    int32_t tokens[5000];
    put_shard("s/two.bin", 20240520, 1, 4000, 4000, 10);
    put_shard("s/one.bin", 20240520, 2, 100, 100, 70000);
    put_text("s/README.md", "left out beside shards");
    CHECK_OK(sl_corpus_open(test_path("s"), NULL, 128256, -1, &corpus));
    CHECK_I64(sl_corpus_files(corpus), 2);
    CHECK_I64(sl_corpus_tokens(corpus), 4100);
    CHECK_OK(sl_corpus_read(corpus, 0, 4100, tokens));
    CHECK_I64(tokens[0], 70000);
    CHECK_I64(tokens[99], 70099);
    CHECK_I64(tokens[100], 10);
    CHECK_I64(tokens[4099], 4009);
    uint64_t before = sl_corpus_fingerprint(corpus);
    sl_corpus_close(corpus);
    put_text("s/README.md", "and so no matter of the fingerprint's");
    CHECK_OK(sl_corpus_open(test_path("s"), NULL, 128256, -1, &corpus));
    CHECK_U64(sl_corpus_fingerprint(corpus), before);
    sl_corpus_close(corpus);

    char list[1200];
    put_shard("llama.bin", 20240801, 7, 3, 3, 128000);
    snprintf(list, sizeof list, "%s,%s", test_path("llama.bin"), test_path("s/two.bin"));
    CHECK_OK(sl_corpus_open(list, NULL, 128256, -1, &corpus));
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
    CHECK_OK(sl_corpus_open(test_path("many"), NULL, 256, -1, &corpus));
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
    CHECK_FAILS(sl_corpus_open(path, NULL, vocab, -1, &corpus), want);
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

TEST(token_out_of_vocabulary_is_named)
{
    sl_corpus *corpus;
    int32_t tokens[16];
    put_shard("v.bin", 20240520, 1, 10, 10, 95);
    CHECK_OK(sl_corpus_open(test_path("v.bin"), NULL, 100, -1, &corpus));
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
    CHECK_OK(sl_corpus_open(test_path("cut.txt"), NULL, 256, -1, &corpus));
    REQUIRE(truncate(test_path("cut.txt"), 4) == 0);
    CHECK_FAILS(sl_corpus_read(corpus, 0, 11, tokens), SL_E_IO);
    CHECK_CONTAINS(sl_error_message(), "ends at byte 4");
    sl_corpus_close(corpus);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(folder_as_documents);
    RUN(the_run_is_left_out);
    RUN(shards_and_lists);
    RUN(more_files_than_descriptors);
    RUN(refuses);
    RUN(token_out_of_vocabulary_is_named);
    RUN(file_cut_while_in_use);
    return test_end();
}
