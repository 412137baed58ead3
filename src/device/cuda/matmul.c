/*
 * Matmul through cuBLASLt. Our tensors are row-major, the library's column-major, so C = op(A) op(B) is asked for as
 * C^T = op(B)^T op(A)^T: the same bytes, operands swapped.
 *
 * Accumulation and residual additions ride along as beta: D = alpha AB + beta C with C the output itself or the residual. The bias
 * is an epilogue. The algorithm is chosen once per shape and kept: it fixes the bits. Schemes that add partial results in the
 * order they arrive are excluded.
 */
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda.h"

typedef struct gemm_plan {
    sl_cuda_cached base;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
} gemm_plan;

static void plan_destroy(sl_cuda_cached *cached)
{
    gemm_plan *plan = (gemm_plan *) cached;
    if (plan->c)
        cublasLtMatrixLayoutDestroy(plan->c);
    if (plan->b)
        cublasLtMatrixLayoutDestroy(plan->b);
    if (plan->a)
        cublasLtMatrixLayoutDestroy(plan->a);
    if (plan->desc)
        cublasLtMatmulDescDestroy(plan->desc);
    free(plan);
}

static cudaDataType_t data_type(int32_t dtype)
{
    return dtype == SL_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* A row-major [rows, columns] matrix is the library's columns x rows. */
static sl_status layout(int32_t dtype, int64_t rows, int64_t columns, int64_t stride, cublasLtMatrixLayout_t *out)
{
    SL_CUBLAS(cublasLtMatrixLayoutCreate(out, data_type(dtype), (uint64_t) columns, (uint64_t) rows, stride));
    return SL_OK;
}

static sl_status describe(sl_cuda *cuda, const sl_cuda_gemm *gemm, gemm_plan *plan)
{
    bool tf32 = gemm->in == SL_F32 && sl_cuda_get_info(cuda)->tf32;
    SL_CUBLAS(
        cublasLtMatmulDescCreate(&plan->desc, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
    cublasOperation_t first = gemm->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                      second = gemm->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    SL_CUBLAS(cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    SL_CUBLAS(cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
    if (gemm->bias) {
        cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
        cudaDataType_t type = data_type(gemm->in);
        SL_CUBLAS(
            cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
        SL_CUBLAS(cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type));
    }
    SL_TRY(layout(gemm->in, gemm->trans_b ? gemm->n : gemm->k, gemm->trans_b ? gemm->k : gemm->n, gemm->ldb, &plan->a));
    SL_TRY(layout(gemm->in, gemm->trans_a ? gemm->k : gemm->m, gemm->trans_a ? gemm->m : gemm->k, gemm->lda, &plan->b));
    return layout(gemm->out, gemm->m, gemm->n, gemm->ldc, &plan->c);
}

static sl_status choose(sl_cuda *cuda, const sl_cuda_gemm *gemm, gemm_plan *plan)
{
    cublasLtMatmulPreference_t preference;
    size_t bytes = SL_CUDA_GEMM_WORKSPACE;
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    SL_CUBLAS(cublasLtMatmulPreferenceCreate(&preference));
    cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                                 &bytes, sizeof bytes);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                                                      sizeof schemes);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulAlgoGetHeuristic(sl_cuda_blas(cuda), plan->desc, plan->a, plan->b, plan->c, plan->c,
                                                preference, 1, &result, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS || found == 0)
        return sl_cuda_fail(SL_E_UNSUPPORTED, "cuBLASLt has no algorithm for a %lld x %lld x %lld product: %s",
                            (long long) gemm->m, (long long) gemm->n, (long long) gemm->k,
                            cublasLtGetStatusString(status));
    plan->algo = result.algo;
    return SL_OK;
}

static sl_status prepare(sl_cuda *cuda, const sl_cuda_gemm *gemm, gemm_plan **out)
{
    *out = (gemm_plan *) sl_cuda_cache_find(cuda, SL_OP_MATMUL, gemm, sizeof *gemm);
    if (*out)
        return SL_OK;
    gemm_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return sl_cuda_fail(SL_E_MEMORY, "no memory for a matmul plan");
    plan->base.destroy = plan_destroy;
    sl_status status = describe(cuda, gemm, plan);
    if (status == SL_OK)
        status = choose(cuda, gemm, plan);
    if (status != SL_OK) {
        plan_destroy(&plan->base);
        return status;
    }
    sl_cuda_cache_add(cuda, SL_OP_MATMUL, gemm, sizeof *gemm, &plan->base);
    *out = plan;
    return SL_OK;
}

sl_status sl_cuda_gemm_prepare(sl_cuda *cuda, const sl_cuda_gemm *gemm)
{
    gemm_plan *plan;
    return prepare(cuda, gemm, &plan);
}

sl_status sl_cuda_gemm_run(sl_cuda *cuda, const sl_cuda_gemm *gemm, const void *a, const void *b, const void *bias,
                           const void *c, void *d, void *workspace, cudaStream_t stream)
{
    gemm_plan *plan;
    SL_TRY(prepare(cuda, gemm, &plan));
    if (gemm->bias)
        SL_CUBLAS(cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    float one = 1.0f, beta = gemm->add ? 1.0f : 0.0f;
    SL_CUBLAS(cublasLtMatmul(sl_cuda_blas(cuda), plan->desc, &one, b, plan->a, a, plan->b, &beta, gemm->add ? c : d,
                             plan->c, d, plan->c, &plan->algo, workspace, SL_CUDA_GEMM_WORKSPACE, stream));
    return SL_OK;
}

/* ---- the op ---- */

static sl_cuda_gemm gemm_of(const sl_launch *launch)
{
    const sl_type *a = &launch->in[0].type, *b = &launch->in[1].type, *c = &launch->out[0].type;
    sl_cuda_gemm gemm;
    memset(&gemm, 0, sizeof gemm);
    gemm.m = c->dim[0], gemm.n = c->dim[1], gemm.k = launch->attrs.matmul.trans_a ? a->dim[0] : a->dim[1];
    gemm.lda = a->dim[1], gemm.ldb = b->dim[1], gemm.ldc = c->dim[1];
    gemm.trans_a = launch->attrs.matmul.trans_a, gemm.trans_b = launch->attrs.matmul.trans_b;
    gemm.in = (int32_t) a->dtype, gemm.out = (int32_t) c->dtype;
    gemm.bias = launch->in[2].type.rank != 0, gemm.add = (launch->accumulate & 1) || launch->in[3].type.rank != 0;
    return gemm;
}

static sl_status matmul_supports(sl_cuda *cuda, const sl_launch *launch)
{
    if ((launch->accumulate & 1) && launch->in[3].type.rank)
        return sl_cuda_fail(SL_E_UNSUPPORTED, "matmul on CUDA adds a residual or accumulates, not both");
    sl_cuda_gemm gemm = gemm_of(launch);
    return sl_cuda_gemm_prepare(cuda, &gemm);
}

static size_t matmul_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda, (void) launch;
    return SL_CUDA_GEMM_WORKSPACE;
}

static sl_status matmul_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    sl_cuda_gemm gemm = gemm_of(launch);
    return sl_cuda_gemm_run(cuda, &gemm, launch->in[0].data, launch->in[1].data, launch->in[2].data,
                            launch->in[3].data ? launch->in[3].data : launch->out[0].data, launch->out[0].data,
                            launch->workspace, stream);
}

const sl_cuda_kernel sl_cuda_matmul = {SL_OP_MATMUL, matmul_supports, matmul_workspace, matmul_run};
