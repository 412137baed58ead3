/*
 * CPU kernels: a table line in kernels.def and a `const sl_cpu_kernel sl_cpu_<name>` per kernel. For each launch the
 * dispatcher takes the kernel of the highest instruction set that is present, allowed (SLUICE_ISA) and supports the launch;
 * the op's reference serves where there is none. Names: <op>_<dtype or nothing>_<isa>, files <op>_<isa>.c or <op>.c.
 *
 * A kernel cuts its work into tiles that do not depend on the number of threads, each output element belongs to one tile, and
 * a reduction that is cut uses a fixed tree: so any thread count gives the same bits. No kernel allocates.
 */
#ifndef SL_DEVICE_CPU_KERNEL_H
#define SL_DEVICE_CPU_KERNEL_H

#include "core/pool.h"
#include "ops/op.h"

typedef enum sl_isa { SL_ISA_SCALAR, SL_ISA_AVX2, SL_ISA_AVX512, SL_ISA_AMX, SL_ISA_COUNT } sl_isa;

typedef struct sl_cpu_kernel {
    const char *name;
    sl_op_id op;
    sl_isa isa;
    bool (*supports)(const sl_launch *launch);                 /* NULL: every launch of the op */
    size_t (*workspace)(const sl_launch *launch, int threads); /* NULL: none */
    void (*run)(const sl_launch *launch, sl_pool *pool);
} sl_cpu_kernel;

/* The best instruction set this CPU and the system offer (AMX permission is asked for here), lowered by SLUICE_ISA=scalar|avx2|
 * avx512|amx. Asking for one the machine lacks is an error. */
sl_status sl_isa_detect(sl_isa *isa);
const char *sl_isa_name(sl_isa isa);

/* The kernel for a launch, never above `isa`; NULL: use the op's reference. */
const sl_cpu_kernel *sl_cpu_kernel_find(const sl_launch *launch, sl_isa isa);
/* All kernels in the table, for tests and benches. */
const sl_cpu_kernel *const *sl_cpu_kernels(int64_t *count);

#endif
