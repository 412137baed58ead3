/* The table of devices, and which of them "auto" means: the first whose plugin loads and finds its accelerator, else the CPU. */
#include "device/device.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "core/text.h"
#include "device/plugin.h"

#define SL_DEVICE(name) extern const sl_device_def sl_device_def_##name;
#include "device/devices.def"
#undef SL_DEVICE

static const sl_device_def *const defs[SL_DEVICE_CLASSES] = {
#define SL_DEVICE(name) &sl_device_def_##name,
#include "device/devices.def"
#undef SL_DEVICE
};

const sl_device_def *sl_device_def_at(int64_t row)
{
    SL_ASSERT(row >= 0 && row < SL_DEVICE_CLASSES);
    return defs[row];
}

const sl_device_def *sl_device_def_find(const char *name)
{
    for (int i = 0; i < SL_DEVICE_CLASSES; i++)
        if (strcmp(defs[i]->name, name) == 0)
            return defs[i];
    return NULL;
}

const sl_device_def *sl_device_def_for(const sl_hardware *hardware)
{
    for (int i = 0; i < SL_DEVICE_CLASSES; i++)
        if (defs[i]->computes && defs[i]->shared_cores == hardware->shared_cores)
            return defs[i];
    SL_ASSERT(!"a device stands for each kind of profile");
    return NULL;
}

int64_t sl_device_chunk_target(const sl_device_def *def, int64_t seqlen)
{
    const int64_t least = 1024;
    int64_t target = def->chunk_tokens;
    while (def->most_pairs && target > least && target * seqlen > def->most_pairs)
        target /= 2;
    return target;
}

const char *sl_tier_name(sl_tier tier)
{
    static const char *const names[SL_TIER_COUNT] = {"device", "host"};
    return names[tier];
}

const sl_stream_def sl_streams[SL_STREAM_COUNT] = {
    [SL_STREAM_COMPUTE] = {"compute", SL_TIER_DEVICE, SL_TIER_DEVICE, SL_LINK_COUNT},
    [SL_STREAM_IN] = {"in", SL_TIER_HOST, SL_TIER_DEVICE, SL_LINK_IN},
    [SL_STREAM_OUT] = {"out", SL_TIER_DEVICE, SL_TIER_HOST, SL_LINK_OUT},
    [SL_STREAM_HOST] = {"host", SL_TIER_HOST, SL_TIER_HOST, SL_LINK_COUNT},
};

const sl_link_def sl_links[SL_LINK_COUNT] = {
    [SL_LINK_IN] = {SL_TIER_HOST, SL_TIER_DEVICE, SL_STREAM_IN, SL_LINK_OUT},
    [SL_LINK_OUT] = {SL_TIER_DEVICE, SL_TIER_HOST, SL_STREAM_OUT, SL_LINK_IN},
};

sl_stream sl_stream_on(sl_tier tier)
{
    int stream = 0;
    while (stream < SL_STREAM_COUNT && (sl_stream_copies((sl_stream) stream) || sl_streams[stream].to != tier))
        stream++;
    return (sl_stream) stream;
}

sl_link sl_link_between(sl_tier from, sl_tier to)
{
    int link = 0;
    while (link < SL_LINK_COUNT && (sl_links[link].from != from || sl_links[link].to != to))
        link++;
    return (sl_link) link;
}

void sl_device_classes(const sl_device_class *classes[SL_DEVICE_CLASSES])
{
    const char *why_not;
    for (int i = 0; i < SL_DEVICE_CLASSES; i++)
        classes[i] = defs[i]->class ? defs[i]->class : sl_plugin_find(i, false, &why_not);
}

sl_status sl_device_check_name(const char *name)
{
    char names[256] = "auto";
    if (strcmp(name, names) == 0 || sl_device_def_find(name))
        return SL_OK;
    for (int i = 0; i < SL_DEVICE_CLASSES; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i + 1 < SL_DEVICE_CLASSES ? ", " : " or ", defs[i]->name);
    }
    return sl_fail(SL_E_USAGE, "there is no device \"%s\"; use %s", name, names);
}

static void find_best(const sl_device_class **class)
{
    const char *why_not;
    *class = defs[0]->class;
    for (int i = 0; i < SL_DEVICE_CLASSES; i++) {
        const sl_device_class *plugin = defs[i]->class ? NULL : sl_plugin_find(i, false, &why_not);
        if (plugin) {
            *class = plugin;
            return;
        }
        if (!defs[i]->class)
            sl_log(sl_plugin_is_broken(i) ? SL_LOG_INFO : SL_LOG_DEBUG, "the CPU is used: %s", why_not);
    }
}

/* A plugin is looked for only where it may be meant: loading a GPU's libraries takes time and 200 MB. */
sl_status sl_device_find(const char *name, const sl_device_class **class)
{
    const char *why_not;
    const sl_device_class *plugin;
    SL_TRY(sl_device_check_name(name));
    if (strcmp(name, "auto") == 0)
        return find_best(class), SL_OK;
    int row = 0;
    while (strcmp(defs[row]->name, name) != 0)
        row++;
    if (defs[row]->class)
        return *class = defs[row]->class, SL_OK;
    plugin = sl_plugin_find(row, true, &why_not);
    if (!plugin)
        return sl_fail(SL_E_UNSUPPORTED, "--device %s cannot be used here: %s; use --device %s", name, why_not,
                       defs[0]->name);
    return *class = plugin, SL_OK;
}

sl_status sl_device_open(const char *name, const sl_device_config *config, sl_device **device)
{
    const sl_device_class *class;
    SL_TRY(sl_device_find(name, &class));
    return class->open(config, device);
}

void sl_device_close(sl_device *device)
{
    if (device)
        device->class->close(device);
}

/* Appends what still fits. */
static void append(char out[320], const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(char out[320], const char *format, ...)
{
    size_t used = strlen(out);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(out + used, 320 - used, format, arguments);
    va_end(arguments);
}

static void append_type(char out[320], const sl_type *type)
{
    append(out, " %s[", sl_dtype_name(type->dtype));
    for (int32_t i = 0; i < type->rank; i++)
        append(out, "%s%lld", i ? "," : "", (long long) type->dim[i]);
    append(out, "]");
}

const char *sl_launch_describe(const sl_launch *launch, char out[320])
{
    bool known = (int) launch->op >= 0 && launch->op < SL_OP_COUNT;
    snprintf(out, 320, "%s", known ? sl_op(launch->op)->name : "an op that is not in the table");
    for (int i = 0; i < SL_MAX_IN; i++)
        if (launch->in[i].type.rank)
            append_type(out, &launch->in[i].type);
    append(out, " ->");
    for (int k = 0; k < SL_MAX_OUT; k++)
        if (launch->out[k].type.rank)
            append_type(out, &launch->out[k].type);
    return out;
}
