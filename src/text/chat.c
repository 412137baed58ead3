/* A model's chat template and the texts of its special tokens, and chats rendered with them. */
#include "text/chat.h"

#include <stdio.h>
#include <string.h>

#include "core/file.h"
#include "text/chat_internal.h"

/* Llama 3's own date for templates without a clock: any day will do, as long as it is always the same. */
static const int64_t fixed_day = 1721995200; /* 2024-07-26 12:00 UTC */
static const size_t config_limit = (size_t) 64 << 20, template_limit = (size_t) 4 << 20;

static sl_status create(sl_chat **out)
{
    sl_region *region;
    sl_status status;
    SL_TRY(sl_region_create(&region));
    SL_TRY_GOTO(sl_region_alloc(region, out, 1, sizeof **out), failed);
    (*out)->region = region;
    return SL_OK;
failed:
    sl_region_destroy(region);
    return status;
}

void sl_chat_close(sl_chat *chat)
{
    if (!chat)
        return;
    sl_jinja_destroy(chat->plain);
    sl_jinja_destroy(chat->tools);
    sl_region_destroy(chat->region);
}

static sl_status add_token(sl_chat *chat, const char *name, const char *text)
{
    chat_token *token = &chat->tokens[chat->token_count];
    SL_TRY(sl_region_strdup(chat->region, name, &token->name));
    SL_TRY(sl_region_strdup(chat->region, text, &token->text));
    chat->token_count++;
    return SL_OK;
}

sl_status sl_chat_parse(const char *name, const char *source, size_t length, const char *bos, const char *eos,
                        sl_chat **chat)
{
    sl_chat *c;
    sl_status status;
    SL_TRY(create(&c));
    SL_TRY_GOTO(sl_region_alloc(c->region, &c->tokens, 2, sizeof *c->tokens), failed);
    if (bos[0])
        SL_TRY_GOTO(add_token(c, "bos_token", bos), failed);
    if (eos[0])
        SL_TRY_GOTO(add_token(c, "eos_token", eos), failed);
    SL_TRY_GOTO(sl_jinja_parse(name, source, length, &c->plain), failed);
    *chat = c;
    return SL_OK;
failed:
    sl_chat_close(c);
    return status;
}

/* ---- a model's folder ---- */

/* A token as the config writes it: its text, or an object with the text as its content. */
static const char *token_text(const sl_json *json)
{
    if (json->kind == SL_JSON_OBJECT)
        json = sl_json_get(json, "content");
    return json && json->kind == SL_JSON_STRING ? json->string : NULL;
}

static bool names_token(const char *key)
{
    size_t length = strlen(key);
    return length > 6 && strcmp(key + length - 6, "_token") == 0 && strncmp(key, "add_", 4) != 0;
}

/* Every "..._token" of the config, and those that extra_special_tokens gives names. */
static sl_status read_tokens(sl_chat *chat, const sl_json *config)
{
    const sl_json *extra = sl_json_get(config, "extra_special_tokens");
    bool named = extra && extra->kind == SL_JSON_OBJECT;
    SL_TRY(sl_region_alloc(chat->region, &chat->tokens, config->count + (named ? extra->count : 0) + 1,
                           sizeof *chat->tokens));
    for (const sl_json *member = config->child; member; member = member->next)
        if (names_token(member->key) && token_text(member))
            SL_TRY(add_token(chat, member->key, token_text(member)));
    for (const sl_json *member = named ? extra->child : NULL; member; member = member->next)
        if (token_text(member))
            SL_TRY(add_token(chat, member->key, token_text(member)));
    return SL_OK;
}

static sl_status parse_into(const char *name, const sl_json *source, sl_jinja **out)
{
    if (!source || source->kind != SL_JSON_STRING)
        return sl_fail(SL_E_FORMAT, "%s: chat_template is neither a string nor a list of {\"name\", \"template\"}",
                       name);
    if (*out) /* a name that comes twice: the last counts */
        sl_jinja_destroy(*out);
    *out = NULL;
    return sl_jinja_parse(name, source->string, source->length, out);
}

/* A list of templates with names. */
static sl_status read_named(sl_chat *chat, const char *path, const sl_json *list)
{
    for (const sl_json *item = list->child; item; item = item->next) {
        const sl_json *name = sl_json_get(item, "name");
        if (!name || name->kind != SL_JSON_STRING)
            return sl_fail(SL_E_FORMAT, "%s: an entry of chat_template has no name", path);
        if (strcmp(name->string, "default") == 0)
            SL_TRY(parse_into(path, sl_json_get(item, "template"), &chat->plain));
        if (strcmp(name->string, "tool_use") == 0)
            SL_TRY(parse_into(path, sl_json_get(item, "template"), &chat->tools));
    }
    if (!chat->plain)
        return sl_fail(SL_E_FORMAT, "%s: chat_template is a list of %lld templates, none of them named \"default\"",
                       path, (long long) list->count);
    return SL_OK;
}

