/* Tests: what stands behind "is". */
#include <string.h>

#include "text/jinja_internal.h"

typedef bool test_fn(const jinja_value *v);

static bool is_defined(const jinja_value *v)
{
    return v->kind != JINJA_UNDEFINED;
}

static bool is_undefined(const jinja_value *v)
{
    return v->kind == JINJA_UNDEFINED;
}

static bool is_none(const jinja_value *v)
{
    return v->kind == JINJA_NONE;
}

static bool is_string(const jinja_value *v)
{
    return v->kind == JINJA_STRING;
}

static bool is_integer(const jinja_value *v)
{
    return v->kind == JINJA_INT;
}

static bool is_float(const jinja_value *v)
{
    return v->kind == JINJA_FLOAT;
}

static bool is_boolean(const jinja_value *v)
{
    return v->kind == JINJA_BOOL;
}

static bool is_true(const jinja_value *v)
{
    return v->kind == JINJA_BOOL && v->boolean;
}

static bool is_false(const jinja_value *v)
{
    return v->kind == JINJA_BOOL && !v->boolean;
}

static bool is_mapping(const jinja_value *v)
{
    return v->kind == JINJA_DICT;
}

/* What has a length and items, as Python sees it: strings and dicts too. */
static bool is_sequence(const jinja_value *v)
{
    return v->kind == JINJA_STRING || v->kind == JINJA_LIST || v->kind == JINJA_TUPLE || v->kind == JINJA_DICT ||
           v->kind == JINJA_UNDEFINED;
}

static bool is_iterable(const jinja_value *v)
{
    return is_sequence(v) || v->kind == JINJA_LOOP;
}

static bool is_callable(const jinja_value *v)
{
    return v->kind == JINJA_FUNCTION || v->kind == JINJA_METHOD || v->kind == JINJA_MACRO || v->kind == JINJA_LOOP;
}

static bool has_case(const jinja_value *v, char from, char to)
{
    bool cased = false;
    for (size_t i = 0; v->kind == JINJA_STRING && i < v->string->length; i++) {
        char c = v->string->bytes[i], other = (char) (c ^ 32);
        if (other >= from && other <= to)
            return false;
        cased = cased || (c >= from && c <= to);
    }
    return cased;
}

static bool is_lower(const jinja_value *v)
{
    return has_case(v, 'a', 'z');
}

static bool is_upper(const jinja_value *v)
{
    return has_case(v, 'A', 'Z');
}

typedef enum test_rule { RULE_PLAIN, RULE_COMPARE, RULE_SAME, RULE_DIVISIBLE, RULE_EVEN, RULE_ODD } test_rule;

struct jinja_test {
    const char *name;
    test_rule rule;
    test_fn *holds;
    jinja_op op;
};

static const jinja_test tests[] = {
    {"defined", RULE_PLAIN, is_defined, JOP_NONE},
    {"undefined", RULE_PLAIN, is_undefined, JOP_NONE},
    {"none", RULE_PLAIN, is_none, JOP_NONE},
    {"string", RULE_PLAIN, is_string, JOP_NONE},
    {"number", RULE_PLAIN, sl_jinja_is_number, JOP_NONE},
    {"integer", RULE_PLAIN, is_integer, JOP_NONE},
    {"float", RULE_PLAIN, is_float, JOP_NONE},
    {"boolean", RULE_PLAIN, is_boolean, JOP_NONE},
    {"true", RULE_PLAIN, is_true, JOP_NONE},
    {"false", RULE_PLAIN, is_false, JOP_NONE},
    {"mapping", RULE_PLAIN, is_mapping, JOP_NONE},
    {"sequence", RULE_PLAIN, is_sequence, JOP_NONE},
    {"iterable", RULE_PLAIN, is_iterable, JOP_NONE},
    {"callable", RULE_PLAIN, is_callable, JOP_NONE},
    {"lower", RULE_PLAIN, is_lower, JOP_NONE},
    {"upper", RULE_PLAIN, is_upper, JOP_NONE},
    {"even", RULE_EVEN, NULL, JOP_NONE},
    {"odd", RULE_ODD, NULL, JOP_NONE},
    {"divisibleby", RULE_DIVISIBLE, NULL, JOP_NONE},
    {"sameas", RULE_SAME, NULL, JOP_NONE},
    {"in", RULE_COMPARE, NULL, JOP_IN},
    {"eq", RULE_COMPARE, NULL, JOP_EQ},
    {"equalto", RULE_COMPARE, NULL, JOP_EQ},
    {"==", RULE_COMPARE, NULL, JOP_EQ},
    {"ne", RULE_COMPARE, NULL, JOP_NE},
    {"!=", RULE_COMPARE, NULL, JOP_NE},
    {"lt", RULE_COMPARE, NULL, JOP_LT},
    {"lessthan", RULE_COMPARE, NULL, JOP_LT},
    {"<", RULE_COMPARE, NULL, JOP_LT},
    {"le", RULE_COMPARE, NULL, JOP_LE},
    {"<=", RULE_COMPARE, NULL, JOP_LE},
    {"gt", RULE_COMPARE, NULL, JOP_GT},
    {"greaterthan", RULE_COMPARE, NULL, JOP_GT},
    {">", RULE_COMPARE, NULL, JOP_GT},
    {"ge", RULE_COMPARE, NULL, JOP_GE},
    {">=", RULE_COMPARE, NULL, JOP_GE},
};

const jinja_test *sl_jinja_find_test(const char *name, size_t length)
{
    for (int64_t i = 0; i < SL_COUNT(tests); i++)
        if (strlen(tests[i].name) == length && memcmp(tests[i].name, name, length) == 0)
            return &tests[i];
    return NULL;
}

/* The same object, where None, True and False are one each; strings and numbers are the same where they are equal. */
static sl_status same_object(sl_jinja_run *run, const jinja_value *a, const jinja_value *b, bool *out)
{
    bool by_value = a->kind != JINJA_LIST && a->kind != JINJA_TUPLE && a->kind != JINJA_DICT;
    *out = false;
    if (a->kind != b->kind)
        return SL_OK;
    if (by_value)
        return sl_jinja_equal(run, a, b, out);
    *out = a->dict == b->dict;
    return SL_OK;
}

sl_status sl_jinja_apply_test(sl_jinja_run *run, const jinja_test *test, const jinja_value *value,
                              const jinja_arguments *arguments, bool *out)
{
    if (test->rule == RULE_PLAIN) {
        *out = test->holds(value);
        return SL_OK;
    }
    jinja_value two = sl_jinja_int(2), rest;
    const jinja_value *argument = sl_jinja_argument(arguments, 0, "other");
    if (test->rule == RULE_EVEN || test->rule == RULE_ODD)
        argument = &two;
    if (!argument)
        return sl_jinja_fail(run, "test '%s' needs an argument", test->name);
    if (test->rule == RULE_SAME)
        return same_object(run, value, argument, out);
    if (test->rule == RULE_COMPARE)
        return sl_jinja_compare(run, test->op, value, argument, out);
    SL_TRY(sl_jinja_binary(run, JOP_MOD, value, argument, &rest));
    *out = sl_jinja_truth(&rest) == (test->rule == RULE_ODD);
    return SL_OK;
}
