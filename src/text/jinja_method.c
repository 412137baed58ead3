/* Methods of strings, dicts, lists and loops. Those that change their object do not exist: transformers' sandbox forbids them too. */
#include <stdio.h>
#include <string.h>

#include "text/jinja_internal.h"

typedef sl_status method_fn(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                            jinja_value *out);

static sl_status needs_string(sl_jinja_run *run, const jinja_arguments *arguments, const char *method,
                              const jinja_string **out)
{
    SL_TRY(sl_jinja_argument_string(run, arguments, 0, "text", out));
    return *out ? SL_OK : sl_jinja_fail(run, "%s needs a string", method);
}

/* ---- strings ---- */

static sl_status strip_sides(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments, bool left,
                             bool right, jinja_value *out)
{
    const jinja_string *set;
    SL_TRY(sl_jinja_argument_string(run, arguments, 0, "chars", &set));
    return sl_jinja_strip(run, self->string, set, left, right, out);
}

static sl_status str_strip(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                           jinja_value *out)
{
    return strip_sides(run, self, arguments, true, true, out);
}

static sl_status str_lstrip(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                            jinja_value *out)
{
    return strip_sides(run, self, arguments, true, false, out);
}

static sl_status str_rstrip(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                            jinja_value *out)
{
    return strip_sides(run, self, arguments, false, true, out);
}

/* Whether the string has one of the given texts (a tuple may hold several) at its start or end. */
static sl_status has_affix(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments, bool at_end,
                           jinja_value *out)
{
    const jinja_value *given = sl_jinja_argument(arguments, 0, "prefix");
    const jinja_list one = {1, (jinja_value[]){given ? *given : sl_jinja_undefined(NULL)}};
    const jinja_list *affixes = given && given->kind == JINJA_TUPLE ? given->list : &one;
    const jinja_string *s = self->string;
    *out = sl_jinja_bool(false);
    for (int64_t i = 0; i < affixes->count; i++) {
        if (affixes->items[i].kind != JINJA_STRING)
            return sl_jinja_fail(run, "startswith and endswith need a string");
        const jinja_string *affix = affixes->items[i].string;
        if (affix->length > s->length)
            continue;
        const char *at = at_end ? s->bytes + s->length - affix->length : s->bytes;
        out->boolean = out->boolean || memcmp(at, affix->bytes, affix->length) == 0;
    }
    return SL_OK;
}

static sl_status str_startswith(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                                jinja_value *out)
{
    return has_affix(run, self, arguments, false, out);
}

static sl_status str_endswith(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                              jinja_value *out)
{
    return has_affix(run, self, arguments, true, out);
}

static sl_status str_removeprefix(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                                  jinja_value *out)
{
    const jinja_string *affix;
    SL_TRY(needs_string(run, arguments, "removeprefix", &affix));
    SL_TRY(has_affix(run, self, arguments, false, out));
    return sl_jinja_part(run, self->string, out->boolean ? affix->length : 0, self->string->length, out);
}

static sl_status str_removesuffix(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                                  jinja_value *out)
{
    const jinja_string *affix;
    SL_TRY(needs_string(run, arguments, "removesuffix", &affix));
    SL_TRY(has_affix(run, self, arguments, true, out));
    return sl_jinja_part(run, self->string, 0, self->string->length - (out->boolean ? affix->length : 0), out);
}

static sl_status str_upper(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                           jinja_value *out)
{
    (void) arguments;
    return sl_jinja_case(run, self->string, JINJA_UPPER, out);
}

static sl_status str_lower(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                           jinja_value *out)
{
    (void) arguments;
    return sl_jinja_case(run, self->string, JINJA_LOWER, out);
}

static sl_status str_title(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                           jinja_value *out)
{
    (void) arguments;
    return sl_jinja_case(run, self->string, JINJA_TITLE, out);
}

static sl_status str_capitalize(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                                jinja_value *out)
{
    (void) arguments;
    return sl_jinja_case(run, self->string, JINJA_CAPITALIZE, out);
}

static sl_status str_replace(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                             jinja_value *out)
{
    const jinja_string *old, *new;
    int64_t most;
    SL_TRY(sl_jinja_argument_string(run, arguments, 0, "old", &old));
    SL_TRY(sl_jinja_argument_string(run, arguments, 1, "new", &new));
    SL_TRY(sl_jinja_argument_i64(run, arguments, 2, "count", -1, &most));
    if (!old || !new)
        return sl_jinja_fail(run, "replace needs two strings");
    return sl_jinja_replace(run, self->string, old, new, most, out);
}

