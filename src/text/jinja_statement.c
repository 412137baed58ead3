/* Statements: text, values and blocks. A block's words are read here; its body ends at the first tag that begins with "end" or with a
 * word that only its owner knows (else, elif), and the owner checks that this is the one it wants. */
#include <stdio.h>
#include <string.h>

#include "text/jinja_internal.h"

static sl_status expect_block_end(jinja_parser *p)
{
    if (p->token.kind != JT_BLOCK_END)
        return sl_jinja_parse_fail(p, "expected the end of the tag, '%%}'");
    return sl_jinja_advance(p);
}

static sl_status take_name(jinja_parser *p, const char **out)
{
    if (p->token.kind != JT_NAME)
        return sl_jinja_parse_fail(p, "expected a name");
    *out = p->token.text;
    return sl_jinja_advance(p);
}

/* A name, an attribute of a namespace, or names in brackets or with commas. */
static sl_status parse_one_target(jinja_parser *p, jinja_node **out)
{
    const char *name = NULL;
    SL_TRY(sl_jinja_node(p, JN_NAME, out));
    SL_TRY(take_name(p, &(*out)->name));
    if (!sl_jinja_at_operator(p, "."))
        return SL_OK;
    SL_TRY(sl_jinja_advance(p));
    SL_TRY(take_name(p, &name));
    jinja_node *attribute;
    SL_TRY(sl_jinja_node(p, JN_ATTRIBUTE, &attribute));
    attribute->a = *out;
    attribute->name = name;
    *out = attribute;
    return SL_OK;
}

sl_status sl_jinja_parse_target(jinja_parser *p, jinja_node **out)
{
    bool bracket = sl_jinja_at_operator(p, "(");
    if (bracket)
        SL_TRY(sl_jinja_advance(p));
    jinja_node *tuple, **tail = NULL;
    SL_TRY(parse_one_target(p, out));
    if (sl_jinja_at_operator(p, ",")) {
        SL_TRY(sl_jinja_node(p, JN_TUPLE, &tuple));
        tuple->list = *out;
        tail = &(*out)->next;
        while (sl_jinja_at_operator(p, ",")) {
            SL_TRY(sl_jinja_advance(p));
            if (p->token.kind != JT_NAME)
                break;
            SL_TRY(parse_one_target(p, tail));
            tail = &(*tail)->next;
        }
        *out = tuple;
    }
    return bracket ? sl_jinja_expect(p, ")") : SL_OK;
}

/* The body of a block, up to the tag that ends it, whose word is the token then. */
static sl_status parse_body_of(jinja_parser *p, jinja_node *owner, jinja_node **out)
{
    SL_TRY(expect_block_end(p));
    SL_TRY(sl_jinja_parse_body(p, out));
    for (const jinja_node *node = *out; node; node = node->next)
        SL_TRY(sl_jinja_over(p, owner, node));
    return SL_OK;
}

static sl_status expect_end(jinja_parser *p, const jinja_node *owner, const char *word)
{
    if (!sl_jinja_at_name(p, word)) {
        bool end = p->token.kind == JT_END;
        return sl_jinja_parse_fail(p, "expected {%% %s %%} for line %d, found %s", word, owner->line,
                                   end ? "the end of the template" : p->token.text);
    }
    SL_TRY(sl_jinja_advance(p));
    if (strcmp(word, "endmacro") == 0 && p->token.kind == JT_NAME) /* may repeat the macro's name */
        SL_TRY(sl_jinja_advance(p));
    return expect_block_end(p);
}

static sl_status parse_if(jinja_parser *p, jinja_node *node)
{
    jinja_node **tail = &node->list;
    for (bool more = true; more;) {
        jinja_node *branch;
        bool condition = !sl_jinja_at_name(p, "else");
        SL_TRY(sl_jinja_node(p, JN_BRANCH, &branch));
        SL_TRY(sl_jinja_advance(p));
        if (condition)
            SL_TRY(sl_jinja_parse_tuple(p, false, &branch->a));
        SL_TRY(sl_jinja_over(p, branch, branch->a));
        SL_TRY(parse_body_of(p, branch, &branch->list));
        *tail = branch;
        tail = &branch->next;
        SL_TRY(sl_jinja_over(p, node, branch));
        more = condition && (sl_jinja_at_name(p, "elif") || sl_jinja_at_name(p, "else"));
    }
    return expect_end(p, node, "endif");
}

