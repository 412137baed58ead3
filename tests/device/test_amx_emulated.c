/* gemm_amx.c itself, its tile instructions played by plain C: packing, tails and blocking are checked on any machine
 * with AVX-512. Real AMX is checked by test_gemm and the conformance test where it is. */
#include "device/gemm_check.h"

#define SL_AMX_EMULATE
#define sl_gemm_amx sl_gemm_amx_emulated
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq"))), \
                             apply_to = function)
#ifndef __AVX512F__
#define __AVX512F__ 1
#endif
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq")
#endif
#include "device/cpu/gemm/gemm_amx.c"
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

TEST(amx_emulated)
{
    check_isa("amx emulated", &sl_gemm_amx_emulated, false);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl") ||
        !__builtin_cpu_supports("avx512dq"))
        SKIP("no AVX-512 here");
    RUN(amx_emulated);
    return test_end();
}
