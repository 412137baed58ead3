/* Template source to tokens, with the whitespace rules of Jinja2 under trim_blocks and lstrip_blocks:
 *
 *     text {%- tag -%} text       '-' strips all white space on its side
 *     ____{% tag %}\n             white space from the start of the line and the newline behind belong to the tag
 *     {{ value }}\n               nothing is stripped around values
 *
 * Newlines become \n, and one newline at the end of the source is dropped. */
#include <string.h>

#include "text/jinja_internal.h"

static sl_status lex_fail(const jinja_lexer *x, const char *what)
{
    return sl_fail(SL_E_FORMAT, "%s:%d: %s", x->name, x->line, what);
}

sl_status sl_jinja_lexer_begin(jinja_lexer *x, sl_region *region, const char *name, const char *source, size_t length)
{
    *x = (jinja_lexer){.region = region, .name = name, .line = 1, .line_start = true};
    char *copy;
    SL_TRY(sl_region_alloc(region, &copy, length + 1, 1));
    size_t count = 0;
    const char *end = source + length;
    for (const char *at = source; at < end;) {
        int bytes = sl_utf8_length(at, end);
        if (bytes == 0 || *at == 0)
            return lex_fail(x, "the template is not UTF-8 text");
        bool pair = *at == '\r' && at + 1 < end && at[1] == '\n';
        if (*at == '\r')
            copy[count++] = '\n';
        else
            for (int i = 0; i < bytes; i++)
                copy[count++] = at[i];
        x->line += *at == '\n' || *at == '\r';
        at += bytes + pair;
    }
    if (count > 0 && copy[count - 1] == '\n')
        count--;
    copy[count] = 0;
    x->line = 1;
    x->at = copy;
    x->end = copy + count;
    return SL_OK;
}

/* ---- text between tags ---- */

static void skip(jinja_lexer *x, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        x->line += x->at[i] == '\n';
    x->at += bytes;
}

static void skip_spaces(jinja_lexer *x)
{
    for (int bytes; (bytes = sl_jinja_space(x->at, x->end)) > 0;)
        skip(x, (size_t) bytes);
}

static bool starts(const char *at, const char *end, const char *word)
{
    size_t length = strlen(word);
    return (size_t) (end - at) >= length && memcmp(at, word, length) == 0;
}

/* Behind the closing bracket of a tag, which '-' or '+' came before, or 0. */
static void end_tag(jinja_lexer *x, char sign, bool trims)
{
    const char *from = x->at;
    if (sign == '-')
        skip_spaces(x);
    else if (sign != '+' && trims && x->at < x->end && *x->at == '\n')
        skip(x, 1);
    x->line_start = x->at > from && x->at[-1] == '\n';
}

/* The part of the text [from, to) that stays before a tag with this sign; `strips`: the tag takes the white space of its line. */
static const char *text_end(const jinja_lexer *x, const char *from, const char *to, char sign, bool strips)
{
    if (sign == '-') {
        const char *last = from; /* behind the last character that is no space */
        for (const char *at = from; at < to;) {
            int bytes = sl_jinja_space(at, to);
            at += bytes ? bytes : sl_utf8_length(at, to);
            if (!bytes)
                last = at;
        }
        return last;
    }
    if (sign == '+' || !strips)
        return to;
    const char *line = to;
    while (line > from && line[-1] != '\n')
        line--;
    if (line == from && !x->line_start)
        return to;
    for (const char *at = line; at < to;) {
        int bytes = sl_jinja_space(at, to);
        if (!bytes)
            return to;
        at += bytes;
    }
    return line;
}

static char sign_at(const char *at, const char *end)
{
    return at < end && (*at == '-' || *at == '+') ? *at : 0;
}

static sl_status skip_comment(jinja_lexer *x)
{
    skip(x, 2);
    if (sign_at(x->at, x->end))
        skip(x, 1);
    const char *body = x->at;
    for (const char *at = body; at < x->end; at++) {
        if (!starts(at, x->end, "#}"))
            continue;
        char sign = at > body ? sign_at(at - 1, x->end) : 0;
        skip(x, (size_t) (at - body) + 2);
        end_tag(x, sign, true);
        return SL_OK;
    }
    return lex_fail(x, "a comment '{#' has no end '#}'");
}

/* Behind "{%" at `at`: white space, the word, and the end of the tag. Returns behind it and sets the sign of the end; NULL: something
 * else is there. */
static const char *word_tag(const char *at, const char *end, const char *word, char *sign)
{
    at += 2;
    at += sign_at(at, end) != 0;
    for (int bytes; (bytes = sl_jinja_space(at, end)) > 0;)
        at += bytes;
    if (!starts(at, end, word))
        return NULL;
    at += strlen(word);
    for (int bytes; (bytes = sl_jinja_space(at, end)) > 0;)
        at += bytes;
    *sign = sign_at(at, end);
    at += *sign != 0;
    return starts(at, end, "%}") ? at + 2 : NULL;
}

