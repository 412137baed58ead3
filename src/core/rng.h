/* Counter-based random numbers (Philox 4x32, Salmon et al., SC'11): a pure function of (key, counter), so any thread, any
 * device and any order gives the same bits. Header-only; also compiled by nvcc. */
#ifndef SL_CORE_RNG_H
#define SL_CORE_RNG_H

#include <stdint.h>

#ifdef __CUDACC__
#define SL_HD __host__ __device__
#else
#define SL_HD
#endif

typedef struct sl_rng4 {
    uint32_t v[4];
} sl_rng4;

/* Its authors found 7 rounds to pass every test (BigCrush) and advise 10. */
static inline SL_HD sl_rng4 sl_philox_rounds(uint64_t key, uint64_t counter_lo, uint64_t counter_hi, int rounds)
{
    uint32_t c0 = (uint32_t) counter_lo, c1 = (uint32_t) (counter_lo >> 32);
    uint32_t c2 = (uint32_t) counter_hi, c3 = (uint32_t) (counter_hi >> 32);
    uint32_t k0 = (uint32_t) key, k1 = (uint32_t) (key >> 32);
    for (int round = 0; round < rounds; round++) {
        uint64_t p0 = (uint64_t) 0xD2511F53u * c0, p1 = (uint64_t) 0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t) (p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t) (p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t) p1, c3 = (uint32_t) p0, c0 = n0, c2 = n2;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    sl_rng4 out = {{c0, c1, c2, c3}};
    return out;
}

static inline SL_HD sl_rng4 sl_philox(uint64_t key, uint64_t counter_lo, uint64_t counter_hi)
{
    return sl_philox_rounds(key, counter_lo, counter_hi, 10);
}

/* [0, 1) with 24 bits. */
static inline SL_HD float sl_rng_uniform(uint32_t bits)
{
    return (float) (bits >> 8) * (1.0f / 16777216.0f);
}

#endif
