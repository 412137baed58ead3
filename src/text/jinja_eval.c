/* Expressions: each node's value from its operands'. */
#include <string.h>

#include "text/jinja_internal.h"

sl_status sl_jinja_arguments(sl_jinja_run *run, const jinja_node *list, jinja_arguments *arguments)
{
    arguments->count = arguments->plain = 0;
    for (const jinja_node *node = list; node; node = node->next) { /* the parser bounds their number */
        bool named = node->kind == JN_KEYWORD;
        SL_TRY(sl_jinja_eval(run, named ? node->a : node, &arguments->values[arguments->count]));
        arguments->names[arguments->count++] = named ? node->name : NULL;
        arguments->plain += !named;
    }
    return SL_OK;
}

static sl_status eval_name(sl_jinja_run *run, const jinja_node *node, jinja_value *out)
{
    const jinja_value *found = sl_jinja_lookup(run->scope, node->name);
    SL_TRY(sl_jinja_spend(run, run->scope->count / 8));
    if (found) {
        *out = *found;
        return SL_OK;
    }
    const jinja_function *function = sl_jinja_find_function(node->name);
    *out = function ? (jinja_value){.kind = JINJA_FUNCTION, .function = function} : sl_jinja_undefined(node->name);
    return SL_OK;
}

static sl_status eval_list(sl_jinja_run *run, const jinja_node *node, jinja_value *out)
{
    jinja_value *items;
    int64_t count = 0;
    for (const jinja_node *item = node->list; item; item = item->next)
        count++;
    SL_TRY(sl_jinja_list(run, node->kind == JN_LIST ? JINJA_LIST : JINJA_TUPLE, count, out, &items));
    count = 0;
    for (const jinja_node *item = node->list; item; item = item->next)
        SL_TRY(sl_jinja_eval(run, item, &items[count++]));
    return SL_OK;
}

static sl_status eval_dict(sl_jinja_run *run, const jinja_node *node, jinja_value *out)
{
    SL_TRY(sl_jinja_dict(run, 0, out));
    for (const jinja_node *key = node->list; key; key = key->next->next) {
        jinja_value key_value, value;
        SL_TRY(sl_jinja_eval(run, key, &key_value));
        SL_TRY(sl_jinja_eval(run, key->next, &value));
        SL_TRY(sl_jinja_dict_put(run, out->dict, &key_value, &value));
    }
    return SL_OK;
}

/* a < b < c: ends at the first that does not hold. */
static sl_status eval_compare(sl_jinja_run *run, const jinja_node *node, jinja_value *out)
{
    jinja_value left, right;
    bool holds = true;
    SL_TRY(sl_jinja_eval(run, node->a, &left));
    for (const jinja_node *operand = node->list; operand && holds; operand = operand->next) {
        SL_TRY(sl_jinja_eval(run, operand->a, &right));
        SL_TRY(sl_jinja_compare(run, operand->op, &left, &right, &holds));
        left = right;
    }
    *out = sl_jinja_bool(holds);
    return SL_OK;
}

static sl_status eval_concat(sl_jinja_run *run, const jinja_node *node, jinja_value *out)
{
    jinja_builder b = {0};
    for (const jinja_node *item = node->list; item; item = item->next) {
        jinja_value value;
        SL_TRY(sl_jinja_eval(run, item, &value));
        SL_TRY(sl_jinja_put_value(run, &b, &value));
    }
    return sl_jinja_built(run, &b, out);
}

static sl_status eval_slice(sl_jinja_run *run, const jinja_node *node, jinja_value *out)
{
    const jinja_node *const parts[3] = {node->b, node->c, node->d};
    jinja_value of, bounds[3];
    SL_TRY(sl_jinja_eval(run, node->a, &of));
    for (int i = 0; i < 3; i++) {
        bounds[i] = (jinja_value){.kind = JINJA_NONE};
        if (parts[i])
            SL_TRY(sl_jinja_eval(run, parts[i], &bounds[i]));
    }
    return sl_jinja_slice(run, &of, bounds, out);
}

/* Arguments are too large for a stack that a template may make deep, and for memory that is freed only with the rendering. */
static sl_status take_arguments(sl_jinja_run *run, const jinja_node *list, jinja_arguments **out)
{
    if (run->unused) {
        *out = run->unused;
        run->unused = run->unused->next;
    } else {
        SL_TRY(sl_jinja_alloc(run, out, 1, sizeof **out));
    }
    return sl_jinja_arguments(run, list, *out);
}

