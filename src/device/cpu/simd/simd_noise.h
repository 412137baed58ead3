/* Philox on 16 counters at once, and rounding with its bits: the vector form of ops/noise.h, to the bit.
 * The 32 x 32 -> 64 bit multiply takes even lanes only, so even and odd counters run as two streams of 64-bit lanes
 * whose upper halves are whatever they are: the multiply never looks at them, and nothing is shuffled until the end. */
#ifndef SL_DEVICE_CPU_SIMD_NOISE_H
#define SL_DEVICE_CPU_SIMD_NOISE_H

#include "device/cpu/simd/simd.h"
#include "ops/noise.h"

/* words[w][lane] = word w of the counter (counter_lo + lane); the addition must not carry out of the low 32 bits. */
SL_INLINE void philox_16(uint64_t key, uint64_t counter_lo, uint64_t counter_hi, const int rounds,
                         uint32_t words[4][SL_NOISE_LANES])
{
    const vi m0 = vi_set1((int32_t) 0xD2511F53u), m1 = vi_set1((int32_t) 0xCD9E8D57u);
    SL_UNROLL
    for (int part = 0; part < SL_NOISE_LANES; part += VF_LANES) {
        const vi lanes = vi_add(vi_iota(), vi_set1(part)), low = vi_set1((int32_t) (uint32_t) counter_lo);
        vi c[2][4]; /* even and odd lanes */
        SL_UNROLL
        for (int s = 0; s < 2; s++) {
            c[s][0] = vi_add(low, s ? vi_shr64(lanes, 32) : lanes);
            c[s][1] = vi_set1((int32_t) (uint32_t) (counter_lo >> 32));
            c[s][2] = vi_set1((int32_t) (uint32_t) counter_hi);
            c[s][3] = vi_set1((int32_t) (uint32_t) (counter_hi >> 32));
        }
        uint32_t k0 = (uint32_t) key, k1 = (uint32_t) (key >> 32);
        for (int round = 0; round < rounds; round++) {
            const vi key0 = vi_set1((int32_t) k0), key1 = vi_set1((int32_t) k1);
            SL_UNROLL
            for (int s = 0; s < 2; s++) {
                vi p0 = vi_mul_even(m0, c[s][0]), p1 = vi_mul_even(m1, c[s][2]);
                c[s][0] = vi_xor3(vi_shr64(p1, 32), c[s][1], key0);
                c[s][2] = vi_xor3(vi_shr64(p0, 32), c[s][3], key1);
                c[s][1] = p1;
                c[s][3] = p0;
            }
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        SL_UNROLL
        for (int w = 0; w < 4; w++)
            vi_store(&words[w][part], vi_blend_odd(c[0][w], vi_shl64(c[1][w], 32)));
    }
}

/* The noise of one tensor's block, to be taken by rounding_noise(). */
typedef uint32_t noise_words[4][SL_NOISE_LANES];

/* The 128 noises of rounding block `block` for each of the first `tensors` tensors. */
SL_INLINE void rounding_words(const sl_step_params *step, uint64_t stream, int64_t block, noise_words *words,
                              const int tensors)
{
    philox_16(sl_noise_seed(step), (uint64_t) block * SL_NOISE_LANES, sl_noise_counter_hi(stream, step->step),
              SL_NOISE_ROUNDS, words[0]);
    SL_UNROLL
    for (int part = 0; part < SL_NOISE_LANES; part += VF_LANES) {
        vi u[4];
        SL_UNROLL
        for (int w = 0; w < 4; w++)
            u[w] = vi_load((const int32_t *) &words[0][w][part]);
        if (tensors > 1) {
            vi_store(&words[1][0][part], vi_xor(u[0], u[3]));
            vi_store(&words[1][1][part], vi_xor(u[1], u[2]));
            vi_store(&words[1][2][part], vi_xor3(u[0], u[1], u[2]));
            vi_store(&words[1][3][part], vi_xor3(u[0], u[1], u[3]));
        }
        if (tensors > 2) {
            vi_store(&words[2][0][part], vi_xor3(u[0], u[2], u[3]));
            vi_store(&words[2][1][part], vi_xor3(u[1], u[2], u[3]));
            vi_store(&words[2][2][part], vi_xor(u[0], u[2]));
            vi_store(&words[2][3][part], vi_xor(u[1], u[3]));
        }
    }
}

/* For elements j.. of the block, j a multiple of VF_LANES. */
SL_INLINE vi rounding_noise(noise_words words, int64_t j)
{
    vi w = vi_load((const int32_t *) &words[j / SL_NOISE_LANES % 4][j % SL_NOISE_LANES]);
    return j / SL_NOISE_LANES < 4 ? vi_and(w, vi_set1(0xffff)) : vi_shr(w, 16);
}

SL_INLINE void vf_store_stochastic(sl_bf16 *p, vf x, vi noise, int lanes)
{
    const vi exponent = vi_set1(0x7f800000);
    vm special = vi_eq(vi_and(vf_bits(x), exponent), exponent); /* infinity and NaN stay */
    vi_store_high(p, vi_select(special, vf_round_bf16(x), vi_add(vf_bits(x), noise)), lanes);
}

#endif
