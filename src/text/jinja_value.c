/* Values as Python has them: truth, equality, order, containers. bool counts as a number, text compares by code points, and dicts keep
 * the order of insertion. */
#include <string.h>

#include "text/jinja_internal.h"

jinja_value sl_jinja_undefined(const char *name)
{
    return (jinja_value){.kind = JINJA_UNDEFINED, .name = name};
}

jinja_value sl_jinja_bool(bool value)
{
    return (jinja_value){.kind = JINJA_BOOL, .boolean = value};
}

jinja_value sl_jinja_int(int64_t value)
{
    return (jinja_value){.kind = JINJA_INT, .integer = value};
}

const char *sl_jinja_kind_name(jinja_kind kind)
{
    static const char *const names[] = {"undefined", "None", "bool",      "int",  "float",    "str",    "list",
                                        "tuple",     "dict", "namespace", "loop", "function", "method", "macro"};
    return names[kind];
}

bool sl_jinja_truth(const jinja_value *v)
{
    switch (v->kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
        return v->boolean;
    case JINJA_INT:
        return v->integer != 0;
    case JINJA_FLOAT:
        return v->number != 0;
    case JINJA_STRING:
        return v->string->length > 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
        return v->list->count > 0;
    case JINJA_DICT:
        return v->dict->count > 0;
    default:
        return true;
    }
}

bool sl_jinja_is_number(const jinja_value *v)
{
    return v->kind == JINJA_BOOL || v->kind == JINJA_INT || v->kind == JINJA_FLOAT;
}

double sl_jinja_as_f64(const jinja_value *v)
{
    return v->kind == JINJA_FLOAT ? v->number : (double) sl_jinja_as_i64(v);
}

int64_t sl_jinja_as_i64(const jinja_value *v)
{
    return v->kind == JINJA_BOOL ? v->boolean : v->integer;
}

/* ---- equality and order ---- */

static bool is_sequence(const jinja_value *v)
{
    return v->kind == JINJA_LIST || v->kind == JINJA_TUPLE;
}

static sl_status equal_lists(sl_jinja_run *run, const jinja_list *a, const jinja_list *b, bool *out)
{
    *out = a->count == b->count;
    for (int64_t i = 0; i < a->count && *out; i++)
        SL_TRY(sl_jinja_equal(run, &a->items[i], &b->items[i], out));
    return SL_OK;
}

static sl_status equal_dicts(sl_jinja_run *run, const jinja_dict *a, const jinja_dict *b, bool *out)
{
    *out = a->count == b->count;
    for (int64_t i = 0; i < a->count && *out; i++) {
        jinja_value *other;
        SL_TRY(sl_jinja_dict_find(run, b, &a->entries[i].key, &other));
        *out = other != NULL;
        if (other)
            SL_TRY(sl_jinja_equal(run, &a->entries[i].value, other, out));
    }
    return SL_OK;
}

sl_status sl_jinja_equal(sl_jinja_run *run, const jinja_value *a, const jinja_value *b, bool *out)
{
    SL_TRY(sl_jinja_spend(run, 1));
    if (sl_jinja_is_number(a) && sl_jinja_is_number(b)) {
        bool exact = a->kind != JINJA_FLOAT && b->kind != JINJA_FLOAT;
        *out = exact ? sl_jinja_as_i64(a) == sl_jinja_as_i64(b) : sl_jinja_as_f64(a) == sl_jinja_as_f64(b);
        return SL_OK;
    }
    *out = false;
    if (a->kind != b->kind)
        return SL_OK;
    if (is_sequence(a) || a->kind == JINJA_DICT) {
        if (++run->depth > JINJA_MOST_DEPTH)
            return sl_jinja_fail(run, "values are nested too deeply to be compared");
        SL_TRY(is_sequence(a) ? equal_lists(run, a->list, b->list, out) : equal_dicts(run, a->dict, b->dict, out));
        run->depth--;
        return SL_OK;
    }
    if (a->kind == JINJA_STRING) {
        *out = a->string->length == b->string->length &&
               memcmp(a->string->bytes, b->string->bytes, a->string->length) == 0;
        return sl_jinja_spend(run, (int64_t) (a->string->length / JINJA_BYTES_PER_STEP));
    }
    *out = a->kind == JINJA_UNDEFINED || a->kind == JINJA_NONE || a->dict == b->dict; /* else the same object */
    return SL_OK;
}

static int order_strings(const jinja_string *a, const jinja_string *b)
{
    int order = memcmp(a->bytes, b->bytes, SL_MIN(a->length, b->length));
    return order != 0 ? (order > 0) - (order < 0) : (a->length > b->length) - (a->length < b->length);
}