static sl_status parse_for(jinja_parser *p, jinja_node *node)
{
    SL_TRY(sl_jinja_advance(p));
    SL_TRY(sl_jinja_parse_target(p, &node->a));
    if (!sl_jinja_at_name(p, "in"))
        return sl_jinja_parse_fail(p, "expected 'in'");
    SL_TRY(sl_jinja_advance(p));
    SL_TRY(sl_jinja_parse_tuple(p, false, &node->b));
    SL_TRY(sl_jinja_over(p, node, node->b));
    if (sl_jinja_at_name(p, "if")) {
        SL_TRY(sl_jinja_advance(p));
        SL_TRY(sl_jinja_parse_expression(p, true, &node->c));
        SL_TRY(sl_jinja_over(p, node, node->c));
    }
    if (sl_jinja_at_name(p, "recursive"))
        return sl_jinja_parse_fail(p, "recursive loops are not supported");
    p->loops++;
    SL_TRY(parse_body_of(p, node, &node->list));
    p->loops--;
    if (sl_jinja_at_name(p, "else")) {
        SL_TRY(sl_jinja_advance(p));
        SL_TRY(parse_body_of(p, node, &node->otherwise));
    }
    return expect_end(p, node, "endfor");
}

static sl_status parse_set(jinja_parser *p, jinja_node *node)
{
    SL_TRY(sl_jinja_advance(p));
    SL_TRY(sl_jinja_parse_target(p, &node->a));
    if (sl_jinja_at_operator(p, "=")) {
        SL_TRY(sl_jinja_advance(p));
        SL_TRY(sl_jinja_parse_tuple(p, true, &node->b));
        SL_TRY(sl_jinja_over(p, node, node->b));
        return expect_block_end(p);
    }
    node->kind = JN_BLOCK;
    if (sl_jinja_at_operator(p, "|"))
        SL_TRY(sl_jinja_parse_filters(p, NULL, &node->b));
    SL_TRY(sl_jinja_over(p, node, node->b));
    SL_TRY(parse_body_of(p, node, &node->list));
    return expect_end(p, node, "endset");
}

/* "(a, b=1)": parameters with defaults. */
static sl_status parse_parameters(jinja_parser *p, jinja_node *node)
{
    jinja_node **tail = &node->otherwise;
    int count = 0;
    SL_TRY(sl_jinja_expect(p, "("));
    while (!sl_jinja_at_operator(p, ")")) {
        jinja_node *parameter;
        if (++count >= JINJA_MOST_ARGUMENTS)
            return sl_jinja_parse_fail(p, "more than %d parameters", JINJA_MOST_ARGUMENTS - 1);
        SL_TRY(sl_jinja_node(p, JN_KEYWORD, &parameter));
        SL_TRY(take_name(p, &parameter->name));
        if (sl_jinja_at_operator(p, "=")) {
            SL_TRY(sl_jinja_advance(p));
            SL_TRY(sl_jinja_parse_expression(p, true, &parameter->a));
        }
        SL_TRY(sl_jinja_over(p, parameter, parameter->a));
        SL_TRY(sl_jinja_over(p, node, parameter));
        *tail = parameter;
        tail = &parameter->next;
        if (!sl_jinja_at_operator(p, ")"))
            SL_TRY(sl_jinja_expect(p, ","));
    }
    return sl_jinja_advance(p);
}

static sl_status parse_macro(jinja_parser *p, jinja_node *node)
{
    int loops = p->loops;
    SL_TRY(sl_jinja_advance(p));
    SL_TRY(take_name(p, &node->name));
    SL_TRY(parse_parameters(p, node));
    p->loops = 0; /* a break cannot leave a macro */
    SL_TRY(parse_body_of(p, node, &node->list));
    p->loops = loops;
    return expect_end(p, node, "endmacro");
}

