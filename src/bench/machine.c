/* Reading /proc and /sys. Each figure is looked for where the kernel documents it; what is not there stays unknown,
 * because a container hides some of it and a wrong guess would be worse than none. */
#include "bench/machine.h"

#include <ctype.h>
#include <dirent.h>
#include <gnu/libc-version.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/memory_limit.h"

/* First line of a small file without its newline; false: not there. */
static bool __attribute__((format(printf, 3, 4))) read_line(char *out, size_t size, const char *format, ...)
{
    char path[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path, sizeof path, format, arguments);
    va_end(arguments);
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    bool got = fgets(out, (int) size, file) != NULL;
    fclose(file);
    if (got)
        out[strcspn(out, "\n")] = 0;
    return got;
}

/* The text behind "key :" of the first line of /proc/cpuinfo that begins with key. */
static void cpuinfo(const char *key, char *out, size_t size)
{
    char line[8192];
    FILE *file = fopen("/proc/cpuinfo", "r");
    size_t length = strlen(key);
    out[0] = 0;
    while (file && !out[0] && fgets(line, sizeof line, file)) {
        char *value = strncmp(line, key, length) == 0 ? strchr(line, ':') : NULL;
        if (!value)
            continue;
        value += 1 + strspn(value + 1, " \t");
        value[strcspn(value, "\n")] = 0;
        snprintf(out, size, "%s", value);
    }
    if (file)
        fclose(file);
}

static size_t meminfo(const char *key)
{
    char line[256], name[64];
    unsigned long long kib, found = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%63[^:]: %llu", name, &kib) == 2 && strcmp(name, key) == 0)
            found = kib;
    if (file)
        fclose(file);
    return (size_t) found << 10;
}

size_t sl_machine_available_bytes(void)
{
    size_t free_bytes = meminfo("MemAvailable");
    return free_bytes ? free_bytes : sl_memory_bytes() / 2;
}

/* The flags that decide which kernels may run, in the order of their age. */
static void probe_isa(sl_machine *m)
{
    static const char *const known[] = {"sse4_2",      "avx",      "f16c",     "fma",      "avx2",        "avx_vnni",
                                        "avx512f",     "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16",
                                        "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8", "asimd",       "asimdhp",
                                        "bf16",        "sve",      "sve2",     "i8mm"};
    char flags[8192];
    cpuinfo(strstr(m->architecture, "aarch64") ? "Features" : "flags", flags, sizeof flags);
    for (char *rest = flags, *flag; (flag = strtok_r(rest, " ", &rest));)
        for (int64_t i = 0; i < SL_COUNT(known); i++)
            if (strcmp(flag, known[i]) == 0 && strlen(m->isa) + strlen(flag) + 2 < sizeof m->isa)
                strcat(strcat(m->isa, m->isa[0] ? " " : ""), flag);
}

static void probe_frequency(sl_machine *m)
{
    char line[128];
    double value;
    if (read_line(line, sizeof line, "/sys/devices/system/cpu/cpu0/cpufreq/base_frequency"))
        m->hz = 1e3 * atof(line);
    const char *at = strchr(m->cpu, '@'); /* "... @ 2.60GHz" */
    if (m->hz <= 0 && at && sscanf(at + 1, " %lfGHz", &value) == 1)
        m->hz = 1e9 * value;
    cpuinfo("cpu MHz", line, sizeof line);
    if (m->hz <= 0)
        m->hz = 1e6 * atof(line);
}

int sl_machine_count_list(const char *list)
{
    int count = 0, first, last;
    while (*list) {
        int n = sscanf(list, "%d-%d", &first, &last);
        count += n == 2 ? last - first + 1 : n == 1;
        list += strcspn(list, ",");
        list += *list == ',';
    }
    return count;
}

size_t sl_machine_cache_bytes(const char *size)
{
    return (size_t) atol(size) << (strchr(size, 'M') ? 20 : strchr(size, 'K') ? 10 : 0);
}

static void probe_caches(sl_machine *m)
{
    char level[32], type[32], size[32], shared[256];
    m->n_caches = 0;
    for (int i = 0; i < SL_MOST_CACHES; i++) {
        static const char format[] = "/sys/devices/system/cpu/cpu0/cache/index%d/%s";
        if (!read_line(level, sizeof level, format, i, "level") || !read_line(type, sizeof type, format, i, "type") ||
            !read_line(size, sizeof size, format, i, "size") ||
            !read_line(shared, sizeof shared, format, i, "shared_cpu_list"))
            break;
        sl_cache *cache = &m->caches[m->n_caches++];
        *cache = (sl_cache){.level = atoi(level), .threads = SL_MAX(sl_machine_count_list(shared), 1)};
        cache->kind = type[0] == 'D' ? 'd' : type[0] == 'I' ? 'i' : 'u';
        cache->bytes = sl_machine_cache_bytes(size);
        cache->count = SL_MAX(m->threads / cache->threads, 1);
    }
}

