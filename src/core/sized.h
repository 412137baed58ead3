/* Public structs begin with `size_t struct_size`, as their owner was compiled. Both sides may be newer than the other, so fields
 * are only ever appended and what crosses is the part that both know. */
#ifndef SL_CORE_SIZED_H
#define SL_CORE_SIZED_H

#include "core/status.h"

/* Whether a caller's struct can be filled: before work whose result goes there. */
sl_status sl_sized_check(const void *to, const char *name);
/* Fills a caller's struct from ours of `size` bytes: its own struct_size stays, what it has beyond ours becomes zero. `name` is the
 * type's, for messages. */
sl_status sl_sized_put(void *to, const void *from, size_t size, const char *name);
/* Takes a caller's struct into ours: what it lacks is zero. SL_E_USAGE when a field that we do not know is set. */
sl_status sl_sized_get(void *to, const void *from, size_t size, const char *name);

#endif
