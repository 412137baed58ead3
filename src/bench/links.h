/* Copies between a device's memory and the host's: rates alone and together, and what a small one takes. */
#ifndef SL_BENCH_LINKS_H
#define SL_BENCH_LINKS_H

#include "cost/kernel_timer.h"

typedef struct sl_link_rates {
    double alone[2], both[2]; /* bytes per second towards the device, away from it */
    double latency_s;         /* of a small copy, from the event it waits for to the event behind it */
} sl_link_rates;

/* A device with this much memory in each tier. */
sl_status sl_link_open(const char *device, int threads, size_t bytes, sl_timer *timer);
/* Pieces of half that memory at most. */
sl_status sl_link_measure(sl_timer *timer, size_t piece, sl_link_rates *links);
/* One copy, the median of a few. */
sl_status sl_link_copy(sl_timer *timer, bool out, size_t bytes, double *seconds);

#endif
