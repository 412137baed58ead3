/* The CPU as a device: two arenas of its own in ordinary memory, so that the very plans that drive a GPU, with real copies
 * between "device" and "host", run and are tested on any machine.
 *
 * Kernels of the compute stream run on a pool of `threads`, those of the host stream on a second pool: host tasks (the
 * optimizer) are bound by memory, compute by arithmetic, so they overlap; and once compute has ended, the host stream may use
 * every core. Results do not depend on either number. Copies run in the threads of their streams. */
#include <stdio.h>

#include "core/log.h"
#include "core/mem.h"
#include "device/cpu/runtime/cpu.h"

typedef struct cpu_device {
    sl_queued queued;
    sl_isa isa;
    sl_pool *compute_pool, *host_pool;
    sl_cpu_streams *streams;
    char numerics[32];
} cpu_device;

static cpu_device *self(sl_device *device)
{
    return (cpu_device *) (void *) device;
}

static void cpu_close(sl_device *device)
{
    cpu_device *cpu = self(device);
    sl_cpu_streams_destroy(cpu->streams);
    sl_pool_destroy(cpu->compute_pool);
    sl_pool_destroy(cpu->host_pool);
    sl_queued_close(&cpu->queued);
    sl_free(cpu);
}

static sl_status push(sl_queued *device, sl_stream stream, const sl_command *command)
{
    return sl_cpu_streams_push(self(&device->base)->streams, stream, command);
}

static sl_status cpu_open(const sl_device_config *config, sl_device **device)
{
    cpu_device *cpu;
    sl_status status;
    SL_TRY(sl_alloc(&cpu, 1, sizeof *cpu));
    cpu->queued.push = push;
    SL_TRY_GOTO(sl_isa_detect(&cpu->isa), fail);
    snprintf(cpu->numerics, sizeof cpu->numerics, "cpu %s", sl_isa_name(cpu->isa));
    SL_TRY_GOTO(sl_queued_open(&cpu->queued, &sl_device_cpu, config), fail);
    SL_TRY_GOTO(sl_pool_create(config->threads, &cpu->compute_pool), fail);
    SL_TRY_GOTO(sl_pool_create(config->threads, &cpu->host_pool), fail);
    sl_pool *pools[SL_STREAM_COUNT] = {[SL_STREAM_COMPUTE] = cpu->compute_pool, [SL_STREAM_HOST] = cpu->host_pool};
    SL_TRY_GOTO(sl_cpu_streams_create(config->max_commands, config->max_events, pools, &cpu->streams), fail);
    *device = &cpu->queued.base;
    return SL_OK;
fail:
    cpu_close(&cpu->queued.base);
    return status;
}

static size_t cpu_workspace(sl_device *device, const sl_launch *launch, sl_stream stream)
{
    cpu_device *cpu = self(device);
    const sl_pool *pool = stream == SL_STREAM_HOST ? cpu->host_pool : cpu->compute_pool;
    return SL_ROUND_UP(sl_cpu_kernel_workspace(launch, cpu->isa, sl_pool_threads(pool)), (size_t) SL_ALIGN);
}

static sl_status cpu_supports(sl_device *device, const sl_launch *launch)
{
    if ((int) launch->op < 0 || launch->op >= SL_OP_COUNT)
        return sl_fail(SL_E_UNSUPPORTED, "op %d is not in the table of ops", (int) launch->op);
    if (!sl_cpu_kernel_find(launch, self(device)->isa) && !sl_op(launch->op)->reference)
        return sl_fail(SL_E_UNSUPPORTED, "the CPU has no kernel for %s with these types", sl_op(launch->op)->name);
    return SL_OK;
}

static sl_status cpu_step_begin(sl_device *device)
{
    SL_TRY(sl_queued_begin(&self(device)->queued));
    sl_cpu_streams_begin(self(device)->streams);
    return SL_OK;
}

static sl_status cpu_launch(sl_device *device, sl_stream stream, const sl_launch *launch, sl_span *span)
{
    const sl_cpu_kernel *kernel = sl_cpu_kernel_find(launch, self(device)->isa);
    sl_status status = cpu_supports(device, launch);
    size_t needed = status == SL_OK ? cpu_workspace(device, launch, stream) : 0;
    if (launch->workspace_bytes < needed)
        status =
            sl_fail(SL_E_INTERNAL, "%s: the launch brings %zu bytes of workspace, its kernel %s needs %zu",
                    sl_op(launch->op)->name, launch->workspace_bytes, kernel ? kernel->name : "the reference", needed);
    return sl_queued_launch(&self(device)->queued, status, stream, launch, kernel, span);
}

static sl_status cpu_step_end(sl_device *device)
{
    if (self(device)->queued.in_step)
        sl_cpu_streams_finish(self(device)->streams);
    return sl_queued_end(&self(device)->queued);
}

static void cpu_hardware(sl_device *device, sl_hardware *hardware)
{
    cpu_device *cpu = self(device);
    sl_cpu_throughput per_cycle = sl_cpu_throughput_of(cpu->isa);
    sl_cpu_profile(cpu->isa, sl_pool_threads(cpu->compute_pool), &per_cycle, hardware);
}

static const char *cpu_numerics(sl_device *device)
{
    return self(device)->numerics;
}

uint64_t sl_cpu_device_host_waits(const sl_device *device)
{
    return sl_cpu_streams_host_waits(((const cpu_device *) (const void *) device)->streams);
}

const sl_device_class sl_device_cpu = {
    .name = "cpu",
    .describe = "this machine's cores; device memory is an arena of its own",
    .open = cpu_open,
    .close = cpu_close,
    SL_QUEUED_FUNCTIONS,
    .workspace = cpu_workspace,
    .supports = cpu_supports,
    .step_begin = cpu_step_begin,
    .launch = cpu_launch,
    .step_end = cpu_step_end,
    .hardware = cpu_hardware,
    .numerics = cpu_numerics,
};

/* With as many threads as this machine has cores: a profile does not say how many its machine has. */
static size_t cpu_estimate(const sl_hardware *hardware, const sl_launch *launch, sl_stream stream)
{
    (void) hardware, (void) stream;
    sl_isa isa = SL_ISA_SCALAR;
    return sl_isa_detect(&isa) == SL_OK ? sl_cpu_kernel_workspace(launch, isa, sl_pool_cores()) : 0;
}

const sl_device_def sl_device_def_cpu = {
    .name = "cpu",
    .title = "CPU",
    .class = &sl_device_cpu,
    .computes = true,
    .shared_cores = true,
    .chunk_tokens = 1024,
    .precision = SL_PRECISION_F32,
    .estimate_workspace = cpu_estimate,
};
