/* Inside the CUDA plugin: products with a single row. */
#ifndef SL_DEVICE_CUDA_MATVEC_H
#define SL_DEVICE_CUDA_MATVEC_H

#include <stdbool.h>

#include "device/cuda/runtime/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the product is one that sl_cuda_matvec_run takes: a question of its shape alone. */
bool sl_cuda_is_matvec(const sl_cuda_gemm *gemm);
/* y = x w^T + bias + c; `bias` and `c` may be NULL. */
sl_status sl_cuda_matvec_run(sl_cuda *cuda, const sl_cuda_gemm *gemm, const void *x, const void *w, const void *bias,
                             const void *c, void *y, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
