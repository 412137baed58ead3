/* A rendering: its limits, its variables, and statements. Every loop iteration, macro and generation block has variables of its own, as
 * in Jinja2: what they set is gone behind them, and only namespaces change for good. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja_internal.h"

sl_status sl_jinja_fail(const sl_jinja_run *run, const char *format, ...)
{
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return sl_fail(SL_E_FORMAT, "%s:%d: %s", run->template_->name, run->line, text);
}

sl_status sl_jinja_spend(sl_jinja_run *run, int64_t steps)
{
    run->steps -= steps;
    if (run->steps < 0)
        return sl_jinja_fail(run, "the template does not end within the steps allowed for a chat of this size");
    return SL_OK;
}

sl_status sl_jinja_alloc_impl(sl_jinja_run *run, void **out, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > (size_t) run->memory)
        return sl_jinja_fail(run, "the template needs more memory than is allowed for a chat of this size");
    run->memory -= (int64_t) bytes;
    run->memory = SL_MAX(run->memory - 16, (int64_t) 0);
    return sl_region_alloc_impl(run->region, out, count, size);
}

/* ---- variables ---- */

jinja_value *sl_jinja_lookup(jinja_scope *scope, const char *name)
{
    for (; scope; scope = scope->parent)
        for (int64_t i = 0; i < scope->count; i++)
            if (strcmp(scope->variables[i].name, name) == 0)
                return &scope->variables[i].value;
    return NULL;
}

sl_status sl_jinja_define(sl_jinja_run *run, jinja_scope *scope, const char *name, const jinja_value *value)
{
    for (int64_t i = 0; i < scope->count; i++) {
        if (strcmp(scope->variables[i].name, name) != 0)
            continue;
        scope->variables[i].value = *value;
        return SL_OK;
    }
    if (scope->count == scope->capacity) {
        int64_t capacity = SL_MAX(scope->capacity * 2, (int64_t) 4);
        jinja_variable *variables;
        SL_TRY(sl_jinja_alloc(run, &variables, capacity, sizeof *variables));
        if (scope->count)
            memcpy(variables, scope->variables, (size_t) scope->count * sizeof *variables);
        scope->variables = variables;
        scope->capacity = capacity;
    }
    scope->variables[scope->count++] = (jinja_variable){name, *value};
    return SL_OK;
}

/* Macros keep the scope they were defined in, so scopes live as long as the rendering. */
static sl_status enter(sl_jinja_run *run, jinja_scope *parent)
{
    jinja_scope *scope;
    SL_TRY(sl_jinja_alloc(run, &scope, 1, sizeof *scope));
    scope->parent = parent;
    run->scope = scope;
    return SL_OK;
}

static sl_status assign(sl_jinja_run *run, const jinja_node *target, const jinja_value *value)
{
    if (target->kind == JN_NAME)
        return sl_jinja_define(run, run->scope, target->name, value);
    if (target->kind == JN_ATTRIBUTE) {
        jinja_value of, name;
        SL_TRY(sl_jinja_eval(run, target->a, &of));
        if (of.kind != JINJA_NAMESPACE)
            return sl_jinja_fail(run, "cannot set attribute '%s' of a %s: only of a namespace", target->name,
                                 sl_jinja_kind_name(of.kind));
        SL_TRY(sl_jinja_string(run, target->name, strlen(target->name), 0, &name));
        return sl_jinja_dict_put(run, of.dict, &name, value);
    }
    const jinja_list *list;
    int64_t count = 0;
    for (const jinja_node *item = target->list; item; item = item->next)
        count++;
    SL_TRY(sl_jinja_iterate(run, value, &list));
    if (list->count != count)
        return sl_jinja_fail(run, "%lld values for %lld names", (long long) list->count, (long long) count);
    count = 0;
    for (const jinja_node *item = target->list; item; item = item->next)
        SL_TRY(assign(run, item, &list->items[count++]));
    return SL_OK;
}

/* ---- statements ---- */

/* Runs statements with their output in a string of its own. */
static sl_status capture(sl_jinja_run *run, const jinja_node *list, jinja_value *out)
{
    jinja_builder *b, *before = run->out;
    SL_TRY(sl_jinja_alloc(run, &b, 1, sizeof *b));
    run->out = b;
    SL_TRY(sl_jinja_execute(run, list));
    run->out = before;
    return sl_jinja_built(run, b, out);
}

