/* The list of devices, and which of them "auto" means: the first in the list that opens. */
#include "device/device.h"

#include <string.h>

#include "core/text.h"

extern const sl_device_class sl_device_cpu, sl_device_sim;

/* Best first; sim is never chosen by itself. */
static const sl_device_class *const classes[] = {&sl_device_cpu, &sl_device_sim};

int64_t sl_device_classes(const sl_device_class *const **out)
{
    *out = classes;
    return SL_COUNT(classes);
}

sl_status sl_device_find(const char *name, const sl_device_class **class)
{
    if (strcmp(name, "auto") == 0)
        name = classes[0]->name;
    for (int64_t i = 0; i < SL_COUNT(classes); i++) {
        if (strcmp(classes[i]->name, name) != 0)
            continue;
        *class = classes[i];
        return SL_OK;
    }
    return sl_fail(SL_E_USAGE, "there is no device \"%s\"; use auto, cpu or sim", name);
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
