/* vf_exp of 16 floats, for the instruction set that this file is compiled for; EXP names the function (test_simd_exp.c). */
#include "device/cpu/simd/simd.h"

void EXP(const float x[16], float y[16]);

void EXP(const float x[16], float y[16])
{
    for (int i = 0; i < 16; i += VF_LANES)
        vf_store(y + i, vf_exp(vf_load(x + i, VF_LANES)), VF_LANES);
}
