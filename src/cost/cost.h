/*
 * What a program's tasks cost on a machine. Costs come from two places with one result: the roofline of a hardware profile (roofline.c),
 * which works for machines elsewhere, and measurement (measure.c), which times each launch signature once on random data.
 *
 *   signature.c      which launches cost the same, and which times follow from those of others
 *   representative.c which signatures are measured for others
 *   kernel_timer.c   one launch timed on a device, as it would run inside a step; benchmarks use it too
 *   links.c          copies, and what runs beside what
 *   cache.c          measured costs on file
 */
#ifndef SL_COST_COST_H
#define SL_COST_COST_H

#include "device/device.h"
#include "program/program.h"

/* Costs of a program on a machine: seconds per launch signature, links, workspaces. */
typedef struct sl_costs {
    double *device_s;                 /* by signature: on the device's compute stream */
    double *host_s;                   /* by signature: beside host memory; infinity where not possible */
    size_t *workspace[SL_TIER_COUNT]; /* by signature */
    int32_t n_signatures;
    double link_bytes_per_s[SL_LINK_COUNT];      /* while the opposite one is idle */
    double link_bytes_per_s_both[SL_LINK_COUNT]; /* while it is busy */
    double link_latency_s;
    double peak_flops;    /* for MFU, of the program's compute dtype */
    double copy_slowdown; /* share of a copy's time that it takes from compute beside it; next to 0 on GPUs */
    double host_slowdown; /* the same for host tasks */
    char source[96];      /* "roofline h200", "measured cpu avx512": always stated beside a number */
} sl_costs;

/* From a hardware profile. `device` may be NULL (planning for a machine elsewhere): workspaces are then estimated. */
sl_status sl_costs_roofline(const sl_program *program, const sl_hardware *hardware, sl_device *device,
                            sl_costs **costs);

typedef struct sl_measure_config {
    const char *device; /* class name: it is opened with scratch memory of its own */
    int threads;
    const char *cache; /* file that keeps results per device numerics, threads and signature; NULL: none */
    /* The most memory of each tier, the job's budget; 0: not limited. Memory to clear caches, to copy and to
     * load the device shrinks to it. The largest signature and two copies always get what they need. */
    size_t most[SL_TIER_COUNT];
    /* Called with true before links and host work are measured, which other work on the host would disturb, and with false
     * afterwards. NULL: not called. */
    void (*quiet)(void *context, bool on);
    void *context;
} sl_measure_config;
/* Times each launch signature once on random data, and the links, one way and both, beside compute. */
sl_status sl_costs_measure(const sl_program *program, const sl_measure_config *config, sl_costs **costs);
void sl_costs_destroy(sl_costs *costs);

/* By signature: seconds on the stream that runs ops on that tier's memory. */
static inline const double *sl_costs_on(const sl_costs *costs, sl_tier tier)
{
    return tier == SL_TIER_DEVICE ? costs->device_s : costs->host_s;
}
/* Seconds of a copy; `both`: while the opposite link is busy. */
static inline double sl_costs_copy_s(const sl_costs *costs, sl_link link, size_t bytes, bool both)
{
    return costs->link_latency_s +
           (double) bytes / (both ? costs->link_bytes_per_s_both : costs->link_bytes_per_s)[link];
}

/* Space for `n_signatures` signatures; host_s is infinite, everything else zero. */
sl_status sl_costs_new(int32_t n_signatures, sl_costs **costs);
/* A signature's launch for queries to a device: types and attributes, no data. */
void sl_costs_launch(const sl_program *program, int32_t signature, sl_launch *launch);

#endif
