/* Each option keeps one text and the rank of who set it. A lower rank never replaces a higher one, so command line,
 * config file and environment can be read in any order: a --config found on the command line is read after it and still
 * yields. Every text is checked against its kind when it is set; the getters then cannot fail. */
#include "core/options.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/suggest.h"

typedef enum rank { BY_DEFAULT, BY_ENVIRONMENT, BY_FILE, BY_COMMAND_LINE } rank;
enum { CONFIG_LIMIT = 1 << 20, NAME_LIMIT = 64 };

typedef struct setting {
    char *value; /* NULL: the default */
    rank by;
} setting;

struct sl_options {
    const sl_option *table;
    int64_t count;
    setting *settings;
};

/* ---- names ---- */

static int64_t find_exact(const sl_options *options, const char *name)
{
    for (int64_t i = 0; i < options->count; i++)
        if (strcmp(options->table[i].name, name) == 0)
            return i;
    return -1;
}

static sl_status unknown(const sl_options *options, const char *dashes, const char *name)
{
    sl_suggestion suggestion = {.word = name};
    for (int64_t i = 0; i < options->count; i++)
        sl_suggest(&suggestion, options->table[i].name);
    const char *meant = sl_suggested(&suggestion);
    if (meant)
        return sl_fail(SL_E_USAGE, "unknown option %s%s; did you mean %s%s?", dashes, name, dashes, meant);
    return sl_fail(SL_E_USAGE, "unknown option %s%.100s; --help lists those there are", dashes, name);
}

/* ---- values ---- */

static bool is_choice(const char *choices, const char *value)
{
    size_t length = strlen(value);
    for (const char *at = choices; at; at = strchr(at, '|')) {
        at += *at == '|';
        if (strcspn(at, "|") == length && strncmp(at, value, length) == 0)
            return true;
    }
    return false;
}

static sl_status check_value(const sl_option *option, const char *value)
{
    int64_t integer;
    double number;
    size_t bytes;
    bool flag;
    sl_budget budget;
    switch (option->kind) {
    case SL_OPT_STRING:
        return SL_OK;
    case SL_OPT_I64:
        return sl_parse_i64(value, &integer);
    case SL_OPT_F64:
        return sl_parse_f64(value, &number);
    case SL_OPT_BYTES:
        return sl_parse_bytes(value, &bytes);
    case SL_OPT_BUDGET:
        return sl_parse_budget(value, &budget);
    case SL_OPT_FLAG:
        return sl_parse_bool(value, &flag);
    case SL_OPT_CHOICE:
        if (is_choice(option->value, value))
            return SL_OK;
        return sl_fail(SL_E_USAGE, "\"%.60s\" is not one of %s", value, option->value);
    }
    return sl_fail(SL_E_INTERNAL, "option %s has no kind", option->name);
}

/* `dashes` is "--" where the message should speak of a flag, "" where of a key. */
static sl_status set(sl_options *options, const char *dashes, const char *name, const char *value, rank by)
{
    int64_t i = find_exact(options, name);
    if (i < 0)
        return unknown(options, dashes, name);
    sl_status status = check_value(&options->table[i], value);
    if (status != SL_OK)
        return sl_fail_at(status, "%s%s", dashes, name);
    setting *s = &options->settings[i];
    if (by < s->by)
        return SL_OK;
    char *copy;
    SL_TRY(sl_strdup(value, &copy));
    sl_free(s->value);
    s->value = copy;
    s->by = by;
    return SL_OK;
}

sl_status sl_options_set(sl_options *options, const char *name, const char *value)
{
    return set(options, "", name, value, BY_COMMAND_LINE);
}

/* ---- life ---- */

sl_status sl_options_create(const sl_option *table, int64_t count, sl_options **out)
{
    sl_options *options;
    for (int64_t i = 0; i < count; i++) {
        SL_ASSERT(strlen(table[i].name) <= NAME_LIMIT);
        if (table[i].otherwise && check_value(&table[i], table[i].otherwise) != SL_OK)
            return sl_fail_at(SL_E_INTERNAL, "the default of option %s", table[i].name);
    }
    SL_TRY(sl_alloc(&options, 1, sizeof *options));
    options->table = table;
    options->count = count;
    sl_status status = sl_alloc(&options->settings, count, sizeof *options->settings);
    if (status != SL_OK) {
        sl_free(options);
        return status;
    }
    *out = options;
    return SL_OK;
}

