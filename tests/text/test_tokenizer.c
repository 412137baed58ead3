/* Tokenizers of every family against the ids and texts that Hugging Face's tokenizers give (tests/golden/make_tokenizers.py), the search
 * against the rule by the heap, and what files are refused. */
#include "test.h"

#include "core/file.h"
#include "core/json.h"
#include "text/bpe.h"
#include "text/internal.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

static const char *const families[] = {"gpt2",   "llama3", "qwen2",         "qwen35", "deepseek", "o200k",
                                       "tekken", "smollm", "llama2_legacy", "llama2", "gemma",    "words"};

static const sl_json *read_json(sl_region *region, const char *path)
{
    char *text;
    size_t length;
    const sl_json *root;
    CHECK_OK(sl_file_read_all(path, 1 << 26, &text, &length));
    CHECK_OK(sl_json_parse(region, path, text, length, &root));
    sl_free(text);
    return root;
}

static void compare_ids(const char *family, int64_t row, const char *what, const sl_tokens *got, const sl_json *want)
{
    int64_t i = 0;
    CHECK_MSG(got->count == want->count, "%s, text %lld, %s: %lld ids, not %lld", family, (long long) row, what,
              (long long) got->count, (long long) want->count);
    for (const sl_json *id = want->child; id && i < got->count; id = id->next, i++) {
        if (got->ids[i] != id->integer) {
            CHECK_MSG(false, "%s, text %lld, %s: id %lld is %d, not %lld", family, (long long) row, what, (long long) i,
                      got->ids[i], (long long) id->integer);
            return;
        }
    }
}

static void compare_text(const char *family, int64_t row, const char *what, const sl_text *got, const sl_json *want)
{
    CHECK_MSG(want->kind == SL_JSON_STRING && got->length == want->length &&
                  memcmp(got->data ? got->data : "", want->string, want->length) == 0,
              "%s, text %lld, %s: \"%s\", not \"%s\"", family, (long long) row, what, got->data, want->string);
}

static void check_row(const char *family, int64_t row, sl_tokenizer *t, sl_encoder *e, const sl_json *text,
                      const sl_json *want)
{
    sl_tokens ids = {NULL, 0, 0};
    sl_text decoded = {0}, skipped = {0};
    const sl_json *without = sl_json_get(want, "skipped"), *with = sl_json_get(want, "text");
    const sl_json *plain = sl_json_get(want, "plain");
    with = with->kind == SL_JSON_BOOL ? text : with; /* true: the text itself */
    CHECK_OK(sl_encode(e, text->string, text->length, SL_ENCODE_AROUND | SL_ENCODE_SPECIAL, &ids));
    compare_ids(family, row, "ids", &ids, sl_json_get(want, "ids"));
    CHECK_OK(sl_decode(t, ids.ids, ids.count, false, &decoded));
    compare_text(family, row, "decoded", &decoded, with);
    CHECK_OK(sl_decode(t, ids.ids, ids.count, true, &skipped));
    compare_text(family, row, "decoded without specials", &skipped, without ? without : with);
    ids.count = 0;
    CHECK_OK(sl_encode(e, text->string, text->length, SL_ENCODE_PLAIN, &ids));
    compare_ids(family, row, "plain ids", &ids, plain ? plain : sl_json_get(want, "ids"));
    sl_tokens_free(&ids);
    sl_text_free(&decoded);
    sl_text_free(&skipped);
}

/* For lack of an optional library; CI has them all. */
static bool is_left_out(sl_status status)
{
    return status == SL_E_UNSUPPORTED && !getenv("CI") &&
           strstr(sl_error_message(), "which this build does not have") != NULL;
}

