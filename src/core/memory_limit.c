/* A limit may stand at any level of the tree of control groups, and inside a container the process sees its own group as the
 * root: so every folder from the process's up to the root is asked. Version 2 has one tree; version 1 has one per controller. */
#include "core/memory_limit.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/status.h"

enum { PATH_BYTES = 1024 };

/* SIZE_MAX where there is no such file, or no number in it ("max"). */
static size_t read_limit(const char *folder, const char *name)
{
    char path[PATH_BYTES + 64];
    uint64_t bytes;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    if (!file)
        return SIZE_MAX;
    bool found = fscanf(file, "%" SCNu64, &bytes) == 1;
    fclose(file);
    return found && bytes > 0 && bytes < SIZE_MAX ? (size_t) bytes : SIZE_MAX;
}

static size_t lowest_on_the_way_up(const char *tree, const char *group, const char *name)
{
    char folder[PATH_BYTES];
    size_t lowest = SIZE_MAX, root = strlen(tree);
    if (snprintf(folder, sizeof folder, "%s%s", tree, group) >= (int) sizeof folder)
        folder[root] = 0;
    for (;;) {
        lowest = SL_MIN(lowest, read_limit(folder, name));
        char *last = strrchr(folder + root, '/');
        if (!last)
            return lowest;
        *last = 0;
    }
}

/* "12:cpu,memory:/group" */
static bool has_memory(const char *controllers)
{
    for (const char *at = controllers; (at = strstr(at, "memory")); at += 6)
        if ((at == controllers || at[-1] == ',') && (at[6] == 0 || at[6] == ','))
            return true;
    return false;
}

size_t sl_memory_limit(const char *root)
{
    char path[PATH_BYTES], line[PATH_BYTES];
    size_t lowest = SIZE_MAX;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = 0, controllers++;
        group[strcspn(group, "\n")] = 0;
        bool unified = controllers[0] == 0;
        if (!unified && !has_memory(controllers))
            continue;
        snprintf(path, sizeof path, "%s/sys/fs/cgroup%s", root, unified ? "" : "/memory");
        size_t limit = lowest_on_the_way_up(path, group, unified ? "memory.max" : "memory.limit_in_bytes");
        lowest = SL_MIN(lowest, limit);
    }
    if (file)
        fclose(file);
    return lowest;
}

size_t sl_memory_bytes(void)
{
    size_t machine = (size_t) sysconf(_SC_PHYS_PAGES) * (size_t) sysconf(_SC_PAGESIZE);
    return SL_MIN(machine, sl_memory_limit(""));
}

sl_resident sl_memory_resident(void)
{
    sl_resident resident = {0};
    char line[256];
    uint64_t kib;
    FILE *file = fopen("/proc/self/status", "r");
    if (!file)
        return resident;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "RssAnon: %" SCNu64, &kib) == 1)
            resident.anonymous = (size_t) kib << 10;
        else if (sscanf(line, "RssFile: %" SCNu64, &kib) == 1 || sscanf(line, "RssShmem: %" SCNu64, &kib) == 1)
            resident.mapped += (size_t) kib << 10;
    fclose(file);
    return resident;
}
