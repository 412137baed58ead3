/* How fast a folder's storage is: large pieces in order, small pieces anywhere, one reader and several (S5). The page
 * cache is passed by where the file system lets us (O_DIRECT), dropped where not; `direct` says which. */
#ifndef SL_BENCH_DISK_H
#define SL_BENCH_DISK_H

#include <stdbool.h>

#include "core/stats.h"
#include "core/status.h"

typedef struct sl_disk_rates {
    bool direct;
    double write_bytes_per_s, read_bytes_per_s; /* in order; writing includes the flush */
    sl_stats small_s;                           /* seconds of a 4 KiB read at random places, one reader */
    double small_per_s[3];                      /* such reads per second with 1, 4 and 16 readers */
    char kind[64];                              /* file system, and the device below it where known */
} sl_disk_rates;

/* Writes and removes a file of `bytes` in `folder`. */
sl_status sl_disk_measure(const char *folder, size_t bytes, double seconds, sl_disk_rates *rates);

#endif
