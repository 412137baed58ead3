/* Shared by the files of the template interpreter: values, the tree, and one rendering's state. */
#ifndef SL_TEXT_JINJA_INTERNAL_H
#define SL_TEXT_JINJA_INTERNAL_H

#include "text/jinja.h"

/* ---- values: Python's, as far as templates see them ---- */

typedef enum jinja_kind {
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_STRING,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_NAMESPACE,
    JINJA_LOOP,
    JINJA_FUNCTION,
    JINJA_METHOD,
    JINJA_MACRO
} jinja_kind;

/* Immutable. Without spans all bytes have `mark`. */
typedef struct jinja_string {
    const char *bytes;
    size_t length;
    sl_jinja_mark mark;
    const sl_jinja_span *spans;
    int64_t span_count;
} jinja_string;

typedef struct jinja_list jinja_list;
typedef struct jinja_dict jinja_dict;
typedef struct jinja_loop jinja_loop;
typedef struct jinja_method jinja_method;
typedef struct jinja_macro jinja_macro;
typedef struct jinja_function jinja_function;

typedef struct jinja_value {
    jinja_kind kind;
    union {
        bool boolean;
        int64_t integer;
        double number;
        const char *name; /* of what is undefined; NULL: unnamed */
        const jinja_string *string;
        const jinja_list *list;
        jinja_dict *dict; /* namespaces too, the only values that change */
        const jinja_loop *loop;
        const jinja_function *function;
        const jinja_method *method;
        const jinja_macro *macro;
    };
} jinja_value;

struct jinja_list {
    int64_t count;
    jinja_value *items;
};

typedef struct jinja_entry {
    jinja_value key, value;
} jinja_entry;

/* In the order of insertion. */
struct jinja_dict {
    int64_t count, capacity;
    jinja_entry *entries;
};

struct jinja_method {
    jinja_value self;
    const char *name;
};

/* ---- the tree ---- */

typedef enum jinja_node_kind {
    /* expressions */
    JN_CONSTANT,
    JN_NAME,
    JN_LIST,   /* list: items */
    JN_TUPLE,  /* list: items; a target of assignments too */
    JN_DICT,   /* list: key, value, key, value */
    JN_UNARY,  /* op a */
    JN_BINARY, /* a op b */
    JN_AND,
    JN_OR,
    JN_COMPARE,   /* a, list: JN_OPERAND with op and a */
    JN_OPERAND,   /* of a comparison; of a concatenation (JN_CONCAT) plain expressions are used */
    JN_CONCAT,    /* list: items */
    JN_CHOICE,    /* b if a else c */
    JN_ATTRIBUTE, /* a.name */
    JN_ITEM,      /* a[b] */
    JN_SLICE,     /* a[b:c:d] */
    JN_CALL,      /* a(list) */
    JN_FILTER,    /* a | name(list); a is NULL for the content of a block */
    JN_TEST,      /* a is name(list) */
    JN_KEYWORD,   /* name=a among arguments */
    /* statements */
    JN_TEXT,  /* constant */
    JN_PRINT, /* a */
    JN_IF,    /* list: JN_BRANCH */
    JN_BRANCH,
    JN_FOR,   /* for a in b if c: list, otherwise */
    JN_SET,   /* a = b */
    JN_BLOCK, /* set a to the content, through filters b: list */
    JN_MACRO, /* name, parameters in `otherwise` (JN_KEYWORD with a default or NULL), list */
    JN_CALLER,
    JN_WITH,       /* otherwise: JN_SET; list */
    JN_FILTERED,   /* filters b: list */
    JN_GENERATION, /* list */
    JN_BREAK,
    JN_CONTINUE
} jinja_node_kind;

typedef enum jinja_op {
    JOP_NONE,
    JOP_ADD,
    JOP_SUB,
    JOP_MUL,
    JOP_DIV,
    JOP_FLOORDIV,
    JOP_MOD,
    JOP_POW,
    JOP_NOT,
    JOP_EQ,
    JOP_NE,
    JOP_LT,
    JOP_LE,
    JOP_GT,
    JOP_GE,
    JOP_IN,
    JOP_NOT_IN
} jinja_op;

