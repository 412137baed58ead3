/* Operators, indices, slices and attributes, with Python's rules: // and % round towards minus infinity, indices count from the end
 * where they are negative, and what is missing is undefined. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja_internal.h"

static const char *const op_names[] = {"?",  "+",  "-", "*",  "/", "//", "%",  "**",    "not",
                                       "==", "!=", "<", "<=", ">", ">=", "in", "not in"};

/* What is undefined cannot be used: says which name it was. */
static sl_status undefined_fail(const sl_jinja_run *run, const jinja_value *v)
{
    return sl_jinja_fail(run, "'%s' is undefined", v->name ? v->name : "a value");
}

sl_status sl_jinja_unary(sl_jinja_run *run, jinja_op op, const jinja_value *a, jinja_value *out)
{
    if (op == JOP_NOT) {
        *out = sl_jinja_bool(!sl_jinja_truth(a));
        return SL_OK;
    }
    if (a->kind == JINJA_UNDEFINED)
        return undefined_fail(run, a);
    if (!sl_jinja_is_number(a))
        return sl_jinja_fail(run, "no '%s' for %s", op_names[op], sl_jinja_kind_name(a->kind));
    if (a->kind == JINJA_FLOAT) {
        *out = (jinja_value){.kind = JINJA_FLOAT, .number = op == JOP_SUB ? -a->number : a->number};
        return SL_OK;
    }
    int64_t value = sl_jinja_as_i64(a);
    if (op == JOP_SUB && value == INT64_MIN)
        return sl_jinja_fail(run, "an integer does not fit 64 bits");
    *out = sl_jinja_int(op == JOP_SUB ? -value : value);
    return SL_OK;
}

static bool integer_power(int64_t base, int64_t exponent, int64_t *out)
{
    *out = 1;
    while (exponent > 0) {
        if ((exponent & 1) && __builtin_mul_overflow(*out, base, out))
            return false;
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base))
            return false;
    }
    return true;
}

static sl_status integers(const sl_jinja_run *run, jinja_op op, int64_t a, int64_t b, jinja_value *out)
{
    int64_t result = 0;
    bool fits = true;
    if (op == JOP_ADD)
        fits = !__builtin_add_overflow(a, b, &result);
    else if (op == JOP_SUB)
        fits = !__builtin_sub_overflow(a, b, &result);
    else if (op == JOP_MUL)
        fits = !__builtin_mul_overflow(a, b, &result);
    else if (op == JOP_POW)
        fits = integer_power(a, b, &result);
    else if (b == -1 && a == INT64_MIN)
        fits = false;
    else if (op == JOP_FLOORDIV)
        result = a / b - (a % b != 0 && (a % b < 0) != (b < 0));
    else
        result = a % b + (a % b != 0 && (a % b < 0) != (b < 0) ? b : 0);
    if (!fits)
        return sl_jinja_fail(run, "the result of '%s' does not fit 64 bits", op_names[op]);
    *out = sl_jinja_int(result);
    return SL_OK;
}

static double floats(jinja_op op, double a, double b)
{
    double rest;
    switch (op) {
    case JOP_ADD:
        return a + b;
    case JOP_SUB:
        return a - b;
    case JOP_MUL:
        return a * b;
    case JOP_DIV:
        return a / b;
    case JOP_POW:
        return pow(a, b);
    case JOP_FLOORDIV:
        return floor(a / b);
    default:
        rest = fmod(a, b);
        return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    }
}

static sl_status numbers(const sl_jinja_run *run, jinja_op op, const jinja_value *a, const jinja_value *b,
                         jinja_value *out)
{
    bool divides = op == JOP_DIV || op == JOP_FLOORDIV || op == JOP_MOD;
    if (divides && sl_jinja_as_f64(b) == 0)
        return sl_jinja_fail(run, "division by zero");
    bool whole = a->kind != JINJA_FLOAT && b->kind != JINJA_FLOAT && op != JOP_DIV;
    if (whole && !(op == JOP_POW && sl_jinja_as_i64(b) < 0))
        return integers(run, op, sl_jinja_as_i64(a), sl_jinja_as_i64(b), out);
    *out = (jinja_value){.kind = JINJA_FLOAT, .number = floats(op, sl_jinja_as_f64(a), sl_jinja_as_f64(b))};
    return SL_OK;
}

