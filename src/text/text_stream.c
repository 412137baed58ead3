#include "text/text_stream.h"

#include <string.h>

#include "core/mem.h"

/* Length of the character that begins at `s`; 0: it is cut off by the end of the text; -1: no UTF-8. */
static int character(const unsigned char *s, size_t length)
{
    const int bytes = s[0] < 0x80                   ? 1
                      : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
                      : (s[0] & 0xf0) == 0xe0       ? 3
                      : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                                    : -1;
    for (int i = 1; i < bytes && (size_t) i < length; i++)
        if ((s[i] & 0xc0) != 0x80)
            return -1;
    if (bytes > 1 && length > 1) { /* overlong forms, surrogates, beyond the last code point */
        const unsigned char second = s[1];
        if ((s[0] == 0xe0 && second < 0xa0) || (s[0] == 0xed && second > 0x9f) || (s[0] == 0xf0 && second < 0x90) ||
            (s[0] == 0xf4 && second > 0x8f))
            return -1;
    }
    return bytes > 0 && (size_t) bytes > length ? 0 : bytes;
}

/* Where the first stop string begins; the length where there is none. */
static size_t find_stop(sl_text_stream *s)
{
    size_t first = s->raw.length;
    for (int i = 0; i < s->n_stops; i++) {
        const size_t length = strlen(s->stops[i]);
        const char *at = s->raw.length && length ? memmem(s->raw.data, s->raw.length, s->stops[i], length) : NULL;
        if (at && (size_t) (at - s->raw.data) < first) {
            first = (size_t) (at - s->raw.data);
            s->stopped = true;
            s->by = s->stops[i];
        }
    }
    return first;
}

/* The first byte that could begin a stop string. */
static size_t find_begun(const sl_text_stream *s)
{
    size_t first = s->raw.length;
    for (int i = 0; i < s->n_stops; i++)
        for (size_t tail = SL_MIN(strlen(s->stops[i]), s->raw.length); tail > 0; tail--)
            if (memcmp(s->raw.data + s->raw.length - tail, s->stops[i], tail) == 0) {
                first = SL_MIN(first, s->raw.length - tail);
                break;
            }
    return first;
}

/* Shows the first `count` bytes of what waits, as far as they are whole characters. */
static sl_status show(sl_text_stream *s, size_t count, bool all)
{
    static const char unknown[] = "\xef\xbf\xbd";
    const size_t before = s->text.length;
    size_t at = 0;
    while (at < count) {
        const int bytes = character((const unsigned char *) s->raw.data + at, count - at);
        if (bytes == 0 && !all)
            break;
        if (bytes > 0)
            sl_text_append(&s->text, s->raw.data + at, (size_t) bytes);
        else
            sl_text_append(&s->text, unknown, sizeof unknown - 1);
        at += bytes > 0 ? (size_t) bytes : bytes < 0 ? 1 : count - at;
    }
    SL_TRY(sl_text_status(&s->text));
    if (at > 0) {
        memmove(s->raw.data, s->raw.data + at, s->raw.length - at);
        s->raw.length -= at;
    }
    return s->fn && s->text.length > before ? s->fn(s->user, s->text.data + before, s->text.length - before) : SL_OK;
}

sl_status sl_text_stream_put(sl_text_stream *s, const char *bytes, size_t length, bool last)
{
    if (s->stopped)
        return SL_OK;
    if (length)
        sl_text_append(&s->raw, bytes, length);
    SL_TRY(sl_text_status(&s->raw));
    const size_t stop = find_stop(s);
    return show(s, s->stopped || last ? stop : find_begun(s), s->stopped || last);
}

void sl_text_stream_free(sl_text_stream *s)
{
    sl_text_free(&s->text);
    sl_text_free(&s->raw);
}
