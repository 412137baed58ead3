/*
 * All distinct words stand in one array of symbols, a separator before, between and behind them. A token of n bytes takes n places: its
 * symbol stands at its first and at its last place, so that both neighbours of a token are found in one step and a merge moves nothing.
 *
 * Every pair has a list of the places where it begins. Pairs are only ever made by the merge that makes one of their symbols, all at once,
 * so a list is complete when it is written; later merges can only take places away, and a place is checked before it is used. The most
 * frequent pair comes from a heap, whose entries may say too much, never too little: one that does is corrected and put back. So all the
 * work is O(c log p) for c changes of neighbours and p pairs, and nothing is ever counted again.
 */
#include "text/bpe_train.h"

#include <stdbool.h>
#include <string.h>

#include "text/bpe.h"

enum { SEPARATOR = -1, INSIDE = -2, MOST_PLACES = 1 << 30, FEWEST_SLOTS = 1 << 12 };

typedef struct train_pair {
    int32_t left, right;
    int64_t count;
    uint32_t first, n; /* its places */
} train_pair;

typedef struct top_item {
    int64_t count; /* no less than the pair's */
    uint32_t pair;
} top_item;

/* What a merge does to the pairs on one side of the new symbol, for each neighbour there. */
typedef struct side {
    int64_t *gone, *made; /* how often the neighbour stands at the symbol that was merged no more, and at the new one */
    uint32_t *n, *next;   /* places of the new pair; where the next one is written */
    int32_t *seen;        /* neighbours */
    int64_t n_seen;
} side;
enum { LEFT, RIGHT, SIDES };

typedef struct event {
    uint32_t place;
    int32_t neighbour;
    int side;
} event;

typedef struct trainer {
    const sl_train_config *config;
    const sl_word_counts *words;
    int32_t *at;    /* the symbol of each place */
    uint32_t *word; /* of each place */
    int64_t n_places;
    uint32_t *
        places; /* of all pairs. Every merge at a place makes up to two and takes one token away, so three for each place are enough */
    int64_t n_listed;
    train_pair *pairs;
    int64_t n_pairs, pair_capacity;
    uint32_t *slots; /* hash table of pairs, + 1; 0: empty */
    uint64_t n_slots;
    top_item *heap;
    int64_t heap_count, heap_capacity;
    side sides[SIDES];
    event *events;
    int64_t n_events, event_capacity;
    uint32_t *length; /* of each symbol */
    size_t *start;    /* of each symbol's text */
    sl_text text;
    sl_text special;        /* the bytes of all special tokens that are written in the alphabet of bytes */
    size_t *special_length; /* 0: others, which no merge could make */
    sl_merges *out;
} trainer;

/* ---- bytes ---- */

/* The characters that stand for bytes rise with the symbols: '!' to '~', U+00A1 to U+00FF without U+00AD, then U+0100 and up. */
unsigned char sl_train_byte(int32_t symbol)
{
    uint32_t code = (uint32_t) symbol + '!';
    if (code > '~')
        code += 0xa1 - ('~' + 1);
    if (code >= 0xad)
        code++;
    return (unsigned char) sl_alphabet_byte(code);
}

/* ---- pairs ---- */

static uint64_t slot_of(const trainer *t, int32_t left, int32_t right)
{
    uint64_t h = ((uint64_t) (uint32_t) left << 32 | (uint32_t) right) * 0x9e3779b97f4a7c15u;
    uint64_t slot = (h ^ h >> 32) & (t->n_slots - 1);
    for (; t->slots[slot]; slot = (slot + 1) & (t->n_slots - 1)) {
        const train_pair *p = &t->pairs[t->slots[slot] - 1];
        if (p->left == left && p->right == right)
            break;
    }
    return slot;
}

static sl_status more_slots(trainer *t)
{
    sl_free(t->slots);
    t->n_slots = t->n_slots ? t->n_slots * 2 : FEWEST_SLOTS;
    SL_TRY(sl_alloc(&t->slots, t->n_slots, sizeof *t->slots));
    for (int64_t i = 0; i < t->n_pairs; i++)
        t->slots[slot_of(t, t->pairs[i].left, t->pairs[i].right)] = (uint32_t) i + 1;
    return SL_OK;
}

static bool comes_first(const trainer *t, top_item a, top_item b)
{
    if (a.count != b.count)
        return a.count > b.count;
    const train_pair *p = &t->pairs[a.pair], *q = &t->pairs[b.pair];
    return p->left != q->left ? p->left < q->left : p->right < q->right;
}