static sl_status join_lists(sl_jinja_run *run, const jinja_value *a, const jinja_value *b, jinja_value *out)
{
    jinja_value *items;
    SL_TRY(sl_jinja_list(run, a->kind, a->list->count + b->list->count, out, &items));
    if (a->list->count)
        memcpy(items, a->list->items, (size_t) a->list->count * sizeof *items);
    if (b->list->count)
        memcpy(items + a->list->count, b->list->items, (size_t) b->list->count * sizeof *items);
    return SL_OK;
}

/* "-" * 3 and [0] * 3. */
static sl_status repeat(sl_jinja_run *run, const jinja_value *of, int64_t count, jinja_value *out)
{
    if (of->kind == JINJA_STRING) {
        jinja_builder b = {0};
        for (int64_t i = 0; i < count && of->string->length > 0; i++) {
            SL_TRY(sl_jinja_spend(run, 1));
            SL_TRY(sl_jinja_put_string(run, &b, of->string));
        }
        return sl_jinja_built(run, &b, out);
    }
    jinja_value *items;
    int64_t each = of->list->count, total;
    if (__builtin_mul_overflow(each, SL_MAX(count, (int64_t) 0), &total))
        return sl_jinja_fail(run, "a list of this length needs more memory than is allowed");
    SL_TRY(sl_jinja_list(run, of->kind, total, out, &items));
    for (int64_t i = 0; i < total; i++)
        items[i] = of->list->items[i % each];
    return SL_OK;
}

static bool is_repeatable(const jinja_value *v)
{
    return v->kind == JINJA_STRING || v->kind == JINJA_LIST || v->kind == JINJA_TUPLE;
}

sl_status sl_jinja_binary(sl_jinja_run *run, jinja_op op, const jinja_value *a, const jinja_value *b, jinja_value *out)
{
    if (sl_jinja_is_number(a) && sl_jinja_is_number(b))
        return numbers(run, op, a, b, out);
    if (op == JOP_ADD && a->kind == JINJA_STRING && b->kind == JINJA_STRING) {
        jinja_builder builder = {0};
        SL_TRY(sl_jinja_put_string(run, &builder, a->string));
        SL_TRY(sl_jinja_put_string(run, &builder, b->string));
        return sl_jinja_built(run, &builder, out);
    }
    if (op == JOP_ADD && a->kind == b->kind && is_repeatable(a))
        return join_lists(run, a, b, out);
    if (op == JOP_MUL && is_repeatable(a) && (b->kind == JINJA_INT || b->kind == JINJA_BOOL))
        return repeat(run, a, sl_jinja_as_i64(b), out);
    if (op == JOP_MUL && is_repeatable(b) && (a->kind == JINJA_INT || a->kind == JINJA_BOOL))
        return repeat(run, b, sl_jinja_as_i64(a), out);
    if (a->kind == JINJA_UNDEFINED || b->kind == JINJA_UNDEFINED)
        return undefined_fail(run, a->kind == JINJA_UNDEFINED ? a : b);
    return sl_jinja_fail(run, "no '%s' for %s and %s", op_names[op], sl_jinja_kind_name(a->kind),
                         sl_jinja_kind_name(b->kind));
}

sl_status sl_jinja_compare(sl_jinja_run *run, jinja_op op, const jinja_value *a, const jinja_value *b, bool *out)
{
    int order;
    switch (op) {
    case JOP_EQ:
    case JOP_NE:
        SL_TRY(sl_jinja_equal(run, a, b, out));
        *out = *out == (op == JOP_EQ);
        return SL_OK;
    case JOP_IN:
    case JOP_NOT_IN:
        SL_TRY(sl_jinja_contains(run, b, a, out));
        *out = *out == (op == JOP_IN);
        return SL_OK;
    default:
        if (a->kind == JINJA_UNDEFINED || b->kind == JINJA_UNDEFINED)
            return undefined_fail(run, a->kind == JINJA_UNDEFINED ? a : b);
        if ((a->kind == JINJA_FLOAT && isnan(a->number)) || (b->kind == JINJA_FLOAT && isnan(b->number))) {
            *out = false;
            return SL_OK;
        }
        SL_TRY(sl_jinja_order(run, a, b, &order));
        *out = op == JOP_LT ? order < 0 : op == JOP_LE ? order <= 0 : op == JOP_GT ? order > 0 : order >= 0;
        return SL_OK;
    }
}

