/* Embedding for AVX2; the code is in embedding_kernel.h. */
#include "device/cpu/kernel.h"

#include "device/cpu/embedding_kernel.h"

const sl_cpu_kernel sl_cpu_embedding_avx2 = {
    .name = "embedding_avx2",
    .op = SL_OP_EMBEDDING,
    .isa = SL_ISA_AVX2,
    .run = embedding_run,
};

const sl_cpu_kernel sl_cpu_embedding_bwd_avx2 = {
    .name = "embedding_bwd_avx2",
    .op = SL_OP_EMBEDDING_BWD,
    .isa = SL_ISA_AVX2,
    .workspace = embedding_bwd_workspace,
    .run = embedding_bwd_run,
};
