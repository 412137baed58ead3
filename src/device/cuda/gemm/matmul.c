/*
 * Matmul through cuBLASLt. Our tensors are row-major, the library's column-major, so C = op(A) op(B) is asked for as
 * C^T = op(B)^T op(A)^T: the same bytes, operands swapped.
 *
 * Accumulation and residual additions ride along as beta: D = alpha AB + beta C with C the output itself or the residual. The bias
 * is an epilogue. Schemes that add partial results in the order they arrive are excluded.
 *
 * The library's own first proposal is up to 13 % slower than its best one at the shapes of large models, so the algorithm is picked
 * by measuring, once per shape (choices.h). Measuring needs memory beside the arena, so it happens only on a device that was opened
 * without one, as planning does to query workspaces. A shape first seen elsewhere gets the first proposal.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/gemm/choices.h"
#include "device/cuda/gemm/matvec.h"
#include "device/cuda/runtime/cuda.h"
#include "ops/matmul.h"

enum { PROPOSALS = 16, PLAIN_PROPOSALS = 8, ROUNDS = 2 };
#define GLANCE_SECONDS 3e-4   /* of work per proposal at first */
#define PROPOSAL_SECONDS 3e-3 /* of work per proposal that is not far behind by then, and round */
#define FAR_BEHIND 1.15       /* times the fastest */
#define MARGIN 0.98           /* another proposal must be this much faster than the first */

typedef struct gemm_plan {
    sl_cuda_cached base;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
} gemm_plan;

/* Fewer outputs than keep all multiprocessors busy, and sums long enough to be split over them (a gradient of GPT-2's weights:
 * 72 tiles for 132 multiprocessors, 65,536 tokens). */
static bool wants_split(const sl_cuda_gemm *gemm)
{
    return !gemm->batch && gemm->m * gemm->n < (int64_t) 1 << 22 && gemm->k >= 8192;
}

/* Hopper's kernels like to have 32 MiB. Split sums leave partial results, in f32: room for eight. A rule of the shape alone,
 * since it decides which algorithms there are to choose from. */
size_t sl_cuda_gemm_workspace(const sl_cuda_gemm *gemm)
{
    size_t bytes = (size_t) 32 << 20, partials = 8 * (size_t) (gemm->m * gemm->n) * sizeof(float);
    return wants_split(gemm) && partials > bytes ? partials : bytes;
}

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

/* Bytes from one matrix of a batch to the next. */
typedef struct batch_strides {
    int64_t a, b, c;
} batch_strides;

static batch_strides strides_of(const sl_cuda_gemm *g)
{
    const int64_t in = (int64_t) sl_dtype_bytes((sl_dtype) g->in), out = (int64_t) sl_dtype_bytes((sl_dtype) g->out);
    return (batch_strides){(g->trans_a ? g->k : g->m) * g->lda * in, (g->trans_b ? g->n : g->k) * g->ldb * in,
                           g->m * g->ldc * out};
}

/* A row-major [rows, columns] matrix is the library's columns x rows. */
static sl_status layout(int32_t dtype, int64_t rows, int64_t columns, int64_t stride, int64_t batch,
                        cublasLtMatrixLayout_t *out)
{
    SL_CUBLAS(cublasLtMatrixLayoutCreate(out, data_type(dtype), (uint64_t) columns, (uint64_t) rows, stride));
    if (batch < 2)
        return SL_OK;
    const int32_t count = (int32_t) batch;
    const int64_t offset = rows * stride;
    SL_CUBLAS(cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
    SL_CUBLAS(
        cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &offset, sizeof offset));
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
    SL_TRY(layout(gemm->in, gemm->trans_b ? gemm->n : gemm->k, gemm->trans_b ? gemm->k : gemm->n, gemm->ldb,
                  gemm->batch, &plan->a));
    SL_TRY(layout(gemm->in, gemm->trans_a ? gemm->k : gemm->m, gemm->trans_a ? gemm->m : gemm->k, gemm->lda,
                  gemm->batch, &plan->b));
    return layout(gemm->out, gemm->m, gemm->n, gemm->ldc, gemm->batch, &plan->c);
}

/* Operands of a product to measure with. */
typedef struct scratch {
    void *a, *b, *c, *workspace;
    cudaEvent_t start, end;
    cudaStream_t stream;
} scratch;

static void scratch_free(scratch *s)
{
    cudaFree(s->a), cudaFree(s->b), cudaFree(s->c), cudaFree(s->workspace);
    if (s->start)
        cudaEventDestroy(s->start);
    if (s->end)
        cudaEventDestroy(s->end);
    if (s->stream)
        cudaStreamDestroy(s->stream);
}

