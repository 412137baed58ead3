/*
 * The measurement needs the core's clock, which no user program can read directly (the time-stamp counter runs at a constant
 * rate). A chain of dependent 32-bit multiplications serves instead: each takes 3 cycles on Intel's cores since Nehalem and on
 * AMD's since Zen, whatever the sibling thread does. Slices of FMAs and of that chain alternate every few microseconds, so
 * both see the same frequency, and the shortest slice of each kind counts: interruptions only ever add time.
 */
#include "device/cpu/runtime/throughput.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "core/clock.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum { FMA_ROUNDS = 6000, CHAIN_ROUNDS = 1500, CHAIN_UNROLL = 8, CHAIN_LATENCY = 3, SLICES = 200 };
#define WARM_UP_SECONDS 1e-3 /* until the frequency has settled for wide vectors */

const sl_fma_kernel *sl_fma_kernel_find(sl_isa isa)
{
    const sl_fma_kernel *kernel = NULL;
    (void) isa;
#ifdef SL_HAVE_AVX2
    if (isa >= SL_ISA_AVX2)
        kernel = &sl_fma_avx2;
#endif
#ifdef SL_HAVE_AVX512
    if (isa >= SL_ISA_AVX512)
        kernel = &sl_fma_avx512;
#endif
    return kernel;
}

/* ---- what is documented ---- */

/* 0: differs between CPUs of this model, or the CPU lacks the instructions. */
typedef struct known_cpu {
    const char *vendor;
    int family, first_model, last_model;
    double avx2, avx512;
} known_cpu;

static const known_cpu known[] = {
    {"AuthenticAMD", 0x17, 0x00, 0x2f, 16, 0},  /* Zen, Zen+: 128-bit units */
    {"AuthenticAMD", 0x17, 0x30, 0xff, 32, 0},  /* Zen 2 */
    {"AuthenticAMD", 0x19, 0x00, 0x0f, 32, 0},  /* Zen 3 */
    {"AuthenticAMD", 0x19, 0x10, 0x1f, 32, 32}, /* Zen 4: 256-bit units */
    {"AuthenticAMD", 0x19, 0x20, 0x5f, 32, 0},  /* Zen 3 */
    {"AuthenticAMD", 0x19, 0x60, 0xaf, 32, 32}, /* Zen 4 */
    {"AuthenticAMD", 0x1a, 0x00, 0x1f, 32, 64}, /* Zen 5, servers */
    {"AuthenticAMD", 0x1a, 0x20, 0x2f, 32, 32}, /* Zen 5, laptops: 256-bit units */
    {"AuthenticAMD", 0x1a, 0x40, 0x4f, 32, 64}, /* Zen 5, desktops */
    {"AuthenticAMD", 0x1a, 0x60, 0x6f, 32, 32}, /* Zen 5, laptops */
    {"GenuineIntel", 6, 0x3c, 0x3d, 32, 0},     /* Haswell, Broadwell */
    {"GenuineIntel", 6, 0x55, 0x55, 32, 0},     /* Skylake-SP and its successors: one or two units, by product */
    {"GenuineIntel", 6, 0x66, 0x66, 32, 32},    /* Cannon Lake: one 512-bit unit, as the next five */
    {"GenuineIntel", 6, 0x7d, 0x7e, 32, 32},    /* Ice Lake, clients */
    {"GenuineIntel", 6, 0x8c, 0x8d, 32, 32},    /* Tiger Lake */
    {"GenuineIntel", 6, 0xa7, 0xa7, 32, 32},    /* Rocket Lake */
    {"GenuineIntel", 6, 0x6a, 0x6a, 32, 64},    /* Ice Lake, servers */
    {"GenuineIntel", 6, 0x6c, 0x6c, 32, 64},    /* Ice Lake D */
    {"GenuineIntel", 6, 0x8f, 0x8f, 32, 64},    /* Sapphire Rapids */
    {"GenuineIntel", 6, 0xcf, 0xcf, 32, 64},    /* Emerald Rapids */
    {"GenuineIntel", 6, 0xad, 0xae, 32, 64},    /* Granite Rapids */
};

static double documented(sl_isa isa, const sl_cpu_identity *cpu)
{
    for (int64_t i = 0; i < SL_COUNT(known); i++)
        if (strcmp(cpu->vendor, known[i].vendor) == 0 && cpu->family == known[i].family &&
            cpu->model >= known[i].first_model && cpu->model <= known[i].last_model)
            return isa >= SL_ISA_AVX512 ? known[i].avx512 : known[i].avx2;
    return 0;
}

/* One or two operations per cycle; 0: the measurement is near neither. */
static double whole_operations(sl_isa isa, double measured)
{
    double one = 2 * (isa >= SL_ISA_AVX512 ? 16 : 8);
    for (int operations = 1; operations <= 2; operations++)
        if (measured > 0.85 * operations * one && measured < 1.1 * operations * one)
            return operations * one;
    return 0;
}

