/* Training of BPE: the merges of Hugging Face's tokenizers (tests/golden/make_trained.py), the incremental counts against counting anew,
 * and a trained tokenizer read back. */
#include "test.h"

#include "core/file.h"
#include "core/json.h"
#include "text/bpe_train.h"
#include "text/tokenizer.h"

static const char *const special[] = {"<|endoftext|>", "<|im_end|>"};

static uint64_t state = 1;
static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t) (state >> 33) % below;
}

static const sl_json *read_json(sl_region *region, const char *path)
{
    char *text;
    size_t length;
    const sl_json *root;
    CHECK_OK(sl_file_read_all(path, 1 << 24, &text, &length));
    CHECK_OK(sl_json_parse(region, path, text, length, &root));
    sl_free(text);
    return root;
}

/* ---- Hugging Face's ---- */

TEST(golden)
{
    sl_region *region;
    sl_word_counts words = {.bytes = NULL};
    sl_merges merges;
    CHECK_OK(sl_region_create(&region));
    const sl_json *texts = read_json(region, SL_SOURCE_DIR "/tests/golden/text/texts.json");
    const sl_json *want = read_json(region, SL_SOURCE_DIR "/tests/golden/text/trained.json");
    const sl_json *rows = sl_json_get(want, "merges");
    for (const sl_json *text = texts->child; text; text = text->next)
        CHECK_OK(sl_word_counts_text(&words, text->string, text->length));
    const sl_train_config config = {.merges = sl_json_get(want, "vocab")->integer - 257,
                                    .least = sl_json_get(want, "least")->integer,
                                    .special = special,
                                    .n_special = 1};
    CHECK_OK(sl_bpe_train(&words, &config, &merges));
    CHECK_OK(sl_tokenizer_write(test_path("golden"), special, 1, &merges));
    const sl_json *got = sl_json_get(read_json(region, test_path("golden/tokenizer.json")), "model");
    CHECK_I64(sl_json_get(got, "vocab")->count, config.merges + 257);
    got = sl_json_get(got, "merges");
    REQUIRE(got->count == rows->count && rows->count == config.merges);
    int64_t i = 0;
    for (const sl_json *a = got->child, *b = rows->child; a; a = a->next, b = b->next, i++)
        CHECK_MSG(strcmp(a->child->string, b->child->string) == 0 &&
                      strcmp(a->child->next->string, b->child->next->string) == 0,
                  "merge %lld is \"%s\" \"%s\", not \"%s\" \"%s\"", (long long) i, a->child->string,
                  a->child->next->string, b->child->string, b->child->next->string);
    sl_merges_free(&merges);
    sl_word_counts_free(&words);
    sl_region_destroy(region);
}

/* ---- counting anew before every merge ---- */

enum { MOST_WORDS = 64, MOST_LENGTH = 32, MOST_SYMBOLS = SL_TRAIN_BYTES + 64 };

typedef struct naive {
    int32_t symbols[MOST_WORDS][MOST_LENGTH];
    int n[MOST_WORDS], n_words;
    int64_t count[MOST_WORDS], pairs[MOST_SYMBOLS][MOST_SYMBOLS];
} naive;
static naive n;

static int64_t count_pairs(sl_merge *best)
{
    memset(n.pairs, 0, sizeof n.pairs);
    for (int w = 0; w < n.n_words; w++)
        for (int i = 1; i < n.n[w]; i++)
            n.pairs[n.symbols[w][i - 1]][n.symbols[w][i]] += n.count[w];
    int64_t most = 0;
    for (int32_t a = 0; a < MOST_SYMBOLS; a++)
        for (int32_t b = 0; b < MOST_SYMBOLS; b++)
            if (n.pairs[a][b] > most)
                most = n.pairs[a][b], *best = (sl_merge){a, b};
    return most;
}

static void merge_pair(sl_merge pair, int32_t made)
{
    for (int w = 0; w < n.n_words; w++) {
        int kept = 0;
        for (int i = 0; i < n.n[w]; i++) {
            bool here = i + 1 < n.n[w] && n.symbols[w][i] == pair.left && n.symbols[w][i + 1] == pair.right;
            n.symbols[w][kept++] = here ? made : n.symbols[w][i];
            i += here;
        }
        n.n[w] = kept;
    }
}

