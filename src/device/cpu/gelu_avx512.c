/* GELU for AVX-512; the code is in gelu_kernel.h. */
#include "device/cpu/kernel.h"

#include "device/cpu/gelu_kernel.h"

const sl_cpu_kernel sl_cpu_gelu_avx512 = {
    .name = "gelu_avx512",
    .op = SL_OP_GELU,
    .isa = SL_ISA_AVX512,
    .run = gelu_run,
};

const sl_cpu_kernel sl_cpu_gelu_bwd_avx512 = {
    .name = "gelu_bwd_avx512",
    .op = SL_OP_GELU_BWD,
    .isa = SL_ISA_AVX512,
    .workspace = gelu_bwd_workspace,
    .run = gelu_bwd_run,
};
