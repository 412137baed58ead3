/* The list of devices, and which of them "auto" means: the GPU where its plugin loads and finds one, else the CPU. */
#include "device/device.h"

#include <string.h>

#include "core/log.h"
#include "core/text.h"
#include "device/plugin.h"

extern const sl_device_class sl_device_cpu, sl_device_sim;

int64_t sl_device_classes(const sl_device_class *const **out)
{
    static const sl_device_class *classes[3];
    const char *why_not;
    classes[0] = &sl_device_cpu;
    classes[1] = &sl_device_sim; /* never chosen by itself */
    classes[2] = sl_plugin_find(&why_not);
    *out = classes;
    return classes[2] ? 3 : 2;
}

sl_status sl_device_find(const char *name, const sl_device_class **class)
{
    const sl_device_class *const *classes;
    const char *why_not;
    int64_t count = sl_device_classes(&classes);
    const sl_device_class *plugin = sl_plugin_find(&why_not);
    if (strcmp(name, "auto") == 0) {
        if (!plugin)
            sl_debug("the CPU is used: %s", why_not);
        name = plugin ? plugin->name : sl_device_cpu.name;
    }
    for (int64_t i = 0; i < count; i++) {
        if (strcmp(classes[i]->name, name) != 0)
            continue;
        *class = classes[i];
        return SL_OK;
    }
    if (strcmp(name, "cuda") == 0)
        return sl_fail(SL_E_UNSUPPORTED, "--device cuda cannot be used here: %s; use --device cpu", why_not);
    return sl_fail(SL_E_USAGE, "there is no device \"%s\"; use auto, cpu, cuda or sim", name);
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