typedef struct jinja_filter jinja_filter;
typedef struct jinja_test jinja_test;

typedef struct jinja_node jinja_node;
struct jinja_node {
    jinja_node_kind kind;
    jinja_op op;
    int line, depth;
    jinja_node *a, *b, *c, *d;
    jinja_node *list, *otherwise, *next;
    jinja_value constant;
    const char *name;
    union {
        const jinja_filter *filter; /* NULL: unknown, an error only where it is reached */
        const jinja_test *test;
    };
};

struct sl_jinja {
    sl_region *region;
    const char *name;
    jinja_node *body;
    bool has_generation;
};

/* A node with the children given later must raise its depth with it. */
enum {
    JINJA_MOST_NESTING = 150,      /* of the tree */
    JINJA_MOST_PARSE_DEPTH = 120,  /* of brackets and blocks in the source */
    JINJA_MOST_DEPTH = 1500,       /* of evaluation, through macros */
    JINJA_MOST_SOURCE = 4 << 20,   /* bytes */
    JINJA_BASE_STEPS = 10000000,   /* and JINJA_STEPS_PER_BYTE for a byte of input */
    JINJA_BASE_MEMORY = 128 << 20, /* likewise */
    JINJA_STEPS_PER_BYTE = 64,     /* also memory */
    JINJA_BYTES_PER_STEP = 32,     /* copying this much costs one step */
    JINJA_MOST_ARGUMENTS = 32,
    JINJA_MOST_RANGE = 100000 /* jinja2's own limit in its sandbox */
};

/* ---- lexer ---- */

typedef enum jinja_token_kind {
    JT_END,
    JT_TEXT,
    JT_PRINT_BEGIN,
    JT_PRINT_END,
    JT_BLOCK_BEGIN,
    JT_BLOCK_END,
    JT_NAME,
    JT_STRING,
    JT_INT,
    JT_FLOAT,
    JT_OPERATOR
} jinja_token_kind;

typedef struct jinja_token {
    jinja_token_kind kind;
    int line;
    const char *text; /* names and operators end with NUL; text and strings are the bytes meant */
    size_t length;
    int64_t integer;
    double number;
} jinja_token;

typedef struct jinja_lexer {
    sl_region *region;
    const char *name;
    const char *at, *end;
    int line;
    enum { JL_TEXT, JL_PRINT, JL_BLOCK } state;
    bool line_start; /* the text that follows begins a line */
    char closers[64];
    int open; /* brackets */
} jinja_lexer;

sl_status sl_jinja_lexer_begin(jinja_lexer *lexer, sl_region *region, const char *name, const char *source,
                               size_t length);
sl_status sl_jinja_next(jinja_lexer *lexer, jinja_token *token);

/* ---- parser ---- */

typedef struct jinja_parser {
    jinja_lexer lexer;
    jinja_token token; /* the one to read next */
    jinja_token ahead; /* behind it, where `has_ahead` */
    bool has_ahead;
    int depth, loops;
    sl_jinja *result;
} jinja_parser;

sl_status sl_jinja_parse_fail(const jinja_parser *p, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));
sl_status sl_jinja_advance(jinja_parser *p);
sl_status sl_jinja_node(jinja_parser *p, jinja_node_kind kind, jinja_node **out);
/* Raises a node's depth over its children's; an error past JINJA_MOST_NESTING. */
sl_status sl_jinja_over(const jinja_parser *p, jinja_node *node, const jinja_node *child);
/* Appends a child to the list that ends at *tail. */
sl_status sl_jinja_append(const jinja_parser *p, jinja_node *node, jinja_node ***tail, jinja_node *child);
sl_status sl_jinja_pair(jinja_parser *p, jinja_node_kind kind, jinja_op op, jinja_node *a, jinja_node *b,
                        jinja_node **out);
