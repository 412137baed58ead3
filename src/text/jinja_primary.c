/* Expressions without operators between them: values, names, brackets, and what may follow: attributes, indices, calls, filters and
 * tests. */
#include <stdio.h>
#include <string.h>

#include "text/jinja_internal.h"

/* ---- primary expressions ---- */

static sl_status parse_string(jinja_parser *p, jinja_node **out)
{
    jinja_string *string;
    SL_TRY(sl_jinja_node(p, JN_CONSTANT, out));
    SL_TRY(sl_region_alloc(p->result->region, &string, 1, sizeof *string));
    string->bytes = p->token.text;
    string->length = p->token.length;
    SL_TRY(sl_jinja_advance(p));
    while (p->token.kind == JT_STRING) { /* strings side by side are one */
        char *both;
        SL_TRY(sl_region_alloc(p->result->region, &both, string->length + p->token.length + 1, 1));
        memcpy(both, string->bytes, string->length);
        memcpy(both + string->length, p->token.text, p->token.length);
        string->bytes = both;
        string->length += p->token.length;
        if (string->length > JINJA_MOST_SOURCE)
            return sl_jinja_parse_fail(p, "a string is too long");
        SL_TRY(sl_jinja_advance(p));
    }
    (*out)->constant = (jinja_value){.kind = JINJA_STRING, .string = string};
    return SL_OK;
}

static sl_status parse_items(jinja_parser *p, jinja_node *node, const char *close)
{
    jinja_node **tail = &node->list, *item;
    while (!sl_jinja_at_operator(p, close)) {
        SL_TRY(sl_jinja_parse_expression(p, true, &item));
        SL_TRY(sl_jinja_append(p, node, &tail, item));
        if (node->kind == JN_DICT) {
            SL_TRY(sl_jinja_expect(p, ":"));
            SL_TRY(sl_jinja_parse_expression(p, true, &item));
            SL_TRY(sl_jinja_append(p, node, &tail, item));
        }
        if (!sl_jinja_at_operator(p, close))
            SL_TRY(sl_jinja_expect(p, ","));
    }
    return sl_jinja_advance(p);
}

static bool ends_tuple(const jinja_parser *p)
{
    return p->token.kind == JT_BLOCK_END || p->token.kind == JT_PRINT_END || sl_jinja_at_operator(p, ")") ||
           sl_jinja_at_name(p, "recursive");
}

sl_status sl_jinja_parse_tuple(jinja_parser *p, bool with_choice, jinja_node **out)
{
    jinja_node *first, *tuple, *item;
    SL_TRY(sl_jinja_parse_expression(p, with_choice, &first));
    *out = first;
    if (!sl_jinja_at_operator(p, ","))
        return SL_OK;
    SL_TRY(sl_jinja_node(p, JN_TUPLE, &tuple));
    jinja_node **tail = &tuple->list;
    SL_TRY(sl_jinja_append(p, tuple, &tail, first));
    while (sl_jinja_at_operator(p, ",")) {
        SL_TRY(sl_jinja_advance(p));
        if (ends_tuple(p))
            break;
        SL_TRY(sl_jinja_parse_expression(p, with_choice, &item));
        SL_TRY(sl_jinja_append(p, tuple, &tail, item));
    }
    *out = tuple;
    return SL_OK;
}

/* A word that is a value, or a variable. */
static sl_status parse_name(jinja_parser *p, jinja_node **out)
{
    static const struct {
        const char *name;
        jinja_kind kind;
        bool value;
    } words[] = {{"true", JINJA_BOOL, true},   {"True", JINJA_BOOL, true},  {"false", JINJA_BOOL, false},
                 {"False", JINJA_BOOL, false}, {"none", JINJA_NONE, false}, {"None", JINJA_NONE, false}};
    SL_TRY(sl_jinja_node(p, JN_NAME, out));
    (*out)->name = p->token.text;
    for (int64_t i = 0; i < SL_COUNT(words); i++) {
        if (strcmp(p->token.text, words[i].name) != 0)
            continue;
        (*out)->kind = JN_CONSTANT;
        (*out)->constant = (jinja_value){.kind = words[i].kind, .boolean = words[i].value};
    }
    return sl_jinja_advance(p);
}

static sl_status parse_primary(jinja_parser *p, jinja_node **out)
{
    if (p->token.kind == JT_NAME)
        return parse_name(p, out);
    if (p->token.kind == JT_STRING)
        return parse_string(p, out);
    if (p->token.kind == JT_INT || p->token.kind == JT_FLOAT) {
        SL_TRY(sl_jinja_node(p, JN_CONSTANT, out));
        (*out)->constant = p->token.kind == JT_INT ? sl_jinja_int(p->token.integer)
                                                   : (jinja_value){.kind = JINJA_FLOAT, .number = p->token.number};
        return sl_jinja_advance(p);
    }
    bool list = sl_jinja_at_operator(p, "["), dict = sl_jinja_at_operator(p, "{");
    if (list || dict) {
        SL_TRY(sl_jinja_node(p, list ? JN_LIST : JN_DICT, out));
        SL_TRY(sl_jinja_advance(p));
        return parse_items(p, *out, list ? "]" : "}");
    }
    if (!sl_jinja_at_operator(p, "("))
        return sl_jinja_parse_fail(p, "expected an expression");
    SL_TRY(sl_jinja_advance(p));
    if (sl_jinja_at_operator(p, ")"))
        SL_TRY(sl_jinja_node(p, JN_TUPLE, out));
    else
        SL_TRY(sl_jinja_parse_tuple(p, true, out));
    return sl_jinja_expect(p, ")");
}

