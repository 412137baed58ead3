/*
 * A chat as tokens. The whole text is encoded at once, as transformers does, so that words at the border of two messages get the ids
 * they have everywhere. Two things cut it:
 *
 *   - what looks like a special token but was written by a user: it is encoded alone, as text;
 *   - where a tokenizer changes the text (a normalizer, say), the ends of counted ranges, because tokens cannot be matched with bytes.
 *
 * The template decides about the token that begins a text: nothing is added around it, so there is never a second one.
 */
#include <string.h>

#include "text/chat_internal.h"

/* Text and the ids that it became. */
typedef struct chat_part {
    size_t begin, end;
    int64_t first, count; /* among all ids */
    bool special;
} chat_part;

typedef struct coder {
    sl_encoder *encoder;
    const sl_tokenizer *tokenizer;
    const sl_jinja_output *output;
    sl_region *region;
    sl_tokens *tokens;
    int64_t start; /* ids before this chat */
    chat_part *parts;
    int64_t part_count, part_capacity;
    chat_range *cuts; /* pieces that are encoded alone; `literal` says which are no special tokens */
    bool *literal;
    int64_t cut_count;
} coder;

static sl_status add_part(coder *c, chat_part part)
{
    if (c->part_count == c->part_capacity) {
        int64_t capacity = SL_MAX(c->part_capacity * 2, (int64_t) 32);
        chat_part *parts;
        SL_TRY(sl_region_alloc(c->region, &parts, capacity, sizeof *parts));
        if (c->part_count)
            memcpy(parts, c->parts, (size_t) c->part_count * sizeof *parts);
        c->parts = parts;
        c->part_capacity = capacity;
    }
    c->parts[c->part_count++] = part;
    return SL_OK;
}

/* Divides the ids of text [begin, end) at special tokens, whose places follow from their order. */
static sl_status divide(coder *c, size_t begin, size_t end, int64_t first)
{
    const char *text = c->output->text;
    for (int64_t i = first; i < c->tokens->count; i++) {
        size_t length;
        const char *piece = sl_tokenizer_piece(c->tokenizer, c->tokens->ids[i], &length);
        if (!sl_tokenizer_is_special(c->tokenizer, c->tokens->ids[i]) || !piece)
            continue;
        const char *found = memmem(text + begin, end - begin, piece, length);
        if (!found || length == 0)
            continue; /* the tokenizer wrote it differently: it counts as text */
        size_t at = (size_t) (found - text);
        if (at > begin || i > first)
            SL_TRY(add_part(c, (chat_part){begin, at, first, i - first, false}));
        SL_TRY(add_part(c, (chat_part){at, at + length, i, 1, true}));
        begin = at + length;
        first = i + 1;
    }
    if (end > begin || c->tokens->count > first)
        SL_TRY(add_part(c, (chat_part){begin, end, first, c->tokens->count - first, false}));
    return SL_OK;
}

/* A piece behind others is encoded behind a newline, which is taken away again: some tokenizers put a space before a text. */
static sl_status encode_piece(coder *c, size_t begin, size_t end, unsigned flags)
{
    sl_tokens *tokens = c->tokens, line = {0};
    int64_t first = tokens->count;
    char *text;
    if (begin == end)
        return SL_OK;
    if (begin == 0) {
        SL_TRY(sl_encode(c->encoder, c->output->text, end, flags, tokens));
        return divide(c, begin, end, first);
    }
    SL_TRY(sl_region_alloc(c->region, &text, end - begin + 1, 1));
    text[0] = '\n';
    memcpy(text + 1, c->output->text + begin, end - begin);
    SL_TRY(sl_encode(c->encoder, "\n", 1, flags, &line));
    sl_status status = sl_encode(c->encoder, text, end - begin + 1, flags, tokens);
    int64_t count = tokens->count - first, skip = line.count;
    bool same = status == SL_OK && count >= skip && skip > 0 &&
                memcmp(tokens->ids + first, line.ids, (size_t) skip * sizeof *line.ids) == 0;
    sl_tokens_free(&line);
    if (same) {
        memmove(tokens->ids + first, tokens->ids + first + skip, (size_t) (count - skip) * sizeof *tokens->ids);
        tokens->count -= skip;
    } else if (status == SL_OK) {
        tokens->count = first;
        status = sl_encode(c->encoder, text + 1, end - begin, flags, tokens);
    }
    SL_TRY(status);
    return divide(c, begin, end, first);
}

static sl_status encode_literal(coder *c, chat_range range)
{
    int64_t first = c->tokens->count;
    SL_TRY(encode_piece(c, range.begin, range.end, SL_ENCODE_PLAIN));
    for (int64_t i = first; i < c->tokens->count; i++)
        if (sl_tokenizer_is_special(c->tokenizer, c->tokens->ids[i]))
            return sl_fail(
                SL_E_FORMAT,
                "a message contains \"%.*s\", which this tokenizer encodes as a special token even as plain text: "
                "take it out of the message",
                (int) SL_MIN(range.end - range.begin, (size_t) 60), c->output->text + range.begin);
    return SL_OK;
}

