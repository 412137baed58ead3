/* Attention forward for AVX2; the code is in attention_kernel.h. */
#include "device/cpu/kernel.h"

#include "device/cpu/attention_kernel.h"

const sl_cpu_kernel sl_cpu_attention_avx2 = {
    .name = "attention_avx2",
    .op = SL_OP_ATTENTION,
    .isa = SL_ISA_AVX2,
    .workspace = attention_workspace,
    .run = attention_run,
};
