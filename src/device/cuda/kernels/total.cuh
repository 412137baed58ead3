/* The last kernel of a loss: the rows' losses become one number. */
#ifndef SL_DEVICE_CUDA_TOTAL_CUH
#define SL_DEVICE_CUDA_TOTAL_CUH

#include "device/cuda/kernels/kernel.cuh"

/* loss (+)= sum of the rows' losses, in f64, in order of fixed lanes. */
static __global__ void total_kernel(const float *__restrict__ losses, int64_t n, float *loss, bool accumulate)
{
    __shared__ double lane[256];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += 256)
        sum += losses[i];
    lane[threadIdx.x] = sum;
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            lane[threadIdx.x] += lane[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        *loss = (float) (lane[0] + (accumulate ? *loss : 0.0f));
}

#endif