/* The items that pass the loop's condition. */
static sl_status filter_items(sl_jinja_run *run, const jinja_node *node, const jinja_list **list)
{
    jinja_value kept, *items;
    int64_t count = 0;
    SL_TRY(sl_jinja_list(run, JINJA_LIST, (*list)->count, &kept, &items));
    for (int64_t i = 0; i < (*list)->count; i++) {
        jinja_scope *before = run->scope;
        jinja_value condition;
        SL_TRY(enter(run, before));
        SL_TRY(assign(run, node->a, &(*list)->items[i]));
        SL_TRY(sl_jinja_eval(run, node->c, &condition));
        run->scope = before;
        if (sl_jinja_truth(&condition))
            items[count++] = (*list)->items[i];
    }
    jinja_list *result;
    SL_TRY(sl_jinja_alloc(run, &result, 1, sizeof *result));
    *result = (jinja_list){count, items};
    *list = result;
    return SL_OK;
}

static sl_status execute_for(sl_jinja_run *run, const jinja_node *node)
{
    jinja_scope *before = run->scope;
    jinja_value iterable;
    const jinja_list *list;
    SL_TRY(sl_jinja_eval(run, node->b, &iterable));
    SL_TRY(sl_jinja_iterate(run, &iterable, &list));
    if (node->c)
        SL_TRY(filter_items(run, node, &list));
    jinja_loop *loop;
    SL_TRY(sl_jinja_alloc(run, &loop, 1, sizeof *loop));
    *loop = (jinja_loop){.items = list};
    const jinja_value loop_value = {.kind = JINJA_LOOP, .loop = loop};
    for (; loop->index < list->count && run->flow != JINJA_BREAK; loop->index++) {
        run->flow = JINJA_GO_ON;
        SL_TRY(enter(run, before));
        SL_TRY(sl_jinja_define(run, run->scope, "loop", &loop_value));
        SL_TRY(assign(run, node->a, &list->items[loop->index]));
        SL_TRY(sl_jinja_execute(run, node->list));
    }
    run->flow = JINJA_GO_ON;
    if (list->count == 0 && node->otherwise) {
        SL_TRY(enter(run, before));
        SL_TRY(sl_jinja_execute(run, node->otherwise));
    }
    run->scope = before;
    return SL_OK;
}

static sl_status execute_if(sl_jinja_run *run, const jinja_node *node)
{
    for (const jinja_node *branch = node->list; branch; branch = branch->next) {
        jinja_value condition = sl_jinja_bool(true);
        if (branch->a)
            SL_TRY(sl_jinja_eval(run, branch->a, &condition));
        if (sl_jinja_truth(&condition))
            return sl_jinja_execute(run, branch->list);
    }
    return SL_OK;
}

/* The content through filters: the innermost filter has no operand. */
static sl_status filter_content(sl_jinja_run *run, const jinja_node *filter, jinja_value *value)
{
    if (!filter)
        return SL_OK;
    jinja_arguments arguments;
    SL_TRY(filter_content(run, filter->a, value));
    run->line = filter->line;
    if (!filter->filter)
        return sl_jinja_fail(run, "filter '%s' is not supported", filter->name);
    SL_TRY(sl_jinja_arguments(run, filter->list, &arguments));
    jinja_value before = *value;
    return sl_jinja_apply_filter(run, filter->filter, &before, &arguments, value);
}

static sl_status execute_content(sl_jinja_run *run, const jinja_node *node)
{
    jinja_scope *before = run->scope;
    jinja_value content;
    SL_TRY(enter(run, before));
    SL_TRY(capture(run, node->list, &content));
    run->scope = before;
    SL_TRY(filter_content(run, node->b, &content));
    if (node->kind == JN_BLOCK)
        return assign(run, node->a, &content);
    return sl_jinja_put_value(run, run->out, &content);
}

static sl_status define_macro(sl_jinja_run *run, const jinja_node *node, jinja_value *out)
{
    jinja_macro *macro;
    SL_TRY(sl_jinja_alloc(run, &macro, 1, sizeof *macro));
    *macro = (jinja_macro){node, run->scope};
    *out = (jinja_value){.kind = JINJA_MACRO, .macro = macro};
    return SL_OK;
}

/* {% call %}: the body becomes a macro that the called one knows as `caller`. */
static sl_status execute_caller(sl_jinja_run *run, const jinja_node *node)
{
    jinja_value callee, caller, result;
    jinja_arguments arguments;
    SL_TRY(define_macro(run, node, &caller));
    SL_TRY(sl_jinja_eval(run, node->a->a, &callee));
    SL_TRY(sl_jinja_arguments(run, node->a->list, &arguments));
    arguments.names[arguments.count] = "caller";
    arguments.values[arguments.count++] = caller;
    SL_TRY(sl_jinja_call(run, &callee, &arguments, &result));
    return sl_jinja_put_value(run, run->out, &result);
}

