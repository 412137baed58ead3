/* Functions of one element (ops/unary.c): a functor for each, applied by map.cuh; bandwidth is their limit but for the sine's. Sine and
 * cosine are the library's, which reduce any argument; f32 results take its exponential, bf16 results the hardware's. */
#include "device/cuda/kernels/map.cuh"
#include "ops/unary.h"

template <typename T> __device__ __forceinline__ float sigmoid_of(float x)
{
    return sizeof(T) == 4 ? 1.0f / (1.0f + expf(-x)) : __fdividef(1.0f, 1.0f + __expf(-x));
}

/* Without the cancellation of 1 - tanh^2, which far from 0 is 4 exp(-2|x|). */
__device__ __forceinline__ float tanh_slope(float x)
{
    const float e = expf(-2.0f * fabsf(x)), r = 1.0f / (1.0f + e);
    return 4.0f * e * r * r;
}

template <typename T, int F> struct unary_f : plain_add<unary_f<T, F>> {
    static constexpr int inputs = 1;
    __device__ float operator()(float x, float, int64_t) const
    {
        if constexpr (F == SL_UNARY_SINE)
            return sinf(x);
        else if constexpr (F == SL_UNARY_SIGMOID)
            return sigmoid_of<T>(x);
        else if constexpr (F == SL_UNARY_SILU)
            return x * sigmoid_of<T>(x);
        else if constexpr (F == SL_UNARY_TANH)
            return tanhf(x);
        else
            return x > 0 || x != x ? x : 0.0f;
    }
};

template <typename T, int F> struct unary_bwd_f : plain_add<unary_bwd_f<T, F>> {
    static constexpr int inputs = 2;
    __device__ float operator()(float dy, float x, int64_t) const
    {
        if constexpr (F == SL_UNARY_SINE)
            return dy * cosf(x);
        else if constexpr (F == SL_UNARY_SIGMOID)
            return dy * (sigmoid_of<T>(x) * sigmoid_of<T>(-x));
        else if constexpr (F == SL_UNARY_SILU)
            return dy * fmaf(x * sigmoid_of<T>(x), sigmoid_of<T>(-x), sigmoid_of<T>(x));
        else if constexpr (F == SL_UNARY_TANH)
            return dy * tanh_slope(x);
        else
            return x > 0 ? dy : dy * 0.0f;
    }
};

/* The launch's function becomes a constant. */
template <template <typename, int> class Functor, typename T>
static sl_status unary(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    switch (sl_unary_attrs(&launch->attrs)->function) {
    case SL_UNARY_SINE:
        return map<Functor<T, SL_UNARY_SINE>, T, T>(cuda, {}, launch, 1, stream);
    case SL_UNARY_SIGMOID:
        return map<Functor<T, SL_UNARY_SIGMOID>, T, T>(cuda, {}, launch, 1, stream);
    case SL_UNARY_SILU:
        return map<Functor<T, SL_UNARY_SILU>, T, T>(cuda, {}, launch, 1, stream);
    case SL_UNARY_TANH:
        return map<Functor<T, SL_UNARY_TANH>, T, T>(cuda, {}, launch, 1, stream);
    default:
        return map<Functor<T, SL_UNARY_RELU>, T, T>(cuda, {}, launch, 1, stream);
    }
}

static sl_status unary_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    SL_DISPATCH(launch->in[0].type.dtype, T, return (unary<unary_f, T>(cuda, launch, stream)));
}

static sl_status unary_bwd_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    SL_DISPATCH(launch->in[0].type.dtype, T, return (unary<unary_bwd_f, T>(cuda, launch, stream)));
}

extern "C" const sl_cuda_kernel sl_cuda_unary = {SL_OP_UNARY, NULL, NULL, unary_run};
extern "C" const sl_cuda_kernel sl_cuda_unary_bwd = {SL_OP_UNARY_BWD, NULL, NULL, unary_bwd_run};
