/* SwiGLU for AVX-512; the code is in swiglu_kernel.h. */
#include "device/cpu/kernel.h"

#include "device/cpu/swiglu_kernel.h"

const sl_cpu_kernel sl_cpu_swiglu_avx512 = {
    .name = "swiglu_avx512",
    .op = SL_OP_SWIGLU,
    .isa = SL_ISA_AVX512,
    .run = swiglu_run,
};

const sl_cpu_kernel sl_cpu_swiglu_bwd_avx512 = {
    .name = "swiglu_bwd_avx512",
    .op = SL_OP_SWIGLU_BWD,
    .isa = SL_ISA_AVX512,
    .run = swiglu_bwd_run,
};