sl_status sl_jinja_look_ahead(jinja_parser *p);
bool sl_jinja_at_operator(const jinja_parser *p, const char *text);
bool sl_jinja_at_name(const jinja_parser *p, const char *text);
sl_status sl_jinja_expect(jinja_parser *p, const char *operator_);
sl_status sl_jinja_parse_unary(jinja_parser *p, bool with_filters, jinja_node **out);
sl_status sl_jinja_parse_expression(jinja_parser *p, bool with_choice, jinja_node **out);
/* One expression, or several with commas as a tuple. */
sl_status sl_jinja_parse_tuple(jinja_parser *p, bool with_choice, jinja_node **out);
sl_status sl_jinja_parse_target(jinja_parser *p, jinja_node **out);
sl_status sl_jinja_parse_filters(jinja_parser *p, jinja_node *node, jinja_node **out);
sl_status sl_jinja_parse_arguments(jinja_parser *p, jinja_node *node);
sl_status sl_jinja_parse_body(jinja_parser *p, jinja_node **out);

/* ---- a rendering ---- */

/* Text that grows, with marks. */
typedef struct jinja_builder {
    char *bytes;
    size_t length, capacity;
    sl_jinja_span *spans;
    int64_t span_count, span_capacity;
} jinja_builder;

typedef struct jinja_variable {
    const char *name;
    jinja_value value;
} jinja_variable;

/* Variables by name; what is not here is looked up in the parent. */
typedef struct jinja_scope {
    struct jinja_scope *parent;
    jinja_variable *variables;
    int64_t count, capacity;
} jinja_scope;

typedef enum jinja_flow { JINJA_GO_ON, JINJA_BREAK, JINJA_CONTINUE } jinja_flow;

typedef struct jinja_arguments jinja_arguments;

struct sl_jinja_run {
    const sl_jinja *template_;
    sl_region *region;
    int64_t steps, memory; /* left */
    int64_t time;
    int depth, line;
    jinja_flow flow;
    sl_jinja_mark generated; /* SL_JINJA_GENERATED inside such a block */
    jinja_builder *out;
    jinja_scope *scope, globals;
    jinja_arguments *unused; /* taken and given back by calls */
};

struct jinja_macro {
    const jinja_node *node;
    jinja_scope *scope; /* where it was defined */
};

struct jinja_loop {
    const jinja_list *items;
    int64_t index; /* from 0 */
    int depth;
    jinja_value *last_changed; /* of loop.changed */
};

/* Arguments of a call, filter or test. */
struct jinja_arguments {
    jinja_arguments *next; /* among those not in use */
    jinja_value values[JINJA_MOST_ARGUMENTS];
    const char *names[JINJA_MOST_ARGUMENTS]; /* of the keyword arguments, which come last */
    int count, plain;                        /* plain: without names */
};

sl_status sl_jinja_fail(const sl_jinja_run *run, const char *format, ...) __attribute__((format(printf, 2, 3), cold));
sl_status sl_jinja_spend(sl_jinja_run *run, int64_t steps);
/* Memory of the rendering, within its limit. */
#define sl_jinja_alloc(run, out, count, size) \
    sl_jinja_alloc_impl((run), (void **) (void *) (out), (size_t) (count), (size_t) (size))
sl_status sl_jinja_alloc_impl(sl_jinja_run *run, void **out, size_t count, size_t size);

/* jinja_string.c */
sl_status sl_jinja_put(sl_jinja_run *run, jinja_builder *builder, const char *bytes, size_t length, sl_jinja_mark mark);
sl_status sl_jinja_put_text(sl_jinja_run *run, jinja_builder *builder, const char *text);
sl_status sl_jinja_put_part(sl_jinja_run *run, jinja_builder *builder, const jinja_string *string, size_t from,
                            size_t to);
