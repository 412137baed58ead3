/* What a disk is, by what the kernel says of it. Its "rotational" flag alone is no answer: it defaults to 1, and hypervisors leave
 * it there, so a virtual disk on flash would be called a rotating one. */
#ifndef SL_BENCH_DISK_KIND_H
#define SL_BENCH_DISK_KIND_H

#include <stdbool.h>

typedef enum sl_disk_kind { SL_DISK_UNKNOWN, SL_DISK_SOLID, SL_DISK_ROTATING, SL_DISK_VIRTUAL } sl_disk_kind;
const char *sl_disk_kind_name(sl_disk_kind kind); /* "unknown", "solid", "rotating", "virtual" */

/* `sys`: where sysfs is ("/sys"). `device`: "major:minor" or a name such as "sda1". A disk or a partition; behind a mapping (LVM, RAID, encryption)
 * its disks decide, virtual before rotating before solid. In a `guest` of a hypervisor no disk is called rotating. */
sl_disk_kind sl_disk_kind_of(const char *sys, const char *device, bool guest);

/* Does this system run in a virtual machine, as far as /proc/cpuinfo and sysfs tell? */
bool sl_disk_in_guest(const char *cpuinfo, const char *sys);

#endif