static sl_status push(trainer *t, top_item item)
{
    if (t->heap_count == t->heap_capacity) {
        int64_t capacity = t->heap_capacity * 2 + 1024;
        SL_TRY(sl_grow(&t->heap, t->heap_capacity, capacity, sizeof *t->heap));
        t->heap_capacity = capacity;
    }
    int64_t i = t->heap_count++;
    for (; i > 0 && comes_first(t, item, t->heap[(i - 1) / 2]); i = (i - 1) / 2)
        t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = item;
    return SL_OK;
}

/* Puts an item at the top, in place of the one there. */
static void replace_top(trainer *t, top_item item)
{
    int64_t i = 0;
    for (int64_t child; (child = 2 * i + 1) < t->heap_count; i = child) {
        if (child + 1 < t->heap_count && comes_first(t, t->heap[child + 1], t->heap[child]))
            child++;
        if (!comes_first(t, t->heap[child], item))
            break;
        t->heap[i] = t->heap[child];
    }
    t->heap[i] = item;
}

static void drop_top(trainer *t)
{
    top_item last = t->heap[--t->heap_count];
    if (t->heap_count)
        replace_top(t, last);
}

/* A pair with `n` places, which the caller writes from *first on. Rare ones are never merged, so nobody needs them. */
static sl_status add_pair(trainer *t, int32_t left, int32_t right, int64_t count, uint32_t n, uint32_t *first)
{
    if (t->n_pairs >= INT32_MAX)
        return sl_fail(SL_E_UNSUPPORTED, "the words have more than %d pairs: give less text", INT32_MAX);
    if (t->n_pairs == t->pair_capacity) {
        int64_t capacity = t->pair_capacity * 2 + 1024;
        SL_TRY(sl_grow(&t->pairs, t->pair_capacity, capacity, sizeof *t->pairs));
        t->pair_capacity = capacity;
    }
    if ((uint64_t) t->n_pairs * 2 >= t->n_slots)
        SL_TRY(more_slots(t));
    *first = (uint32_t) t->n_listed;
    t->n_listed += n;
    t->slots[slot_of(t, left, right)] = (uint32_t) t->n_pairs + 1;
    t->pairs[t->n_pairs++] = (train_pair){left, right, count, *first, n};
    return push(t, (top_item){count, (uint32_t) t->n_pairs - 1});
}

/* ---- the first pairs ---- */

static sl_status lay_out(trainer *t)
{
    int32_t symbol_of[SL_TRAIN_BYTES];
    for (int32_t i = 0; i < SL_TRAIN_BYTES; i++)
        symbol_of[sl_train_byte(i)] = i;
    t->n_places = 1;
    for (int64_t i = 0; i < t->words->n_words; i++) {
        const sl_word *w = &t->words->words[i];
        t->out->bytes += w->count * w->length;
        t->n_places += w->length > 1 ? (int64_t) w->length + 1 : 0;
        if (t->n_places > MOST_PLACES)
            return sl_fail(SL_E_UNSUPPORTED, "the distinct words take more than %d bytes: give less text", MOST_PLACES);
    }
    t->out->tokens = t->out->bytes;
    SL_TRY(sl_alloc(&t->at, t->n_places, sizeof *t->at));
    SL_TRY(sl_alloc(&t->word, t->n_places, sizeof *t->word));
    SL_TRY(sl_alloc(&t->places, 3 * t->n_places, sizeof *t->places));
    int64_t place = 0;
    t->at[place++] = SEPARATOR;
    for (int64_t i = 0; i < t->words->n_words; i++) {
        const sl_word *w = &t->words->words[i];
        for (uint32_t k = 0; w->length > 1 && k < w->length; k++) {
            t->word[place] = (uint32_t) i;
            t->at[place++] = symbol_of[(unsigned char) t->words->bytes[w->start + k]];
        }
        if (w->length > 1)
            t->at[place++] = SEPARATOR;
    }
    return SL_OK;
}

typedef struct byte_pair {
    int64_t count;
    uint32_t n, next;
} byte_pair;

static sl_status list_first(trainer *t, byte_pair *table)
{
    for (int64_t i = 1; i < t->n_places; i++) {
        if (t->at[i - 1] < 0 || t->at[i] < 0)
            continue;
        byte_pair *p = &table[t->at[i - 1] * SL_TRAIN_BYTES + t->at[i]];
        p->count += t->words->words[t->word[i]].count;
        p->n++;
    }
    for (int32_t i = 0; i < SL_TRAIN_BYTES * SL_TRAIN_BYTES; i++)
        if (table[i].count >= t->config->least)
            SL_TRY(add_pair(t, i / SL_TRAIN_BYTES, i % SL_TRAIN_BYTES, table[i].count, table[i].n, &table[i].next));
    for (int64_t i = 1; i < t->n_places; i++) {
        if (t->at[i - 1] < 0 || t->at[i] < 0)
            continue;
        byte_pair *p = &table[t->at[i - 1] * SL_TRAIN_BYTES + t->at[i]];
        if (p->count >= t->config->least)
            t->places[p->next++] = (uint32_t) i - 1;
    }
    return SL_OK;
}