TEST(golden)
{
    sl_region *region;
    CHECK_OK(sl_region_create(&region));
    const sl_json *texts = read_json(region, SL_SOURCE_DIR "/tests/golden/text/texts.json");
    for (int64_t f = 0; f < SL_COUNT(families); f++) {
        char path[512];
        sl_tokenizer *t;
        sl_encoder *e;
        int64_t row = 0;
        snprintf(path, sizeof path, SL_SOURCE_DIR "/tests/golden/text/%s/expected.json", families[f]);
        const sl_json *want = read_json(region, path)->child;
        snprintf(path, sizeof path, SL_SOURCE_DIR "/tests/golden/text/%s", families[f]);
        sl_status status = sl_tokenizer_open(path, &t);
        if (is_left_out(status)) {
            printf("%s is left out: %s\n", families[f], sl_error_message());
            continue;
        }
        CHECK_OK(status);
        CHECK_OK(sl_encoder_create(t, &e));
        for (const sl_json *text = texts->child; text && want; text = text->next, want = want->next, row++)
            check_row(families[f], row, t, e, text, want);
        CHECK(row == texts->count);
        sl_encoder_destroy(e);
        sl_tokenizer_close(t);
    }
    sl_region_destroy(region);
}

/* ---- the search against the heap ---- */

static uint32_t state;
static uint32_t next_random(uint32_t below)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

/* A vocabulary of every byte, for words of bytes. */
static void add_bytes(sl_bpe *bpe)
{
    bpe->byte_level = true;
    for (int b = 0; b < 256; b++) {
        char text[4];
        int length = sl_utf8_put(sl_alphabet_of((unsigned char) b), text);
        CHECK_OK(sl_vocab_add(&bpe->vocab, bpe->vocab.size, text, (size_t) length));
    }
}

/* Tokens over few letters, joined at random, so that merges cross, repeat and come in any order of rank. With `bytes`, every byte is a
 * token too, and those letters stand among others that no merge names. */
static void random_bpe(sl_bpe *bpe, bool several, bool bytes)
{
    int letters = 2 + (int) next_random(3), merges = 4 + (int) next_random(40);
    bpe->unk = -1;
    if (bytes)
        add_bytes(bpe);
    for (int i = 0; i < letters && !bytes; i++)
        CHECK_OK(sl_vocab_add(&bpe->vocab, i, &"abcd"[i], 1));
    int64_t base = bpe->vocab.size - (bytes ? 0 : letters); /* ids behind the bytes are those of merges */
    for (int rank = 0; rank < merges; rank++) {
        char text[128];
        size_t length[2];
        int32_t part[2];
        for (int p = 0; p < 2; p++) {
            int64_t i = next_random((uint32_t) (bpe->vocab.size - base + (bytes ? letters : 0)));
            part[p] = (int32_t) (!bytes ? i : i < letters ? 'a' + i : base + i - letters);
            const char *word = sl_vocab_text(&bpe->vocab, part[p], &length[p]);
            if (length[0] + (p ? length[1] : 0) > 20)
                return;
            memcpy(text + (p ? length[0] : 0), word, length[p]);
        }
        int32_t id = sl_vocab_find(&bpe->vocab, text, length[0] + length[1]);
        if (id >= 0 && !several)
            continue;
        if (id < 0)
            CHECK_OK(sl_vocab_add(&bpe->vocab, id = (int32_t) bpe->vocab.size, text, length[0] + length[1]));
        uint32_t shuffled = several ? next_random(1000) * 64 + (uint32_t) rank : (uint32_t) rank;
        CHECK_OK(sl_bpe_add_merge(bpe, part[0], part[1], id, shuffled));
    }
}

TEST(search_follows_the_rule)
{
    for (int round = 0; round < 3000; round++) {
        sl_bpe bpe = {.unk = -1};
        sl_bpe_scratch scratch = {.heap = NULL};
        sl_tokens found = {NULL, 0, 0}, rule = {NULL, 0, 0};
        state = (uint32_t) round * 7919u;
        random_bpe(&bpe, round & 1, round & 2);
        CHECK_OK(sl_bpe_finish(&bpe));
        for (int n = 0; n < 8; n++) {
            char word[200];
            size_t length = 1 + next_random(n < 6 ? 30 : 200);
            for (size_t i = 0; i < length; i++)
                word[i] = "abcdefgh"[next_random(round & 2 ? 8 : 4)];
            found.count = rule.count = 0;
            CHECK_OK(sl_bpe_word(&bpe, &scratch, word, length, &found));
            CHECK_OK(sl_bpe_word_by_heap(&bpe, &scratch, word, length, &rule));
            bool same = found.count == rule.count &&
                        (!rule.count || memcmp(found.ids, rule.ids, (size_t) rule.count * sizeof *rule.ids) == 0);
            CHECK_MSG(same, "round %d: \"%.*s\" is not encoded as the rule says", round, (int) length, word);
        }
        sl_tokens_free(&found);
        sl_tokens_free(&rule);
        sl_bpe_scratch_free(&scratch);
        sl_bpe_free(&bpe);
    }
}

