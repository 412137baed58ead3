/*
 * Byte-pair encoding: a word is a sequence of symbols; of all neighbours that the table of merges names, the pair of lowest rank is
 * merged, the leftmost first, until there is none.
 *
 * Following that to the letter needs a heap and costs O(n log n) with a cache miss for each symbol of a long word. The encoder here
 * walks from left to right instead. It rests on one fact: t1 ... tn is the encoding of a text if and only if every neighbouring pair is
 * the encoding of its own text. (Take the first merge across a boundary ti | ti+1: until then both sides changed as they would alone, so
 * the pair alone would have merged there too.) So it takes the longest token that goes with the one before it, tries shorter ones where
 * that leads nowhere, and never visits a position that failed twice. The order of trying is free: a memo of what was taken between the same
 * neighbours before comes first. Whether two tokens go together is read from how each was made, by
 * undoing their merges along the boundary, the latest first: bpe.c. Words whose tables would make that expensive go through the heap.
 */
#ifndef SL_TEXT_BPE_H
#define SL_TEXT_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/mem.h"
#include "core/status.h"
#include "text/tokenizer.h"

/* The vocabulary: id to text as written in the file, and back. Ids may have holes. */
typedef struct sl_vocab {
    char *bytes;
    size_t n_bytes, byte_capacity;
    int64_t size, capacity; /* every id lies below size */
    size_t *start;          /* of each id; SIZE_MAX: none */
    uint32_t *length;
    int32_t *slots; /* hash table of ids, -1: empty */
    int64_t n_slots, used;
} sl_vocab;
sl_status sl_vocab_add(sl_vocab *vocab, int64_t id, const char *text, size_t length);
int32_t sl_vocab_find(const sl_vocab *vocab, const char *text, size_t length); /* -1: none */
/* NULL where the id has no text. */
const char *sl_vocab_text(const sl_vocab *vocab, int64_t id, size_t *length);
void sl_vocab_free(sl_vocab *vocab);

/*
 * Words over bytes, for longest matches. Words are added to a hash table of edges; packing makes a double array of them: the child of a
 * node by a byte stands in the slot `base ^ byte` and bears that byte as its label (trie.c).
 */
typedef struct sl_trie_edge {
    uint32_t key; /* node << 8 | byte, + 1; 0: empty */
    uint32_t child;
} sl_trie_edge;
/* A slot: its base << 9, whether a word ends there that counts for longest matches, its label. Four bytes, because memory is what a
 * longest match waits for. */
enum { SL_TRIE_LABEL = 255, SL_TRIE_ENDS = 256, SL_TRIE_BASE = 9 };
typedef struct sl_trie {
    /* while words are added */
    sl_trie_edge *edges;
    uint64_t n_slots, used;
    int shift;
    int32_t *token; /* at each node; -1: none */
    uint32_t nodes, capacity;
    /* packed */
    uint32_t *units;
    int32_t *tokens; /* of any word that ends at each slot, -1 */
    uint32_t root;   /* its base */
} sl_trie;
sl_status sl_trie_add(sl_trie *trie, const char *text, size_t length, int32_t token);
uint32_t sl_trie_child(const sl_trie *trie, uint32_t node, unsigned char byte); /* 0: none. Not once it is packed */
/* Ends adding. With `flags`, only tokens whose flags have bit 0 count for longest matches. */
sl_status sl_trie_pack(sl_trie *trie, const uint8_t *flags);
typedef struct sl_trie_match {
    const char *stop;    /* where the longest word ends that counts; at its begin: there is none */
    const char *reached; /* where some word goes on to */
    uint32_t slot, last; /* of the two */
} sl_trie_match;
static inline sl_trie_match sl_trie_walk(const sl_trie *trie, const char *at, const char *end)
{
    sl_trie_match m = {at, at, 0, 0};
    const uint32_t *units = trie->units;
    uint32_t base = trie->root;
    if (!units)
        end = at;
    for (; m.reached < end; m.reached++) {
        unsigned char byte = (unsigned char) *m.reached;
        uint32_t slot = base ^ byte, unit = units[slot];
        if ((unit & SL_TRIE_LABEL) != byte)
            break;
        m.last = slot;
        m.slot = unit & SL_TRIE_ENDS ? slot : m.slot;
        m.stop = unit & SL_TRIE_ENDS ? m.reached + 1 : m.stop;
        base = unit >> SL_TRIE_BASE;
    }
    return m;
}
/* The token of the longest word at `at`, -1 for none, and where it ends. */
static inline int32_t sl_trie_longest(const sl_trie *trie, const char *at, const char *end, const char **stop)
{
    sl_trie_match m = sl_trie_walk(trie, at, end);
    *stop = m.stop;
    return m.stop == at ? -1 : trie->tokens[m.slot];
}
/* The token of this very word, -1 for none. */
int32_t sl_trie_find(const sl_trie *trie, const char *text, size_t length);
void sl_trie_free(sl_trie *trie);

/* Ids and ranks have 21 bits, so that a pair and its rank, or how a token was made, is one word of memory. */
enum { SL_ID_BITS = 21, SL_MOST_IDS = 1 << SL_ID_BITS };

/* How a token's own text is encoded into it: its last merge. Bit 63: not in order of rank; then the rank of that merge, + 1, its left and
 * its right; 0: a symbol. */
