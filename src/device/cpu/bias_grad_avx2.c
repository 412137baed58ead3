/* Bias gradient for AVX2; the code is in bias_grad_kernel.h. */
#include "device/cpu/kernel.h"

#include "device/cpu/bias_grad_kernel.h"

const sl_cpu_kernel sl_cpu_bias_grad_avx2 = {
    .name = "bias_grad_avx2",
    .op = SL_OP_BIAS_GRAD,
    .isa = SL_ISA_AVX2,
    .workspace = bias_grad_workspace,
    .run = bias_grad_run,
};
