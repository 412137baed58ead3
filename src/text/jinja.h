/*
 * Templates in the subset of Jinja2 that chat templates use, with the whitespace rules that transformers sets (trim_blocks,
 * lstrip_blocks). A template is read-only once parsed and may be shared by threads.
 *
 * Every byte of the output knows where it comes from: the template, or data that the caller passed. Strings carry these marks through
 * concatenation, slices, replacement and filters, so that a later reader can tell a special token that the template wrote from the
 * same characters in what a user wrote.
 *
 * A template is untrusted: it is bounded in steps, memory, output and depth, and can reach nothing but its variables.
 */
#ifndef SL_TEXT_JINJA_H
#define SL_TEXT_JINJA_H

#include "core/json.h"

typedef struct sl_jinja sl_jinja;

/* Where text comes from: 0 is the template. Else bit 0: data that a template may build special tokens of (the name of a role);
 * bit 1: written inside {% generation %}; the other bits: the number of the source, which the caller chooses (0 is the template). */
typedef uint32_t sl_jinja_mark;
enum { SL_JINJA_TRUSTED = 1, SL_JINJA_GENERATED = 2, SL_JINJA_SOURCE_SHIFT = 2 };

static inline uint32_t sl_jinja_source(sl_jinja_mark mark)
{
    return mark >> SL_JINJA_SOURCE_SHIFT;
}

/* Bytes from the end of the span before it to `end`. Neighbours differ in their marks. */
typedef struct sl_jinja_span {
    size_t end;
    sl_jinja_mark mark;
} sl_jinja_span;

typedef struct sl_jinja_output {
    const char *text; /* NUL-terminated */
    size_t length;
    const sl_jinja_span *spans;
    int64_t span_count;
} sl_jinja_output;

/* The source is copied. `name` is for messages. */
sl_status sl_jinja_parse(const char *name, const char *source, size_t length, sl_jinja **template_);
void sl_jinja_destroy(sl_jinja *template_);
/* Whether the template has {% generation %} blocks. */
bool sl_jinja_has_generation(const sl_jinja *template_);

typedef struct sl_jinja_run sl_jinja_run; /* one rendering */
typedef struct jinja_value sl_jinja_value;

/* The output and all values live in `region`, and so must the JSON that variables are made of. `time` is what strftime_now reports, in
 * seconds since 1970 in UTC. */
sl_status sl_jinja_begin(const sl_jinja *template_, sl_region *region, int64_t time, sl_jinja_run **run);
sl_status sl_jinja_set_json(sl_jinja_run *run, const char *name, const sl_json *value, sl_jinja_mark mark);
sl_status sl_jinja_set_string(sl_jinja_run *run, const char *name, const char *value, sl_jinja_mark mark);
sl_status sl_jinja_set_bool(sl_jinja_run *run, const char *name, bool value);
sl_status sl_jinja_set_none(sl_jinja_run *run, const char *name);
/* The messages of a chat as the variable `messages`: the source of message i is `first_source` + i, and the name of its role is trusted
 * where it is made of letters, digits and underscores. */
sl_status sl_jinja_set_messages(sl_jinja_run *run, const sl_json *messages, int64_t count, uint32_t first_source);
sl_status sl_jinja_finish(sl_jinja_run *run, sl_jinja_output *out);

#endif
