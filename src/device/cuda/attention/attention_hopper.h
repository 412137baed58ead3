/* Attention with Hopper's own instructions: bf16, heads of 64 and 128. */
#ifndef SL_DEVICE_CUDA_ATTENTION_HOPPER_H
#define SL_DEVICE_CUDA_ATTENTION_HOPPER_H

#include "device/cuda/attention/attention_graph.h"

#ifdef SL_CUDA_HOPPER

#ifdef __cplusplus
extern "C" {
#endif

bool sl_attention_hopper_takes(sl_cuda *cuda, const sl_graph_shape *shape);
size_t sl_attention_hopper_workspace(const sl_graph_shape *shape);
sl_status sl_attention_hopper_run(sl_cuda *cuda, const sl_graph_shape *shape, const sl_launch *launch,
                                  cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#else /* a CUDA toolkit that does not know Hopper's instructions */

static inline bool sl_attention_hopper_takes(sl_cuda *cuda, const sl_graph_shape *shape)
{
    (void) cuda, (void) shape;
    return false;
}
static inline size_t sl_attention_hopper_workspace(const sl_graph_shape *shape)
{
    (void) shape;
    return 0;
}
static inline sl_status sl_attention_hopper_run(sl_cuda *cuda, const sl_graph_shape *shape, const sl_launch *launch,
                                                cudaStream_t stream)
{
    (void) cuda, (void) shape, (void) launch, (void) stream;
    return sl_cuda_fail(SL_E_UNSUPPORTED, "this plugin was built without Hopper's kernels");
}

#endif
#endif