typedef uint64_t sl_made;
#define SL_MADE_IRREGULAR ((uint64_t) 1 << 63)
static inline uint32_t sl_made_rank(sl_made made)
{
    return (uint32_t) (made >> (2 * SL_ID_BITS)) & (SL_MOST_IDS - 1);
}
static inline int32_t sl_made_left(sl_made made)
{
    return (int32_t) (made >> SL_ID_BITS & (SL_MOST_IDS - 1));
}
static inline int32_t sl_made_right(sl_made made)
{
    return (int32_t) (made & (SL_MOST_IDS - 1));
}

/* Its text encodes to it; it stands for unknown characters. */
enum { SL_BPE_REACHABLE = 1, SL_BPE_UNKNOWN = 2 };

/* Classes for sl_bpe.joins: each ASCII character, the mark U+2581, all others. */
enum { SL_CUT_MARK = 128, SL_CUT_OTHER = 129, SL_CUT_CLASSES = 130 };

typedef struct sl_bpe {
    /* set by who reads the file */
    sl_vocab vocab;
    bool byte_level; /* the file writes bytes as characters of GPT-2's alphabet */
    bool ignore_merges, byte_fallback, fuse_unk;
    int32_t unk; /* -1: none */

    uint64_t *pairs;   /* hash table: left, right and rank + 1; 0: empty */
    int32_t *products; /* what each becomes */
    uint64_t n_pair_slots, n_pairs;
    int pair_shift;
    uint32_t most_rank;

    /* made by sl_bpe_finish */
    sl_trie trie; /* all tokens, as bytes */
    sl_made *made;
    uint8_t *
        filter; /* by the hash of a pair, half a byte: the upper bits of the lowest rank there, 15: none. Most pairs are none, or come
                        too late to matter, and this says so in far less memory */
    int filter_shift, rank_shift;
    uint32_t *length; /* bytes of each token */
    int32_t *shorter; /* the longest reachable token that it begins with, -1 */
    uint8_t *flags;
    int32_t symbol[256];   /* byte level: the token of a byte, -1; else of a character of one byte */
    int32_t fallback[256]; /* <0xNN>, -1 */
    bool all_bytes;        /* byte level, and each byte is a symbol */
    uint64_t *inside;      /* a bit for each two bytes: whether some token has them side by side */
    bool by_heap;          /* what stands for unknown characters takes part in merges: only the heap follows that */
    /* Whether some reachable token has a character of one class before one of another: where none has, words can be cut. Not at byte
     * level. */
    bool joins[SL_CUT_CLASSES][SL_CUT_CLASSES];
} sl_bpe;

/* Adds a merge. The vocabulary is complete. */
sl_status sl_bpe_add_merge(sl_bpe *bpe, int32_t left, int32_t right, int32_t id, uint32_t rank);
/* Makes the tables. */
sl_status sl_bpe_finish(sl_bpe *bpe);
void sl_bpe_free(sl_bpe *bpe);
/* Whether a pair merges, its rank and what it becomes. */
bool sl_bpe_find_merge(const sl_bpe *bpe, int32_t left, int32_t right, uint32_t *rank, int32_t *id);

/* Memory of the heap, the search and its memo; zero-initialise. Belongs to one thread and one table. */
typedef struct sl_bpe_scratch {
    struct sl_heap_item *heap;
    int64_t heap_count, heap_capacity;
    struct sl_link *links;
    int64_t link_capacity;
    sl_tokens symbols, stack;
    bool banned; /* the pair below does not merge */
    int32_t ban_left, ban_right;
    uint64_t *dead;    /* one bit for each position of a word: nothing valid goes on from there */
    uint64_t *guessed; /* the token that begins there came from the memo, before longer ones */
    int64_t bit_capacity;
    uint64_t *memo;
    char *known; /* a word without the characters that are dropped */
    size_t known_capacity;
} sl_bpe_scratch;
void sl_bpe_scratch_free(sl_bpe_scratch *scratch);

/* Merges symbols in place with the heap; `count` becomes smaller. The rule itself: what the search is tested against. */
sl_status sl_bpe_merge(const sl_bpe *bpe, sl_bpe_scratch *scratch, int32_t *symbols, int64_t *count);
/* Appends the tokens of a word (valid UTF-8 or, at byte level, any bytes). */
sl_status sl_bpe_word(const sl_bpe *bpe, sl_bpe_scratch *scratch, const char *word, size_t length, sl_tokens *out);
/* The same by the heap alone. */
sl_status sl_bpe_word_by_heap(const sl_bpe *bpe, sl_bpe_scratch *scratch, const char *word, size_t length,
                              sl_tokens *out);
/* Whether `left` and `right` are the encoding of their text; with `merging`, whether they would be if the two did not merge. Adds to
 * `work` about how many look-ups it took. */
sl_status sl_bpe_fits(const sl_bpe *bpe, sl_bpe_scratch *scratch, int32_t left, int32_t right, bool merging, bool *fits,
                      int64_t *work);

/* Appends `count` ids. */
sl_status sl_tokens_append(sl_tokens *tokens, const int32_t *ids, int64_t count);
sl_status sl_tokens_reserve(sl_tokens *tokens, int64_t more);

/* GPT-2's alphabet of bytes: printable characters stand for themselves, the others for U+0100 and up. */
uint32_t sl_alphabet_of(unsigned char byte);
/* The byte of a character, -1 for one outside the alphabet. */
int sl_alphabet_byte(uint32_t code);
/* A text in the alphabet as bytes; false: some of it is outside. `out` has space for `length` bytes. */
bool sl_alphabet_decode(const char *text, size_t length, char *out, size_t *out_length);

#endif
