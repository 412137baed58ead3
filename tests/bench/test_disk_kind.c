/* What a disk is called, in sysfs trees as kernels make them. */
#include <sys/stat.h>
#include <unistd.h>

#include "bench/disk_kind.h"
#include "test.h"

static char sys_root[512];

static void make_folder(const char *path)
{
    char command[1024];
    snprintf(command, sizeof command, "mkdir -p '%s/%s'", sys_root, path);
    REQUIRE(system(command) == 0);
}

static void put_file(const char *folder, const char *name, const char *text)
{
    char path[1024];
    make_folder(folder);
    snprintf(path, sizeof path, "%s/%s/%s", sys_root, folder, name);
    FILE *file = fopen(path, "w");
    REQUIRE(file != NULL);
    fprintf(file, "%s\n", text);
    fclose(file);
}

static void link_to(const char *folder, const char *name, const char *target)
{
    char path[1024], to[1024];
    make_folder(folder);
    snprintf(path, sizeof path, "%s/%s/%s", sys_root, folder, name);
    snprintf(to, sizeof to, "%s/%s", sys_root, target);
    CHECK_I64(symlink(to, path), 0);
}

/* A disk of the kernel: its folder, its number, its flag, what it says of itself (NULL: nothing). */
static void put_disk(const char *folder, const char *number, const char *rotational, const char *vendor,
                     const char *model)
{
    char below[512];
    snprintf(below, sizeof below, "%s/queue", folder);
    put_file(below, "rotational", rotational);
    snprintf(below, sizeof below, "%s/device", folder);
    if (vendor)
        put_file(below, "vendor", vendor);
    if (model)
        put_file(below, "model", model);
    link_to("dev/block", number, folder);
    link_to("class/block", strrchr(folder, '/') + 1, folder);
}

static void check_kind(const char *device, bool guest, const char *want)
{
    const char *got = sl_disk_kind_name(sl_disk_kind_of(sys_root, device, guest));
    CHECK_MSG(strcmp(got, want) == 0, "%s%s is %s, and %s was expected", device, guest ? " in a guest" : "", got, want);
}

static void begin(const char *name)
{
    snprintf(sys_root, sizeof sys_root, "%s", test_path(name));
    make_folder("");
}

TEST(real_disks)
{
    begin("real");
    put_disk("devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda", "8:0", "1", "ATA",
             "ST4000NM0035");
    put_disk("devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1", "259:0", "0", NULL, "Samsung SSD 990 PRO");
    put_disk("devices/pci0000:00/0000:00:17.0/ata2/host1/target1:0:0/1:0:0:0/block/sdb", "8:16", "0", "ATA",
             "INTEL SSDSC2");
    check_kind("8:0", false, "rotating");
    check_kind("sda", false, "rotating");
    check_kind("259:0", false, "solid");
    check_kind("8:16", false, "solid");
    check_kind("9:99", false, "unknown");
    check_kind("nothing", false, "unknown");
    /* A flag of 1 says nothing inside a virtual machine; one of 0 does. */
    check_kind("8:0", true, "virtual");
    check_kind("8:16", true, "solid");
}

TEST(virtual_disks)
{
    begin("virtual");
    put_disk("devices/pci0000:00/0000:00:02.0/virtio1/block/vda", "254:0", "1", "0x1af4", NULL);
    put_disk("devices/vbd-768/block/xvda", "202:0", "1", NULL, NULL);
    put_disk("devices/LNXSYSTM:00/VMBUS:01/host0/target0:0:0/0:0:0:0/block/sda", "8:0", "1", "Msft", "Virtual Disk");
    put_disk("devices/pci0000:00/0000:00:10.0/host2/target2:0:0/2:0:0:0/block/sdb", "8:16", "1", "VMware",
             "Virtual disk");
    put_disk("devices/pci0000:00/0000:00:0d.0/ata3/host3/target3:0:0/3:0:0:0/block/sdc", "8:32", "1", "ATA",
             "VBOX HARDDISK");
    put_disk("devices/pci0000:00/0000:00:01.1/ata4/host4/target4:0:0/4:0:0:0/block/sdd", "8:48", "1", "ATA",
             "QEMU HARDDISK");
    put_disk("devices/pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1", "259:0", "0", NULL, "Amazon Elastic Block Store");
    put_disk("devices/pci0000:00/0000:00:05.0/nvme/nvme1/nvme1n1", "259:1", "0", NULL, "nvme_card-pd");
    put_disk("devices/pci0000:00/0000:00:03.0/host5/target5:0:1/5:0:1:0/block/sde", "8:64", "1", "Google",
             "PersistentDisk");
    static const char *const all[] = {"254:0", "vda", "202:0", "8:0", "8:16", "8:32", "8:48", "259:0", "259:1", "8:64"};
    for (int64_t i = 0; i < SL_COUNT(all); i++)
        for (int guest = 0; guest < 2; guest++)
            check_kind(all[i], guest, "virtual");
}

