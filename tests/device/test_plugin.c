/* The CUDA plugin and a program of another version: it refuses in one sentence, touching nothing of the table but what every
 * version has in the same place. */
#include <dlfcn.h>

#include "device/plugin.h"
#include "test.h"

TEST(another_version)
{
    char path[600];
    const char *build = getenv("SLUICE_BUILD");
    union {
        void *symbol;
        sl_plugin_entry entry;
    } found;
    snprintf(path, sizeof path, "%s/libsluice_cuda.so", build ? build : ".");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        SKIP("%s%s", access(path, F_OK) == 0 ? "" : "no CUDA plugin was built: ", dlerror());
    found.symbol = dlsym(library, SL_PLUGIN_ENTRY);
    REQUIRE(found.symbol != NULL);
    for (int32_t off = -1; off <= 1; off += 2) {
        sl_plugin_host host = {.abi = SL_PLUGIN_ABI + off, .version = "0.0", .fail = sl_fail};
        const sl_device_class *class = NULL;
        char numbers[64];
        snprintf(numbers, sizeof numbers, "interface %d, this program has %d", SL_PLUGIN_ABI, SL_PLUGIN_ABI + off);
        CHECK_FAILS(found.entry(&host, &class), SL_E_DEVICE);
        CHECK_CONTAINS(sl_error_message(), "another version");
        CHECK_CONTAINS(sl_error_message(), numbers);
        CHECK_CONTAINS(sl_error_message(), "rebuild");
        CHECK(class == NULL);
    }
    dlclose(library);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(another_version);
    return test_end();
}
