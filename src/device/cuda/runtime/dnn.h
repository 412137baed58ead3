/*
 * A small builder for cuDNN operation graphs, in C. Tensors are 4-dimensional with explicit strides; a tensor with an id is bound to
 * memory (or, by value, to a host scalar) at run time, one without is an intermediate that never exists in memory. Errors stick: build
 * the whole graph, then ask sl_dnn_finish.
 */
#ifndef SL_DEVICE_CUDA_DNN_H
#define SL_DEVICE_CUDA_DNN_H

#include "device/cuda/runtime/cuda.h"

#define SL_DNN_MOST 64

typedef cudnnBackendDescriptor_t sl_dnn_tensor;

typedef struct sl_dnn_graph {
    cudnnBackendDescriptor_t owned[2 * SL_DNN_MOST], ops[SL_DNN_MOST], plan;
    int n_owned, n_ops;
    int64_t next_id; /* of intermediates; bound tensors count from 1 */
    size_t workspace_bytes;
    cudnnStatus_t status; /* of the first call that failed */
    const char *failed;   /* that call */
} sl_dnn_graph;

typedef struct sl_dnn_shape {
    int64_t dim[4], stride[4];
} sl_dnn_shape;

sl_dnn_tensor sl_dnn_bound(sl_dnn_graph *g, int64_t id, const sl_dnn_shape *shape, cudnnDataType_t type);
sl_dnn_tensor sl_dnn_scalar(sl_dnn_graph *g, int64_t id,
                            cudnnDataType_t type); /* a host value handed over at run time */
sl_dnn_tensor sl_dnn_virtual(sl_dnn_graph *g, const sl_dnn_shape *shape, cudnnDataType_t type);

/* y = a (b); `b` and `select` NULL where the mode takes fewer. GEN_INDEX uses `axis`. */
void sl_dnn_pointwise(sl_dnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t compute, int64_t axis,
                      sl_dnn_tensor a, sl_dnn_tensor b, sl_dnn_tensor select, sl_dnn_tensor y);
void sl_dnn_matmul(sl_dnn_graph *g, sl_dnn_tensor a, sl_dnn_tensor b, sl_dnn_tensor c);
void sl_dnn_reduce(sl_dnn_graph *g, cudnnReduceTensorOp_t op, sl_dnn_tensor x, sl_dnn_tensor y);
void sl_dnn_reshape(sl_dnn_graph *g, sl_dnn_tensor x, sl_dnn_tensor y);

/* Turns the graph into an executable plan with the first engine of the library's list that takes it. */
sl_status sl_dnn_finish(sl_cuda *cuda, sl_dnn_graph *g, const char *what);
sl_status sl_dnn_run(sl_cuda *cuda, sl_dnn_graph *g, const int64_t *ids, void **pointers, int count, void *workspace,
                     cudaStream_t stream);
void sl_dnn_destroy(sl_dnn_graph *g);

#endif
