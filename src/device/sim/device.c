/* A device that finds missing dependencies. It stores a step's commands and runs them at the end of the step, in one of the
 * orders that streams and events allow. The seed selects an adversarial order:
 *
 *  - streams have priorities; the first one that can go on, does. Priorities are shuffled now and then, how often depends on the
 *    seed: always (a random walk), seldom (one stream runs ahead as far as it can), never (one stream starves).
 *  - every launch and copy has a first and a second moment, and other streams may run in between.
 *
 * If every order gives the same bytes, the events suffice. Time is virtual: a command starts when its stream and the events it
 * waited for allow, which does not depend on the order of execution. */
#include <string.h>

#include "core/mem.h"
#include "core/rng.h"
#include "device/queued.h"
#include "device/sim/sim.h"

typedef struct queue {
    sl_command *commands;
    int64_t count, next;
    bool begun;     /* the next command is between its two moments */
    uint64_t state; /* of the begun command: a launch's hash, a copy's split */
    double clock;
} queue;

typedef struct event {
    uint64_t recorded; /* step */
    double time;
} event;

typedef struct sim_device {
    sl_queued queued;
    queue queues[SL_STREAM_COUNT];
    event *events;
    uint64_t *issued; /* by event: see sl_event_issue */
    uint64_t step, draws;
    int priority[SL_STREAM_COUNT];
} sim_device;

static sim_device *self(sl_device *device)
{
    return (sim_device *) (void *) device;
}

static uint32_t draw(sim_device *sim, uint32_t below)
{
    return sl_philox(sim->queued.config.seed, sim->draws++, sim->step).v[0] % below;
}

static void sim_close(sl_device *device)
{
    sim_device *sim = self(device);
    sl_queued_close(&sim->queued);
    for (int s = 0; s < SL_STREAM_COUNT; s++)
        sl_free(sim->queues[s].commands);
    sl_free(sim->events);
    sl_free(sim->issued);
    sl_free(sim);
}

static sl_status push(sl_queued *device, sl_stream stream, const sl_command *command)
{
    sim_device *sim = self(&device->base);
    queue *q = &sim->queues[stream];
    if (q->count >= device->config.max_commands)
        return sl_fail(SL_E_INTERNAL, "stream %s: more than the %lld commands per step the device was opened for",
                       sl_streams[stream].name, (long long) device->config.max_commands);
    SL_TRY(sl_event_issue(sim->issued, device->config.max_events, sim->step, stream, command));
    q->commands[q->count++] = *command;
    return SL_OK;
}

static sl_status sim_open(const sl_device_config *config, sl_device **device)
{
    sim_device *sim;
    sl_status status;
    SL_TRY(sl_alloc(&sim, 1, sizeof *sim));
    sim->queued.push = push;
    SL_TRY_GOTO(sl_queued_open(&sim->queued, &sl_device_sim, config), fail);
    for (int s = 0; s < SL_STREAM_COUNT; s++) {
        sim->priority[s] = s;
        SL_TRY_GOTO(sl_alloc(&sim->queues[s].commands, SL_MAX(config->max_commands, 1), sizeof(sl_command)), fail);
    }
    SL_TRY_GOTO(sl_alloc(&sim->events, SL_MAX(config->max_events, 1), sizeof *sim->events), fail);
    SL_TRY_GOTO(sl_alloc(&sim->issued, SL_MAX(config->max_events, 1), sizeof *sim->issued), fail);
    *device = &sim->queued.base;
    return SL_OK;
fail:
    sim_close(&sim->queued.base);
    return status;
}

/* Some ops have one, so that plans with workspaces are tried, and they can do with a quarter of what they like. */
static size_t sim_workspace(sl_device *device, const sl_launch *launch, sl_stream stream)
{
    (void) device, (void) stream;
    size_t least = (size_t) SL_ALIGN * ((size_t) launch->op % 3), likes = 4 * least;
    if (launch->workspace_bytes == 0 || launch->workspace_bytes >= likes)
        return likes;
    return SL_MAX(least, launch->workspace_bytes / SL_ALIGN * SL_ALIGN);
}

static sl_status sim_supports(sl_device *device, const sl_launch *launch)
{
    (void) device;
    if ((int) launch->op < 0 || launch->op >= SL_OP_COUNT)
        return sl_fail(SL_E_UNSUPPORTED, "op %d is not in the table of ops", (int) launch->op);
    return SL_OK;
}

/* ---- issuing ---- */

static sl_status sim_step_begin(sl_device *device)
{
    sim_device *sim = self(device);
    SL_TRY(sl_queued_begin(&sim->queued));
    sim->step++;
    sim->draws = 0;
    for (int s = 0; s < SL_STREAM_COUNT; s++) {
        queue *q = &sim->queues[s];
        q->count = q->next = 0, q->clock = 0, q->begun = false;
    }
    return SL_OK;
}

static sl_status sim_launch(sl_device *device, sl_stream stream, const sl_launch *launch, sl_span *span)
{
    sl_status status = sim_supports(device, launch);
    if (status == SL_OK && launch->workspace_bytes < sim_workspace(device, launch, stream))
        status = sl_fail(SL_E_INTERNAL, "%s: the launch brings too little workspace", sl_op(launch->op)->name);
    return sl_queued_launch(&self(device)->queued, status, stream, launch, NULL, span);
}

