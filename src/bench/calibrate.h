/*
 * From a machine to the figures a plan needs. A few steps of a model of typical width are run on the device, and the
 * time of all tasks of a category over the work of all of them gives its sustained rate: GEMMs, attention
 * forward and backward, everything bound by memory, updates beside host memory. A rate found in a step has everything
 * in it that a clean microbenchmark leaves out: shapes as they come, cold caches, launches between others.
 */
#ifndef SL_BENCH_CALIBRATE_H
#define SL_BENCH_CALIBRATE_H

#include "bench/results.h"
#include "device/device.h"

typedef struct sl_rates {
    double matmul_flops, attention_flops[2]; /* per second: forward, backward; 0: none ran */
    double device_bytes, host_bytes; /* per second: memory-bound ops on the device, updates beside host memory */
    double launch_s;                 /* from one task's end to the next one's start, typically */
} sl_rates;

typedef struct sl_calibration {
    sl_rates rates[SL_DTYPE_COUNT]; /* f32, bf16 */
    char model[96];                 /* what was run */
} sl_calibration;

sl_status sl_calibrate(const char *device, int threads, bool quick, sl_calibration *calibration);

/* Puts the rates where roofline costs look for them. `best` is the fastest GEMM seen, by dtype; a GPU's
 * nominal peak stays what MFU is measured against. */
void sl_calibrate_profile(const sl_calibration *calibration, const double best[SL_DTYPE_COUNT], sl_hardware *hardware);

/* What a launch takes beyond its arithmetic and bytes, from steps of a small model, as the profile's launch latency:
 * small GEMMs do not fill a large device, and no rate says so. */
sl_status sl_calibrate_launch(const char *device, int threads, sl_hardware *hardware);

#endif
