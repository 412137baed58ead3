/* From a launch to its kernel. The table of kernels.def is sorted once by op, then highest instruction set, then line; a
 * look-up walks the few kernels of one op and takes the first that may run. It happens at every issue: a cache per launch
 * would save some tens of nanoseconds and need a lifetime. */
#include <pthread.h>

#include "device/cpu/kernels/kernel.h"

/* SL_HAVE_...: the compiler knows the instruction set, so the kernels' files are built. */
#ifdef SL_HAVE_AVX2
#define IF_AVX2(...) __VA_ARGS__
#else
#define IF_AVX2(...)
#endif
#ifdef SL_HAVE_AVX512
#define IF_AVX512(...) __VA_ARGS__
#else
#define IF_AVX512(...)
#endif
#ifdef SL_HAVE_AMX
#define IF_AMX(...) __VA_ARGS__
#else
#define IF_AMX(...)
#endif

#define SL_CPU_VECTOR(name)                                   \
    IF_AVX2(extern const sl_cpu_kernel sl_cpu_##name##_avx2;) \
    IF_AVX512(extern const sl_cpu_kernel sl_cpu_##name##_avx512;)
#define SL_CPU_AMX(name) IF_AMX(extern const sl_cpu_kernel sl_cpu_##name##_amx;)
#include "device/cpu/kernels/kernels.def"
#undef SL_CPU_VECTOR
#undef SL_CPU_AMX

#define SL_CPU_VECTOR(name) IF_AVX2(&sl_cpu_##name##_avx2, ) IF_AVX512(&sl_cpu_##name##_avx512, )
#define SL_CPU_AMX(name) IF_AMX(&sl_cpu_##name##_amx, )
static const sl_cpu_kernel *const all_kernels[] = {
#include "device/cpu/kernels/kernels.def"
    NULL, /* the table may be empty */
};

enum { KERNELS = sizeof all_kernels / sizeof all_kernels[0] - 1 };

static const sl_cpu_kernel *by_op[KERNELS + 1];
static int first_of_op[SL_OP_COUNT + 1];
static pthread_once_t sorted = PTHREAD_ONCE_INIT;

static void sort_kernels(void)
{
    int n = 0;
    for (int op = 0; op < SL_OP_COUNT; op++) {
        first_of_op[op] = n;
        for (int isa = SL_ISA_COUNT - 1; isa >= 0; isa--)
            for (int i = 0; i < KERNELS; i++)
                if ((int) all_kernels[i]->op == op && (int) all_kernels[i]->isa == isa)
                    by_op[n++] = all_kernels[i];
    }
    first_of_op[SL_OP_COUNT] = n;
}

const sl_cpu_kernel *sl_cpu_kernel_find(const sl_launch *launch, sl_isa isa)
{
    if ((int) launch->op < 0 || launch->op >= SL_OP_COUNT)
        return NULL;
    pthread_once(&sorted, sort_kernels);
    for (int i = first_of_op[launch->op]; i < first_of_op[launch->op + 1]; i++)
        if (by_op[i]->isa <= isa && (!by_op[i]->supports || by_op[i]->supports(launch)))
            return by_op[i];
    return NULL;
}

size_t sl_cpu_kernel_workspace(const sl_launch *launch, sl_isa isa, int threads)
{
    const sl_cpu_kernel *kernel = sl_cpu_kernel_find(launch, isa);
    const sl_op_def *op = sl_op(launch->op);
    if (kernel)
        return kernel->workspace ? kernel->workspace(launch, threads) : 0;
    return op->workspace ? op->workspace(launch) : 0;
}

const sl_cpu_kernel *const *sl_cpu_kernels(int64_t *count)
{
    *count = KERNELS;
    return all_kernels;
}
