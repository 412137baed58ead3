/*
 * What a tokenizer consists of. A text goes through it in this order:
 *
 *   text -> added tokens -> normalizer -> added tokens that are normalized -> stages, each cutting pieces -> BPE -> ids
 *           (whole ids)                    (whole ids)
 *
 * Pieces are handed from stage to stage one by one, never collected, so a text needs memory for its longest piece only.
 */
#ifndef SL_TEXT_INTERNAL_H
#define SL_TEXT_INTERNAL_H

#include "core/json.h"
#include "text/bpe.h"
#include "text/lexers.h"
#include "text/tokenizer.h"

/* ---- normalizer ---- */

typedef enum sl_form { SL_NFC, SL_NFD, SL_NFKC, SL_NFKD } sl_form;
typedef enum sl_change_kind {
    SL_CHANGE_FORM,
    SL_CHANGE_PREPEND,
    SL_CHANGE_REPLACE,
    SL_CHANGE_LOWER,
    SL_CHANGE_STRIP
} sl_change_kind;
typedef struct sl_regex sl_regex;
typedef struct sl_change {
    sl_change_kind kind;
    sl_form form;
    const char *from, *to; /* what is replaced; what by, or what is prepended */
    size_t from_length, to_length;
    sl_regex *regex; /* instead of `from` */
    bool left, right;
} sl_change;

/* utf8proc (nfc.c). */
sl_status sl_form_check(sl_form form); /* whether this build can do it */
/* Appends the text in the form. */
sl_status sl_form_apply(sl_form form, const char *text, size_t length, sl_text *out);
sl_status sl_lower_apply(const char *text, size_t length, sl_text *out);
/* Appends any bytes as UTF-8: what is no character becomes U+FFFD, one for each sequence that could have begun one. (encoder.c) */
void sl_text_append_utf8(sl_text *out, const char *text, size_t length);
/* How many bytes at `at`, where there is no character, one U+FFFD stands for. (encoder.c) */
int64_t sl_utf8_bad_bytes(const char *at, const char *end);

/* ---- regular expressions (regex.c) ---- */

sl_status sl_regex_create(const char *pattern, size_t length, sl_regex **regex);
void sl_regex_destroy(sl_regex *regex);
/* The first match at or behind `from`; *found false: none. Safe from several threads. */
sl_status sl_regex_find(const sl_regex *regex, const char *text, size_t length, size_t from, bool *found, size_t *begin,
                        size_t *end);

/* ---- stages ---- */

typedef enum sl_stage_kind {
    SL_STAGE_LEXER,
    SL_STAGE_REGEX,
    SL_STAGE_STRING,
    SL_STAGE_CLASS,   /* runs of characters inside and outside a set of classes */
    SL_STAGE_WORDS,   /* \w+|[^\w\s]+ */
    SL_STAGE_REPLACE, /* Metaspace: spaces become a mark, one may be put in front */
    SL_STAGE_SPACE,   /* ByteLevel with add_prefix_space */
    SL_STAGE_CUT      /* cuts where no token goes across (sl_bpe.joins): changes no id, makes words that repeat */
} sl_stage_kind;
typedef enum sl_behavior {
    SL_REMOVED,
    SL_ISOLATED,
    SL_MERGED_WITH_PREVIOUS,
    SL_MERGED_WITH_NEXT,
    SL_CONTIGUOUS
} sl_behavior;
typedef enum sl_prepend { SL_PREPEND_NEVER, SL_PREPEND_FIRST, SL_PREPEND_ALWAYS } sl_prepend;
typedef struct sl_cut {
    sl_stage_kind kind;
    sl_behavior behavior;
    bool invert;
    sl_lexer lexer;
    sl_regex *regex;
    const char *string; /* what splits, or the mark */
    size_t length;
    unsigned set;
    bool single; /* SL_STAGE_CLASS: each character of the set on its own */
    sl_prepend prepend;
} sl_cut;

/* ---- decoders ---- */

typedef enum sl_decoder_kind {
    SL_DECODE_BYTES, /* ByteLevel */
    SL_DECODE_FALLBACK,
    SL_DECODE_FUSE,
    SL_DECODE_STRIP,
    SL_DECODE_REPLACE,
    SL_DECODE_MARKS /* Metaspace */
} sl_decoder_kind;
typedef struct sl_decoder {
    sl_decoder_kind kind;
    const char *from, *to;
    size_t from_length, to_length;
    int64_t start, stop;
    bool drop_first; /* SL_DECODE_MARKS: marks of the first token are left out */
} sl_decoder;
/* <0xNN>: the byte; else -1. (decode.c) */
int sl_fallback_byte(const char *text, size_t length);

