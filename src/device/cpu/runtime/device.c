/* The CPU as a device: two arenas of its own in ordinary memory, so that the very plans that drive a GPU, with real copies
 * between "device" and "host", run and are tested on any machine.
 *
 * Kernels of the compute stream run on a pool of `threads`, those of the host stream on a second pool: host tasks (the
 * optimizer) are bound by memory, compute by arithmetic, so they overlap; and once compute has ended, the host stream may use
 * every core. Results do not depend on either number. Copies run in the threads of their streams. */
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "core/mem.h"
#include "core/pages.h"
#include "device/cpu/runtime/cpu.h"

typedef struct cpu_device {
    sl_device base;
    sl_device_config config;
    sl_isa isa;
    unsigned char *arena[SL_TIER_COUNT];
    sl_pool *compute_pool, *host_pool;
    sl_cpu_streams *streams;
    bool in_step;
    sl_status error; /* the step's first, with its message */
    char message[512];
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
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        if (cpu->arena[tier])
            sl_pages_unmap(cpu->arena[tier], cpu->config.arena_bytes[tier]);
    sl_free(cpu);
}

static sl_status cpu_open(const sl_device_config *config, sl_device **device)
{
    cpu_device *cpu;
    sl_status status;
    SL_TRY(sl_alloc(&cpu, 1, sizeof *cpu));
    cpu->base.class = &sl_device_cpu;
    cpu->config = *config;
    SL_TRY_GOTO(sl_isa_detect(&cpu->isa), fail);
    snprintf(cpu->numerics, sizeof cpu->numerics, "cpu %s", sl_isa_name(cpu->isa));
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        if (config->arena_bytes[tier])
            SL_TRY_GOTO(sl_pages_map(config->arena_bytes[tier], (void **) &cpu->arena[tier]), fail);
    SL_TRY_GOTO(sl_pool_create(config->threads, &cpu->compute_pool), fail);
    SL_TRY_GOTO(sl_pool_create(config->threads, &cpu->host_pool), fail);
    sl_pool *pools[SL_STREAM_COUNT] = {[SL_STREAM_COMPUTE] = cpu->compute_pool, [SL_STREAM_HOST] = cpu->host_pool};
    SL_TRY_GOTO(sl_cpu_streams_create(config->max_commands, config->max_events, pools, &cpu->streams), fail);
    *device = &cpu->base;
    return SL_OK;
fail:
    cpu_close(&cpu->base);
    return status;
}

static void *cpu_arena(sl_device *device, sl_tier tier)
{
    return self(device)->arena[tier];
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

/* Keeps the step's first error for step_end. */
static sl_status note(cpu_device *cpu, sl_status status)
{
    if (status != SL_OK && cpu->error == SL_OK) {
        cpu->error = status;
        snprintf(cpu->message, sizeof cpu->message, "%s", sl_error_message());
    }
    return status;
}

static sl_status cpu_step_begin(sl_device *device)
{
    cpu_device *cpu = self(device);
    if (cpu->in_step)
        return sl_fail(SL_E_INTERNAL, "a step began inside a step");
    cpu->in_step = true;
    cpu->error = SL_OK;
    sl_cpu_streams_begin(cpu->streams);
    return SL_OK;
}

static sl_status push(cpu_device *cpu, sl_stream stream, const sl_cpu_command *command)
{
    if (!cpu->in_step)
        return sl_fail(SL_E_INTERNAL, "a command was issued outside a step");
    return note(cpu, sl_cpu_streams_push(cpu->streams, stream, command));
}

static bool in_arena(const cpu_device *cpu, const void *at, size_t bytes)
{
    return sl_in_arenas(cpu->arena, cpu->config.arena_bytes, at, bytes);
}

static sl_status cpu_launch(sl_device *device, sl_stream stream, const sl_launch *launch, sl_span *span)
{
    cpu_device *cpu = self(device);
    sl_status status = cpu_supports(device, launch);
    if (status != SL_OK)
        return note(cpu, status);
    if (!sl_launch_in_arenas(cpu->arena, cpu->config.arena_bytes, launch))
        return note(cpu, sl_fail(SL_E_INTERNAL, "%s: an operand leaves the arenas", sl_op(launch->op)->name));
    sl_cpu_command command = {.kind = SL_CPU_RUN, .launch = launch, .span = span};
    command.kernel = sl_cpu_kernel_find(launch, cpu->isa);
    size_t needed = cpu_workspace(device, launch, stream);
    if (launch->workspace_bytes < needed)
        return note(cpu, sl_fail(SL_E_INTERNAL, "%s: the launch brings %zu bytes of workspace, its kernel %s needs %zu",
                                 sl_op(launch->op)->name, launch->workspace_bytes,
                                 command.kernel ? command.kernel->name : "the reference", needed));
    return push(cpu, stream, &command);
}

static sl_status cpu_copy(sl_device *device, sl_stream stream, void *to, const void *from, size_t bytes, sl_span *span)
{
    cpu_device *cpu = self(device);
    if (!in_arena(cpu, to, bytes) || !in_arena(cpu, from, bytes))
        return note(cpu, sl_fail(SL_E_INTERNAL, "a copy of %zu bytes leaves the arenas", bytes));
    sl_cpu_command command = {.kind = SL_CPU_COPY, .to = to, .from = from, .bytes = bytes, .span = span};
    return push(cpu, stream, &command);
}

static sl_status cpu_record(sl_device *device, sl_stream stream, int64_t event)
{
    sl_cpu_command command = {.kind = SL_CPU_RECORD, .event = event};
    return push(self(device), stream, &command);
}

static sl_status cpu_wait(sl_device *device, sl_stream stream, int64_t event)
{
    sl_cpu_command command = {.kind = SL_CPU_WAIT, .event = event};
    return push(self(device), stream, &command);
}

static sl_status cpu_step_end(sl_device *device)
{
    cpu_device *cpu = self(device);
    if (!cpu->in_step)
        return sl_fail(SL_E_INTERNAL, "a step ended that had not begun");
    sl_cpu_streams_finish(cpu->streams);
    cpu->in_step = false;
    return cpu->error == SL_OK ? SL_OK : sl_fail(cpu->error, "%s", cpu->message);
}

static sl_status check_outside(cpu_device *cpu, const void *at, size_t bytes)
{
    if (cpu->in_step)
        return sl_fail(SL_E_INTERNAL, "memory was read or written inside a step");
    if (!in_arena(cpu, at, bytes))
        return sl_fail(SL_E_INTERNAL, "%zu bytes to read or write leave the arena", bytes);
    return SL_OK;
}

static sl_status cpu_write(sl_device *device, sl_tier tier, void *to, const void *from, size_t bytes)
{
    (void) tier;
    SL_TRY(check_outside(self(device), to, bytes));
    if (from)
        memcpy(to, from, bytes);
    else
        memset(to, 0, bytes);
    return SL_OK;
}

static sl_status cpu_read(sl_device *device, sl_tier tier, void *to, const void *from, size_t bytes)
{
    (void) tier;
    SL_TRY(check_outside(self(device), from, bytes));
    memcpy(to, from, bytes);
    return SL_OK;
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
    .arena = cpu_arena,
    .workspace = cpu_workspace,
    .supports = cpu_supports,
    .step_begin = cpu_step_begin,
    .launch = cpu_launch,
    .copy = cpu_copy,
    .record = cpu_record,
    .wait = cpu_wait,
    .step_end = cpu_step_end,
    .write = cpu_write,
    .read = cpu_read,
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
