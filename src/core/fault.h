/* Making the k-th allocation, write, rename, ... fail, so that tests can walk every failure path.
 * Costs one relaxed atomic load where nothing is armed. */
#ifndef SL_CORE_FAULT_H
#define SL_CORE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

#define SL_FAULT_LIST(X) \
    X(ALLOC, "alloc")    \
    X(OPEN, "open")      \
    X(READ, "read")      \
    X(WRITE, "write")    \
    X(SYNC, "sync")      \
    X(RENAME, "rename")
typedef enum sl_fault_kind {
#define X(name, text) SL_FAULT_##name,
    SL_FAULT_LIST(X)
#undef X
        SL_FAULT_COUNT
} sl_fault_kind;

/* The `nth` (1-based) following event of that kind fails, once; 0 disarms. */
void sl_fault_arm(sl_fault_kind kind, int64_t nth);
/* How many events of that kind there were since it was last armed. */
int64_t sl_fault_events(sl_fault_kind kind);
/* True if this event is to fail. Called inside core only, where memory and files are asked for. */
bool sl_fault_hit(sl_fault_kind kind);
/* Arms from SLUICE_FAULT="write:17,rename:1", for tests that drive the command line. */
sl_status sl_fault_arm_from_env(void);

#endif