static sl_status encode_all(coder *c)
{
    size_t at = 0;
    c->tokens->count = c->start;
    c->part_count = 0;
    for (int64_t i = 0; i < c->cut_count; i++) {
        SL_TRY(encode_piece(c, at, c->cuts[i].begin, SL_ENCODE_SPECIAL));
        SL_TRY(c->literal[i] ? encode_literal(c, c->cuts[i])
                             : encode_piece(c, c->cuts[i].begin, c->cuts[i].end, SL_ENCODE_SPECIAL));
        at = c->cuts[i].end;
    }
    return encode_piece(c, at, c->output->length, SL_ENCODE_SPECIAL);
}

/* The special tokens that a user wrote, at least a part of them, become cuts. */
static sl_status find_literals(coder *c)
{
    int64_t span = 0;
    SL_TRY(sl_region_alloc(c->region, &c->cuts, c->part_count + 1, sizeof *c->cuts));
    SL_TRY(sl_region_alloc(c->region, &c->literal, c->part_count + 1, sizeof *c->literal));
    for (int64_t i = 0; i < c->part_count; i++) {
        const chat_part *part = &c->parts[i];
        bool own = true;
        while (c->output->spans[span].end <= part->begin)
            span++;
        for (int64_t s = span; s < c->output->span_count && (s == 0 || c->output->spans[s - 1].end < part->end); s++)
            own = own &&
                  (sl_jinja_source(c->output->spans[s].mark) == 0 || (c->output->spans[s].mark & SL_JINJA_TRUSTED));
        if (!part->special || own)
            continue;
        c->cuts[c->cut_count] = (chat_range){part->begin, part->end};
        c->literal[c->cut_count++] = true;
    }
    return SL_OK;
}

/* ---- which tokens a range takes ---- */

/* How many bytes of its text the first ids of a part stand for; `skip`: a leading space that decoding leaves out. */
static sl_status covered(const coder *c, const chat_part *part, int64_t count, size_t skip, sl_text *text, size_t *out)
{
    const char *want = c->output->text + part->begin + skip;
    size_t length = part->end - part->begin - skip, i = 0;
    text->length = 0;
    SL_TRY(sl_decode(c->tokenizer, c->tokens->ids + part->first, count, false, text));
    while (i < text->length && i < length && text->data[i] == want[i])
        i++;
    *out = count > 0 ? i + skip : 0;
    return SL_OK;
}

/* Whether decoding gives the part's text back, and the space that it may leave out. */
static sl_status is_faithful(const coder *c, const chat_part *part, sl_text *text, size_t *skip, bool *out)
{
    size_t bytes, length = part->end - part->begin;
    for (*skip = 0; *skip < 2; ++*skip) {
        if (*skip > 0 && (length == 0 || c->output->text[part->begin] != ' '))
            break;
        SL_TRY(covered(c, part, part->count, *skip, text, &bytes));
        *out = bytes == length && text->length == length - *skip;
        if (*out)
            return SL_OK;
    }
    *out = false;
    return SL_OK;
}

/* How few ids of a part hold its first `byte` bytes; *exact: they hold no more. */
static sl_status ids_for(const coder *c, const chat_part *part, size_t byte, size_t skip, sl_text *text, int64_t *out,
                         bool *exact)
{
    int64_t low = 0, high = 1; /* most borders are near the beginning of a part: each step decodes all ids before it */
    size_t bytes = 0;
    for (; byte > 0 && high < part->count; low = high + 1, high = SL_MIN(2 * high, part->count)) {
        SL_TRY(covered(c, part, high, skip, text, &bytes));
        if (bytes >= byte)
            break;
    }
    high = byte > 0 ? SL_MIN(high, part->count) : 0;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        SL_TRY(covered(c, part, middle, skip, text, &bytes));
        if (bytes >= byte)
            high = middle;
        else
            low = middle + 1;
    }
    SL_TRY(covered(c, part, low, skip, text, &bytes));
    *exact = bytes == byte;
    *out = low;
    return SL_OK;
}

/* Marks the ids of a part that overlap the range; *unclear: they cannot be told. */
static sl_status mark_part(const coder *c, const chat_part *part, chat_range range, char *counted, bool *unclear)
{
    size_t begin = SL_MAX(range.begin, part->begin), end = SL_MIN(range.end, part->end), skip;
    int64_t first = 0, last = part->count - 1;
    if (begin >= end || part->count == 0)
        return SL_OK;
    if (begin > part->begin || end < part->end) {
        sl_text text = {0};
        bool faithful = false, exact = true;
        sl_status status = is_faithful(c, part, &text, &skip, &faithful);
        if (status == SL_OK && faithful)
            status = ids_for(c, part, begin - part->begin, skip, &text, &first, &exact);
        first -= !exact; /* an id that stands for both sides of the border counts */
        if (status == SL_OK && faithful && end < part->end) {
            status = ids_for(c, part, end - part->begin, skip, &text, &last, &exact);
            last--;
        }
        sl_text_free(&text);
        SL_TRY(status);
        *unclear = *unclear || !faithful;
    }
    memset(counted + (part->first - c->start + first), 1, (size_t) (last - first + 1));
    return SL_OK;
}

