/* The mutations of tools/mutate: reads formatted C and lists, or applies, small mechanical faults.
 *
 *     mutate list SEED FILE...    every mutation of the files, one per line, in the order in which the seed samples them:
 *                                 ID <tab> original text <tab> mutated text
 *     mutate apply ID             the mutated file on stdout; an ID is FILE:LINE:COLUMN:OPERATOR
 *     mutate run CPU WALL COMMAND...   runs it with limits in seconds; `WALL CPU` as the last line on stderr
 *
 * It works on tokens, not on a syntax tree: the code is formatted by clang-format, so a binary op has a space on both
 * sides and a compound literal has none in front of its brace. A mutation that does not compile costs one compiler call and is
 * discarded by the driver, so nothing here needs to know a type.
 *
 * Only code inside functions is mutated. Comments, strings, preprocessor lines, declarations without a value, and the arguments
 * of messages and assertions are left alone. So is the deletion of a free: LeakSanitizer guards those, not the plain tests.
 *
 * Sampling takes lines uniformly, then an op class of the line, then a place: otherwise integer literals would be
 * half of the sample. Every line gives its first mutation before any line gives its second. */
#define _GNU_SOURCE
#include <ctype.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mutate_tokens.h"

typedef struct mutation {
    const char *file, *op;
    char *id, *original, *mutated;
    int line, at, length;
    char *replacement;
    uint64_t class_rank, rank, line_rank;
    int round;
} mutation;

static mutation *mutations;
static int mutation_count, mutation_capacity, first_of_file;

/* ---- mutations ---- */

static uint64_t hash_text(uint64_t seed, const char *text)
{
    uint64_t h = seed * 0x9e3779b97f4a7c15u ^ 0xcbf29ce484222325u;
    for (; *text; text++)
        h = (h ^ (unsigned char) *text) * 0x100000001b3u;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
    return h ^ (h >> 31);
}

/* The lines from `begin` to `end` with [at, at + length) replaced, on one line with single spaces. */
static char *excerpt(int begin, int end, int at, int length, const char *replacement)
{
    size_t capacity = (size_t) (end - begin) + strlen(replacement) + 1;
    char *all = calloc(1, capacity), *out = all;
    if (!all)
        die("out of memory at", source_path);
    strncat(all, source + begin, (size_t) (at - begin));
    strcat(all, replacement);
    strncat(all, source + at + length, (size_t) (end - at - length));
    for (const char *in = all; *in; in++)
        if (!isspace((unsigned char) *in))
            *out++ = *in;
        else if (out > all && out[-1] != ' ')
            *out++ = ' ';
    *out = 0;
    return all;
}

/* Replaces the tokens from `first` to `last`; `op` is CLASS or CLASS plus a variant after a dash. */
static void add(int first, int last, const char *op, const char *replacement)
{
    const token *t = &tokens[first];
    int at = t->at, length = tokens[last].at + tokens[last].length - at, begin = at, end = at + length;
    if (!t->in_body || t->skipped)
        return;
    while (begin && source[begin - 1] != '\n')
        begin--;
    while (end < source_length && source[end] != '\n')
        end++;
    char id[600];
    snprintf(id, sizeof id, "%s:%d:%d:%s", source_path, t->line, t->column, op);
    for (int i = first_of_file; i < mutation_count; i++)
        if (strcmp(mutations[i].id, id) == 0)
            return;
    mutations = grow(mutations, mutation_count, &mutation_capacity, sizeof *mutations);
    mutations[mutation_count++] = (mutation){.file = source_path,
                                             .op = op,
                                             .id = strdup(id),
                                             .original = excerpt(begin, end, at, 0, ""),
                                             .mutated = excerpt(begin, end, at, length, replacement),
                                             .line = t->line,
                                             .at = at,
                                             .length = length,
                                             .replacement = strdup(replacement)};
}

static char *text_of(int first, int last)
{
    int begin = tokens[first].at, end = tokens[last].at + tokens[last].length;
    return strndup(source + begin, (size_t) (end - begin));
}

