/* RMSNorm for AVX2; the code is in rmsnorm_kernel.h. */
#include "device/cpu/kernel.h"

#include "device/cpu/rmsnorm_kernel.h"

const sl_cpu_kernel sl_cpu_rmsnorm_avx2 = {
    .name = "rmsnorm_avx2",
    .op = SL_OP_RMSNORM,
    .isa = SL_ISA_AVX2,
    .run = rmsnorm_run,
};

const sl_cpu_kernel sl_cpu_rmsnorm_bwd_avx2 = {
    .name = "rmsnorm_bwd_avx2",
    .op = SL_OP_RMSNORM_BWD,
    .isa = SL_ISA_AVX2,
    .workspace = rmsnorm_bwd_workspace,
    .run = rmsnorm_bwd_run,
};
