/*
 * The driver makes /dev/nvidiactl (or, under WSL, Windows makes /dev/dxg), and a container that may use a GPU has it too. On a machine
 * without a display server the driver makes its files only when it is first used: there the PCI bus shows the card, and the driver's
 * library is installed. The bus alone is not enough: it shows in containers that may not use the card.
 */
#include "device/nvidia.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool read_line(const char *path, char line[32])
{
    FILE *file = fopen(path, "re");
    bool read = file && fgets(line, 32, file);
    if (file)
        fclose(file);
    return read;
}

/* A graphics card or accelerator (class 03) of NVIDIA's. */
static bool on_the_bus(const char *root)
{
    char folder[512], path[1024], vendor[32], class[32];
    bool found = false;
    snprintf(folder, sizeof folder, "%s/sys/bus/pci/devices", root);
    DIR *bus = opendir(folder);
    for (const struct dirent *entry = bus ? readdir(bus) : NULL; entry && !found; entry = readdir(bus)) {
        snprintf(path, sizeof path, "%s/%s/vendor", folder, entry->d_name);
        if (!read_line(path, vendor) || strncmp(vendor, "0x10de", 6) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s/class", folder, entry->d_name);
        found = read_line(path, class) && strncmp(class, "0x03", 4) == 0;
    }
    if (bus)
        closedir(bus);
    return found;
}

static bool has_driver_library(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (library)
        dlclose(library);
    return library != NULL;
}

bool sl_nvidia_present(const char *root)
{
    static const char *const nodes[] = {"/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg"};
    char path[512];
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        snprintf(path, sizeof path, "%s%s", root, nodes[i]);
        if (access(path, F_OK) == 0)
            return true;
    }
    return on_the_bus(root) && has_driver_library();
}
