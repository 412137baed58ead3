/* Building cuDNN graphs: see dnn.h. Every library call goes through check(), which remembers the first failure. */
#include "device/cuda/runtime/dnn.h"

static bool check(sl_dnn_graph *g, cudnnStatus_t status, const char *call)
{
    if (g->status == CUDNN_STATUS_SUCCESS && status != CUDNN_STATUS_SUCCESS) {
        g->status = status;
        g->failed = call;
    }
    return g->status == CUDNN_STATUS_SUCCESS;
}
#define CHECK(g, call) check(g, call, #call)

static cudnnBackendDescriptor_t create(sl_dnn_graph *g, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = NULL;
    if (g->n_owned >= 2 * SL_DNN_MOST) {
        check(g, CUDNN_STATUS_NOT_SUPPORTED, "too many descriptors");
        return NULL;
    }
    if (g->status == CUDNN_STATUS_SUCCESS && CHECK(g, cudnnBackendCreateDescriptor(type, &d)))
        g->owned[g->n_owned++] = d;
    return d;
}

static void set(sl_dnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (g->status == CUDNN_STATUS_SUCCESS)
        CHECK(g, cudnnBackendSetAttribute(d, name, type, count, values));
}

static void set_descriptor(sl_dnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                           cudnnBackendDescriptor_t value)
{
    if (value)
        set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finalize(sl_dnn_graph *g, cudnnBackendDescriptor_t d)
{
    if (g->status == CUDNN_STATUS_SUCCESS)
        CHECK(g, cudnnBackendFinalize(d));
}

static sl_dnn_tensor tensor(sl_dnn_graph *g, int64_t id, const sl_dnn_shape *shape, cudnnDataType_t type,
                            bool is_virtual, bool by_value)
{
    cudnnBackendDescriptor_t d = create(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t alignment = 16;
    set(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, shape->dim);
    set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, shape->stride);
    set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    set(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    finalize(g, d);
    return d;
}

sl_dnn_tensor sl_dnn_bound(sl_dnn_graph *g, int64_t id, const sl_dnn_shape *shape, cudnnDataType_t type)
{
    return tensor(g, id, shape, type, false, false);
}

sl_dnn_tensor sl_dnn_scalar(sl_dnn_graph *g, int64_t id, cudnnDataType_t type)
{
    sl_dnn_shape one = {{1, 1, 1, 1}, {1, 1, 1, 1}};
    return tensor(g, id, &one, type, false, true);
}

sl_dnn_tensor sl_dnn_virtual(sl_dnn_graph *g, const sl_dnn_shape *shape, cudnnDataType_t type)
{
    if (g->next_id == 0)
        g->next_id = 1000;
    return tensor(g, g->next_id++, shape, type, true, false);
}

static void add_op(sl_dnn_graph *g, cudnnBackendDescriptor_t op)
{
    finalize(g, op);
    if (g->n_ops < SL_DNN_MOST)
        g->ops[g->n_ops++] = op;
    else
        check(g, CUDNN_STATUS_NOT_SUPPORTED, "too many operations");
}

void sl_dnn_pointwise(sl_dnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t compute, int64_t axis,
                      sl_dnn_tensor a, sl_dnn_tensor b, sl_dnn_tensor select, sl_dnn_tensor y)
{
    cudnnBackendDescriptor_t d = create(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(g, d, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    if (mode == CUDNN_POINTWISE_GEN_INDEX)
        set(g, d, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finalize(g, d);
    cudnnBackendDescriptor_t op = create(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, d);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, a);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, select);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_op(g, op);
}

void sl_dnn_matmul(sl_dnn_graph *g, sl_dnn_tensor a, sl_dnn_tensor b, sl_dnn_tensor c)
{
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t d = create(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    finalize(g, d);
    cudnnBackendDescriptor_t op = create(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, d);
    add_op(g, op);
}

void sl_dnn_reduce(sl_dnn_graph *g, cudnnReduceTensorOp_t mode, sl_dnn_tensor x, sl_dnn_tensor y)
{
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t d = create(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
    set(g, d, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    finalize(g, d);
    cudnnBackendDescriptor_t op = create(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, d);
    add_op(g, op);
}

void sl_dnn_reshape(sl_dnn_graph *g, sl_dnn_tensor x, sl_dnn_tensor y)
{
    cudnnBackendDescriptor_t op = create(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_op(g, op);
}

/* A failure of the moment, which says nothing about the graph. */
static bool lacks_memory(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
           status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
}

enum { CONFIGS = 8 }; /* looked at */

/* The first engine configuration that becomes a plan. `found` is how many the library has, which may be more than asked for. */
static void choose_plan(sl_dnn_graph *g, cudnnHandle_t handle, cudnnBackendDescriptor_t graph)
{
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    cudnnBackendDescriptor_t heuristic = create(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR), configs[CONFIGS] = {0};
    set_descriptor(g, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    finalize(g, heuristic);
    for (int i = 0; i < CONFIGS; i++)
        configs[i] = create(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    int64_t found = 0;
    if (g->status == CUDNN_STATUS_SUCCESS)
        CHECK(g, cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                          CONFIGS, &found, configs));
    for (int64_t i = 0; i < SL_MIN(found, CONFIGS) && g->status == CUDNN_STATUS_SUCCESS; i++) {
        cudnnBackendDescriptor_t plan = create(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        cudnnStatus_t status =
            cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
        if (status == CUDNN_STATUS_SUCCESS)
            status = cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                              CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &configs[i]);
        if (status == CUDNN_STATUS_SUCCESS)
            status = cudnnBackendFinalize(plan);
        if (lacks_memory(status)) {
            check(g, status, "cudnnBackendFinalize of a plan");
            return;
        }
        if (status == CUDNN_STATUS_SUCCESS) {
            int64_t bytes = 0, count = 0;
            CHECK(g, cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                              &count, &bytes));
            g->workspace_bytes = (size_t) bytes;
            g->plan = plan;
            return;
        }
    }
    check(g, CUDNN_STATUS_NOT_SUPPORTED, "no engine takes this graph");
}

sl_status sl_dnn_finish(sl_cuda *cuda, sl_dnn_graph *g, const char *what)
{
    cudnnHandle_t handle;
    SL_TRY(sl_cuda_dnn(cuda, NULL, &handle));
    cudnnBackendDescriptor_t graph = create(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops, g->ops);
    set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    finalize(g, graph);
    choose_plan(g, handle, graph);
    if (g->status != CUDNN_STATUS_SUCCESS) {
        char detail[512] = "";
        cudnnGetLastErrorString(detail, sizeof detail);
        if (lacks_memory(g->status))
            return sl_cuda_fail(SL_E_MEMORY,
                                "cuDNN lacks memory to prepare %s: %s; lower --device-mem, or wait for what else uses "
                                "the GPU",
                                what, cudnnGetErrorString(g->status));
        return sl_cuda_fail(SL_E_UNSUPPORTED, "cuDNN does not take %s: %s (%s) %s", what,
                            cudnnGetErrorString(g->status), g->failed, detail);
    }
    return SL_OK;
}

sl_status sl_dnn_run(sl_cuda *cuda, sl_dnn_graph *g, const int64_t *ids, void **pointers, int count, void *workspace,
                     cudaStream_t stream)
{
    cudnnHandle_t handle;
    SL_TRY(sl_cuda_dnn(cuda, stream, &handle));
    cudnnBackendDescriptor_t pack;
    SL_CUDNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
    cudnnStatus_t status =
        cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendFinalize(pack);
    const char *call =
        status == CUDNN_STATUS_SUCCESS ? "cudnnBackendExecute" : "cudnn, binding an attention plan's tensors";
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendExecute(handle, g->plan, pack);
    char detail[256] = "";
    if (status != CUDNN_STATUS_SUCCESS)
        cudnnGetLastErrorString(detail, sizeof detail);
    cudnnBackendDestroyDescriptor(pack);
    if (status != CUDNN_STATUS_SUCCESS)
        return sl_cuda_fail(SL_E_DEVICE, "%s: %s %s", call, cudnnGetErrorString(status), detail);
    return SL_OK;
}

void sl_dnn_destroy(sl_dnn_graph *g)
{
    for (int i = g->n_owned; i-- > 0;)
        cudnnBackendDestroyDescriptor(g->owned[i]);
    g->n_owned = 0;
}
