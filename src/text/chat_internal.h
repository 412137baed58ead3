/* Shared by the files that turn chats into text and tokens. */
#ifndef SL_TEXT_CHAT_INTERNAL_H
#define SL_TEXT_CHAT_INTERNAL_H

#include "text/chat.h"
#include "text/jinja.h"

/* Where text comes from, as the spans of a rendering name it: 0 the template, then other data, then message i at CHAT_MESSAGE + i. */
enum { CHAT_DATA = 1, CHAT_MESSAGE = 2 };

typedef struct chat_token {
    const char *name, *text; /* "bos_token", "<s>" */
} chat_token;

struct sl_chat {
    sl_region *region;
    sl_jinja *plain, *tools; /* `tools` NULL: the same */
    chat_token *tokens;
    int64_t token_count;
};

/* The template that serves a request. */
const sl_jinja *sl_chat_template(const sl_chat *chat, const sl_chat_request *request);
/* The first `count` messages of a request, in `region`. */
sl_status sl_chat_render_part(const sl_chat *chat, const sl_chat_request *request, int64_t count, bool prompt,
                              sl_region *region, sl_jinja_output *out);

/* Bytes [begin, end) of a rendering. */
typedef struct chat_range {
    size_t begin, end;
} chat_range;

/* What the loss counts of a rendering of the whole request, in ascending order, in `region`. `specials` are the places of the special
 * tokens that the template wrote, in ascending order: one of them ends a turn. */
sl_status sl_chat_ranges(const sl_chat *chat, const sl_chat_request *request, const sl_jinja_output *rendered,
                         sl_train_on train_on, const chat_range *specials, int64_t special_count, sl_region *region,
                         chat_range **ranges, int64_t *count);

#endif
