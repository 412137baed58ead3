/* Failing well. The first function that knows the cause writes the message; callers only pass the status up. */
#ifndef SL_CORE_STATUS_H
#define SL_CORE_STATUS_H

#include "sluice/sluice.h"

/* Records a message for this thread (what was needed, what there was, what to try) and returns `status`. */
sl_status sl_fail(sl_status status, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* Puts "text: " in front of the current message: for callers that know a place (a file, a key) the cause did not. */
sl_status sl_fail_at(sl_status status, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

#define SL_TRY(expr)                       \
    do {                                   \
        sl_status sl_try_status_ = (expr); \
        if (sl_try_status_ != SL_OK)       \
            return sl_try_status_;         \
    } while (0)

/* As SL_TRY, for functions with a cleanup label: sets `status` and jumps. */
#define SL_TRY_GOTO(expr, label) \
    do {                         \
        status = (expr);         \
        if (status != SL_OK)     \
            goto label;          \
    } while (0)

/* Broken invariants only: never for input, budgets or the outside world. */
#define SL_ASSERT(cond) ((cond) ? (void) 0 : sl_assert_failed(#cond, __FILE__, __LINE__))
void sl_assert_failed(const char *cond, const char *file, int line) __attribute__((noreturn, cold));

#define SL_COUNT(array) ((int64_t) (sizeof(array) / sizeof((array)[0])))
#define SL_MIN(a, b) ((a) < (b) ? (a) : (b))
#define SL_MAX(a, b) ((a) > (b) ? (a) : (b))
#define SL_ROUND_UP(x, to) (((x) + (to) -1) / (to) * (to))
#define SL_DIV_UP(x, by) (((x) + (by) -1) / (by))

#endif
