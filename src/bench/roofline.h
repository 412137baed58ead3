/* The two lines of a roofline, measured: the fastest GEMM per dtype, and memory bandwidth. */
#ifndef SL_BENCH_ROOFLINE_H
#define SL_BENCH_ROOFLINE_H

#include "bench/rig.h"

typedef struct sl_roofline {
    double flops[SL_DTYPE_COUNT];
    double bytes; /* per second, reads and writes */
} sl_roofline;

/* Square GEMMs that take about `seconds` at `guess` FLOP/s, and half as wide ones: the better rate counts. On a
 * hot rig it is what typical runs reach, elsewhere the best. */
sl_status sl_roofline_product(sl_rig *rig, sl_dtype dtype, double guess, double seconds, double *best, int64_t *side);
/* A scale (copy) or add (triad) over f32 operands of `bytes` each. */
sl_status sl_roofline_stream(sl_rig *rig, sl_op_id op, size_t bytes, double seconds, double *rate);
/* Both, on a device opened for it. */
sl_status sl_roofline_measure(const char *device, int threads, bool quick, sl_roofline *roofline);

/* Seconds the work takes at least. */
double sl_roofline_seconds(const sl_roofline *roofline, sl_dtype dtype, const sl_work *work);

#endif