static sl_status mark(const coder *c, const chat_range *ranges, int64_t count, char **counted, bool *unclear)
{
    int64_t part = 0;
    *unclear = false;
    SL_TRY(sl_region_alloc(c->region, counted, c->tokens->count - c->start + 1, 1));
    for (int64_t i = 0; i < count; i++) {
        while (part < c->part_count && c->parts[part].end <= ranges[i].begin)
            part++;
        for (int64_t p = part; p < c->part_count && c->parts[p].begin < ranges[i].end; p++)
            SL_TRY(mark_part(c, &c->parts[p], ranges[i], *counted, unclear));
    }
    return SL_OK;
}

/* The counted ranges become cuts too, each alone, divided by the literals inside it. */
static sl_status cut_at_ranges(coder *c, const chat_range *ranges, int64_t count)
{
    chat_range *cuts, *old = c->cuts;
    bool *literal, *old_literal = c->literal;
    int64_t old_count = c->cut_count, at = 0, most = 2 * old_count + count + 1;
    SL_TRY(sl_region_alloc(c->region, &cuts, most, sizeof *cuts));
    SL_TRY(sl_region_alloc(c->region, &literal, most, sizeof *literal));
    c->cut_count = 0;
    for (int64_t i = 0; i <= count; i++) {
        size_t begin = i < count ? ranges[i].begin : c->output->length, end = i < count ? ranges[i].end : begin;
        for (; at < old_count && old[at].begin < end; at++) {
            if (old[at].begin > begin)
                cuts[c->cut_count++] = (chat_range){begin, old[at].begin};
            literal[c->cut_count] = old_literal[at];
            cuts[c->cut_count++] = old[at];
            begin = SL_MAX(begin, old[at].end);
        }
        if (begin < end)
            cuts[c->cut_count++] = (chat_range){begin, end};
    }
    c->cuts = cuts;
    c->literal = literal;
    return SL_OK;
}

static sl_status find_ranges(const coder *c, const sl_chat *chat, const sl_chat_request *request, sl_train_on train_on,
                             chat_range **ranges, int64_t *count)
{
    chat_range *specials;
    int64_t special_count = 0;
    SL_TRY(sl_region_alloc(c->region, &specials, c->part_count + 1, sizeof *specials));
    for (int64_t i = 0; i < c->part_count; i++)
        if (c->parts[i].special)
            specials[special_count++] = (chat_range){c->parts[i].begin, c->parts[i].end};
    return sl_chat_ranges(chat, request, c->output, train_on, specials, special_count, c->region, ranges, count);
}

static sl_status encode_chat(coder *c, const sl_chat *chat, const sl_chat_request *request, sl_train_on train_on,
                             sl_text *counted)
{
    chat_range *ranges;
    int64_t count;
    char *marks;
    bool unclear;
    SL_TRY(encode_all(c));
    SL_TRY(find_literals(c));
    if (c->cut_count > 0)
        SL_TRY(encode_all(c));
    if (!counted)
        return SL_OK;
    SL_TRY(find_ranges(c, chat, request, train_on, &ranges, &count));
    SL_TRY(mark(c, ranges, count, &marks, &unclear));
    if (unclear) {
        SL_TRY(cut_at_ranges(c, ranges, count));
        SL_TRY(encode_all(c));
        SL_TRY(mark(c, ranges, count, &marks, &unclear));
    }
    sl_text_append(counted, marks, (size_t) (c->tokens->count - c->start));
    return sl_text_status(counted);
}

/* What is not a part has no text. */
static sl_status put_bytes(const coder *c, sl_byte_counts *bytes)
{
    for (int64_t i = 0; i < c->part_count; i++) {
        const chat_part *p = &c->parts[i];
        if (p->special)
            sl_text_append(&bytes->each, "", 1);
        else
            SL_TRY(sl_token_bytes(c->tokenizer, c->output->text + p->begin, p->end - p->begin,
                                  c->tokens->ids + p->first, p->count, bytes));
    }
    return sl_text_status(&bytes->each);
}

sl_status sl_chat_encode(const sl_chat *chat, sl_encoder *encoder, const sl_chat_request *request, sl_train_on train_on,
                         sl_tokens *tokens, sl_text *counted, sl_byte_counts *bytes)
{
    sl_jinja_output output;
    coder c = {.encoder = encoder,
               .tokenizer = sl_encoder_tokenizer(encoder),
               .output = &output,
               .tokens = tokens,
               .start = tokens->count};
    SL_TRY(sl_region_create(&c.region));
    sl_status status = sl_chat_render_part(chat, request, INT64_MAX, request->add_generation_prompt, c.region, &output);
    if (status == SL_OK && output.length > 0)
        status = encode_chat(&c, chat, request, train_on, counted);
    if (status == SL_OK && bytes)
        status = put_bytes(&c, bytes);
    if (status != SL_OK)
        tokens->count = c.start;
    sl_region_destroy(c.region);
    return status;
}
