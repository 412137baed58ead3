/* `sluice system`: what a machine is and what it can do, and the profile that plans are made with elsewhere. */
#ifndef SL_BENCH_SYSTEM_H
#define SL_BENCH_SYSTEM_H

#include "bench/calibrate.h"
#include "bench/disk.h"
#include "bench/machine.h"
#include "bench/results.h"
#include "device/device.h"

typedef struct sl_system_config {
    const char *device; /* a class's name */
    int threads;
    bool quick;       /* smaller pieces, seconds instead of a minute */
    bool probe_only;  /* nothing is measured: there is no profile then */
    const char *disk; /* folder to measure; NULL: none */
    void (*progress)(const char *what);
} sl_system_config;

sl_status sl_system_run(const sl_system_config *config, sl_results **results);

/* ---- inside ---- */

typedef struct sl_system_figures {
    double best_flops[SL_DTYPE_COUNT];       /* fastest GEMM */
    double device_bandwidth, host_bandwidth; /* triad */
} sl_system_figures;

void sl_system_describe(const sl_machine *machine, const sl_system_config *config, sl_results *results);
void sl_system_storage(const sl_system_config *config, sl_results *results);
/* `rates` NULL: they could not be measured, and sl_error_message() says why. */
void sl_system_storage_table(const char *folder, const sl_disk_rates *rates, const char *kind, sl_results *results);
void sl_system_sustained_table(const sl_calibration *calibration, sl_results *results);
/* Peaks, bandwidths, links, alignment: tables, figures, and the profile's part of them. */
sl_status sl_system_measure(const sl_system_config *config, const sl_machine *machine, sl_results *results,
                            sl_system_figures *figures, sl_hardware *profile);

#endif
