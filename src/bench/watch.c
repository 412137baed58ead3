#include "bench/watch.h"

#include <stddef.h>

static sl_watch *self(sl_device *device)
{
    return (sl_watch *) (void *) device;
}

static void *watch_arena(sl_device *device, sl_tier tier)
{
    sl_device *to = self(device)->device;
    return to->class->arena(to, tier);
}

static size_t watch_workspace(sl_device *device, const sl_launch *launch, sl_stream stream)
{
    sl_device *to = self(device)->device;
    return to->class->workspace(to, launch, stream);
}

static sl_status watch_supports(sl_device *device, const sl_launch *launch)
{
    sl_device *to = self(device)->device;
    return to->class->supports(to, launch);
}

static sl_status watch_replay(sl_device *device, uint64_t list, bool *started)
{
    sl_watch *w = self(device);
    *started = false;
    if (!w->device->class->replay)
        return SL_OK;
    if (w->hide_replay) /* a list the device has not seen before is neither replayed nor left untimed */
        return w->device->class->replay(w->device, UINT64_MAX - w->fresh++, started);
    SL_TRY(w->device->class->replay(w->device, list, started));
    w->in_step |= *started;
    w->steps += *started;
    w->replays += *started;
    return SL_OK;
}

static sl_status watch_step_begin(sl_device *device)
{
    sl_watch *w = self(device);
    w->in_step = true;
    w->steps++;
    return w->device->class->step_begin(w->device);
}

static sl_status watch_launch(sl_device *device, sl_stream stream, const sl_launch *launch, sl_span *span)
{
    sl_watch *w = self(device);
    w->launches++;
    return w->device->class->launch(w->device, stream, launch, w->hide_spans ? NULL : span);
}

static sl_status watch_copy(sl_device *device, sl_stream stream, void *to, const void *from, size_t bytes,
                            sl_span *span)
{
    sl_watch *w = self(device);
    w->copies++;
    return w->device->class->copy(w->device, stream, to, from, bytes, w->hide_spans ? NULL : span);
}

static sl_status watch_record(sl_device *device, sl_stream stream, int64_t event)
{
    sl_watch *w = self(device);
    return w->device->class->record(w->device, stream, event);
}

static sl_status watch_wait(sl_device *device, sl_stream stream, int64_t event)
{
    sl_watch *w = self(device);
    w->waits++;
    return w->device->class->wait(w->device, stream, event);
}

static sl_status watch_step_end(sl_device *device)
{
    sl_watch *w = self(device);
    *(w->in_step ? &w->explicit_syncs : &w->implicit_syncs) += 1;
    w->in_step = false;
    return w->device->class->step_end(w->device);
}

static bool watch_scope(sl_device *device, sl_scope level, const char *name)
{
    sl_device *to = self(device)->device;
    return to->class->scope && to->class->scope(to, level, name);
}

static sl_status watch_write(sl_device *device, sl_tier tier, void *to, const void *from, size_t bytes)
{
    sl_watch *w = self(device);
    if (w->in_step) /* outside steps any thread may call */
        w->implicit_syncs++;
    return w->device->class->write(w->device, tier, to, from, bytes);
}

static sl_status watch_read(sl_device *device, sl_tier tier, void *to, const void *from, size_t bytes)
{
    sl_watch *w = self(device);
    if (w->in_step) /* outside steps any thread may call */
        w->implicit_syncs++;
    return w->device->class->read(w->device, tier, to, from, bytes);
}

static void watch_hardware(sl_device *device, sl_hardware *hardware)
{
    sl_device *to = self(device)->device;
    to->class->hardware(to, hardware);
}

static const char *watch_numerics(sl_device *device)
{
    sl_device *to = self(device)->device;
    return to->class->numerics(to);
}

static void watch_close(sl_device *device)
{
    (void) device; /* the watched device is not owned */
}

static const sl_device_class watch_class = {
    .name = "watch",
    .describe = "counts what another device is asked for",
    .close = watch_close,
    .arena = watch_arena,
    .workspace = watch_workspace,
    .supports = watch_supports,
    .replay = watch_replay,
    .step_begin = watch_step_begin,
    .launch = watch_launch,
    .copy = watch_copy,
    .record = watch_record,
    .wait = watch_wait,
    .step_end = watch_step_end,
    .scope = watch_scope,
    .write = watch_write,
    .read = watch_read,
    .hardware = watch_hardware,
    .numerics = watch_numerics,
};

void sl_watch_open(sl_watch *watch, sl_device *device)
{
    *watch = (sl_watch){.base.class = &watch_class, .device = device};
}

void sl_watch_reset(sl_watch *w)
{
    w->steps = w->launches = w->copies = w->waits = w->replays = w->explicit_syncs = w->implicit_syncs = 0;
}
