/*
 * A text that appears piece by piece: whole characters alone, and nothing of a stop string, so a piece that could begin one waits for what
 * follows. Bytes that are no UTF-8 become U+FFFD.
 */
#ifndef SL_TEXT_TEXT_STREAM_H
#define SL_TEXT_TEXT_STREAM_H

#include <stdbool.h>

#include "core/text.h"

typedef sl_status (*sl_text_fn)(void *user, const char *text, size_t length);

typedef struct sl_text_stream {
    const char *const *stops; /* texts that end it; they are not part of it */
    int n_stops;
    sl_text_fn fn; /* NULL: it is only gathered */
    void *user;
    sl_text text;   /* valid UTF-8: all that has been shown */
    sl_text raw;    /* what has come and is not shown */
    bool stopped;   /* by a stop string */
    const char *by; /* which */
} sl_text_stream;

/* More of the text. `last`: nothing follows, so what waited is shown. */
sl_status sl_text_stream_put(sl_text_stream *stream, const char *bytes, size_t length, bool last);
void sl_text_stream_free(sl_text_stream *stream);

#endif
