/*
 * Costs from a hardware profile: the roofline. A signature takes the longer of its arithmetic at the sustained rate of its
 * category and its bytes at memory speed, plus a launch. Optimizer work beside host memory is bound by host memory
 * alone.
 */
#include "cost/cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/mem.h"
#include "ops/attention.h"
#include "ops/head_loss.h"

sl_status sl_costs_new(int32_t n_signatures, sl_costs **costs)
{
    sl_costs *c;
    SL_TRY(sl_alloc(&c, 1, sizeof *c));
    sl_status status;
    SL_TRY_GOTO(sl_alloc(&c->device_s, n_signatures + 1, sizeof(double)), destroy);
    SL_TRY_GOTO(sl_alloc(&c->host_s, n_signatures + 1, sizeof(double)), destroy);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        SL_TRY_GOTO(sl_alloc(&c->workspace[tier], n_signatures + 1, sizeof(size_t)), destroy);
    for (int32_t k = 0; k < n_signatures; k++)
        c->host_s[k] = INFINITY;
    c->n_signatures = n_signatures;
    *costs = c;
    return SL_OK;
destroy:
    sl_costs_destroy(c);
    return status;
}

void sl_costs_destroy(sl_costs *costs)
{
    if (!costs)
        return;
    sl_free(costs->device_s);
    sl_free(costs->host_s);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        sl_free(costs->workspace[tier]);
    sl_free(costs);
}

void sl_costs_launch(const sl_program *program, int32_t signature, sl_launch *launch)
{
    const sl_task *task = &program->tasks[program->signatures[signature].example];
    memset(launch, 0, sizeof *launch);
    launch->op = task->op;
    launch->accumulate = task->accumulate;
    launch->attrs = sl_signature_attrs(task);
    launch->workspace_bytes = program->config.workspace_limit;
    for (int i = 0; i < SL_MAX_IN; i++)
        if (task->in[i].object >= 0)
            launch->in[i].type = task->in[i].type;
    for (int i = 0; i < SL_MAX_OUT; i++)
        if (task->out[i].object >= 0)
            launch->out[i].type = task->out[i].type;
}

static double device_seconds(const sl_hardware *hw, const sl_launch *launch, const sl_work *work)
{
    sl_dtype dtype = launch->in[0].type.dtype == SL_I32 ? SL_F32 : launch->in[0].type.dtype;
    double peak = hw->peak_flops[dtype], arithmetic = 0;
    switch (sl_op(launch->op)->category) {
    case SL_CAT_DOT_PRODUCT:
        arithmetic = work->hardware_flops / (peak * hw->matmul_efficiency[dtype]);
        break;
    case SL_CAT_ATTENTION:
        arithmetic = work->hardware_flops / (peak * hw->attention_efficiency[dtype][sl_op(launch->op)->backward]);
        break;
    default: /* bound by memory everywhere */
        break;
    }
    double bytes = (work->read_bytes + work->write_bytes) / hw->memory_bandwidth[SL_TIER_DEVICE];
    return hw->launch_latency_s + fmax(arithmetic, bytes);
}

/* As device/cuda: dQ in f32 and two f32 per row and head, in tiles of up to 128 rows (attention_hopper_bwd.cu). Or (attention.c) with cuDNN's
 * deterministic backward: an f32 per row and head, dK and dV in bf16 where they are added to what is there, dQ of a slice's second
 * part, and dS in bf16, for all K/V heads or as few as the limit asks for. */
static size_t attention_bwd_workspace(const sl_launch *launch, const sl_hardware *hardware)
{
    const sl_type *q = &launch->in[1].type, *kv = &launch->in[2].type;
    size_t rows = (size_t) q->dim[0], context = (size_t) (kv->rank ? kv : q)->dim[0];
    size_t heads = (size_t) SL_MAX(sl_attention_attrs(&launch->attrs)->heads, 1);
    size_t groups = (size_t) SL_MAX(sl_attention_attrs(&launch->attrs)->kv_heads, 1);
    int head_dim = sl_attention_attrs(&launch->attrs)->head_dim;
    if (!hardware->attention_keeps_scores && (head_dim == 64 || head_dim == 128))
        return SL_ROUND_UP(rows, (size_t) 128) * heads * 4 * (size_t) (head_dim + 2);
    if (sl_attention_attrs(&launch->attrs)->sequence > 0)
        context = SL_MIN(context, (size_t) sl_attention_attrs(&launch->attrs)->sequence);
    size_t fixed = rows * heads * 4;
    if ((launch->accumulate >> 1 & 1) || launch->out[1].type.dtype != SL_BF16)
        fixed += 2 * (size_t) sl_type_count(&launch->out[1].type);
    if (context > rows) { /* a slice: the keys before it in parts of 131,072, then itself */
        fixed += 2 * (size_t) sl_type_count(&launch->out[0].type);
        context = SL_MAX(rows, SL_MIN(context - rows, (size_t) 131072));
    }
    size_t scores = 2 * heads * rows * context;
    if (sl_attention_attrs(&launch->attrs)->nondeterministic) /* no dS: dQ in f32 */
        return fixed + rows * heads * (size_t) head_dim * 4;
    if (!launch->workspace_bytes || fixed + scores <= launch->workspace_bytes)
        return fixed + scores;
    return fixed + SL_MAX(SL_MIN(scores / 2, launch->workspace_bytes), scores / groups);
}

