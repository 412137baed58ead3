/* The life of a rendering: variables from the caller, execution, and the output with its spans. */
#include <string.h>

#include "text/jinja_internal.h"

sl_status sl_jinja_begin(const sl_jinja *template_, sl_region *region, int64_t time, sl_jinja_run **run)
{
    sl_jinja_run *r;
    SL_TRY(sl_region_alloc(region, &r, 1, sizeof *r));
    *r = (sl_jinja_run){.template_ = template_,
                        .region = region,
                        .steps = JINJA_BASE_STEPS,
                        .memory = JINJA_BASE_MEMORY,
                        .time = time,
                        .line = 1};
    r->scope = &r->globals;
    *run = r;
    return SL_OK;
}

/* What a value of the caller adds to the limits: they grow with the size of the chat. */
static int64_t input_bytes(const sl_json *json)
{
    int64_t bytes = 16 + (int64_t) json->length + (json->key ? (int64_t) strlen(json->key) : 0);
    for (const sl_json *child = json->child; child; child = child->next)
        bytes += input_bytes(child);
    return bytes;
}

static void allow(sl_jinja_run *run, const sl_json *json)
{
    int64_t more = input_bytes(json) * JINJA_STEPS_PER_BYTE;
    run->steps += more;
    run->memory += more;
}

sl_status sl_jinja_set_json(sl_jinja_run *run, const char *name, const sl_json *json, sl_jinja_mark mark)
{
    jinja_value value;
    allow(run, json);
    SL_TRY(sl_jinja_from_json(run, json, mark, &value));
    return sl_jinja_define(run, &run->globals, name, &value);
}

sl_status sl_jinja_set_string(sl_jinja_run *run, const char *name, const char *text, sl_jinja_mark mark)
{
    jinja_value value;
    SL_TRY(sl_jinja_string(run, text, strlen(text), mark, &value));
    return sl_jinja_define(run, &run->globals, name, &value);
}

sl_status sl_jinja_set_bool(sl_jinja_run *run, const char *name, bool boolean)
{
    const jinja_value value = sl_jinja_bool(boolean);
    return sl_jinja_define(run, &run->globals, name, &value);
}

sl_status sl_jinja_set_none(sl_jinja_run *run, const char *name)
{
    const jinja_value value = {.kind = JINJA_NONE};
    return sl_jinja_define(run, &run->globals, name, &value);
}

static bool is_identifier(const jinja_string *s)
{
    bool good = s->length > 0 && s->length <= 64;
    for (size_t i = 0; good && i < s->length; i++) {
        char c = s->bytes[i], lower = (char) (c | 32);
        good = (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') || c == '_';
    }
    return good;
}

/* Templates build special tokens such as <|user|> of a role's name. Letters alone can become no token that the template does not
 * write around them. */
static sl_status trust_role(sl_jinja_run *run, const jinja_value *message, sl_jinja_mark mark)
{
    for (int64_t i = 0; i < message->dict->count; i++) {
        jinja_entry *entry = &message->dict->entries[i];
        const jinja_string *key = entry->key.string;
        if (key->length != 4 || memcmp(key->bytes, "role", 4) != 0 || entry->value.kind != JINJA_STRING ||
            !is_identifier(entry->value.string))
            continue;
        jinja_string *role;
        SL_TRY(sl_jinja_alloc(run, &role, 1, sizeof *role));
        *role = *entry->value.string;
        role->mark = mark | SL_JINJA_TRUSTED;
        entry->value.string = role;
    }
    return SL_OK;
}

/* As transformers does: a message's reasoning, under whichever of three names it comes, is there as `reasoning_content`, which is the
 * standard one, and as `thinking`, which is in front where it was not given. */
static sl_status alias_reasoning(sl_jinja_run *run, jinja_value *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    jinja_value *found = NULL, *old, keys[3], copy;
    for (int i = 0; i < 3; i++) {
        SL_TRY(sl_jinja_string(run, names[i], strlen(names[i]), 0, &keys[i]));
        SL_TRY(sl_jinja_dict_find(run, message->dict, &keys[i], &old));
        if (!found && old && old->kind != JINJA_NONE)
            found = old;
    }
    if (!found)
        return SL_OK;
    SL_TRY(sl_jinja_dict(run, message->dict->count + 2, &copy));
    SL_TRY(sl_jinja_dict_put(run, copy.dict, &keys[1], found));
    for (int64_t i = 0; i < message->dict->count; i++)
        SL_TRY(sl_jinja_dict_put(run, copy.dict, &message->dict->entries[i].key, &message->dict->entries[i].value));
    SL_TRY(sl_jinja_dict_put(run, copy.dict, &keys[0], found));
    *message = copy;
    return SL_OK;
}

sl_status sl_jinja_set_messages(sl_jinja_run *run, const sl_json *messages, int64_t count, uint32_t first_source)
{
    jinja_value list, *items;
    int64_t i = 0;
    allow(run, messages);
    SL_TRY(sl_jinja_list(run, JINJA_LIST, SL_MIN(count, messages->count), &list, &items));
    for (const sl_json *message = messages->child; message && i < list.list->count; message = message->next, i++) {
        const sl_jinja_mark mark = (first_source + (uint32_t) i) << SL_JINJA_SOURCE_SHIFT;
        if (message->kind != SL_JSON_OBJECT)
            return sl_fail(SL_E_FORMAT, "message %lld of the chat is no object with \"role\" and \"content\"",
                           (long long) i + 1);
        SL_TRY(sl_jinja_from_json(run, message, mark, &items[i]));
        SL_TRY(trust_role(run, &items[i], mark));
        SL_TRY(alias_reasoning(run, &items[i]));
    }
    return sl_jinja_define(run, &run->globals, "messages", &list);
}

sl_status sl_jinja_finish(sl_jinja_run *run, sl_jinja_output *out)
{
    jinja_builder *b;
    SL_TRY(sl_jinja_alloc(run, &b, 1, sizeof *b));
    run->out = b;
    run->scope = &run->globals;
    SL_TRY(sl_jinja_execute(run, run->template_->body));
    size_t length = b->length;
    SL_TRY(sl_jinja_put(run, b, "", 1, 0)); /* the end of a C string, which no span covers */
    b->spans[b->span_count - 1].end = length;
    if (length == 0 || (b->span_count > 1 && b->spans[b->span_count - 2].end == length))
        b->span_count--;
    *out = (sl_jinja_output){b->bytes, length, b->spans, b->span_count};
    return SL_OK;
}
