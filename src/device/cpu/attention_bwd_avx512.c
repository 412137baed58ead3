/* Attention backward for AVX-512; the code is in attention_bwd_kernel.h. */
#include "device/cpu/kernel.h"

#include "device/cpu/attention_bwd_kernel.h"

const sl_cpu_kernel sl_cpu_attention_bwd_avx512 = {
    .name = "attention_bwd_avx512",
    .op = SL_OP_ATTENTION_BWD,
    .isa = SL_ISA_AVX512,
    .workspace = attention_bwd_workspace,
    .run = attention_bwd_run,
};
