/* Which launches of attention go to Hopper's kernels, and how these find their tensors. */
#include "device/cuda/attention/attention_hopper.cuh"

using namespace attention_hopper;

typedef decltype(&cuTensorMapEncodeTiled) encode_tensor_map;

/* The driver's, which the plugin is not linked with. */
static encode_tensor_map ask_for_encode(void)
{
    void *found = NULL;
    cudaDriverEntryPointQueryResult result;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result) !=
        cudaSuccess)
        return NULL;
    return result == cudaDriverEntryPointSuccess ? (encode_tensor_map) found : NULL;
}
static encode_tensor_map find_encode(void)
{
    static const encode_tensor_map encode = ask_for_encode();
    return encode;
}

sl_status attention_hopper::map_rows(CUtensorMap *map, void *data, int64_t columns, int64_t stride, int64_t rows,
                                     int64_t batch, int box_rows)
{
    const encode_tensor_map encode = find_encode();
    const cuuint64_t size[] = {(cuuint64_t) columns, (cuuint64_t) rows, (cuuint64_t) batch};
    const cuuint64_t strides[] = {(cuuint64_t) stride * 2, (cuuint64_t) (stride * rows) * 2};
    const cuuint32_t box[] = {64, (cuuint32_t) box_rows, 1}, steps[] = {1, 1, 1};
    CUresult result = encode ? encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, data, size, strides, box, steps,
                                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
                             : CUDA_ERROR_NOT_FOUND;
    if (result != CUDA_SUCCESS)
        return sl_cuda_fail(SL_E_DEVICE, "cuTensorMapEncodeTiled: error %d for %lld rows of %lld", (int) result,
                            (long long) rows, (long long) columns);
    return SL_OK;
}

sequences attention_hopper::sequences_of(const sl_graph_shape *s, const sl_launch *launch)
{
    sequences out = {(int) s->batch, (int) s->q_rows, (int) s->kv_rows, s->causal != 0, NULL, s->bounds};
    if (s->bounds)
        out.bounds = (const int32_t *) launch->in[s->backward ? 5 : 2].data;
    return out;
}

extern "C" bool sl_attention_hopper_takes(sl_cuda *cuda, const sl_graph_shape *shape)
{
    return sl_cuda_get_info(cuda)->capability == 90 && (shape->head_dim == 64 || shape->head_dim == 128) &&
           find_encode();
}

extern "C" size_t sl_attention_hopper_workspace(const sl_graph_shape *shape)
{
    return shape->backward ? backward_workspace(shape) : forward_workspace();
}

extern "C" sl_status sl_attention_hopper_run(sl_cuda *cuda, const sl_graph_shape *shape, const sl_launch *launch,
                                             cudaStream_t stream)
{
    return shape->backward ? run_backward(cuda, shape, launch, stream) : run_forward(cuda, shape, launch, stream);
}
