/* Reading the parts of a tokenizer.json. A part has a "type" and further keys. A key that nobody here reads may change ids, so it is
 * refused by name. */
#ifndef SL_TEXT_COMPONENTS_H
#define SL_TEXT_COMPONENTS_H

#include "text/internal.h"

/* The "type" of an object. `what` is the kind of part, for messages: "normalizer". */
sl_status sl_part_type(const char *name, const char *what, const sl_json *part, const char **type);
/* Every key of the object is in the list "type,prepend". */
sl_status sl_part_keys(const char *name, const char *what, const sl_json *part, const char *keys);
/* A string of the object, with its length, kept by the tokenizer. */
sl_status sl_part_string(sl_tokenizer *t, const char *name, const sl_json *part, const char *key, const char **text,
                         size_t *length);
/* {"String": s} or {"Regex": s}, or s itself. */
sl_status sl_part_pattern(sl_tokenizer *t, const char *name, const sl_json *part, const char **text, size_t *length,
                          bool *regex);
sl_status sl_part_unknown(const char *name, const char *what, const sl_json *part, const char *type, const char *known);
/* The members of an array `key`, each to `read`; the members of a Sequence. */
typedef sl_status (*sl_part_fn)(sl_tokenizer *t, const char *name, const sl_json *part);
sl_status sl_part_sequence(sl_tokenizer *t, const char *name, const char *what, const sl_json *part, const char *key,
                           sl_part_fn read);
sl_status sl_part_too_many(const char *name, const char *what);

#endif