/* ---- running ---- */

static double duration(const sl_command *c)
{
    if (c->kind == SL_COMMAND_COPY)
        return 5e-6 + (double) c->bytes / 50e9;
    sl_work work = {0};
    sl_op(c->launch->op)->work(c->launch, &work);
    return 2e-6 + work.hardware_flops / 1e12 + (work.read_bytes + work.write_bytes) / 1e12;
}

static bool can_go_on(const sim_device *sim, const queue *q)
{
    if (q->next == q->count)
        return false;
    const sl_command *c = &q->commands[q->next];
    return c->kind != SL_COMMAND_WAIT || sim->events[c->event].recorded == sim->step;
}

/* One moment of the queue's next command. */
static void advance(sim_device *sim, queue *q)
{
    const sl_command *c = &q->commands[q->next];
    bool first = (c->kind == SL_COMMAND_RUN || c->kind == SL_COMMAND_COPY) && !q->begun;
    switch (c->kind) {
    case SL_COMMAND_RUN:
        if (first)
            q->state = sl_sim_launch_begin(c->launch);
        else
            sl_sim_launch_end(c->launch, q->state);
        break;
    case SL_COMMAND_COPY:
        if (first)
            q->state = draw(sim, 3) * c->bytes / 2; /* nothing, half or all at the first moment */
        size_t from = first ? 0 : q->state, to = first ? q->state : c->bytes;
        memmove(c->to + from, c->from + from, to - from);
        break;
    case SL_COMMAND_RECORD:
        sim->events[c->event] = (event){sim->step, q->clock};
        break;
    case SL_COMMAND_WAIT:
        q->clock = SL_MAX(q->clock, sim->events[c->event].time);
        break;
    }
    q->begun = first;
    if (first)
        return;
    if (c->kind == SL_COMMAND_RUN || c->kind == SL_COMMAND_COPY) {
        double start = q->clock;
        q->clock += duration(c);
        if (c->span)
            *c->span = (sl_span){start, q->clock};
    }
    q->next++;
}

static void shuffle(sim_device *sim)
{
    for (int i = SL_STREAM_COUNT - 1; i > 0; i--) {
        int j = (int) draw(sim, (uint32_t) i + 1), other = sim->priority[j];
        sim->priority[j] = sim->priority[i];
        sim->priority[i] = other;
    }
}

/* Waits come behind their records, so some stream can always go on until all are done. */
static void run_all(sim_device *sim)
{
    static const uint32_t periods[] = {1, 2, 8, 64, 1u << 31};
    uint32_t period = periods[draw(sim, (uint32_t) SL_COUNT(periods))];
    shuffle(sim);
    for (;;) {
        int i = 0;
        while (i < SL_STREAM_COUNT && !can_go_on(sim, &sim->queues[sim->priority[i]]))
            i++;
        if (i == SL_STREAM_COUNT)
            break;
        advance(sim, &sim->queues[sim->priority[i]]);
        if (draw(sim, period) == 0)
            shuffle(sim);
    }
    for (int s = 0; s < SL_STREAM_COUNT; s++)
        SL_ASSERT(sim->queues[s].next == sim->queues[s].count);
}

static sl_status sim_step_end(sl_device *device)
{
    sim_device *sim = self(device);
    SL_TRY(sl_queued_end(&sim->queued));
    run_all(sim);
    return SL_OK;
}

static void sim_hardware(sl_device *device, sl_hardware *hardware)
{
    (void) device;
    *hardware = (sl_hardware){
        .name = "sim",
        .memory_bytes = {(size_t) 1 << 30, (size_t) 1 << 32},
        .peak_flops = {[SL_F32] = 1e12, [SL_BF16] = 1e12},
        .matmul_efficiency = {1, 1},
        .attention_efficiency = {{1, 1}, {1, 1}},
        .memory_bandwidth = {1e12, 1e11},
        .link_bandwidth = {50e9, 50e9},
        .link_bandwidth_both = 50e9,
        .link_latency_s = 5e-6,
        .launch_latency_s = 2e-6,
        .host_optimizer_bandwidth = 1e11,
    };
}

static const char *sim_numerics(sl_device *device)
{
    (void) device;
    return "sim";
}

const sl_device_class sl_device_sim = {
    .name = "sim",
    .describe = "no arithmetic, virtual time: runs a plan in the most unfriendly order its events allow",
    .open = sim_open,
    .close = sim_close,
    SL_QUEUED_FUNCTIONS,
    .workspace = sim_workspace,
    .supports = sim_supports,
    .step_begin = sim_step_begin,
    .launch = sim_launch,
    .step_end = sim_step_end,
    .hardware = sim_hardware,
    .numerics = sim_numerics,
};

/* Its workspaces depend on the op's number alone, to test plans with; a profile never stands for it. */
static size_t sim_estimate(const sl_hardware *hardware, const sl_launch *launch, sl_stream stream)
{
    (void) hardware;
    return sim_workspace(NULL, launch, stream);
}

const sl_device_def sl_device_def_sim = {
    .name = "sim",
    .title = "simulated",
    .class = &sl_device_sim,
    .chunk_tokens = 1024,
    .precision = SL_PRECISION_BF16_MASTER,
    .estimate_workspace = sim_estimate,
};
