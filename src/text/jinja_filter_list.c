/* Filters that go through lists. Jinja2 returns generators from some of them; here these are lists, which templates cannot tell apart
 * but by printing them. */
#include <string.h>

#include "text/jinja_filters.h"

/* "a.b.0": attributes and indices, one behind the other. */
static sl_status get_path(sl_jinja_run *run, const jinja_value *v, const jinja_value *path, jinja_value *out)
{
    if (path->kind != JINJA_STRING)
        return sl_jinja_item(run, v, path, out);
    jinja_value parts;
    const jinja_string dot = {.bytes = ".", .length = 1};
    SL_TRY(sl_jinja_split(run, path->string, &dot, -1, false, &parts));
    *out = *v;
    for (int64_t i = 0; i < parts.list->count; i++) {
        const jinja_string *part = parts.list->items[i].string;
        jinja_value from = *out, key = parts.list->items[i];
        if (part->length > 0 && part->length < 10 && strspn(part->bytes, "0123456789") >= part->length) {
            key = sl_jinja_int(0);
            for (size_t d = 0; d < part->length; d++)
                key.integer = key.integer * 10 + (part->bytes[d] - '0');
        }
        SL_TRY(sl_jinja_item(run, &from, &key, out));
    }
    return SL_OK;
}

/* map and select give nothing for what is false, None too, instead of going through it. */
static sl_status iterate_true(sl_jinja_run *run, const jinja_value *v, const jinja_list **out)
{
    const jinja_value nothing = sl_jinja_undefined(NULL);
    return sl_jinja_iterate(run, sl_jinja_truth(v) ? v : &nothing, out);
}

static sl_status filter_join(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                             jinja_value *out)
{
    const jinja_value *between = sl_jinja_argument(arguments, 0, "d");
    const jinja_value *attribute = sl_jinja_argument(arguments, 1, "attribute");
    const jinja_list *list;
    jinja_builder b = {0};
    SL_TRY(sl_jinja_iterate(run, v, &list));
    for (int64_t i = 0; i < list->count; i++) {
        jinja_value item = list->items[i];
        if (i > 0 && between)
            SL_TRY(sl_jinja_put_value(run, &b, between));
        if (attribute && attribute->kind != JINJA_NONE)
            SL_TRY(get_path(run, &list->items[i], attribute, &item));
        SL_TRY(sl_jinja_put_value(run, &b, &item));
    }
    return sl_jinja_built(run, &b, out);
}

static sl_status filter_items(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                              jinja_value *out)
{
    (void) arguments;
    jinja_value *items;
    if (v->kind == JINJA_UNDEFINED)
        return sl_jinja_list(run, JINJA_LIST, 0, out, &items);
    if (v->kind != JINJA_DICT)
        return sl_jinja_fail(run, "items needs a dict, not %s", sl_jinja_kind_name(v->kind));
    return sl_jinja_items(run, v, out);
}

static sl_status filter_list(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                             jinja_value *out)
{
    (void) arguments;
    const jinja_list *list;
    SL_TRY(sl_jinja_iterate(run, v, &list));
    *out = (jinja_value){.kind = JINJA_LIST, .list = list};
    return SL_OK;
}

static sl_status take_end(sl_jinja_run *run, const jinja_value *v, bool last, jinja_value *out)
{
    const jinja_list *list;
    SL_TRY(sl_jinja_iterate(run, v, &list));
    *out = list->count > 0 ? list->items[last ? list->count - 1 : 0] : sl_jinja_undefined(NULL);
    return SL_OK;
}

static sl_status filter_first(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                              jinja_value *out)
{
    (void) arguments;
    return take_end(run, v, false, out);
}

static sl_status filter_last(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                             jinja_value *out)
{
    (void) arguments;
    return take_end(run, v, true, out);
}