/* ---- what follows an expression ---- */

/* "(a, b, name=c)": the arguments of a call, filter or test, at the opening bracket. */
sl_status sl_jinja_parse_arguments(jinja_parser *p, jinja_node *node)
{
    jinja_node **tail = &node->list;
    bool keywords = false;
    int count = 0;
    SL_TRY(sl_jinja_expect(p, "("));
    while (!sl_jinja_at_operator(p, ")")) {
        jinja_node *argument, *keyword;
        if (++count >= JINJA_MOST_ARGUMENTS)
            return sl_jinja_parse_fail(p, "more than %d arguments", JINJA_MOST_ARGUMENTS - 1);
        bool named = false;
        if (p->token.kind == JT_NAME) {
            SL_TRY(sl_jinja_look_ahead(p));
            named = p->ahead.kind == JT_OPERATOR && strcmp(p->ahead.text, "=") == 0;
        }
        if (keywords && !named)
            return sl_jinja_parse_fail(p, "an argument without a name follows one with a name");
        if (named) {
            keywords = true;
            SL_TRY(sl_jinja_node(p, JN_KEYWORD, &keyword));
            keyword->name = p->token.text;
            SL_TRY(sl_jinja_advance(p));
            SL_TRY(sl_jinja_advance(p));
            SL_TRY(sl_jinja_parse_expression(p, true, &keyword->a));
            SL_TRY(sl_jinja_over(p, keyword, keyword->a));
            argument = keyword;
        } else {
            SL_TRY(sl_jinja_parse_expression(p, true, &argument));
        }
        SL_TRY(sl_jinja_append(p, node, &tail, argument));
        if (!sl_jinja_at_operator(p, ")"))
            SL_TRY(sl_jinja_expect(p, ","));
    }
    return sl_jinja_advance(p);
}

/* Behind '[': an index or a slice. */
static sl_status parse_subscript(jinja_parser *p, jinja_node *of, jinja_node **out)
{
    jinja_node *parts[3] = {NULL, NULL, NULL}, *node;
    int colons = 0;
    while (!sl_jinja_at_operator(p, "]")) {
        if (sl_jinja_at_operator(p, ":")) {
            if (++colons > 2)
                return sl_jinja_parse_fail(p, "a slice has more than three parts");
            SL_TRY(sl_jinja_advance(p));
        } else if (!parts[colons]) {
            SL_TRY(sl_jinja_parse_tuple(p, true, &parts[colons]));
        } else {
            return sl_jinja_parse_fail(p, "expected ']'");
        }
    }
    if (colons == 0 && !parts[0])
        return sl_jinja_parse_fail(p, "expected an index");
    SL_TRY(sl_jinja_pair(p, colons ? JN_SLICE : JN_ITEM, JOP_NONE, of, parts[0], &node));
    node->c = parts[1];
    node->d = parts[2];
    SL_TRY(sl_jinja_over(p, node, parts[1]));
    SL_TRY(sl_jinja_over(p, node, parts[2]));
    *out = node;
    return sl_jinja_advance(p);
}

static sl_status parse_attribute(jinja_parser *p, jinja_node *of, jinja_node **out)
{
    jinja_node *index = NULL;
    SL_TRY(sl_jinja_advance(p));
    if (p->token.kind == JT_INT) {
        SL_TRY(parse_primary(p, &index));
        return sl_jinja_pair(p, JN_ITEM, JOP_NONE, of, index, out);
    }
    if (p->token.kind != JT_NAME)
        return sl_jinja_parse_fail(p, "expected a name behind '.'");
    const char *name = p->token.text;
    SL_TRY(sl_jinja_pair(p, JN_ATTRIBUTE, JOP_NONE, of, NULL, out));
    (*out)->name = name;
    return sl_jinja_advance(p);
}

static sl_status parse_call(jinja_parser *p, jinja_node *callee, jinja_node **out)
{
    SL_TRY(sl_jinja_pair(p, JN_CALL, JOP_NONE, callee, NULL, out));
    return sl_jinja_parse_arguments(p, *out);
}

static sl_status parse_postfix(jinja_parser *p, jinja_node *node, jinja_node **out)
{
    for (;;) {
        if (sl_jinja_at_operator(p, ".")) {
            SL_TRY(parse_attribute(p, node, &node));
        } else if (sl_jinja_at_operator(p, "[")) {
            SL_TRY(sl_jinja_advance(p));
            SL_TRY(parse_subscript(p, node, &node));
        } else if (sl_jinja_at_operator(p, "(")) {
            SL_TRY(parse_call(p, node, &node));
        } else {
            *out = node;
            return SL_OK;
        }
    }
}