/* ---- merging ---- */

static void see(side *s, int32_t neighbour)
{
    if (!s->gone[neighbour] && !s->made[neighbour] && !s->n[neighbour])
        s->seen[s->n_seen++] = neighbour;
}

static sl_status note(trainer *t, int which, int32_t neighbour, uint32_t place, int64_t weight)
{
    side *s = &t->sides[which];
    if (t->n_events == t->event_capacity) {
        int64_t capacity = t->event_capacity * 2 + 1024;
        SL_TRY(sl_grow(&t->events, t->event_capacity, capacity, sizeof *t->events));
        t->event_capacity = capacity;
    }
    see(s, neighbour);
    s->made[neighbour] += weight;
    s->n[neighbour]++;
    t->events[t->n_events++] = (event){place, neighbour, which};
    return SL_OK;
}

/* The pair becomes `made` at all its places, from left to right: in a run of one symbol, the first two go together. */
static sl_status merge_places(trainer *t, const train_pair *pair, int32_t made)
{
    int32_t *at = t->at;
    uint32_t left_length = t->length[pair->left], both = left_length + t->length[pair->right];
    for (uint32_t i = 0; i < pair->n; i++) {
        uint32_t place = t->places[pair->first + i], middle = place + left_length, end = place + both;
        if (at[place] != pair->left || at[middle] != pair->right)
            continue;
        int64_t weight = t->words->words[t->word[place]].count;
        int32_t before = at[place - 1], behind = at[end];
        at[middle - 1] = at[middle] = INSIDE;
        at[place] = at[end - 1] = made;
        t->out->tokens -= weight;
        if (before == made) {
            /* The merge before this one met the left symbol on its right side, and it is gone already. */
            t->sides[RIGHT].made[pair->left] -= weight;
        } else if (before >= 0) {
            see(&t->sides[LEFT], before);
            t->sides[LEFT].gone[before] += weight;
        }
        if (before >= 0)
            SL_TRY(note(t, LEFT, before, place - t->length[before], weight));
        if (behind >= 0) {
            see(&t->sides[RIGHT], behind);
            t->sides[RIGHT].gone[behind] += weight;
            SL_TRY(note(t, RIGHT, behind, place, weight));
        }
    }
    return SL_OK;
}

static void take_away(trainer *t, int32_t left, int32_t right, int64_t gone)
{
    uint32_t pair = gone ? t->slots[slot_of(t, left, right)] : 0;
    if (pair)
        t->pairs[pair - 1].count -= gone;
}

/* Counts and lists of the pairs around the new symbol. */
static sl_status settle(trainer *t, int32_t left, int32_t right, int32_t made)
{
    for (int which = LEFT; which < SIDES; which++) {
        side *s = &t->sides[which];
        for (int64_t i = 0; i < s->n_seen; i++) {
            int32_t n = s->seen[i];
            take_away(t, which == LEFT ? n : right, which == LEFT ? left : n, s->gone[n]);
            s->next[n] = UINT32_MAX;
            if (s->made[n] >= t->config->least)
                SL_TRY(
                    add_pair(t, which == LEFT ? n : made, which == LEFT ? made : n, s->made[n], s->n[n], &s->next[n]));
        }
    }
    for (int64_t i = 0; i < t->n_events; i++) {
        uint32_t *next = &t->sides[t->events[i].side].next[t->events[i].neighbour];
        if (*next != UINT32_MAX)
            t->places[(*next)++] = t->events[i].place;
    }
    for (int which = LEFT; which < SIDES; which++) {
        side *s = &t->sides[which];
        for (int64_t i = 0; i < s->n_seen; i++)
            s->gone[s->seen[i]] = s->made[s->seen[i]] = 0, s->n[s->seen[i]] = 0;
        s->n_seen = 0;
    }
    t->n_events = 0;
    return SL_OK;
}

/* ---- symbols ---- */

static bool is_special(const trainer *t, const char *text, size_t length)
{
    const char *at = t->special.data;
    for (int64_t i = 0; i < t->config->n_special; at += t->special_length[i++])
        if (t->special_length[i] == length && memcmp(at, text, length) == 0)
            return true;
    return false;
}

static sl_status read_special(trainer *t)
{
    SL_TRY(sl_alloc(&t->special_length, SL_MAX(t->config->n_special, 1), sizeof *t->special_length));
    for (int64_t i = 0; i < t->config->n_special; i++) {
        const char *name = t->config->special[i];
        size_t length = strlen(name);
        char *bytes;
        SL_TRY(sl_alloc(&bytes, length + 1, 1));
        if (sl_alphabet_decode(name, length, bytes, &t->special_length[i]))
            sl_text_append(&t->special, bytes, t->special_length[i]);
        else
            t->special_length[i] = 0;
        sl_free(bytes);
    }
    return sl_text_status(&t->special);
}