static sl_status filter_reverse(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                                jinja_value *out)
{
    (void) arguments;
    const jinja_value back[3] = {{.kind = JINJA_NONE}, {.kind = JINJA_NONE}, sl_jinja_int(-1)};
    jinja_value all;
    if (v->kind == JINJA_STRING)
        return sl_jinja_slice(run, v, back, out);
    SL_TRY(filter_list(run, v, NULL, &all));
    return sl_jinja_slice(run, &all, back, out);
}

/* ---- order ---- */

/* What an item is ordered or compared by: its attribute, with the case of letters ignored unless asked for. */
static sl_status sort_key(sl_jinja_run *run, const jinja_value *item, const jinja_value *attribute, bool with_case,
                          jinja_value *out)
{
    *out = *item;
    if (attribute && attribute->kind != JINJA_NONE)
        SL_TRY(get_path(run, item, attribute, out));
    if (out->kind != JINJA_STRING || with_case)
        return SL_OK;
    for (size_t i = 0; i < out->string->length; i++)
        if ((unsigned char) out->string->bytes[i] >= 0x80)
            return SL_OK; /* letters without case tables compare as they are */
    const jinja_string *s = out->string;
    return sl_jinja_case(run, s, JINJA_LOWER, out);
}

/* Stable, from the bottom: runs of 1, 2, 4, ... are merged. */
static sl_status merge_sort(sl_jinja_run *run, jinja_entry *entries, int64_t count, bool reverse)
{
    jinja_entry *other;
    SL_TRY(sl_jinja_alloc(run, &other, count, sizeof *other));
    for (int64_t width = 1; width < count; width *= 2) {
        for (int64_t from = 0; from < count; from += 2 * width) {
            int64_t a = from, middle = SL_MIN(from + width, count), b = middle, end = SL_MIN(from + 2 * width, count);
            for (int64_t i = from; i < end; i++) {
                int order = a == middle ? 1 : -1;
                if (a < middle && b < end) {
                    SL_TRY(sl_jinja_order(run, &entries[a].key, &entries[b].key, &order));
                    order = reverse ? -order : order;
                }
                other[i] = order <= 0 ? entries[a++] : entries[b++];
            }
        }
        memcpy(entries, other, (size_t) count * sizeof *entries);
    }
    return SL_OK;
}

static bool flag(const jinja_arguments *arguments, int index, const char *name)
{
    const jinja_value *v = sl_jinja_argument(arguments, index, name);
    return v && sl_jinja_truth(v);
}

static sl_status sort_list(sl_jinja_run *run, const jinja_list *list, const jinja_value *attribute, bool with_case,
                           bool reverse, jinja_value *out)
{
    jinja_value *items;
    jinja_entry *entries;
    SL_TRY(sl_jinja_list(run, JINJA_LIST, list->count, out, &items));
    SL_TRY(sl_jinja_alloc(run, &entries, list->count, sizeof *entries));
    for (int64_t i = 0; i < list->count; i++) {
        entries[i].value = list->items[i];
        SL_TRY(sort_key(run, &list->items[i], attribute, with_case, &entries[i].key));
    }
    SL_TRY(merge_sort(run, entries, list->count, reverse));
    for (int64_t i = 0; i < list->count; i++)
        items[i] = entries[i].value;
    return SL_OK;
}

static sl_status filter_sort(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                             jinja_value *out)
{
    const jinja_list *list;
    SL_TRY(sl_jinja_iterate(run, v, &list));
    return sort_list(run, list, sl_jinja_argument(arguments, 2, "attribute"), flag(arguments, 1, "case_sensitive"),
                     flag(arguments, 0, "reverse"), out);
}

static sl_status filter_dictsort(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                                 jinja_value *out)
{
    const jinja_string *by;
    jinja_value items;
    SL_TRY(filter_items(run, v, NULL, &items));
    SL_TRY(sl_jinja_argument_string(run, arguments, 1, "by", &by));
    const jinja_value index = sl_jinja_int(by && by->length == 5 && memcmp(by->bytes, "value", 5) == 0);
    return sort_list(run, items.list, &index, flag(arguments, 0, "case_sensitive"), flag(arguments, 2, "reverse"), out);
}