static bool scratch_make(const sl_cuda_gemm *g, scratch *s)
{
    const batch_strides one = strides_of(g);
    const size_t batch = g->batch ? (size_t) g->batch : 1;
    size_t a = (size_t) one.a * batch, b = (size_t) one.b * batch, c = (size_t) one.c * batch;
    *s = (scratch){0};
    bool made = cudaMalloc(&s->a, a) == cudaSuccess && cudaMalloc(&s->b, b) == cudaSuccess &&
                cudaMalloc(&s->c, c) == cudaSuccess &&
                cudaMalloc(&s->workspace, sl_cuda_gemm_workspace(g)) == cudaSuccess &&
                cudaEventCreate(&s->start) == cudaSuccess && cudaEventCreate(&s->end) == cudaSuccess &&
                cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking) == cudaSuccess;
    if (made) {
        sl_cuda_fill_random(s->a, a, 1, s->stream);
        sl_cuda_fill_random(s->b, b, 2, s->stream);
        sl_cuda_fill_random(s->c, c, 3, s->stream);
    }
    cudaGetLastError(); /* too little memory is no error: the first proposal will do */
    return made;
}

static bool time_runs(sl_cuda *cuda, const sl_cuda_gemm *gemm, const gemm_plan *plan, const scratch *s, int runs,
                      const cublasLtMatmulAlgo_t *algo, double *seconds)
{
    float one = 1, beta = gemm->add ? 1 : 0, ms = 0;
    cudaEventRecord(s->start, s->stream);
    for (int i = 0; i < runs; i++)
        if (cublasLtMatmul(sl_cuda_blas(cuda), plan->desc, &one, s->b, plan->a, s->a, plan->b, &beta, s->c, plan->c,
                           s->c, plan->c, algo, s->workspace, sl_cuda_gemm_workspace(gemm), s->stream))
            return false;
    cudaEventRecord(s->end, s->stream);
    if (cudaEventSynchronize(s->end) != cudaSuccess || cudaEventElapsedTime(&ms, s->start, s->end) != cudaSuccess)
        return false;
    *seconds = 1e-3 * (double) ms / runs;
    return true;
}

/* Seconds of each proposal: a glance at all (the first run of one loads its code), then, in turn, at those that may be the fastest.
 * Infinity: it cannot be. */
static void time_proposals(sl_cuda *cuda, const sl_cuda_gemm *gemm, const gemm_plan *plan, const scratch *s,
                           const cublasLtMatmulHeuristicResult_t *proposals, int count, double *best)
{
    double once[PROPOSALS], least = INFINITY, seconds;
    for (int i = 0; i < count; i++)
        if (!time_runs(cuda, gemm, plan, s, 1, &proposals[i].algo, &once[i]))
            once[i] = INFINITY;
    for (int i = 0; i < count; i++) {
        int runs = once[i] < INFINITY ? (int) (GLANCE_SECONDS / (once[i] + 1e-6)) + 1 : 0;
        if (!runs || !time_runs(cuda, gemm, plan, s, runs, &proposals[i].algo, &once[i]))
            once[i] = INFINITY;
        least = SL_MIN(least, once[i]);
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < count; i++) {
            int runs = (int) (PROPOSAL_SECONDS / (once[i] + 1e-6)) + 1;
            if (once[i] <= FAR_BEHIND * least && time_runs(cuda, gemm, plan, s, runs, &proposals[i].algo, &seconds) &&
                seconds < best[i])
                best[i] = seconds;
        }
}

/* The index of the fastest proposal; the first one's, *measured false, where there is no memory to measure with. */
static int fastest(sl_cuda *cuda, const sl_cuda_gemm *gemm, gemm_plan *plan,
                   const cublasLtMatmulHeuristicResult_t *proposals, int count, bool *measured)
{
    scratch s;
    double best[PROPOSALS];
    int index = 0;
    for (int i = 0; i < count; i++)
        best[i] = INFINITY;
    bool ready = scratch_make(gemm, &s);
    if (ready && gemm->bias) /* any address will do: C is as long */
        ready = cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &s.c, sizeof s.c) ==
                CUBLAS_STATUS_SUCCESS;
    if (ready)
        time_proposals(cuda, gemm, plan, &s, proposals, count, best);
    for (int i = 1; i < count; i++)
        if (best[i] < best[index] * (index == 0 ? MARGIN : 1))
            index = i;
    scratch_free(&s);
    *measured = ready;
    return index;
}

/* The same product with or without an addend has the same proposals, and the same one is the fastest. */
static bool choose_as_twin(sl_cuda *cuda, const sl_cuda_gemm *gemm, gemm_plan *plan)
{
    sl_cuda_gemm twin = *gemm;
    twin.add = !gemm->add;
    return sl_cuda_has_no_arena(cuda) && sl_cuda_choice_follow(sl_cuda_machine(cuda), gemm, &twin, &plan->algo);
}

