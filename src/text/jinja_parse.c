/* Expressions: recursive descent in Jinja2's order of precedence, loosest first:
 *
 *     a if b else c | or | and | not | == in ... | + - | ~ | * / // % | ** | unary - + | a.b a[b] a(b) | filter, is test
 *
 * Every node records the depth of the tree below it, so that evaluation recurses to a bounded depth. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja_internal.h"

sl_status sl_jinja_parse_fail(const jinja_parser *p, const char *format, ...)
{
    char text[300];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return sl_fail(SL_E_FORMAT, "%s:%d: %s", p->lexer.name, p->token.line, text);
}

sl_status sl_jinja_advance(jinja_parser *p)
{
    if (p->has_ahead) {
        p->token = p->ahead;
        p->has_ahead = false;
        return SL_OK;
    }
    return sl_jinja_next(&p->lexer, &p->token);
}

sl_status sl_jinja_look_ahead(jinja_parser *p)
{
    if (!p->has_ahead)
        SL_TRY(sl_jinja_next(&p->lexer, &p->ahead));
    p->has_ahead = true;
    return SL_OK;
}

sl_status sl_jinja_node(jinja_parser *p, jinja_node_kind kind, jinja_node **out)
{
    SL_TRY(sl_region_alloc(p->result->region, out, 1, sizeof **out));
    **out = (jinja_node){.kind = kind, .line = p->token.line, .depth = 1};
    return SL_OK;
}

sl_status sl_jinja_over(const jinja_parser *p, jinja_node *node, const jinja_node *child)
{
    if (child && child->depth >= node->depth)
        node->depth = child->depth + 1;
    if (node->depth > JINJA_MOST_NESTING)
        return sl_jinja_parse_fail(p, "the template is nested more than %d levels deep", JINJA_MOST_NESTING);
    return SL_OK;
}

bool sl_jinja_at_operator(const jinja_parser *p, const char *text)
{
    return p->token.kind == JT_OPERATOR && strcmp(p->token.text, text) == 0;
}

bool sl_jinja_at_name(const jinja_parser *p, const char *text)
{
    return p->token.kind == JT_NAME && strcmp(p->token.text, text) == 0;
}

sl_status sl_jinja_expect(jinja_parser *p, const char *text)
{
    if (!sl_jinja_at_operator(p, text))
        return sl_jinja_parse_fail(p, "expected '%s'", text);
    return sl_jinja_advance(p);
}

/* Appends a child to the list that ends at *tail. */
sl_status sl_jinja_append(const jinja_parser *p, jinja_node *node, jinja_node ***tail, jinja_node *child)
{
    **tail = child;
    *tail = &child->next;
    return sl_jinja_over(p, node, child);
}

sl_status sl_jinja_pair(jinja_parser *p, jinja_node_kind kind, jinja_op op, jinja_node *a, jinja_node *b,
                        jinja_node **out)
{
    jinja_node *node;
    SL_TRY(sl_jinja_node(p, kind, &node));
    node->op = op;
    node->a = a;
    node->b = b;
    *out = node;
    SL_TRY(sl_jinja_over(p, node, a));
    return sl_jinja_over(p, node, b);
}

/* ---- operators with two sides ---- */

static sl_status parse_level(jinja_parser *p, int level, jinja_node **out);

typedef struct binary_level {
    struct {
        const char *text;
        jinja_op op;
    } operators[4];
} binary_level;

/* From loose to tight; level 1 is '~', which takes all its operands at once. */
static const binary_level levels[] = {{{{"+", JOP_ADD}, {"-", JOP_SUB}}},
                                      {{{"~", JOP_NONE}}},
                                      {{{"*", JOP_MUL}, {"/", JOP_DIV}, {"//", JOP_FLOORDIV}, {"%", JOP_MOD}}},
                                      {{{"**", JOP_POW}}}};
enum { CONCAT_LEVEL = 1 };

static sl_status parse_concat(jinja_parser *p, jinja_node *first, jinja_node **out)
{
    jinja_node *node, *item;
    SL_TRY(sl_jinja_node(p, JN_CONCAT, &node));
    jinja_node **tail = &node->list;
    SL_TRY(sl_jinja_append(p, node, &tail, first));
    while (sl_jinja_at_operator(p, "~")) {
        SL_TRY(sl_jinja_advance(p));
        SL_TRY(parse_level(p, CONCAT_LEVEL + 1, &item));
        SL_TRY(sl_jinja_append(p, node, &tail, item));
    }
    *out = node;
    return SL_OK;
}

