/* A recursive descent over the bytes, with one error message style: "name:line:column: what".
 *
 * Bounds on a hostile file: depth 64 (so recursion is bounded), 1 GiB of text, and memory of about 100 bytes per value,
 * which takes at least 2 bytes of text. Duplicate keys are found by hashing once an object has more than a few members,
 * so a file of a million keys costs no quadratic time. Strings are unescaped into the region and checked to be UTF-8; a
 * key with a NUL in it is refused, because the look-ups compare C strings. */
#include "core/json.h"

#include <inttypes.h>
#include <string.h>

#include "core/hash.h"

enum { DEPTH_LIMIT = 64, FEW_MEMBERS = 16 };
static const size_t text_limit = (size_t) 1 << 30;

typedef struct parser {
    sl_region *region;
    const char *name;
    const char *at, *end, *line_start;
    int line, depth;
} parser;

static sl_status parse_value(parser *p, sl_json *value);

static sl_status wrong(const parser *p, const char *what)
{
    return sl_fail(SL_E_FORMAT, "%s:%d:%d: %s", p->name, p->line, (int) (p->at - p->line_start) + 1, what);
}

static void skip_spaces(parser *p)
{
    for (; p->at < p->end; p->at++) {
        if (*p->at == '\n')
            p->line++, p->line_start = p->at + 1;
        else if (*p->at != ' ' && *p->at != '\t' && *p->at != '\r')
            return;
    }
}

static bool next_is(parser *p, char c)
{
    skip_spaces(p);
    return p->at < p->end && *p->at == c;
}

static bool take(parser *p, char c)
{
    bool found = next_is(p, c);
    p->at += found;
    return found;
}

/* ---- strings ---- */

