/*
 * A kernel timer with memory to run launches on: operands are placed one behind the other and filled with random values that suit
 * their op. A rig under load runs a few milliseconds of GEMM before every run, where the device has cores of its own;
 * they take the caches too.
 */
#ifndef SL_BENCH_RIG_H
#define SL_BENCH_RIG_H

#include "core/stats.h"
#include "cost/kernel_timer.h"

enum { SL_RIG_COMMANDS = 4096 };

typedef struct sl_rig {
    sl_timer timer;
    sl_device *twin; /* of a rig under load: without memory, where algorithms are picked by measuring */
    sl_hardware hardware;
    unsigned char *base;      /* of the device's memory */
    size_t bytes, used, peak; /* peak: the most that was used at once */
    size_t workspace_limit;   /* the most a kernel should take where it has the choice; 0: no limit */
    bool nondeterministic;    /* attention's backward may add in any order */
} sl_rig;

/* `bytes` of device memory; SL_E_MEMORY or SL_E_DEVICE where the machine has less. */
sl_status sl_rig_open(const char *device, int threads, size_t bytes, sl_rig *rig);
/* And under load, with algorithms picked as in a run; on a CPU no different. */
sl_status sl_rig_open_warm(const char *device, int threads, size_t bytes, sl_rig *rig);
void sl_rig_close(sl_rig *rig);

/* Memory of the rig; SL_E_DOES_NOT_FIT beyond its end. Freed by setting rig->used back. */
sl_status sl_rig_take(sl_rig *rig, size_t bytes, void **out);
/* A tensor in the rig's memory, content not set. */
sl_status sl_rig_tensor(sl_rig *rig, sl_type type, sl_operand *out);
/* Takes memory for every operand that has none yet, and for the workspace. */
sl_status sl_rig_place(sl_rig *rig, sl_launch *launch);
/* Whether the device runs the launch, and the workspace it wants. */
sl_status sl_rig_workspace(sl_rig *rig, const sl_launch *launch, size_t *bytes);
/* Random content for all inputs, and outputs that are read. */
sl_status sl_rig_fill(sl_rig *rig, const sl_launch *launch);
sl_status sl_rig_write(sl_rig *rig, const sl_operand *to, const void *from);
sl_status sl_rig_read(sl_rig *rig, const sl_operand *from, void *to);

/* The launches one after the other, once; device seconds from the first one's start to the last one's end. */
sl_status sl_rig_run(sl_rig *rig, const sl_launch *launches, int64_t count, double *seconds);
/* `warmup` runs, then `steps` timed ones (at most 10,000), for no more than about `limit_s` in all (0: no limit). A
 * run that takes longer than that by itself is the only one. */
sl_status sl_rig_time(sl_rig *rig, const sl_launch *launches, int64_t count, int64_t warmup, int64_t steps,
                      double limit_s, sl_stats *stats);

/* A GEMM of this dtype, placed and filled; A[m,k] B[n,k]^T, as a linear layer does. */
sl_status sl_rig_matmul(sl_rig *rig, sl_dtype dtype, int64_t m, int64_t n, int64_t k, sl_launch *launch);

#endif
