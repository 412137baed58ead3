/* The tables that are read, not measured. */
#include <stdio.h>
#include <string.h>

#include "bench/system.h"

static void machine_table(const sl_machine *m, sl_results *results)
{
    static const sl_column columns[] = {{"what", "", 0, false}, {"value", "", 0, false}};
    sl_table *t = SL_TABLE(results, "machine", "The machine", columns);
    char text[160], bytes[32];
    SL_ROW(t, sl_cell_text("architecture"), sl_cell_text(m->architecture));
    SL_ROW(t, sl_cell_text("cpu"), sl_cell_text(m->cpu[0] ? m->cpu : "unknown"));
    snprintf(text, sizeof text, "%d socket%s, %d cores, %d threads (%d usable here)", m->sockets,
             m->sockets == 1 ? "" : "s", m->cores, m->threads, m->usable_threads);
    SL_ROW(t, sl_cell_text("cores"), sl_cell_text(text));
    snprintf(text, sizeof text, "%.2f GHz", 1e-9 * m->hz);
    SL_ROW(t, sl_cell_text("frequency"), sl_cell_text(m->hz > 0 ? text : "unknown"));
    SL_ROW(t, sl_cell_text("instruction sets"), sl_cell_text(m->isa));
    SL_ROW(t, sl_cell_text("memory"), sl_cell_text(sl_format_bytes(m->ram_bytes, bytes)));
    SL_ROW(t, sl_cell_text("memory available"), sl_cell_text(sl_format_bytes(m->available_bytes, bytes)));
    SL_ROW(t, sl_cell_text("swap"), sl_cell_text(sl_format_bytes(m->swap_bytes, bytes)));
    SL_ROW(t, sl_cell_text("huge page"), sl_cell_text(sl_format_bytes(m->huge_page_bytes, bytes)));
    SL_ROW(t, sl_cell_text("topology from"), sl_cell_text(m->source));
}

static void cache_table(const sl_machine *m, sl_results *results)
{
    static const sl_column columns[] = {{"cache", "", 0, false},
                                        {"kib", "KiB", 0, false},
                                        {"instances", "", 0, false},
                                        {"threads_sharing", "", 0, false}};
    sl_table *t = SL_TABLE(results, "caches", "Caches", columns);
    for (int i = 0; i < m->n_caches; i++) {
        const sl_cache *c = &m->caches[i];
        char name[16];
        snprintf(name, sizeof name, "L%d%s", c->level, c->kind == 'd' ? "d" : c->kind == 'i' ? "i" : "");
        SL_ROW(t, sl_cell_text(name), sl_cell_count((int64_t) (c->bytes >> 10)), sl_cell_count(c->count),
               sl_cell_count(c->threads));
    }
}

static void node_table(const sl_machine *m, sl_results *results)
{
    static const sl_column columns[] = {
        {"node", "", 0, false}, {"threads", "", 0, false}, {"memory_gib", "GiB", 1, false}};
    sl_table *t = SL_TABLE(results, "numa", "Memory nodes", columns);
    for (int n = 0; n < m->nodes; n++)
        SL_ROW(t, sl_cell_count(n), sl_cell_text(m->node_threads[n]),
               m->node_bytes[n] ? sl_cell_number((double) m->node_bytes[n] / (1 << 30)) : sl_cell_none());
}

static void pci_table(const sl_machine *m, sl_results *results)
{
    static const sl_column columns[] = {{"device", "", 0, false},  {"kind", "", 0, false},
                                        {"address", "", 0, false}, {"pcie_generation", "", 0, false},
                                        {"lanes", "", 0, false},   {"link_gbps", "GB/s", 2, false},
                                        {"node", "", 0, false}};
    sl_table *t = SL_TABLE(results, "pci", "Devices", columns);
    for (int i = 0; i < m->n_pci; i++) {
        const sl_pci *p = &m->pci[i];
        SL_ROW(t, sl_cell_text(p->name), sl_cell_text(p->kind), sl_cell_text(p->address),
               p->generation ? sl_cell_count(p->generation) : sl_cell_none(),
               p->lanes ? sl_cell_count(p->lanes) : sl_cell_none(),
               p->link_bytes_per_s > 0 ? sl_cell_number(1e-9 * p->link_bytes_per_s) : sl_cell_none(),
               p->node >= 0 ? sl_cell_count(p->node) : sl_cell_none());
    }
}

/* Is what was built used, and is what could be used built? */
static void software_table(const sl_machine *m, const sl_system_config *config, sl_results *results)
{
    static const sl_column columns[] = {
        {"software", "", 0, false}, {"version", "", 0, false}, {"for_this_machine", "", 0, false}};
    sl_table *t = SL_TABLE(results, "software", "Software, and whether it is built for this machine", columns);
    const sl_device_class *classes[SL_DEVICE_CLASSES];
    char text[160];
    SL_ROW(t, sl_cell_text("sluice"), sl_cell_text(sl_version()), sl_cell_none());
    SL_ROW(t, sl_cell_text("kernel"), sl_cell_text(m->kernel), sl_cell_text(m->architecture));
    SL_ROW(t, sl_cell_text("libc"), sl_cell_text(m->libc), sl_cell_none());
#if defined(__clang__)
    SL_ROW(t, sl_cell_text("compiler"), sl_cell_text("clang " __clang_version__), sl_cell_none());
#else
    SL_ROW(t, sl_cell_text("compiler"), sl_cell_text("gcc " __VERSION__), sl_cell_none());
#endif
    SL_ROW(t, sl_cell_text("hwloc"), sl_cell_text(strncmp(m->source, "hwloc", 5) == 0 ? m->source + 6 : "not built in"),
           sl_cell_none());
    sl_device_classes(classes);
    for (int64_t i = 0; i < SL_DEVICE_CLASSES; i++) {
        sl_device *device;
        sl_device_config none = {.threads = config->threads, .max_commands = 1, .max_events = 1};
        snprintf(text, sizeof text, "device %s", sl_device_def_at(i)->name);
        if (!sl_device_def_at(i)->computes)
            continue;
        if (!classes[i]) {
            SL_ROW(t, sl_cell_text(text), sl_cell_none(), sl_cell_text("no plugin, or no accelerator that it can use"));
            continue;
        }
        if (sl_device_open(classes[i]->name, &none, &device) != SL_OK) {
            SL_ROW(t, sl_cell_text(text), sl_cell_none(), sl_cell_text(sl_error_message()));
            continue;
        }
        SL_ROW(t, sl_cell_text(text), sl_cell_text(device->class->numerics(device)),
               sl_cell_text("yes: the kernels named here are taken"));
        sl_device_close(device);
    }
    SL_ROW(t, sl_cell_text("GPU driver"), sl_cell_text(m->driver[0] ? m->driver : "none"), sl_cell_none());
}

void sl_system_describe(const sl_machine *m, const sl_system_config *config, sl_results *results)
{
    machine_table(m, results);
    cache_table(m, results);
    node_table(m, results);
    pci_table(m, results);
    software_table(m, config, results);
}