/* ---- attributes and items ---- */

static sl_status loop_attribute(const jinja_loop *loop, const char *name, jinja_value *out)
{
    int64_t i = loop->index, count = loop->items->count;
    *out = sl_jinja_undefined(name);
    if (strcmp(name, "index") == 0)
        *out = sl_jinja_int(i + 1);
    else if (strcmp(name, "index0") == 0)
        *out = sl_jinja_int(i);
    else if (strcmp(name, "revindex") == 0)
        *out = sl_jinja_int(count - i);
    else if (strcmp(name, "revindex0") == 0)
        *out = sl_jinja_int(count - i - 1);
    else if (strcmp(name, "first") == 0)
        *out = sl_jinja_bool(i == 0);
    else if (strcmp(name, "last") == 0)
        *out = sl_jinja_bool(i == count - 1);
    else if (strcmp(name, "length") == 0)
        *out = sl_jinja_int(count);
    else if (strcmp(name, "previtem") == 0 && i > 0)
        *out = loop->items->items[i - 1];
    else if (strcmp(name, "nextitem") == 0 && i < count - 1)
        *out = loop->items->items[i + 1];
    return SL_OK;
}

static sl_status dict_item(sl_jinja_run *run, const jinja_value *of, const jinja_value *key, jinja_value *out)
{
    jinja_value *found;
    const char *name = NULL;
    SL_TRY(sl_jinja_dict_find(run, of->dict, key, &found));
    if (found) {
        *out = *found;
        return SL_OK;
    }
    if (key->kind == JINJA_STRING) /* for a message about what is undefined */
        SL_TRY(sl_region_printf(run->region, &name, "%.*s", (int) SL_MIN(key->string->length, (size_t) 60),
                                key->string->bytes));
    *out = sl_jinja_undefined(name);
    return SL_OK;
}

static sl_status bound_method(sl_jinja_run *run, const jinja_value *self, const char *name, jinja_value *out)
{
    jinja_method *method;
    SL_TRY(sl_jinja_alloc(run, &method, 1, sizeof *method));
    *method = (jinja_method){*self, name};
    *out = (jinja_value){.kind = JINJA_METHOD, .method = method};
    return SL_OK;
}

/* v.name: a method first, then an item. */
sl_status sl_jinja_attribute(sl_jinja_run *run, const jinja_value *v, const char *name, jinja_value *out)
{
    if (v->kind == JINJA_UNDEFINED)
        return undefined_fail(run, v);
    if (sl_jinja_has_method(v->kind, name))
        return bound_method(run, v, name, out);
    if (v->kind == JINJA_LOOP)
        return loop_attribute(v->loop, name, out);
    *out = sl_jinja_undefined(name);
    if (v->kind != JINJA_DICT && v->kind != JINJA_NAMESPACE)
        return SL_OK;
    const jinja_string string = {.bytes = name, .length = strlen(name)};
    const jinja_value key = {.kind = JINJA_STRING, .string = &string};
    jinja_value *found;
    SL_TRY(sl_jinja_dict_find(run, v->dict, &key, &found));
    if (found)
        *out = *found;
    return SL_OK;
}