void sl_options_destroy(sl_options *options)
{
    if (!options)
        return;
    for (int64_t i = 0; i < options->count; i++)
        sl_free(options->settings[i].value);
    sl_free(options->settings);
    sl_free(options);
}

sl_status sl_options_copy(const sl_options *options, sl_options **out)
{
    sl_options *copy;
    sl_status status;
    SL_TRY(sl_options_create(options->table, options->count, &copy));
    for (int64_t i = 0; i < options->count; i++) {
        copy->settings[i].by = options->settings[i].by;
        if (options->settings[i].value)
            SL_TRY_GOTO(sl_strdup(options->settings[i].value, &copy->settings[i].value), fail);
    }
    *out = copy;
    return SL_OK;
fail:
    sl_options_destroy(copy);
    return status;
}

/* ---- command line ---- */

/* Splits "--name=value"; *value is NULL without "=". */
static sl_status split_argument(const char *argument, char name[NAME_LIMIT + 1], const char **value)
{
    if (strncmp(argument, "--", 2) != 0 || !argument[2])
        return sl_fail(SL_E_USAGE, "\"%.100s\" is not an option; options look like --name value", argument);
    size_t length = strcspn(argument + 2, "=");
    if (length == 0 || length > NAME_LIMIT)
        return sl_fail(SL_E_USAGE, "\"%.100s\" is not an option; --help lists those there are", argument);
    memcpy(name, argument + 2, length);
    name[length] = 0;
    *value = argument[2 + length] == '=' ? argument + 3 + length : NULL;
    return SL_OK;
}

sl_status sl_options_parse_args(sl_options *options, int argc, char **argv)
{
    int64_t none;
    return sl_options_parse_operands(options, argc, argv, NULL, 0, &none);
}

sl_status sl_options_parse_operands(sl_options *options, int argc, char **argv, const char **operands, int64_t most,
                                    int64_t *count)
{
    *count = 0;
    for (int i = 0; i < argc; i++) {
        char name[NAME_LIMIT + 1];
        const char *value = NULL;
        if (most > 0 && strncmp(argv[i], "--", 2) != 0) {
            if (*count == most)
                return sl_fail(SL_E_USAGE, "\"%.100s\" is one argument too many: give at most %" PRId64, argv[i], most);
            operands[(*count)++] = argv[i];
            continue;
        }
        SL_TRY(split_argument(argv[i], name, &value));
        int64_t index = find_exact(options, name);
        int64_t negated = strncmp(name, "no-", 3) == 0 ? find_exact(options, name + 3) : -1;
        if (index < 0 && negated >= 0 && options->table[negated].kind == SL_OPT_FLAG) {
            if (value)
                return sl_fail(SL_E_USAGE, "--%s takes no value", name);
            SL_TRY(set(options, "--", name + 3, "false", BY_COMMAND_LINE));
            continue;
        }
        if (index < 0)
            return unknown(options, "--", name);
        if (!value && options->table[index].kind == SL_OPT_FLAG)
            value = "true";
        if (!value && (i + 1 == argc || strncmp(argv[i + 1], "--", 2) == 0))
            return sl_fail(SL_E_USAGE, "--%s needs a value: --%s %s", name, name, options->table[index].value);
        if (!value)
            value = argv[++i];
        SL_TRY(set(options, "--", name, value, BY_COMMAND_LINE));
    }
    return SL_OK;
}

/* ---- environment ---- */

