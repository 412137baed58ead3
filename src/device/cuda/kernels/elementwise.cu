/* Ops that map elements to elements: add, multiply, scale, cast, dropout, GELU, SwiGLU and GeGLU with their backwards. Each reads every input
 * once and writes every output once, 16 bytes at a time where alignment allows; bandwidth is their only limit. Where the sums of
 * the output's columns are wanted too, they are taken on the way (column_sum.cuh). */
#include "device/cuda/kernels/column_sum.cuh"
#include "device/cuda/kernels/map.cuh"
#include "ops/dropout.h"
#include "ops/gelu.h"
#include "ops/noise.h"
#include "ops/scale.h"
#include "ops/swiglu.h"

struct add_f : plain_add<add_f> {
    static constexpr int inputs = 2;
    __device__ float operator()(float a, float b, int64_t) const
    {
        return a + b;
    }
};
struct mul_f {
    static constexpr int inputs = 2;
    __device__ float operator()(float a, float b, int64_t) const
    {
        return a * b;
    }
    __device__ float add(float a, float b, int64_t, float old) const
    {
        return fmaf(a, b, old);
    }
};
struct scale_f {
    static constexpr int inputs = 1;
    float value;
    __device__ float operator()(float a, float, int64_t) const
    {
        return a * value;
    }
    __device__ float add(float a, float, int64_t, float old) const
    {
        return fmaf(a, value, old);
    }
};
struct copy_f : plain_add<copy_f> {
    static constexpr int inputs = 1;
    __device__ float operator()(float a, float, int64_t) const
    {
        return a;
    }
};
struct dropout_f : plain_add<dropout_f> {
    static constexpr int inputs = 1;
    const sl_step_params *step;
    float probability, scale;
    uint32_t stream;
    int64_t first;
    __device__ float operator()(float a, float, int64_t i) const
    {
        return sl_dropout_uniform(step, stream, first + i) >= probability ? a * scale : 0.0f;
    }
};

static constexpr float root_half = 0.70710678118654752f, root_2_over_pi = 0.79788456080286536f, cubic = 0.044715f;

__device__ __forceinline__ float fast_reciprocal(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* (1 + tanh u) / 2 = 1 / (1 + exp(-2 u)), u = root_2_over_pi (x + cubic x^3). Of tanh itself the hardware has eleven bits, and the
 * library's thirty instructions take longer than the op's memory. For results in bf16 the approximate exponential and
 * reciprocal (22 bits) are plenty. */
template <typename T> __device__ __forceinline__ float tanh_cdf(float x)
{
    float inner = fmaf(cubic * x * x, x, x);
    if (sizeof(T) == 4)
        return 1.0f / (1.0f + expf(-2.0f * root_2_over_pi * inner));
    return fast_reciprocal(1.0f + fast_exp2(-2.0f * root_2_over_pi * 1.4426950408889634f * inner));
}

template <typename T, bool TANH> struct gelu_f : plain_add<gelu_f<T, TANH>> {
    static constexpr int inputs = 1;
    __device__ float operator()(float x, float, int64_t) const
    {
        return x * (TANH ? tanh_cdf<T>(x) : 0.5f * (1.0f + erff(x * root_half)));
    }
};
template <typename T, bool TANH> struct gelu_bwd_f : plain_add<gelu_bwd_f<T, TANH>> {
    static constexpr int inputs = 2;
    __device__ float operator()(float dy, float x, int64_t) const
    {
        float cdf = TANH ? tanh_cdf<T>(x) : 0.5f * (1.0f + erff(x * root_half));
        if (TANH) {
            float slope = 2.0f * root_2_over_pi * fmaf(3.0f * cubic * x, x, 1.0f);
            return dy * fmaf(x * slope * (1.0f - cdf), cdf, cdf);
        }
        return dy * fmaf(x, 0.3989422804014327f * expf(-0.5f * x * x), cdf);
    }
};

#define SAME_TYPE(name, ID, second, functor)                                                       \
    static sl_status name##_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)       \
    {                                                                                              \
        SL_DISPATCH(launch->in[0].type.dtype, T,                                                   \
                    return (map<decltype(functor), T, T>(cuda, functor, launch, second, stream))); \
    }                                                                                              \
    extern "C" const sl_cuda_kernel sl_cuda_##name = {SL_OP_##ID, NULL, NULL, name##_run};

SAME_TYPE(add, ADD, 1, add_f{})
SAME_TYPE(mul, MUL, 1, mul_f{})
SAME_TYPE(scale, SCALE, 0, scale_f{sl_scale_attrs(&launch->attrs)->value})

static sl_status gelu_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    SL_DISPATCH(launch->in[0].type.dtype, T, {
        if (sl_gelu_attrs(&launch->attrs)->tanh)
            return (map<gelu_f<T, true>, T, T>(cuda, {}, launch, 0, stream));
        return (map<gelu_f<T, false>, T, T>(cuda, {}, launch, 0, stream));
    });
}

/* y = f(a, b), and the sums of y's columns. A thread keeps its columns, so its rows come one after the other. AHEAD of them are
 * under way, and a row's registers are asked to be filled again as soon as it is done. (Asking before would take other registers,
 * and moving them to their places would wait for the memory.) */
