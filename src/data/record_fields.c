/* From the fields of an object to a record. Chats of all spellings become a list of {"role", "content"}, as templates expect it. */
#include <string.h>

#include "data/records.h"

static const sl_json *member(const sl_json *object, const char *key, sl_json_kind kind)
{
    const sl_json *found = sl_json_get(object, key);
    return found && found->kind == kind ? found : NULL;
}

/* ---- building chats ---- */

static sl_status add_string(sl_region *region, sl_json *object, const char *key, const char *text, size_t length)
{
    sl_json *node;
    SL_TRY(sl_region_alloc(region, &node, 1, sizeof *node));
    *node = (sl_json){.kind = SL_JSON_STRING, .string = text, .length = length, .key = key};
    const sl_json **link = &object->child;
    while (*link) /* one or two members */
        link = &((sl_json *) (uintptr_t) *link)->next;
    *link = node;
    object->count++;
    return SL_OK;
}

/* A list that grows at its end. */
typedef struct chat_builder {
    sl_region *region;
    sl_json *list, *last;
} chat_builder;

static sl_status begin_chat(sl_region *region, chat_builder *b)
{
    *b = (chat_builder){.region = region};
    SL_TRY(sl_region_alloc(region, &b->list, 1, sizeof *b->list));
    b->list->kind = SL_JSON_ARRAY;
    return SL_OK;
}

static void add_message(chat_builder *b, sl_json *message)
{
    if (b->last)
        b->last->next = message;
    else
        b->list->child = message;
    b->last = message;
    b->list->count++;
}

static sl_status add_turn(chat_builder *b, const char *role, const char *text, size_t length)
{
    sl_json *message;
    SL_TRY(sl_region_alloc(b->region, &message, 1, sizeof *message));
    message->kind = SL_JSON_OBJECT;
    SL_TRY(add_string(b->region, message, "role", role, strlen(role)));
    SL_TRY(add_string(b->region, message, "content", text, length));
    add_message(b, message);
    return SL_OK;
}

/* Roles by the names that data sets have for them; NULL: none of these. */
static const char *role_of(const char *name)
{
    static const char *const roles[][2] = {
        {"human", "user"},        {"user", "user"},
        {"gpt", "assistant"},     {"assistant", "assistant"},
        {"chatgpt", "assistant"}, {"model", "assistant"},
        {"system", "system"},     {"tool", "tool"},
        {"observation", "tool"},  {"function_response", "tool"},
    };
    for (int64_t i = 0; i < SL_COUNT(roles); i++)
        if (strcmp(name, roles[i][0]) == 0)
            return roles[i][1];
    return NULL;
}

/* One of a list; role/content is taken whole, with whatever else a template may read. False: it is neither form. */
static sl_status add_listed(chat_builder *b, const sl_json *item, bool *known)
{
    const sl_json *from = member(item, "from", SL_JSON_STRING), *value = member(item, "value", SL_JSON_STRING);
    *known = member(item, "role", SL_JSON_STRING) != NULL;
    if (*known) {
        sl_json *copy;
        SL_TRY(sl_region_alloc(b->region, &copy, 1, sizeof *copy));
        *copy = *item;
        copy->next = NULL;
        add_message(b, copy);
        return SL_OK;
    }
    const char *role = from && value ? role_of(from->string) : NULL;
    *known = role != NULL;
    return role ? add_turn(b, role, value->string, value->length) : SL_OK;
}

static sl_status add_list(chat_builder *b, const sl_json *list, bool *known)
{
    *known = true;
    for (const sl_json *item = list->child; item && *known; item = item->next)
        SL_TRY(add_listed(b, item, known));
    return SL_OK;
}

/* ---- the kinds ---- */

typedef struct reading {
    const sl_records_config *config;
    const char *name;
    const sl_json *object;
    sl_record *record;
    bool *used;
} reading;

static void leave_out(const reading *r, sl_record_fault why, const char *what)
{
    sl_record_skip_because(r->config->counts, why, "%s: %s", r->name, what);
}

static sl_status as_text(const reading *r, const sl_json *text)
{
    r->record->kind = SL_RECORD_TEXT;
    r->record->text = text->string, r->record->length = text->length;
    *r->used = text->length > 0;
    if (!*r->used)
        leave_out(r, SL_RECORD_EMPTY, "the text is empty");
    return SL_OK;
}

