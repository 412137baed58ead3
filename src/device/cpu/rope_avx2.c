/* RoPE for AVX2; the code is in rope_kernel.h. */
#include "device/cpu/kernel.h"

#include "device/cpu/rope_kernel.h"

const sl_cpu_kernel sl_cpu_rope_avx2 = {
    .name = "rope_avx2",
    .op = SL_OP_ROPE,
    .isa = SL_ISA_AVX2,
    .workspace = rope_workspace,
    .run = rope_run,
};

const sl_cpu_kernel sl_cpu_rope_bwd_avx2 = {
    .name = "rope_bwd_avx2",
    .op = SL_OP_ROPE_BWD,
    .isa = SL_ISA_AVX2,
    .workspace = rope_workspace,
    .run = rope_bwd_run,
};