template <typename F, typename T, int W>
__global__ void __launch_bounds__(SUM_LANES *SUM_DEPTH, 4)
    map_sums_kernel(F f, const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ y,
                    float *__restrict__ partial, int64_t n, int64_t d, bool accumulate)
{
    constexpr int AHEAD = 2;
    int64_t c = ((int64_t) blockIdx.x * SUM_LANES + threadIdx.x) * W, end = n * d;
    int64_t i = ((int64_t) blockIdx.y * SUM_DEPTH + threadIdx.y) * d + c, step = (int64_t) gridDim.y * SUM_DEPTH * d;
    float sum[W] = {};
    if (c < d) {
        raw<T, W> va[AHEAD], vb[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (i + k * step < end) {
                va[k] = load_raw<W>(a + i + k * step);
                vb[k] = load_raw<W>(b + i + k * step);
            }
        for (; i < end; i += AHEAD * step)
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                int64_t now = i + k * step, next = now + AHEAD * step;
                if (now < end) {
                    raw<T, W> old;
                    float vy[W];
                    if (accumulate)
                        old = load_raw<W>(y + now);
#pragma unroll
                    for (int j = 0; j < W; j++) {
                        vy[j] =
                            accumulate ? f.add(va[k][j], vb[k][j], now + j, old[j]) : f(va[k][j], vb[k][j], now + j);
                        sum[j] += vy[j];
                    }
                    if (next < end) {
                        va[k] = load_raw<W>(a + next);
                        vb[k] = load_raw<W>(b + next);
                    }
                    store<W, true>(y + now, vy);
                }
            }
    }
    sum_block(sum, partial, d);
}

template <typename F, typename T> static sl_status map_sums(F f, const sl_launch *launch, cudaStream_t stream)
{
    const T *a = (const T *) launch->in[0].data, *b = (const T *) launch->in[1].data;
    T *y = (T *) launch->out[0].data;
    float *partial = (float *) launch->workspace;
    int64_t groups = sum_groups(&launch->out[0].type), d = sl_type_count(&launch->out[1].type);
    int64_t n = sl_type_count(&launch->out[0].type) / d;
    bool accumulate = launch->accumulate & 1;
    constexpr int W = 16 / sizeof(T);
    const dim3 threads(SUM_LANES, SUM_DEPTH);
    if (d % W == 0 && sl_cuda_aligned(a, b, y))
        map_sums_kernel<F, T, W><<<sum_grid<W>(d, groups), threads, 0, stream>>>(f, a, b, y, partial, n, d, accumulate);
    else
        map_sums_kernel<F, T, 1><<<sum_grid<1>(d, groups), threads, 0, stream>>>(f, a, b, y, partial, n, d, accumulate);
    column_sums<T> to = {{(T *) launch->out[1].data}, {(launch->accumulate & 2) != 0}};
    column_sum<T>(partial, groups, d, 1, to, stream);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

static size_t gelu_bwd_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    int64_t sums = sl_type_count(&launch->out[1].type);
    return sums ? (size_t) (sum_groups(&launch->out[0].type) * sums) * sizeof(float) : 0;
}

template <typename F, typename T> static sl_status gelu_bwd(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    return launch->out[1].data ? map_sums<F, T>(F{}, launch, stream) : map<F, T, T>(cuda, F{}, launch, 1, stream);
}

static sl_status gelu_bwd_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    SL_DISPATCH(launch->in[0].type.dtype, T, {
        if (sl_gelu_attrs(&launch->attrs)->tanh)
            return (gelu_bwd<gelu_bwd_f<T, true>, T>(cuda, launch, stream));
        return (gelu_bwd<gelu_bwd_f<T, false>, T>(cuda, launch, stream));
    });
}
extern "C" const sl_cuda_kernel sl_cuda_gelu = {SL_OP_GELU, NULL, NULL, gelu_run};
extern "C" const sl_cuda_kernel sl_cuda_gelu_bwd = {SL_OP_GELU_BWD, NULL, gelu_bwd_workspace, gelu_bwd_run};

static dropout_f dropout_of(const sl_launch *launch)
{
    const sl_type *type = &launch->in[0].type;
    int64_t columns = type->rank > 1 ? sl_type_count(type) / type->dim[0] : 1;
    float p = sl_dropout_attrs(&launch->attrs)->probability;
    return dropout_f{{},
                     (const sl_step_params *) launch->in[1].data,
                     p,
                     1.0f / (1.0f - p),
                     sl_dropout_attrs(&launch->attrs)->stream,
                     sl_dropout_attrs(&launch->attrs)->first_row * columns};
}
SAME_TYPE(dropout, DROPOUT, 0, dropout_of(launch))

static sl_status cast_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    SL_DISPATCH(launch->in[0].type.dtype, T, {
        SL_DISPATCH(launch->out[0].type.dtype, U, return (map<copy_f, T, U>(cuda, copy_f{}, launch, 0, stream)));
    });
}
extern "C" const sl_cuda_kernel sl_cuda_cast = {SL_OP_CAST, NULL, NULL, cast_run};

