/* Calls: the functions that templates may call, and who a call goes to. */
#include <locale.h>
#include <string.h>
#include <time.h>

#include "text/jinja_internal.h"

const jinja_value *sl_jinja_argument(const jinja_arguments *arguments, int index, const char *name)
{
    if (index < arguments->plain)
        return &arguments->values[index];
    for (int i = arguments->plain; i < arguments->count; i++)
        if (strcmp(arguments->names[i], name) == 0)
            return &arguments->values[i];
    return NULL;
}

sl_status sl_jinja_argument_i64(sl_jinja_run *run, const jinja_arguments *arguments, int index, const char *name,
                                int64_t otherwise, int64_t *out)
{
    const jinja_value *v = sl_jinja_argument(arguments, index, name);
    *out = otherwise;
    if (!v || v->kind == JINJA_NONE)
        return SL_OK;
    if (v->kind != JINJA_INT && v->kind != JINJA_BOOL)
        return sl_jinja_fail(run, "argument '%s' is %s, not int", name, sl_jinja_kind_name(v->kind));
    *out = sl_jinja_as_i64(v);
    return SL_OK;
}

/* NULL: not given, or None. */
sl_status sl_jinja_argument_string(sl_jinja_run *run, const jinja_arguments *arguments, int index, const char *name,
                                   const jinja_string **out)
{
    const jinja_value *v = sl_jinja_argument(arguments, index, name);
    *out = NULL;
    if (!v || v->kind == JINJA_NONE)
        return SL_OK;
    if (v->kind != JINJA_STRING)
        return sl_jinja_fail(run, "argument '%s' is %s, not str", name, sl_jinja_kind_name(v->kind));
    *out = v->string;
    return SL_OK;
}

/* ---- functions ---- */

struct jinja_function {
    const char *name;
    sl_status (*call)(sl_jinja_run *run, const jinja_arguments *arguments, jinja_value *out);
};

static sl_status call_range(sl_jinja_run *run, const jinja_arguments *arguments, jinja_value *out)
{
    int64_t bounds[3] = {0, 0, 1}, first = arguments->plain > 1 ? 0 : 1;
    jinja_value *items;
    for (int i = 0; i < SL_MIN(arguments->plain, 3); i++)
        SL_TRY(sl_jinja_argument_i64(run, arguments, i, "bound", 0, &bounds[first + i]));
    if (arguments->plain < 1 || bounds[2] == 0)
        return sl_jinja_fail(run, "range needs a bound, and a step other than 0");
    const double span = ((double) bounds[1] - (double) bounds[0]) / (double) bounds[2];
    if (span > JINJA_MOST_RANGE)
        return sl_jinja_fail(run, "a range is longer than %d", JINJA_MOST_RANGE);
    int64_t step = bounds[2], count = 0;
    for (int64_t i = bounds[0]; step > 0 ? i < bounds[1] : i > bounds[1]; i += step) {
        count++;
        if (__builtin_add_overflow(i, step, &(int64_t){0}))
            break;
    }
    SL_TRY(sl_jinja_list(run, JINJA_LIST, count, out, &items));
    for (int64_t i = 0; i < count; i++)
        items[i] = sl_jinja_int(bounds[0] + i * step);
    return SL_OK;
}

/* dict(mapping, name=value): a dict or namespace of the keywords over what the mapping holds. */
static sl_status call_dict(sl_jinja_run *run, const jinja_arguments *arguments, jinja_value *out)
{
    SL_TRY(sl_jinja_dict(run, arguments->count, out));
    if (arguments->plain > 1 || (arguments->plain == 1 && arguments->values[0].kind != JINJA_DICT))
        return sl_jinja_fail(run, "dict and namespace take one dict and values with names");
    for (int64_t i = 0; arguments->plain == 1 && i < arguments->values[0].dict->count; i++) {
        const jinja_entry *entry = &arguments->values[0].dict->entries[i];
        SL_TRY(sl_jinja_dict_put(run, out->dict, &entry->key, &entry->value));
    }
    for (int i = arguments->plain; i < arguments->count; i++) {
        jinja_value key;
        SL_TRY(sl_jinja_string(run, arguments->names[i], strlen(arguments->names[i]), 0, &key));
        SL_TRY(sl_jinja_dict_put(run, out->dict, &key, &arguments->values[i]));
    }
    return SL_OK;
}

static sl_status call_namespace(sl_jinja_run *run, const jinja_arguments *arguments, jinja_value *out)
{
    SL_TRY(call_dict(run, arguments, out));
    out->kind = JINJA_NAMESPACE;
    return SL_OK;
}

static sl_status call_raise(sl_jinja_run *run, const jinja_arguments *arguments, jinja_value *out)
{
    const jinja_string *message;
    const jinja_value *given = sl_jinja_argument(arguments, 0, "message");
    *out = sl_jinja_undefined(NULL);
    if (!given)
        return sl_jinja_fail(run, "raise_exception needs a message");
    SL_TRY(sl_jinja_to_string(run, given, &message));
    return sl_jinja_fail(run, "the template refuses this chat: %.*s", (int) SL_MIN(message->length, (size_t) 300),
                         message->bytes);
}

static sl_status call_strftime(sl_jinja_run *run, const jinja_arguments *arguments, jinja_value *out)
{
    const jinja_string *format;
    char pattern[128], text[512];
    struct tm parts;
    time_t when = (time_t) run->time;
    SL_TRY(sl_jinja_argument_string(run, arguments, 0, "format", &format));
    if (!format || format->length >= sizeof pattern || !gmtime_r(&when, &parts))
        return sl_jinja_fail(run, "strftime_now needs a format of at most %zu bytes", sizeof pattern - 1);
    memcpy(pattern, format->bytes, format->length);
    pattern[format->length] = 0;
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t) 0); /* the names of months in English everywhere */
    if (plain == (locale_t) 0)
        return sl_fail(SL_E_MEMORY, "no locale for dates");
    size_t length = strftime_l(text, sizeof text, pattern, &parts, plain);
    freelocale(plain);
    return sl_jinja_string(run, text, length, 0, out);
}

const jinja_function *sl_jinja_find_function(const char *name)
{
    static const jinja_function functions[] = {
        {"range", call_range},           {"dict", call_dict},
        {"namespace", call_namespace},   {"raise_exception", call_raise},
        {"strftime_now", call_strftime},
    };
    for (int64_t i = 0; i < SL_COUNT(functions); i++)
        if (strcmp(functions[i].name, name) == 0)
            return &functions[i];
    return NULL;
}

sl_status sl_jinja_call_function(sl_jinja_run *run, const jinja_function *function, const jinja_arguments *arguments,
                                 jinja_value *out)
{
    return function->call(run, arguments, out);
}

sl_status sl_jinja_call(sl_jinja_run *run, const jinja_value *callee, const jinja_arguments *arguments,
                        jinja_value *out)
{
    switch (callee->kind) {
    case JINJA_FUNCTION:
        return sl_jinja_call_function(run, callee->function, arguments, out);
    case JINJA_METHOD:
        return sl_jinja_call_method(run, callee->method, arguments, out);
    case JINJA_MACRO:
        return sl_jinja_call_macro(run, callee->macro, arguments, out);
    case JINJA_UNDEFINED:
        return sl_jinja_fail(run, "'%s' is undefined, and is called", callee->name ? callee->name : "a value");
    default:
        return sl_jinja_fail(run, "a %s cannot be called", sl_jinja_kind_name(callee->kind));
    }
}
