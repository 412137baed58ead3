/*
 * The tables of byte-pair encoding, and whether two tokens go together.
 *
 * A token's text is encoded into the token itself by a series of merges, a binary tree. Tokens l and r go together when no merge crosses
 * the boundary between them. Only the trees' nodes along the boundary matter:
 *
 *        l = "walk"      r = "ing"           undone, latest first:   walk | ing    rank("walk","ing")  after everything
 *           /   \           /  \                                     alk  | ing    ...                 before l's last merge
 *          w   alk        in    g                                    alk  | in     ...                 before r's, and so on
 *
 * Each state lasts until the later of the two merges it was reached by undoing. A crossing merge happens if its rank comes before that
 * merge; of equal ranks the leftmost goes first, which is l's merge before the crossing one, and the crossing one before r's. That needs
 * merges to happen in order of rank within either tree ("regular"). Trees where a merge makes a pair of a lower rank are rare; pairs with
 * such a token are merged by the heap and compared.
 */
#include "text/bpe.h"

#include <stdio.h>
#include <string.h>

#include "text/unicode.h"

/* ---- the table of merges ---- */

enum { NONE = 15 }; /* in the filter */

static uint64_t pair_key(int32_t left, int32_t right)
{
    return (uint64_t) (uint32_t) left << SL_ID_BITS | (uint32_t) right;
}

static uint64_t pair_hash(uint64_t key)
{
    return (key * 0x9e3779b97f4a7c15u ^ key >> 29) * 0xbf58476d1ce4e5b9u;
}

static uint64_t pair_slot(const sl_bpe *bpe, uint64_t key, uint64_t hash)
{
    uint64_t i = hash >> bpe->pair_shift;
    while (bpe->pairs[i] && bpe->pairs[i] >> SL_ID_BITS != key)
        i = (i + 1) & (bpe->n_pair_slots - 1);
    return i;
}

static uint32_t pair_rank(uint64_t pair)
{
    return (uint32_t) (pair & (SL_MOST_IDS - 1)) - 1;
}

static unsigned filtered(const sl_bpe *bpe, uint64_t hash)
{
    uint64_t cell = hash >> bpe->filter_shift;
    return bpe->filter[cell >> 1] >> (cell & 1) * 4 & 15;
}

bool sl_bpe_find_merge(const sl_bpe *bpe, int32_t left, int32_t right, uint32_t *rank, int32_t *id)
{
    uint64_t key = pair_key(left, right), hash = pair_hash(key);
    if (filtered(bpe, hash) == NONE)
        return false;
    uint64_t i = pair_slot(bpe, key, hash);
    *rank = pair_rank(bpe->pairs[i]);
    *id = bpe->products[i];
    return bpe->pairs[i] != 0;
}

/* Whether a pair merges at a rank below `limit`, which is at most most_rank + 1. */
static inline bool merges_before(const sl_bpe *bpe, int32_t left, int32_t right, uint32_t limit)
{
    uint64_t key = pair_key(left, right), hash = pair_hash(key);
    if (!limit || filtered(bpe, hash) > (limit - 1) >> bpe->rank_shift)
        return false;
    uint64_t pair = bpe->pairs[pair_slot(bpe, key, hash)];
    return pair && pair_rank(pair) < limit;
}

/* 8 to 16 cells for each pair. Where it says that there is none, the table, which may be empty, is not looked at. */
static sl_status build_filter(sl_bpe *bpe)
{
    int bits = 10;
    while ((uint64_t) 1 << bits < 8 * bpe->n_pairs)
        bits++;
    while (bpe->most_rank >> bpe->rank_shift >= NONE)
        bpe->rank_shift++;
    bpe->filter_shift = 64 - bits;
    SL_TRY(sl_alloc(&bpe->filter, (size_t) 1 << (bits - 1), 1));
    memset(bpe->filter, NONE << 4 | NONE, (size_t) 1 << (bits - 1));
    for (uint64_t i = 0; i < bpe->n_pair_slots; i++) {
        uint64_t hash = pair_hash(bpe->pairs[i] >> SL_ID_BITS), cell = hash >> bpe->filter_shift;
        unsigned rank = bpe->pairs[i] ? pair_rank(bpe->pairs[i]) >> bpe->rank_shift : NONE;
        if (rank < filtered(bpe, hash)) {
            bpe->filter[cell >> 1] &= (uint8_t) (cell & 1 ? 15 : 15 << 4);
            bpe->filter[cell >> 1] |= (uint8_t) (rank << (cell & 1) * 4);
        }
    }
    return SL_OK;
}

