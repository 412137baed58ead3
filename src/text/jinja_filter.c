/* Filters on one value. Those that go through lists are in jinja_filter_list.c. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja_filters.h"

static sl_status filter_trim(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                             jinja_value *out)
{
    const jinja_string *s, *set;
    SL_TRY(sl_jinja_to_string(run, v, &s));
    SL_TRY(sl_jinja_argument_string(run, arguments, 0, "chars", &set));
    return sl_jinja_strip(run, s, set, true, true, out);
}

static sl_status filter_string(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                               jinja_value *out)
{
    (void) arguments;
    const jinja_string *s;
    SL_TRY(sl_jinja_to_string(run, v, &s));
    *out = (jinja_value){.kind = JINJA_STRING, .string = s};
    return SL_OK;
}

static sl_status change_case(sl_jinja_run *run, const jinja_value *v, jinja_case to, jinja_value *out)
{
    const jinja_string *s;
    SL_TRY(sl_jinja_to_string(run, v, &s));
    return sl_jinja_case(run, s, to, out);
}

static sl_status filter_upper(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                              jinja_value *out)
{
    (void) arguments;
    return change_case(run, v, JINJA_UPPER, out);
}

static sl_status filter_lower(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                              jinja_value *out)
{
    (void) arguments;
    return change_case(run, v, JINJA_LOWER, out);
}

static sl_status filter_title(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                              jinja_value *out)
{
    (void) arguments;
    return change_case(run, v, JINJA_TITLE_FILTER, out);
}

static sl_status filter_capitalize(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                                   jinja_value *out)
{
    (void) arguments;
    return change_case(run, v, JINJA_CAPITALIZE, out);
}

static sl_status filter_replace(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                                jinja_value *out)
{
    const jinja_string *s, *parts[2];
    int64_t most;
    for (int i = 0; i < 2; i++) {
        const jinja_value *given = sl_jinja_argument(arguments, i, i == 0 ? "old" : "new");
        if (!given)
            return sl_jinja_fail(run, "replace needs two strings");
        SL_TRY(sl_jinja_to_string(run, given, &parts[i]));
    }
    SL_TRY(sl_jinja_argument_i64(run, arguments, 2, "count", -1, &most));
    SL_TRY(sl_jinja_to_string(run, v, &s));
    return sl_jinja_replace(run, s, parts[0], parts[1], most, out);
}

static sl_status filter_tojson(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                               jinja_value *out)
{
    jinja_dump dump = {.indent = -1};
    jinja_builder b = {0};
    int64_t indent;
    const jinja_value *ascii = sl_jinja_argument(arguments, 0, "ensure_ascii");
    const jinja_value *separators = sl_jinja_argument(arguments, 2, "separators");
    const jinja_value *sort = sl_jinja_argument(arguments, 3, "sort_keys");
    SL_TRY(sl_jinja_argument_i64(run, arguments, 1, "indent", -1, &indent));
    if (indent > 64)
        return sl_jinja_fail(run, "tojson: an indent of more than 64");
    dump.indent = indent < -1 ? 0 : (int) indent;
    dump.ascii = ascii && sl_jinja_truth(ascii);
    dump.sort = sort && sl_jinja_truth(sort);
    if (separators && separators->kind != JINJA_NONE) {
        const jinja_list *pair;
        SL_TRY(sl_jinja_iterate(run, separators, &pair));
        if (pair->count != 2 || pair->items[0].kind != JINJA_STRING || pair->items[1].kind != JINJA_STRING)
            return sl_jinja_fail(run, "tojson: separators are two strings");
        dump.comma = pair->items[0].string;
        dump.colon = pair->items[1].string;
    }
    SL_TRY(sl_jinja_dump(run, &b, v, &dump));
    return sl_jinja_built(run, &b, out);
}

static sl_status filter_default(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                                jinja_value *out)
{
    const jinja_value *otherwise = sl_jinja_argument(arguments, 0, "default_value");
    const jinja_value *falsy = sl_jinja_argument(arguments, 1, "boolean");
    bool missing = v->kind == JINJA_UNDEFINED || (falsy && sl_jinja_truth(falsy) && !sl_jinja_truth(v));
    *out = *v;
    if (missing && otherwise)
        *out = *otherwise;
    else if (missing)
        SL_TRY(sl_jinja_string(run, "", 0, 0, out));
    return SL_OK;
}

static sl_status filter_length(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                               jinja_value *out)
{
    (void) arguments;
    int64_t length;
    SL_TRY(sl_jinja_length(run, v, &length));
    *out = sl_jinja_int(length);
    return SL_OK;
}

static sl_status filter_safe(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                             jinja_value *out)
{
    return filter_string(run, v, arguments, out); /* nothing is escaped anyway */
}

