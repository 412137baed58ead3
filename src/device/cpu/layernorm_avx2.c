/* LayerNorm for AVX2; the code is in layernorm_kernel.h. */
#include "device/cpu/kernel.h"

#include "device/cpu/layernorm_kernel.h"

const sl_cpu_kernel sl_cpu_layernorm_avx2 = {
    .name = "layernorm_avx2",
    .op = SL_OP_LAYERNORM,
    .isa = SL_ISA_AVX2,
    .run = layernorm_run,
};

const sl_cpu_kernel sl_cpu_layernorm_bwd_avx2 = {
    .name = "layernorm_bwd_avx2",
    .op = SL_OP_LAYERNORM_BWD,
    .isa = SL_ISA_AVX2,
    .workspace = layernorm_bwd_workspace,
    .run = layernorm_bwd_run,
};