static sl_status grow_pairs(sl_bpe *bpe)
{
    uint64_t *old = bpe->pairs, old_slots = bpe->n_pair_slots, n_slots = SL_MAX(1024, old_slots * 2);
    int32_t *old_products = bpe->products;
    SL_TRY(sl_alloc(&bpe->pairs, n_slots, sizeof *bpe->pairs));
    sl_status status = sl_alloc(&bpe->products, n_slots, sizeof *bpe->products);
    if (status != SL_OK) {
        sl_free(bpe->pairs);
        sl_free(bpe->products);
        bpe->pairs = old, bpe->products = old_products;
        return status;
    }
    bpe->n_pair_slots = n_slots;
    bpe->pair_shift = 64 - __builtin_ctzll(n_slots);
    for (uint64_t i = 0; i < old_slots; i++) {
        if (!old[i])
            continue;
        uint64_t key = old[i] >> SL_ID_BITS, slot = pair_slot(bpe, key, pair_hash(key));
        bpe->pairs[slot] = old[i], bpe->products[slot] = old_products[i];
    }
    sl_free(old);
    sl_free(old_products);
    return SL_OK;
}

sl_status sl_bpe_add_merge(sl_bpe *bpe, int32_t left, int32_t right, int32_t id, uint32_t rank)
{
    if (rank >= SL_MOST_IDS - 1)
        return sl_fail(SL_E_UNSUPPORTED, "a merge of rank %u; ranks are 0 to %d", rank, SL_MOST_IDS - 2);
    if (bpe->n_pairs * 2 >= bpe->n_pair_slots)
        SL_TRY(grow_pairs(bpe));
    uint64_t key = pair_key(left, right), i = pair_slot(bpe, key, pair_hash(key));
    bpe->n_pairs += !bpe->pairs[i];
    bpe->pairs[i] = key << SL_ID_BITS | (rank + 1); /* of merges that stand twice the later one counts */
    bpe->products[i] = id;
    bpe->most_rank = SL_MAX(bpe->most_rank, rank);
    return SL_OK;
}

/* ---- whether two tokens go together ---- */

/* The symbols that a token is made of, behind those already there. */
static sl_status expand(const sl_bpe *bpe, sl_bpe_scratch *scratch, int32_t token)
{
    scratch->stack.count = 0;
    SL_TRY(sl_tokens_append(&scratch->stack, &token, 1));
    while (scratch->stack.count) {
        token = scratch->stack.ids[--scratch->stack.count];
        sl_made made = bpe->made[token];
        if (!made) {
            SL_TRY(sl_tokens_append(&scratch->symbols, &token, 1));
            continue;
        }
        int32_t children[2] = {sl_made_right(made), sl_made_left(made)};
        SL_TRY(sl_tokens_append(&scratch->stack, children, 2));
    }
    return SL_OK;
}

static sl_status fits_by_heap(const sl_bpe *bpe, sl_bpe_scratch *scratch, int32_t left, int32_t right, bool merging,
                              bool *fits, int64_t *work)
{
    scratch->symbols.count = 0;
    SL_TRY(expand(bpe, scratch, left));
    SL_TRY(expand(bpe, scratch, right));
    int64_t count = scratch->symbols.count;
    *work += 8 * count;
    scratch->banned = merging, scratch->ban_left = left, scratch->ban_right = right;
    sl_status status = sl_bpe_merge(bpe, scratch, scratch->symbols.ids, &count);
    scratch->banned = false;
    *fits = count == 2 && scratch->symbols.ids[0] == left && scratch->symbols.ids[1] == right;
    return status;
}

sl_status sl_bpe_fits(const sl_bpe *bpe, sl_bpe_scratch *scratch, int32_t left, int32_t right, bool merging, bool *fits,
                      int64_t *work)
{
    sl_made l = bpe->made[left], r = bpe->made[right];
    if ((l | r) & SL_MADE_IRREGULAR)
        return fits_by_heap(bpe, scratch, left, right, merging, fits, work);
    uint32_t limit = bpe->most_rank + 1; /* a crossing merge of a lower rank happens */
    bool first = merging;                /* that the two merge in the end is what is asked for */
    for (*fits = true;; first = false) {
        if (!first && merges_before(bpe, left, right, limit)) {
            *fits = false;
            return SL_OK;
        }
        ++*work;
        if (!(l | r))
            return SL_OK;
        uint32_t left_rank = sl_made_rank(l), right_rank = sl_made_rank(r);
        if (left_rank > right_rank)
            limit = left_rank - 1, left = sl_made_right(l), l = bpe->made[left];
        else
            limit = right_rank, right = sl_made_left(r), r = bpe->made[right];
    }
}

