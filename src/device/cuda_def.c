/*
 * What is known of the CUDA device without its plugin: plans for a GPU are made on machines that have none, and what a launch works on
 * fixes the bits, so it must not depend on whether the GPU is here.
 *
 * The workspace estimates follow the kernels in device/cuda. A plan for the GPU of this machine queries the plugin
 * instead.
 */
#include "device/device.h"

#include "device/nvidia.h"
#include "ops/attention.h"

#define GEMM_WORKSPACE ((size_t) 32 << 20) /* what cuBLASLt recommends on Hopper */
#define HOST_WORKSPACE ((size_t) 1 << 16)

/* Hopper's own kernel (attention_hopper_bwd.cu): dQ in f32 and two f32 per row and head, in tiles of up to 128 rows. cuDNN's deterministic
 * backward (attention.c): an f32 per row and head, dK and dV in bf16 where they are added to what is there, dQ of a slice's second part,
 * and dS in bf16, for all K/V heads or as few as the limit requires. */
static size_t attention_bwd_workspace(const sl_hardware *hardware, const sl_launch *launch)
{
    const struct sl_attention_attrs *attrs = sl_attention_attrs(&launch->attrs);
    const sl_type *q = &launch->in[1].type, *kv = &launch->in[2].type;
    size_t rows = (size_t) q->dim[0], context = (size_t) (kv->rank ? kv : q)->dim[0];
    size_t heads = (size_t) SL_MAX(attrs->heads, 1), groups = (size_t) SL_MAX(attrs->kv_heads, 1);
    if (!hardware->attention_keeps_scores && (attrs->head_dim == 64 || attrs->head_dim == 128))
        return SL_ROUND_UP(rows, (size_t) 128) * heads * 4 * (size_t) (attrs->head_dim + 2);
    if (attrs->sequence > 0)
        context = SL_MIN(context, (size_t) attrs->sequence);
    size_t fixed = rows * heads * 4;
    if ((launch->accumulate >> 1 & 1) || launch->out[1].type.dtype != SL_BF16)
        fixed += 2 * (size_t) sl_type_count(&launch->out[1].type);
    if (context > rows) { /* a slice: the keys before it in parts of 131,072, then itself */
        fixed += 2 * (size_t) sl_type_count(&launch->out[0].type);
        context = SL_MAX(rows, SL_MIN(context - rows, (size_t) 131072));
    }
    size_t scores = 2 * heads * rows * context;
    if (attrs->nondeterministic) /* no dS: dQ in f32 */
        return fixed + rows * heads * (size_t) attrs->head_dim * 4;
    if (!launch->workspace_bytes || fixed + scores <= launch->workspace_bytes)
        return fixed + scores;
    return fixed + SL_MAX(SL_MIN(scores / 2, launch->workspace_bytes), scores / groups);
}

/* A long reduction with few outputs is split: partial sums in f32. */
static size_t matmul_workspace(const sl_launch *launch)
{
    int64_t outputs = sl_type_count(&launch->out[0].type), m = SL_MAX(launch->out[0].type.dim[0], (int64_t) 1);
    int64_t k = sl_type_count(&launch->in[0].type) / m;
    return outputs < (int64_t) 1 << 22 && k >= 8192 ? SL_MAX(GEMM_WORKSPACE, 8 * (size_t) outputs * 4) : GEMM_WORKSPACE;
}

static size_t estimate_workspace(const sl_hardware *hardware, const sl_launch *launch, sl_stream stream)
{
    const sl_op_def *op = sl_op(launch->op);
    if (stream == SL_STREAM_HOST)
        return HOST_WORKSPACE;
    switch (launch->op) {
    case SL_OP_MATMUL:
        return matmul_workspace(launch);
    case SL_OP_ATTENTION:
        return (size_t) 1 << 20;
    case SL_OP_ATTENTION_BWD:
        return attention_bwd_workspace(hardware, launch);
    default: /* what its kernels keep, and the library's share where they call it */
        return (op->estimate_workspace ? op->estimate_workspace(launch) : 0) +
               (op->category == SL_CAT_DOT_PRODUCT ? GEMM_WORKSPACE : 0);
    }
}

static bool may_be_present(void)
{
    return sl_nvidia_present("");
}

const sl_device_def sl_device_def_cuda = {
    .name = "cuda",
    .title = "CUDA",
    .present = may_be_present,
    .absent = "this machine has no NVIDIA GPU, or this container may not use it",
    .computes = true,
    .chunk_tokens = 8192,
    .most_pairs = (int64_t) 1 << 31, /* dS takes 2 bytes a pair and K/V group: 16 GiB for four groups */
    .precision = SL_PRECISION_BF16_MASTER,
    .estimate_workspace = estimate_workspace,
};