/* The tokens of spaces that training on source code makes. Behind each run of 32 there are many shorter runs that fit and lead nowhere:
 * the search has to remember that, or the word is left to the heap. */
TEST(a_long_run_needs_no_heap)
{
    enum { LENGTH = (1 << 18) + 11 };
    static const uint8_t merges[][2] = {
        {1, 1},  {2, 2},  {2, 1},   {4, 4},  {4, 3},   {8, 3},  {8, 8},   {8, 7},  {8, 11},  {4, 1},   {4, 2},
        {16, 8}, {16, 7}, {16, 11}, {8, 1},  {16, 16}, {8, 4},  {8, 2},   {16, 4}, {8, 6},   {16, 15}, {24, 5},
        {16, 5}, {8, 5},  {16, 1},  {16, 2}, {16, 24}, {16, 6}, {16, 19}, {24, 4}, {32, 2},  {24, 1},  {40, 2},
        {24, 2}, {24, 6}, {32, 6},  {32, 1}, {32, 4},  {40, 6}, {32, 5},  {40, 1}, {16, 23}, {40, 4},  {32, 15}};
    static char word[LENGTH];
    sl_bpe bpe = {.unk = -1};
    sl_bpe_scratch scratch = {.heap = NULL};
    sl_tokens found = {NULL, 0, 0}, rule = {NULL, 0, 0};
    memset(word, ' ', LENGTH);
    CHECK_OK(sl_vocab_add(&bpe.vocab, 0, word, 1));
    for (uint32_t rank = 0; rank < SL_COUNT(merges); rank++) {
        size_t left = merges[rank][0], right = merges[rank][1];
        int32_t id = sl_vocab_find(&bpe.vocab, word, left + right);
        if (id < 0)
            CHECK_OK(sl_vocab_add(&bpe.vocab, id = (int32_t) bpe.vocab.size, word, left + right));
        CHECK_OK(sl_bpe_add_merge(&bpe, sl_vocab_find(&bpe.vocab, word, left), sl_vocab_find(&bpe.vocab, word, right),
                                  id, rank));
    }
    CHECK_OK(sl_bpe_finish(&bpe));
    CHECK_OK(sl_bpe_word(&bpe, &scratch, word, LENGTH, &found));
    CHECK_I64(scratch.heap_capacity, 0);
    CHECK_OK(sl_bpe_word_by_heap(&bpe, &scratch, word, LENGTH, &rule));
    CHECK(found.count == rule.count && memcmp(found.ids, rule.ids, (size_t) rule.count * sizeof *rule.ids) == 0);
    sl_tokens_free(&found);
    sl_tokens_free(&rule);
    sl_bpe_scratch_free(&scratch);
    sl_bpe_free(&bpe);
}

/* ---- files ---- */

static sl_status open_text(const char *name, const char *text, sl_tokenizer **t)
{
    CHECK_OK(sl_file_write_atomic(test_path(name), text, strlen(text)));
    return sl_tokenizer_open(test_path(name), t);
}

static void refused(const char *text, const char *because)
{
    sl_tokenizer *t = NULL;
    sl_status status = open_text("tokenizer.json", text, &t);
    CHECK_MSG(status != SL_OK, "taken: %s", text);
    CHECK_CONTAINS(sl_error_message(), because);
    if (status == SL_OK)
        sl_tokenizer_close(t);
}

#define MODEL(rest) "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, " rest "}"

