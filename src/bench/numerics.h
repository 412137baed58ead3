/* What a device's matrix multiply really does with numbers, found by asking it: inputs chosen so that the answer tells
 * (S9). */
#ifndef SL_BENCH_NUMERICS_H
#define SL_BENCH_NUMERICS_H

#include "bench/rig.h"

typedef struct sl_numerics {
    int f32_bits;     /* of an f32 input's mantissa that reach the GEMM: 23 for f32, 10 for TF32 */
    double bf16_ones; /* 4096 ones added up in a bf16 GEMM: 4096 with f32 sums, 256 with bf16 sums, 2048 with f16 */
} sl_numerics;

sl_status sl_numerics_probe(sl_rig *rig, sl_numerics *numerics);
/* Whether the device knows the switch SLUICE_TF32=1 (and it is not set already: then f32 means TF32 anyway). */
sl_status sl_tf32_offered(const char *device, bool *offered);
void sl_tf32_switch(bool on);                              /* for devices that are opened from now on */
const char *sl_numerics_f32(const sl_numerics *numerics);  /* "f32", "TF32", ... */
const char *sl_numerics_sums(const sl_numerics *numerics); /* the format of sums in bf16 GEMM */

#endif