/* ---- how each token is made ---- */

typedef struct derivation {
    sl_bpe *bpe;
    sl_bpe_scratch scratch;
    uint32_t *order; /* pairs by the length of their products */
    int64_t count;
} derivation;

static void into_alphabet_or_not(const sl_bpe *bpe, int64_t id, char *buffer, const char **bytes, size_t *length)
{
    const char *text = sl_vocab_text(&bpe->vocab, id, length);
    *bytes = text;
    if (text && bpe->byte_level)
        *bytes = sl_alphabet_decode(text, *length, buffer, length) ? buffer : NULL;
}

/* Symbols: single bytes or characters. And the lengths of all tokens; 0 for those outside the alphabet. */
static sl_status find_symbols(sl_bpe *bpe, char *buffer)
{
    for (int i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned) i);
        bpe->symbol[i] = -1;
        bpe->fallback[i] = sl_vocab_find(&bpe->vocab, name, 6);
    }
    for (int64_t id = 0; id < bpe->vocab.size; id++) {
        const char *bytes;
        size_t length;
        into_alphabet_or_not(bpe, id, buffer, &bytes, &length);
        if (!bytes || !length)
            continue;
        bpe->length[id] = (uint32_t) length;
        bool one = bpe->byte_level ? length == 1 : (size_t) sl_utf8_length(bytes, bytes + length) == length;
        if (one && length == 1)
            bpe->symbol[(unsigned char) bytes[0]] = (int32_t) id;
        if (one)
            bpe->flags[id] = SL_BPE_REACHABLE;
    }
    bpe->all_bytes = bpe->byte_level;
    for (int i = 0; i < 256; i++)
        bpe->all_bytes = bpe->all_bytes && bpe->symbol[i] >= 0;
    return SL_OK;
}

/* Counting sort: a token is made of shorter ones, which are done first. */
static sl_status sort_pairs(derivation *d)
{
    const sl_bpe *bpe = d->bpe;
    uint32_t longest = 0;
    int64_t *begin;
    for (int64_t id = 0; id < bpe->vocab.size; id++)
        longest = SL_MAX(longest, bpe->length[id]);
    SL_TRY(sl_alloc(&begin, (size_t) longest + 2, sizeof *begin));
    sl_status status = sl_alloc(&d->order, bpe->n_pairs + 1, sizeof *d->order);
    if (status == SL_OK) {
        for (uint64_t i = 0; i < bpe->n_pair_slots; i++)
            if (bpe->pairs[i])
                begin[bpe->length[bpe->products[i]] + 1]++;
        for (uint32_t length = 0; length <= longest; length++)
            begin[length + 1] += begin[length];
        for (uint64_t i = 0; i < bpe->n_pair_slots; i++)
            if (bpe->pairs[i])
                d->order[begin[bpe->length[bpe->products[i]]]++] = (uint32_t) i;
    }
    sl_free(begin);
    return status;
}

static sl_status derive_one(derivation *d, uint64_t i)
{
    sl_bpe *bpe = d->bpe;
    uint64_t key = bpe->pairs[i] >> SL_ID_BITS, rank = bpe->pairs[i] & (SL_MOST_IDS - 1);
    int32_t left = (int32_t) (key >> SL_ID_BITS), right = (int32_t) (key & (SL_MOST_IDS - 1)), id = bpe->products[i];
    bool fits;
    int64_t work = 0;
    if ((bpe->flags[id] & SL_BPE_REACHABLE) || !(bpe->flags[left] & bpe->flags[right] & SL_BPE_REACHABLE))
        return SL_OK;
    SL_TRY(sl_bpe_fits(bpe, &d->scratch, left, right, true, &fits, &work));
    if (!fits)
        return SL_OK;
    sl_made l = bpe->made[left], r = bpe->made[right];
    bool regular = !((l | r) & SL_MADE_IRREGULAR) && rank > sl_made_rank(l) && rank > sl_made_rank(r);
    bpe->made[id] = (regular ? 0 : SL_MADE_IRREGULAR) | rank << (2 * SL_ID_BITS) | key;
    bpe->flags[id] = SL_BPE_REACHABLE;
    return SL_OK;
}

static sl_status derive(sl_bpe *bpe)
{
    derivation d = {.bpe = bpe};
    sl_status status = sort_pairs(&d);
    for (uint64_t i = 0; status == SL_OK && i < bpe->n_pairs; i++)
        status = derive_one(&d, d.order[i]);
    sl_free(d.order);
    sl_bpe_scratch_free(&d.scratch);
    return status;
}

