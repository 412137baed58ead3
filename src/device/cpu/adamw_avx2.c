/* AdamW for AVX2; the code is in adamw_kernel.h. */
#include "device/cpu/kernel.h"

#include "device/cpu/adamw_kernel.h"

const sl_cpu_kernel sl_cpu_adamw_avx2 = {
    .name = "adamw_avx2",
    .op = SL_OP_ADAMW,
    .isa = SL_ISA_AVX2,
    .supports = adamw_supports,
    .run = adamw_run,
};
