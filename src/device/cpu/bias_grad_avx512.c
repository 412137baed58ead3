/* Bias gradient for AVX-512; the code is in bias_grad_kernel.h. */
#include "device/cpu/kernel.h"

#include "device/cpu/bias_grad_kernel.h"

const sl_cpu_kernel sl_cpu_bias_grad_avx512 = {
    .name = "bias_grad_avx512",
    .op = SL_OP_BIAS_GRAD,
    .isa = SL_ISA_AVX512,
    .workspace = bias_grad_workspace,
    .run = bias_grad_run,
};
