/*
 * Training of byte-level BPE: words with their counts in, merges out.
 *
 * A merge joins the neighbours that stand next to each other most often, counted over all words as often as each occurs. Of pairs with
 * equal counts, the one whose left symbol is lower wins, then the one whose right symbol is lower: the order of Hugging Face's
 * `tokenizers`. So the merges depend on the words and their counts alone, never on their order or on threads.
 */
#ifndef SL_TEXT_BPE_TRAIN_H
#define SL_TEXT_BPE_TRAIN_H

#include <stddef.h>
#include <stdint.h>

#include "core/mem.h"
#include "core/status.h"
#include "core/text.h"

/* ---- words ---- */

typedef struct sl_word {
    size_t start; /* in the bytes of the table */
    uint32_t length, hash;
    int64_t count;
} sl_word;

/* Zero-initialise. Belongs to one thread. */
typedef struct sl_word_counts {
    char *bytes;
    size_t n_bytes, byte_capacity;
    sl_word *words;
    int64_t n_words, capacity;
    uint32_t *slots; /* hash table of words, + 1; 0: empty */
    uint64_t n_slots;
    sl_text clean; /* a text with U+FFFD for what is no UTF-8 */
} sl_word_counts;

sl_status sl_word_counts_add(sl_word_counts *counts, const char *word, size_t length, int64_t count);
/* Cuts a text by the split pattern of Llama 3, sl_pattern_llama3, and adds its words. */
sl_status sl_word_counts_text(sl_word_counts *counts, const char *text, size_t length);
/* Adds all words of `from`, which is empty then. */
sl_status sl_word_counts_join(sl_word_counts *counts, sl_word_counts *from);
/* Where distinct words take more than `most` bytes, the rarest are left out until they take at most half of it: all that occur once, then
 * all that occur twice, and so on, so that what is left does not depend on the order of words. Adds how many words it left out. */
sl_status sl_word_counts_bound(sl_word_counts *counts, size_t most, int64_t *left_out);
void sl_word_counts_free(sl_word_counts *counts);

/* ---- merges ---- */

enum { SL_TRAIN_BYTES = 256 };

/* Symbols: the 256 bytes in the order of the characters that stand for them (sl_train_byte), then one for each merge. */
typedef struct sl_merge {
    int32_t left, right;
} sl_merge;

typedef struct sl_train_config {
    int64_t merges;             /* at most */
    int64_t least;              /* a pair that occurs less often is not merged; 1 or more */
    const char *const *special; /* no merge makes a token that would be written like one of these */
    int64_t n_special;
} sl_train_config;

typedef struct sl_merges {
    sl_merge *items;
    int64_t count;
    int64_t bytes, tokens; /* of all words as often as they occur */
} sl_merges;

/* Memory: at most 48 bytes for each byte of distinct words, and 96 for each pair that ever occurs `least` times. */
sl_status sl_bpe_train(const sl_word_counts *words, const sl_train_config *config, sl_merges *merges);
void sl_merges_free(sl_merges *merges);
/* The byte of a symbol below SL_TRAIN_BYTES. */
unsigned char sl_train_byte(int32_t symbol);

/* Writes tokenizer.json and tokenizer_config.json into a folder: special tokens take the first ids, then the bytes, then the merges. The
 * first special token begins and ends texts. */
sl_status sl_tokenizer_write(const char *folder, const char *const *special, int64_t n_special,
                             const sl_merges *merges);

#endif