/* {% call(parameters) macro(arguments) %} */
static sl_status parse_caller(jinja_parser *p, jinja_node *node)
{
    int loops = p->loops;
    SL_TRY(sl_jinja_advance(p));
    if (sl_jinja_at_operator(p, "("))
        SL_TRY(parse_parameters(p, node));
    SL_TRY(sl_jinja_parse_expression(p, true, &node->a));
    if (node->a->kind != JN_CALL)
        return sl_jinja_parse_fail(p, "expected the call of a macro");
    SL_TRY(sl_jinja_over(p, node, node->a));
    node->name = "caller";
    p->loops = 0;
    SL_TRY(parse_body_of(p, node, &node->list));
    p->loops = loops;
    return expect_end(p, node, "endcall");
}

static sl_status parse_with(jinja_parser *p, jinja_node *node)
{
    jinja_node **tail = &node->otherwise;
    SL_TRY(sl_jinja_advance(p));
    while (p->token.kind != JT_BLOCK_END) {
        jinja_node *set;
        SL_TRY(sl_jinja_node(p, JN_SET, &set));
        SL_TRY(parse_one_target(p, &set->a));
        SL_TRY(sl_jinja_expect(p, "="));
        SL_TRY(sl_jinja_parse_expression(p, true, &set->b));
        SL_TRY(sl_jinja_over(p, set, set->b));
        SL_TRY(sl_jinja_over(p, node, set));
        *tail = set;
        tail = &set->next;
        if (p->token.kind != JT_BLOCK_END)
            SL_TRY(sl_jinja_expect(p, ","));
    }
    SL_TRY(parse_body_of(p, node, &node->list));
    return expect_end(p, node, "endwith");
}

/* {% filter a | b %}: the first filter stands without '|'. */
static sl_status parse_filtered(jinja_parser *p, jinja_node *node)
{
    SL_TRY(sl_jinja_advance(p));
    p->ahead = p->token;
    p->has_ahead = true;
    p->token = (jinja_token){.kind = JT_OPERATOR, .line = p->token.line, .text = "|", .length = 1};
    SL_TRY(sl_jinja_parse_filters(p, NULL, &node->b));
    SL_TRY(sl_jinja_over(p, node, node->b));
    SL_TRY(parse_body_of(p, node, &node->list));
    return expect_end(p, node, "endfilter");
}

static sl_status parse_generation(jinja_parser *p, jinja_node *node)
{
    int loops = p->loops;
    p->result->has_generation = true;
    SL_TRY(sl_jinja_advance(p));
    p->loops = 0;
    SL_TRY(parse_body_of(p, node, &node->list));
    p->loops = loops;
    return expect_end(p, node, "endgeneration");
}

static sl_status parse_jump(jinja_parser *p, jinja_node *node)
{
    if (p->loops == 0)
        return sl_jinja_parse_fail(p, "'%s' outside of a loop", p->token.text);
    (void) node;
    SL_TRY(sl_jinja_advance(p));
    return expect_block_end(p);
}

static const struct {
    const char *word;
    jinja_node_kind kind;
    sl_status (*parse)(jinja_parser *p, jinja_node *node);
} statements[] = {
    {"if", JN_IF, parse_if},
    {"for", JN_FOR, parse_for},
    {"set", JN_SET, parse_set},
    {"macro", JN_MACRO, parse_macro},
    {"call", JN_CALLER, parse_caller},
    {"with", JN_WITH, parse_with},
    {"filter", JN_FILTERED, parse_filtered},
    {"generation", JN_GENERATION, parse_generation},
    {"break", JN_BREAK, parse_jump},
    {"continue", JN_CONTINUE, parse_jump},
};

