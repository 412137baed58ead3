/* SGD for AVX2; the code is in sgd_kernel.h. */
#include "device/cpu/kernel.h"

#include "device/cpu/sgd_kernel.h"

const sl_cpu_kernel sl_cpu_sgd_avx2 = {
    .name = "sgd_avx2",
    .op = SL_OP_SGD,
    .isa = SL_ISA_AVX2,
    .run = sgd_run,
};
