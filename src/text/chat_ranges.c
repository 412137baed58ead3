/*
 * What the loss counts of a chat. A template that marks it with {% generation %} says it itself. For the others, the spans of the
 * rendering say where the content of message i stands, and two questions remain about the template's text around it:
 *
 *   ... question <|im_end|>\n<|im_start|>assistant\n <think>\n reasoning \n</think>\n\n answer <|im_end|>\n <|im_start|>user ...
 *               |---------- generation prompt -----|------------------ counted ---------------|
 *               anchor: the last byte that is not the template's
 *
 * Where the prompt ends: the chat before message i, rendered with the generation prompt, ends with the text that follows the anchor when
 * the model generates; what agrees with it is not counted. Where the turn ends: the last special token of the text that the chat up to
 * message i has behind the content, with and without a generation prompt alike.
 *
 * Comparing these tails, and not whole renderings, also serves templates whose earlier turns change with later ones, as when reasoning
 * is left out of history. Equal surroundings give equal answers, so a long chat needs few extra renderings.
 */
#include <string.h>

#include "text/chat_internal.h"

/* The surroundings of a turn that were looked at before. */
typedef struct seen_tail {
    struct seen_tail *next;
    const char *text;
    size_t length;
    size_t counted; /* start: how much of it the prompt supplies; end: how much belongs to the turn */
} seen_tail;

/* The content of a message in the text, and the spans it begins and ends in. Without content it is empty, behind the message's role. */
typedef struct content_place {
    size_t begin, end; /* end 0: the message left no trace */
    int64_t first, last;
} content_place;

typedef struct ranger {
    const sl_chat *chat;
    const sl_chat_request *request;
    const sl_jinja_output *full;
    const chat_range *specials;
    int64_t special_count;
    sl_region *region;
    sl_region *scratch;      /* of one turn: further renderings */
    content_place *contents; /* of each message */
    chat_range *ranges;
    int64_t count;
    seen_tail *starts, *ends;
    size_t work_left; /* bytes of further renderings */
} ranger;

static size_t span_begin(const sl_jinja_output *o, int64_t i)
{
    return i == 0 ? 0 : o->spans[i - 1].end;
}

static void find_contents(ranger *r)
{
    for (int64_t i = 0; i < r->full->span_count; i++) {
        sl_jinja_mark mark = r->full->spans[i].mark;
        if (sl_jinja_source(mark) < CHAT_MESSAGE)
            continue;
        content_place *content = &r->contents[sl_jinja_source(mark) - CHAT_MESSAGE];
        size_t end = r->full->spans[i].end;
        bool empty = content->begin == content->end;
        if (!(mark & SL_JINJA_TRUSTED))
            *content =
                (content_place){empty ? span_begin(r->full, i) : content->begin, end, empty ? i : content->first, i};
        else if (empty)
            *content = (content_place){end, end, i, i};
    }
}

/* Behind the last data before span `at`, but for that of message `except`. */
static size_t anchor_before(const sl_jinja_output *o, int64_t at, int64_t except)
{
    while (--at >= 0) {
        uint32_t source = sl_jinja_source(o->spans[at].mark);
        if (source != 0 && (int64_t) source != except + CHAT_MESSAGE)
            return o->spans[at].end;
    }
    return 0;
}

/* The text behind the last data. */
static const char *tail_of(const sl_jinja_output *o, size_t *length)
{
    size_t anchor = anchor_before(o, o->span_count, -CHAT_MESSAGE);
    *length = o->length - anchor;
    return o->text + anchor;
}

/* The first byte behind span `at` that comes from data. */
static size_t data_behind(const sl_jinja_output *o, int64_t at)
{
    while (++at < o->span_count)
        if (sl_jinja_source(o->spans[at].mark) != 0)
            return span_begin(o, at);
    return o->length;
}

static size_t common_prefix(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t length = SL_MIN(a_length, b_length), i = 0;
    while (i < length && a[i] == b[i])
        i++;
    return i;
}

static const seen_tail *find_seen(const seen_tail *list, const char *text, size_t length)
{
    for (; list; list = list->next)
        if (list->length == length && memcmp(list->text, text, length) == 0)
            return list;
    return NULL;
}

static sl_status remember(ranger *r, seen_tail **list, const char *text, size_t length, size_t counted)
{
    seen_tail *seen;
    SL_TRY(sl_region_alloc(r->region, &seen, 1, sizeof *seen));
    *seen = (seen_tail){*list, text, length, counted};
    *list = seen;
    return SL_OK;
}

