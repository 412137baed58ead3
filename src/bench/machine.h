/* What can be read off a machine without measuring: topology, memory, devices, the software beneath us. hwloc tells
 * where it was there at build time; /proc and /sys tell the rest, and everything where it was not. Unknown figures are
 * 0, unknown names "". */
#ifndef SL_BENCH_MACHINE_H
#define SL_BENCH_MACHINE_H

#include "bench/results.h"
#include "device/device.h"

enum { SL_MOST_CACHES = 8, SL_MOST_NODES = 64, SL_MOST_DEVICES = 32 };

typedef struct sl_cache {
    int level;
    char kind; /* 'd' data, 'i' instructions, 'u' both */
    size_t bytes;
    int count;   /* of them in the machine */
    int threads; /* hardware threads that share one */
} sl_cache;

typedef struct sl_pci {
    char name[128]; /* "NVIDIA H200", or "10de:2335" where the name is not known */
    char kind[24];  /* "GPU", "network", "storage" */
    char address[16];
    double link_bytes_per_s; /* as it runs now, one way */
    int generation, lanes;
    int node; /* NUMA; -1: unknown */
} sl_pci;

typedef struct sl_machine {
    char source[32]; /* "hwloc 2.9.0", "/sys" */
    char architecture[32], cpu[128], kernel[128], libc[32];
    int sockets, cores, threads, nodes, usable_threads;
    double hz; /* nominal */
    sl_cache caches[SL_MOST_CACHES];
    int n_caches;
    size_t node_bytes[SL_MOST_NODES];
    char node_threads[SL_MOST_NODES][64]; /* "0-15,32-47" */
    size_t ram_bytes, available_bytes, swap_bytes, huge_page_bytes;
    char isa[256]; /* the flags that matter here, by name */
    sl_pci pci[SL_MOST_DEVICES];
    int n_pci;
    char driver[128]; /* of the GPU */
} sl_machine;

void sl_machine_probe(sl_machine *machine);
/* The part that hwloc tells better (machine_hwloc.c); false: not built in, or it failed. */
bool sl_machine_probe_hwloc(sl_machine *machine);

/* How the files of sysfs are read: how many threads a list such as "0-3,8" names, a cache's "32K" or "4M" in bytes, and what a PCI link
 * carries per second, one way: 8b/10b coding up to generation 2, 128b/130b to 5, nothing lost since. */
int sl_machine_count_list(const char *list);
size_t sl_machine_cache_bytes(const char *size);
double sl_machine_link_rate(double gigatransfers, int lanes, int *generation);

/* Bytes that may be taken now without swapping. */
size_t sl_machine_available_bytes(void);

/* What a device says of itself, opened without memory. */
sl_status sl_machine_hardware(const char *device, int threads, sl_hardware *hardware);
/* The lines that stand above every table: version, time, CPU, RAM, and the device opened without memory. */
sl_status sl_machine_facts(const char *device, int threads, sl_results *results);

#endif