/* ---- added tokens ---- */

typedef struct sl_added {
    int32_t id;
    bool special, left, right, single_word, normalized;
    const char *content; /* what stands in texts: normalized where `normalized` */
    size_t length;
} sl_added;
typedef struct sl_matcher {
    sl_trie trie; /* of indices of added tokens */
    bool first[256];
    int64_t count;
    char only; /* the one byte that all begin with; 0: several */
} sl_matcher;

enum { SL_MOST_COMPONENTS = 16 };
struct sl_tokenizer {
    sl_region *region; /* strings of the parts below */
    sl_bpe bpe;
    sl_added *added;
    int64_t n_added, added_capacity;
    int32_t *added_of; /* id to index of an added token, -1; bpe.vocab.size of them */
    sl_matcher raw, normalized;
    sl_change changes[SL_MOST_COMPONENTS];
    int64_t n_changes;
    sl_cut stages[SL_MOST_COMPONENTS];
    int64_t n_stages;
    sl_decoder decoders[SL_MOST_COMPONENTS];
    int64_t n_decoders;
    bool has_decoder;
    sl_tokens before, behind; /* what the post-processor adds */
    int32_t bos, eos;
    uint64_t fingerprint;
    const sl_classes *classes;
};

/* Readers of the formats fill an empty tokenizer with vocabulary, merges and components. */
sl_status sl_tokenizer_read_json(sl_tokenizer *tokenizer, const char *name, const char *text, size_t length);
sl_status sl_tokenizer_read_tiktoken(sl_tokenizer *tokenizer, const char *name, const char *text, size_t length);
/* tokenizer_config.json: the ids of bos and eos, and for tiktoken files the added tokens. */
sl_status sl_tokenizer_read_config(sl_tokenizer *tokenizer, const char *name, const char *text, size_t length);
/* The parts of tokenizer.json besides the model. */
sl_status sl_read_normalizer(sl_tokenizer *t, const char *name, const sl_json *value);
sl_status sl_read_pre_tokenizer(sl_tokenizer *t, const char *name, const sl_json *value);
sl_status sl_read_post_processor(sl_tokenizer *t, const char *name, const sl_json *value);
sl_status sl_read_decoder(sl_tokenizer *t, const char *name, const sl_json *value);
/* Adds a stage that splits at a pattern of a regular expression: by a lexer, else with PCRE2. */
sl_status sl_add_pattern(sl_tokenizer *t, const char *name, const char *pattern, size_t length, sl_behavior behavior,
                         bool invert);
sl_status sl_add_token(sl_tokenizer *t, const sl_added *token);
/* A copy that lives as long as the tokenizer, with a NUL behind it. */
sl_status sl_keep(sl_tokenizer *t, const char *text, size_t length, const char **kept);
/* The tables that need all parts. */
sl_status sl_tokenizer_finish(sl_tokenizer *tokenizer);

/* Appends the normalized text. */
sl_status sl_normalize(const sl_tokenizer *t, const char *text, size_t length, sl_text *out);

/* An added token in a text, with the white space that belongs to it. */
typedef struct sl_added_match {
    const char *begin, *end; /* begin NULL: none */
    int32_t index;
} sl_added_match;
sl_status sl_matcher_build(sl_tokenizer *t, bool normalized);
/* The next one at or behind `from`; it begins no earlier than `least`. Texts lie in [begin, end). */
sl_added_match sl_matcher_find(const sl_tokenizer *t, const sl_matcher *matcher, const char *begin, const char *least,
                               const char *from, const char *end, bool special, const char **resume);

typedef struct sl_split {
    const char *begin, *end;
    bool matched;
} sl_split;
typedef struct sl_splits {
    sl_split *items;
    int64_t count, capacity;
} sl_splits;
/* All parts of a piece by a stage that is no isolated lexer, in `splits`, by its behavior. */
sl_status sl_cut_split(const sl_cut *stage, const sl_classes *classes, const char *begin, const char *end,
                       sl_splits *splits);

#endif
