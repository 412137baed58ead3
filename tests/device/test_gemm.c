/* The GEMM driver with every instruction set this machine has. */
#include "device/gemm_check.h"

#include "device/cpu/kernels/kernel.h"

TEST(avx512)
{
#ifdef SL_HAVE_AVX512
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        check_isa("avx512", &sl_gemm_avx512, true);
#endif
}

TEST(avx2)
{
#ifdef SL_HAVE_AVX2
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        check_isa("avx2", &sl_gemm_avx2, true);
#endif
}

TEST(amx)
{
#ifdef SL_HAVE_AMX
    sl_isa isa;
    CHECK_OK(sl_isa_detect(&isa)); /* asks the system for the tiles */
    if (isa >= SL_ISA_AMX)
        check_isa("amx", &sl_gemm_amx, false);
#endif
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(avx512);
    RUN(avx2);
    RUN(amx);
    return test_end();
}
