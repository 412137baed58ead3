/* From a launch to its kernel. The table of kernels.def is sorted once by op, then highest instruction set, then line; a
 * look-up walks the few kernels of one op and takes the first that may run. It happens at every issue: a cache per launch
 * would save some tens of nanoseconds and need a lifetime. */
#include <pthread.h>

#include "device/cpu/kernel.h"

/* Kernel files compile to nothing where the compiler lacks their instruction set, so these lines must go with them. */
#if defined(__x86_64__)
#define HAVE_X86 1
#if defined(__has_include)
#if __has_include(<amxbf16intrin.h>)
#define HAVE_AMX 1
#endif
#endif
#endif

#if defined(HAVE_X86)
#define SL_CPU_KERNEL(name) extern const sl_cpu_kernel sl_cpu_##name;
#else
#define SL_CPU_KERNEL(name)
#endif
#if defined(HAVE_AMX)
#define SL_CPU_KERNEL_AMX(name) extern const sl_cpu_kernel sl_cpu_##name;
#else
#define SL_CPU_KERNEL_AMX(name)
#endif
#include "device/cpu/kernels.def"
#undef SL_CPU_KERNEL
#undef SL_CPU_KERNEL_AMX

#if defined(HAVE_X86)
#define SL_CPU_KERNEL(name) &sl_cpu_##name,
#else
#define SL_CPU_KERNEL(name)
#endif
#if defined(HAVE_AMX)
#define SL_CPU_KERNEL_AMX(name) &sl_cpu_##name,
#else
#define SL_CPU_KERNEL_AMX(name)
#endif
static const sl_cpu_kernel *const all_kernels[] = {
#include "device/cpu/kernels.def"
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

const sl_cpu_kernel *const *sl_cpu_kernels(int64_t *count)
{
    *count = KERNELS;
    return all_kernels;
}
