/* One file per instruction set sets the macros and includes this. Twelve chains, each in a register of its own: two
 * units with a latency of four cycles need eight. (As an array they would live in memory.) */
#include "device/cpu/runtime/throughput.h"

#define CHAINS(X) \
    X(0)          \
    X(1)          \
    X(2)          \
    X(3)          \
    X(4)          \
    X(5)          \
    X(6)          \
    X(7)          \
    X(8)          \
    X(9)          \
    X(10)         \
    X(11)
#define CHAIN_COUNT 12

static double fma_f32(int64_t rounds, double *flops)
{
    const int64_t lanes = sizeof(VF32) / sizeof(float);
    VF32 factor = SET_F32(0.999999f), add = SET_F32(1e-6f);
    float out[sizeof(VF32) / sizeof(float)];
    double sum = 0;
#define X(n) VF32 chain##n = SET_F32(1.0f + (float) n);
    CHAINS(X)
#undef X
    for (int64_t i = 0; i < rounds; i++) {
#define X(n) chain##n = FMA_F32(chain##n, factor, add);
        CHAINS(X)
#undef X
    }
#define X(n)                  \
    STORE_F32(out, chain##n); \
    sum += (double) out[0];
    CHAINS(X)
#undef X
    *flops = 2.0 * (double) rounds * CHAIN_COUNT * (double) lanes;
    return sum;
}

static double fma_f64(int64_t rounds, double *flops)
{
    const int64_t lanes = sizeof(VF64) / sizeof(double);
    VF64 factor = SET_F64(0.999999), add = SET_F64(1e-6);
    double out[sizeof(VF64) / sizeof(double)], sum = 0;
#define X(n) VF64 chain##n = SET_F64(1.0 + n);
    CHAINS(X)
#undef X
    for (int64_t i = 0; i < rounds; i++) {
#define X(n) chain##n = FMA_F64(chain##n, factor, add);
        CHAINS(X)
#undef X
    }
#define X(n)                  \
    STORE_F64(out, chain##n); \
    sum += out[0];
    CHAINS(X)
#undef X
    *flops = 2.0 * (double) rounds * CHAIN_COUNT * (double) lanes;
    return sum;
}