static sl_status execute_with(sl_jinja_run *run, const jinja_node *node)
{
    jinja_scope *before = run->scope, *inner;
    SL_TRY(enter(run, before));
    inner = run->scope;
    for (const jinja_node *set = node->otherwise; set; set = set->next) {
        jinja_value value;
        run->scope = before; /* values see the variables outside */
        SL_TRY(sl_jinja_eval(run, set->b, &value));
        run->scope = inner;
        SL_TRY(assign(run, set->a, &value));
    }
    SL_TRY(sl_jinja_execute(run, node->list));
    run->scope = before;
    return SL_OK;
}

static sl_status execute_generation(sl_jinja_run *run, const jinja_node *node)
{
    jinja_scope *before = run->scope;
    sl_jinja_mark generated = run->generated;
    SL_TRY(enter(run, before));
    run->generated = SL_JINJA_GENERATED;
    SL_TRY(sl_jinja_execute(run, node->list));
    run->generated = generated;
    run->scope = before;
    return SL_OK;
}

static sl_status execute_one(sl_jinja_run *run, const jinja_node *node)
{
    jinja_value value;
    switch (node->kind) {
    case JN_TEXT:
        return sl_jinja_put_string(run, run->out, node->constant.string);
    case JN_PRINT:
        SL_TRY(sl_jinja_eval(run, node->a, &value));
        return sl_jinja_put_value(run, run->out, &value);
    case JN_IF:
        return execute_if(run, node);
    case JN_FOR:
        return execute_for(run, node);
    case JN_SET:
        SL_TRY(sl_jinja_eval(run, node->b, &value));
        return assign(run, node->a, &value);
    case JN_BLOCK:
    case JN_FILTERED:
        return execute_content(run, node);
    case JN_MACRO:
        SL_TRY(define_macro(run, node, &value));
        return sl_jinja_define(run, run->scope, node->name, &value);
    case JN_CALLER:
        return execute_caller(run, node);
    case JN_WITH:
        return execute_with(run, node);
    case JN_GENERATION:
        return execute_generation(run, node);
    case JN_BREAK:
        run->flow = JINJA_BREAK;
        return SL_OK;
    case JN_CONTINUE:
        run->flow = JINJA_CONTINUE;
        return SL_OK;
    default:
        return sl_jinja_fail(run, "no statement");
    }
}

sl_status sl_jinja_execute(sl_jinja_run *run, const jinja_node *list)
{
    if (++run->depth > JINJA_MOST_DEPTH)
        return sl_jinja_fail(run, "the template calls itself too deeply");
    for (const jinja_node *node = list; node && run->flow == JINJA_GO_ON; node = node->next) {
        SL_TRY(sl_jinja_spend(run, 1));
        run->line = node->line;
        SL_TRY(execute_one(run, node));
    }
    run->depth--;
    return SL_OK;
}

/* Parameters take arguments by place, then by name, then their defaults. Without `return`, the output is the result. */
sl_status sl_jinja_call_macro(sl_jinja_run *run, const jinja_macro *macro, const jinja_arguments *arguments,
                              jinja_value *out)
{
    jinja_scope *before = run->scope;
    int index = 0, used = 0;
    SL_TRY(enter(run, macro->scope));
    for (const jinja_node *parameter = macro->node->otherwise; parameter; parameter = parameter->next, index++) {
        const jinja_value *given = sl_jinja_argument(arguments, index, parameter->name);
        jinja_value value = sl_jinja_undefined(parameter->name);
        used += given != NULL;
        if (given)
            value = *given;
        else if (parameter->a)
            SL_TRY(sl_jinja_eval(run, parameter->a, &value));
        SL_TRY(sl_jinja_define(run, run->scope, parameter->name, &value));
    }
    const jinja_value *caller = sl_jinja_argument(arguments, JINJA_MOST_ARGUMENTS, "caller");
    if (caller)
        SL_TRY(sl_jinja_define(run, run->scope, "caller", caller));
    if (used + (caller != NULL) < arguments->count)
        return sl_jinja_fail(run, "macro '%s' takes %d arguments", macro->node->name, index);
    int line = run->line;
    SL_TRY(capture(run, macro->node->list, out));
    run->line = line;
    run->scope = before;
    return SL_OK;
}
