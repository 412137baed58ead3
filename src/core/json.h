/* JSON, read strictly (RFC 8259, UTF-8 checked, depth and size limited, duplicate keys refused) and written compactly or indented.
 * The reader builds a tree inside a region, so a hostile file costs at most a bounded multiple of its own size. */
#ifndef SL_CORE_JSON_H
#define SL_CORE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/mem.h"
#include "core/text.h"

typedef enum sl_json_kind {
    SL_JSON_NULL,
    SL_JSON_BOOL,
    SL_JSON_NUMBER,
    SL_JSON_STRING,
    SL_JSON_ARRAY,
    SL_JSON_OBJECT
} sl_json_kind;

typedef struct sl_json sl_json;
struct sl_json {
    sl_json_kind kind;
    bool boolean;
    bool is_integer; /* the number was written without fraction or exponent and fits int64 */
    int64_t integer;
    double number;
    const char *string; /* NUL-terminated; `length` counts bytes (strings may hold \u0000) */
    size_t length;
    const char *key;             /* member name when inside an object */
    const sl_json *child, *next; /* first element or member; next sibling */
    int64_t count;               /* elements or members */
    int line, column;            /* where it stands, for messages */
};

/* `name` is the file's, for messages ("config.json:12:7: ..."). The tree lives in `region`. */
sl_status sl_json_parse(sl_region *region, const char *name, const char *text, size_t length, const sl_json **root);
/* The text after a UTF-8 byte-order mark, where it has one. RFC 8259 forbids writing one, and some editors do: for files that people
 * edit. */
const char *sl_json_after_mark(const char *text, size_t *length);
const sl_json *sl_json_get(const sl_json *object, const char *key); /* NULL when absent or not an object */

/* Typed look-ups of an object's member with messages that name file and key. The *_or forms return `otherwise` when
 * absent (or null); a member of the wrong kind is always an error. */
sl_status sl_json_i64(const char *name, const sl_json *object, const char *key, int64_t *out);
sl_status sl_json_i64_or(const char *name, const sl_json *object, const char *key, int64_t otherwise, int64_t *out);
sl_status sl_json_f64_or(const char *name, const sl_json *object, const char *key, double otherwise, double *out);
sl_status sl_json_bool_or(const char *name, const sl_json *object, const char *key, bool otherwise, bool *out);
sl_status sl_json_string_or(const char *name, const sl_json *object, const char *key, const char *otherwise,
                            const char **out);

/* Writer: commas and quoting are its business. NaN and infinities are written as null. */
typedef struct sl_json_writer {
    sl_text text;
    int depth;
    bool need_comma;
    bool indent; /* a line for each value: for files that people edit */
} sl_json_writer;
void sl_json_begin_object(sl_json_writer *w,
                          const char *key); /* key NULL at top level and inside arrays, here and below */
void sl_json_end_object(sl_json_writer *w);
void sl_json_begin_array(sl_json_writer *w, const char *key);
void sl_json_end_array(sl_json_writer *w);
void sl_json_put_i64(sl_json_writer *w, const char *key, int64_t value);
void sl_json_put_bytes(sl_json_writer *w, const char *key, size_t bytes); /* SIZE_MAX, not limited: null */
void sl_json_put_f64(sl_json_writer *w, const char *key, double value);   /* shortest form that reads back the same */
/* The same, never as an integer: 30.0, for readers that tell them apart. */
void sl_json_put_real(sl_json_writer *w, const char *key, double value);
void sl_json_put_bool(sl_json_writer *w, const char *key, bool value);
void sl_json_put_string(sl_json_writer *w, const char *key, const char *value);
void sl_json_put_text(sl_json_writer *w, const char *key, const char *value, size_t length); /* may have NULs */
void sl_json_put_null(sl_json_writer *w, const char *key);
void sl_json_put_value(sl_json_writer *w, const char *key,
                       const sl_json *value); /* one that was read, with all it holds */

#endif