/* ---- numbers ---- */

/* A number in text, with white space around it; false: none. */
static bool read_number(const jinja_string *s, double *number, int64_t *integer, bool *whole)
{
    char text[64];
    const char *from = s->bytes, *to = s->bytes + s->length;
    int bytes;
    while (from < to && (bytes = sl_jinja_space(from, to)) > 0)
        from += bytes;
    while (to > from && sl_jinja_space(to - 1, to) > 0)
        to--;
    size_t length = (size_t) (to - from);
    if (length == 0 || length >= sizeof text)
        return false;
    memcpy(text, from, length);
    text[length] = 0;
    size_t digits = strspn(text + (text[0] == '-' || text[0] == '+'), "0123456789");
    *whole = digits > 0 && digits + (text[0] == '-' || text[0] == '+') == length;
    if (*whole) {
        errno = 0;
        *integer = strtoll(text, NULL, 10);
        *number = (double) *integer;
        return errno == 0;
    }
    return text[strspn(text, "0123456789+-.eE")] == 0 && sl_parse_f64(text, number) == SL_OK;
}

static sl_status filter_int(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments, jinja_value *out)
{
    double number = 0;
    int64_t integer = 0, otherwise;
    bool whole = false, good = sl_jinja_is_number(v);
    SL_TRY(sl_jinja_argument_i64(run, arguments, 0, "default", 0, &otherwise));
    if (v->kind == JINJA_STRING)
        good = read_number(v->string, &number, &integer, &whole);
    else if (v->kind == JINJA_FLOAT)
        number = v->number;
    else if (good)
        integer = sl_jinja_as_i64(v), whole = true;
    if (good && !whole) {
        good = fabs(number) < 9.2e18; /* NaN too fails */
        integer = good ? (int64_t) number : 0;
    }
    *out = sl_jinja_int(good ? integer : otherwise);
    return SL_OK;
}

static sl_status filter_float(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                              jinja_value *out)
{
    (void) run;
    const jinja_value *otherwise = sl_jinja_argument(arguments, 0, "default");
    double number = 0;
    int64_t integer;
    bool whole, good = sl_jinja_is_number(v);
    if (v->kind == JINJA_STRING)
        good = read_number(v->string, &number, &integer, &whole);
    else if (good)
        number = sl_jinja_as_f64(v);
    *out = !good && otherwise ? *otherwise : (jinja_value){.kind = JINJA_FLOAT, .number = good ? number : 0};
    return SL_OK;
}

static sl_status filter_abs(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments, jinja_value *out)
{
    (void) arguments;
    if (!sl_jinja_is_number(v))
        return sl_jinja_fail(run, "abs needs a number, not %s", sl_jinja_kind_name(v->kind));
    bool negative = sl_jinja_as_f64(v) < 0;
    return sl_jinja_unary(run, negative ? JOP_SUB : JOP_ADD, v, out);
}

/* To `precision` digits behind the point, halves to even as the exact binary value has them, which printf does too. */
static sl_status filter_round(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                              jinja_value *out)
{
    int64_t precision;
    const jinja_string *method;
    SL_TRY(sl_jinja_argument_i64(run, arguments, 0, "precision", 0, &precision));
    SL_TRY(sl_jinja_argument_string(run, arguments, 1, "method", &method));
    if (!sl_jinja_is_number(v) || precision < 0 || precision > 20)
        return sl_jinja_fail(run, "round needs a number, and a precision of 0 to 20");
    double number = sl_jinja_as_f64(v), scale = pow(10, (double) precision);
    if (method && method->length == 4 && memcmp(method->bytes, "ceil", 4) == 0) {
        number = ceil(number * scale) / scale;
    } else if (method && method->length == 5 && memcmp(method->bytes, "floor", 5) == 0) {
        number = floor(number * scale) / scale;
    } else if (isfinite(number)) {
        char text[400];
        snprintf(text, sizeof text, "%.*f", (int) precision, number);
        for (char *point = text; *point; point++)
            *point = *point == ',' ? '.' : *point; /* whatever the locale */
        SL_TRY(sl_parse_f64(text, &number));
    }
    *out =
        v->kind == JINJA_FLOAT ? (jinja_value){.kind = JINJA_FLOAT, .number = number} : sl_jinja_int((int64_t) number);
    return SL_OK;
}

