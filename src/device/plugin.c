/*
 * Finding and loading device plugins. Looked for in $SLUICE_PLUGINS, beside the program or library that holds this code, and in
 * ../lib of that folder. Loaded once, kept until the process ends. Why a plugin is not there is remembered, so that `--device
 * cuda` can say it and `auto` can tell why the CPU is used.
 */
#include "device/plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/memory_limit.h"
#include "core/pool.h"
#include "device/cpu/kernel.h"

/* ---- what plugins may use: ops beside host memory with the CPU's kernels ---- */

typedef struct host_runner {
    sl_pool *pool;
    sl_isa isa;
} host_runner;

static void host_close(void *host)
{
    host_runner *runner = host;
    if (!runner)
        return;
    sl_pool_destroy(runner->pool);
    sl_free(runner);
}

static sl_status host_open(int threads, void **host)
{
    host_runner *runner;
    SL_TRY(sl_alloc(&runner, 1, sizeof *runner));
    sl_status status = sl_isa_detect(&runner->isa);
    if (status == SL_OK)
        status = sl_pool_create(threads, &runner->pool);
    if (status != SL_OK) {
        host_close(runner);
        return status;
    }
    *host = runner;
    return SL_OK;
}

static size_t host_workspace(void *host, const sl_launch *launch)
{
    host_runner *runner = host;
    const sl_cpu_kernel *kernel = sl_cpu_kernel_find(launch, runner->isa);
    if (kernel)
        return kernel->workspace ? kernel->workspace(launch, sl_pool_threads(runner->pool)) : 0;
    const sl_op_def *op = sl_op(launch->op);
    return op->workspace ? op->workspace(launch) : 0;
}

static void host_run(void *host, const sl_launch *launch)
{
    host_runner *runner = host;
    const sl_cpu_kernel *kernel = sl_cpu_kernel_find(launch, runner->isa);
    if (kernel)
        kernel->run(launch, runner->pool);
    else
        sl_op(launch->op)->reference(launch);
}

static void host_parallel(void *host, void (*fn)(void *context, int64_t tile, int thread), void *context, int64_t tiles)
{
    sl_pool_run(((host_runner *) host)->pool, fn, context, tiles);
}

static const sl_plugin_host services = {
    .abi = SL_PLUGIN_ABI,
    .version = SL_VERSION,
    .fail = sl_fail,
    .fail_at = sl_fail_at,
    .op = sl_op,
    .launch_describe = sl_launch_describe,
    .pages_take = sl_pages_ahead_take,
    .pages_unmap = sl_pages_unmap,
    .clock_s = sl_clock_s,
    .memory_bytes = sl_memory_bytes,
    .hardware_find = sl_hardware_find,
    .host_open = host_open,
    .host_close = host_close,
    .host_workspace = host_workspace,
    .host_run = host_run,
    .host_parallel = host_parallel,
};

/* ---- loading ---- */

static const sl_device_class *loaded;
static char reason[512];
static bool broken;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void *open_in(const char *folder, const char *below)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s%s/libsluice_cuda.so", folder, below) >= (int) sizeof path)
        return NULL;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void *open_plugin(void)
{
    const char *folder = getenv("SLUICE_PLUGINS");
    if (folder)
        return open_in(folder, "");
    Dl_info here;
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (dladdr(&services, &here) && here.dli_fname && strchr(here.dli_fname, '/') && length <= 0)
        length = snprintf(path, sizeof path, "%s", here.dli_fname);
    if (length <= 0 || length >= (ssize_t) sizeof path)
        return NULL;
    path[length] = 0;
    char *slash = strrchr(path, '/');
    if (!slash)
        return NULL;
    *slash = 0;
    void *library = open_in(path, "");
    return library ? library : open_in(path, "/../lib");
}

static void load(void)
{
    void *library = open_plugin();
    if (!library) {
        const char *why = dlerror();
        bool missing = !why || strstr(why, "libsluice_cuda.so: cannot open");
        broken = !missing;
        snprintf(reason, sizeof reason, "%s%s",
                 missing ? "the CUDA plugin (libsluice_cuda.so) was not built or is not beside the program"
                         : "the CUDA plugin does not load: ",
                 missing ? "" : why);
        return;
    }
    union {
        void *symbol;
        sl_plugin_entry entry;
    } found = {dlsym(library, SL_PLUGIN_ENTRY)};
    const sl_device_class *class = NULL;
    sl_status status =
        found.symbol ? found.entry(&services, &class)
                     : sl_fail(SL_E_DEVICE, "libsluice_cuda.so has no %s(): it is no plugin of Sluice; rebuild it",
                               SL_PLUGIN_ENTRY);
    broken = status != SL_OK && status != SL_E_UNSUPPORTED;
    if (status == SL_OK)
        loaded = class;
    else
        snprintf(reason, sizeof reason, "%s", sl_error_message());
}

const sl_device_class *sl_plugin_find(const char **why_not)
{
    pthread_once(&once, load);
    *why_not = reason;
    return loaded;
}

bool sl_plugin_is_broken(void)
{
    return broken;
}
