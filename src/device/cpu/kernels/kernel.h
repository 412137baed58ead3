/*
 * CPU kernels: a line in kernels.def and an SL_CPU_KERNEL(...) per op. The files of this folder are compiled once for each
 * instruction set (CMakeLists.txt defines SL_ISA and SL_ISA_ID), so `rmsnorm.c` gives rmsnorm_avx2 and rmsnorm_avx512. For each
 * launch the dispatcher takes the kernel of the highest instruction set that is present, allowed (SLUICE_ISA) and supports the
 * launch; the op's reference serves where there is none.
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

/* For files that are compiled once for each instruction set: SL_ISA_SYMBOL(sl_gemm) is sl_gemm_avx2 there, and so on. */
#define SL_ISA_JOIN(name, isa) name##_##isa
#define SL_ISA_EXPAND(name, isa) SL_ISA_JOIN(name, isa)
#define SL_ISA_SYMBOL(name) SL_ISA_EXPAND(name, SL_ISA)
#define SL_ISA_TEXT(isa) SL_ISA_STRING(isa)
#define SL_ISA_STRING(isa) #isa
#define SL_CPU_KERNEL(kernel, id, ...)                     \
    const sl_cpu_kernel SL_ISA_SYMBOL(sl_cpu_##kernel) = { \
        .name = #kernel "_" SL_ISA_TEXT(SL_ISA), .op = id, .isa = SL_ISA_ID, __VA_ARGS__}

/* The best instruction set this CPU and the system offer (AMX permission is asked for here), lowered by SLUICE_ISA=scalar|avx2|
 * avx512|amx. Asking for one the machine lacks is an error. */
sl_status sl_isa_detect(sl_isa *isa);
const char *sl_isa_name(sl_isa isa);

/* The kernel for a launch, never above `isa`; NULL: use the op's reference. */
const sl_cpu_kernel *sl_cpu_kernel_find(const sl_launch *launch, sl_isa isa);
/* Bytes that the kernel for a launch wants, or the reference's own. */
size_t sl_cpu_kernel_workspace(const sl_launch *launch, sl_isa isa, int threads);
/* All kernels in the table, for tests and benches. */
const sl_cpu_kernel *const *sl_cpu_kernels(int64_t *count);

#endif