/* {% raw %} text {% endraw %}: sets the text. */
static sl_status take_raw(jinja_lexer *x, const char *body, char sign, jinja_token *token)
{
    skip(x, (size_t) (body - x->at));
    end_tag(x, sign, false);
    const char *from = x->at;
    for (const char *at = from; at < x->end; at++) {
        const char *behind;
        if (!starts(at, x->end, "{%") || !(behind = word_tag(at, x->end, "endraw", &sign)))
            continue;
        token->text = from;
        token->length = (size_t) (text_end(x, from, at, sign_at(at + 2, x->end), true) - from);
        skip(x, (size_t) (behind - from));
        end_tag(x, sign, true);
        return SL_OK;
    }
    return lex_fail(x, "{% raw %} has no {% endraw %}");
}

/* The next piece of text, which may be empty, or the start of a tag. */
static sl_status next_text(jinja_lexer *x, jinja_token *token)
{
    const char *from = x->at, *at = from;
    while (at < x->end && !(*at == '{' && at + 1 < x->end && strchr("{%#", at[1])))
        at++;
    token->kind = JT_TEXT;
    if (at == x->end) {
        token->text = from;
        token->length = (size_t) (at - from);
        skip(x, token->length);
        if (token->length == 0)
            token->kind = JT_END;
        return SL_OK;
    }
    const char *keep = text_end(x, from, at, sign_at(at + 2, x->end), at[1] != '{');
    token->text = from;
    token->length = (size_t) (keep - from);
    skip(x, (size_t) (at - from));
    if (token->length > 0) { /* the tag comes with the next call, where nothing is left to strip before it */
        x->line_start = false;
        return SL_OK;
    }
    char sign;
    const char *raw;
    if (at[1] == '#')
        return skip_comment(x);
    if (at[1] == '%' && (raw = word_tag(at, x->end, "raw", &sign)) != NULL)
        return take_raw(x, raw, sign, token);
    token->kind = at[1] == '{' ? JT_PRINT_BEGIN : JT_BLOCK_BEGIN;
    x->state = at[1] == '{' ? JL_PRINT : JL_BLOCK;
    skip(x, sign_at(at + 2, x->end) ? 3 : 2);
    return SL_OK;
}

/* ---- inside tags ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char) c >= 0x80;
}

static sl_status copy_text(const jinja_lexer *x, const char *at, size_t length, jinja_token *token)
{
    char *copy;
    SL_TRY(sl_region_alloc(x->region, &copy, length + 1, 1));
    memcpy(copy, at, length);
    token->text = copy;
    token->length = length;
    return SL_OK;
}

/* Digits, which single underscores may divide. */
static void take_digits(jinja_lexer *x, char *out, size_t size, size_t *count)
{
    for (; x->at < x->end && (is_digit(*x->at) || (*x->at == '_' && x->at + 1 < x->end && is_digit(x->at[1]))); x->at++)
        if (*x->at != '_' && *count + 1 < size)
            out[(*count)++] = *x->at;
}

static sl_status take_number(jinja_lexer *x, bool after_dot, jinja_token *token)
{
    char text[64];
    size_t count = 0;
    token->kind = JT_INT;
    take_digits(x, text, sizeof text, &count);
    if (!after_dot && x->at + 1 < x->end && *x->at == '.' && is_digit(x->at[1])) {
        token->kind = JT_FLOAT;
        text[count++] = *x->at++;
        take_digits(x, text, sizeof text, &count);
    }
    const char *e = x->at;
    if (!after_dot && e + 1 < x->end && (*e == 'e' || *e == 'E')) {
        const char *digits = e + 1 + (e[1] == '+' || e[1] == '-');
        if (digits < x->end && is_digit(*digits) && count + 4 < sizeof text) {
            token->kind = JT_FLOAT;
            while (x->at < digits)
                text[count++] = *x->at++;
            take_digits(x, text, sizeof text, &count);
        }
    }
    text[SL_MIN(count, sizeof text - 1)] = 0;
    if (count + 4 >= sizeof text)
        return lex_fail(x, "a number has more digits than fit");
    if (token->kind == JT_FLOAT)
        return sl_parse_f64(text, &token->number) == SL_OK ? SL_OK : lex_fail(x, "a number is out of range");
    token->integer = 0;
    for (const char *at = text; *at; at++)
        if (__builtin_mul_overflow(token->integer, 10, &token->integer) ||
            __builtin_add_overflow(token->integer, *at - '0', &token->integer))
            return lex_fail(x, "an integer does not fit 64 bits");
    return SL_OK;
}

static int put_utf8(char *out, uint32_t c)
{
    int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char lead[4] = {0, 0xc0, 0xe0, 0xf0};
    for (int i = more; i > 0; i--, c >>= 6)
        out[i] = (char) (0x80 | (c & 0x3f));
    out[0] = (char) (lead[more] | c);
    return more + 1;
}