/* `second` may be NULL. A "system" beside the list begins it. */
static sl_status as_chat(const reading *r, const sl_json *first, const sl_json *second)
{
    chat_builder b;
    bool known = true;
    const sl_json *system = member(r->object, "system", SL_JSON_STRING);
    SL_TRY(begin_chat(r->record->region, &b));
    if (system && system->length)
        SL_TRY(add_turn(&b, "system", system->string, system->length));
    int64_t before = b.list->count;
    SL_TRY(add_list(&b, first, &known));
    if (known && second)
        SL_TRY(add_list(&b, second, &known));
    if (!known) {
        leave_out(r, SL_RECORD_NO_FIELD, "a message has neither \"role\" nor a known \"from\" with a \"value\"");
        return SL_OK;
    }
    if (b.list->count == before) {
        leave_out(r, SL_RECORD_EMPTY, "the chat has no messages");
        return SL_OK;
    }
    r->record->kind = SL_RECORD_CHAT;
    r->record->last_turn = second != NULL;
    r->record->messages = b.list;
    r->record->tools = member(r->object, "tools", SL_JSON_ARRAY);
    *r->used = true;
    return SL_OK;
}

static sl_status as_completion(const reading *r, const sl_json *prompt, const sl_json *completion)
{
    r->record->kind = SL_RECORD_COMPLETION;
    r->record->text = prompt->string, r->record->length = prompt->length;
    r->record->completion = completion->string, r->record->completion_length = completion->length;
    *r->used = completion->length > 0;
    if (!*r->used)
        leave_out(r, SL_RECORD_EMPTY, "the completion is empty");
    return SL_OK;
}

/* The input is a paragraph behind the instruction. */
static sl_status as_instruction(const reading *r, const sl_json *instruction, const sl_json *output)
{
    static const char between[] = "\n\n";
    const sl_json *input = member(r->object, "input", SL_JSON_STRING);
    const sl_json *system = member(r->object, "system", SL_JSON_STRING);
    chat_builder b;
    if (output->length == 0) {
        leave_out(r, SL_RECORD_EMPTY, "the output is empty");
        return SL_OK;
    }
    const char *text = instruction->string;
    size_t length = instruction->length;
    if (input && input->length) {
        char *joined;
        size_t gap = length ? sizeof between - 1 : 0;
        SL_TRY(sl_region_alloc(r->record->region, &joined, length + gap + input->length + 1, 1));
        memcpy(joined, text, length);
        memcpy(joined + length, between, gap);
        memcpy(joined + length + gap, input->string, input->length);
        text = joined;
        length += gap + input->length;
    }
    SL_TRY(begin_chat(r->record->region, &b));
    if (system && system->length)
        SL_TRY(add_turn(&b, "system", system->string, system->length));
    SL_TRY(add_turn(&b, "user", text, length));
    SL_TRY(add_turn(&b, "assistant", output->string, output->length));
    r->record->kind = SL_RECORD_CHAT;
    r->record->messages = b.list;
    *r->used = true;
    return SL_OK;
}

static sl_status by_field(const reading *r, const char *field)
{
    const sl_json *found = sl_json_get(r->object, field);
    if (found && found->kind == SL_JSON_STRING)
        return as_text(r, found);
    if (found && found->kind == SL_JSON_ARRAY)
        return as_chat(r, found, NULL);
    sl_record_skip_because(r->config->counts, SL_RECORD_NO_FIELD,
                           "%s: \"%.80s\" is %s, not a string or a list of messages", r->name, field,
                           found ? "of another type" : "missing");
    return SL_OK;
}

static sl_status by_names(const reading *r)
{
    static const char *const lists[] = {"messages", "conversations", "conversation"};
    static const char *const texts[] = {"text", "content"};
    const sl_json *o = r->object, *found, *other;
    for (int64_t i = 0; i < SL_COUNT(lists); i++)
        if ((found = member(o, lists[i], SL_JSON_ARRAY)))
            return as_chat(r, found, NULL);
    if ((found = member(o, "prompt", SL_JSON_STRING)) && (other = member(o, "completion", SL_JSON_STRING)))
        return as_completion(r, found, other);
    if ((found = member(o, "prompt", SL_JSON_ARRAY)) && (other = member(o, "completion", SL_JSON_ARRAY)))
        return as_chat(r, found, other);
    if ((found = member(o, "instruction", SL_JSON_STRING)) && (other = member(o, "output", SL_JSON_STRING)))
        return as_instruction(r, found, other);
    for (int64_t i = 0; i < SL_COUNT(texts); i++)
        if ((found = member(o, texts[i], SL_JSON_STRING)))
            return as_text(r, found);
    leave_out(r, SL_RECORD_NO_FIELD,
              "no field that is known (messages, conversations, prompt and completion, instruction and output, text, "
              "content): name one with --data-field");
    return SL_OK;
}

sl_status sl_record_of(const sl_records_config *config, const char *name, const sl_json *object, sl_record *record,
                       bool *used)
{
    reading r = {config, name, object, record, used};
    *used = false;
    if (object->kind != SL_JSON_OBJECT) {
        leave_out(&r, SL_RECORD_NO_FIELD, "this is no JSON object");
        return SL_OK;
    }
    return config->field ? by_field(&r, config->field) : by_names(&r);
}
