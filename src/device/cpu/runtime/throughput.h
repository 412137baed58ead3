/*
 * How much f32 arithmetic a core does per cycle. The instruction set alone does not say: a 512-bit FMA is one operation per cycle
 * on Zen 4 (two halves on 256-bit units) and on CPUs with one such unit, two per cycle elsewhere. So two sources are combined:
 *
 *   measured   FMAs on registers, in cycles of a clock that is measured in the same microseconds. Other programs on the same core
 *              can lower the figure (a busy hyperthread halves it) but nothing can raise it.
 *   table      what is documented of a CPU model, where that is the same for all CPUs of the model.
 *
 * The larger one counts where both are known. A measurement counts only if it lies near a whole number of operations per cycle, so
 * the result is the same in every run.
 */
#ifndef SL_DEVICE_CPU_THROUGHPUT_H
#define SL_DEVICE_CPU_THROUGHPUT_H

#include "device/cpu/kernels/kernel.h"
#include "device/throughput.h"

typedef struct sl_fma_kernel {
    sl_fma_fn f32, f64;
} sl_fma_kernel;
extern const sl_fma_kernel sl_fma_avx2, sl_fma_avx512; /* each where the compiler has the instructions */
/* The widest that `isa` may run; NULL: none. */
const sl_fma_kernel *sl_fma_kernel_find(sl_isa isa);

typedef struct sl_cpu_identity {
    char vendor[13]; /* "AuthenticAMD" */
    int family, model;
} sl_cpu_identity;

/* From what is known: no hardware is touched. `measured` 0: there is no measurement. */
sl_cpu_throughput sl_cpu_throughput_decide(sl_isa isa, const sl_cpu_identity *cpu, double measured);

/* Of this machine; the first call for an instruction set measures for a few milliseconds. */
sl_cpu_throughput sl_cpu_throughput_of(sl_isa isa);
/* By cpuid; zeros where there is none. */
void sl_cpu_identify(sl_cpu_identity *cpu);
/* f32 FLOP per cycle of one core, and its clock; 0 where it cannot be measured. */
double sl_cpu_throughput_measure(sl_isa isa, double *hz);

#endif
