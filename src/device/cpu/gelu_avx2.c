/* GELU for AVX2; the code is in gelu_kernel.h. */
#include "device/cpu/kernel.h"

#include "device/cpu/gelu_kernel.h"

const sl_cpu_kernel sl_cpu_gelu_avx2 = {
    .name = "gelu_avx2",
    .op = SL_OP_GELU,
    .isa = SL_ISA_AVX2,
    .run = gelu_run,
};

const sl_cpu_kernel sl_cpu_gelu_bwd_avx2 = {
    .name = "gelu_bwd_avx2",
    .op = SL_OP_GELU_BWD,
    .isa = SL_ISA_AVX2,
    .workspace = gelu_bwd_workspace,
    .run = gelu_bwd_run,
};
