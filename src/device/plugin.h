/*
 * Device plugins: shared libraries loaded at run time, so that one build serves machines with and without the accelerator and
 * nothing links against a vendor's driver. A plugin exports one symbol, sluice_plugin(); everything it needs of Sluice comes
 * through the table it is handed, so it resolves no symbol of the program.
 */
#ifndef SL_DEVICE_PLUGIN_H
#define SL_DEVICE_PLUGIN_H

#include "device/device.h"

#define SL_PLUGIN_ABI 7

typedef struct sl_plugin_host {
    /* These three stay where they are in every version, so that a plugin of another one can refuse in words. */
    int32_t abi;         /* SL_PLUGIN_ABI of the program; a plugin of another one refuses */
    const char *version; /* SL_VERSION */
    /* As sl_fail(). */
    sl_status (*fail)(sl_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
    /* As sl_fail_at(): puts "text: " in front of the last failure's message. */
    sl_status (*fail_at)(sl_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
    const sl_op_def *(*op)(sl_op_id id);
    const char *(*launch_describe)(const sl_launch *launch, char out[320]);
    sl_status (*pages_take)(sl_pages_ahead *ahead, size_t bytes, void **out);
    void (*pages_unmap)(void *memory, size_t bytes);
    double (*clock_s)(void);
    size_t (*memory_bytes)(void);                                        /* that this process may use */
    sl_status (*hardware_find)(const char *name, sl_hardware *hardware); /* a built-in profile */
    /* The HOST stream: ops beside host memory, with the CPU device's kernels. */
    sl_status (*host_open)(int threads, void **host);
    void (*host_close)(void *host);
    size_t (*host_workspace)(void *host, const sl_launch *launch);
    void (*host_run)(void *host, const sl_launch *launch);
    /* fn for tiles 0..tiles-1 on all of the host's threads. */
    void (*host_parallel)(void *host, void (*fn)(void *context, int64_t tile, int thread), void *context,
                          int64_t tiles);
} sl_plugin_host;

/* The plugin's entry, by this name. The table outlives the plugin. SL_E_UNSUPPORTED: there is no such accelerator here, which is
 * no error; any other failure is something to fix. */
#define SL_PLUGIN_ENTRY "sluice_plugin"
typedef sl_status (*sl_plugin_entry)(const sl_plugin_host *host, const sl_device_class **class);

/* The device of a plugin by its row in devices.def, loaded on first call; NULL when it cannot be had, with the reason in one sentence.
 * Unless the user `named` the device or set $SLUICE_PLUGINS, the plugin is loaded only where its accelerator may be present. */
const sl_device_class *sl_plugin_find(int row, bool named, const char **why_not);
/* After sl_plugin_find() gave NULL: is there something to put right, so that the user should hear of it unasked? */
bool sl_plugin_is_broken(int row);

#endif