static void mutate_operator(int i)
{
    static const struct {
        const char *from, *op, *to;
    } table[] = {
        {"<", "negate", ">="},  {"<=", "negate", ">"},  {">", "negate", "<="}, {">=", "negate", "<"},
        {"==", "negate", "!="}, {"!=", "negate", "=="}, {"<", "bound", "<="},  {"<=", "bound", "<"},
        {">", "bound", ">="},   {">=", "bound", ">"},   {"&&", "logic", "||"}, {"||", "logic", "&&"},
        {"+", "arith", "-"},    {"-", "arith", "+"},    {"*", "arith", "/"},   {"/", "arith", "*"},
        {"%", "arith", "*"},    {"<<", "arith", ">>"},  {">>", "arith", "<<"}, {"&", "arith", "|"},
        {"|", "arith", "&"},    {"+=", "arith", "-="},  {"-=", "arith", "+="}, {"|=", "arith", "&="},
        {"&=", "arith", "|="},  {"*=", "arith", "/="},  {"/=", "arith", "*="},
    };
    const token *t = &tokens[i];
    if (t->type != SIGN)
        return;
    if (is(i, "++") || is(i, "--"))
        add(i, i, "arith", is(i, "++") ? "--" : "++");
    if (is(i, "!"))
        add(i, i, "not", "");
    int end = t->at + t->length;
    bool binary = t->at && isspace((unsigned char) source[t->at - 1]) && isspace((unsigned char) source[end]);
    for (size_t k = 0; binary && k < sizeof table / sizeof *table; k++)
        if (is(i, table[k].from))
            add(i, i, table[k].op, table[k].to);
}

/* `float text[2][MOST];`: how large an array is does not show. `i` is a bracket that opens. */
static bool declares_array(int i)
{
    while (is(i - 1, "]"))
        i = tokens[i - 1].match;
    return is_word(i - 1) && ((is_word(i - 2) && !is(i - 2, "return") && !is(i - 2, "else") && !is(i - 2, "case")) ||
                              (is(i - 2, "*") && source[tokens[i - 2].at + 1] != ' '));
}

static void mutate_number(int i)
{
    char *text = text_of(i, i), *end, changed[64];
    unsigned long long value = strtoull(text, &end, 0);
    bool hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    bool bound = is(i - 1, "[") && is(i + 1, "]") && declares_array(i - 1);
    bool zeroed = is(i - 1, "{") && is(i + 1, "}") && tokens[i - 1].list && value == 0; /* `= {0}` clears */
    if (!bound && !zeroed && !text[strspn(text, hex ? "0123456789abcdefABCDEFxXuUlL" : "0123456789uUlL")]) {
        snprintf(changed, sizeof changed, hex ? "0x%llx%s" : "%llu%s", value + 1, end);
        add(i, i, "const-more", changed);
        snprintf(changed, sizeof changed, hex ? "0x%llx%s" : "%llu%s", value - 1, end);
        if (value)
            add(i, i, "const-less", changed);
    }
    free(text);
}

static void mutate_index(int i)
{
    int close = tokens[i].match;
    if (!is(i, "[") || close <= i + 1 || !(is_word(i - 1) || is(i - 1, "]") || is(i - 1, ")")) ||
        (close == i + 2 && !is_word(i + 1)) || declares_array(i))
        return;
    char *text = text_of(i + 1, close - 1), changed[600];
    snprintf(changed, sizeof changed, "(%s) + 1", text);
    add(i + 1, close - 1, "index", changed);
    free(text);
}

static const char *const control[] = {"if", "for", "while", "switch", "return", "sizeof", NULL};

/* Adjacent arguments of a call, exchanged. */
static void mutate_call(int i)
{
    static const char *const symmetric[] = {"SL_MIN", "SL_MAX", "fmin", "fmax", NULL};
    if (!is_word(i) || !is(i + 1, "(") || is_one_of(i, control) || is_one_of(i, message_calls) ||
        is_one_of(i, symmetric))
        return;
    int close = tokens[i + 1].match, begin[64], end[64], n = 0;
    if (close == i + 2)
        return;
    begin[0] = i + 2;
    for (int j = i + 2; j <= close && n < 63; j++) {
        if (j == close || is(j, ",")) {
            end[n++] = j - 1;
            begin[n] = j + 1;
        } else if (tokens[j].match > j) {
            j = tokens[j].match;
        }
    }
    for (int a = 0; a + 1 < n; a++) {
        char *one = text_of(begin[a], end[a]), *two = text_of(begin[a + 1], end[a + 1]), changed[1200];
        snprintf(changed, sizeof changed, "%s, %s", two, one);
        if (strcmp(one, two) != 0 && strncmp(two, "sizeof", 6) != 0) /* a count and a size are multiplied */
            add(begin[a], end[a + 1], "swap", changed);
        free(one);
        free(two);
    }
}

