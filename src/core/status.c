/* One message per thread, in a fixed buffer: reporting "out of memory" must not need memory. */
#include "core/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MESSAGE_BYTES = 2048 };
static _Thread_local char message[MESSAGE_BYTES];

const char *sl_version(void)
{
    return SL_VERSION;
}

const char *sl_status_name(sl_status status)
{
    switch (status) {
#define X(name, text) \
    case SL_##name:   \
        return "SL_" #name;
        SL_STATUS_LIST(X)
#undef X
    }
    return "unknown status";
}

const char *sl_error_message(void)
{
    return message;
}

sl_status sl_error_set(sl_status status, const char *text)
{
    return sl_fail(status, "%s", text ? text : "");
}

/* Formatted aside first: an argument may be the current message itself. */
sl_status sl_fail(sl_status status, const char *format, ...)
{
    char fresh[MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fresh, sizeof fresh, format, arguments);
    va_end(arguments);
    memcpy(message, fresh, sizeof message);
    return status;
}

sl_status sl_fail_at(sl_status status, const char *format, ...)
{
    char fresh[MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(fresh, sizeof fresh, format, arguments);
    va_end(arguments);
    if (length < 0)
        return status;
    size_t used = SL_MIN((size_t) length, sizeof fresh - 1);
    snprintf(fresh + used, sizeof fresh - used, ": %s", message);
    memcpy(message, fresh, sizeof message);
    return status;
}

/* The one place where the library writes to stderr and stops: there is no state left to go on with. */
void sl_assert_failed(const char *cond, const char *file, int line)
{
    char text[512];
    int length = snprintf(text, sizeof text, "sluice: bug: %s does not hold at %s:%d\n", cond, file, line);
    if (length > 0 && write(STDERR_FILENO, text, SL_MIN((size_t) length, sizeof text - 1)) < 0)
        abort();
    abort();
}
