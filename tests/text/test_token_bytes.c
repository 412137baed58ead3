/* The bytes of a text that each of its tokens stands for: by hand for what each kind of tokenizer does to a text, and for the golden texts
 * of every family, where they add up to the text, and the first tokens' stand for what these decode to. */
#include "test.h"

#include "core/file.h"
#include "core/json.h"
#include "text/tokenizer.h"

static const char *const families[] = {"gpt2",   "llama3", "qwen2",         "qwen35", "deepseek", "o200k",
                                       "tekken", "smollm", "llama2_legacy", "llama2", "gemma"};

typedef struct counted {
    sl_tokens ids;
    sl_byte_counts bytes;
} counted;

/* False where the build lacks what the tokenizer needs. */
static bool open_family(const char *family, sl_tokenizer **t, sl_encoder **e)
{
    char path[512];
    snprintf(path, sizeof path, SL_SOURCE_DIR "/tests/golden/text/%s", family);
    sl_status status = sl_tokenizer_open(path, t);
    if (status == SL_E_UNSUPPORTED && !getenv("CI") && strstr(sl_error_message(), "which this build does not have"))
        return false;
    CHECK_OK(status);
    CHECK_OK(sl_encoder_create(*t, e));
    return true;
}

static counted count(const sl_tokenizer *t, sl_encoder *e, const char *text, size_t length)
{
    counted c = {0};
    CHECK_OK(sl_encode(e, text, length, SL_ENCODE_PLAIN, &c.ids));
    CHECK_OK(sl_token_bytes(t, text, length, c.ids.ids, c.ids.count, &c.bytes));
    CHECK_I64(c.bytes.each.length, c.ids.count);
    return c;
}

static void drop(counted *c)
{
    sl_tokens_free(&c->ids);
    sl_text_free(&c->bytes.each);
}

/* Every cut between tokens that is one between characters, where decoding gives the text back. */
static void check_cuts(const char *family, const sl_tokenizer *t, const counted *c, const char *text, size_t length)
{
    size_t sum = 0;
    sl_text whole = {0};
    CHECK_OK(sl_decode(t, c->ids.ids, c->ids.count, false, &whole));
    bool faithful = length && whole.length == length && memcmp(whole.data, text, length) == 0;
    sl_text_free(&whole);
    for (int64_t i = 0; faithful && i < c->ids.count; i++) {
        sl_text decoded = {0};
        sum += (unsigned char) c->bytes.each.data[i];
        if (sum < length && ((unsigned char) text[sum] & 0xc0) == 0x80)
            continue;
        CHECK_OK(sl_decode(t, c->ids.ids, i + 1, false, &decoded));
        CHECK_MSG(decoded.length == sum && (!sum || memcmp(decoded.data, text, sum) == 0),
                  "%s: %lld tokens stand for \"%.*s\"", family, (long long) i + 1, (int) sum, text);
        sl_text_free(&decoded);
    }
}

TEST(bytes_add_up)
{
    char *json;
    size_t json_length;
    sl_region *region;
    const sl_json *texts;
    CHECK_OK(sl_region_create(&region));
    CHECK_OK(sl_file_read_all(SL_SOURCE_DIR "/tests/golden/text/texts.json", 1 << 26, &json, &json_length));
    CHECK_OK(sl_json_parse(region, "texts.json", json, json_length, &texts));
    for (int64_t f = 0; f < SL_COUNT(families); f++) {
        sl_tokenizer *t;
        sl_encoder *e;
        int64_t unknown = 0, row = 0;
        if (!open_family(families[f], &t, &e))
            continue;
        for (const sl_json *text = texts->child; text; text = text->next, row++) {
            counted c = count(t, e, text->string, text->length);
            size_t sum = 0;
            for (int64_t i = 0; i < c.ids.count; i++)
                sum += (unsigned char) c.bytes.each.data[i];
            unknown += c.bytes.unknown;
            CHECK_MSG(c.bytes.unknown || sum == text->length, "%s, text %lld: %zu bytes of %zu", families[f],
                      (long long) row, sum, text->length);
            if (!c.bytes.unknown && text->length < 2000)
                check_cuts(families[f], t, &c, text->string, text->length);
            drop(&c);
        }
        /* Added tokens that take spaces beside them, and prefixes behind added tokens. */
        CHECK_MSG(unknown <= 2, "%s: %lld texts are not followed", families[f], (long long) unknown);
        sl_encoder_destroy(e);
        sl_tokenizer_close(t);
    }
    sl_free(json);
    sl_region_destroy(region);
}

/* The shares of "abc", one digit each, "." above 9; "?": unknown. */
static void check_shares(const char *family, const char *text, const char *pieces, const char *want)
{
    sl_tokenizer *t;
    sl_encoder *e;
    char got[64] = "", names[256] = "";
    if (!open_family(family, &t, &e))
        return;
    counted c = count(t, e, text, strlen(text));
    for (int64_t i = 0; i < c.ids.count; i++) {
        size_t length;
        const char *piece = sl_tokenizer_piece(t, c.ids.ids[i], &length);
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%.*s", i ? "|" : "", (int) length, piece);
        snprintf(got + strlen(got), sizeof got - strlen(got), "%d", (unsigned char) c.bytes.each.data[i]);
    }
    CHECK_STR(names, pieces);
    CHECK_STR(c.bytes.unknown ? "?" : got, want);
    drop(&c);
    sl_encoder_destroy(e);
    sl_tokenizer_close(t);
}

TEST(by_hand)
{
    check_shares("gpt2", "e\xcc\x81t", "e|\xc3\x8c|\xc4\xa3|t", "1111"); /* nothing is changed */
    check_shares("qwen2", "e\xcc\x81t", "\xc3\x83|\xc2\xa9|t", "031");   /* a composed character counts at its end */
    check_shares("qwen2", "ate\xcc\x81", "at|\xc3\x83|\xc2\xa9", "203");
    check_shares("qwen2", "\xff t\xcc\x81", "\xc3\xaf|\xc2\xbf|\xc2\xbd|\xc4\xa0t|\xc3\x8c|\xc4\xa3", "001211");
    check_shares("llama2", "at it", "\xe2\x96\x81|at|\xe2\x96\x81|i|t",
                 "02111"); /* the space in front is not the text's */
    check_shares("llama2", " at", "\xe2\x96\x81|at", "12");
    check_shares("llama2_legacy", " at", "\xe2\x96\x81\xe2\x96\x81|at", "12");
    check_shares("gemma",
                 "a\xe2\x96\x81"
                 "b",
                 "a|\xe2\x96\x81"
                 "b",
                 "14");                                    /* a mark that the text itself has */
    check_shares("words", "At ", "\xe2\x96\x81|at", "03"); /* what is stripped counts with what is beside it */
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(bytes_add_up);
    RUN(by_hand);
    return test_end();
}
