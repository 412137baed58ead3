/* Hand-written lexers for the split patterns that tokenizers ship with, found by the exact text of the regular expression. */
#ifndef SL_TEXT_LEXERS_H
#define SL_TEXT_LEXERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/unicode.h"

/* The end of the piece that begins at `at` (at < end, valid UTF-8): a match of the pattern, or, with *matched false, what lies before
 * the next match. `classes`: sl_unicode_table(). `end` is the end of the text: a pattern sees nothing behind it. */
typedef const char *(*sl_lexer)(const sl_classes *classes, const char *at, const char *end, bool *matched);

/* NULL: none knows this pattern. */
sl_lexer sl_lexer_find(const char *pattern, size_t length);
/* The pattern of a pre-tokenizer ByteLevel with use_regex. */
extern const char *const sl_pattern_gpt2;
/* Llama 3's, which cl100k's became in a tokenizer.json; training cuts words by it. */
extern const char *const sl_pattern_llama3;
/* The pattern of tiktoken files that say nothing about theirs. */
extern const char *const sl_pattern_cl100k;
extern const char *const sl_pattern_o200k;

#endif
