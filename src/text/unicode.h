/*
 * Classes of code points, of one pinned Unicode version: what the split patterns of tokenizers ask for (\p{L}, \p{N}, \s, ...).
 * Categories that no known pattern tells apart share a class. A table and not the C library's isw...: those depend on the locale.
 */
#ifndef SL_TEXT_UNICODE_H
#define SL_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

typedef enum sl_class {
    SL_CLASS_OTHER,
    SL_CLASS_LU,
    SL_CLASS_LL,
    SL_CLASS_LT,
    SL_CLASS_LM,
    SL_CLASS_LO,
    SL_CLASS_MARK,
    SL_CLASS_NUMBER,
    SL_CLASS_PUNCTUATION,
    SL_CLASS_SYMBOL,
    SL_CLASS_SPACE /* \s: White_Space */
} sl_class;
enum {
    SL_CLASS_MASK = 15,
    SL_UNICODE_WORD = 16,     /* \w */
    SL_UNICODE_COMPOSES = 32, /* NFC changes it, or may join it to what is before it */
    SL_UNICODE_COMBINES = 64  /* its combining class is not 0: normalization may move it */
};

/* Sets of classes, to test `1u << class` against. */
#define SL_SET_UPPER \
    (1u << SL_CLASS_LU | 1u << SL_CLASS_LT | 1u << SL_CLASS_LM | 1u << SL_CLASS_LO | 1u << SL_CLASS_MARK)
#define SL_SET_LOWER (1u << SL_CLASS_LL | 1u << SL_CLASS_LM | 1u << SL_CLASS_LO | 1u << SL_CLASS_MARK)
#define SL_SET_L (1u << SL_CLASS_LU | 1u << SL_CLASS_LL | 1u << SL_CLASS_LT | 1u << SL_CLASS_LM | 1u << SL_CLASS_LO)
#define SL_SET_M (1u << SL_CLASS_MARK)
#define SL_SET_N (1u << SL_CLASS_NUMBER)
#define SL_SET_P (1u << SL_CLASS_PUNCTUATION)
#define SL_SET_S (1u << SL_CLASS_SYMBOL)
#define SL_SET_SPACE (1u << SL_CLASS_SPACE)

/* One byte for each code point: its class and the flags above. */
enum { SL_CLASS_BLOCK = 256 };
typedef struct sl_classes {
    uint8_t block_of[0x110000 / SL_CLASS_BLOCK];
    uint8_t blocks[256][SL_CLASS_BLOCK];
} sl_classes;
/* The first call fills it; safe from several threads. */
const sl_classes *sl_unicode_table(void);
static inline uint8_t sl_class_of(const sl_classes *classes, uint32_t code)
{
    if (code < 0x80) /* most text, in the first block: one load less */
        return classes->blocks[0][code];
    return classes->blocks[classes->block_of[code / SL_CLASS_BLOCK]][code % SL_CLASS_BLOCK];
}

/* The character at `at`, which is valid UTF-8; moves on. */
static inline uint32_t sl_utf8_next(const char **at)
{
    const unsigned char *p = (const unsigned char *) *at;
    uint32_t c = p[0];
    if (c < 0x80) {
        *at += 1;
        return c;
    }
    if (c < 0xe0) {
        *at += 2;
        return (c & 0x1f) << 6 | (p[1] & 0x3fu);
    }
    if (c < 0xf0) {
        *at += 3;
        return (c & 0x0f) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    }
    *at += 4;
    return (c & 7) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
}
/* The character that ends at `*at`, which lies behind `begin`; moves back to where it begins. */
uint32_t sl_utf8_before(const char *begin, const char **at);
/* Writes up to 4 bytes and returns how many. */
int sl_utf8_put(uint32_t code, char *out);

extern const uint32_t sl_unicode_runs[];
extern const int64_t sl_unicode_run_count;

#endif
