/* Unicode normalization forms, by utf8proc where the build has it. Text is handed to it in spans from one character that no form
 * touches to the next; most texts have none, and are copied. */
#include "text/internal.h"
#include "text/unicode.h"

#ifdef SL_HAVE_UTF8PROC

#include <utf8proc.h>

sl_status sl_form_check(sl_form form)
{
    (void) form;
    return SL_OK;
}

static sl_status apply(sl_form form, const char *text, size_t length, sl_text *out)
{
    static const int options[] = {
        [SL_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
        [SL_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
        [SL_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [SL_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    utf8proc_option_t option = (utf8proc_option_t) options[form];
    utf8proc_int32_t few[64], *codes = few, *many = NULL;
    const utf8proc_uint8_t *bytes = (const utf8proc_uint8_t *) text;
    utf8proc_ssize_t count = utf8proc_decompose(bytes, (utf8proc_ssize_t) length, few, 64 - 1, option);
    if (count >= 64) { /* reencode wants a place for a NUL, in bytes, behind them */
        SL_TRY(sl_alloc(&many, (size_t) count + 1, sizeof *many));
        codes = many;
        count = utf8proc_decompose(bytes, (utf8proc_ssize_t) length, codes, count, option);
    }
    if (count > 0)
        count = utf8proc_reencode(codes, count, option);
    if (count > 0)
        sl_text_append(out, (const char *) codes, (size_t) count);
    sl_free(many);
    return count < 0 ? sl_fail(SL_E_FORMAT, "a text cannot be normalized: %s", utf8proc_errmsg(count)) : SL_OK;
}

/* One span for NFC: a character that stays and the marks behind it. Marks alone, one at a time, change nothing. */
static sl_status apply_span(const sl_classes *classes, const char *begin, const char *end, sl_text *out)
{
    unsigned before = 0;
    for (const char *at = begin; at < end;) {
        unsigned flags = sl_class_of(classes, sl_utf8_next(&at));
        if ((flags & SL_UNICODE_COMPOSES) || (flags & before & SL_UNICODE_COMBINES))
            return apply(SL_NFC, begin, (size_t) (end - begin), out);
        before = flags;
    }
    sl_text_append(out, begin, (size_t) (end - begin));
    return SL_OK;
}

static sl_status apply_nfc(const char *text, size_t length, sl_text *out)
{
    const sl_classes *classes = sl_unicode_table();
    const char *end = text + length, *copied = text, *base = text, *at = text;
    while (at < end) {
        const char *here = at;
        if (!(sl_class_of(classes, sl_utf8_next(&at)) & (SL_UNICODE_COMPOSES | SL_UNICODE_COMBINES))) {
            base = here;
            continue;
        }
        const char *stop = at;
        while (stop < end) {
            const char *behind = stop;
            if (!(sl_class_of(classes, sl_utf8_next(&behind)) & (SL_UNICODE_COMPOSES | SL_UNICODE_COMBINES)))
                break;
            stop = behind;
        }
        sl_text_append(out, copied, (size_t) (base - copied));
        SL_TRY(apply_span(classes, base, stop, out));
        copied = base = at = stop;
    }
    sl_text_append(out, copied, (size_t) (end - copied));
    return sl_text_status(out);
}

sl_status sl_form_apply(sl_form form, const char *text, size_t length, sl_text *out)
{
    if (form == SL_NFC)
        return apply_nfc(text, length, out);
    SL_TRY(apply(form, text, length, out));
    return sl_text_status(out);
}

sl_status sl_lower_apply(const char *text, size_t length, sl_text *out)
{
    const char *end = text + length;
    while (text < end) {
        char bytes[8];
        uint32_t code = sl_utf8_next(&text);
        if (code == 0x130) { /* the one letter whose lower case has two characters */
            sl_text_append(out, "i\xcc\x87", 3);
            continue;
        }
        int count = sl_utf8_put(code < 0x80 ? code + (code >= 'A' && code <= 'Z' ? 32 : 0)
                                            : (uint32_t) utf8proc_tolower((utf8proc_int32_t) code),
                                bytes);
        sl_text_append(out, bytes, (size_t) count);
    }
    return sl_text_status(out);
}

#else

sl_status sl_form_check(sl_form form)
{
    (void) form;
    return sl_fail(SL_E_UNSUPPORTED, "the normalizer needs utf8proc, which this build does not have: install "
                                     "libutf8proc-dev and build again");
}

sl_status sl_form_apply(sl_form form, const char *text, size_t length, sl_text *out)
{
    (void) text, (void) length, (void) out;
    return sl_form_check(form);
}

sl_status sl_lower_apply(const char *text, size_t length, sl_text *out)
{
    (void) text, (void) length, (void) out;
    return sl_form_check(SL_NFC);
}

#endif