/* Gives the symbol of a pair its text; `taken` false: it is a special token's, and there is no such symbol. */
static sl_status make_symbol(trainer *t, const train_pair *pair, int32_t made, bool *taken)
{
    size_t begin = t->text.length, length = (size_t) t->length[pair->left] + t->length[pair->right];
    sl_text both = {0};
    sl_text_append(&both, t->text.data + t->start[pair->left], t->length[pair->left]);
    sl_text_append(&both, t->text.data + t->start[pair->right], t->length[pair->right]);
    sl_status status = sl_text_status(&both);
    *taken = status == SL_OK && !is_special(t, both.data, length);
    if (*taken)
        sl_text_append(&t->text, both.data, length);
    sl_text_free(&both);
    SL_TRY(status);
    t->start[made] = begin;
    t->length[made] = (uint32_t) length;
    return sl_text_status(&t->text);
}

static sl_status make_symbols(trainer *t)
{
    int64_t symbols = SL_TRAIN_BYTES + t->config->merges;
    SL_TRY(sl_alloc(&t->length, symbols, sizeof *t->length));
    SL_TRY(sl_alloc(&t->start, symbols, sizeof *t->start));
    SL_TRY(sl_alloc(&t->out->items, SL_MAX(t->config->merges, 1), sizeof *t->out->items));
    for (int which = LEFT; which < SIDES; which++) {
        side *s = &t->sides[which];
        SL_TRY(sl_alloc(&s->gone, symbols, sizeof *s->gone));
        SL_TRY(sl_alloc(&s->made, symbols, sizeof *s->made));
        SL_TRY(sl_alloc(&s->n, symbols, sizeof *s->n));
        SL_TRY(sl_alloc(&s->next, symbols, sizeof *s->next));
        SL_TRY(sl_alloc(&s->seen, symbols, sizeof *s->seen));
    }
    for (int32_t i = 0; i < SL_TRAIN_BYTES; i++) {
        char byte = (char) sl_train_byte(i);
        t->start[i] = t->text.length, t->length[i] = 1;
        sl_text_append(&t->text, &byte, 1);
    }
    return sl_text_status(&t->text);
}

static sl_status merge_all(trainer *t)
{
    while (t->out->count < t->config->merges && t->heap_count) {
        top_item top = t->heap[0];
        const train_pair pair = t->pairs[top.pair];
        if (pair.count < t->config->least) {
            drop_top(t);
            continue;
        }
        if (pair.count != top.count) {
            replace_top(t, (top_item){pair.count, top.pair});
            continue;
        }
        int32_t made = (int32_t) (SL_TRAIN_BYTES + t->out->count);
        bool taken;
        drop_top(t);
        SL_TRY(make_symbol(t, &pair, made, &taken));
        if (!taken)
            continue;
        SL_TRY(merge_places(t, &pair, made));
        SL_TRY(settle(t, pair.left, pair.right, made));
        t->out->items[t->out->count++] = (sl_merge){pair.left, pair.right};
    }
    return SL_OK;
}

static sl_status train(trainer *t)
{
    byte_pair *table;
    SL_TRY(read_special(t));
    SL_TRY(make_symbols(t));
    SL_TRY(lay_out(t));
    SL_TRY(more_slots(t));
    SL_TRY(sl_alloc(&table, SL_TRAIN_BYTES * SL_TRAIN_BYTES, sizeof *table));
    sl_status status = list_first(t, table);
    sl_free(table);
    return status == SL_OK ? merge_all(t) : status;
}

sl_status sl_bpe_train(const sl_word_counts *words, const sl_train_config *config, sl_merges *merges)
{
    trainer t = {.config = config, .words = words, .out = merges};
    *merges = (sl_merges){.items = NULL};
    sl_status status = train(&t);
    for (int which = LEFT; which < SIDES; which++) {
        sl_free(t.sides[which].gone);
        sl_free(t.sides[which].made);
        sl_free(t.sides[which].n);
        sl_free(t.sides[which].next);
        sl_free(t.sides[which].seen);
    }
    sl_free(t.at);
    sl_free(t.word);
    sl_free(t.places);
    sl_free(t.pairs);
    sl_free(t.slots);
    sl_free(t.heap);
    sl_free(t.events);
    sl_free(t.length);
    sl_free(t.start);
    sl_text_free(&t.text);
    sl_text_free(&t.special);
    sl_free(t.special_length);
    if (status != SL_OK)
        sl_merges_free(merges);
    return status;
}

void sl_merges_free(sl_merges *merges)
{
    sl_free(merges->items);
    *merges = (sl_merges){.items = NULL};
}
