/* Arithmetic of this machine's CPU cores, for benches that hold kernels against it. */
#ifndef SL_DEVICE_THROUGHPUT_H
#define SL_DEVICE_THROUGHPUT_H

#include "core/status.h"

typedef struct sl_cpu_throughput {
    double f32, bf16;   /* FLOP per cycle and core; an FMA counts two */
    double measured;    /* f32 as measured, not rounded; 0: no measurement */
    double hz;          /* the clock of a busy core as measured, in steps of 100 MHz; 0: no measurement */
    const char *source; /* "measured", "known for this CPU model", "assumed for the instruction set" */
} sl_cpu_throughput;

/* With the instruction set that kernels use here (SLUICE_ISA counts). How it is decided: device/cpu/throughput.h. */
sl_status sl_cpu_throughput_here(sl_cpu_throughput *throughput);

/* `rounds` of FMAs on every lane of twelve registers; *flops is the work. The result depends on all of them, so the compiler cannot
 * drop any. */
typedef double (*sl_fma_fn)(int64_t rounds, double *flops);
/* For f32 (bits 32) or f64; NULL where no vector kernel may run. */
sl_fma_fn sl_fma_here(int bits);

#endif
