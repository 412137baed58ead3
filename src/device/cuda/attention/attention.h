/* Attention on CUDA: attention.c sends a launch to Hopper's own kernels or to cuDNN where it can, and to the plain ones otherwise. */
#ifndef SL_DEVICE_CUDA_ATTENTION_H
#define SL_DEVICE_CUDA_ATTENTION_H

#include "device/cuda/runtime/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SL_CUDA_ATTENTION_MOST_HEAD_DIM 256
sl_status sl_cuda_attention_plain(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream);
sl_status sl_cuda_attention_plain_bwd(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream);
size_t sl_cuda_attention_plain_bwd_workspace(const sl_launch *launch);
/* Shared memory that a block of the plain kernels takes at the least, whatever the dtype. */
size_t sl_cuda_attention_plain_shared(int head_dim, bool backward);

#ifdef __cplusplus
}
#endif
#endif
