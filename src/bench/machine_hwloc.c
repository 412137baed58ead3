/* Topology by hwloc, which knows machines that /sys tells of only in pieces: caches shared unevenly, NUMA nodes without
 * cores, names and links of PCI devices. Without it (SL_HAVE_HWLOC unset) the figures from /sys are used. */
#include <stdio.h>
#include <string.h>

#include "bench/machine.h"

#if defined(SL_HAVE_HWLOC)
#include <hwloc.h>

#if HWLOC_API_VERSION < 0x00020100
#define HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED HWLOC_TOPOLOGY_FLAG_WHOLE_SYSTEM
#endif

static void take_caches(hwloc_topology_t topology, sl_machine *m)
{
    static const struct {
        hwloc_obj_type_t type;
        int level;
        char kind;
    } known[] = {{HWLOC_OBJ_L1CACHE, 1, 'd'},
                 {HWLOC_OBJ_L1ICACHE, 1, 'i'},
                 {HWLOC_OBJ_L2CACHE, 2, 'u'},
                 {HWLOC_OBJ_L3CACHE, 3, 'u'},
                 {HWLOC_OBJ_L4CACHE, 4, 'u'}};
    int found = 0;
    sl_cache caches[SL_MOST_CACHES];
    for (int64_t i = 0; i < SL_COUNT(known); i++) {
        int count = hwloc_get_nbobjs_by_type(topology, known[i].type);
        hwloc_obj_t first = count > 0 ? hwloc_get_obj_by_type(topology, known[i].type, 0) : NULL;
        if (!first || !first->attr->cache.size)
            continue;
        caches[found++] = (sl_cache){.level = known[i].level,
                                     .kind = known[i].kind,
                                     .bytes = (size_t) first->attr->cache.size,
                                     .count = count,
                                     .threads = hwloc_bitmap_weight(first->cpuset)};
    }
    if (!found)
        return; /* a container may hide them from hwloc too */
    memcpy(m->caches, caches, (size_t) found * sizeof *caches);
    m->n_caches = found;
}

static void take_nodes(hwloc_topology_t topology, sl_machine *m)
{
    int nodes = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
    if (nodes <= 0)
        return;
    m->nodes = SL_MIN(nodes, SL_MOST_NODES);
    for (int n = 0; n < m->nodes; n++) {
        hwloc_obj_t node = hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, (unsigned) n);
        if (node->attr->numanode.local_memory)
            m->node_bytes[n] = (size_t) node->attr->numanode.local_memory;
        hwloc_bitmap_list_snprintf(m->node_threads[n], sizeof m->node_threads[n], node->cpuset);
    }
}

/* Names for what /sys listed by number. */
static void take_names(hwloc_topology_t topology, sl_machine *m)
{
    for (hwloc_obj_t d = NULL; (d = hwloc_get_next_pcidev(topology, d));) {
        const struct hwloc_pcidev_attr_s *pci = &d->attr->pcidev;
        char address[16];
        snprintf(address, sizeof address, "%04x:%02x:%02x.%01x", pci->domain, pci->bus, pci->dev, pci->func);
        for (int i = 0; i < m->n_pci; i++) {
            if (strcmp(m->pci[i].address, address) != 0)
                continue;
            if (d->name && strchr(m->pci[i].name, ':'))
                snprintf(m->pci[i].name, sizeof m->pci[i].name, "%.127s", d->name);
            if (m->pci[i].link_bytes_per_s <= 0 && pci->linkspeed > 0)
                m->pci[i].link_bytes_per_s = 1e9 * (double) pci->linkspeed;
        }
    }
}

bool sl_machine_probe_hwloc(sl_machine *m)
{
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0)
        return false;
    /* The whole machine, as in /sys, also in a container that may use a part of it; usable_threads is that part. */
    hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    hwloc_topology_set_icache_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (hwloc_topology_load(topology) != 0) {
        hwloc_topology_destroy(topology);
        return false;
    }
    int sockets = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE);
    int cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
    int threads = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
    m->sockets = sockets > 0 ? sockets : m->sockets;
    m->cores = cores > 0 ? cores : m->cores;
    m->threads = threads > 0 ? threads : m->threads;
    take_caches(topology, m);
    take_nodes(topology, m);
    take_names(topology, m);
    unsigned version = hwloc_get_api_version();
    snprintf(m->source, sizeof m->source, "hwloc %u.%u.%u", version >> 16, version >> 8 & 255, version & 255);
    hwloc_topology_destroy(topology);
    return true;
}

#else

bool sl_machine_probe_hwloc(sl_machine *m)
{
    (void) m;
    return false;
}

#endif