static sl_status find_at(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments, bool last,
                         jinja_value *out)
{
    const jinja_string *part;
    SL_TRY(needs_string(run, arguments, "find", &part));
    SL_TRY(sl_jinja_spend(run, (int64_t) (self->string->length / JINJA_BYTES_PER_STEP)));
    int64_t at = sl_jinja_find(self->string, part, 0), next = at;
    while (last && next >= 0 && (size_t) next < self->string->length) {
        SL_TRY(sl_jinja_spend(run, 1));
        next = sl_jinja_find(self->string, part, (size_t) next + 1);
        at = next >= 0 ? next : at;
    }
    const jinja_string before = {.bytes = self->string->bytes, .length = at < 0 ? 0 : (size_t) at};
    *out = sl_jinja_int(at < 0 ? -1 : sl_jinja_characters(&before));
    return SL_OK;
}

static sl_status str_find(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                          jinja_value *out)
{
    return find_at(run, self, arguments, false, out);
}

static sl_status str_rfind(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                           jinja_value *out)
{
    return find_at(run, self, arguments, true, out);
}

static sl_status str_index(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                           jinja_value *out)
{
    SL_TRY(find_at(run, self, arguments, false, out));
    return out->integer >= 0 ? SL_OK : sl_jinja_fail(run, "index: the text is not part of the string");
}

static sl_status str_count(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                           jinja_value *out)
{
    const jinja_string *part;
    int64_t count = 0;
    SL_TRY(needs_string(run, arguments, "count", &part));
    SL_TRY(sl_jinja_spend(run, (int64_t) (self->string->length / JINJA_BYTES_PER_STEP)));
    for (int64_t at = 0; part->length > 0 && (at = sl_jinja_find(self->string, part, (size_t) at)) >= 0; count++) {
        SL_TRY(sl_jinja_spend(run, 1));
        at += (int64_t) part->length;
    }
    *out = sl_jinja_int(part->length > 0 ? count : sl_jinja_characters(self->string) + 1);
    return SL_OK;
}

static sl_status str_join(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                          jinja_value *out)
{
    const jinja_value *given = sl_jinja_argument(arguments, 0, "iterable");
    const jinja_list *list;
    jinja_builder b = {0};
    if (!given)
        return sl_jinja_fail(run, "join needs a list");
    SL_TRY(sl_jinja_iterate(run, given, &list));
    for (int64_t i = 0; i < list->count; i++) {
        if (list->items[i].kind != JINJA_STRING)
            return sl_jinja_fail(run, "join: an item is %s, not str", sl_jinja_kind_name(list->items[i].kind));
        if (i > 0)
            SL_TRY(sl_jinja_put_string(run, &b, self->string));
        SL_TRY(sl_jinja_put_string(run, &b, list->items[i].string));
    }
    return sl_jinja_built(run, &b, out);
}

static sl_status split_sides(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments, bool right,
                             jinja_value *out)
{
    const jinja_string *separator;
    int64_t most;
    SL_TRY(sl_jinja_argument_string(run, arguments, 0, "sep", &separator));
    SL_TRY(sl_jinja_argument_i64(run, arguments, 1, "maxsplit", -1, &most));
    return sl_jinja_split(run, self->string, separator, most, right, out);
}

static sl_status str_split(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                           jinja_value *out)
{
    return split_sides(run, self, arguments, false, out);
}

static sl_status str_rsplit(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                            jinja_value *out)
{
    return split_sides(run, self, arguments, true, out);
}

static sl_status str_splitlines(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                                jinja_value *out)
{
    const jinja_value *keep = sl_jinja_argument(arguments, 0, "keepends");
    return sl_jinja_lines(run, self->string, keep && sl_jinja_truth(keep), out);
}

static sl_status str_format(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                            jinja_value *out)
{
    return sl_jinja_format(run, self->string, arguments, out);
}

static sl_status str_isdigit(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                             jinja_value *out)
{
    (void) arguments;
    const jinja_string *s = self->string;
    *out = sl_jinja_bool(s->length > 0);
    for (size_t i = 0; i < s->length; i++)
        out->boolean = out->boolean && s->bytes[i] >= '0' && s->bytes[i] <= '9';
    return sl_jinja_spend(run, (int64_t) (s->length / JINJA_BYTES_PER_STEP));
}

/* ---- dicts, lists, loops ---- */

static sl_status dict_items(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                            jinja_value *out)
{
    (void) arguments;
    jinja_value *items, *pair;
    SL_TRY(sl_jinja_list(run, JINJA_LIST, self->dict->count, out, &items));
    for (int64_t i = 0; i < self->dict->count; i++) {
        SL_TRY(sl_jinja_list(run, JINJA_TUPLE, 2, &items[i], &pair));
        pair[0] = self->dict->entries[i].key;
        pair[1] = self->dict->entries[i].value;
    }
    return SL_OK;
}

sl_status sl_jinja_items(sl_jinja_run *run, const jinja_value *dict, jinja_value *out)
{
    return dict_items(run, dict, NULL, out);
}

