/* The matmul op with AMX: bf16 only. */
#include "device/cpu/gemm.h"
#include "device/cpu/kernel.h"

static bool supports(const sl_launch *launch)
{
    return launch->in[0].type.dtype == SL_BF16;
}

static size_t workspace(const sl_launch *launch, int threads)
{
    const sl_gemm gemm = sl_gemm_of_matmul(launch);
    return sl_gemm_workspace(&sl_gemm_amx, &gemm, threads);
}

static void run(const sl_launch *launch, sl_pool *pool)
{
    const sl_gemm gemm = sl_gemm_of_matmul(launch);
    sl_gemm_run(&sl_gemm_amx, &gemm, launch->workspace, pool);
}

const sl_cpu_kernel sl_cpu_matmul_amx = {.name = "matmul_amx",
                                         .op = SL_OP_MATMUL,
                                         .isa = SL_ISA_AMX,
                                         .supports = supports,
                                         .workspace = workspace,
                                         .run = run};
