/* Softmax rows of the loss head, and its kernels, for AVX-512. */
#define SOFTMAX_LOSS sl_softmax_loss_avx512
#define SOFTMAX_GRADIENT sl_softmax_gradient_avx512
#include "device/cpu/head_loss_kernel.h"

static const sl_head_isa isa = {
    .gemm = &sl_gemm_avx512, .loss = sl_softmax_loss_avx512, .loss_and_gradient = sl_softmax_gradient_avx512};

static size_t workspace(const sl_launch *launch, int threads)
{
    return sl_head_loss_workspace(&isa, launch, threads);
}

static void run(const sl_launch *launch, sl_pool *pool)
{
    sl_head_loss_run(&isa, launch, pool);
}

const sl_cpu_kernel sl_cpu_head_loss_avx512 = {
    .name = "head_loss_avx512", .op = SL_OP_HEAD_LOSS, .isa = SL_ISA_AVX512, .workspace = workspace, .run = run};
const sl_cpu_kernel sl_cpu_head_loss_bwd_avx512 = {.name = "head_loss_bwd_avx512",
                                                   .op = SL_OP_HEAD_LOSS_BWD,
                                                   .isa = SL_ISA_AVX512,
                                                   .workspace = workspace,
                                                   .run = run};