sl_status sl_options_parse_env(sl_options *options)
{
    for (int64_t i = 0; i < options->count; i++) {
        char variable[NAME_LIMIT + 8] = "SLUICE_";
        const char *name = options->table[i].name;
        for (size_t k = 0; k <= strlen(name); k++)
            variable[7 + k] = name[k] == '-' ? '_' : (char) toupper((unsigned char) name[k]);
        const char *value = getenv(variable);
        if (!value || !value[0])
            continue;
        sl_status status = set(options, "", name, value, BY_ENVIRONMENT);
        if (status != SL_OK)
            return sl_fail_at(status, "environment variable %s", variable);
    }
    return SL_OK;
}

/* ---- config file ---- */

static sl_status set_from_json(sl_options *options, const sl_json *member)
{
    char digits[32];
    int64_t index = find_exact(options, member->key);
    bool is_flag = index >= 0 && options->table[index].kind == SL_OPT_FLAG;
    if (index < 0)
        return unknown(options, "", member->key);
    switch (member->kind) {
    case SL_JSON_NULL:
        return sl_fail(SL_E_USAGE, "\"%s\" is null: give a value or leave it out", member->key);
    case SL_JSON_BOOL:
        if (is_flag)
            return set(options, "", member->key, member->boolean ? "true" : "false", BY_FILE);
        break;
    case SL_JSON_STRING:
        if (strlen(member->string) == member->length)
            return set(options, "", member->key, member->string, BY_FILE);
        break;
    case SL_JSON_NUMBER:
        if (is_flag)
            break;
        sl_format_f64(member->number, digits);
        if (member->is_integer) {
            sl_text text = {0};
            sl_text_printf(&text, "%lld", (long long) member->integer);
            sl_status status = sl_text_status(&text);
            if (status == SL_OK)
                status = set(options, "", member->key, text.data, BY_FILE);
            sl_text_free(&text);
            return status;
        }
        return set(options, "", member->key, digits, BY_FILE);
    case SL_JSON_ARRAY:
    case SL_JSON_OBJECT:
        break;
    }
    return sl_fail(SL_E_USAGE, "%s: the value should be %s", member->key,
                   is_flag ? "true or false" : "a string or a number");
}

static sl_status parse_json_text(sl_options *options, const char *path, const char *text, size_t length)
{
    sl_region *region;
    const sl_json *root;
    SL_TRY(sl_region_create(&region));
    sl_status status = sl_json_parse(region, path, text, length, &root);
    if (status == SL_OK)
        for (const sl_json *member = root->child; member && status == SL_OK; member = member->next) {
            status = set_from_json(options, member);
            if (status != SL_OK)
                sl_fail_at(status, "%s:%d:%d", path, member->line, member->column);
        }
    sl_region_destroy(region);
    return status;
}

/* Cuts spaces at both ends, in place. */
static char *trim(char *text)
{
    while (isspace((unsigned char) *text))
        text++;
    size_t length = strlen(text);
    while (length && isspace((unsigned char) text[length - 1]))
        length--;
    text[length] = 0;
    return text;
}

/* One line of `key = value`. A # outside quotes, at the start or behind a space, begins a comment; quotes around the whole
 * value are dropped. */
static sl_status parse_line(sl_options *options, char *line)
{
    bool quoted = false;
    for (char *at = line; *at; at++) {
        quoted ^= *at == '"';
        if (!quoted && *at == '#' && (at == line || isspace((unsigned char) at[-1]))) {
            *at = 0;
            break;
        }
    }
    line = trim(line);
    if (!line[0])
        return SL_OK;
    char *equals = strchr(line, '=');
    if (!equals)
        return sl_fail(SL_E_USAGE, "\"%.60s\" should be key = value", line);
    *equals = 0;
    char *value = trim(equals + 1);
    size_t length = strlen(value);
    if (length >= 2 && value[0] == '"' && value[length - 1] == '"') {
        value[length - 1] = 0;
        value++;
    }
    return set(options, "", trim(line), value, BY_FILE);
}

static sl_status parse_lines(sl_options *options, const char *path, char *text)
{
    int number = 1;
    for (char *line = text, *next; line; line = next, number++) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        sl_status status = parse_line(options, line);
        if (status != SL_OK)
            return sl_fail_at(status, "%s:%d", path, number);
    }
    return SL_OK;
}