static sl_status parse_level(jinja_parser *p, int level, jinja_node **out)
{
    jinja_node *node, *right;
    if (level == SL_COUNT(levels))
        return sl_jinja_parse_unary(p, true, out);
    SL_TRY(parse_level(p, level + 1, &node));
    for (int i = 0; i < 4;) {
        const char *text = levels[level].operators[i].text;
        if (!text || !sl_jinja_at_operator(p, text)) {
            i++;
            continue;
        }
        if (level == CONCAT_LEVEL)
            return parse_concat(p, node, out);
        SL_TRY(sl_jinja_advance(p));
        SL_TRY(parse_level(p, level + 1, &right));
        SL_TRY(sl_jinja_pair(p, JN_BINARY, levels[level].operators[i].op, node, right, &node));
        i = 0;
    }
    *out = node;
    return SL_OK;
}

/* The comparison at this token; JOP_NONE: none. */
static sl_status take_comparison(jinja_parser *p, jinja_op *op)
{
    static const char *const texts[] = {"==", "!=", "<", "<=", ">", ">="};
    *op = JOP_NONE;
    for (int64_t i = 0; i < SL_COUNT(texts); i++)
        if (sl_jinja_at_operator(p, texts[i]))
            *op = (jinja_op) (JOP_EQ + i);
    if (sl_jinja_at_name(p, "in"))
        *op = JOP_IN;
    if (sl_jinja_at_name(p, "not")) {
        SL_TRY(sl_jinja_look_ahead(p));
        if (p->ahead.kind == JT_NAME && strcmp(p->ahead.text, "in") == 0) {
            *op = JOP_NOT_IN;
            SL_TRY(sl_jinja_advance(p));
        }
    }
    return *op == JOP_NONE ? SL_OK : sl_jinja_advance(p);
}

static sl_status parse_compare(jinja_parser *p, jinja_node **out)
{
    jinja_node *first, *node = NULL, **tail = NULL;
    jinja_op op;
    SL_TRY(parse_level(p, 0, &first));
    *out = first;
    for (;;) {
        SL_TRY(take_comparison(p, &op));
        if (op == JOP_NONE)
            return SL_OK;
        if (!node) {
            SL_TRY(sl_jinja_pair(p, JN_COMPARE, JOP_NONE, first, NULL, &node));
            tail = &node->list;
            *out = node;
        }
        jinja_node *operand, *right;
        SL_TRY(parse_level(p, 0, &right));
        SL_TRY(sl_jinja_pair(p, JN_OPERAND, op, right, NULL, &operand));
        SL_TRY(sl_jinja_append(p, node, &tail, operand));
    }
}

static sl_status parse_not(jinja_parser *p, jinja_node **out)
{
    int count = 0;
    for (; sl_jinja_at_name(p, "not"); count++)
        SL_TRY(sl_jinja_advance(p));
    SL_TRY(parse_compare(p, out));
    for (; count > 0; count--)
        SL_TRY(sl_jinja_pair(p, JN_UNARY, JOP_NOT, *out, NULL, out));
    return SL_OK;
}

static sl_status parse_and(jinja_parser *p, jinja_node **out)
{
    jinja_node *right;
    SL_TRY(parse_not(p, out));
    while (sl_jinja_at_name(p, "and")) {
        SL_TRY(sl_jinja_advance(p));
        SL_TRY(parse_not(p, &right));
        SL_TRY(sl_jinja_pair(p, JN_AND, JOP_NONE, *out, right, out));
    }
    return SL_OK;
}

sl_status sl_jinja_parse_expression(jinja_parser *p, bool with_choice, jinja_node **out)
{
    jinja_node *right, *condition;
    SL_TRY(parse_and(p, out));
    while (sl_jinja_at_name(p, "or")) {
        SL_TRY(sl_jinja_advance(p));
        SL_TRY(parse_and(p, &right));
        SL_TRY(sl_jinja_pair(p, JN_OR, JOP_NONE, *out, right, out));
    }
    while (with_choice && sl_jinja_at_name(p, "if")) {
        jinja_node *otherwise = NULL;
        SL_TRY(sl_jinja_advance(p));
        SL_TRY(sl_jinja_parse_expression(p, false, &condition));
        if (sl_jinja_at_name(p, "else")) {
            SL_TRY(sl_jinja_advance(p));
            if (++p->depth > JINJA_MOST_PARSE_DEPTH)
                return sl_jinja_parse_fail(p, "an expression is nested more than %d levels deep",
                                           JINJA_MOST_PARSE_DEPTH);
            SL_TRY(sl_jinja_parse_expression(p, true, &otherwise));
            p->depth--;
        }
        SL_TRY(sl_jinja_pair(p, JN_CHOICE, JOP_NONE, condition, *out, out));
        (*out)->c = otherwise;
        SL_TRY(sl_jinja_over(p, *out, otherwise));
    }
    return SL_OK;
}