/* What cuBLASLt recommends on Hopper, or the partial sums of a long product with few outputs. */
static size_t matmul_workspace(const sl_launch *launch)
{
    int64_t outputs = sl_type_count(&launch->out[0].type), m = SL_MAX(launch->out[0].type.dim[0], (int64_t) 1);
    int64_t k = sl_type_count(&launch->in[0].type) / m;
    size_t usual = (size_t) 32 << 20;
    return outputs < (int64_t) 1 << 22 && k >= 8192 ? SL_MAX(usual, 8 * (size_t) outputs * 4) : usual;
}

size_t sl_costs_workspace_estimate(const sl_launch *launch, sl_stream stream, const sl_hardware *hardware)
{
    const sl_type *first = &launch->in[0].type;
    size_t rows = (size_t) SL_MAX(first->dim[0], (int64_t) 1);
    if (stream == SL_STREAM_HOST)
        return (size_t) 1 << 16;
    switch (launch->op) {
    case SL_OP_MATMUL:
        return matmul_workspace(launch);
    case SL_OP_HEAD_LOSS:
    case SL_OP_HEAD_LOSS_BWD: { /* one token block of logits in f32; their gradients take their place */
        size_t block = (size_t) sl_head_block(launch), vocabulary = (size_t) launch->in[1].type.dim[0];
        return block * vocabulary * 4 + ((size_t) 32 << 20);
    }
    case SL_OP_ATTENTION:
        return (size_t) 1 << 20;
    case SL_OP_ATTENTION_BWD:
        return attention_bwd_workspace(launch, hardware);
    case SL_OP_EMBEDDING_BWD: /* tokens sorted by id, and two f32 rows for every 32 of them */
        return rows * 16 + SL_DIV_UP(rows, (size_t) 32) * 8 * (size_t) SL_MAX(first->dim[1], (int64_t) 1);
    case SL_OP_RMSNORM_BWD:
    case SL_OP_LAYERNORM_BWD:
    case SL_OP_BIAS_GRAD: /* partial sums over rows */
        return (size_t) SL_MAX(first->dim[1], (int64_t) 1) * 4 * 264 * 2;
    case SL_OP_SUM_SQUARES:
    case SL_OP_SUM:
        return (size_t) 1 << 16;
    default:
        return 0;
    }
}

static double host_seconds(const sl_hardware *hw, const sl_work *work)
{
    double rate = hw->host_optimizer_bandwidth > 0 ? hw->host_optimizer_bandwidth : hw->memory_bandwidth[SL_TIER_HOST];
    return rate > 0 ? (work->read_bytes + work->write_bytes) / rate + 20e-6 : INFINITY;
}

static void fill_machine(sl_costs *c, const sl_program *program, const sl_hardware *hw)
{
    for (int direction = 0; direction < 2; direction++) {
        c->link_bytes_per_s[direction] = hw->link_bandwidth[direction];
        c->link_bytes_per_s_both[direction] = SL_MIN(hw->link_bandwidth_both, hw->link_bandwidth[direction]);
    }
    c->link_latency_s = hw->link_latency_s;
    c->peak_flops = hw->peak_flops[sl_policy_of(program->config.precision)->compute];
    if (hw->shared_cores) { /* a copy keeps memory busy: half of it is felt */
        c->copy_slowdown = 0.5;
        c->host_slowdown = 1; /* the very cores that compute runs on: nothing is gained by running beside it */
    }
    snprintf(c->source, sizeof c->source, "roofline %s", hw->name);
}

sl_status sl_costs_roofline(const sl_program *program, const sl_hardware *hardware, sl_device *device, sl_costs **costs)
{
    sl_costs *c;
    SL_TRY(sl_costs_new(program->n_signatures, &c));
    for (int32_t k = 0; k < program->n_signatures; k++) {
        const sl_task *example = &program->tasks[program->signatures[k].example];
        const sl_work *work = &program->signatures[k].work;
        sl_launch launch;
        sl_costs_launch(program, k, &launch);
        c->device_s[k] = device_seconds(hardware, &launch, work);
        if (example->host_allowed)
            c->host_s[k] = host_seconds(hardware, work);
        for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
            sl_stream stream = tier == SL_TIER_DEVICE ? SL_STREAM_COMPUTE : SL_STREAM_HOST;
            if (stream == SL_STREAM_HOST && !example->host_allowed)
                continue;
            c->workspace[tier][k] = device ? device->class->workspace(device, &launch, stream)
                                           : sl_costs_workspace_estimate(&launch, stream, hardware);
        }
    }
    fill_machine(c, program, hardware);
    *costs = c;
    return SL_OK;
}
