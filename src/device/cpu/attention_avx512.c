/* Attention forward for AVX-512; the code is in attention_kernel.h. */
#include "device/cpu/kernel.h"

#include "device/cpu/attention_kernel.h"

const sl_cpu_kernel sl_cpu_attention_avx512 = {
    .name = "attention_avx512",
    .op = SL_OP_ATTENTION,
    .isa = SL_ISA_AVX512,
    .workspace = attention_workspace,
    .run = attention_run,
};
