/* Log lines for people. The library hands them to the callback of sl_log_set(); it never prints. */
#ifndef SL_CORE_LOG_H
#define SL_CORE_LOG_H

#include "sluice/sluice.h"

void sl_log(sl_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define sl_info(...) sl_log(SL_LOG_INFO, __VA_ARGS__)
#define sl_warn(...) sl_log(SL_LOG_WARN, __VA_ARGS__)
#define sl_debug(...) sl_log(SL_LOG_DEBUG, __VA_ARGS__)

#endif