static void make_words(sl_word_counts *words, int letters)
{
    int32_t symbol_of[256];
    for (int32_t i = 0; i < SL_TRAIN_BYTES; i++)
        symbol_of[sl_train_byte(i)] = i;
    n.n_words = 2 + (int) draw(MOST_WORDS - 2);
    for (int w = 0; w < n.n_words; w++) {
        char word[MOST_LENGTH];
        n.n[w] = 1 + (int) draw(MOST_LENGTH - 1);
        n.count[w] = 1 + draw(3);
        for (int i = 0; i < n.n[w]; i++) {
            word[i] = (char) (draw(40) ? 'a' + draw((uint32_t) letters) : 0xff - draw(3));
            n.symbols[w][i] = symbol_of[(unsigned char) word[i]];
        }
        CHECK_OK(sl_word_counts_add(words, word, (size_t) n.n[w], n.count[w]));
    }
}

/* One letter makes runs, where places overlap; few letters make equal counts, which only the order of pairs decides. */
TEST(counts_stay_exact)
{
    for (int round = 0; round < 60; round++) {
        sl_word_counts words = {.bytes = NULL};
        sl_merges got;
        make_words(&words, 1 + round % 4);
        const sl_train_config config = {.merges = MOST_SYMBOLS - SL_TRAIN_BYTES, .least = 1 + round % 3};
        CHECK_OK(sl_bpe_train(&words, &config, &got));
        int64_t made = 0, tokens = 0;
        for (sl_merge best; made < config.merges && count_pairs(&best) >= config.least; made++) {
            REQUIRE(made < got.count);
            CHECK_MSG(got.items[made].left == best.left && got.items[made].right == best.right,
                      "round %d, merge %lld: %d %d, not %d %d", round, (long long) made, got.items[made].left,
                      got.items[made].right, best.left, best.right);
            merge_pair(best, (int32_t) (SL_TRAIN_BYTES + made));
        }
        for (int w = 0; w < n.n_words; w++)
            tokens += n.n[w] * n.count[w];
        CHECK_I64(got.count, made);
        CHECK_I64(got.tokens, tokens);
        sl_merges_free(&got);
        sl_word_counts_free(&words);
    }
}

/* ---- words ---- */

static int64_t count_of(const sl_word_counts *words, const char *word)
{
    for (int64_t i = 0; i < words->n_words; i++)
        if (words->words[i].length == strlen(word) &&
            memcmp(words->bytes + words->words[i].start, word, strlen(word)) == 0)
            return words->words[i].count;
    return 0;
}

TEST(words_are_counted)
{
    static const char text[] = "one two two\xff two1234";
    sl_word_counts all = {.bytes = NULL}, other = {.bytes = NULL};
    CHECK_OK(sl_word_counts_text(&all, text, sizeof text - 1));
    CHECK_I64(count_of(&all, " two"), 3);
    CHECK_I64(count_of(&all, "123"), 1);
    CHECK_I64(count_of(&all, "\xef\xbf\xbd"), 1);
    CHECK_OK(sl_word_counts_add(&other, "one", 3, 41));
    CHECK_OK(sl_word_counts_add(&other, "", 0, 1));
    CHECK_OK(sl_word_counts_join(&all, &other));
    CHECK_I64(other.n_words, 0);
    CHECK_I64(count_of(&all, "one"), 42);
    sl_word_counts_free(&all);
    sl_word_counts_free(&other);
}

/* Which words are left out depends on their counts, not on who came first. */
TEST(words_are_bounded)
{
    char word[16];
    for (int backwards = 0; backwards < 2; backwards++) {
        sl_word_counts words = {.bytes = NULL};
        int64_t left_out = 0;
        for (int i = 0; i < 1000; i++) {
            int k = backwards ? 999 - i : i;
            snprintf(word, sizeof word, "w%07d", k);
            CHECK_OK(sl_word_counts_add(&words, word, 8, 1 + k % 10));
        }
        CHECK_OK(sl_word_counts_bound(&words, 8000, &left_out));
        CHECK_I64(left_out, 0);
        CHECK_OK(sl_word_counts_bound(&words, 7999, &left_out));
        CHECK_I64(left_out, 600); /* 500 words take more than half of it */
        CHECK_I64(words.n_words, 400);
        CHECK_I64(count_of(&words, "w0000005"), 0);
        CHECK_I64(count_of(&words, "w0000006"), 7);
        CHECK_OK(sl_word_counts_add(&words, "w0000006", 8, 1));
        CHECK_I64(count_of(&words, "w0000006"), 8);
        sl_word_counts_free(&words);
    }
}

