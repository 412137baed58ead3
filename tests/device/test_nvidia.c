/* Whether there is an NVIDIA GPU, from the files of made-up machines. */
#include <dlfcn.h>
#include <sys/stat.h>

#include "core/file.h"
#include "device/nvidia.h"
#include "test.h"

static void put(const char *machine, const char *path, const char *text)
{
    char full[512], folder[512];
    snprintf(full, sizeof full, "%s/%s%s", test_dir(), machine, path);
    snprintf(folder, sizeof folder, "%s", full);
    *strrchr(folder, '/') = 0;
    CHECK_OK(sl_dir_create(folder));
    CHECK_OK(sl_file_write_atomic(full, text, strlen(text)));
}

TEST(device_files)
{
    CHECK(!sl_nvidia_present(test_path("nothing")));
    put("native", "/dev/nvidiactl", "");
    CHECK(sl_nvidia_present(test_path("native")));
    put("one", "/dev/nvidia0", "");
    CHECK(sl_nvidia_present(test_path("one")));
    put("wsl", "/dev/dxg", "");
    CHECK(sl_nvidia_present(test_path("wsl")));
}

/* A card whose driver has made no files yet: its library decides. */
TEST(the_bus)
{
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    put("card", "/sys/bus/pci/devices/0000:00:1f.0/vendor", "0x8086\n");
    put("card", "/sys/bus/pci/devices/0000:00:1f.0/class", "0x030000\n");
    CHECK(!sl_nvidia_present(test_path("card"))); /* somebody else's graphics */
    put("card", "/sys/bus/pci/devices/0000:01:00.1/vendor", "0x10de\n");
    put("card", "/sys/bus/pci/devices/0000:01:00.1/class", "0x040300\n");
    CHECK(!sl_nvidia_present(test_path("card"))); /* its sound */
    put("card", "/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
    put("card", "/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
    CHECK_I64(sl_nvidia_present(test_path("card")), library != NULL);
    if (library)
        dlclose(library);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(device_files);
    RUN(the_bus);
    return test_end();
}