sl_status sl_jinja_put_string(sl_jinja_run *run, jinja_builder *builder, const jinja_string *string);
sl_status sl_jinja_built(sl_jinja_run *run, const jinja_builder *builder, jinja_value *out);
sl_status sl_jinja_string(sl_jinja_run *run, const char *bytes, size_t length, sl_jinja_mark mark, jinja_value *out);
/* Shares the bytes. */
sl_status sl_jinja_part(sl_jinja_run *run, const jinja_string *string, size_t from, size_t to, jinja_value *out);
sl_jinja_mark sl_jinja_mark_at(const jinja_string *string, size_t at);
int64_t sl_jinja_characters(const jinja_string *string);
size_t sl_jinja_offset(const jinja_string *string, int64_t character); /* in bytes */
/* The bytes of a white-space character of Python's str.strip, or 0. */
int sl_jinja_space(const char *at, const char *end);
sl_status sl_jinja_strip(sl_jinja_run *run, const jinja_string *string, const jinja_string *characters, bool left,
                         bool right, jinja_value *out);
/* The place of `part` from `from` on, or -1. */
int64_t sl_jinja_find(const jinja_string *string, const jinja_string *part, size_t from);
sl_status sl_jinja_replace(sl_jinja_run *run, const jinja_string *string, const jinja_string *old,
                           const jinja_string *new, int64_t most, jinja_value *out);

/* jinja_value.c */
jinja_value sl_jinja_undefined(const char *name);
jinja_value sl_jinja_bool(bool value);
jinja_value sl_jinja_int(int64_t value);
const char *sl_jinja_kind_name(jinja_kind kind);
bool sl_jinja_truth(const jinja_value *value);
bool sl_jinja_is_number(const jinja_value *value); /* bool too, as in Python */
double sl_jinja_as_f64(const jinja_value *value);
int64_t sl_jinja_as_i64(const jinja_value *value);
sl_status sl_jinja_equal(sl_jinja_run *run, const jinja_value *a, const jinja_value *b, bool *out);
/* -1, 0 or 1; an error where Python has no order. */
sl_status sl_jinja_order(sl_jinja_run *run, const jinja_value *a, const jinja_value *b, int *out);
sl_status sl_jinja_list(sl_jinja_run *run, jinja_kind kind, int64_t count, jinja_value *out, jinja_value **items);
sl_status sl_jinja_dict(sl_jinja_run *run, int64_t capacity, jinja_value *out);
sl_status sl_jinja_dict_put(sl_jinja_run *run, jinja_dict *dict, const jinja_value *key, const jinja_value *value);
/* NULL: there is none. */
sl_status sl_jinja_dict_find(sl_jinja_run *run, const jinja_dict *dict, const jinja_value *key, jinja_value **out);
/* What `for` goes through: items of a list, characters of a string, keys of a dict. */
sl_status sl_jinja_iterate(sl_jinja_run *run, const jinja_value *value, const jinja_list **out);
sl_status sl_jinja_length(sl_jinja_run *run, const jinja_value *value, int64_t *out);
sl_status sl_jinja_from_json(sl_jinja_run *run, const sl_json *json, sl_jinja_mark mark, jinja_value *out);
sl_status sl_jinja_contains(sl_jinja_run *run, const jinja_value *container, const jinja_value *item, bool *out);

/* jinja_print.c: Python's str and repr, json.dumps */
sl_status sl_jinja_put_value(sl_jinja_run *run, jinja_builder *builder, const jinja_value *value);
sl_status sl_jinja_to_string(sl_jinja_run *run, const jinja_value *value, const jinja_string **out);
typedef struct jinja_dump {
    int indent; /* -1: one line */
    bool ascii, sort;
    const jinja_string *comma, *colon; /* or NULL */
} jinja_dump;
sl_status sl_jinja_dump(sl_jinja_run *run, jinja_builder *builder, const jinja_value *value, const jinja_dump *dump);
char *sl_jinja_format_f64(double value, char out[40]); /* Python's repr */