static void probe_nodes(sl_machine *m)
{
    char line[256];
    m->nodes = 0;
    for (int n = 0; n < SL_MOST_NODES; n++) {
        if (!read_line(line, sizeof line, "/sys/devices/system/node/node%d/cpulist", n))
            break;
        snprintf(m->node_threads[n], sizeof m->node_threads[n], "%.63s", line);
        char path[128];
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/meminfo", n);
        FILE *file = fopen(path, "r");
        unsigned long long kib;
        if (file && fgets(line, sizeof line, file) && sscanf(line, "Node %*d MemTotal: %llu", &kib) == 1)
            m->node_bytes[n] = (size_t) kib << 10;
        if (file)
            fclose(file);
        m->nodes++;
    }
    if (m->nodes == 0) { /* not known: one */
        m->nodes = 1;
        m->node_bytes[0] = m->ram_bytes;
        snprintf(m->node_threads[0], sizeof m->node_threads[0], "0-%d", m->threads - 1);
    }
}

/* Distinct (package, core) pairs over the threads that are online. */
static void probe_cores(sl_machine *m)
{
    int *seen = NULL;
    m->threads = (int) sysconf(_SC_NPROCESSORS_ONLN);
    if (sl_alloc(&seen, 2 * (size_t) m->threads, sizeof *seen) != SL_OK)
        return;
    for (int cpu = 0; cpu < m->threads; cpu++) {
        char package[32] = "0", core[32] = "0";
        read_line(package, sizeof package, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", cpu);
        if (!read_line(core, sizeof core, "/sys/devices/system/cpu/cpu%d/topology/core_id", cpu))
            snprintf(core, sizeof core, "%d", cpu);
        bool new_core = true;
        for (int i = 0; i < m->cores; i++)
            new_core &= seen[2 * i] != atoi(package) || seen[2 * i + 1] != atoi(core);
        m->sockets = SL_MAX(m->sockets, atoi(package) + 1);
        if (!new_core)
            continue;
        seen[2 * m->cores] = atoi(package);
        seen[2 * m->cores++ + 1] = atoi(core);
    }
    sl_free(seen);
}

/* ---- PCI ---- */

static bool read_pci(const char *address, const char *file, char *out, size_t size)
{
    return read_line(out, size, "/sys/bus/pci/devices/%s/%s", address, file);
}

/* The GPU driver tells names by address. */
static void name_gpu(sl_pci *pci)
{
    char path[256], line[256];
    snprintf(path, sizeof path, "/proc/driver/nvidia/gpus/%s/information", pci->address);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "Model: %127[^\n]", pci->name);
    if (file)
        fclose(file);
}

double sl_machine_link_rate(double gigatransfers, int lanes, int *generation)
{
    static const double rates[] = {2.5, 5, 8, 16, 32, 64};
    *generation = 0;
    for (int g = 0; g < (int) SL_COUNT(rates); g++)
        if (gigatransfers >= rates[g])
            *generation = g + 1;
    double coding = *generation <= 2 ? 0.8 : *generation <= 5 ? 128.0 / 130 : 1;
    return gigatransfers * 1e9 / 8 * coding * lanes;
}

static void read_link(sl_pci *pci)
{
    char speed[64], width[32];
    double transfers;
    if (!read_pci(pci->address, "current_link_speed", speed, sizeof speed) ||
        !read_pci(pci->address, "current_link_width", width, sizeof width) || sscanf(speed, "%lf", &transfers) != 1)
        return;
    pci->lanes = atoi(width);
    pci->link_bytes_per_s = sl_machine_link_rate(transfers, pci->lanes, &pci->generation);
}

