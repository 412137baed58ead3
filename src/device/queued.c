#include "device/queued.h"

#include <stdio.h>
#include <string.h>

static sl_queued *self(sl_device *device)
{
    return (sl_queued *) (void *) device;
}

sl_status sl_queued_open(sl_queued *device, const sl_device_class *class, const sl_device_config *config)
{
    device->base.class = class;
    device->config = *config;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        if (config->arena_bytes[tier])
            SL_TRY(sl_pages_map(config->arena_bytes[tier], (void **) &device->arena[tier]));
    return SL_OK;
}

void sl_queued_close(sl_queued *device)
{
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        if (device->arena[tier])
            sl_pages_unmap(device->arena[tier], device->config.arena_bytes[tier]);
}

void *sl_queued_arena(sl_device *device, sl_tier tier)
{
    return self(device)->arena[tier];
}

sl_status sl_queued_begin(sl_queued *device)
{
    if (device->in_step)
        return sl_fail(SL_E_INTERNAL, "a step began inside a step");
    device->in_step = true;
    device->error = SL_OK;
    return SL_OK;
}

sl_status sl_queued_end(sl_queued *device)
{
    if (!device->in_step)
        return sl_fail(SL_E_INTERNAL, "a step ended that had not begun");
    device->in_step = false;
    return device->error == SL_OK ? SL_OK : sl_fail(device->error, "%s", device->message);
}

/* Keeps the step's first error. */
static sl_status note(sl_queued *device, sl_status status)
{
    if (status != SL_OK && device->error == SL_OK) {
        device->error = status;
        snprintf(device->message, sizeof device->message, "%s", sl_error_message());
    }
    return status;
}

static sl_status push(sl_queued *device, sl_stream stream, const sl_command *command)
{
    if (!device->in_step)
        return sl_fail(SL_E_INTERNAL, "a command was issued outside a step");
    return note(device, device->push(device, stream, command));
}

static bool in_arenas(const sl_queued *device, const void *at, size_t bytes)
{
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        size_t offset = (size_t) ((uintptr_t) at - (uintptr_t) device->arena[tier]);
        size_t size = device->config.arena_bytes[tier];
        if (device->arena[tier] && offset <= size && bytes <= size - offset)
            return true;
    }
    return false;
}

static bool operands_in_arenas(const sl_queued *device, const sl_launch *launch)
{
    for (int i = 0; i < SL_MAX_IN + SL_MAX_OUT; i++) {
        const sl_operand *x = i < SL_MAX_IN ? &launch->in[i] : &launch->out[i - SL_MAX_IN];
        if (x->data && !in_arenas(device, x->data, sl_type_bytes(&x->type)))
            return false;
    }
    return !launch->workspace || in_arenas(device, launch->workspace, launch->workspace_bytes);
}

sl_status sl_queued_launch(sl_queued *device, sl_status status, sl_stream stream, const sl_launch *launch,
                           const void *kernel, sl_span *span)
{
    if (status == SL_OK && !operands_in_arenas(device, launch))
        status = sl_fail(SL_E_INTERNAL, "%s: an operand leaves the arenas", sl_op(launch->op)->name);
    if (status != SL_OK)
        return note(device, status);
    sl_command command = {.kind = SL_COMMAND_RUN, .launch = launch, .kernel = kernel, .span = span};
    return push(device, stream, &command);
}

sl_status sl_queued_copy(sl_device *device, sl_stream stream, void *to, const void *from, size_t bytes, sl_span *span)
{
    if (!in_arenas(self(device), to, bytes) || !in_arenas(self(device), from, bytes))
        return note(self(device), sl_fail(SL_E_INTERNAL, "a copy of %zu bytes leaves the arenas", bytes));
    sl_command command = {.kind = SL_COMMAND_COPY, .to = to, .from = from, .bytes = bytes, .span = span};
    return push(self(device), stream, &command);
}

sl_status sl_queued_record(sl_device *device, sl_stream stream, int64_t event)
{
    sl_command command = {.kind = SL_COMMAND_RECORD, .event = event};
    return push(self(device), stream, &command);
}

sl_status sl_queued_wait(sl_device *device, sl_stream stream, int64_t event)
{
    sl_command command = {.kind = SL_COMMAND_WAIT, .event = event};
    return push(self(device), stream, &command);
}

static sl_status check_outside(const sl_queued *device, const void *at, size_t bytes)
{
    if (device->in_step)
        return sl_fail(SL_E_INTERNAL, "memory was read or written inside a step");
    if (!in_arenas(device, at, bytes))
        return sl_fail(SL_E_INTERNAL, "%zu bytes to read or write leave the arena", bytes);
    return SL_OK;
}

sl_status sl_queued_write(sl_device *device, sl_tier tier, void *to, const void *from, size_t bytes)
{
    (void) tier;
    SL_TRY(check_outside(self(device), to, bytes));
    if (from)
        memcpy(to, from, bytes);
    else
        memset(to, 0, bytes);
    return SL_OK;
}

sl_status sl_queued_read(sl_device *device, sl_tier tier, void *to, const void *from, size_t bytes)
{
    (void) tier;
    SL_TRY(check_outside(self(device), from, bytes));
    memcpy(to, from, bytes);
    return SL_OK;
}

sl_status sl_event_issue(uint64_t *issued, int64_t count, uint64_t step, sl_stream stream, const sl_command *command)
{
    const int64_t event = command->event;
    const bool record = command->kind == SL_COMMAND_RECORD;
    if (!record && command->kind != SL_COMMAND_WAIT)
        return SL_OK;
    if (event < 0 || event >= count)
        return sl_fail(SL_E_INTERNAL, "event %lld on stream %s: the device was opened for %lld events",
                       (long long) event, sl_streams[stream].name, (long long) count);
    if (!record && issued[event] != step)
        return sl_fail(SL_E_INTERNAL, "stream %s waits for event %lld, which this step has not recorded",
                       sl_streams[stream].name, (long long) event);
    if (record && issued[event] == step)
        return sl_fail(SL_E_INTERNAL, "stream %s records event %lld a second time in one step", sl_streams[stream].name,
                       (long long) event);
    if (record)
        issued[event] = step;
    return SL_OK;
}
