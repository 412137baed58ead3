/*
 * A Feistel network is a permutation of 2b-bit numbers whatever its round function is:
 *
 *     (L, R) -> (R, L xor F(R))
 *
 * With the smallest 2b bits that hold n, values that land at or beyond n are fed in again until one lands inside
 * (cycle-walking; the cycle it walks belongs to the permutation, so the result is one too). 4^b < 4n, so fewer than four turns
 * on average. F is Philox, keyed by the seed and the epoch. Six rounds mix well enough for shuffling; this is no cipher.
 *
 * Not taken: Fisher-Yates over an index array (8 bytes per sequence, and resume must replay it), and an affine map i*a+b mod n
 * (bijective, but neighbours stay at a fixed distance).
 */
#include "data/permute.h"

#include "core/rng.h"
#include "core/status.h"

enum { ROUNDS = 6 };

static uint64_t feistel(uint64_t x, int half_bits, uint64_t key, uint64_t round)
{
    uint64_t mask = (UINT64_C(1) << half_bits) - 1;
    uint64_t left = x >> half_bits, right = x & mask;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        sl_rng4 noise = sl_philox(key, right, (round << 8) | i);
        uint64_t f = ((uint64_t) noise.v[1] << 32) | noise.v[0];
        uint64_t next = left ^ (f & mask);
        left = right;
        right = next;
    }
    return (left << half_bits) | right;
}

int64_t sl_permute(int64_t index, int64_t n, uint64_t key, uint64_t round)
{
    SL_ASSERT(n >= 1 && index >= 0 && index < n);
    int half_bits = 1;
    while ((UINT64_C(1) << (2 * half_bits)) < (uint64_t) n)
        half_bits++;
    uint64_t x = (uint64_t) index;
    do
        x = feistel(x, half_bits, key, round);
    while (x >= (uint64_t) n);
    return (int64_t) x;
}