sl_status sl_jinja_order(sl_jinja_run *run, const jinja_value *a, const jinja_value *b, int *out)
{
    SL_TRY(sl_jinja_spend(run, 1));
    if (sl_jinja_is_number(a) && sl_jinja_is_number(b)) {
        double x = sl_jinja_as_f64(a), y = sl_jinja_as_f64(b);
        *out = (x > y) - (x < y);
        if (a->kind != JINJA_FLOAT && b->kind != JINJA_FLOAT) {
            int64_t i = sl_jinja_as_i64(a), j = sl_jinja_as_i64(b);
            *out = (i > j) - (i < j);
        }
        return SL_OK;
    }
    if (a->kind == JINJA_STRING && b->kind == JINJA_STRING) {
        *out = order_strings(a->string, b->string);
        return sl_jinja_spend(run, (int64_t) (a->string->length / JINJA_BYTES_PER_STEP));
    }
    if (!is_sequence(a) || a->kind != b->kind)
        return sl_jinja_fail(run, "cannot order %s and %s", sl_jinja_kind_name(a->kind), sl_jinja_kind_name(b->kind));
    *out = 0;
    if (++run->depth > JINJA_MOST_DEPTH)
        return sl_jinja_fail(run, "values are nested too deeply to be compared");
    for (int64_t i = 0; i < SL_MIN(a->list->count, b->list->count) && *out == 0; i++) {
        bool same;
        SL_TRY(sl_jinja_equal(run, &a->list->items[i], &b->list->items[i], &same));
        if (!same)
            SL_TRY(sl_jinja_order(run, &a->list->items[i], &b->list->items[i], out));
    }
    run->depth--;
    if (*out == 0)
        *out = (a->list->count > b->list->count) - (a->list->count < b->list->count);
    return SL_OK;
}

/* ---- containers ---- */

sl_status sl_jinja_list(sl_jinja_run *run, jinja_kind kind, int64_t count, jinja_value *out, jinja_value **items)
{
    jinja_list *list;
    SL_TRY(sl_jinja_spend(run, count));
    SL_TRY(sl_jinja_alloc(run, &list, 1, sizeof *list));
    SL_TRY(sl_jinja_alloc(run, &list->items, count, sizeof *list->items));
    list->count = count;
    *items = list->items;
    *out = (jinja_value){.kind = kind, .list = list};
    return SL_OK;
}

sl_status sl_jinja_dict(sl_jinja_run *run, int64_t capacity, jinja_value *out)
{
    jinja_dict *dict;
    SL_TRY(sl_jinja_alloc(run, &dict, 1, sizeof *dict));
    if (capacity > 0)
        SL_TRY(sl_jinja_alloc(run, &dict->entries, capacity, sizeof *dict->entries));
    dict->capacity = capacity;
    *out = (jinja_value){.kind = JINJA_DICT, .dict = dict};
    return SL_OK;
}

static sl_status dict_append(sl_jinja_run *run, jinja_dict *dict, const jinja_value *key, const jinja_value *value)
{
    if (dict->count == dict->capacity) {
        int64_t capacity = SL_MAX(dict->capacity * 2, (int64_t) 4);
        jinja_entry *entries;
        SL_TRY(sl_jinja_alloc(run, &entries, capacity, sizeof *entries));
        if (dict->count)
            memcpy(entries, dict->entries, (size_t) dict->count * sizeof *entries);
        dict->entries = entries;
        dict->capacity = capacity;
    }
    dict->entries[dict->count++] = (jinja_entry){*key, *value};
    return SL_OK;
}

sl_status sl_jinja_dict_put(sl_jinja_run *run, jinja_dict *dict, const jinja_value *key, const jinja_value *value)
{
    jinja_value *old;
    SL_TRY(sl_jinja_dict_find(run, dict, key, &old));
    if (!old)
        return dict_append(run, dict, key, value);
    *old = *value;
    return SL_OK;
}

/* Dicts of chats are small: a search through all keys, each at a step. */
sl_status sl_jinja_dict_find(sl_jinja_run *run, const jinja_dict *dict, const jinja_value *key, jinja_value **out)
{
    *out = NULL;
    if (is_sequence(key) && key->kind == JINJA_LIST)
        return sl_jinja_fail(run, "a list cannot be a key");
    if (key->kind == JINJA_DICT)
        return sl_jinja_fail(run, "a dict cannot be a key");
    SL_TRY(sl_jinja_spend(run, dict->count / 8));
    for (int64_t i = 0; i < dict->count; i++) {
        jinja_entry *entry = &dict->entries[i];
        bool same = false;
        if (key->kind == JINJA_STRING && entry->key.kind == JINJA_STRING)
            same = key->string->length == entry->key.string->length &&
                   memcmp(key->string->bytes, entry->key.string->bytes, key->string->length) == 0;
        else
            SL_TRY(sl_jinja_equal(run, key, &entry->key, &same));
        if (!same)
            continue;
        *out = &entry->value;
        return SL_OK;
    }
    return SL_OK;
}

/* The characters of a string as strings. */
static sl_status characters(sl_jinja_run *run, const jinja_string *s, const jinja_list **out)
{
    jinja_value list, *items;
    int64_t count = 0;
    SL_TRY(sl_jinja_list(run, JINJA_LIST, sl_jinja_characters(s), &list, &items));
    for (size_t at = 0; at < s->length;) {
        size_t next = at + (size_t) sl_utf8_length(s->bytes + at, s->bytes + s->length);
        SL_TRY(sl_jinja_part(run, s, at, next, &items[count++]));
        at = next;
    }
    *out = list.list;
    return SL_OK;
}

