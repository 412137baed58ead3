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

static uint64_t pair_key(int32_t left, int32_t right)
{
    return ((uint64_t) (uint32_t) left << 32 | (uint32_t) right) + 1;
}

static uint64_t pair_hash(uint64_t key)
{
    return (key * 0x9e3779b97f4a7c15u ^ key >> 29) * 0xbf58476d1ce4e5b9u;
}

static sl_pair *pair_slot(const sl_bpe *bpe, uint64_t key)
{
    uint64_t i = pair_hash(key) >> bpe->pair_shift;
    while (bpe->pairs[i].key && bpe->pairs[i].key != key)
        i = (i + 1) & (bpe->n_pair_slots - 1);
    return &bpe->pairs[i];
}

uint32_t sl_bpe_rank(const sl_bpe *bpe, int32_t left, int32_t right, int32_t *id)
{
    uint64_t key = pair_key(left, right);
    if (!bpe->filter)
        return UINT32_MAX;
    uint64_t bit = pair_hash(key) >> bpe->filter_shift;
    if (!(bpe->filter[bit >> 6] >> (bit & 63) & 1))
        return UINT32_MAX;
    const sl_pair *pair = pair_slot(bpe, key);
    if (!pair->key)
        return UINT32_MAX;
    *id = pair->id;
    return pair->rank;
}

/* 16 to 32 bits for each pair. */
static sl_status build_filter(sl_bpe *bpe)
{
    int bits = 10;
    if (!bpe->n_pairs)
        return SL_OK;
    while ((uint64_t) 1 << bits < 16 * bpe->n_pairs)
        bits++;
    bpe->filter_shift = 64 - bits;
    SL_TRY(sl_alloc(&bpe->filter, (size_t) 1 << (bits - 6), sizeof *bpe->filter));
    for (uint64_t i = 0; i < bpe->n_pair_slots; i++) {
        uint64_t bit = pair_hash(bpe->pairs[i].key) >> bpe->filter_shift;
        if (bpe->pairs[i].key)
            bpe->filter[bit >> 6] |= (uint64_t) 1 << (bit & 63);
    }
    return SL_OK;
}

static sl_status grow_pairs(sl_bpe *bpe)
{
    sl_pair *old = bpe->pairs, *pairs;
    uint64_t old_slots = bpe->n_pair_slots, n_slots = SL_MAX(1024, old_slots * 2);
    SL_TRY(sl_alloc(&pairs, n_slots, sizeof *pairs));
    bpe->pairs = pairs, bpe->n_pair_slots = n_slots;
    bpe->pair_shift = 64 - __builtin_ctzll(n_slots);
    for (uint64_t i = 0; i < old_slots; i++)
        if (old[i].key)
            *pair_slot(bpe, old[i].key) = old[i];
    sl_free(old);
    return SL_OK;
}

sl_status sl_bpe_add_merge(sl_bpe *bpe, int32_t left, int32_t right, int32_t id, uint32_t rank)
{
    if (bpe->n_pairs * 2 >= bpe->n_pair_slots)
        SL_TRY(grow_pairs(bpe));
    sl_pair *pair = pair_slot(bpe, pair_key(left, right));
    bpe->n_pairs += !pair->key;
    *pair = (sl_pair){pair_key(left, right), rank, id}; /* of merges that stand twice the later one counts */
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
        const sl_made *made = &bpe->made[token];
        if (!made->rank) {
            SL_TRY(sl_tokens_append(&scratch->symbols, &token, 1));
            continue;
        }
        int32_t children[2] = {made->right, made->left};
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
    if (!(bpe->flags[left] & bpe->flags[right] & SL_BPE_REGULAR))
        return fits_by_heap(bpe, scratch, left, right, merging, fits, work);
    int32_t product;
    uint32_t limit = UINT32_MAX; /* a crossing merge of a lower rank happens */
    bool first = merging;        /* that the two merge in the end is what is asked for */
    for (*fits = true;; first = false) {
        if (!first && sl_bpe_rank(bpe, left, right, &product) < limit) {
            *fits = false;
            return SL_OK;
        }
        ++*work;
        uint32_t left_rank = bpe->made[left].rank, right_rank = bpe->made[right].rank;
        if (!left_rank && !right_rank)
            return SL_OK;
        if (left_rank > right_rank)
            limit = left_rank - 1, left = bpe->made[left].right;
        else
            limit = right_rank, right = bpe->made[right].left;
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
            bpe->flags[id] = SL_BPE_REACHABLE | SL_BPE_REGULAR;
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
            if (bpe->pairs[i].key)
                begin[bpe->length[bpe->pairs[i].id] + 1]++;
        for (uint32_t length = 0; length <= longest; length++)
            begin[length + 1] += begin[length];
        for (uint64_t i = 0; i < bpe->n_pair_slots; i++)
            if (bpe->pairs[i].key)
                d->order[begin[bpe->length[bpe->pairs[i].id]]++] = (uint32_t) i;
    }
    sl_free(begin);
    return status;
}

static sl_status derive_one(derivation *d, const sl_pair *pair)
{
    sl_bpe *bpe = d->bpe;
    int32_t left = (int32_t) ((pair->key - 1) >> 32), right = (int32_t) (uint32_t) (pair->key - 1);
    bool fits;
    int64_t work = 0;
    if ((bpe->flags[pair->id] & SL_BPE_REACHABLE) || !(bpe->flags[left] & bpe->flags[right] & SL_BPE_REACHABLE))
        return SL_OK;
    SL_TRY(sl_bpe_fits(bpe, &d->scratch, left, right, true, &fits, &work));
    if (!fits)
        return SL_OK;
    uint32_t rank = pair->rank + 1;
    bool regular = (bpe->flags[left] & bpe->flags[right] & SL_BPE_REGULAR) && rank > bpe->made[left].rank &&
                   rank > bpe->made[right].rank;
    bpe->made[pair->id] = (sl_made){left, right, rank};
    bpe->flags[pair->id] = (uint8_t) (SL_BPE_REACHABLE | (regular ? SL_BPE_REGULAR : 0));
    return SL_OK;
}

static sl_status derive(sl_bpe *bpe)
{
    derivation d = {.bpe = bpe};
    sl_status status = sort_pairs(&d);
    for (uint64_t i = 0; status == SL_OK && i < bpe->n_pairs; i++)
        status = derive_one(&d, &bpe->pairs[d.order[i]]);
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
        uint64_t key = bpe->pairs[i].key;
        if (key && ((bpe->flags[(key - 1) >> 32] | bpe->flags[(uint32_t) (key - 1)]) & SL_BPE_UNKNOWN))
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
    sl_free(bpe->filter);
    sl_free(bpe->made);
    sl_free(bpe->length);
    sl_free(bpe->shorter);
    sl_free(bpe->flags);
    *bpe = (sl_bpe){.unk = -1};
}
