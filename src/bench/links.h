/* Copies between a device's memory and the host's: rates alone and together, and what a small one takes. */
#ifndef SL_BENCH_LINKS_H
#define SL_BENCH_LINKS_H

#include "device/device.h"

typedef struct sl_links {
    double alone[2], both[2]; /* bytes per second towards the device, away from it */
    double latency_s;         /* of a small copy, from the event it waits for to the event behind it */
} sl_links;

/* A device with this much memory in each tier. */
typedef struct sl_link_rig {
    sl_device *device;
    const sl_device_class *class;
    unsigned char *arena[SL_TIER_COUNT];
    size_t bytes;
} sl_link_rig;

sl_status sl_link_open(const char *device, int threads, size_t bytes, sl_link_rig *rig);
void sl_link_close(sl_link_rig *rig);
/* Pieces of half the rig's memory at most. */
sl_status sl_link_measure(sl_link_rig *rig, size_t piece, sl_links *links);
/* One copy, the median of a few. */
sl_status sl_link_copy(sl_link_rig *rig, bool out, size_t bytes, double *seconds);

#endif
