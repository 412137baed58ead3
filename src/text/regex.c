/* Split patterns that no lexer here knows go to PCRE2, where the build has it, compiled to machine code once. \p, \w and \s follow
 * Unicode as they do in tokenizers, by PCRE2's own version of it. */
#include "text/internal.h"

#ifdef SL_HAVE_PCRE2

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

struct sl_regex {
    pcre2_code *code;
};

sl_status sl_regex_create(const char *pattern, size_t length, sl_regex **regex)
{
    int error;
    PCRE2_SIZE at;
    sl_regex *r;
    if (memmem(pattern, length, "&&", 2)) /* an intersection of classes elsewhere, two characters to PCRE2 */
        return sl_fail(SL_E_UNSUPPORTED,
                       "the pattern \"%.200s\" intersects classes with &&, which PCRE2 reads as characters", pattern);
    SL_TRY(sl_alloc(&r, 1, sizeof *r));
    r->code =
        pcre2_compile((PCRE2_SPTR) pattern, length, PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &error, &at, NULL);
    if (!r->code) {
        PCRE2_UCHAR message[200];
        pcre2_get_error_message(error, message, sizeof message);
        sl_free(r);
        return sl_fail(SL_E_FORMAT, "the pattern \"%.200s\" is wrong at character %zu: %s", pattern, (size_t) at,
                       (const char *) message);
    }
    pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE); /* without it the interpreter does the same, slower */
    *regex = r;
    return SL_OK;
}

void sl_regex_destroy(sl_regex *regex)
{
    if (regex)
        pcre2_code_free(regex->code);
    sl_free(regex);
}

sl_status sl_regex_find(const sl_regex *regex, const char *text, size_t length, size_t from, bool *found, size_t *begin,
                        size_t *end)
{
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    if (!data)
        return sl_fail(SL_E_MEMORY, "no memory for a match of a split pattern");
    int count = pcre2_match(regex->code, (PCRE2_SPTR) text, length, from, PCRE2_NO_UTF_CHECK, data, NULL);
    const PCRE2_SIZE *place = pcre2_get_ovector_pointer(data);
    *found = count >= 0;
    if (*found)
        *begin = place[0], *end = place[1];
    pcre2_match_data_free(data);
    if (count < 0 && count != PCRE2_ERROR_NOMATCH)
        return sl_fail(SL_E_UNSUPPORTED, "a split pattern takes too long on this text (PCRE2 error %d)", count);
    return SL_OK;
}

#else

sl_status sl_regex_create(const char *pattern, size_t length, sl_regex **regex)
{
    (void) regex;
    return sl_fail(SL_E_UNSUPPORTED,
                   "the split pattern \"%.*s\" is none of those built in, and this build has no PCRE2: install "
                   "libpcre2-dev and build again",
                   (int) SL_MIN(length, 200), pattern);
}

void sl_regex_destroy(sl_regex *regex)
{
    (void) regex;
}

sl_status sl_regex_find(const sl_regex *regex, const char *text, size_t length, size_t from, bool *found, size_t *begin,
                        size_t *end)
{
    (void) regex, (void) text, (void) length, (void) from, (void) begin, (void) end;
    *found = false;
    return SL_OK;
}

#endif
