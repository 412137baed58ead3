#include "core/clock.h"

#include <time.h>

int64_t sl_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t) now.tv_sec * 1000000000 + now.tv_nsec;
}

double sl_clock_s(void)
{
    return (double) sl_clock_ns() * 1e-9;
}

void sl_clock_utc(char out[32])
{
    time_t now = time(NULL);
    struct tm parts;
    gmtime_r(&now, &parts);
    strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &parts);
}
