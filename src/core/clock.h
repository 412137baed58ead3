/* Time. One monotonic clock for measurements, the wall clock only for file names and events. */
#ifndef SL_CORE_CLOCK_H
#define SL_CORE_CLOCK_H

#include <stdint.h>

int64_t sl_clock_ns(void); /* monotonic */
double sl_clock_s(void);   /* monotonic */
/* "2026-01-31T23:59:59Z" */
void sl_clock_utc(char out[32]);

#endif
