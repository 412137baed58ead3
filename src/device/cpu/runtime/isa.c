/* Which instruction sets may be used. Four parties must agree: the compiler that built the kernels, the CPU (cpuid), the system, which
 * has to save the wider registers (xgetbv; for AMX also a permission asked for once per process), and the user (SLUICE_ISA). */
#include <stdlib.h>
#include <string.h>

#include "device/cpu/kernels/kernel.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static const char *const isa_names[SL_ISA_COUNT] = {"scalar", "avx2", "avx512", "amx"};

const char *sl_isa_name(sl_isa isa)
{
    return isa >= 0 && isa < SL_ISA_COUNT ? isa_names[isa] : "unknown";
}

#if defined(__x86_64__)
#define BIT(x, n) (((x) >> (n)) & 1u)
/* State components the system saves (XCR0). */
#define XCR0_AVX 0x6u
#define XCR0_AVX512 0xe6u
#define XCR0_AMX 0x60000u

static uint64_t read_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return ((uint64_t) high << 32) | low;
}

/* Linux hands out the 8 KiB of tile state only to processes that ask. */
static bool amx_permitted(void)
{
    enum { ARCH_REQ_XCOMP_PERM_CALL = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM_CALL, XFEATURE_XTILEDATA) == 0;
}

static sl_isa best_isa(void)
{
    uint32_t a, b, c, d, a1, b1, c1, d1;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !BIT(c, 27)) /* OSXSAVE */
        return SL_ISA_SCALAR;
    bool fma = BIT(c, 12), f16c = BIT(c, 29);
    uint64_t saved = read_xcr0();
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !fma || !f16c || !BIT(b, 5) || (saved & XCR0_AVX) != XCR0_AVX)
        return SL_ISA_SCALAR;
    bool avx512 = BIT(b, 16) && BIT(b, 17) && BIT(b, 30) && BIT(b, 31); /* F, DQ, BW, VL */
    if (!avx512 || (saved & XCR0_AVX512) != XCR0_AVX512)
        return SL_ISA_AVX2;
    bool amx = BIT(d, 22) && BIT(d, 24); /* BF16, TILE */
    bool avx512_bf16 = __get_cpuid_count(7, 1, &a1, &b1, &c1, &d1) && BIT(a1, 5);
    if (!amx || !avx512_bf16 || (saved & XCR0_AMX) != XCR0_AMX || !amx_permitted())
        return SL_ISA_AVX512;
    return SL_ISA_AMX;
}
#else
static sl_isa best_isa(void)
{
    return SL_ISA_SCALAR;
}
#endif

#if defined(SL_HAVE_AMX)
static const sl_isa built = SL_ISA_AMX;
#elif defined(SL_HAVE_AVX512)
static const sl_isa built = SL_ISA_AVX512;
#elif defined(SL_HAVE_AVX2)
static const sl_isa built = SL_ISA_AVX2;
#else
static const sl_isa built = SL_ISA_SCALAR;
#endif

sl_status sl_isa_detect(sl_isa *isa)
{
    sl_isa best = best_isa();
    best = SL_MIN(best, built);
    const char *asked = getenv("SLUICE_ISA");
    if (!asked || !asked[0]) {
        *isa = best;
        return SL_OK;
    }
    for (int i = 0; i < SL_ISA_COUNT; i++) {
        if (strcmp(asked, isa_names[i]) != 0)
            continue;
        if ((sl_isa) i > best)
            return sl_fail(SL_E_UNSUPPORTED, "SLUICE_ISA=%s: this machine offers %s at most; unset it or ask for less",
                           asked, isa_names[best]);
        *isa = (sl_isa) i;
        return SL_OK;
    }
    return sl_fail(SL_E_USAGE, "SLUICE_ISA=%s is no instruction set; use scalar, avx2, avx512 or amx", asked);
}
