/* How much memory a process may use: containers and batch systems allow less than the machine has, and kill whoever takes more. */
#ifndef SL_CORE_MEMORY_LIMIT_H
#define SL_CORE_MEMORY_LIMIT_H

#include <stddef.h>

/* The machine's memory, or the limit of this process if that is less. */
size_t sl_memory_bytes(void);
/* The lowest limit of the control groups named in `root`/proc/self/cgroup; SIZE_MAX: there is none. `root` is "" but in tests. */
size_t sl_memory_limit(const char *root);

#endif