/* The first messages rendered. *refused: the template refuses a chat that ends here. */
static sl_status render_first(ranger *r, int64_t count, bool prompt, sl_jinja_output *out, bool *refused)
{
    sl_status status = sl_chat_render_part(r->chat, r->request, count, prompt, r->scratch, out);
    *refused = status == SL_E_FORMAT;
    if (*refused)
        return SL_OK;
    SL_TRY(status);
    if (out->length > r->work_left)
        return sl_fail(SL_E_FORMAT, "the answers of this chat differ too much to find what to train on: mark it with "
                                    "{%% generation %%} in the template, or train on all");
    r->work_left -= out->length;
    return SL_OK;
}

/* The first special token that ends behind `to`. */
static int64_t special_behind(const ranger *r, size_t to)
{
    int64_t low = 0, high = r->special_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (r->specials[middle].end <= to)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Behind the last special token in [from, to); 0: none. */
static size_t last_special(const ranger *r, size_t from, size_t to)
{
    int64_t behind = special_behind(r, to);
    return behind > 0 && r->specials[behind - 1].begin >= from ? r->specials[behind - 1].end : 0;
}

/* Behind the special token that begins at `at`; `otherwise`: none does. */
static size_t special_at(const ranger *r, size_t at, size_t otherwise)
{
    int64_t next = special_behind(r, at);
    return next < r->special_count && r->specials[next].begin == at ? r->specials[next].end : otherwise;
}

/* `at`, or the beginning of the special token that it would divide. */
static size_t before_special(const ranger *r, size_t at)
{
    int64_t next = special_behind(r, at);
    return next < r->special_count && r->specials[next].begin < at ? r->specials[next].begin : at;
}

static size_t skip_blanks(const ranger *r, size_t at)
{
    while (at < r->full->length && r->full->text[at] && strchr(" \t\r\n", r->full->text[at]))
        at++;
    return at;
}

/* Where the answer begins with other text of the template than the prompt does, as with a call of a tool where the prompt opens a
 * thought: behind the last special token, or line, that both have. One has to be the prompt's own. `end`: of what both have. */
static sl_status find_header(ranger *r, int64_t i, const char *text, size_t end, size_t *start)
{
    sl_jinja_output before;
    bool refused;
    size_t gap = (size_t) (text - r->full->text), length, header = 0;
    SL_TRY(render_first(r, i, false, &before, &refused));
    if (!refused) {
        const char *tail = tail_of(&before, &length);
        header = common_prefix(text, end - gap, tail, length);
    }
    size_t special = last_special(r, gap + header, end), line = before_special(r, end);
    while (line > gap + header && r->full->text[line - 1] != '\n')
        line--;
    *start = SL_MAX(special, line);
    if (*start > gap + header)
        return SL_OK;
    return sl_fail(SL_E_FORMAT,
                   "message %lld: the template begins this answer otherwise than its generation prompt does, so that "
                   "what to train "
                   "on is unclear. Mark it with {%% generation %%} in the template, or train on all",
                   (long long) i + 1);
}

/* Where the counted text of message i begins. */
static sl_status find_start(ranger *r, int64_t i, size_t *start)
{
    const sl_jinja_output *full = r->full;
    const content_place *content = &r->contents[i];
    size_t gap = anchor_before(full, content->first, i), length;
    const char *text = full->text + gap;
    const seen_tail *seen = find_seen(r->starts, text, content->begin - gap);
    *start = content->begin;
    if (seen) {
        *start = gap + seen->counted;
        return SL_OK;
    }
    sl_jinja_output before;
    bool refused;
    SL_TRY(render_first(r, i, true, &before, &refused));
    if (refused)
        return SL_OK;
    const char *prompt = tail_of(&before, &length);
    size_t common = common_prefix(text, full->length - gap, prompt, length);
    if (common < length && gap + common < content->begin) {
        SL_TRY(find_header(r, i, text, gap + common, start));
        return remember(r, &r->starts, text, content->begin - gap, *start - gap);
    }
    if (common < length) /* a prompt that says more than history does: the answer alone */
        return SL_OK;
    *start = gap + common;
    if (*start > content->begin) /* the answer repeats what the prompt supplies, which depends on the answer */
        return SL_OK;
    return remember(r, &r->starts, text, content->begin - gap, common);
}

/* The end of an answer without content, whose frame history may shorten: its first special token. */
static size_t end_of_empty(const ranger *r, int64_t i, size_t begin)
{
    int64_t next = special_behind(r, begin);
    bool inside = next < r->special_count && r->specials[next].end <= data_behind(r->full, r->contents[i].last);
    return inside ? r->specials[next].end : begin;
}

/* How much of the text behind an answer is there at the end of another rendering, too. */
static size_t agreement(const char *text, size_t length, const sl_jinja_output *other)
{
    size_t tail_length;
    const char *tail = tail_of(other, &tail_length);
    return common_prefix(text, length, tail, tail_length);
}

/* Some templates write the name of a call again with its result. Where the chat that ends with message i agrees with the whole through
 * the token that ends the turn, the answer ends there: *end, else 0. */
static void end_of_repeated(const ranger *r, int64_t i, const sl_jinja_output *alone, size_t *end)
{
    const content_place *content = &r->contents[i];
    size_t length, begin = 0, whole = r->full->length - content->begin;
    *end = 0;
    for (int64_t s = 0; s < alone->span_count && begin == 0; s++)
        if (sl_jinja_source(alone->spans[s].mark) == (uint32_t) i + CHAT_MESSAGE &&
            !(alone->spans[s].mark & SL_JINJA_TRUSTED))
            begin = span_begin(alone, s);
    tail_of(alone, &length);
    size_t size = alone->length - length - begin; /* of the content */
    if (begin == 0 || alone->length - length <= begin || size >= content->end - content->begin)
        return;
    size_t same = common_prefix(r->full->text + content->begin, whole, alone->text + begin, alone->length - begin);
    *end = last_special(r, content->begin + size, content->begin + same);
}

static sl_status find_end(ranger *r, int64_t i, size_t *end)
{
    size_t from = r->contents[i].end, length = data_behind(r->full, r->contents[i].last) - from;
    const char *text = r->full->text + from;
    const seen_tail *seen = find_seen(r->ends, text, length);
    if (seen) {
        *end = from + seen->counted;
        return SL_OK;
    }
    sl_jinja_output alone, prompt;
    bool refused;
    size_t own = length, both;
    SL_TRY(render_first(r, i + 1, false, &alone, &refused));
    if (!refused) {
        end_of_repeated(r, i, &alone, end);
        if (*end > 0)
            return SL_OK;
        own = agreement(text, length, &alone);
    }
    SL_TRY(render_first(r, i + 1, true, &prompt, &refused));
    both = refused ? own : agreement(text, own, &prompt);
    *end = last_special(r, from, from + both);
    if (*end == 0)
        *end = last_special(r, from, from + own);
    if (*end == 0) { /* no token of its own: the one that begins the next turn ends this one */
        int64_t token = special_behind(r, before_special(r, from + own));
        bool inside = token < r->special_count && r->specials[token].end <= from + length;
        *end = inside ? r->specials[token].end : from + own;
    }
    return remember(r, &r->ends, text, length, *end - from);
}

static void add_range(ranger *r, size_t begin, size_t end)
{
    if (r->count > 0)
        begin = SL_MAX(begin, r->ranges[r->count - 1].end);
    if (end > begin)
        r->ranges[r->count++] = (chat_range){begin, end};
}

/* An answer without content leaves no trace but its frame: found where the chat before it is the beginning of the whole. */
static sl_status add_empty(ranger *r, int64_t i)
{
    const sl_jinja_output *full = r->full;
    sl_jinja_output before, behind;
    bool refused;
    SL_TRY(render_first(r, i, true, &before, &refused));
    if (refused || common_prefix(full->text, full->length, before.text, before.length) < before.length)
        return SL_OK;
    SL_TRY(render_first(r, i + 1, false, &behind, &refused));
    if (!refused)
        add_range(r, before.length,
                  last_special(r, before.length, common_prefix(full->text, full->length, behind.text, behind.length)));
    return SL_OK;
}

/* Whether data from elsewhere stands between the content of message i and `end`. */
static bool is_interrupted(const ranger *r, int64_t i, size_t end)
{
    const sl_jinja_output *o = r->full;
    for (int64_t s = r->contents[i].first; s < o->span_count && span_begin(o, s) < end; s++) {
        uint32_t source = sl_jinja_source(o->spans[s].mark);
        if (source != 0 && source != (uint32_t) i + CHAT_MESSAGE)
            return true;
    }
    return false;
}

static sl_status add_turn(ranger *r, int64_t i)
{
    size_t begin, end;
    if (r->contents[i].end == 0)
        return add_empty(r, i);
    SL_TRY(find_start(r, i, &begin));
    if (r->contents[i].begin == r->contents[i].end)
        end = end_of_empty(r, i, begin);
    else
        SL_TRY(find_end(r, i, &end));
    if (is_interrupted(r, i, end))
        return sl_fail(
            SL_E_FORMAT,
            "message %lld: the template puts text of another message into this answer. Mark what to train on with "
            "{%% generation %%} in the template, or train on all",
            (long long) i + 1);
    add_range(r, begin, end);
    return SL_OK;
}

static sl_status add_turn_alone(ranger *r, int64_t i)
{
    SL_TRY(sl_region_create(&r->scratch));
    sl_status status = add_turn(r, i);
    sl_region_destroy(r->scratch);
    return status;
}

static bool is_assistant(const sl_json *message)
{
    const sl_json *role = sl_json_get(message, "role");
    return role && role->kind == SL_JSON_STRING && strcmp(role->string, "assistant") == 0;
}

/* ---- templates with {% generation %} ---- */

/* A block that leaves out the token that ends its turn, which then follows at once or behind white space: the token belongs to it. */
static size_t with_end(const ranger *r, chat_range range)
{
    size_t own = last_special(r, range.begin, range.end);
    if (own > 0 && skip_blanks(r, own) >= range.end)
        return range.end;
    return special_at(r, skip_blanks(r, range.end), range.end);
}

/* With `last`, of message `last` alone. A block before its content that ends with a special token ends another turn. */
static void add_generated(ranger *r, int64_t last)
{
    const content_place *content = last >= 0 ? &r->contents[last] : NULL;
    size_t from = content && content->end > 0 ? anchor_before(r->full, content->first, last) : 0;
    for (int64_t i = 0; i < r->full->span_count; i++) {
        size_t begin = span_begin(r->full, i), end = r->full->spans[i].end;
        if (!(r->full->spans[i].mark & SL_JINJA_GENERATED) || begin < from)
            continue;
        if (r->count > 0 && r->ranges[r->count - 1].end == begin)
            r->ranges[r->count - 1].end = end;
        else
            r->ranges[r->count++] = (chat_range){begin, end};
    }
    for (int64_t i = 0; i < r->count; i++) {
        size_t end = with_end(r, r->ranges[i]);
        if (i + 1 == r->count || end <= r->ranges[i + 1].begin)
            r->ranges[i].end = end;
    }
    int64_t others = content && content->end == 0 ? SL_MAX(r->count - 1, (int64_t) 0) : 0;
    for (int64_t i = 0; content && content->end > 0 && i < r->count && r->ranges[i].end <= content->begin; i++)
        if (last_special(r, r->ranges[i].begin, r->ranges[i].end) == r->ranges[i].end)
            others = i + 1;
    r->ranges += others;
    r->count -= others;
}

sl_status sl_chat_ranges(const sl_chat *chat, const sl_chat_request *request, const sl_jinja_output *rendered,
                         sl_train_on train_on, const chat_range *specials, int64_t special_count, sl_region *region,
                         chat_range **ranges, int64_t *count)
{
    ranger r = {.chat = chat,
                .request = request,
                .full = rendered,
                .specials = specials,
                .special_count = special_count,
                .region = region,
                .work_left = ((size_t) 64 << 20) + 16 * rendered->length};
    int64_t last = -1, i = 0;
    SL_TRY(sl_region_alloc(region, &r.ranges, rendered->span_count + request->messages->count + 1, sizeof *r.ranges));
    SL_TRY(sl_region_alloc(region, &r.contents, request->messages->count, sizeof *r.contents));
    find_contents(&r);
    for (const sl_json *m = request->messages->child; m; m = m->next, i++)
        last = is_assistant(m) ? i : last;
    if (train_on == SL_TRAIN_ON_ALL) {
        add_range(&r, 0, rendered->length);
    } else if (sl_jinja_has_generation(sl_chat_template(chat, request))) {
        add_generated(&r, train_on == SL_TRAIN_ON_COMPLETION ? last : -1);
    } else {
        i = 0;
        for (const sl_json *m = request->messages->child; m; m = m->next, i++)
            if (is_assistant(m) && (train_on == SL_TRAIN_ON_ASSISTANT || i == last))
                SL_TRY(add_turn_alone(&r, i));
    }
    *ranges = r.ranges;
    *count = r.count;
    return SL_OK;
}
