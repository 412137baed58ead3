/*
 * tiktoken files: a line for each token, its bytes in base64 and its rank, which is its id. Merges are implied: two neighbours merge
 * when their bytes together are a token, and the rank is that token's.
 *
 * The file has neither the split pattern nor special tokens. The pattern follows the file's name (r50k, p50k, gpt2: GPT-2's; o200k: its
 * own), else it is that of cl100k; special tokens come from "added_tokens_decoder" of the tokenizer_config.json beside it.
 */
#include <string.h>

#include "text/components.h"

enum { MOST_BYTES = 4096 }; /* of one token: splitting it everywhere takes the square of it */

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int) (at - digits) : -1;
}

static bool decode_base64(const char *text, size_t length, char *out, size_t *out_length)
{
    uint32_t bits = 0;
    int held = 0;
    size_t count = 0, padding = 0;
    while (padding < 2 && length && text[length - 1] == '=')
        length--, padding++;
    for (size_t i = 0; i < length; i++) {
        int digit = base64_digit(text[i]);
        if (digit < 0)
            return false;
        bits = bits << 6 | (uint32_t) digit;
        held += 6;
        if (held >= 8)
            held -= 8, out[count++] = (char) (bits >> held & 255);
    }
    *out_length = count;
    return count > 0 && (length + padding) % 4 == 0;
}

static sl_status add_bytes(sl_tokenizer *t, sl_trie *trie, const char *bytes, size_t length, int64_t rank)
{
    sl_text written = {0};
    for (size_t i = 0; i < length; i++) {
        char c[4];
        uint32_t code = sl_alphabet_of((unsigned char) bytes[i]);
        c[0] = (char) (code < 0x80 ? code : 0xc0 | code >> 6);
        c[1] = (char) (0x80 | (code & 0x3f));
        sl_text_append(&written, c, code < 0x80 ? 1 : 2);
    }
    sl_status status = sl_text_status(&written);
    if (status == SL_OK)
        status = sl_vocab_add(&t->bpe.vocab, rank, written.data, written.length);
    sl_text_free(&written);
    return status == SL_OK ? sl_trie_add(trie, bytes, length, (int32_t) rank) : status;
}

static sl_status read_line(sl_tokenizer *t, sl_trie *trie, const char *name, int64_t line, const char *text,
                           size_t length)
{
    char bytes[MOST_BYTES], digits[24];
    const char *space = memchr(text, ' ', length);
    size_t encoded = space ? (size_t) (space - text) : 0, count = 0, rest = length - encoded;
    int64_t rank = -1;
    if (space && rest > 1 && rest <= sizeof digits) {
        memcpy(digits, space + 1, rest - 1);
        digits[rest - 1] = '\0';
    }
    if (encoded / 4 * 3 > MOST_BYTES)
        return sl_fail(SL_E_UNSUPPORTED, "%s:%lld: a token of more than %d bytes", name, (long long) line, MOST_BYTES);
    if (!space || rest <= 1 || rest > sizeof digits || strspn(digits, "0123456789") != rest - 1 ||
        !decode_base64(text, encoded, bytes, &count) || sl_parse_i64(digits, &rank) != SL_OK)
        return sl_fail(SL_E_FORMAT,
                       "%s:%lld: a line should be a token in base64, a space and its rank; this is neither a tiktoken "
                       "file nor a tokenizer.json",
                       name, (long long) line);
    sl_status status = add_bytes(t, trie, bytes, count, rank);
    return status == SL_OK ? SL_OK : sl_fail_at(status, "%s:%lld", name, (long long) line);
}

static int32_t find_word(const sl_trie *trie, const char *bytes, size_t length)
{
    uint32_t node = 0;
    for (size_t i = 0; i < length; i++)
        if ((node = sl_trie_child(trie, node, (unsigned char) bytes[i])) == 0)
            return -1;
    return trie->token[node];
}

static sl_status add_merges(sl_tokenizer *t, const sl_trie *trie, const char *bytes, size_t length, int32_t id)
{
    uint32_t node = 0;
    for (size_t i = 0; i + 1 < length; i++) {
        node = sl_trie_child(trie, node, (unsigned char) bytes[i]);
        int32_t left = trie->token[node], right = left < 0 ? -1 : find_word(trie, bytes + i + 1, length - i - 1);
        if (right >= 0)
            SL_TRY(sl_bpe_add_merge(&t->bpe, left, right, id, (uint32_t) id));
    }
    return SL_OK;
}

static const char *pattern_of(const char *name)
{
    const char *base = strrchr(name, '/');
    base = base ? base + 1 : name;
    if (strncmp(base, "o200k", 5) == 0)
        return sl_pattern_o200k;
    if (strncmp(base, "r50k", 4) == 0 || strncmp(base, "p50k", 4) == 0 || strncmp(base, "gpt2", 4) == 0)
        return sl_pattern_gpt2;
    return sl_pattern_cl100k;
}

static sl_status read_all(sl_tokenizer *t, sl_trie *trie, const char *name, const char *text, size_t length)
{
    const char *end = text + length, *pattern = pattern_of(name);
    int64_t line = 1;
    char bytes[MOST_BYTES];
    for (; text < end; line++) {
        const char *stop = memchr(text, '\n', (size_t) (end - text));
        size_t count = (size_t) ((stop ? stop : end) - text);
        count -= count && text[count - 1] == '\r';
        if (count)
            SL_TRY(read_line(t, trie, name, line, text, count));
        text = stop ? stop + 1 : end;
    }
    if (!t->bpe.vocab.size)
        return sl_fail(SL_E_FORMAT, "%s: no tokens in it", name);
    for (int64_t id = 0; id < t->bpe.vocab.size; id++) {
        size_t written, count;
        const char *word = sl_vocab_text(&t->bpe.vocab, id, &written);
        if (word && sl_alphabet_decode(word, written, bytes, &count))
            SL_TRY(add_merges(t, trie, bytes, count, (int32_t) id));
    }
    t->bpe.byte_level = true;
    t->bpe.ignore_merges = true; /* as tiktoken: a word that is a token is taken whole */
    t->decoders[t->n_decoders++].kind = SL_DECODE_BYTES;
    t->has_decoder = true;
    return sl_add_pattern(t, name, pattern, strlen(pattern), SL_ISOLATED, false);
}

sl_status sl_tokenizer_read_tiktoken(sl_tokenizer *t, const char *name, const char *text, size_t length)
{
    sl_trie trie = {.edges = NULL};
    sl_status status = read_all(t, &trie, name, text, length);
    sl_trie_free(&trie);
    return status;
}
