/*
 * Times launches and copies under the conditions of a step, for the planner's costs (measure.c) and for benchmarks. Sources of error
 * and their treatment:
 *
 *  - caches. In a step a launch finds its weights, saved activations and outputs in memory, and its first input, which the task
 *    before it made, in the cache. So before each run a block larger than the caches may be copied through, and on a CPU the first
 *    input is read again if it is small.
 *  - outliers. On a shared machine times have a long tail, and a step adds up hundreds of them: medians would leave the
 *    tail out. The mean is taken, with nothing above half as much again as the median.
 *  - special numbers. Kernels run faster on zeros: operands are random. Where any numbers will do they come from memory that is
 *    pre-filled with normal ones once (pairs of bf16 are normal f32 numbers too); sampling them by the op's own rule takes longer than
 *    timing.
 *  - an idle machine. An accelerator that was idle runs its first matmuls up to a fifth faster than its power limit allows in steady state.
 *    Where compute has its own cores, launches are timed after seconds of load, and each behind a few milliseconds of it.
 *  - neighbours: see links.c.
 */
#ifndef SL_COST_KERNEL_TIMER_H
#define SL_COST_KERNEL_TIMER_H

#include "device/device.h"

/* Part of the load that launches are timed behind. */
typedef struct sl_warmup {
    sl_launch launch;
    int64_t sequences; /* attention's; see sl_timer_fill */
    double share;      /* of the load's time */
    int times;         /* launches of it before each timed one; set by sl_timer_add_warmup */
} sl_warmup;
enum { SL_MOST_WARMUPS = 2 };

typedef struct sl_timer {
    sl_device *device;
    const sl_device_class *class;
    unsigned char *arena[SL_TIER_COUNT];
    size_t space;       /* of both arenas from here on: memory for copies */
    size_t clear_bytes; /* copied through it before each run, to clear the caches; 0: they stay as they are */
    bool warm_input;    /* but a small first input is in them, as in a step */
    int spread;         /* copies cycle through this many pieces of each tier and direction */
    sl_warmup warmups[SL_MOST_WARMUPS];
    int n_warmups;      /* 0: launches are timed as they are */
    double sample_rate; /* bytes of attention's operands sampled in a second, the last time */
    unsigned char *prefilled;
    size_t prefilled_bytes; /* from there on that hold any random numbers */
} sl_timer;

enum { SL_TIMER_COMMANDS = 1024, SL_TIMER_EVENTS = 64 }; /* the most a run issues by itself */

sl_status sl_timer_open(const char *device, const sl_device_config *config, sl_timer *timer);
void sl_timer_close(sl_timer *timer);

/* Places the operands one after the other from `base` on, then `workspace` bytes. */
void sl_launch_place(sl_launch *launch, unsigned char *base, size_t workspace);
size_t sl_launch_bytes(const sl_launch *launch); /* of the operands placed like that */

/* Random values that suit the op, for what the launch reads of its operands in device memory. By way of `staging`, host memory for all
 * of them, where they stay: a device's own memory need not be addressable from here. `sequences` > 0: attention packs so many. */
sl_status sl_timer_fill(sl_timer *timer, const sl_launch *launch, unsigned char *staging, int64_t sequences);

/* A placed and filled launch becomes part of the load. */
sl_status sl_timer_add_warmup(sl_timer *timer, const sl_warmup *warmup);
/* Runs the load until the clock of the device is steady. Does nothing without warmups. */
sl_status sl_timer_settle(sl_timer *timer);
/* Before a series of runs: the device was idle while operands were filled. */
sl_status sl_timer_rewarm(sl_timer *timer);

/* The launches one after the other, once, behind the load and with caches as set; seconds from the first one's start to the last one's
 * end. */
sl_status sl_timer_run(sl_timer *timer, const sl_launch *launches, int64_t count, sl_stream stream, double *seconds);
/* Repeats one launch until its time is known well. */
sl_status sl_timer_time(sl_timer *timer, const sl_launch *launch, sl_stream stream, double *seconds);

/* ---- links.c ---- */

/* The machine's figures, apart from signatures. */
typedef struct sl_measured {
    double link[SL_LINK_COUNT], link_both[SL_LINK_COUNT], latency_s, copy_slowdown, host_slowdown;
} sl_measured;
#define SL_MEASURED_FIGURES ((int) (sizeof(sl_measured) / sizeof(double)))

/* Rates and latency of copies of `piece` bytes, nothing else running. */
sl_status sl_timer_links(sl_timer *timer, size_t piece, sl_measured *measured);
/* Compute beside copies and beside host tasks (NULL: none); both launches are prepared and take load_s and host_s alone. The rates
 * of copies become those beside compute, for that is where they run. */
sl_status sl_timer_slowdowns(sl_timer *timer, const sl_launch *load, double load_s, const sl_launch *host,
                             double host_s, size_t piece, sl_measured *measured);

#endif