/* v[key]: an item first, then a method. */
sl_status sl_jinja_item(sl_jinja_run *run, const jinja_value *v, const jinja_value *key, jinja_value *out)
{
    int64_t count = 0, index;
    if (v->kind == JINJA_UNDEFINED)
        return undefined_fail(run, v);
    if (v->kind == JINJA_DICT)
        return dict_item(run, v, key, out);
    *out = sl_jinja_undefined(NULL);
    if (key->kind == JINJA_STRING) {
        const char *name;
        SL_TRY(sl_region_printf(run->region, &name, "%.*s", (int) SL_MIN(key->string->length, (size_t) 60),
                                key->string->bytes));
        return sl_jinja_attribute(run, v, name, out);
    }
    if (!is_repeatable(v) || (key->kind != JINJA_INT && key->kind != JINJA_BOOL))
        return SL_OK;
    SL_TRY(sl_jinja_length(run, v, &count));
    index = sl_jinja_as_i64(key);
    if (index < 0)
        index += count;
    if (index < 0 || index >= count)
        return SL_OK;
    if (v->kind != JINJA_STRING) {
        *out = v->list->items[index];
        return SL_OK;
    }
    size_t from = sl_jinja_offset(v->string, index);
    const char *end = v->string->bytes + v->string->length;
    return sl_jinja_part(run, v->string, from, from + (size_t) sl_utf8_length(v->string->bytes + from, end), out);
}

/* A bound of a slice, into [low, high]. */
static sl_status bound(const sl_jinja_run *run, const jinja_value *v, int64_t otherwise, int64_t count, int64_t low,
                       int64_t high, int64_t *out)
{
    *out = otherwise;
    if (v->kind == JINJA_NONE)
        return SL_OK;
    if (v->kind != JINJA_INT && v->kind != JINJA_BOOL)
        return sl_jinja_fail(run, "a bound of a slice is %s, not int", sl_jinja_kind_name(v->kind));
    int64_t value = sl_jinja_as_i64(v);
    if (value < 0)
        value += count;
    *out = SL_MIN(SL_MAX(value, low), high);
    return SL_OK;
}

sl_status sl_jinja_slice(sl_jinja_run *run, const jinja_value *v, const jinja_value bounds[3], jinja_value *out)
{
    int64_t count, step = 1, from, to;
    if (v->kind == JINJA_UNDEFINED)
        return undefined_fail(run, v);
    if (!is_repeatable(v))
        return sl_jinja_fail(run, "a %s cannot be sliced", sl_jinja_kind_name(v->kind));
    SL_TRY(sl_jinja_length(run, v, &count));
    if (bounds[2].kind != JINJA_NONE) {
        if (bounds[2].kind != JINJA_INT || bounds[2].integer == 0)
            return sl_jinja_fail(run, "the step of a slice is not an integer other than 0");
        step = SL_MIN(SL_MAX(bounds[2].integer, -count - 1), count + 1); /* more skips everything too */
    }
    bool back = step < 0;
    SL_TRY(bound(run, &bounds[0], back ? count - 1 : 0, count, back ? -1 : 0, back ? count - 1 : count, &from));
    SL_TRY(bound(run, &bounds[1], back ? -1 : count, count, back ? -1 : 0, back ? count - 1 : count, &to));
    int64_t taken =
        back ? SL_MAX((from - to - step - 1) / -step, (int64_t) 0) : SL_MAX((to - from + step - 1) / step, (int64_t) 0);
    if (v->kind == JINJA_STRING && step == 1) {
        size_t first = sl_jinja_offset(v->string, from), last = sl_jinja_offset(v->string, SL_MAX(to, from));
        return sl_jinja_part(run, v->string, first, last, out);
    }
    const jinja_list *list;
    jinja_value sliced, *items;
    SL_TRY(sl_jinja_iterate(run, v, &list));
    SL_TRY(sl_jinja_list(run, v->kind == JINJA_TUPLE ? JINJA_TUPLE : JINJA_LIST, taken, &sliced, &items));
    for (int64_t i = 0; i < taken; i++)
        items[i] = list->items[from + i * step];
    *out = sliced;
    if (v->kind != JINJA_STRING)
        return SL_OK;
    jinja_builder b = {0};
    for (int64_t i = 0; i < taken; i++)
        SL_TRY(sl_jinja_put_string(run, &b, items[i].string));
    return sl_jinja_built(run, &b, out);
}