static sl_status parse_file(sl_options *options, const char *path)
{
    char *text;
    size_t length;
    SL_TRY(sl_file_read_all(path, CONFIG_LIMIT, &text, &length));
    char *begin = text + (sl_json_after_mark(text, &length) - text);
    const char *start = begin + strspn(begin, " \t\r\n");
    sl_status status;
    if (*start == '{' || *start == '[')
        status = *start == '{' ? parse_json_text(options, path, begin, length)
                               : sl_fail(SL_E_FORMAT, "%s: a configuration is a JSON object, not an array", path);
    else if (strlen(begin) != length)
        status = sl_fail(SL_E_FORMAT, "%s: a NUL byte in it; this is not a configuration file", path);
    else
        status = parse_lines(options, path, begin);
    sl_free(text);
    return status;
}

/* The file is a part of the command: whatever is wrong with it, the command is wrong. */
sl_status sl_options_parse_file(sl_options *options, const char *path)
{
    sl_status status = parse_file(options, path);
    return status == SL_OK || status == SL_E_MEMORY ? status : SL_E_USAGE;
}

/* ---- getters ---- */

static int64_t find(const sl_options *options, const char *name, int kind)
{
    int64_t i = find_exact(options, name);
    SL_ASSERT(i >= 0);
    SL_ASSERT(kind < 0 || (int) options->table[i].kind == kind);
    return i;
}

static const char *value_of(const sl_options *options, int64_t i)
{
    return options->settings[i].value ? options->settings[i].value : options->table[i].otherwise;
}

/* The texts were checked when they were set. */
#define GETTER(type, name_, kind, parse)                                 \
    type name_(const sl_options *options, const char *name)              \
    {                                                                    \
        type value = {0};                                                \
        const char *text = value_of(options, find(options, name, kind)); \
        sl_status status = text ? parse(text, &value) : SL_OK;           \
        SL_ASSERT(status == SL_OK);                                      \
        return value;                                                    \
    }
GETTER(int64_t, sl_options_i64, SL_OPT_I64, sl_parse_i64)
GETTER(double, sl_options_f64, SL_OPT_F64, sl_parse_f64)
GETTER(size_t, sl_options_bytes, SL_OPT_BYTES, sl_parse_bytes)
GETTER(sl_budget, sl_options_budget, SL_OPT_BUDGET, sl_parse_budget)
GETTER(bool, sl_options_flag, SL_OPT_FLAG, sl_parse_bool)
#undef GETTER

sl_status sl_options_get(const sl_options *options, const char *name, const char **value)
{
    int64_t i = find_exact(options, name);
    if (i < 0)
        return unknown(options, "", name);
    *value = value_of(options, i);
    return SL_OK;
}

bool sl_options_is_set(const sl_options *options, const char *name)
{
    return options->settings[find(options, name, -1)].by != BY_DEFAULT;
}

const char *sl_options_string(const sl_options *options, const char *name)
{
    return value_of(options, find(options, name, -1));
}

const char *sl_options_string_or(const sl_options *options, const char *name, const char *otherwise)
{
    return sl_options_is_set(options, name) ? sl_options_string(options, name) : otherwise;
}

int64_t sl_options_i64_or(const sl_options *options, const char *name, int64_t otherwise)
{
    return sl_options_is_set(options, name) ? sl_options_i64(options, name) : otherwise;
}

void sl_options_put(const sl_options *options, sl_json_writer *w)
{
    for (int64_t i = 0; i < options->count; i++) {
        const sl_option *option = &options->table[i];
        if (!value_of(options, i))
            continue;
        if (option->kind == SL_OPT_I64)
            sl_json_put_i64(w, option->name, sl_options_i64(options, option->name));
        else if (option->kind == SL_OPT_F64)
            sl_json_put_f64(w, option->name, sl_options_f64(options, option->name));
        else if (option->kind == SL_OPT_FLAG)
            sl_json_put_bool(w, option->name, sl_options_flag(options, option->name));
        else
            sl_json_put_string(w, option->name, value_of(options, i));
    }
}
