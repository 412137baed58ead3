/* Inside the CUDA plugin, for its C and its CUDA C++ files: error macros, what kernels may ask of the device, the kernel table.
 * Nothing outside this folder includes it. */
#ifndef SL_DEVICE_CUDA_CUDA_H
#define SL_DEVICE_CUDA_CUDA_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <string.h>

#include "ops/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* sl_fail() of the program that loaded the plugin. */
extern sl_status (*sl_cuda_fail)(sl_status status, const char *format, ...);

/* All CUDA, cuBLASLt and cuDNN calls go through these: the message names the call and the library's own words. */
#define SL_CUDA_FAILED(call, words) sl_cuda_fail(SL_E_DEVICE, "%.*s: %s", (int) strcspn(#call, "("), #call, words)
#define SL_CUDA(call)                                                        \
    do {                                                                     \
        cudaError_t sl_cuda_error_ = (call);                                 \
        if (sl_cuda_error_ != cudaSuccess)                                   \
            return SL_CUDA_FAILED(call, cudaGetErrorString(sl_cuda_error_)); \
    } while (0)
#define SL_CUBLAS(call)                                                              \
    do {                                                                             \
        cublasStatus_t sl_cublas_status_ = (call);                                   \
        if (sl_cublas_status_ != CUBLAS_STATUS_SUCCESS)                              \
            return SL_CUDA_FAILED(call, cublasLtGetStatusString(sl_cublas_status_)); \
    } while (0)
#define SL_CUDNN(call)                                                          \
    do {                                                                        \
        cudnnStatus_t sl_cudnn_status_ = (call);                                \
        if (sl_cudnn_status_ != CUDNN_STATUS_SUCCESS)                           \
            return SL_CUDA_FAILED(call, cudnnGetErrorString(sl_cudnn_status_)); \
    } while (0)

typedef struct sl_cuda sl_cuda;

/* What a kernel needs to know of the machine it runs on. */
typedef struct sl_cuda_info {
    int multiprocessors, capability; /* 90 = 9.0 */
    double clock_hz, memory_bytes_per_s;
    size_t l2_bytes, shared_bytes; /* shared memory a block may opt in to */
    bool tf32;                     /* f32 matrix products may round their inputs to TF32 (SLUICE_TF32=1) */
} sl_cuda_info;

/* A kernel family: one line in kernels.def, one `const sl_cuda_kernel sl_cuda_<op>` per op. */
typedef struct sl_cuda_kernel {
    sl_op_id op;
    sl_status (*supports)(sl_cuda *cuda, const sl_launch *launch); /* NULL: everything */
    size_t (*workspace)(sl_cuda *cuda, const sl_launch *launch);   /* NULL: none */
    sl_status (*run)(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream);
} sl_cuda_kernel;

/* Parts of a workspace begin where any tensor might. */
static inline size_t sl_cuda_align(size_t bytes)
{
    return SL_ROUND_UP(bytes, (size_t) 256);
}

const sl_cuda_info *sl_cuda_get_info(sl_cuda *cuda);
cublasLtHandle_t sl_cuda_blas(sl_cuda *cuda);
const char *sl_cuda_machine(sl_cuda *cuda); /* device and library versions: what choices depend on */
bool sl_cuda_has_no_arena(sl_cuda *cuda);   /* opened to be asked, not to run */
/* Random bf16 numbers, or f32 ones: pairs of them are valid as such. */
void sl_cuda_fill_random(void *memory, size_t bytes, uint32_t seed, cudaStream_t stream);
sl_status sl_cuda_dnn(sl_cuda *cuda, cudaStream_t stream,
                      cudnnHandle_t *handle); /* made on first use, bound to the stream */
/* A second stream for launches that are several kernels side by side: it starts behind what `stream` holds so far, and from the
 * join on `stream` waits for it. */
sl_status sl_cuda_fork(sl_cuda *cuda, cudaStream_t stream, cudaStream_t *side);
sl_status sl_cuda_join(sl_cuda *cuda, cudaStream_t stream);
const sl_cuda_kernel *sl_cuda_kernel_find(sl_op_id op); /* NULL: none */

/* What matmul.c and attention.c prepared, by key; freed with the device. Keys are zero-padded structs compared as bytes. */
#define SL_CUDA_KEY_WORDS 24
typedef struct sl_cuda_cached {
    struct sl_cuda_cached *next;
    void (*destroy)(struct sl_cuda_cached *cached);
    sl_op_id op; /* whose entry it is: keys of different ops may be equal as bytes */
    uint64_t key[SL_CUDA_KEY_WORDS];
} sl_cuda_cached;
sl_cuda_cached *sl_cuda_cache_find(sl_cuda *cuda, sl_op_id op, const void *key, size_t bytes); /* NULL: none yet */
void sl_cuda_cache_add(sl_cuda *cuda, sl_op_id op, const void *key, size_t bytes,
                       sl_cuda_cached *entry); /* takes it over */

/* D[m,n] = op(A) op(B) (+ bias[n]) (+ C), all row-major with their own strides; `in` and `out` are storage types. With a batch, so many
 * of each lie one behind the other. */
typedef struct sl_cuda_gemm {
    int64_t m, n, k, lda, ldb, ldc;
    int32_t trans_a, trans_b, in, out, bias, add; /* bias, add: 1 if present */
    int64_t batch;                                /* 0: the operands are single matrices */
} sl_cuda_gemm;
size_t sl_cuda_gemm_workspace(const sl_cuda_gemm *gemm);
sl_status sl_cuda_gemm_prepare(sl_cuda *cuda, const sl_cuda_gemm *gemm);
sl_status sl_cuda_gemm_run(sl_cuda *cuda, const sl_cuda_gemm *gemm, const void *a, const void *b, const void *bias,
                           const void *c, void *d, void *workspace, cudaStream_t stream);
/* D = alpha op(A) op(B) + beta C, without a bias; beta is 0 without `add`. */
sl_status sl_cuda_gemm_scaled(sl_cuda *cuda, const sl_cuda_gemm *gemm, float alpha, float beta, const void *a,
                              const void *b, const void *c, void *d, void *workspace, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
