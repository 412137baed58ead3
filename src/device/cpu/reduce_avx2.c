/* Fixed-order sums for AVX2; the code is in reduce_kernel.h. */
#include "device/cpu/kernel.h"

#include "device/cpu/reduce_kernel.h"

const sl_cpu_kernel sl_cpu_sum_avx2 = {
    .name = "sum_avx2",
    .op = SL_OP_SUM,
    .isa = SL_ISA_AVX2,
    .workspace = sum_workspace,
    .run = sum_run,
};

const sl_cpu_kernel sl_cpu_sum_squares_avx2 = {
    .name = "sum_squares_avx2",
    .op = SL_OP_SUM_SQUARES,
    .isa = SL_ISA_AVX2,
    .workspace = sum_workspace,
    .run = sum_squares_run,
};
