/* The matmul op on the GEMM driver: only operands become matrices here. */
#include "device/cpu/gemm/gemm.h"
#include "device/cpu/kernels/kernel.h"

static size_t workspace(const sl_launch *launch, int threads)
{
    const sl_gemm gemm = sl_gemm_of_matmul(launch);
    return sl_gemm_workspace(&SL_ISA_SYMBOL(sl_gemm), &gemm, threads);
}

static void run(const sl_launch *launch, sl_pool *pool)
{
    const sl_gemm gemm = sl_gemm_of_matmul(launch);
    sl_gemm_run(&SL_ISA_SYMBOL(sl_gemm), &gemm, launch->workspace, pool);
}

SL_CPU_KERNEL(matmul, SL_OP_MATMUL, .supports = SL_GEMM_SUPPORTS, .workspace = workspace, .run = run);