/* Behind a backslash, as Python's unicode_escape reads it; an unknown escape stays as it is. */
static sl_status take_escape(jinja_lexer *x, char *out, size_t *length)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = *x->at++;
    const char *found = strchr(from, c);
    int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (c == '\n') {
        x->line++;
    } else if (found) {
        out[(*length)++] = to[found - from];
    } else if (digits > 0 || (c >= '0' && c <= '7')) {
        uint32_t code = 0;
        int base = digits ? 16 : 8;
        if (!digits)
            x->at--, digits = -3;
        for (int i = 0; i < (digits < 0 ? 3 : digits); i++, x->at++) {
            char d = x->at < x->end ? *x->at : 0;
            int value = is_digit(d) ? d - '0' : (d | 32) >= 'a' && (d | 32) <= 'f' ? (d | 32) - 'a' + 10 : 99;
            if (value >= base && digits < 0)
                break;
            if (value >= base)
                return lex_fail(x, "an escape in a string lacks hexadecimal digits");
            code = code * (uint32_t) base + (uint32_t) value;
        }
        if (code == 0 || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
            return lex_fail(x, "an escape in a string names no character");
        *length += (size_t) put_utf8(out + *length, code);
    } else {
        out[(*length)++] = '\\';
        x->at--;
    }
    return SL_OK;
}

static sl_status take_string(jinja_lexer *x, jinja_token *token)
{
    char quote = *x->at++, *copy;
    const char *end = x->at;
    while (end < x->end && *end != quote)
        end += *end == '\\' && end + 1 < x->end ? 2 : 1;
    if (end >= x->end)
        return lex_fail(x, "a string has no end");
    /* An escape is at least as long as what it means, but for \N with two digits: four bytes of escape for two of text. */
    SL_TRY(sl_region_alloc(x->region, &copy, (size_t) (end - x->at) + 1, 1));
    size_t length = 0;
    while (x->at < end) {
        x->line += *x->at == '\n';
        if (*x->at == '\\') {
            x->at++;
            SL_TRY(take_escape(x, copy, &length));
        } else {
            copy[length++] = *x->at++;
        }
    }
    x->at = end + 1;
    token->kind = JT_STRING;
    token->text = copy;
    token->length = length;
    return SL_OK;
}

static sl_status take_operator(jinja_lexer *x, jinja_token *token)
{
    static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                            "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (int64_t i = 0; i < SL_COUNT(operators); i++) {
        const char *text = operators[i];
        if (!starts(x->at, x->end, text))
            continue;
        const char *opens = strchr("([{", text[0]), *closes = strchr(")]}", text[0]);
        if (opens && x->open == (int) sizeof x->closers)
            return lex_fail(x, "brackets are nested too deeply");
        if (opens)
            x->closers[x->open++] = ")]}"[opens - "([{"];
        else if (closes && (x->open == 0 || x->closers[--x->open] != text[0]))
            return lex_fail(x, "a bracket closes that is not open");
        x->at += strlen(text);
        token->kind = JT_OPERATOR;
        token->text = text;
        token->length = strlen(text);
        return SL_OK;
    }
    return lex_fail(x, "a character that belongs to no expression");
}

/* Whether the tag ends here; reads its end. */
static bool take_end(jinja_lexer *x, jinja_token *token)
{
    const char *bracket = x->state == JL_PRINT ? "}}" : "%}";
    char sign = x->at < x->end && (*x->at == '-' || (*x->at == '+' && x->state == JL_BLOCK)) ? *x->at : 0;
    if (x->open > 0 || !starts(x->at + (sign != 0), x->end, bracket))
        return false;
    token->kind = x->state == JL_PRINT ? JT_PRINT_END : JT_BLOCK_END;
    skip(x, sign ? 3 : 2);
    end_tag(x, sign, x->state == JL_BLOCK);
    x->state = JL_TEXT;
    return true;
}

sl_status sl_jinja_next(jinja_lexer *x, jinja_token *token)
{
    *token = (jinja_token){.line = x->line};
    while (x->state == JL_TEXT) {
        SL_TRY(next_text(x, token));
        if (token->kind != JT_TEXT || token->length > 0)
            return SL_OK;
        token->line = x->line; /* a comment, or nothing was left of the text */
    }
    bool after_dot = x->at[-1] == '.';
    skip_spaces(x);
    token->line = x->line;
    if (x->at >= x->end)
        return lex_fail(x, x->state == JL_PRINT ? "'{{' has no end '}}'" : "'{%' has no end '%}'");
    if (take_end(x, token))
        return SL_OK;
    if (*x->at == '\'' || *x->at == '"')
        return take_string(x, token);
    if (is_digit(*x->at))
        return take_number(x, after_dot, token);
    if (!is_word(*x->at))
        return take_operator(x, token);
    const char *from = x->at;
    while (x->at < x->end && is_word(*x->at))
        x->at++;
    token->kind = JT_NAME;
    return copy_text(x, from, (size_t) (x->at - from), token);
}
