#include "text/components.h"

#include <string.h>

#include "text/unicode.h"

sl_status sl_part_type(const char *name, const char *what, const sl_json *part, const char **type)
{
    const char *none = NULL;
    if (part->kind != SL_JSON_OBJECT)
        return sl_fail(SL_E_FORMAT, "%s:%d:%d: a %s should be an object with a \"type\"", name, part->line,
                       part->column, what);
    SL_TRY(sl_json_string_or(name, part, "type", none, type));
    return *type ? SL_OK
                 : sl_fail(SL_E_FORMAT, "%s:%d:%d: a %s without \"type\"", name, part->line, part->column, what);
}

sl_status sl_part_keys(const char *name, const char *what, const sl_json *part, const char *keys)
{
    for (const sl_json *member = part->child; member; member = member->next) {
        const char *list = keys;
        char key[64];
        bool found = false;
        while (!found && sl_next_item(&list, key, sizeof key))
            found = strcmp(key, member->key) == 0;
        if (!found)
            return sl_fail(SL_E_UNSUPPORTED,
                           "%s:%d:%d: the key \"%.60s\" of a %s is not known here, and it may change tokens", name,
                           member->line, member->column, member->key, what);
    }
    return SL_OK;
}

sl_status sl_part_string(sl_tokenizer *t, const char *name, const sl_json *part, const char *key, const char **text,
                         size_t *length)
{
    const sl_json *value = sl_json_get(part, key);
    if (!value || value->kind != SL_JSON_STRING)
        return sl_fail(SL_E_FORMAT, "%s:%d:%d: \"%s\" should be here, a string", name, part->line, part->column, key);
    *length = value->length;
    return sl_keep(t, value->string, value->length, text);
}

sl_status sl_part_pattern(sl_tokenizer *t, const char *name, const sl_json *part, const char **text, size_t *length,
                          bool *regex)
{
    const sl_json *pattern = sl_json_get(part, "pattern");
    *regex = pattern && sl_json_get(pattern, "Regex");
    if (pattern && pattern->kind == SL_JSON_STRING)
        return sl_part_string(t, name, part, "pattern", text, length);
    if (!pattern || pattern->kind != SL_JSON_OBJECT || pattern->count != 1)
        return sl_fail(SL_E_FORMAT, "%s:%d:%d: \"pattern\" should be {\"String\": ...} or {\"Regex\": ...}", name,
                       part->line, part->column);
    return sl_part_string(t, name, pattern, *regex ? "Regex" : "String", text, length);
}

sl_status sl_part_unknown(const char *name, const char *what, const sl_json *part, const char *type, const char *known)
{
    return sl_fail(SL_E_UNSUPPORTED, "%s:%d:%d: the %s \"%.60s\" is not known here; known are %s", name, part->line,
                   part->column, what, type, known);
}

sl_status sl_part_too_many(const char *name, const char *what)
{
    return sl_fail(SL_E_UNSUPPORTED, "%s: more than %d parts of a %s", name, SL_MOST_COMPONENTS, what);
}

sl_status sl_part_sequence(sl_tokenizer *t, const char *name, const char *what, const sl_json *part, const char *key,
                           sl_part_fn read)
{
    const sl_json *members = sl_json_get(part, key);
    if (!members || members->kind != SL_JSON_ARRAY)
        return sl_fail(SL_E_FORMAT, "%s:%d:%d: a %s Sequence should have an array \"%s\"", name, part->line,
                       part->column, what, key);
    for (const sl_json *member = members->child; member; member = member->next)
        SL_TRY(read(t, name, member));
    return SL_OK;
}

/* ---- normalizers ---- */

static sl_status new_change(sl_tokenizer *t, const char *name, sl_change_kind kind, sl_change **change)
{
    if (t->n_changes == SL_MOST_COMPONENTS)
        return sl_part_too_many(name, "normalizer");
    *change = &t->changes[t->n_changes++];
    (*change)->kind = kind;
    return SL_OK;
}

static sl_status read_replace(sl_tokenizer *t, const char *name, const sl_json *part)
{
    sl_change *c = NULL;
    bool regex;
    SL_TRY(sl_part_keys(name, "normalizer", part, "type,pattern,content"));
    SL_TRY(new_change(t, name, SL_CHANGE_REPLACE, &c));
    SL_TRY(sl_part_pattern(t, name, part, &c->from, &c->from_length, &regex));
    SL_TRY(sl_part_string(t, name, part, "content", &c->to, &c->to_length));
    if (!c->from_length)
        return sl_fail(SL_E_UNSUPPORTED, "%s:%d:%d: a normalizer that replaces the empty text", name, part->line,
                       part->column);
    return regex ? sl_regex_create(c->from, c->from_length, &c->regex) : SL_OK;
}

