/* The matmul op on the GEMM driver: only operands become matrices here. */
#include "device/cpu/gemm.h"
#include "device/cpu/kernel.h"

sl_gemm sl_gemm_of_matmul(const sl_launch *launch)
{
    const sl_operand *a = &launch->in[0], *b = &launch->in[1], *bias = &launch->in[2], *residual = &launch->in[3];
    const bool trans_a = launch->attrs.matmul.trans_a, trans_b = launch->attrs.matmul.trans_b;
    sl_gemm gemm = {
        .m = a->type.dim[trans_a ? 1 : 0],
        .n = b->type.dim[trans_b ? 0 : 1],
        .k = a->type.dim[trans_a ? 0 : 1],
        .a = {a->data, a->type.dim[1], a->type.dtype, trans_a},
        .b = {b->data, b->type.dim[1], b->type.dtype, trans_b},
        .c = launch->out[0].data,
        .c_leading = b->type.dim[trans_b ? 0 : 1],
        .c_dtype = launch->out[0].type.dtype,
        .accumulate = launch->accumulate & 1,
        .bias = bias->type.rank ? bias->data : NULL,
        .residual = residual->type.rank ? residual->data : NULL,
    };
    return gemm;
}

#ifdef SL_HAVE_AVX2
static size_t matmul_workspace(const sl_gemm_isa *isa, const sl_launch *launch, int threads)
{
    const sl_gemm gemm = sl_gemm_of_matmul(launch);
    return sl_gemm_workspace(isa, &gemm, threads);
}

static void matmul_run(const sl_gemm_isa *isa, const sl_launch *launch, sl_pool *pool)
{
    const sl_gemm gemm = sl_gemm_of_matmul(launch);
    sl_gemm_run(isa, &gemm, launch->workspace, pool);
}

static size_t workspace_avx2(const sl_launch *launch, int threads)
{
    return matmul_workspace(&sl_gemm_avx2, launch, threads);
}
static void run_avx2(const sl_launch *launch, sl_pool *pool)
{
    matmul_run(&sl_gemm_avx2, launch, pool);
}
const sl_cpu_kernel sl_cpu_matmul_avx2 = {
    .name = "matmul_avx2", .op = SL_OP_MATMUL, .isa = SL_ISA_AVX2, .workspace = workspace_avx2, .run = run_avx2};

#ifdef SL_HAVE_AVX512
static size_t workspace_avx512(const sl_launch *launch, int threads)
{
    return matmul_workspace(&sl_gemm_avx512, launch, threads);
}
static void run_avx512(const sl_launch *launch, sl_pool *pool)
{
    matmul_run(&sl_gemm_avx512, launch, pool);
}
const sl_cpu_kernel sl_cpu_matmul_avx512 = {.name = "matmul_avx512",
                                            .op = SL_OP_MATMUL,
                                            .isa = SL_ISA_AVX512,
                                            .workspace = workspace_avx512,
                                            .run = run_avx512};
#endif
#endif