TEST(refuses_what_it_does_not_know)
{
    refused("{}", "model");
    refused("{\"model\": {\"type\": \"Unigram\"}}", "Unigram");
    refused("{\"model\": {\"type\": \"WordPiece\", \"vocab\": {}}}", "WordPiece");
    refused("{" MODEL("\"merges\": [\"a c\"]") "}", "\"c\"");
    refused("{" MODEL("\"merges\": [\"b a\"]") "}", "\"ba\"");
    refused("{" MODEL("\"merges\": [\"a b c\"]") "}", "merge");
    refused("{" MODEL("\"merges\": [[\"a\"]]") "}", "merge");
    refused("{" MODEL("\"merges\": [], \"dropout\": 0.1") "}", "dropout");
    refused("{" MODEL("\"merges\": [], \"end_of_word_suffix\": \"</w>\"") "}", "end_of_word_suffix");
    refused("{" MODEL("\"merges\": [], \"unk_token\": \"x\"") "}", "unk_token");
    refused("{" MODEL("\"merges\": [], \"future\": 1") "}", "future");
    refused("{\"future\": 1, " MODEL("\"merges\": []") "}", "future");
    refused("{\"normalizer\": {\"type\": \"Precompiled\"}, " MODEL("\"merges\": []") "}", "Precompiled");
    refused("{\"pre_tokenizer\": {\"type\": \"UnicodeScripts\"}, " MODEL("\"merges\": []") "}", "UnicodeScripts");
    refused("{\"decoder\": {\"type\": \"CTC\"}, " MODEL("\"merges\": []") "}", "CTC");
    refused("{\"post_processor\": {\"type\": \"Other\"}, " MODEL("\"merges\": []") "}", "Other");
    refused("{\"added_tokens\": [{\"id\": 1, \"content\": \"x\"}], " MODEL("\"merges\": []") "}", "id 1");
    refused("{\"added_tokens\": [{\"id\": 99999999, \"content\": \"x\"}], " MODEL("\"merges\": []") "}", "99999999");
    refused("no base64", "tiktoken");
    sl_tokenizer *t;
    CHECK_FAILS(sl_tokenizer_open(test_path("nowhere"), &t), SL_E_IO);
    CHECK_OK(sl_dir_create(test_path("empty")));
    CHECK_FAILS(sl_tokenizer_open(test_path("empty"), &t), SL_E_USAGE);
}

static void check_ids(sl_encoder *e, const char *text, size_t length, const int32_t *want, int64_t count)
{
    sl_tokens got = {NULL, 0, 0};
    CHECK_OK(sl_encode(e, text, length, SL_ENCODE_SPECIAL, &got));
    CHECK_I64(got.count, count);
    for (int64_t i = 0; i < SL_MIN(count, got.count); i++)
        CHECK_I64(got.ids[i], want[i]);
    sl_tokens_free(&got);
}

/* a=0 b=1 " "=2 ab=3 " ab"=4, with an added token from tokenizer_config.json. */
TEST(tiktoken)
{
    sl_tokenizer *t;
    sl_encoder *e;
    const char *config = "{\"bos_token\": {\"content\": \"<s>\"}, \"eos_token\": \"ab\", "
                         "\"added_tokens_decoder\": {\"7\": {\"content\": \"<s>\", \"special\": true}}}";
    CHECK_OK(sl_file_write_atomic(test_path("tokenizer_config.json"), config, strlen(config)));
    CHECK_OK(open_text("x.tiktoken", "YQ== 0\nYg== 1\nIA== 2\nYWI= 3\nIGFi 4\n", &t));
    CHECK_OK(sl_encoder_create(t, &e));
    CHECK_I64(sl_tokenizer_size(t), 8);
    CHECK_I64(sl_tokenizer_bos(t), 7);
    CHECK_I64(sl_tokenizer_eos(t), 3);
    CHECK(sl_tokenizer_is_special(t, 7) && !sl_tokenizer_is_special(t, 3) && !sl_tokenizer_is_special(t, 100));
    check_ids(e, "<s>ab ab  aab", 13, (int32_t[]){7, 3, 4, 2, 2, 0, 3}, 7);
    sl_text text = {0};
    CHECK_OK(sl_decode(t, (int32_t[]){7, 3, 4, 5, -1, 100}, 6, false, &text));
    CHECK_STR(text.data, "<s>ab ab");
    sl_text_free(&text);
    sl_encoder_destroy(e);
    sl_tokenizer_close(t);
    CHECK(remove(test_path("tokenizer_config.json")) == 0);
}