static sl_status choose(sl_cuda *cuda, const sl_cuda_gemm *gemm, gemm_plan *plan)
{
    if (sl_cuda_choice_find(sl_cuda_machine(cuda), gemm, &plan->algo) || choose_as_twin(cuda, gemm, plan))
        return SL_OK;
    cublasLtMatmulPreference_t preference;
    size_t bytes = sl_cuda_gemm_workspace(gemm);
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasLtMatmulHeuristicResult_t proposals[PROPOSALS];
    bool measure = sl_cuda_has_no_arena(cuda);
    int found = 0, most = !measure ? 1 : wants_split(gemm) ? PROPOSALS : PLAIN_PROPOSALS;
    SL_CUBLAS(cublasLtMatmulPreferenceCreate(&preference));
    cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                                 &bytes, sizeof bytes);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                                                      sizeof schemes);
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const batch_strides strides = strides_of(gemm);
    uint32_t aligned = 16; /* parts of a product begin at multiples of 8 elements */
    while (gemm->batch > 1 && (strides.a | strides.b | strides.c) % aligned)
        aligned /= 2;
    for (int i = 0; i < 4 && status == CUBLAS_STATUS_SUCCESS; i++)
        status = cublasLtMatmulPreferenceSetAttribute(preference, alignments[i], &aligned, sizeof aligned);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulAlgoGetHeuristic(sl_cuda_blas(cuda), plan->desc, plan->a, plan->b, plan->c, plan->c,
                                                preference, most, proposals, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS || found == 0)
        return sl_cuda_fail(SL_E_UNSUPPORTED, "cuBLASLt has no algorithm for a %lld x %lld x %lld product: %s",
                            (long long) gemm->m, (long long) gemm->n, (long long) gemm->k,
                            cublasLtGetStatusString(status));
    bool measured = false;
    int pick = measure ? fastest(cuda, gemm, plan, proposals, found, &measured) : 0;
    plan->algo = proposals[pick].algo;
    if (measure)
        sl_cuda_choice_add(sl_cuda_machine(cuda), gemm, &plan->algo, measured);
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
    return sl_cuda_gemm_scaled(cuda, gemm, 1, gemm->add ? 1 : 0, a, b, c, d, workspace, stream);
}

sl_status sl_cuda_gemm_scaled(sl_cuda *cuda, const sl_cuda_gemm *gemm, float alpha, float beta, const void *a,
                              const void *b, const void *c, void *d, void *workspace, cudaStream_t stream)
{
    gemm_plan *plan;
    SL_TRY(prepare(cuda, gemm, &plan));
    SL_CUBLAS(cublasLtMatmul(sl_cuda_blas(cuda), plan->desc, &alpha, b, plan->a, a, plan->b, &beta, gemm->add ? c : d,
                             plan->c, d, plan->c, &plan->algo, workspace, sl_cuda_gemm_workspace(gemm), stream));
    return SL_OK;
}

/* ---- the op ---- */

static sl_cuda_gemm gemm_of(const sl_launch *launch)
{
    const sl_type *a = &launch->in[0].type, *b = &launch->in[1].type, *c = &launch->out[0].type;
    sl_cuda_gemm gemm;
    memset(&gemm, 0, sizeof gemm);
    gemm.m = c->dim[0], gemm.n = c->dim[1], gemm.k = sl_matmul_attrs(&launch->attrs)->trans_a ? a->dim[0] : a->dim[1];
    gemm.lda = a->dim[1], gemm.ldb = b->dim[1], gemm.ldc = c->dim[1];
    gemm.trans_a = sl_matmul_attrs(&launch->attrs)->trans_a, gemm.trans_b = sl_matmul_attrs(&launch->attrs)->trans_b;
    gemm.in = (int32_t) a->dtype, gemm.out = (int32_t) c->dtype;
    gemm.bias = launch->in[2].type.rank != 0, gemm.add = (launch->accumulate & 1) || launch->in[3].type.rank != 0;
    return gemm;
}

static sl_status matmul_supports(sl_cuda *cuda, const sl_launch *launch)
{
    if ((launch->accumulate & 1) && launch->in[3].type.rank)
        return sl_cuda_fail(SL_E_UNSUPPORTED, "matmul on CUDA adds a residual or accumulates, not both");
    sl_cuda_gemm gemm = gemm_of(launch);
    return sl_cuda_is_matvec(&gemm) ? SL_OK : sl_cuda_gemm_prepare(cuda, &gemm);
}

static size_t matmul_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    sl_cuda_gemm gemm = gemm_of(launch);
    if (sl_cuda_is_matvec(&gemm))
        return 0;
    sl_cuda_gemm_prepare(cuda, &gemm); /* planning calls this first; `supports` reports what fails */
    return sl_cuda_gemm_workspace(&gemm);
}

static sl_status matmul_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    const sl_cuda_gemm gemm = gemm_of(launch);
    const void *a = launch->in[0].data, *b = launch->in[1].data, *bias = gemm.bias ? launch->in[2].data : NULL;
    void *d = launch->out[0].data;
    const void *c = launch->in[3].type.rank ? launch->in[3].data : d;
    if (sl_cuda_is_matvec(&gemm))
        return sl_cuda_matvec_run(cuda, &gemm, a, b, bias, gemm.add ? c : NULL, d, stream);
    return sl_cuda_gemm_run(cuda, &gemm, a, b, bias, c, d, launch->workspace, stream);
}

const sl_cuda_kernel sl_cuda_matmul = {SL_OP_MATMUL, matmul_supports, matmul_workspace, matmul_run};