static void probe_pci(sl_machine *m)
{
    DIR *folder = opendir("/sys/bus/pci/devices");
    struct dirent *entry;
    while (folder && (entry = readdir(folder)) && m->n_pci < SL_MOST_DEVICES) {
        char class[32], vendor[32] = "", device[32] = "", node[32];
        if (entry->d_name[0] == '.' || !read_pci(entry->d_name, "class", class, sizeof class))
            continue;
        long code = strtol(class, NULL, 16) >> 8;
        const char *kind = code >> 8 == 0x03 || code >> 8 == 0x12 ? "GPU"
                           : code >> 8 == 0x02                    ? "network"
                           : code >> 8 == 0x01                    ? "storage"
                                                                  : NULL;
        if (!kind)
            continue;
        sl_pci *pci = &m->pci[m->n_pci++];
        snprintf(pci->kind, sizeof pci->kind, "%s", kind);
        snprintf(pci->address, sizeof pci->address, "%.15s", entry->d_name);
        read_pci(pci->address, "vendor", vendor, sizeof vendor);
        read_pci(pci->address, "device", device, sizeof device);
        snprintf(pci->name, sizeof pci->name, "%s:%s", vendor + (vendor[0] ? 2 : 0), device + (device[0] ? 2 : 0));
        pci->node = read_pci(pci->address, "numa_node", node, sizeof node) ? atoi(node) : -1;
        read_link(pci);
        if (strcmp(kind, "GPU") == 0)
            name_gpu(pci);
    }
    if (folder)
        closedir(folder);
}

static void probe_driver(sl_machine *m)
{
    char line[256];
    if (!read_line(line, sizeof line, "/proc/driver/nvidia/version"))
        return;
    const char *number = line; /* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  ..." */
    while (*number &&
           !(isdigit((unsigned char) number[0]) && number > line && number[-1] == ' ' && strchr(number, '.')))
        number++;
    snprintf(m->driver, sizeof m->driver, "NVIDIA %.*s", (int) SL_MIN(strcspn(number, " "), (size_t) 32), number);
}

void sl_machine_probe(sl_machine *m)
{
    struct utsname system;
    cpu_set_t allowed;
    *m = (sl_machine){0};
    if (uname(&system) == 0) {
        snprintf(m->architecture, sizeof m->architecture, "%.31s", system.machine);
        snprintf(m->kernel, sizeof m->kernel, "%.40s %.80s", system.sysname, system.release);
    }
    snprintf(m->libc, sizeof m->libc, "%s", gnu_get_libc_version());
    cpuinfo("model name", m->cpu, sizeof m->cpu);
    m->ram_bytes = meminfo("MemTotal");
    m->available_bytes = sl_machine_available_bytes();
    m->swap_bytes = meminfo("SwapTotal");
    m->huge_page_bytes = meminfo("Hugepagesize");
    probe_isa(m);
    probe_frequency(m);
    probe_cores(m);
    probe_caches(m);
    probe_nodes(m);
    probe_pci(m);
    probe_driver(m);
    snprintf(m->source, sizeof m->source, "/sys");
    sl_machine_probe_hwloc(m);
    m->usable_threads = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : m->threads;
}

sl_status sl_machine_hardware(const char *device_name, int threads, sl_hardware *hardware)
{
    sl_device *device;
    sl_device_config config = {.threads = threads, .max_commands = 1, .max_events = 1};
    SL_TRY(sl_device_open(device_name, &config, &device));
    device->class->hardware(device, hardware);
    sl_device_close(device);
    return SL_OK;
}

sl_status sl_machine_facts(const char *device_name, int threads, sl_results *results)
{
    sl_machine m;
    char now[32], text[64];
    sl_machine_probe(&m);
    sl_clock_utc(now);
    sl_results_fact(results, "sluice", sl_cell_text(sl_version()));
    sl_results_fact(results, "time", sl_cell_text(now));
    sl_results_fact(results, "cpu", sl_cell_text(m.cpu[0] ? m.cpu : m.architecture));
    sl_results_fact(results, "threads", sl_cell_count(threads ? threads : m.usable_threads));
    sl_results_fact(results, "ram", sl_cell_text(sl_format_bytes(m.ram_bytes, text)));
    if (!device_name)
        return SL_OK;
    sl_device *device;
    sl_hardware hardware = {0};
    sl_device_config config = {.threads = threads, .max_commands = 1, .max_events = 1};
    SL_TRY(sl_device_open(device_name, &config, &device));
    device->class->hardware(device, &hardware);
    sl_results_fact(results, "device", sl_cell_text(device->class->name));
    sl_results_fact(results, "device_name", sl_cell_text(hardware.name));
    sl_results_fact(results, "numerics", sl_cell_text(device->class->numerics(device)));
    sl_results_fact(results, "device_memory",
                    sl_cell_text(sl_format_bytes(hardware.memory_bytes[SL_TIER_DEVICE], text)));
    if (m.driver[0])
        sl_results_fact(results, "driver", sl_cell_text(m.driver));
    sl_device_close(device);
    return SL_OK;
}