/* What is no UTF-8 counts as U+FFFD, one for each sequence that could have begun a character. */
TEST(bytes_that_are_no_text)
{
    sl_tokenizer *t;
    sl_encoder *e;
    CHECK_OK(open_text("r.json",
                       "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"\\ufffd\": 1}, \"merges\": []}}", &t));
    CHECK_OK(sl_encoder_create(t, &e));
    check_ids(e,
              "a\xff\xfe"
              "a",
              4, (int32_t[]){0, 1, 1, 0}, 4);
    check_ids(e,
              "\xe2\x96"
              "a",
              3, (int32_t[]){1, 0}, 2);
    check_ids(e, "\xf0\x9f\x98", 3, (int32_t[]){1}, 1);
    check_ids(e,
              "\xed\xa0\x80"
              "a",
              4, (int32_t[]){1, 1, 1, 0}, 4);
    check_ids(e, "\xc0\x80", 2, (int32_t[]){1, 1}, 2);
    check_ids(e,
              "\xf5"
              "a",
              2, (int32_t[]){1, 0}, 2);
    sl_encoder_destroy(e);
    sl_tokenizer_close(t);
}

/* An added token that stands alone: fractions and superscripts are no letters of a word, digits and joiners are. */
TEST(added_words)
{
    sl_tokenizer *t;
    sl_encoder *e;
    CHECK_OK(open_text("r.json",
                       "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}, \"added_tokens\": "
                       "[{\"id\": 1, \"content\": \"word\", \"single_word\": true, \"normalized\": false}]}",
                       &t));
    CHECK_OK(sl_encoder_create(t, &e));
    check_ids(e, "word\xc2\xbd", 6, (int32_t[]){1}, 1);
    check_ids(e, "\xc2\xb2word-", 7, (int32_t[]){1}, 1);
    check_ids(e, "word1", 5, NULL, 0);
    check_ids(e, "word\xe2\x80\x8d", 7, NULL, 0);
    check_ids(e, "aword", 5, (int32_t[]){0}, 1);
    sl_encoder_destroy(e);
    sl_tokenizer_close(t);
}

/* A vocabulary of "a", "aa", "aaa", ... makes every length fit everywhere: the time stays bounded. */
TEST(hostile_vocabulary)
{
    enum { TOKENS = 1500, LENGTH = 200000 };
    sl_text json = {0};
    sl_tokenizer *t;
    sl_encoder *e;
    sl_tokens got = {NULL, 0, 0};
    static char word[LENGTH], run[TOKENS + 1];
    memset(run, 'a', TOKENS);
    memset(word, 'a', LENGTH);
    sl_text_printf(&json, "{\"model\": {\"type\": \"BPE\", \"vocab\": {");
    for (int i = 1; i <= TOKENS; i++)
        sl_text_printf(&json, "%s\"%.*s\": %d", i > 1 ? ", " : "", i, run, i - 1);
    sl_text_printf(&json, "}, \"merges\": [");
    for (int i = 2; i <= TOKENS; i++)
        sl_text_printf(&json, "%s[\"a\", \"%.*s\"]", i > 2 ? ", " : "", i - 1, run);
    sl_text_printf(&json, "]}}");
    CHECK_OK(open_text("hostile.json", json.data, &t));
    CHECK_OK(sl_encoder_create(t, &e));
    CHECK_OK(sl_encode(e, word, LENGTH, 0, &got));
    int64_t letters = 0;
    for (int64_t i = 0; i < got.count; i++)
        letters += got.ids[i] + 1;
    CHECK_I64(letters, LENGTH);
    sl_tokens_free(&got);
    sl_encoder_destroy(e);
    sl_tokenizer_close(t);
    sl_text_free(&json);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(golden);
    RUN(search_follows_the_rule);
    RUN(a_long_run_needs_no_heap);
    RUN(refuses_what_it_does_not_know);
    RUN(tiktoken);
    RUN(bytes_that_are_no_text);
    RUN(added_words);
    RUN(hostile_vocabulary);
    return test_end();
}