static void mutate_condition(int i)
{
    if (!is(i + 1, "(") || !(is(i, "if") || is(i, "while")))
        return;
    int close = tokens[i + 1].match;
    char *text = text_of(i + 1, close), changed[2400];
    /* The condition is still evaluated, for what it does on the way. */
    snprintf(changed, sizeof changed, "(%s && 0)", text);
    add(i + 1, close, "cond-false", changed);
    snprintf(changed, sizeof changed, "(%s || 1)", text);
    if (is(i, "if"))
        add(i + 1, close, "cond-true", changed);
    free(text);
}

/* ---- statements ---- */

static bool label_colon(int i)
{
    if (!is(i, ":"))
        return false;
    int j = i - 1;
    while (j > 0 && !is(j, ";") && !is(j, "{") && !is(j, "}") && !is(j, "?"))
        j--;
    return !is(j, "?") && (is(j + 1, "case") || is(j + 1, "default") || j + 2 == i);
}

static bool starts_statement(int i)
{
    if (!tokens[i].in_body || tokens[i].parens || tokens[i].list || !is_word(i))
        return is(i, "*") && tokens[i].in_body && !tokens[i].parens && !tokens[i].list &&
               (is(i - 1, ";") || is(i - 1, "{") || is(i - 1, "}"));
    if (is(i - 1, ")") && tokens[i - 1].match > 0)
        return is_one_of(tokens[i - 1].match - 1, control);
    return is(i - 1, ";") || is(i - 1, "{") || is(i - 1, "}") || is(i - 1, "else") || is(i - 1, "do") ||
           label_colon(i - 1);
}

static bool declares(int i)
{
    static const char *const words[] = {
        "const", "static", "struct", "enum", "union",         "unsigned", "signed", "int",    "long",     "short",
        "char",  "float",  "double", "bool", "_Thread_local", "typedef",  "void",   "size_t", "volatile", NULL};
    if (is_one_of(i, words) || (is_word(i) && is_word(i + 1)))
        return true;
    int j = i + 1;
    while (is(j, "*"))
        j++;
    return is_word(i) && j > i + 1 && is_word(j) && source[tokens[j].at - 1] == '*';
}

/* Calls whose absence no result shows: of what frees, and of the hint to a waiting core. */
static bool frees(int i)
{
    const token *t = &tokens[i];
    static const char *const ends[] = {"relax", "free", "_destroy", "_release", "_close", "close", NULL};
    for (const char *const *e = ends; *e; e++) {
        int n = (int) strlen(*e);
        if (is(i + 1, "(") && t->length >= n && memcmp(source + t->at + t->length - n, *e, (size_t) n) == 0)
            return true;
    }
    return false;
}

static void mutate_statement(int i)
{
    static const char *const blocks[] = {"if", "for", "while", "switch", "do", "case", "default", "else", NULL};
    static const char *const jumps[] = {"break", "continue", "goto", "return", NULL};
    if (!starts_statement(i) || is_one_of(i, blocks))
        return;
    int end = i;
    while (end < token_count && !is(end, ";"))
        end = tokens[end].match > end ? tokens[end].match + 1 : end + 1;
    if (end >= token_count || is(i + 1, ":"))
        return;
    int after = end + 1; /* without its last return, a function would return garbage */
    while (is(i, "return") && is(after, "}") && tokens[after].in_body)
        after++;
    bool last = is(after, "}") && !tokens[after].in_body;
    if (is(i, "return") && end > i + 1) {
        char *value = text_of(i + 1, end - 1);
        if (strcmp(value, "0") != 0 && strcmp(value, "SL_OK") != 0 && strcmp(value, "NULL") != 0 &&
            strcmp(value, "false") != 0)
            add(i, end, "return-zero", "return 0;");
        if (strcmp(value, "false") == 0 || strcmp(value, "true") == 0)
            add(i, end, "return-other", value[0] == 't' ? "return false;" : "return true;");
        free(value);
    }
    if (is_one_of(i, jumps)) {
        if (!last)
            add(i, end, "delete-jump", ";");
    } else if (!declares(i) && !frees(i) && !is(i, "SL_ASSERT") && !is(i, "sl_warn") && !is(i, "sl_log")) {
        add(i, end, "delete", ";");
    }
}

static void read_source(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        die("cannot read", path);
    source_length = (int) ftell(file);
    rewind(file);
    free(source);
    source = calloc(1, (size_t) source_length + 2);
    if (!source || fread(source, 1, (size_t) source_length, file) != (size_t) source_length)
        die("cannot read", path);
    fclose(file);
    source_path = path;
}

