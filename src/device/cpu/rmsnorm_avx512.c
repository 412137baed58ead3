/* RMSNorm for AVX-512; the code is in rmsnorm_kernel.h. */
#include "device/cpu/kernel.h"

#include "device/cpu/rmsnorm_kernel.h"

const sl_cpu_kernel sl_cpu_rmsnorm_avx512 = {
    .name = "rmsnorm_avx512",
    .op = SL_OP_RMSNORM,
    .isa = SL_ISA_AVX512,
    .run = rmsnorm_run,
};

const sl_cpu_kernel sl_cpu_rmsnorm_bwd_avx512 = {
    .name = "rmsnorm_bwd_avx512",
    .op = SL_OP_RMSNORM_BWD,
    .isa = SL_ISA_AVX512,
    .workspace = rmsnorm_bwd_workspace,
    .run = rmsnorm_bwd_run,
};