static sl_status dict_keys(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                           jinja_value *out)
{
    (void) arguments;
    const jinja_list *list;
    SL_TRY(sl_jinja_iterate(run, self, &list));
    *out = (jinja_value){.kind = JINJA_LIST, .list = list};
    return SL_OK;
}

static sl_status dict_values(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                             jinja_value *out)
{
    (void) arguments;
    jinja_value *items;
    SL_TRY(sl_jinja_list(run, JINJA_LIST, self->dict->count, out, &items));
    for (int64_t i = 0; i < self->dict->count; i++)
        items[i] = self->dict->entries[i].value;
    return SL_OK;
}

static sl_status dict_get(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                          jinja_value *out)
{
    const jinja_value *key = sl_jinja_argument(arguments, 0, "key");
    const jinja_value *otherwise = sl_jinja_argument(arguments, 1, "default");
    jinja_value *found;
    if (!key)
        return sl_jinja_fail(run, "get needs a key");
    SL_TRY(sl_jinja_dict_find(run, self->dict, key, &found));
    *out = found ? *found : otherwise ? *otherwise : (jinja_value){.kind = JINJA_NONE};
    return SL_OK;
}

static sl_status list_index(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                            jinja_value *out)
{
    const jinja_value *wanted = sl_jinja_argument(arguments, 0, "value");
    bool same = false;
    for (int64_t i = 0; wanted && i < self->list->count && !same; i++) {
        SL_TRY(sl_jinja_equal(run, &self->list->items[i], wanted, &same));
        *out = sl_jinja_int(i);
    }
    return same ? SL_OK : sl_jinja_fail(run, "index: the value is not in the list");
}

static sl_status list_count(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                            jinja_value *out)
{
    const jinja_value *wanted = sl_jinja_argument(arguments, 0, "value");
    int64_t count = 0;
    bool same;
    for (int64_t i = 0; wanted && i < self->list->count; i++) {
        SL_TRY(sl_jinja_equal(run, &self->list->items[i], wanted, &same));
        count += same;
    }
    *out = sl_jinja_int(count);
    return SL_OK;
}

static sl_status loop_cycle(sl_jinja_run *run, const jinja_value *self, const jinja_arguments *arguments,
                            jinja_value *out)
{
    if (arguments->plain == 0)
        return sl_jinja_fail(run, "cycle needs values");
    *out = arguments->values[self->loop->index % arguments->plain];
    return SL_OK;
}

static const struct {
    jinja_kind kind;
    const char *name;
    method_fn *call;
} methods[] = {
    {JINJA_STRING, "strip", str_strip},
    {JINJA_STRING, "lstrip", str_lstrip},
    {JINJA_STRING, "rstrip", str_rstrip},
    {JINJA_STRING, "startswith", str_startswith},
    {JINJA_STRING, "endswith", str_endswith},
    {JINJA_STRING, "removeprefix", str_removeprefix},
    {JINJA_STRING, "removesuffix", str_removesuffix},
    {JINJA_STRING, "upper", str_upper},
    {JINJA_STRING, "lower", str_lower},
    {JINJA_STRING, "title", str_title},
    {JINJA_STRING, "capitalize", str_capitalize},
    {JINJA_STRING, "replace", str_replace},
    {JINJA_STRING, "find", str_find},
    {JINJA_STRING, "rfind", str_rfind},
    {JINJA_STRING, "index", str_index},
    {JINJA_STRING, "count", str_count},
    {JINJA_STRING, "join", str_join},
    {JINJA_STRING, "split", str_split},
    {JINJA_STRING, "rsplit", str_rsplit},
    {JINJA_STRING, "splitlines", str_splitlines},
    {JINJA_STRING, "format", str_format},
    {JINJA_STRING, "isdigit", str_isdigit},
    {JINJA_DICT, "items", dict_items},
    {JINJA_DICT, "keys", dict_keys},
    {JINJA_DICT, "values", dict_values},
    {JINJA_DICT, "get", dict_get},
    {JINJA_LIST, "index", list_index},
    {JINJA_LIST, "count", list_count},
    {JINJA_TUPLE, "index", list_index},
    {JINJA_TUPLE, "count", list_count},
    {JINJA_LOOP, "cycle", loop_cycle},
};

static method_fn *find_method(jinja_kind kind, const char *name)
{
    for (int64_t i = 0; i < SL_COUNT(methods); i++)
        if (methods[i].kind == kind && strcmp(methods[i].name, name) == 0)
            return methods[i].call;
    return NULL;
}

bool sl_jinja_has_method(jinja_kind kind, const char *name)
{
    return find_method(kind, name) != NULL;
}

sl_status sl_jinja_call_method(sl_jinja_run *run, const jinja_method *method, const jinja_arguments *arguments,
                               jinja_value *out)
{
    method_fn *call = find_method(method->self.kind, method->name);
    SL_ASSERT(call != NULL);
    return call(run, &method->self, arguments, out);
}
