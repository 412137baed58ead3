/*
 * One pass over the text, a table look-up for each character. A general engine tries the alternatives one after the other and goes
 * back; these patterns need neither, because the class of the first character or two decides the alternative. Every lexer follows its
 * pattern's order of alternatives, which stands above it. Which text belongs to which lexer is said by the table at the end: a pattern
 * that differs in one character is another pattern.
 */
#include "text/lexers.h"

#include <string.h>

#include "text/unicode.h"

/* ---- characters ---- */

/* The bit of the class of the character at `at`; moves behind it. */
static inline unsigned take(const sl_classes *classes, const char **at, uint32_t *code)
{
    *code = sl_utf8_next(at);
    return 1u << (sl_class_of(classes, *code) & SL_CLASS_MASK);
}

static inline unsigned look(const sl_classes *classes, const char *at)
{
    uint32_t code;
    return take(classes, &at, &code);
}

static inline const char *run_of(const sl_classes *classes, const char *at, const char *end, unsigned set)
{
    while (at < end) {
        const char *behind = at;
        uint32_t code;
        if (!(take(classes, &behind, &code) & set))
            break;
        at = behind;
    }
    return at;
}

static inline bool is_break(char c)
{
    return c == '\r' || c == '\n';
}

/* 's 't 're 've 'm 'll 'd at `at`: its bytes, or 0. Without case, U+017F is an s too. */
static inline int contraction(const char *at, const char *end, bool any_case)
{
    if (end - at < 2 || *at != '\'')
        return 0;
    char fold = any_case ? 0x20 : 0;
    char a = (char) (at[1] | fold), b = end - at > 2 ? (char) (at[2] | fold) : '\0';
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l'))
        return 3;
    return any_case && end - at > 2 && (unsigned char) at[1] == 0xc5 && (unsigned char) at[2] == 0xbf ? 3 : 0;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ where \s stands at `at`: through the last line break; else all but the last character, which the next word
 * takes, unless it is the only one or nothing follows. With `whole_end`, \s++$ comes first. Without `breaks`, \s*[\r\n]+ is not there. */
static inline const char *spaces(const sl_classes *classes, const char *at, const char *end, bool breaks,
                                 bool whole_end)
{
    const char *last = at, *line = NULL, *p = at;
    while (p < end) {
        const char *behind = p;
        uint32_t code;
        if (!(take(classes, &behind, &code) & SL_SET_SPACE))
            break;
        last = p;
        p = behind;
        if (breaks && (code == '\r' || code == '\n'))
            line = p;
    }
    if (whole_end && p == end)
        return end;
    if (line)
        return line;
    return p == end || last == at ? p : last;
}

/* ---- GPT-2 ---- */

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static const char *lex_gpt2(const sl_classes *classes, const char *at, const char *end, bool *matched)
{
    *matched = true;
    int bytes = contraction(at, end, false);
    if (bytes)
        return at + bytes;
    const char *word = at;
    if (*at == ' ' && at + 1 < end && !(look(classes, at + 1) & SL_SET_SPACE))
        word++;
    unsigned bit = look(classes, word);
    if (bit & SL_SET_SPACE)
        return spaces(classes, at, end, false, false);
    if (bit & SL_SET_L)
        return run_of(classes, word, end, SL_SET_L);
    return run_of(classes, word, end, bit & SL_SET_N ? SL_SET_N : ~(SL_SET_SPACE | SL_SET_L | SL_SET_N));
}

/* tiktoken's form of it has \s++$ before \s+(?!\S), which changes nothing: both take a run that ends the text whole. */

/* ---- cl100k and what follows it ---- */

typedef struct style {
    unsigned word;     /* the classes of words */
    int digits;        /* most in one piece */
    bool slash;        /* / may follow punctuation, as line breaks may */
    bool contractions; /* cl100k: alternatives of their own, first; o200k: at the end of words */
    bool whole_end;    /* \s++$ stands before \s*[\r\n]: white space that ends the text is one piece */
} style;

static inline const char *digits_of(const sl_classes *classes, const char *at, const char *end, int most)
{
    for (int i = 0; i < most && at < end && (look(classes, at) & SL_SET_N); i++)
        sl_utf8_next(&at);
    return at;
}

/* \p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ where no word begins at `at`. */
static inline const char *lex_other(const sl_classes *classes, const char *at, const char *end, style s)
{
    unsigned bit = look(classes, at), other = ~(SL_SET_SPACE | s.word | SL_SET_L | SL_SET_N);
    if (bit & SL_SET_N)
        return digits_of(classes, at, end, s.digits);
    const char *mark = *at == ' ' ? at + 1 : at;
    if (mark < end && (look(classes, mark) & other)) {
        mark = run_of(classes, mark, end, other);
        while (mark < end && (is_break(*mark) || (s.slash && *mark == '/')))
            mark++;
        return mark;
    }
    return spaces(classes, at, end, true, s.whole_end);
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|... */
static inline const char *lex_cl100k_like(const sl_classes *classes, const char *at, const char *end, style s)
{
    const char *behind = at;
    uint32_t code;
    int bytes = contraction(at, end, true);
    if (bytes)
        return at + bytes;
    unsigned bit = take(classes, &behind, &code);
    if (bit & s.word)
        return run_of(classes, behind, end, s.word);
    if (!(bit & (SL_SET_L | SL_SET_N)) && code != '\r' && code != '\n' && behind < end &&
        (look(classes, behind) & s.word))
        return run_of(classes, behind, end, s.word);
    return lex_other(classes, at, end, s);
}

/* [^\r\n\p{L}\p{N}]?U*W+ or [^\r\n\p{L}\p{N}]?U+W*, where U is upper case, W lower case, and what has no case is both: the word at `at`
 * without what may stand before it; `at` if there is none. *strict: by the first of the two. */
static inline const char *cased_word(const sl_classes *classes, const char *at, const char *end, bool *strict)
{
    const char *upper = at, *both = NULL;
    *strict = true;
    while (upper < end) {
        const char *behind = upper;
        uint32_t code;
        unsigned bit = take(classes, &behind, &code);
        if (!(bit & SL_SET_UPPER))
            break;
        upper = behind;
        if (bit & SL_SET_LOWER)
            both = behind;
    }
    const char *lower = run_of(classes, upper, end, SL_SET_LOWER);
    if (lower > upper)
        return lower;
    if (both) /* U* gives back characters until W+ has one */
        return both;
    *strict = false;
    return upper;
}

static inline const char *lex_o200k_like(const sl_classes *classes, const char *at, const char *end, style s)
{
    const char *behind = at, *stop;
    uint32_t code;
    unsigned bit = take(classes, &behind, &code);
    bool lead = !(bit & (SL_SET_L | SL_SET_N)) && code != '\r' && code != '\n', strict = false;
    const char *word = lead ? behind : at;
    stop = word < end ? cased_word(classes, word, end, &strict) : word;
    if (lead && (stop == word || !strict) && (bit & SL_SET_M)) {
        strict = true; /* a mark that leads no word is one itself */
        stop = behind;
    }
    if (stop == at || (lead && stop == word && !strict))
        return lex_other(classes, at, end, s);
    return s.contractions ? stop + contraction(stop, end, true) : stop;
}

#define LEXER(name, like, ...)                                                                         \
    static const char *name(const sl_classes *classes, const char *at, const char *end, bool *matched) \
    {                                                                                                  \
        static const style s = {__VA_ARGS__};                                                          \
        *matched = true;                                                                               \
        return like(classes, at, end, s);                                                              \
    }
LEXER(lex_cl100k, lex_cl100k_like, SL_SET_L, 3, false, true, false)
LEXER(lex_cl100k_end, lex_cl100k_like, SL_SET_L, 3, false, true, true)
LEXER(lex_qwen2, lex_cl100k_like, SL_SET_L, 1, false, true, false)
LEXER(lex_qwen3_5, lex_cl100k_like, SL_SET_L | SL_SET_M, 1, false, true, false)
LEXER(lex_o200k, lex_o200k_like, 0, 3, true, true, false)
LEXER(lex_tekken, lex_o200k_like, 0, 1, true, false, false)

/* ---- DeepSeek: three splits, one behind the other ---- */

/* \p{N}{1,3} */
static const char *lex_digits3(const sl_classes *classes, const char *at, const char *end, bool *matched)
{
    const char *stop = digits_of(classes, at, end, 3);
    *matched = stop > at;
    return *matched ? stop : run_of(classes, at, end, ~SL_SET_N);
}

/* [一-龥぀-ゟ゠-ヿ]+ */
static const char *lex_han_kana(const sl_classes *classes, const char *at, const char *end, bool *matched)
{
    (void) classes;
    const char *p = at;
    while (p < end) {
        const char *behind = p;
        uint32_t code = sl_utf8_next(&behind);
        bool inside = (code >= 0x4e00 && code <= 0x9fa5) || (code >= 0x3040 && code <= 0x30ff);
        if (p == at)
            *matched = inside;
        else if (inside != *matched)
            break;
        p = behind;
    }
    return p;
}

static inline bool is_ascii_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static inline bool is_ascii_mark(char c)
{
    return c > ' ' && c < 0x7f && !is_ascii_letter(c) && !(c >= '0' && c <= '9');
}

/* [!-/:-@[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ ; NULL: none matches. */
static inline const char *match_deepseek(const sl_classes *classes, const char *at, const char *end)
{
    const char *behind = at, *p = at + 1;
    uint32_t code;
    unsigned bit = take(classes, &behind, &code), word = SL_SET_L | SL_SET_M, marks = SL_SET_P | SL_SET_S;
    if (is_ascii_mark(*at) && p < end && is_ascii_letter(*p)) {
        while (p < end && is_ascii_letter(*p))
            p++;
        return p;
    }
    if ((bit & word) ||
        (!(bit & marks) && code != '\r' && code != '\n' && behind < end && (look(classes, behind) & word)))
        return run_of(classes, behind, end, word);
    p = code == ' ' ? behind : at;
    if (p < end && (look(classes, p) & marks)) {
        p = run_of(classes, p, end, marks);
        while (p < end && is_break(*p))
            p++;
        return p;
    }
    return bit & SL_SET_SPACE ? spaces(classes, at, end, true, false) : NULL;
}

static const char *lex_deepseek(const sl_classes *classes, const char *at, const char *end, bool *matched)
{
    const char *stop = match_deepseek(classes, at, end);
    *matched = stop != NULL;
    while (!stop) {
        sl_utf8_next(&at);
        if (at == end || match_deepseek(classes, at, end))
            return at;
    }
    return stop;
}

/* ---- patterns ---- */

#define ENGLISH "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define LEAD "[^\\r\\n\\p{L}\\p{N}]?"
#define LLAMA3 ENGLISH "|" LEAD "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES

const char *const sl_pattern_gpt2 =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const char *const sl_pattern_llama3 = LLAMA3;
const char *const sl_pattern_cl100k = "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| "
                                      "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s";
const char *const sl_pattern_o200k = LEAD UPPER "*" LOWER "+" ENGLISH "?|" LEAD UPPER "+" LOWER "*" ENGLISH "?"
                                                "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES;

static const struct {
    const char *pattern;
    sl_lexer lexer;
} known[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", lex_gpt2},
    {"'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", lex_gpt2},
    {"'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s", lex_gpt2},
    {LLAMA3, lex_cl100k},
    {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| "
     "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s",
     lex_cl100k_end},
    {ENGLISH "|" LEAD "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES, lex_qwen2},
    {ENGLISH "|" LEAD "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" SPACES, lex_qwen3_5},
    {LEAD UPPER "*" LOWER "+" ENGLISH "?|" LEAD UPPER "+" LOWER "*" ENGLISH
                "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES,
     lex_o200k},
    {LEAD UPPER "*" LOWER "+|" LEAD UPPER "+" LOWER "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES, lex_tekken},
    {"\\p{N}{1,3}", lex_digits3},
    {"[一-龥\xe3\x81\x80-ゟ゠-ヿ]+", lex_han_kana},
    {"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
     "?[\\p{P}\\p{S}]+[\\r\\n]*" SPACES,
     lex_deepseek},
};

sl_lexer sl_lexer_find(const char *pattern, size_t length)
{
    for (int64_t i = 0; i < SL_COUNT(known); i++)
        if (strlen(known[i].pattern) == length && memcmp(known[i].pattern, pattern, length) == 0)
            return known[i].lexer;
    return NULL;
}
