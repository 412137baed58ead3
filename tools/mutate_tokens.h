/* The tokens of one C source for tools/mutate.c: what each is, which bracket closes which, and what lies inside a function. */
#ifndef SL_TOOLS_MUTATE_TOKENS_H
#define SL_TOOLS_MUTATE_TOKENS_H

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum token_type { WORD, NUMBER, TEXT, SIGN } token_type;

typedef struct token {
    token_type type;
    int at, length, line, column;
    int match;    /* of a bracket: the other one, else -1 */
    int parens;   /* how many ( and [ enclose it */
    bool in_body; /* of a function */
    bool skipped; /* in a message, an assertion or a sizeof */
    bool list;    /* a brace of an initializer or in one */
} token;

static char *source;
static int source_length;
static const char *source_path;
static token *tokens;
static int token_count, token_capacity;

static void die(const char *what, const char *name)
{
    fprintf(stderr, "mutate: %s %s\n", what, name);
    exit(1);
}

static void *grow(void *array, int count, int *capacity, size_t element)
{
    if (count < *capacity)
        return array;
    *capacity = *capacity ? 2 * *capacity : 256;
    array = realloc(array, (size_t) *capacity * element);
    if (!array)
        die("out of memory at", source_path);
    return array;
}

static bool is(int i, const char *text)
{
    return i >= 0 && i < token_count && (int) strlen(text) == tokens[i].length &&
           memcmp(source + tokens[i].at, text, strlen(text)) == 0;
}

static bool is_one_of(int i, const char *const *words)
{
    for (; *words; words++)
        if (is(i, *words))
            return true;
    return false;
}

static bool is_word(int i)
{
    return i >= 0 && i < token_count && tokens[i].type == WORD;
}

static int sign_length(const char *s)
{
    static const char *const longer[] = {"<<=", ">>=", "...", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=",
                                         "&&",  "||",  "+=",  "-=", "*=", "/=", "%=", "&=", "|=", "^=", NULL};
    for (const char *const *l = longer; *l; l++)
        if (strncmp(s, *l, strlen(*l)) == 0)
            return (int) strlen(*l);
    return 1;
}

static int quoted_length(const char *s)
{
    int n = 1;
    while (s[n] && s[n] != s[0])
        n += s[n] == '\\' && s[n + 1] ? 2 : 1;
    return n + 1;
}

static int preprocessor_length(const char *s)
{
    int n = 0;
    while (s[n] && (s[n] != '\n' || (n && s[n - 1] == '\\')))
        n++;
    return n;
}

static int comment_length(const char *s)
{
    if (s[1] == '/')
        return (int) strcspn(s, "\n");
    const char *end = strstr(s + 2, "*/");
    return end ? (int) (end - s) + 2 : (int) strlen(s);
}

/* Length of what starts here, and whether it is a token. */
static int scan(const char *s, bool line_start, bool *is_token, token_type *type)
{
    int n = 1;
    *is_token = true;
    *type = SIGN;
    if (isalpha((unsigned char) *s) || *s == '_') {
        *type = WORD;
        while (isalnum((unsigned char) s[n]) || s[n] == '_')
            n++;
        return n;
    }
    if (isdigit((unsigned char) *s) || (*s == '.' && isdigit((unsigned char) s[1]))) {
        *type = NUMBER;
        while (isalnum((unsigned char) s[n]) || s[n] == '.' || (strchr("+-", s[n]) && strchr("eEpP", s[n - 1])))
            n++;
        return n;
    }
    if (*s == '"' || *s == '\'') {
        *type = TEXT;
        return quoted_length(s);
    }
    *is_token = !isspace((unsigned char) *s);
    if (*s == '#' && line_start)
        return *is_token = false, preprocessor_length(s);
    if (*s == '/' && (s[1] == '/' || s[1] == '*'))
        return *is_token = false, comment_length(s);
    return *is_token ? sign_length(s) : 1;
}

static void tokenize(void)
{
    int line = 1, line_at = 0;
    bool line_start = true;
    token_count = 0;
    for (int at = 0; at < source_length;) {
        bool is_token;
        token_type type;
        int n = scan(source + at, line_start, &is_token, &type);
        if (is_token) {
            tokens = grow(tokens, token_count, &token_capacity, sizeof *tokens);
            tokens[token_count++] = (token){type, at, n, line, at - line_at + 1, -1, 0, false, false, false};
            line_start = false;
        }
        for (int i = at; i < at + n && i < source_length; i++) {
            if (source[i] == '\n') {
                line++;
                line_at = i + 1;
                line_start = true;
            }
        }
        at += n;
    }
}

/* A brace opens an initializer or a block; the former also behind a cast, where clang-format puts no space. */
static bool opens_list(int i, bool parent_is_list)
{
    if (parent_is_list || is(i - 1, "=") || is(i - 1, ",") || is(i - 1, "("))
        return true;
    return is(i - 1, ")") && tokens[i].at == tokens[i - 1].at + 1;
}

static void match_brackets(void)
{
    static int stack[4096];
    int depth = 0, parens = 0, braces = 0, body = -1;
    for (int i = 0; i < token_count; i++) {
        token *t = &tokens[i];
        char c = t->type == SIGN && t->length == 1 ? source[t->at] : ' ';
        bool open = strchr("([{", c) != NULL, close = strchr(")]}", c) != NULL;
        if (close) {
            if (!depth)
                die("unbalanced brackets in", source_path);
            t->match = stack[--depth];
            tokens[t->match].match = i;
            t->list = tokens[t->match].list;
            parens -= c != '}';
            braces -= c == '}';
            if (body == t->match)
                body = -1;
        }
        t->in_body = body >= 0;
        t->parens = parens;
        if (!open && !close)
            t->list = depth && is(stack[depth - 1], "{") && tokens[stack[depth - 1]].list;
        if (open) {
            if (c == '{') {
                t->list = opens_list(i, depth && is(stack[depth - 1], "{") && tokens[stack[depth - 1]].list);
                if (!braces && !t->list && is(i - 1, ")"))
                    body = i;
            }
            parens += c != '{';
            braces += c == '{';
            if (depth == (int) (sizeof stack / sizeof *stack))
                die("brackets are nested too deeply in", source_path);
            stack[depth++] = i;
        }
    }
}

static const char *const message_calls[] = {"sl_fail", "sl_fail_at",    "sl_warn",        "sl_log", "SL_ASSERT",
                                            "BAD",     "static_assert", "_Static_assert", "sizeof", "printf",
                                            "fprintf", "alignas",       "alignof",        NULL};

static void mark_messages(void)
{
    for (int i = 0; i + 1 < token_count; i++)
        if (is_word(i) && is_one_of(i, message_calls) && is(i + 1, "("))
            for (int j = i + 1; j <= tokens[i + 1].match; j++)
                tokens[j].skipped = true;
}

#endif