TEST(partitions_and_mappings)
{
    begin("stack");
    put_disk("devices/pci0000:00/0000:00:17.0/ata1/block/sda", "8:0", "1", "ATA", "ST4000NM0035");
    put_file("devices/pci0000:00/0000:00:17.0/ata1/block/sda/sda1", "partition", "1");
    link_to("dev/block", "8:1", "devices/pci0000:00/0000:00:17.0/ata1/block/sda/sda1");
    put_disk("devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1", "259:0", "0", NULL, "Samsung SSD 990 PRO");
    put_disk("devices/pci0000:00/0000:00:02.0/virtio1/block/vdb", "254:16", "1", "0x1af4", NULL);
    check_kind("8:1", false, "rotating");
    put_disk("devices/virtual/block/dm-0", "253:0", "1", NULL, NULL); /* on a partition */
    link_to("devices/virtual/block/dm-0/slaves", "sda1", "devices/pci0000:00/0000:00:17.0/ata1/block/sda/sda1");
    check_kind("253:0", false, "rotating");
    put_disk("devices/virtual/block/dm-1", "253:1", "0", NULL, NULL); /* on both */
    link_to("devices/virtual/block/dm-1/slaves", "nvme0n1", "devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1");
    check_kind("253:1", false, "solid");
    link_to("devices/virtual/block/dm-1/slaves", "dm-0", "devices/virtual/block/dm-0");
    check_kind("253:1", false, "rotating");
    for (int i = 0; i < 12; i++) { /* in whatever order a folder lists them */
        char folder[64], below[80], number[16], name[16];
        snprintf(folder, sizeof folder, "devices/virtual/block/dm-%d", 20 + i);
        snprintf(below, sizeof below, "%s/slaves", folder);
        snprintf(number, sizeof number, "253:%d", 20 + i);
        put_disk(folder, number, "0", NULL, NULL);
        for (int k = 0; k < 4; k++) {
            snprintf(name, sizeof name, "%c%d", "qzak"[(i + k) % 4], i * k);
            link_to(below, name,
                    k == i % 4 ? "devices/pci0000:00/0000:00:17.0/ata1/block/sda"
                               : "devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1");
        }
        check_kind(number, false, "rotating");
    }
    put_disk("devices/virtual/block/md0", "9:0", "1", NULL, NULL);
    link_to("devices/virtual/block/md0/slaves", "vdb", "devices/pci0000:00/0000:00:02.0/virtio1/block/vdb");
    link_to("devices/virtual/block/md0/slaves", "sda", "devices/pci0000:00/0000:00:17.0/ata1/block/sda");
    check_kind("9:0", false, "virtual");
    /* A mapping of itself ends. */
    put_disk("devices/virtual/block/dm-9", "253:9", "0", NULL, NULL);
    link_to("devices/virtual/block/dm-9/slaves", "dm-9", "devices/virtual/block/dm-9");
    check_kind("253:9", false, "solid");
}

TEST(guests)
{
    begin("guest");
    put_file("", "bare", "processor : 0\nflags\t\t: fpu vme sse2 ht\nbugs : hypervisor");
    put_file("", "guest", "processor : 0\nflags\t\t: fpu vme hypervisor lahf_lm\n");
    char bare[600], guest[600];
    snprintf(bare, sizeof bare, "%s/bare", sys_root);
    snprintf(guest, sizeof guest, "%s/guest", sys_root);
    CHECK(!sl_disk_in_guest(bare, sys_root));
    CHECK(sl_disk_in_guest(guest, sys_root));
    CHECK(!sl_disk_in_guest("/no/such/file", sys_root));
    put_file("hypervisor", "type", "xen");
    CHECK(sl_disk_in_guest(bare, sys_root));
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(real_disks);
    RUN(virtual_disks);
    RUN(partitions_and_mappings);
    RUN(guests);
    return test_end();
}
