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
    const sl_op_def *def = sl_op(launch->op);
    /* What counts operations and is no attention multiplies matrices; what counts none is bound by memory everywhere. */
    const double efficiency = def->category == SL_CAT_ATTENTION ? hw->attention_efficiency[dtype][def->backward]
                                                                : hw->matmul_efficiency[dtype];
    const double arithmetic =
        work->hardware_flops > 0 ? work->hardware_flops / (hw->peak_flops[dtype] * efficiency) : 0;
    double bytes = (work->read_bytes + work->write_bytes) / hw->memory_bandwidth[SL_TIER_DEVICE];
    return hw->launch_latency_s + fmax(arithmetic, bytes);
}

static double host_seconds(const sl_hardware *hw, const sl_work *work)
{
    double rate = hw->host_optimizer_bandwidth > 0 ? hw->host_optimizer_bandwidth : hw->memory_bandwidth[SL_TIER_HOST];
    return rate > 0 ? (work->read_bytes + work->write_bytes) / rate + 20e-6 : INFINITY;
}

static void fill_machine(sl_costs *c, const sl_program *program, const sl_hardware *hw)
{
    for (int link = 0; link < SL_LINK_COUNT; link++) {
        c->link_bytes_per_s[link] = hw->link_bandwidth[link];
        c->link_bytes_per_s_both[link] = SL_MIN(hw->link_bandwidth_both, hw->link_bandwidth[link]);
    }
    c->link_latency_s = hw->link_latency_s;
    c->peak_flops = hw->peak_flops[sl_policy_of(program->config.precision)->compute];
    if (hw->shared_cores) { /* a copy occupies memory: half of its time is lost */
        c->copy_slowdown = 0.5;
        c->host_slowdown = 1; /* host work uses the cores of compute: overlap gains nothing */
    }
    snprintf(c->source, sizeof c->source, "roofline %s", hw->name);
}

sl_status sl_costs_roofline(const sl_program *program, const sl_hardware *hardware, sl_device *device, sl_costs **costs)
{
    sl_costs *c;
    const sl_device_def *def = sl_device_def_for(hardware);
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
            const sl_stream stream = sl_stream_on((sl_tier) tier);
            if (stream != SL_STREAM_COMPUTE && !example->host_allowed)
                continue;
            c->workspace[tier][k] = device ? device->class->workspace(device, &launch, stream)
                                           : def->estimate_workspace(hardware, &launch, stream);
        }
    }
    fill_machine(c, program, hardware);
    *costs = c;
    return SL_OK;
}