sl_status sl_read_normalizer(sl_tokenizer *t, const char *name, const sl_json *part)
{
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
    const char *type;
    sl_change *c = NULL;
    SL_TRY(sl_part_type(name, "normalizer", part, &type));
    for (int i = 0; i < 4; i++) {
        if (strcmp(type, forms[i]) != 0)
            continue;
        SL_TRY(sl_part_keys(name, "normalizer", part, "type"));
        SL_TRY(new_change(t, name, SL_CHANGE_FORM, &c));
        c->form = (sl_form) i;
        return sl_form_check(c->form);
    }
    if (strcmp(type, "Sequence") == 0)
        return sl_part_sequence(t, name, "normalizer", part, "normalizers", sl_read_normalizer);
    if (strcmp(type, "Prepend") == 0) {
        SL_TRY(sl_part_keys(name, "normalizer", part, "type,prepend"));
        SL_TRY(new_change(t, name, SL_CHANGE_PREPEND, &c));
        return sl_part_string(t, name, part, "prepend", &c->to, &c->to_length);
    }
    if (strcmp(type, "Replace") == 0)
        return read_replace(t, name, part);
    if (strcmp(type, "Lowercase") == 0) {
        SL_TRY(sl_part_keys(name, "normalizer", part, "type"));
        SL_TRY(new_change(t, name, SL_CHANGE_LOWER, &c));
        return sl_form_check(SL_NFC);
    }
    if (strcmp(type, "Strip") == 0) {
        SL_TRY(sl_part_keys(name, "normalizer", part, "type,strip_left,strip_right"));
        SL_TRY(new_change(t, name, SL_CHANGE_STRIP, &c));
        SL_TRY(sl_json_bool_or(name, part, "strip_left", true, &c->left));
        return sl_json_bool_or(name, part, "strip_right", true, &c->right);
    }
    return sl_part_unknown(name, "normalizer", part, type,
                           "NFC, NFD, NFKC, NFKD, Prepend, Replace, Lowercase, Strip and Sequence");
}

/* ---- post-processors: what they add around a single text ---- */

static sl_status add_around(sl_tokenizer *t, const char *name, const sl_json *part, bool behind, int64_t id)
{
    size_t length;
    if (!sl_vocab_text(&t->bpe.vocab, id, &length))
        return sl_fail(SL_E_FORMAT, "%s:%d:%d: the post-processor adds id %lld, which no token has", name, part->line,
                       part->column, (long long) id);
    int32_t small = (int32_t) id;
    return sl_tokens_append(behind ? &t->behind : &t->before, &small, 1);
}

static sl_status read_template(sl_tokenizer *t, const char *name, const sl_json *part)
{
    const sl_json *single = sl_json_get(part, "single"), *specials = sl_json_get(part, "special_tokens");
    bool behind = false;
    SL_TRY(sl_part_keys(name, "post-processor", part, "type,single,pair,special_tokens"));
    if (!single || single->kind != SL_JSON_ARRAY)
        return sl_fail(SL_E_FORMAT, "%s:%d:%d: TemplateProcessing should have an array \"single\"", name, part->line,
                       part->column);
    for (const sl_json *item = single->child; item; item = item->next) {
        const sl_json *token = sl_json_get(item, "SpecialToken");
        const char *id = NULL;
        if (sl_json_get(item, "Sequence")) {
            behind = true;
            continue;
        }
        if (token)
            SL_TRY(sl_json_string_or(name, token, "id", NULL, &id));
        const sl_json *special = id ? sl_json_get(specials, id) : NULL, *ids = sl_json_get(special, "ids");
        if (!ids || ids->kind != SL_JSON_ARRAY)
            return sl_fail(SL_E_FORMAT, "%s:%d:%d: the template names a special token that \"special_tokens\" lacks",
                           name, item->line, item->column);
        for (const sl_json *value = ids->child; value; value = value->next)
            SL_TRY(add_around(t, name, value, behind, value->is_integer ? value->integer : -1));
    }
    return SL_OK;
}

/* ["</s>", 2] */
static sl_status read_pair(sl_tokenizer *t, const char *name, const sl_json *part, const char *key, bool behind)
{
    const sl_json *pair = sl_json_get(part, key);
    const sl_json *id = pair && pair->kind == SL_JSON_ARRAY && pair->count == 2 ? pair->child->next : NULL;
    return add_around(t, name, part, behind, id && id->is_integer ? id->integer : -1);
}

sl_status sl_read_post_processor(sl_tokenizer *t, const char *name, const sl_json *part)
{
    const char *type;
    SL_TRY(sl_part_type(name, "post-processor", part, &type));
    if (strcmp(type, "Sequence") == 0)
        return sl_part_sequence(t, name, "post-processor", part, "processors", sl_read_post_processor);
    if (strcmp(type, "ByteLevel") == 0) /* changes offsets, not ids */
        return SL_OK;
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(t, name, part);
    if (strcmp(type, "RobertaProcessing") == 0 || strcmp(type, "BertProcessing") == 0) {
        SL_TRY(sl_part_keys(name, "post-processor", part, "type,sep,cls,trim_offsets,add_prefix_space"));
        SL_TRY(read_pair(t, name, part, "cls", false));
        return read_pair(t, name, part, "sep", true);
    }
    return sl_part_unknown(name, "post-processor", part, type,
                           "TemplateProcessing, ByteLevel, RobertaProcessing, BertProcessing and Sequence");
}
