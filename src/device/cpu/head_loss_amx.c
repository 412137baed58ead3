/* The loss head with AMX products, bf16 only; its softmax rows are AVX-512's. */
#include "device/cpu/head_loss.h"

static const sl_head_isa isa = {
    .gemm = &sl_gemm_amx, .loss = sl_softmax_loss_avx512, .loss_and_gradient = sl_softmax_gradient_avx512};

static bool supports(const sl_launch *launch)
{
    return launch->in[0].type.dtype == SL_BF16;
}

static size_t workspace(const sl_launch *launch, int threads)
{
    return sl_head_loss_workspace(&isa, launch, threads);
}

static void run(const sl_launch *launch, sl_pool *pool)
{
    sl_head_loss_run(&isa, launch, pool);
}

const sl_cpu_kernel sl_cpu_head_loss_amx = {.name = "head_loss_amx",
                                            .op = SL_OP_HEAD_LOSS,
                                            .isa = SL_ISA_AMX,
                                            .supports = supports,
                                            .workspace = workspace,
                                            .run = run};
const sl_cpu_kernel sl_cpu_head_loss_bwd_amx = {.name = "head_loss_bwd_amx",
                                                .op = SL_OP_HEAD_LOSS_BWD,
                                                .isa = SL_ISA_AMX,
                                                .supports = supports,
                                                .workspace = workspace,
                                                .run = run};