/* ---- tokenizers ---- */

static void train_on(const char *text, int64_t most, int64_t least, sl_merges *merges)
{
    sl_word_counts words = {.bytes = NULL};
    const sl_train_config config = {.merges = most, .least = least, .special = special, .n_special = 2};
    CHECK_OK(sl_word_counts_text(&words, text, strlen(text)));
    CHECK_OK(sl_bpe_train(&words, &config, merges));
    sl_word_counts_free(&words);
}

TEST(reads_back)
{
    static const char text[] = "low lower lowest <|endoftext|> \xc3\xa9t\xc3\xa9 \xf0\x9f\x9a\xa2\x01\n";
    sl_merges merges;
    sl_tokenizer *t;
    sl_encoder *e;
    sl_tokens ids = {NULL, 0, 0};
    sl_text back = {0};
    train_on("low low low lower lower lowest", 100, 2, &merges);
    CHECK_I64(merges.count, 5); /* lo, low, " low", " lowe", " lower" */
    CHECK_OK(sl_tokenizer_write(test_path("a/b"), special, 2, &merges));
    sl_merges_free(&merges);
    CHECK_OK(sl_tokenizer_open(test_path("a/b"), &t));
    CHECK_I64(sl_tokenizer_size(t), 2 + 256 + 5);
    CHECK_I64(sl_tokenizer_bos(t), 0);
    CHECK_I64(sl_tokenizer_eos(t), 0);
    CHECK_I64(sl_tokenizer_find(t, "<|im_end|>"), 1);
    CHECK(sl_tokenizer_is_special(t, 1));
    CHECK_I64(sl_tokenizer_find(t, "!"), 2);
    CHECK(sl_tokenizer_find(t, "\xc4\xa0low") > 257);
    CHECK_OK(sl_encoder_create(t, &e));
    CHECK_OK(sl_encode(e, text, sizeof text - 1, SL_ENCODE_SPECIAL, &ids));
    CHECK_OK(sl_decode(t, ids.ids, ids.count, false, &back));
    CHECK_STR(back.data, text);
    int64_t separators = 0;
    for (int64_t i = 0; i < ids.count; i++)
        separators += ids.ids[i] == 0;
    CHECK_I64(separators, 1);
    ids.count = 0;
    CHECK_OK(sl_encode(e, text, sizeof text - 1, SL_ENCODE_PLAIN, &ids));
    for (int64_t i = 0; i < ids.count; i++)
        CHECK(ids.ids[i] > 1);
    sl_tokens_free(&ids);
    sl_text_free(&back);
    sl_encoder_destroy(e);
    sl_tokenizer_close(t);
}

/* Text must not become a special token by being frequent. */
TEST(no_merge_is_special)
{
    static const char *const names[] = {"abab", "\xc4\xa0x"}; /* the second one is written as " x" would be */
    sl_word_counts words = {.bytes = NULL};
    sl_merges merges;
    CHECK_OK(sl_word_counts_text(&words, "abababab abababab x x x x", 25));
    const sl_train_config config = {.merges = 50, .least = 2, .special = names, .n_special = 2};
    CHECK_OK(sl_bpe_train(&words, &config, &merges));
    CHECK_I64(merges.count, 1); /* ab; abab and " x" are taken */
    CHECK_OK(sl_tokenizer_write(test_path("special"), names, 2, &merges));
    sl_tokenizer *t;
    CHECK_OK(sl_tokenizer_open(test_path("special"), &t));
    sl_tokenizer_close(t);
    sl_merges_free(&merges);
    sl_word_counts_free(&words);
}

TEST(ends_where_text_ends)
{
    sl_merges merges;
    train_on("", 10, 1, &merges);
    CHECK_I64(merges.count, 0);
    sl_merges_free(&merges);
    train_on("a b c", 10, 1, &merges);
    CHECK_I64(merges.count, 2);
    CHECK_I64(merges.bytes, 5);
    CHECK_I64(merges.tokens, 3);
    sl_merges_free(&merges);
    train_on("abc abc", 0, 1, &merges);
    CHECK_I64(merges.count, 0);
    sl_merges_free(&merges);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(golden);
    RUN(counts_stay_exact);
    RUN(words_are_counted);
    RUN(words_are_bounded);
    RUN(reads_back);
    RUN(no_merge_is_special);
    RUN(ends_where_text_ends);
    return test_end();
}
