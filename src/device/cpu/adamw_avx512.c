/* AdamW for AVX-512; the code is in adamw_kernel.h. */
#include "device/cpu/kernel.h"

#include "device/cpu/adamw_kernel.h"

const sl_cpu_kernel sl_cpu_adamw_avx512 = {
    .name = "adamw_avx512",
    .op = SL_OP_ADAMW,
    .isa = SL_ISA_AVX512,
    .supports = adamw_supports,
    .run = adamw_run,
};