/* ---- lines ---- */

/* indent(width=4, first=False, blank=False): blanks before every line but the first, and but for empty ones. */
static sl_status filter_indent(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                               jinja_value *out)
{
    const jinja_value *width = sl_jinja_argument(arguments, 0, "width");
    const jinja_value *first = sl_jinja_argument(arguments, 1, "first");
    const jinja_value *blank = sl_jinja_argument(arguments, 2, "blank");
    const jinja_string *s;
    jinja_value lines, before;
    jinja_builder b = {0};
    if (width && width->kind == JINJA_STRING) {
        before = *width;
    } else {
        int64_t count;
        SL_TRY(sl_jinja_argument_i64(run, arguments, 0, "width", 4, &count));
        static const char blanks[] = "                                                                ";
        if (count > (int64_t) sizeof blanks - 1)
            return sl_jinja_fail(run, "indent: a width of more than %zu", sizeof blanks - 1);
        SL_TRY(sl_jinja_string(run, blanks, (size_t) SL_MAX(count, (int64_t) 0), 0, &before));
    }
    SL_TRY(sl_jinja_to_string(run, v, &s));
    if (s->length == 0 || s->bytes[s->length - 1] == '\n' || s->bytes[s->length - 1] == '\r') {
        jinja_builder longer = {0}; /* jinja2 adds a newline, so that a last empty line counts */
        jinja_value copy;
        SL_TRY(sl_jinja_put_string(run, &longer, s));
        SL_TRY(sl_jinja_put(run, &longer, "\n", 1, 0));
        SL_TRY(sl_jinja_built(run, &longer, &copy));
        s = copy.string;
    }
    SL_TRY(sl_jinja_lines(run, s, false, &lines));
    for (int64_t i = 0; i < lines.list->count; i++) {
        const jinja_string *line = lines.list->items[i].string;
        bool wanted = i > 0 && (line->length > 0 || (blank && sl_jinja_truth(blank)));
        if (i > 0)
            SL_TRY(sl_jinja_put(run, &b, "\n", 1, 0));
        if (wanted || (i == 0 && first && sl_jinja_truth(first)))
            SL_TRY(sl_jinja_put_string(run, &b, before.string));
        SL_TRY(sl_jinja_put_string(run, &b, line));
    }
    return sl_jinja_built(run, &b, out);
}

static sl_status filter_format(sl_jinja_run *run, const jinja_value *v, const jinja_arguments *arguments,
                               jinja_value *out)
{
    const jinja_string *s;
    SL_TRY(sl_jinja_to_string(run, v, &s));
    return sl_jinja_format_percent(run, s, arguments->values, arguments->plain, out);
}

static const jinja_filter filters[] = {
    {"trim", filter_trim},
    {"string", filter_string},
    {"safe", filter_safe},
    {"upper", filter_upper},
    {"lower", filter_lower},
    {"title", filter_title},
    {"capitalize", filter_capitalize},
    {"replace", filter_replace},
    {"tojson", filter_tojson},
    {"default", filter_default},
    {"d", filter_default},
    {"length", filter_length},
    {"count", filter_length},
    {"int", filter_int},
    {"float", filter_float},
    {"abs", filter_abs},
    {"round", filter_round},
    {"indent", filter_indent},
    {"format", filter_format},
};

const jinja_filter *sl_jinja_find_filter(const char *name, size_t length)
{
    for (int64_t i = 0; i < SL_COUNT(filters); i++)
        if (strlen(filters[i].name) == length && memcmp(filters[i].name, name, length) == 0)
            return &filters[i];
    return sl_jinja_find_list_filter(name, length);
}

sl_status sl_jinja_apply_filter(sl_jinja_run *run, const jinja_filter *filter, const jinja_value *value,
                                const jinja_arguments *arguments, jinja_value *out)
{
    return filter->apply(run, value, arguments, out);
}