sl_cpu_throughput sl_cpu_throughput_decide(sl_isa isa, const sl_cpu_identity *cpu, double measured)
{
    static const double usual[SL_ISA_COUNT] = {2, 32, 64, 64};
    sl_cpu_throughput t = {.f32 = usual[isa], .measured = measured, .source = "assumed for the instruction set"};
    double table = isa == SL_ISA_SCALAR ? 0 : documented(isa, cpu);
    double seen = isa == SL_ISA_SCALAR ? 0 : whole_operations(isa, measured);
    if (seen > 0 || table > 0) {
        t.f32 = SL_MAX(seen, table);
        t.source = seen >= table ? "measured" : "known for this CPU model";
    }
    /* AMX: one 16x16x32 tile product in 16 cycles on all CPUs that have it. Elsewhere bf16 kernels widen to f32. */
    t.bf16 = isa == SL_ISA_AMX ? 1024 : t.f32;
    return t;
}

/* ---- this machine ---- */

#if defined(__x86_64__)
void sl_cpu_identify(sl_cpu_identity *cpu)
{
    uint32_t a, b, c, d;
    *cpu = (sl_cpu_identity){.family = 0};
    if (!__get_cpuid(0, &a, &b, &c, &d))
        return;
    memcpy(cpu->vendor, &b, 4), memcpy(cpu->vendor + 4, &d, 4), memcpy(cpu->vendor + 8, &c, 4);
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return;
    int family = a >> 8 & 15, model = a >> 4 & 15;
    cpu->model = family == 6 || family == 15 ? model | (int) (a >> 12 & 0xf0) : model;
    cpu->family = family == 15 ? family + (int) (a >> 20 & 255) : family;
}

/* Seconds of one slice of dependent multiplications. */
static double time_chain(void)
{
    uint32_t x = 3;
    double start = sl_clock_s();
    for (int i = 0; i < CHAIN_ROUNDS; i++)
        __asm__ volatile("imul %0, %0\n\timul %0, %0\n\timul %0, %0\n\timul %0, %0\n\t"
                         "imul %0, %0\n\timul %0, %0\n\timul %0, %0\n\timul %0, %0"
                         : "+r"(x)::"cc");
    return sl_clock_s() - start;
}

double sl_cpu_throughput_measure(sl_isa isa, double *hz)
{
    const sl_fma_kernel *kernel = sl_fma_kernel_find(isa);
    double fma_s = INFINITY, chain_s = INFINITY, flops = 0;
    volatile double kept; /* what the arithmetic comes to */
    *hz = 0;
    if (!kernel)
        return 0;
    for (double began = sl_clock_s(); sl_clock_s() - began < WARM_UP_SECONDS;)
        kept = kernel->f32(FMA_ROUNDS, &flops);
    for (int i = 0; i < SLICES; i++) {
        double start = sl_clock_s();
        kept = kernel->f32(FMA_ROUNDS, &flops);
        fma_s = fmin(fma_s, sl_clock_s() - start);
        chain_s = fmin(chain_s, time_chain());
    }
    (void) kept;
    *hz = CHAIN_ROUNDS * CHAIN_UNROLL * CHAIN_LATENCY / chain_s;
    return flops / (fma_s * *hz);
}
#else
void sl_cpu_identify(sl_cpu_identity *cpu)
{
    *cpu = (sl_cpu_identity){.family = 0};
}

double sl_cpu_throughput_measure(sl_isa isa, double *hz)
{
    (void) isa;
    *hz = 0;
    return 0;
}
#endif

typedef struct measurement {
    bool done;
    double f32, hz;
} measurement;

sl_cpu_throughput sl_cpu_throughput_of(sl_isa isa)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static measurement measured[SL_ISA_COUNT];
    sl_cpu_identity cpu;
    pthread_mutex_lock(&lock);
    measurement *m = &measured[isa];
    if (!m->done) {
        m->f32 = sl_cpu_throughput_measure(isa, &m->hz);
        m->done = true;
    }
    measurement found = *m;
    pthread_mutex_unlock(&lock);
    sl_cpu_identify(&cpu);
    sl_cpu_throughput t = sl_cpu_throughput_decide(isa, &cpu, found.f32);
    t.hz = 1e8 * nearbyint(1e-8 * found.hz);
    return t;
}

sl_status sl_cpu_throughput_here(sl_cpu_throughput *throughput)
{
    sl_isa isa;
    SL_TRY(sl_isa_detect(&isa));
    *throughput = sl_cpu_throughput_of(isa);
    return SL_OK;
}

sl_fma_fn sl_fma_here(int bits)
{
    sl_isa isa;
    const sl_fma_kernel *kernel = sl_isa_detect(&isa) == SL_OK ? sl_fma_kernel_find(isa) : NULL;
    return !kernel ? NULL : bits == 64 ? kernel->f64 : kernel->f32;
}