/* ---- SwiGLU and GeGLU (ops/swiglu.c): gu row [gate(f) | up(f)] ---- */

/* What the logistic function takes of a gate. */
template <bool GELU> static __device__ __forceinline__ float swiglu_inner(float gate)
{
    return GELU ? 2.0f * root_2_over_pi * fmaf(cubic * gate * gate, gate, gate) : gate;
}

/* Forward and backward make s by the same arithmetic, so that it has the same bits. */
template <bool GELU> static __device__ __forceinline__ float swiglu_of(float gate, float up)
{
    return __fdividef(gate, 1.0f + __expf(-swiglu_inner<GELU>(gate))) * up;
}

/* `again` may be where `ds` is: a thread reads before it writes. */
template <typename T, int W, bool BACKWARD, bool GELU>
__global__ void swiglu_kernel(const T *ds, const T *__restrict__ gu, T *__restrict__ out, T *again, int64_t n,
                              int64_t f)
{
    int64_t column = ((int64_t) blockIdx.x * blockDim.x + threadIdx.x) * W;
    for (int64_t row = blockIdx.y; row < n && column < f; row += gridDim.y) {
        float g[W], u[W];
        load<W>(gu + row * 2 * f + column, g);
        load<W>(gu + row * 2 * f + f + column, u);
        if (BACKWARD) {
            float d[W], dg[W], du[W];
            load<W>(ds + row * f + column, d);
#pragma unroll
            for (int j = 0; j < W; j++) {
                float s = __fdividef(1.0f, 1.0f + __expf(-swiglu_inner<GELU>(g[j]))), passed = g[j] * s;
                float steep = GELU ? passed * (2.0f * root_2_over_pi * fmaf(3.0f * cubic * g[j], g[j], 1.0f)) : passed;
                du[j] = d[j] * passed;
                dg[j] = d[j] * u[j] * fmaf(steep, 1.0f - s, s);
            }
            store<W>(out + row * 2 * f + column, dg);
            store<W>(out + row * 2 * f + f + column, du);
        }
        if (!BACKWARD || again) {
            float y[W];
#pragma unroll
            for (int j = 0; j < W; j++)
                y[j] = swiglu_of<GELU>(g[j], u[j]);
            store<W>((BACKWARD ? again : out) + row * f + column, y);
        }
    }
}

template <typename T, bool BACKWARD, bool GELU>
static sl_status swiglu(const void *ds, const void *gu, void *out, void *again, const sl_type *type,
                        cudaStream_t stream)
{
    constexpr int W = 16 / sizeof(T);
    int64_t n = type->dim[0], f = type->dim[1] / 2;
    bool wide = f % W == 0 && sl_cuda_aligned(gu, out, ds, again);
    int64_t columns = wide ? f / W : f;
    dim3 grid((unsigned) ((columns + 255) / 256), (unsigned) (n < 65535 ? n : 65535));
    if (wide)
        swiglu_kernel<T, W, BACKWARD, GELU>
            <<<grid, 256, 0, stream>>>((const T *) ds, (const T *) gu, (T *) out, (T *) again, n, f);
    else
        swiglu_kernel<T, 1, BACKWARD, GELU>
            <<<grid, 256, 0, stream>>>((const T *) ds, (const T *) gu, (T *) out, (T *) again, n, f);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

template <bool BACKWARD> static sl_status swiglu_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    const sl_operand *gu = &launch->in[BACKWARD ? 1 : 0];
    const void *ds = BACKWARD ? launch->in[0].data : NULL;
    void *out = launch->out[0].data, *again = BACKWARD ? launch->out[1].data : NULL;
    SL_DISPATCH(gu->type.dtype, T, {
        if (sl_swiglu_attrs(&launch->attrs)->gelu)
            return (swiglu<T, BACKWARD, true>(ds, gu->data, out, again, &gu->type, stream));
        return (swiglu<T, BACKWARD, false>(ds, gu->data, out, again, &gu->type, stream));
    });
}
extern "C" const sl_cuda_kernel sl_cuda_swiglu = {SL_OP_SWIGLU, NULL, NULL, swiglu_run<false>};
extern "C" const sl_cuda_kernel sl_cuda_swiglu_bwd = {SL_OP_SWIGLU_BWD, NULL, NULL, swiglu_run<true>};

/* ---- random operands for measuring: signs, exponents around 1, any mantissa ---- */

__global__ void random_kernel(uint32_t *to, int64_t count, uint32_t seed)
{
    int64_t stride = (int64_t) gridDim.x * blockDim.x;
    for (int64_t i = (int64_t) blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        uint32_t x = (uint32_t) i * 2654435761u + seed * 40503u;
        x ^= x >> 15, x *= 2246822519u, x ^= x >> 13, x *= 3266489917u, x ^= x >> 16;
        to[i] = (x & 0x80ff80ffu) | 0x3f003f00u;
    }
}

extern "C" void sl_cuda_fill_random(void *memory, size_t bytes, uint32_t seed, cudaStream_t stream)
{
    random_kernel<<<2048, 256, 0, stream>>>((uint32_t *) memory, (int64_t) (bytes / 4), seed);
}
