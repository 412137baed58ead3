/* Pixels as activations, one element per thread and turn: one fma and one rounding, so the bits are the reference's. */
#include "device/cuda/kernels/kernel.cuh"
#include "ops/image.h"

static constexpr int THREADS = 256;

template <typename P, typename T>
__global__ void __launch_bounds__(THREADS)
    image_kernel(const P *__restrict__ x, T *__restrict__ y, const __grid_constant__ struct sl_image_attrs attrs,
                 int64_t count, int64_t pixels, int channels)
{
    for (int64_t i = (int64_t) blockIdx.x * THREADS + threadIdx.x; i < count; i += (int64_t) gridDim.x * THREADS) {
        int channel = (int) (i / pixels % channels);
        from_f32(fmaf((float) x[i], attrs.scale[channel], attrs.bias[channel]), &y[i]);
    }
}

template <typename P> static sl_status run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    const sl_type *type = &launch->in[0].type;
    int64_t count = sl_type_count(type);
    SL_DISPATCH(launch->out[0].type.dtype, T,
                (image_kernel<P, T><<<sl_cuda_blocks(cuda, count, THREADS), THREADS, 0, stream>>>(
                    (const P *) launch->in[0].data, (T *) launch->out[0].data, *sl_image_attrs(&launch->attrs), count,
                    type->dim[type->rank - 1], type->rank == 3 ? (int) type->dim[1] : 1)));
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

static sl_status image_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    return launch->in[0].type.dtype == SL_U8 ? run<uint8_t>(cuda, launch, stream) : run<float>(cuda, launch, stream);
}
extern "C" const sl_cuda_kernel sl_cuda_image = {SL_OP_IMAGE, NULL, NULL, image_run};