/* jinja_eval.c, jinja_call.c, jinja_operator.c, jinja_method.c */
sl_status sl_jinja_eval(sl_jinja_run *run, const jinja_node *node, jinja_value *out);
sl_status sl_jinja_arguments(sl_jinja_run *run, const jinja_node *list, jinja_arguments *arguments);
sl_status sl_jinja_attribute(sl_jinja_run *run, const jinja_value *value, const char *name, jinja_value *out);
sl_status sl_jinja_item(sl_jinja_run *run, const jinja_value *value, const jinja_value *key, jinja_value *out);
sl_status sl_jinja_slice(sl_jinja_run *run, const jinja_value *value, const jinja_value bounds[3], jinja_value *out);
sl_status sl_jinja_unary(sl_jinja_run *run, jinja_op op, const jinja_value *a, jinja_value *out);
sl_status sl_jinja_binary(sl_jinja_run *run, jinja_op op, const jinja_value *a, const jinja_value *b, jinja_value *out);
sl_status sl_jinja_compare(sl_jinja_run *run, jinja_op op, const jinja_value *a, const jinja_value *b, bool *out);
sl_status sl_jinja_call(sl_jinja_run *run, const jinja_value *callee, const jinja_arguments *arguments,
                        jinja_value *out);
const jinja_value *sl_jinja_argument(const jinja_arguments *arguments, int index, const char *name);
sl_status sl_jinja_argument_i64(sl_jinja_run *run, const jinja_arguments *arguments, int index, const char *name,
                                int64_t otherwise, int64_t *out);
sl_status sl_jinja_argument_string(sl_jinja_run *run, const jinja_arguments *arguments, int index, const char *name,
                                   const jinja_string **out);
const jinja_function *sl_jinja_find_function(const char *name);
sl_status sl_jinja_call_function(sl_jinja_run *run, const jinja_function *function, const jinja_arguments *arguments,
                                 jinja_value *out);
bool sl_jinja_has_method(jinja_kind kind, const char *name);
sl_status sl_jinja_call_method(sl_jinja_run *run, const jinja_method *method, const jinja_arguments *arguments,
                               jinja_value *out);
sl_status sl_jinja_call_macro(sl_jinja_run *run, const jinja_macro *macro, const jinja_arguments *arguments,
                              jinja_value *out);

/* jinja_text.c */
typedef enum jinja_case { JINJA_UPPER, JINJA_LOWER, JINJA_TITLE, JINJA_TITLE_FILTER, JINJA_CAPITALIZE } jinja_case;
sl_status sl_jinja_case(sl_jinja_run *run, const jinja_string *string, jinja_case to, jinja_value *out);
/* `separator` NULL: at white space. `most` < 0: at all places. `right`: counted from the end. */
sl_status sl_jinja_split(sl_jinja_run *run, const jinja_string *string, const jinja_string *separator, int64_t most,
                         bool right, jinja_value *out);
sl_status sl_jinja_lines(sl_jinja_run *run, const jinja_string *string, bool keep, jinja_value *out);
sl_status sl_jinja_format(sl_jinja_run *run, const jinja_string *string, const jinja_arguments *arguments,
                          jinja_value *out);
sl_status sl_jinja_format_percent(sl_jinja_run *run, const jinja_string *string, const jinja_value *values,
                                  int64_t count, jinja_value *out);

/* jinja_method.c */
sl_status sl_jinja_items(sl_jinja_run *run, const jinja_value *dict, jinja_value *out);

/* jinja_run.c */
sl_status sl_jinja_execute(sl_jinja_run *run, const jinja_node *list);
jinja_value *sl_jinja_lookup(jinja_scope *scope, const char *name);
sl_status sl_jinja_define(sl_jinja_run *run, jinja_scope *scope, const char *name, const jinja_value *value);

/* jinja_filter.c, jinja_filter_list.c, jinja_test.c */
const jinja_filter *sl_jinja_find_filter(const char *name, size_t length);
sl_status sl_jinja_apply_filter(sl_jinja_run *run, const jinja_filter *filter, const jinja_value *value,
                                const jinja_arguments *arguments, jinja_value *out);
const jinja_test *sl_jinja_find_test(const char *name, size_t length);
sl_status sl_jinja_apply_test(sl_jinja_run *run, const jinja_test *test, const jinja_value *value,
                              const jinja_arguments *arguments, bool *out);

#endif