static char *put_utf8(char *out, uint32_t c)
{
    if (c < 0x80) {
        *out++ = (char) c;
    } else if (c < 0x800) {
        *out++ = (char) (0xc0 | c >> 6);
        *out++ = (char) (0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        *out++ = (char) (0xe0 | c >> 12);
        *out++ = (char) (0x80 | (c >> 6 & 0x3f));
        *out++ = (char) (0x80 | (c & 0x3f));
    } else {
        *out++ = (char) (0xf0 | c >> 18);
        *out++ = (char) (0x80 | (c >> 12 & 0x3f));
        *out++ = (char) (0x80 | (c >> 6 & 0x3f));
        *out++ = (char) (0x80 | (c & 0x3f));
    }
    return out;
}

/* Behind "\u": four hexadecimal digits. */
static bool take_hex4(parser *p, uint32_t *out)
{
    uint32_t value = 0;
    if (p->end - p->at < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        char c = p->at[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (digit < 0)
            return false;
        value = value * 16 + (uint32_t) digit;
    }
    p->at += 4;
    *out = value;
    return true;
}

/* Behind the backslash. Characters outside the first plane come as a pair of surrogates. */
static sl_status take_escape(parser *p, char **out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = *p->at++;
    const char *found = c ? strchr(from, c) : NULL;
    if (found) {
        *(*out)++ = to[found - from];
        return SL_OK;
    }
    uint32_t code, low;
    if (c != 'u' || !take_hex4(p, &code))
        return wrong(p, "unknown escape in a string");
    if (code >= 0xd800 && code <= 0xdbff) {
        if (p->end - p->at < 6 || p->at[0] != '\\' || p->at[1] != 'u')
            return wrong(p, "half of a surrogate pair");
        p->at += 2;
        if (!take_hex4(p, &low) || low < 0xdc00 || low > 0xdfff)
            return wrong(p, "half of a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code <= 0xdfff) {
        return wrong(p, "half of a surrogate pair");
    }
    *out = put_utf8(*out, code);
    return SL_OK;
}

/* Behind the opening quote. An unescaped string is never longer than its text, so one look ahead gives the room it
 * needs. */
static sl_status take_string(parser *p, const char **out, size_t *length)
{
    const char *close = p->at;
    while (close < p->end && *close != '"')
        close += *close == '\\' && p->end - close > 1 ? 2 : 1;
    if (close >= p->end)
        return wrong(p, "a string without its closing quote");
    char *start, *to;
    SL_TRY(sl_region_alloc(p->region, &start, (size_t) (close - p->at) + 1, 1));
    to = start;
    while (p->at < close) {
        unsigned char c = (unsigned char) *p->at;
        if (c < 0x20)
            return wrong(p, "a control character inside a string; write it as \\u00XX");
        if (c == '\\') {
            p->at++;
            SL_TRY(take_escape(p, &to));
            continue;
        }
        int bytes = sl_utf8_length(p->at, close);
        if (bytes == 0)
            return wrong(p, "a string that is not UTF-8");
        memcpy(to, p->at, (size_t) bytes);
        to += bytes, p->at += bytes;
    }
    p->at++;
    *to = 0;
    *out = start, *length = (size_t) (to - start);
    return SL_OK;
}

/* ---- numbers ---- */

static const char *skip_digits(const char *at, const char *end)
{
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

/* -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?  Returns where it ends, NULL if there is none. */
static const char *scan_number(const char *at, const char *end, bool *integer)
{
    *integer = true;
    at += at < end && *at == '-';
    const char *digits = at;
    at = skip_digits(at, end);
    if (at == digits || (*digits == '0' && at - digits > 1))
        return NULL;
    if (at < end && *at == '.') {
        *integer = false;
        digits = ++at;
        at = skip_digits(at, end);
        if (at == digits)
            return NULL;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        *integer = false;
        at++;
        at += at < end && (*at == '+' || *at == '-');
        digits = at;
        at = skip_digits(at, end);
        if (at == digits)
            return NULL;
    }
    return at;
}

static bool fits_i64(const char *at, const char *end, int64_t *out)
{
    bool negative = *at == '-';
    int64_t value = 0;
    for (at += negative; at < end; at++) {
        int digit = negative ? -(*at - '0') : *at - '0';
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, digit, &value))
            return false;
    }
    *out = value;
    return true;
}

static sl_status take_number(parser *p, sl_json *value)
{
    char digits[512];
    const char *end = scan_number(p->at, p->end, &value->is_integer);
    if (!end)
        return wrong(p, "not a JSON number");
    size_t length = (size_t) (end - p->at);
    if (length >= sizeof digits)
        return wrong(p, "a number of more than 511 characters");
    memcpy(digits, p->at, length);
    digits[length] = 0;
    if (sl_parse_f64(digits, &value->number) != SL_OK)
        return wrong(p, "a number too large for a double");
    value->is_integer = value->is_integer && fits_i64(p->at, end, &value->integer);
    value->kind = SL_JSON_NUMBER;
    p->at = end;
    return SL_OK;
}

/* ---- objects and arrays ---- */

typedef struct key_table {
    const sl_json **slots;
    size_t capacity; /* a power of two, at least twice the members */
} key_table;

static void table_put(key_table *table, const sl_json *member)
{
    size_t i = (size_t) sl_hash64(member->key, strlen(member->key), 0) & (table->capacity - 1);
    while (table->slots[i])
        i = (i + 1) & (table->capacity - 1);
    table->slots[i] = member;
}

static sl_status table_grow(key_table *table, const sl_json *members)
{
    size_t capacity = table->capacity ? table->capacity * 4 : 64;
    sl_free(table->slots);
    *table = (key_table){.slots = NULL};
    SL_TRY(sl_alloc(&table->slots, capacity, sizeof *table->slots));
    table->capacity = capacity;
    for (; members; members = members->next)
        table_put(table, members);
    return SL_OK;
}

/* Whether `key` stands among the members so far. Few are compared one by one, many through the table. */
static sl_status find_key(key_table *table, const sl_json *object, const char *key, bool *found)
{
    *found = false;
    if (object->count < FEW_MEMBERS) {
        *found = sl_json_get(object, key) != NULL;
        return SL_OK;
    }
    if ((size_t) object->count * 2 >= table->capacity)
        SL_TRY(table_grow(table, object->child));
    size_t i = (size_t) sl_hash64(key, strlen(key), 0) & (table->capacity - 1);
    for (; table->slots[i] && !*found; i = (i + 1) & (table->capacity - 1))
        *found = strcmp(table->slots[i]->key, key) == 0;
    return SL_OK;
}

static sl_status take_member_key(parser *p, key_table *table, const sl_json *object, sl_json *member)
{
    size_t length;
    bool found;
    if (!take(p, '"'))
        return wrong(p, p->at < p->end && *p->at == '}' ? "a comma before the closing brace"
                                                        : "a member name in double quotes should stand here");
    SL_TRY(take_string(p, &member->key, &length));
    if (strlen(member->key) != length)
        return wrong(p, "a member name with a NUL in it");
    SL_TRY(find_key(table, object, member->key, &found));
    if (found)
        return sl_fail(SL_E_FORMAT, "%s:%d:%d: \"%.100s\" stands twice in one object", p->name, p->line,
                       (int) (p->at - p->line_start) + 1, member->key);
    if (!take(p, ':'))
        return wrong(p, "a colon should stand between name and value");
    return SL_OK;
}

static sl_status take_items(parser *p, sl_json *value, char close, key_table *table)
{
    const sl_json **link = &value->child;
    if (take(p, close))
        return SL_OK;
    do {
        sl_json *item;
        SL_TRY(sl_region_alloc(p->region, &item, 1, sizeof *item));
        if (close == '}')
            SL_TRY(take_member_key(p, table, value, item));
        SL_TRY(parse_value(p, item));
        *link = item;
        link = &item->next;
        value->count++;
        if (table->slots)
            table_put(table, item);
    } while (take(p, ','));
    if (!take(p, close))
        return wrong(p, close == '}' ? "a comma or } should stand here" : "a comma or ] should stand here");
    return SL_OK;
}

static sl_status take_container(parser *p, sl_json *value, char close)
{
    if (++p->depth > DEPTH_LIMIT)
        return wrong(p, "nested deeper than 64 levels");
    key_table table = {.slots = NULL};
    p->at++;
    value->kind = close == '}' ? SL_JSON_OBJECT : SL_JSON_ARRAY;
    sl_status status = take_items(p, value, close, &table);
    sl_free(table.slots);
    p->depth--;
    return status;
}

static bool take_word(parser *p, const char *word)
{
    size_t length = strlen(word);
    if ((size_t) (p->end - p->at) < length || memcmp(p->at, word, length) != 0)
        return false;
    p->at += length;
    return true;
}

static sl_status parse_value(parser *p, sl_json *value)
{
    skip_spaces(p);
    value->line = p->line;
    value->column = (int) (p->at - p->line_start) + 1;
    if (p->at == p->end)
        return wrong(p, "the text ends where a value should stand");
    switch (*p->at) {
    case '{':
        return take_container(p, value, '}');
    case '[':
        return take_container(p, value, ']');
    case '"':
        p->at++;
        value->kind = SL_JSON_STRING;
        return take_string(p, &value->string, &value->length);
    case 't':
    case 'f':
        value->kind = SL_JSON_BOOL;
        value->boolean = *p->at == 't';
        return take_word(p, value->boolean ? "true" : "false") ? SL_OK : wrong(p, "not a JSON value");
    case 'n':
        return take_word(p, "null") ? SL_OK : wrong(p, "not a JSON value");
    default:
        if (*p->at == '-' || (*p->at >= '0' && *p->at <= '9'))
            return take_number(p, value);
        return wrong(p, "not a JSON value");
    }
}

const char *sl_json_after_mark(const char *text, size_t *length)
{
    bool marked = *length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0;
    *length -= marked ? 3 : 0;
    return marked ? text + 3 : text;
}

sl_status sl_json_parse(sl_region *region, const char *name, const char *text, size_t length, const sl_json **root)
{
    if (length > text_limit)
        return sl_fail(SL_E_FORMAT, "%s: %zu bytes of JSON; the limit is %zu", name, length, text_limit);
    parser p = {.region = region, .name = name, .at = text, .end = text + length, .line_start = text, .line = 1};
    sl_json *value;
    SL_TRY(sl_region_alloc(region, &value, 1, sizeof *value));
    SL_TRY(parse_value(&p, value));
    skip_spaces(&p);
    if (p.at != p.end)
        return wrong(&p, "something stands behind the end of the value");
    *root = value;
    return SL_OK;
}

/* ---- look-ups ---- */

const sl_json *sl_json_get(const sl_json *object, const char *key)
{
    if (!object || object->kind != SL_JSON_OBJECT)
        return NULL;
    for (const sl_json *member = object->child; member; member = member->next)
        if (strcmp(member->key, key) == 0)
            return member;
    return NULL;
}

static sl_status wrong_kind(const char *name, const sl_json *member, const char *want)
{
    static const char *const kinds[] = {"null", "true or false", "a number", "a string", "an array", "an object"};
    return sl_fail(SL_E_FORMAT, "%s:%d:%d: \"%.100s\" should be %s, not %s", name, member->line, member->column,
                   member->key, want, member->kind == SL_JSON_NUMBER ? "this number" : kinds[member->kind]);
}

/* The member, or NULL when absent or null. */
static const sl_json *present(const sl_json *object, const char *key)
{
    const sl_json *member = sl_json_get(object, key);
    return member && member->kind != SL_JSON_NULL ? member : NULL;
}

sl_status sl_json_i64_or(const char *name, const sl_json *object, const char *key, int64_t otherwise, int64_t *out)
{
    const sl_json *member = present(object, key);
    if (member && (member->kind != SL_JSON_NUMBER || !member->is_integer))
        return wrong_kind(name, member, "a whole number");
    *out = member ? member->integer : otherwise;
    return SL_OK;
}

sl_status sl_json_i64(const char *name, const sl_json *object, const char *key, int64_t *out)
{
    if (!sl_json_get(object, key))
        return sl_fail(SL_E_FORMAT, "%s: \"%s\" is missing; it should be a whole number", name, key);
    if (!present(object, key))
        return wrong_kind(name, sl_json_get(object, key), "a whole number");
    return sl_json_i64_or(name, object, key, 0, out);
}

sl_status sl_json_f64_or(const char *name, const sl_json *object, const char *key, double otherwise, double *out)
{
    const sl_json *member = present(object, key);
    if (member && member->kind != SL_JSON_NUMBER)
        return wrong_kind(name, member, "a number");
    *out = member ? member->number : otherwise;
    return SL_OK;
}

sl_status sl_json_bool_or(const char *name, const sl_json *object, const char *key, bool otherwise, bool *out)
{
    const sl_json *member = present(object, key);
    if (member && member->kind != SL_JSON_BOOL)
        return wrong_kind(name, member, "true or false");
    *out = member ? member->boolean : otherwise;
    return SL_OK;
}

/* A NUL inside would cut the C string silently, so such a value is the wrong kind here. */
sl_status sl_json_string_or(const char *name, const sl_json *object, const char *key, const char *otherwise,
                            const char **out)
{
    const sl_json *member = present(object, key);
    if (member && (member->kind != SL_JSON_STRING || strlen(member->string) != member->length))
        return wrong_kind(name, member, member->kind == SL_JSON_STRING ? "a string without NUL" : "a string");
    *out = member ? member->string : otherwise;
    return SL_OK;
}