static sl_status filter_unique(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                               jinja_value *out)
{
    const jinja_value *attribute = sl_jinja_argument(arguments, 1, "attribute");
    const jinja_list *list;
    jinja_value keys, *key_items, *items;
    int64_t count = 0;
    SL_TRY(sl_jinja_iterate(run, v, &list));
    SL_TRY(sl_jinja_list(run, JINJA_LIST, list->count, &keys, &key_items));
    SL_TRY(sl_jinja_list(run, JINJA_LIST, list->count, out, &items));
    for (int64_t i = 0; i < list->count; i++) {
        bool seen = false;
        SL_TRY(sort_key(run, &list->items[i], attribute, flag(arguments, 0, "case_sensitive"), &key_items[count]));
        for (int64_t j = 0; j < count && !seen; j++)
            SL_TRY(sl_jinja_equal(run, &key_items[j], &key_items[count], &seen));
        if (!seen)
            items[count++] = list->items[i];
    }
    jinja_list *shorter;
    SL_TRY(sl_jinja_alloc(run, &shorter, 1, sizeof *shorter));
    *shorter = (jinja_list){count, items};
    out->list = shorter;
    return SL_OK;
}

static sl_status pick_extreme(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments, bool last,
                              jinja_value *out)
{
    const jinja_list *list;
    jinja_value sorted;
    SL_TRY(sl_jinja_iterate(run, v, &list));
    SL_TRY(sort_list(run, list, sl_jinja_argument(arguments, 1, "attribute"), flag(arguments, 0, "case_sensitive"),
                     last, &sorted));
    return take_end(run, &sorted, false, out);
}

static sl_status filter_min(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments, jinja_value *out)
{
    return pick_extreme(run, v, arguments, false, out);
}

static sl_status filter_max(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments, jinja_value *out)
{
    return pick_extreme(run, v, arguments, true, out);
}

static sl_status filter_sum(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments, jinja_value *out)
{
    const jinja_value *attribute = sl_jinja_argument(arguments, 0, "attribute");
    const jinja_list *list;
    SL_TRY(sl_jinja_iterate(run, v, &list));
    *out = sl_jinja_int(0);
    for (int64_t i = 0; i < list->count; i++) {
        jinja_value item = list->items[i], before = *out;
        if (attribute && attribute->kind != JINJA_NONE)
            SL_TRY(get_path(run, &list->items[i], attribute, &item));
        SL_TRY(sl_jinja_binary(run, JOP_ADD, &before, &item, out));
    }
    return SL_OK;
}

/* ---- map and select ---- */

/* The arguments from the first that `used` does not count. */
static void rest_of(const jinja_arguments *arguments, int used, jinja_arguments *out)
{
    *out = *arguments;
    used = SL_MIN(used, arguments->plain);
    for (int i = used; i < arguments->count; i++) {
        out->values[i - used] = arguments->values[i];
        out->names[i - used] = arguments->names[i];
    }
    out->count -= used;
    out->plain -= used;
}

static sl_status filter_map(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments, jinja_value *out)
{
    const jinja_value *attribute = sl_jinja_argument(arguments, JINJA_MOST_ARGUMENTS, "attribute");
    const jinja_value *otherwise = sl_jinja_argument(arguments, JINJA_MOST_ARGUMENTS, "default");
    const jinja_filter *filter = NULL;
    const jinja_list *list;
    jinja_value *items;
    jinja_arguments *rest;
    SL_TRY(sl_jinja_alloc(run, &rest, 1, sizeof *rest));
    rest_of(arguments, 1, rest);
    if (!attribute) {
        const jinja_string *name;
        SL_TRY(sl_jinja_argument_string(run, arguments, 0, "filter", &name));
        filter = name ? sl_jinja_find_filter(name->bytes, name->length) : NULL;
        if (!filter)
            return sl_jinja_fail(run, "map needs attribute= or the name of a filter that is supported");
    }
    SL_TRY(iterate_true(run, v, &list));
    SL_TRY(sl_jinja_list(run, JINJA_LIST, list->count, out, &items));
    for (int64_t i = 0; i < list->count; i++) {
        if (filter) {
            if (++run->depth > JINJA_MOST_DEPTH)
                return sl_jinja_fail(run, "filters are nested too deeply");
            SL_TRY(sl_jinja_apply_filter(run, filter, &list->items[i], rest, &items[i]));
            run->depth--;
            continue;
        }
        SL_TRY(get_path(run, &list->items[i], attribute, &items[i]));
        if (items[i].kind == JINJA_UNDEFINED && otherwise)
            items[i] = *otherwise;
    }
    return SL_OK;
}

