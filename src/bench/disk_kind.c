/* A disk is a folder of sysfs: DISK/queue/rotational, DISK/device/{vendor,model}, DISK/slaves/ for mappings; a partition is a folder
 * inside that of its disk. The folder's real path names the bus, which gives paravirtual disks away. */
#include "bench/disk_kind.h"

#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "core/mem.h"

enum { DEEPEST = 8 }; /* mappings on mappings */

const char *sl_disk_kind_name(sl_disk_kind kind)
{
    static const char *const names[] = {"unknown", "solid", "rotating", "virtual"};
    return names[kind];
}

static bool __attribute__((format(printf, 3, 4))) read_first(char *out, size_t size, const char *format, ...)
{
    char path[PATH_MAX];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(path, sizeof path, format, arguments);
    va_end(arguments);
    out[0] = 0;
    FILE *file = length < (int) sizeof path ? fopen(path, "r") : NULL;
    if (!file)
        return false;
    bool got = fgets(out, (int) size, file) != NULL;
    fclose(file);
    return got;
}

/* Buses and names that only exist in virtual machines. */
static bool on_virtual_bus(const char *folder)
{
    static const char *const parts[] = {"/virtio", "/vbd-", "/vmbus", "/VMBUS", "/xen-"};
    for (int64_t i = 0; i < SL_COUNT(parts); i++)
        if (strstr(folder, parts[i]))
            return true;
    const char *name = strrchr(folder, '/') ? strrchr(folder, '/') + 1 : folder;
    return strncmp(name, "vd", 2) == 0 || strncmp(name, "xvd", 3) == 0;
}

/* Emulated disks of hypervisors and network volumes of clouds, by the vendor or model they report. */
static bool has_virtual_maker(const char *folder)
{
    static const char *const makers[] = {"QEMU",          "VMware", "VBOX",           "Virtual",   "Msft",
                                         "Microsoft",     "Xen",    "PersistentDisk", "nvme_card", "Amazon EC2",
                                         "Elastic Block", "Google", "0x1af4"};
    char text[128];
    static const char *const files[] = {"vendor", "model"};
    for (int64_t f = 0; f < SL_COUNT(files); f++) {
        read_first(text, sizeof text, "%s/device/%s", folder, files[f]);
        for (int64_t i = 0; i < SL_COUNT(makers); i++)
            if (strcasestr(text, makers[i]))
                return true;
    }
    return false;
}

static sl_disk_kind kind_of_folder(const char *folder, bool guest, int depth);

/* UNKNOWN: the disk is no mapping. */
static sl_disk_kind kind_of_slaves(const char *folder, bool guest, int depth)
{
    char path[PATH_MAX], real[PATH_MAX];
    sl_disk_kind kind = SL_DISK_UNKNOWN;
    if (depth == DEEPEST || snprintf(path, sizeof path, "%s/slaves", folder) >= (int) sizeof path)
        return kind;
    DIR *slaves = opendir(path);
    struct dirent *entry;
    while (slaves && (entry = readdir(slaves)))
        if (entry->d_name[0] != '.' &&
            snprintf(path, sizeof path, "%s/slaves/%s", folder, entry->d_name) < (int) sizeof path &&
            realpath(path, real)) {
            sl_disk_kind slave = kind_of_folder(real, guest, depth + 1);
            kind = SL_MAX(kind, slave);
        }
    if (slaves)
        closedir(slaves);
    return kind;
}

static sl_disk_kind kind_of_folder(const char *folder, bool guest, int depth)
{
    char disk[PATH_MAX], text[32];
    snprintf(disk, sizeof disk, "%s", folder);
    if (read_first(text, sizeof text, "%s/partition", disk) && strrchr(disk, '/'))
        *strrchr(disk, '/') = 0;
    sl_disk_kind below = kind_of_slaves(disk, guest, depth);
    if (below != SL_DISK_UNKNOWN)
        return below;
    if (on_virtual_bus(disk) || has_virtual_maker(disk))
        return SL_DISK_VIRTUAL;
    if (!read_first(text, sizeof text, "%s/queue/rotational", disk))
        return SL_DISK_UNKNOWN;
    return text[0] == '0' ? SL_DISK_SOLID : guest ? SL_DISK_VIRTUAL : SL_DISK_ROTATING;
}

sl_disk_kind sl_disk_kind_of(const char *sys, const char *device, bool guest)
{
    char path[PATH_MAX], real[PATH_MAX];
    const char *list = strchr(device, ':') ? "dev/block" : "class/block";
    if (snprintf(path, sizeof path, "%s/%s/%s", sys, list, device) >= (int) sizeof path || !realpath(path, real))
        return SL_DISK_UNKNOWN;
    return kind_of_folder(real, guest, 0);
}

bool sl_disk_in_guest(const char *cpuinfo, const char *sys)
{
    char line[8192];
    bool guest = read_first(line, sizeof line, "%s/hypervisor/type", sys);
    FILE *file = fopen(cpuinfo, "r");
    while (file && !guest && fgets(line, sizeof line, file))
        guest = strncmp(line, "flags", 5) == 0 && strstr(line, " hypervisor");
    if (file)
        fclose(file);
    return guest;
}
