/* The two tables of filters. */
#ifndef SL_TEXT_JINJA_FILTERS_H
#define SL_TEXT_JINJA_FILTERS_H

#include "text/jinja_internal.h"

struct jinja_filter {
    const char *name;
    sl_status (*apply)(sl_jinja_run *run, const jinja_value *value, const jinja_arguments *arguments, jinja_value *out);
};

const jinja_filter *sl_jinja_find_list_filter(const char *name, size_t length);

#endif