/* Keeps the items (of which an attribute is looked at) for which a test, or else their truth, is `wanted`. */
static sl_status select_items(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                              bool by_attribute, bool wanted, jinja_value *out)
{
    int at = by_attribute;
    const jinja_value *attribute = sl_jinja_argument(arguments, 0, "attr");
    const jinja_string *name;
    const jinja_test *test = NULL;
    const jinja_list *list;
    jinja_value *items;
    jinja_arguments *rest;
    jinja_list *kept;
    SL_TRY(sl_jinja_argument_string(run, arguments, at, "test", &name));
    if (by_attribute && !attribute)
        return sl_jinja_fail(run, "selectattr and rejectattr need an attribute");
    if (name && !(test = sl_jinja_find_test(name->bytes, name->length)))
        return sl_jinja_fail(run, "test '%.*s' is not supported", (int) SL_MIN(name->length, (size_t) 60), name->bytes);
    SL_TRY(sl_jinja_alloc(run, &rest, 1, sizeof *rest));
    rest_of(arguments, at + 1, rest);
    SL_TRY(iterate_true(run, v, &list));
    SL_TRY(sl_jinja_list(run, JINJA_LIST, list->count, out, &items));
    SL_TRY(sl_jinja_alloc(run, &kept, 1, sizeof *kept));
    kept->items = items;
    out->list = kept;
    for (int64_t i = 0; i < list->count; i++) {
        jinja_value tested = list->items[i];
        if (by_attribute)
            SL_TRY(get_path(run, &list->items[i], attribute, &tested));
        bool holds = sl_jinja_truth(&tested);
        if (test)
            SL_TRY(sl_jinja_apply_test(run, test, &tested, rest, &holds));
        if (holds == wanted)
            items[kept->count++] = list->items[i];
    }
    return SL_OK;
}

static sl_status filter_select(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                               jinja_value *out)
{
    return select_items(run, v, arguments, false, true, out);
}

static sl_status filter_reject(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                               jinja_value *out)
{
    return select_items(run, v, arguments, false, false, out);
}

static sl_status filter_selectattr(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                                   jinja_value *out)
{
    return select_items(run, v, arguments, true, true, out);
}

static sl_status filter_rejectattr(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                                   jinja_value *out)
{
    return select_items(run, v, arguments, true, false, out);
}

static const jinja_filter filters[] = {
    {"join", filter_join},
    {"items", filter_items},
    {"list", filter_list},
    {"first", filter_first},
    {"last", filter_last},
    {"reverse", filter_reverse},
    {"sort", filter_sort},
    {"dictsort", filter_dictsort},
    {"unique", filter_unique},
    {"min", filter_min},
    {"max", filter_max},
    {"sum", filter_sum},
    {"map", filter_map},
    {"select", filter_select},
    {"reject", filter_reject},
    {"selectattr", filter_selectattr},
    {"rejectattr", filter_rejectattr},
};

const jinja_filter *sl_jinja_find_list_filter(const char *name, size_t length)
{
    for (int64_t i = 0; i < SL_COUNT(filters); i++)
        if (strlen(filters[i].name) == length && memcmp(filters[i].name, name, length) == 0)
            return &filters[i];
    return NULL;
}
