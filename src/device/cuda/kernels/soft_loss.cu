/* Cross-entropy with soft targets, one block of threads per row: two passes over the row for its loss (the maximum, then the sums), and
 * backward a third for the gradient. The rows' losses wait in the workspace for the kernel that adds them up. */
#include "device/cuda/kernels/total.cuh"
#include "ops/soft_loss.h"

static constexpr int THREADS = 256;

template <typename T>
__global__ void __launch_bounds__(THREADS)
    soft_loss_kernel(const T *__restrict__ logits, const float *__restrict__ targets, const float *__restrict__ weights,
                     const sl_step_params *__restrict__ step, int32_t loss, T *gradient, float *__restrict__ losses,
                     int64_t classes)
{
    __shared__ float scratch[33];
    int64_t row = blockIdx.x;
    float weight = weights ? weights[row] : 1.0f, most = -INFINITY, sum = 0, total = 0, products = 0;
    logits += row * classes, targets += row * classes;
    for (int64_t c = threadIdx.x; c < classes; c += THREADS)
        most = fmaxf(most, to_f32(logits[c]));
    most = block_reduce<true>(most, scratch);
    for (int64_t c = threadIdx.x; c < classes; c += THREADS) {
        float x = to_f32(logits[c]), t = targets[c];
        sum += expf(x - most);
        total += t;
        products = fmaf(t, most - x, products);
    }
    sum = block_reduce(sum, scratch);
    total = block_reduce(total, scratch);
    products = block_reduce(products, scratch);
    if (threadIdx.x == 0)
        losses[row] = weight * fmaf(total, logf(sum), products);
    if (!gradient)
        return;
    float share = total / sum, factor = sl_loss_scale(step, loss) * weight;
    for (int64_t c = threadIdx.x; c < classes; c += THREADS)
        from_f32((expf(to_f32(logits[c]) - most) * share - targets[c]) * factor, &gradient[row * classes + c]);
}

static size_t soft_loss_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    return sl_cuda_align((size_t) launch->in[0].type.dim[0] * sizeof(float));
}

static sl_status soft_loss_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    const bool backward = launch->op == SL_OP_SOFT_LOSS_BWD;
    const sl_type *type = &launch->in[0].type;
    const sl_step_params *step = backward ? (const sl_step_params *) launch->in[2].data : NULL;
    float *losses = (float *) launch->workspace;
    SL_DISPATCH(type->dtype, T,
                (soft_loss_kernel<T><<<(unsigned) type->dim[0], THREADS, 0, stream>>>(
                    (const T *) launch->in[0].data, (const float *) launch->in[1].data,
                    (const float *) launch->in[backward ? 3 : 2].data, step, sl_soft_loss_attrs(&launch->attrs)->loss,
                    backward ? (T *) launch->out[1].data : NULL, losses, type->dim[1])));
    SL_CUDA_LAUNCHED();
    total_kernel<<<1, 256, 0, stream>>>(losses, type->dim[0], (float *) launch->out[0].data, false);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}
extern "C" const sl_cuda_kernel sl_cuda_soft_loss = {SL_OP_SOFT_LOSS, NULL, soft_loss_workspace, soft_loss_run};
extern "C" const sl_cuda_kernel sl_cuda_soft_loss_bwd = {SL_OP_SOFT_LOSS_BWD, NULL, soft_loss_workspace, soft_loss_run};