static sl_status read_config(sl_chat *chat, const char *path, bool with_template)
{
    char *text;
    size_t length;
    sl_region *region;
    sl_status status;
    const sl_json *config;
    SL_TRY(sl_file_read_all(path, config_limit, &text, &length));
    SL_TRY_GOTO(sl_region_create(&region), free_text);
    SL_TRY_GOTO(sl_json_parse(region, path, text, length, &config), done);
    SL_TRY_GOTO(read_tokens(chat, config), done);
    const sl_json *source = sl_json_get(config, "chat_template");
    if (with_template && source && source->kind == SL_JSON_ARRAY)
        status = read_named(chat, path, source);
    else if (with_template && source && source->kind != SL_JSON_NULL)
        status = parse_into(path, source, &chat->plain);
done:
    sl_region_destroy(region);
free_text:
    sl_free(text);
    return status;
}

static sl_status read_file(const char *path, sl_jinja **out)
{
    char *text;
    size_t length;
    SL_TRY(sl_file_read_all(path, template_limit, &text, &length));
    sl_status status = sl_jinja_parse(path, text, length, out);
    sl_free(text);
    return status;
}

static sl_status read_folder(sl_chat *chat, const char *folder)
{
    const char *config, *file, *tools;
    SL_TRY(sl_region_printf(chat->region, &config, "%s/tokenizer_config.json", folder));
    SL_TRY(sl_region_printf(chat->region, &file, "%s/chat_template.jinja", folder));
    SL_TRY(sl_region_printf(chat->region, &tools, "%s/additional_chat_templates/tool_use.jinja", folder));
    bool has_file = sl_file_exists(file);
    if (sl_file_exists(config))
        SL_TRY(read_config(chat, config, !has_file));
    if (has_file)
        SL_TRY(read_file(file, &chat->plain));
    if (has_file && sl_file_exists(tools))
        SL_TRY(read_file(tools, &chat->tools));
    if (!chat->plain)
        return sl_fail(
            SL_E_FORMAT,
            "%s has no chat template: neither chat_template.jinja nor chat_template in tokenizer_config.json. "
            "Take the tokenizer of a chat model, or add the file",
            folder);
    return SL_OK;
}

sl_status sl_chat_open(const char *folder, sl_chat **chat)
{
    sl_chat *c;
    SL_TRY(create(&c));
    sl_status status = read_folder(c, folder);
    if (status == SL_OK)
        *chat = c;
    else
        sl_chat_close(c);
    return status;
}

/* ---- rendering ---- */

static bool has_tools(const sl_chat_request *request)
{
    return request->tools && request->tools->kind != SL_JSON_NULL;
}

const sl_jinja *sl_chat_template(const sl_chat *chat, const sl_chat_request *request)
{
    return chat->tools && has_tools(request) ? chat->tools : chat->plain;
}

sl_status sl_chat_render_part(const sl_chat *chat, const sl_chat_request *request, int64_t count, bool prompt,
                              sl_region *region, sl_jinja_output *out)
{
    sl_jinja_run *run;
    const sl_jinja_mark data = CHAT_DATA << SL_JINJA_SOURCE_SHIFT;
    if (request->messages->kind != SL_JSON_ARRAY)
        return sl_fail(SL_E_FORMAT, "the messages of a chat are no array");
    SL_TRY(sl_jinja_begin(sl_chat_template(chat, request), region, request->time ? request->time : fixed_day, &run));
    for (int64_t i = 0; i < chat->token_count; i++)
        SL_TRY(sl_jinja_set_string(run, chat->tokens[i].name, chat->tokens[i].text, 0));
    SL_TRY(sl_jinja_set_messages(run, request->messages, count, CHAT_MESSAGE));
    SL_TRY(has_tools(request) ? sl_jinja_set_json(run, "tools", request->tools, data)
                              : sl_jinja_set_none(run, "tools"));
    SL_TRY(sl_jinja_set_none(run, "documents"));
    SL_TRY(sl_jinja_set_bool(run, "add_generation_prompt", prompt));
    if (request->variables && request->variables->kind == SL_JSON_OBJECT)
        for (const sl_json *v = request->variables->child; v; v = v->next)
            SL_TRY(sl_jinja_set_json(run, v->key, v, data));
    return sl_jinja_finish(run, out);
}

sl_status sl_chat_render(const sl_chat *chat, const sl_chat_request *request, sl_text *out)
{
    sl_region *region;
    sl_jinja_output output;
    SL_TRY(sl_region_create(&region));
    sl_status status = sl_chat_render_part(chat, request, INT64_MAX, request->add_generation_prompt, region, &output);
    if (status == SL_OK) {
        sl_text_append(out, output.text, output.length);
        status = sl_text_status(out);
    }
    sl_region_destroy(region);
    return status;
}