static sl_status parse_block(jinja_parser *p, jinja_node **out)
{
    for (int64_t i = 0; i < SL_COUNT(statements); i++) {
        if (!sl_jinja_at_name(p, statements[i].word))
            continue;
        SL_TRY(sl_jinja_node(p, statements[i].kind, out));
        if (++p->depth > JINJA_MOST_NESTING / 2)
            return sl_jinja_parse_fail(p, "blocks are nested more than %d levels deep", JINJA_MOST_NESTING / 2);
        SL_TRY(statements[i].parse(p, *out));
        p->depth--;
        return SL_OK;
    }
    if (p->token.kind != JT_NAME)
        return sl_jinja_parse_fail(p, "expected a word behind '{%%'");
    return sl_jinja_parse_fail(p, "chat templates have no tag '%s'", p->token.text);
}

static bool ends_body(const jinja_parser *p)
{
    return p->token.kind == JT_NAME && (strncmp(p->token.text, "end", 3) == 0 || strcmp(p->token.text, "else") == 0 ||
                                        strcmp(p->token.text, "elif") == 0);
}

static sl_status parse_text(jinja_parser *p, jinja_node **out)
{
    jinja_string *string;
    SL_TRY(sl_jinja_node(p, JN_TEXT, out));
    SL_TRY(sl_region_alloc(p->result->region, &string, 1, sizeof *string));
    string->bytes = p->token.text;
    string->length = p->token.length;
    (*out)->constant = (jinja_value){.kind = JINJA_STRING, .string = string};
    return sl_jinja_advance(p);
}

static sl_status parse_print(jinja_parser *p, jinja_node **out)
{
    SL_TRY(sl_jinja_node(p, JN_PRINT, out));
    SL_TRY(sl_jinja_advance(p));
    SL_TRY(sl_jinja_parse_tuple(p, true, &(*out)->a));
    SL_TRY(sl_jinja_over(p, *out, (*out)->a));
    if (p->token.kind != JT_PRINT_END)
        return sl_jinja_parse_fail(p, "expected the end of the value, '}}'");
    return sl_jinja_advance(p);
}

sl_status sl_jinja_parse_body(jinja_parser *p, jinja_node **out)
{
    jinja_node **tail = out;
    *out = NULL;
    while (p->token.kind != JT_END) {
        if (p->token.kind == JT_TEXT) {
            SL_TRY(parse_text(p, tail));
        } else if (p->token.kind == JT_PRINT_BEGIN) {
            SL_TRY(parse_print(p, tail));
        } else {
            SL_TRY(sl_jinja_advance(p));
            if (ends_body(p))
                return SL_OK;
            SL_TRY(parse_block(p, tail));
        }
        tail = &(*tail)->next;
    }
    return SL_OK;
}

/* ---- a template ---- */

static sl_status parse_source(sl_jinja *result, const char *name, const char *source, size_t length)
{
    jinja_parser p = {.result = result};
    SL_TRY(sl_region_strdup(result->region, name, &result->name));
    SL_TRY(sl_jinja_lexer_begin(&p.lexer, result->region, result->name, source, length));
    SL_TRY(sl_jinja_advance(&p));
    SL_TRY(sl_jinja_parse_body(&p, &result->body));
    if (p.token.kind != JT_END)
        return sl_jinja_parse_fail(&p, "{%% %s %%} belongs to no block", p.token.text);
    return SL_OK;
}

sl_status sl_jinja_parse(const char *name, const char *source, size_t length, sl_jinja **template_)
{
    if (length > JINJA_MOST_SOURCE)
        return sl_fail(SL_E_FORMAT, "%s: a template of %zu bytes, and at most %d are read", name, length,
                       JINJA_MOST_SOURCE);
    sl_region *region;
    SL_TRY(sl_region_create(&region));
    sl_jinja *result;
    sl_status status;
    SL_TRY_GOTO(sl_region_alloc(region, &result, 1, sizeof *result), failed);
    result->region = region;
    SL_TRY_GOTO(parse_source(result, name, source, length), failed);
    *template_ = result;
    return SL_OK;
failed:
    sl_region_destroy(region);
    return status;
}

void sl_jinja_destroy(sl_jinja *template_)
{
    if (template_)
        sl_region_destroy(template_->region);
}

bool sl_jinja_has_generation(const sl_jinja *template_)
{
    return template_->has_generation;
}
