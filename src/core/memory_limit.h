/* How much memory a process uses, and how much it may use: containers and batch systems allow less than the machine
 * has, and kill a process that takes more. */
#ifndef SL_CORE_MEMORY_LIMIT_H
#define SL_CORE_MEMORY_LIMIT_H

#include <stddef.h>

/* The machine's memory, or the limit of this process if that is less. */
size_t sl_memory_bytes(void);
/* The lowest limit of the control groups named in `root`/proc/self/cgroup; SIZE_MAX: there is none. `root` is "" but in tests. */
size_t sl_memory_limit(const char *root);

/* Resident memory of this process as the system counts it; zeros where the system does not say. */
typedef struct sl_resident {
    size_t anonymous; /* heap, arenas, stacks, what libraries allocate */
    size_t mapped;    /* code, libraries and other files, memory shared with others */
} sl_resident;
sl_resident sl_memory_resident(void);

#endif
