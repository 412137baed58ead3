/* The arithmetic peak of this CPU's vector units: multiply-adds on registers alone, in as many independent chains as
 * hide their latency. What a matrix multiply can reach at most, and the nominal figure to hold it against. */
#ifndef SL_BENCH_PEAK_H
#define SL_BENCH_PEAK_H

#include <stdint.h>

/* `rounds` of multiply-adds on every lane; *flops is what that took. The result depends on all of them, so nothing is
 * left out. */
typedef double (*sl_peak_fn)(int64_t rounds, double *flops);
typedef struct sl_peak_kernel {
    sl_peak_fn f32, f64;
} sl_peak_kernel;
extern const sl_peak_kernel sl_peak_avx2, sl_peak_avx512; /* each where the compiler has the instructions */

/* FLOP/s of all `threads` together (0: one per core); 0 where no vector kernel may run. */
double sl_peak_measure(int bits, int threads, double seconds);

#endif
