/* Add, scale, cast and dropout for AVX2; the code is in elementwise_kernel.h. */
#include "device/cpu/kernel.h"

#include "device/cpu/elementwise_kernel.h"

const sl_cpu_kernel sl_cpu_add_avx2 = {
    .name = "add_avx2",
    .op = SL_OP_ADD,
    .isa = SL_ISA_AVX2,
    .run = add_run,
};

const sl_cpu_kernel sl_cpu_scale_avx2 = {
    .name = "scale_avx2",
    .op = SL_OP_SCALE,
    .isa = SL_ISA_AVX2,
    .run = scale_run,
};

const sl_cpu_kernel sl_cpu_cast_avx2 = {
    .name = "cast_avx2",
    .op = SL_OP_CAST,
    .isa = SL_ISA_AVX2,
    .run = cast_run,
};

const sl_cpu_kernel sl_cpu_dropout_avx2 = {
    .name = "dropout_avx2",
    .op = SL_OP_DROPOUT,
    .isa = SL_ISA_AVX2,
    .run = dropout_run,
};
