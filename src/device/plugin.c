/*
 * Finding and loading device plugins, libsluice_<name>.so for a row of devices.def. Looked for in $SLUICE_PLUGINS alone where that is set; else beside the library or program that
 * holds this code, and where an installation puts libraries as seen from there. Loaded once, kept until the process ends; not
 * loaded at all where its accelerator is absent and the user did not name it. Why a plugin is not there is remembered,
 * so that naming the device and `auto` can report it.
 */
#include "device/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/memory_limit.h"
#include "core/pool.h"
#include "device/cpu/kernels/kernel.h"

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
    return sl_cpu_kernel_workspace(launch, runner->isa, sl_pool_threads(runner->pool));
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

typedef struct plugin {
    bool tried, broken;
    const sl_device_class *class; /* NULL: not here, for this reason */
    char reason[512];
} plugin;
static plugin plugins[SL_DEVICE_CLASSES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Is there a plugin in this folder? Then *library is what came of loading it. */
static bool try_folder(const char *folder, const char *below, const char *name, void **library)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s%s/libsluice_%s.so", folder, below, name) >= (int) sizeof path ||
        access(path, F_OK) != 0)
        return false;
    *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return true;
}

/* Beside a program or library, or where it is installed with one. */
static bool try_beside(const char *file, const char *name, void **library)
{
    char path[PATH_MAX];
    if (!realpath(file, path))
        return false;
    *strrchr(path, '/') = 0;
    return try_folder(path, "", name, library) || try_folder(path, "/../" SL_LIBDIR, name, library);
}

/* Of the library that holds this code (another program may have loaded it), then of the program. */
static bool find_library(const char *name, void **library)
{
    const char *folder = getenv("SLUICE_PLUGINS");
    if (folder)
        return try_folder(folder, "", name, library);
    Dl_info here;
    bool named = dladdr(&services, &here) && here.dli_fname && strchr(here.dli_fname, '/');
    return (named && try_beside(here.dli_fname, name, library)) || try_beside("/proc/self/exe", name, library);
}

static void load(const sl_device_def *def, plugin *p)
{
    void *library = NULL;
    if (!find_library(def->name, &library)) {
        snprintf(p->reason, sizeof p->reason,
                 "the %s plugin (libsluice_%s.so) was not built or is not beside the program", def->title, def->name);
        return;
    }
    if (!library) {
        const char *why = dlerror();
        snprintf(p->reason, sizeof p->reason, "the %s plugin does not load: %s", def->title,
                 why ? why : "no reason is given");
        p->broken = true;
        return;
    }
    union {
        void *symbol;
        sl_plugin_entry entry;
    } found = {dlsym(library, SL_PLUGIN_ENTRY)};
    const sl_device_class *class = NULL;
    sl_status status = found.symbol
                           ? found.entry(&services, &class)
                           : sl_fail(SL_E_DEVICE, "libsluice_%s.so has no %s(): it is no plugin of Sluice; rebuild it",
                                     def->name, SL_PLUGIN_ENTRY);
    p->broken = status != SL_OK && status != SL_E_UNSUPPORTED;
    if (status == SL_OK)
        p->class = class;
    else
        snprintf(p->reason, sizeof p->reason, "%s", sl_error_message());
}

const sl_device_class *sl_plugin_find(int row, bool named, const char **why_not)
{
    const sl_device_def *def = sl_device_def_at(row);
    plugin *p = &plugins[row];
    if (!named && !getenv("SLUICE_PLUGINS") && !def->present()) {
        *why_not = def->absent;
        return NULL;
    }
    pthread_mutex_lock(&lock);
    if (!p->tried)
        load(def, p);
    p->tried = true;
    pthread_mutex_unlock(&lock);
    *why_not = p->reason;
    return p->class;
}

bool sl_plugin_is_broken(int row)
{
    return plugins[row].broken;
}
