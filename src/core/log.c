/* Lines are formatted outside the lock and handed over inside it, so a callback sees whole lines, one at a time, and
 * once sl_log_set returns the old one is never called again. A callback must not log itself. */
#include "core/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sl_log_fn sink;
static void *sink_user;
static atomic_int least_level = SL_LOG_ERROR + 1; /* above all: silence */

void sl_log_set(sl_log_fn fn, void *user, sl_log_level least)
{
    pthread_mutex_lock(&lock);
    sink = fn;
    sink_user = user;
    atomic_store(&least_level, fn ? (int) least : SL_LOG_ERROR + 1);
    pthread_mutex_unlock(&lock);
}

void sl_log(sl_log_level level, const char *format, ...)
{
    if ((int) level < atomic_load_explicit(&least_level, memory_order_relaxed))
        return;
    char line[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&lock);
    if (sink && (int) level >= atomic_load(&least_level))
        sink(sink_user, level, line);
    pthread_mutex_unlock(&lock);
}