static void give_arguments(sl_jinja_run *run, jinja_arguments *arguments)
{
    arguments->next = run->unused;
    run->unused = arguments;
}

static sl_status eval_call(sl_jinja_run *run, const jinja_node *node, jinja_value *out)
{
    jinja_value callee;
    jinja_arguments *arguments;
    SL_TRY(sl_jinja_eval(run, node->a, &callee));
    SL_TRY(take_arguments(run, node->list, &arguments));
    run->line = node->line;
    SL_TRY(sl_jinja_call(run, &callee, arguments, out));
    give_arguments(run, arguments);
    return SL_OK;
}

static sl_status eval_filter(sl_jinja_run *run, const jinja_node *node, jinja_value *out)
{
    jinja_value value;
    jinja_arguments *arguments;
    if (!node->filter)
        return sl_jinja_fail(run, "filter '%s' is not supported", node->name);
    SL_TRY(sl_jinja_eval(run, node->a, &value));
    SL_TRY(take_arguments(run, node->list, &arguments));
    run->line = node->line;
    SL_TRY(sl_jinja_apply_filter(run, node->filter, &value, arguments, out));
    give_arguments(run, arguments);
    return SL_OK;
}

static sl_status eval_test(sl_jinja_run *run, const jinja_node *node, jinja_value *out)
{
    jinja_value value;
    jinja_arguments *arguments;
    bool holds;
    if (!node->test)
        return sl_jinja_fail(run, "test '%s' is not supported", node->name);
    SL_TRY(sl_jinja_eval(run, node->a, &value));
    SL_TRY(take_arguments(run, node->list, &arguments));
    SL_TRY(sl_jinja_apply_test(run, node->test, &value, arguments, &holds));
    *out = sl_jinja_bool(holds);
    give_arguments(run, arguments);
    return SL_OK;
}

static sl_status eval_operator(sl_jinja_run *run, const jinja_node *node, jinja_value *out)
{
    jinja_value a, b;
    SL_TRY(sl_jinja_eval(run, node->a, &a));
    switch (node->kind) {
    case JN_AND:
    case JN_OR:
        *out = a;
        return sl_jinja_truth(&a) == (node->kind == JN_AND) ? sl_jinja_eval(run, node->b, out) : SL_OK;
    case JN_CHOICE:
        if (sl_jinja_truth(&a))
            return sl_jinja_eval(run, node->b, out);
        *out = sl_jinja_undefined(NULL);
        return node->c ? sl_jinja_eval(run, node->c, out) : SL_OK;
    case JN_UNARY:
        return sl_jinja_unary(run, node->op, &a, out);
    case JN_ATTRIBUTE:
        return sl_jinja_attribute(run, &a, node->name, out);
    case JN_ITEM:
        SL_TRY(sl_jinja_eval(run, node->b, &b));
        return sl_jinja_item(run, &a, &b, out);
    default:
        SL_TRY(sl_jinja_eval(run, node->b, &b));
        return sl_jinja_binary(run, node->op, &a, &b, out);
    }
}

static sl_status eval_node(sl_jinja_run *run, const jinja_node *node, jinja_value *out)
{
    switch (node->kind) {
    case JN_CONSTANT:
        *out = node->constant;
        return SL_OK;
    case JN_NAME:
        return eval_name(run, node, out);
    case JN_LIST:
    case JN_TUPLE:
        return eval_list(run, node, out);
    case JN_DICT:
        return eval_dict(run, node, out);
    case JN_COMPARE:
        return eval_compare(run, node, out);
    case JN_CONCAT:
        return eval_concat(run, node, out);
    case JN_SLICE:
        return eval_slice(run, node, out);
    case JN_CALL:
        return eval_call(run, node, out);
    case JN_FILTER:
        return eval_filter(run, node, out);
    case JN_TEST:
        return eval_test(run, node, out);
    default:
        return eval_operator(run, node, out);
    }
}

sl_status sl_jinja_eval(sl_jinja_run *run, const jinja_node *node, jinja_value *out)
{
    SL_TRY(sl_jinja_spend(run, 1));
    if (++run->depth > JINJA_MOST_DEPTH)
        return sl_jinja_fail(run, "the template calls itself too deeply");
    SL_TRY(eval_node(run, node, out));
    run->depth--;
    return SL_OK;
}
