/* The arithmetic peak of this CPU's vector units: multiply-adds on registers alone, in as many independent chains as
 * hide their latency. What a matrix multiply can reach at most, and the nominal figure to hold it against. */
#ifndef SL_BENCH_PEAK_H
#define SL_BENCH_PEAK_H

#include <stdint.h>

/* FLOP/s of all `threads` together (0: one per core); 0 where no vector kernel may run. */
double sl_peak_measure(int bits, int threads, double seconds);

#endif
