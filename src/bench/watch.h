/*
 * A device looked over the shoulder: passes every call of the contract on to another device and counts. So what a step
 * really asks of a device is known whatever device it is: launches, copies, and calls that make the host wait (S11).
 */
#ifndef SL_BENCH_WATCH_H
#define SL_BENCH_WATCH_H

#include "device/device.h"

typedef struct sl_watch {
    sl_device base; /* what callers hold */
    sl_device *device;
    bool hide_spans;  /* commands are issued without timing */
    bool hide_replay; /* every step is issued command by command, so that each has a time of its own */
    bool in_step;
    uint64_t fresh; /* lists shown to the device so far while replay is hidden */
    int64_t steps, launches, copies, waits, replays;
    int64_t explicit_syncs; /* step_end: one per step */
    int64_t implicit_syncs; /* reads, writes and ends of a step where none belongs */
} sl_watch;

/* `device` stays the caller's and outlives the watch. */
void sl_watch_open(sl_watch *watch, sl_device *device);
void sl_watch_reset(sl_watch *watch); /* counters to zero */

#endif