/* "a.b" too, as filters and tests may be named. */
static sl_status parse_dotted(jinja_parser *p, char *name, size_t size)
{
    name[0] = 0;
    for (;;) {
        if (p->token.kind != JT_NAME)
            return sl_jinja_parse_fail(p, "expected the name of a filter or test");
        size_t length = strlen(name);
        snprintf(name + length, size - length, "%s%s", length ? "." : "", p->token.text);
        SL_TRY(sl_jinja_advance(p));
        if (!sl_jinja_at_operator(p, "."))
            return SL_OK;
        SL_TRY(sl_jinja_advance(p));
    }
}

/* Behind '|'. */
static sl_status parse_filter(jinja_parser *p, jinja_node *of, jinja_node **out)
{
    char name[64];
    jinja_node *node;
    SL_TRY(sl_jinja_pair(p, JN_FILTER, JOP_NONE, of, NULL, &node));
    SL_TRY(parse_dotted(p, name, sizeof name));
    SL_TRY(sl_region_strdup(p->result->region, name, &node->name));
    node->filter = sl_jinja_find_filter(name, strlen(name));
    if (sl_jinja_at_operator(p, "("))
        SL_TRY(sl_jinja_parse_arguments(p, node));
    *out = node;
    return SL_OK;
}

sl_status sl_jinja_parse_filters(jinja_parser *p, jinja_node *node, jinja_node **out)
{
    do {
        SL_TRY(sl_jinja_expect(p, "|"));
        SL_TRY(parse_filter(p, node, &node));
    } while (sl_jinja_at_operator(p, "|"));
    *out = node;
    return SL_OK;
}

static bool starts_argument(const jinja_parser *p)
{
    switch (p->token.kind) {
    case JT_NAME:
        return !sl_jinja_at_name(p, "else") && !sl_jinja_at_name(p, "or") && !sl_jinja_at_name(p, "and");
    case JT_STRING:
    case JT_INT:
    case JT_FLOAT:
        return true;
    default:
        return sl_jinja_at_operator(p, "[") || sl_jinja_at_operator(p, "{");
    }
}

/* Behind "is": "[not] name", with arguments in brackets or one without. */
static sl_status parse_test(jinja_parser *p, jinja_node *of, jinja_node **out)
{
    char name[64];
    jinja_node *node;
    bool negated = sl_jinja_at_name(p, "not");
    if (negated)
        SL_TRY(sl_jinja_advance(p));
    SL_TRY(sl_jinja_pair(p, JN_TEST, JOP_NONE, of, NULL, &node));
    SL_TRY(parse_dotted(p, name, sizeof name));
    SL_TRY(sl_region_strdup(p->result->region, name, &node->name));
    node->test = sl_jinja_find_test(name, strlen(name));
    if (sl_jinja_at_operator(p, "(")) {
        SL_TRY(sl_jinja_parse_arguments(p, node));
    } else if (starts_argument(p)) {
        if (sl_jinja_at_name(p, "is"))
            return sl_jinja_parse_fail(p, "tests cannot be chained with 'is'");
        jinja_node *argument;
        SL_TRY(parse_primary(p, &argument));
        SL_TRY(parse_postfix(p, argument, &node->list));
        SL_TRY(sl_jinja_over(p, node, node->list));
    }
    *out = node;
    return negated ? sl_jinja_pair(p, JN_UNARY, JOP_NOT, node, NULL, out) : SL_OK;
}

sl_status sl_jinja_parse_unary(jinja_parser *p, bool with_filters, jinja_node **out)
{
    jinja_node *node;
    bool minus = sl_jinja_at_operator(p, "-");
    if (++p->depth > JINJA_MOST_PARSE_DEPTH)
        return sl_jinja_parse_fail(p, "an expression is nested more than %d levels deep", JINJA_MOST_PARSE_DEPTH);
    if (minus || sl_jinja_at_operator(p, "+")) {
        SL_TRY(sl_jinja_advance(p));
        SL_TRY(sl_jinja_parse_unary(p, false, &node));
        SL_TRY(sl_jinja_pair(p, JN_UNARY, minus ? JOP_SUB : JOP_ADD, node, NULL, &node));
    } else {
        SL_TRY(parse_primary(p, &node));
    }
    SL_TRY(parse_postfix(p, node, &node));
    while (with_filters) {
        if (sl_jinja_at_operator(p, "|")) {
            SL_TRY(sl_jinja_parse_filters(p, node, &node));
        } else if (sl_jinja_at_name(p, "is")) {
            SL_TRY(sl_jinja_advance(p));
            SL_TRY(parse_test(p, node, &node));
        } else if (sl_jinja_at_operator(p, "(")) {
            SL_TRY(parse_call(p, node, &node));
        } else {
            break;
        }
    }
    p->depth--;
    *out = node;
    return SL_OK;
}
