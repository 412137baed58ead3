/* The tables that are read, not measured. */
#include <stdio.h>
#include <string.h>

#include "bench/system.h"

static void machine_table(const sl_machine *m, sl_results *results)
{
    sl_table *t = sl_results_table(results, "machine", "The machine", "what value");
    char text[160], bytes[32];
    SL_ROW(t, "architecture", m->architecture);
    SL_ROW(t, "cpu", m->cpu[0] ? m->cpu : "unknown");
    snprintf(text, sizeof text, "%d socket%s, %d cores, %d threads (%d usable here)", m->sockets,
             m->sockets == 1 ? "" : "s", m->cores, m->threads, m->usable_threads);
    SL_ROW(t, "cores", text);
    snprintf(text, sizeof text, "%.2f GHz", 1e-9 * m->hz);
    SL_ROW(t, "frequency", m->hz > 0 ? text : "unknown");
    SL_ROW(t, "instruction sets", m->isa);
    SL_ROW(t, "memory", sl_format_bytes(m->ram_bytes, bytes));
    SL_ROW(t, "memory available", sl_format_bytes(m->available_bytes, bytes));
    SL_ROW(t, "swap", sl_format_bytes(m->swap_bytes, bytes));
    SL_ROW(t, "huge page", sl_format_bytes(m->huge_page_bytes, bytes));
    SL_ROW(t, "topology from", m->source);
}

static void cache_table(const sl_machine *m, sl_results *results)
{
    sl_table *t = sl_results_table(results, "caches", "Caches", "cache kib:KiB instances threads_sharing");
    for (int i = 0; i < m->n_caches; i++) {
        const sl_cache *c = &m->caches[i];
        char name[16];
        snprintf(name, sizeof name, "L%d%s", c->level, c->kind == 'd' ? "d" : c->kind == 'i' ? "i" : "");
        SL_ROW(t, name, (int64_t) (c->bytes >> 10), c->count, c->threads);
    }
}

static void node_table(const sl_machine *m, sl_results *results)
{
    sl_table *t = sl_results_table(results, "numa", "Memory nodes", "node threads memory_gib:GiB.1");
    for (int n = 0; n < m->nodes; n++)
        SL_ROW(t, n, m->node_threads[n], sl_cell_if(m->node_bytes[n], (double) m->node_bytes[n] / (1 << 30)));
}

static void pci_table(const sl_machine *m, sl_results *results)
{
    sl_table *t =
        sl_results_table(results, "pci", "Devices", "device kind address pcie_generation lanes link_gbps:GB/s.2 node");
    for (int i = 0; i < m->n_pci; i++) {
        const sl_pci *p = &m->pci[i];
        SL_ROW(t, p->name, p->kind, p->address, p->generation ? sl_cell_count(p->generation) : sl_cell_none(),
               p->lanes ? sl_cell_count(p->lanes) : sl_cell_none(),
               sl_cell_if(p->link_bytes_per_s > 0, 1e-9 * p->link_bytes_per_s),
               p->node >= 0 ? sl_cell_count(p->node) : sl_cell_none());
    }
}

/* Is what was built used, and is what could be used built? */
static void software_table(const sl_machine *m, const sl_system_config *config, sl_results *results)
{
    sl_table *t = sl_results_table(results, "software", "Software, and whether it is built for this machine",
                                   "software version for_this_machine");
    const sl_device_class *classes[SL_DEVICE_CLASSES];
    char text[160];
    SL_ROW(t, "sluice", sl_version(), sl_cell_none());
    SL_ROW(t, "kernel", m->kernel, m->architecture);
    SL_ROW(t, "libc", m->libc, sl_cell_none());
#if defined(__clang__)
    SL_ROW(t, "compiler", "clang " __clang_version__, sl_cell_none());
#else
    SL_ROW(t, "compiler", "gcc " __VERSION__, sl_cell_none());
#endif
    SL_ROW(t, "hwloc", strncmp(m->source, "hwloc", 5) == 0 ? m->source + 6 : "not built in", sl_cell_none());
    sl_device_classes(classes);
    for (int64_t i = 0; i < SL_DEVICE_CLASSES; i++) {
        sl_device *device;
        sl_device_config none = {.threads = config->threads, .max_commands = 1, .max_events = 1};
        snprintf(text, sizeof text, "device %s", sl_device_def_at(i)->name);
        if (!sl_device_def_at(i)->computes)
            continue;
        if (!classes[i]) {
            SL_ROW(t, text, sl_cell_none(), "no plugin, or no accelerator that it can use");
            continue;
        }
        if (sl_device_open(classes[i]->name, &none, &device) != SL_OK) {
            SL_ROW(t, text, sl_cell_none(), sl_error_message());
            continue;
        }
        SL_ROW(t, text, device->class->numerics(device), "yes: the kernels named here are taken");
        sl_device_close(device);
    }
    SL_ROW(t, "GPU driver", m->driver[0] ? m->driver : "none", sl_cell_none());
}

void sl_system_describe(const sl_machine *m, const sl_system_config *config, sl_results *results)
{
    machine_table(m, results);
    cache_table(m, results);
    node_table(m, results);
    pci_table(m, results);
    software_table(m, config, results);
}