static void list_file(const char *path)
{
    read_source(path);
    tokenize();
    match_brackets();
    mark_messages();
    first_of_file = mutation_count;
    for (int i = 0; i < token_count; i++) {
        mutate_operator(i);
        if (tokens[i].type == NUMBER)
            mutate_number(i);
        mutate_index(i);
        mutate_call(i);
        mutate_condition(i);
        mutate_statement(i);
    }
}

/* ---- order ---- */

static int compare_on_line(const void *a, const void *b)
{
    const mutation *x = a, *y = b;
    if (x->line_rank != y->line_rank)
        return x->line_rank < y->line_rank ? -1 : 1;
    if (x->class_rank != y->class_rank)
        return x->class_rank < y->class_rank ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static int compare_rounds(const void *a, const void *b)
{
    const mutation *x = a, *y = b;
    return x->round != y->round ? x->round - y->round : compare_on_line(a, b);
}

static void order(uint64_t seed)
{
    for (int i = 0; i < mutation_count; i++) {
        mutation *m = &mutations[i];
        char key[600];
        snprintf(key, sizeof key, "%s:%d", m->file, m->line);
        m->line_rank = hash_text(seed, key);
        snprintf(key, sizeof key, "%s:%d:%.*s", m->file, m->line, (int) strcspn(m->op, "-"), m->op);
        m->class_rank = hash_text(seed, key);
        m->rank = hash_text(seed, m->id);
    }
    qsort(mutations, (size_t) mutation_count, sizeof *mutations, compare_on_line);
    for (int i = 1; i < mutation_count; i++)
        if (mutations[i].line_rank == mutations[i - 1].line_rank)
            mutations[i].round = mutations[i - 1].round + 1;
    qsort(mutations, (size_t) mutation_count, sizeof *mutations, compare_rounds);
}

static void apply(const char *id)
{
    char path[600];
    snprintf(path, sizeof path, "%.*s", (int) strcspn(id, ":"), id);
    list_file(path);
    for (int i = 0; i < mutation_count; i++) {
        const mutation *m = &mutations[i];
        if (strcmp(m->id, id) == 0) {
            printf("%.*s%s%s", m->at, source, m->replacement, source + m->at + m->length);
            exit(0);
        }
    }
    die("the file has no mutation", id);
}

/* ---- a test with limits ---- */

static double clock_of(clockid_t clock)
{
    struct timespec now = {0};
    clock_gettime(clock, &now);
    return (double) now.tv_sec + (double) now.tv_nsec * 1e-9;
}

/* Exits as the command does, 128 + N for a signal N, and 124 when a limit ended it, with all that it started. Its processor time
 * is looked at from outside: under RLIMIT_CPU the kernel counts it in ticks, and a test that measures its own would read 0. */
static int run_limited(double cpu_limit, double wall_limit, char **command)
{
    double start = clock_of(CLOCK_MONOTONIC);
    struct rusage used;
    clockid_t cpu;
    int status, expired = 0;
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        execvp(command[0], command);
        _exit(127);
    }
    if (child < 0)
        die("cannot start", command[0]);
    setpgid(child, child);
    while (wait4(child, &status, WNOHANG, &used) == 0) {
        bool too_long = clock_of(CLOCK_MONOTONIC) - start > wall_limit;
        if (too_long || (clock_getcpuclockid(child, &cpu) == 0 && clock_of(cpu) > cpu_limit)) {
            kill(-child, SIGKILL);
            expired = 1;
        }
        nanosleep(&(struct timespec){0, expired ? 1000000 : 3000000}, NULL);
    }
    kill(-child, SIGKILL); /* what it left behind */
    fprintf(stderr, "%.3f %.3f\n", clock_of(CLOCK_MONOTONIC) - start,
            (double) (used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                1e-6 * (double) (used.ru_utime.tv_usec + used.ru_stime.tv_usec));
    return expired ? 124 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "apply") == 0)
        apply(argv[2]);
    if (argc > 4 && strcmp(argv[1], "run") == 0)
        return run_limited(strtod(argv[2], NULL), strtod(argv[3], NULL), argv + 4);
    if (argc < 4 || strcmp(argv[1], "list") != 0)
        die("usage: mutate list SEED FILE... |", "mutate apply ID");
    for (int i = 3; i < argc; i++)
        list_file(argv[i]);
    order(strtoull(argv[2], NULL, 10));
    for (int i = 0; i < mutation_count; i++)
        printf("%s\t%s\t%s\n", mutations[i].id, mutations[i].original, mutations[i].mutated);
    return 0;
}
