/* Add, scale, cast and dropout for AVX-512; the code is in elementwise_kernel.h. */
#include "device/cpu/kernel.h"

#include "device/cpu/elementwise_kernel.h"

const sl_cpu_kernel sl_cpu_add_avx512 = {
    .name = "add_avx512",
    .op = SL_OP_ADD,
    .isa = SL_ISA_AVX512,
    .run = add_run,
};

const sl_cpu_kernel sl_cpu_scale_avx512 = {
    .name = "scale_avx512",
    .op = SL_OP_SCALE,
    .isa = SL_ISA_AVX512,
    .run = scale_run,
};

const sl_cpu_kernel sl_cpu_cast_avx512 = {
    .name = "cast_avx512",
    .op = SL_OP_CAST,
    .isa = SL_ISA_AVX512,
    .run = cast_run,
};

const sl_cpu_kernel sl_cpu_dropout_avx512 = {
    .name = "dropout_avx512",
    .op = SL_OP_DROPOUT,
    .isa = SL_ISA_AVX512,
    .run = dropout_run,
};