sl_status sl_jinja_iterate(sl_jinja_run *run, const jinja_value *v, const jinja_list **out)
{
    jinja_value list, *items;
    switch (v->kind) {
    case JINJA_LIST:
    case JINJA_TUPLE:
        *out = v->list;
        return SL_OK;
    case JINJA_STRING:
        return characters(run, v->string, out);
    case JINJA_UNDEFINED:
    case JINJA_DICT:
        SL_TRY(sl_jinja_list(run, JINJA_LIST, v->kind == JINJA_DICT ? v->dict->count : 0, &list, &items));
        for (int64_t i = 0; i < list.list->count; i++)
            items[i] = v->dict->entries[i].key;
        *out = list.list;
        return SL_OK;
    default:
        return sl_jinja_fail(run, "a value of type %s has no items to go through", sl_jinja_kind_name(v->kind));
    }
}

sl_status sl_jinja_length(sl_jinja_run *run, const jinja_value *v, int64_t *out)
{
    switch (v->kind) {
    case JINJA_UNDEFINED:
        *out = 0;
        return SL_OK;
    case JINJA_LIST:
    case JINJA_TUPLE:
        *out = v->list->count;
        return SL_OK;
    case JINJA_DICT:
        *out = v->dict->count;
        return SL_OK;
    case JINJA_STRING:
        *out = sl_jinja_characters(v->string);
        return sl_jinja_spend(run, (int64_t) (v->string->length / JINJA_BYTES_PER_STEP));
    default:
        return sl_jinja_fail(run, "a value of type %s has no length", sl_jinja_kind_name(v->kind));
    }
}

sl_status sl_jinja_contains(sl_jinja_run *run, const jinja_value *container, const jinja_value *item, bool *out)
{
    *out = false;
    if (container->kind == JINJA_STRING) {
        if (item->kind != JINJA_STRING)
            return sl_jinja_fail(run, "'in' a string needs a string, not %s", sl_jinja_kind_name(item->kind));
        SL_TRY(sl_jinja_spend(run, (int64_t) (container->string->length / JINJA_BYTES_PER_STEP)));
        *out = sl_jinja_find(container->string, item->string, 0) >= 0;
        return SL_OK;
    }
    if (container->kind == JINJA_DICT) {
        jinja_value *found;
        SL_TRY(sl_jinja_dict_find(run, container->dict, item, &found));
        *out = found != NULL;
        return SL_OK;
    }
    const jinja_list *list;
    SL_TRY(sl_jinja_iterate(run, container, &list));
    for (int64_t i = 0; i < list->count && !*out; i++)
        SL_TRY(sl_jinja_equal(run, &list->items[i], item, out));
    return SL_OK;
}

/* ---- from JSON ---- */

static sl_status wrap_string(sl_jinja_run *run, const char *bytes, size_t length, sl_jinja_mark mark, jinja_value *out)
{
    jinja_string *s;
    SL_TRY(sl_jinja_alloc(run, &s, 1, sizeof *s));
    *s = (jinja_string){.bytes = bytes, .length = length, .mark = mark};
    *out = (jinja_value){.kind = JINJA_STRING, .string = s};
    return SL_OK;
}

/* The reader bounds the depth. Strings share the bytes of the JSON. */
sl_status sl_jinja_from_json(sl_jinja_run *run, const sl_json *json, sl_jinja_mark mark, jinja_value *out)
{
    jinja_value *items, key;
    int64_t count = 0;
    SL_TRY(sl_jinja_spend(run, 1));
    switch (json->kind) {
    case SL_JSON_NULL:
        *out = (jinja_value){.kind = JINJA_NONE};
        return SL_OK;
    case SL_JSON_BOOL:
        *out = sl_jinja_bool(json->boolean);
        return SL_OK;
    case SL_JSON_NUMBER:
        *out =
            json->is_integer ? sl_jinja_int(json->integer) : (jinja_value){.kind = JINJA_FLOAT, .number = json->number};
        return SL_OK;
    case SL_JSON_STRING:
        return wrap_string(run, json->string, json->length, mark, out);
    case SL_JSON_ARRAY:
        SL_TRY(sl_jinja_list(run, JINJA_LIST, json->count, out, &items));
        for (const sl_json *child = json->child; child; child = child->next)
            SL_TRY(sl_jinja_from_json(run, child, mark, &items[count++]));
        return SL_OK;
    default:
        SL_TRY(sl_jinja_dict(run, json->count, out));
        for (const sl_json *child = json->child; child; child = child->next) { /* the reader refuses equal keys */
            SL_TRY(wrap_string(run, child->key, strlen(child->key), mark, &key));
            out->dict->entries[count].key = key;
            SL_TRY(sl_jinja_from_json(run, child, mark, &out->dict->entries[count++].value));
        }
        out->dict->count = count;
        return SL_OK;
    }
}
