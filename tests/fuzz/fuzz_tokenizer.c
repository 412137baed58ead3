/* Any bytes as a tokenizer's file with a text behind it (a NUL between them); and any text through tokenizers that are good. What is
 * encoded decodes to something, and the search gives what the rule gives. */
#include <string.h>

#include "fuzz/fuzz.h"
#include "text/internal.h"

const char *const sl_fuzz_dictionary[] = {"\"type\":",
                                          "\"BPE\"",
                                          "\"vocab\":",
                                          "\"merges\":",
                                          "\"Sequence\"",
                                          "\"ByteLevel\"",
                                          "\"Split\"",
                                          "\"Metaspace\"",
                                          "\"Replace\"",
                                          "\"Prepend\"",
                                          "\"NFC\"",
                                          "\"Regex\":",
                                          "\"String\":",
                                          "\"Isolated\"",
                                          "\"added_tokens\":",
                                          "\"normalized\":",
                                          "true",
                                          "false",
                                          "null",
                                          "\xe2\x96\x81",
                                          "\xc4\xa0",
                                          "<0x41>",
                                          "\xff",
                                          "\xcc\x81",
                                          "'s",
                                          "IGFi 4\n",
                                          "YQ== 0\n",
                                          "\\u2581",
                                          NULL};

/* The bytes that tokens stand for are those of the text, or unknown. */
static void check_bytes(const sl_tokenizer *t, sl_encoder *e, const char *text, size_t length)
{
    sl_tokens ids = {NULL, 0, 0};
    sl_byte_counts bytes = {.unknown = false};
    size_t sum = 0;
    if (sl_encode(e, text, length, SL_ENCODE_PLAIN, &ids) == SL_OK) {
        sl_status status = sl_token_bytes(t, text, length, ids.ids, ids.count, &bytes);
        FUZZ_REQUIRE(status == SL_OK || sl_error_message()[0]);
        FUZZ_REQUIRE(status != SL_OK || bytes.each.length == (size_t) ids.count);
        for (size_t i = 0; i < bytes.each.length; i++)
            sum += (unsigned char) bytes.each.data[i];
        FUZZ_REQUIRE(status != SL_OK || bytes.unknown || sum == length);
    }
    sl_tokens_free(&ids);
    sl_text_free(&bytes.each);
}

static int use(const sl_tokenizer *t, const char *text, size_t length)
{
    sl_encoder *e;
    sl_tokens tokens = {NULL, 0, 0}, rule = {NULL, 0, 0};
    sl_text decoded = {0};
    sl_bpe_scratch scratch = {.heap = NULL};
    FUZZ_REQUIRE(sl_encoder_create(t, &e) == SL_OK);
    sl_status status = sl_encode(e, text, length, SL_ENCODE_AROUND | SL_ENCODE_SPECIAL, &tokens);
    FUZZ_REQUIRE(status == SL_OK || sl_error_message()[0]);
    for (int64_t i = 0; i < tokens.count; i++)
        FUZZ_REQUIRE(tokens.ids[i] >= 0 && tokens.ids[i] < sl_tokenizer_size(t));
    FUZZ_REQUIRE(sl_decode(t, tokens.ids, tokens.count, false, &decoded) == SL_OK);
    int outcome = (int) (tokens.count % 1000);
    check_bytes(t, e, text, length);
    sl_text clean = {0};
    sl_text_append_utf8(&clean, text, length);
    if (clean.length) {
        tokens.count = 0;
        FUZZ_REQUIRE(sl_bpe_word(&t->bpe, &scratch, clean.data, clean.length, &tokens) == SL_OK);
        FUZZ_REQUIRE(sl_bpe_word_by_heap(&t->bpe, &scratch, clean.data, clean.length, &rule) == SL_OK);
        if (!t->bpe.ignore_merges) {
            FUZZ_REQUIRE(tokens.count == rule.count);
            FUZZ_REQUIRE(!rule.count || memcmp(tokens.ids, rule.ids, (size_t) rule.count * sizeof *rule.ids) == 0);
        }
    }
    sl_text_free(&clean);
    sl_bpe_scratch_free(&scratch);
    sl_encoder_destroy(e);
    sl_tokens_free(&tokens);
    sl_tokens_free(&rule);
    sl_text_free(&decoded);
    return outcome;
}

int sl_fuzz_one(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *) data, *nul = size ? memchr(bytes, 0, size) : NULL;
    size_t length = nul ? (size_t) (nul - bytes) : size;
    sl_tokenizer *t;
    if (sl_tokenizer_open(sl_fuzz_file(data, length), &t) != SL_OK) {
        FUZZ_REQUIRE(sl_error_message()[0]);
        FUZZ_REQUIRE(sl_heap_bytes() == 0);
        return 2000 + (int) (strlen(sl_error_message()) % 200);
    }
    int outcome = use(t, nul ? nul + 1 : bytes, nul ? size - length - 1 : size);
    sl_tokenizer_close(t);
    FUZZ_REQUIRE(sl_heap_bytes() == 0);
    return outcome;
}