static void note_joins(sl_bpe *bpe, const char *bytes, size_t length)
{
    const char *end = bytes + length;
    int before = -1;
    while (bytes < end) {
        uint32_t code = sl_utf8_next(&bytes);
        int now = code < 0x80 ? (int) code : code == 0x2581 ? SL_CUT_MARK : SL_CUT_OTHER;
        if (before >= 0)
            bpe->joins[before][now] = true;
        before = now;
    }
}

/* The trie of all tokens, and for each the longest reachable one that it begins with. */
static sl_status build_trie(sl_bpe *bpe, char *buffer)
{
    for (int64_t id = 0; id < bpe->vocab.size; id++) {
        const char *bytes;
        size_t length;
        into_alphabet_or_not(bpe, id, buffer, &bytes, &length);
        if (!bytes || !length)
            continue;
        SL_TRY(sl_trie_add(&bpe->trie, bytes, length, (int32_t) id));
        for (size_t i = 0; i + 1 < length; i++) {
            unsigned two = (unsigned) (uint8_t) bytes[i] << 8 | (uint8_t) bytes[i + 1];
            bpe->inside[two >> 6] |= (uint64_t) 1 << (two & 63);
        }
        if (!bpe->byte_level && (bpe->flags[id] & SL_BPE_REACHABLE))
            note_joins(bpe, bytes, length);
    }
    SL_TRY(sl_trie_pack(&bpe->trie, bpe->flags));
    for (int64_t id = 0; id < bpe->vocab.size; id++) {
        const char *bytes;
        size_t length;
        bpe->shorter[id] = -1;
        into_alphabet_or_not(bpe, id, buffer, &bytes, &length);
        if (bytes && length)
            bpe->shorter[id] = sl_trie_longest(&bpe->trie, bytes, bytes + length - 1, &bytes);
    }
    return SL_OK;
}

/* What stands for unknown characters is a symbol too, and where a merge names it, the search does not see that. */
static bool merges_unknown(sl_bpe *bpe)
{
    if (bpe->unk >= 0)
        bpe->flags[bpe->unk] |= SL_BPE_UNKNOWN;
    for (int b = 0; b < 256 && bpe->byte_fallback; b++)
        if (bpe->fallback[b] >= 0)
            bpe->flags[bpe->fallback[b]] |= SL_BPE_UNKNOWN;
    for (uint64_t i = 0; i < bpe->n_pair_slots; i++) {
        uint64_t left = bpe->pairs[i] >> (2 * SL_ID_BITS), right = bpe->pairs[i] >> SL_ID_BITS & (SL_MOST_IDS - 1);
        if (bpe->pairs[i] && ((bpe->flags[left] | bpe->flags[right]) & SL_BPE_UNKNOWN))
            return true;
    }
    return false;
}

sl_status sl_bpe_finish(sl_bpe *bpe)
{
    int64_t size = SL_MAX(bpe->vocab.size, 1);
    uint32_t longest = 0;
    char *buffer = NULL;
    sl_status status;
    for (int64_t id = 0; id < bpe->vocab.size; id++)
        longest = SL_MAX(longest, bpe->vocab.length[id]);
    SL_TRY(sl_alloc(&bpe->made, size, sizeof *bpe->made));
    SL_TRY(sl_alloc(&bpe->length, size, sizeof *bpe->length));
    SL_TRY(sl_alloc(&bpe->shorter, size, sizeof *bpe->shorter));
    SL_TRY(sl_alloc(&bpe->flags, size, sizeof *bpe->flags));
    SL_TRY(sl_alloc(&bpe->inside, 65536 / 64, sizeof *bpe->inside));
    SL_TRY(sl_alloc(&buffer, (size_t) longest + 1, 1));
    SL_TRY_GOTO(find_symbols(bpe, buffer), done);
    SL_TRY_GOTO(build_filter(bpe), done);
    SL_TRY_GOTO(derive(bpe), done);
    SL_TRY_GOTO(build_trie(bpe, buffer), done);
    bpe->by_heap = merges_unknown(bpe);
done:
    sl_free(buffer);
    return status;
}

void sl_bpe_free(sl_bpe *bpe)
{
    sl_vocab_free(&bpe->vocab);
    sl_trie_free(&bpe->trie);
    sl_free(bpe->pairs);
    sl_free(bpe->products);
    sl_free(bpe->filter);
    sl_free(bpe->made);
    sl_free(bpe->inside);
    sl_free(bpe->length);
    sl_free(bpe->shorter);
    sl_free(bpe->flags);
    *bpe = (sl_bpe){.unk = -1};
}
