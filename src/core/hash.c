/* Four independent 64-bit lanes, each folding every fourth word with one multiply, so that the multiplies of one
 * 32-byte block overlap and the hash runs at memory speed; the lanes, the rest and the length are mixed at the end.
 * Cryptographic hashes were not taken: at a few GB of weights per checkpoint they would cost seconds and guard against
 * nobody.
 *
 * fold(lane, word) = rotl(lane ^ word * A, 29) * B is a bijection of the lane for a fixed word and of the word for a
 * fixed lane: a single changed word always changes the lane. */
#include "core/hash.h"

#include <string.h>

/* Odd, with half of their bits set: the first digits of the square roots of 2, 3, 5 and 7 behind the point. */
static const uint64_t A = 0x6a09e667f3bcc909, B = 0xbb67ae8584caa73b, C = 0x3c6ef372fe94f82b, D = 0xa54ff53a5f1d36f1;

static uint64_t rotl(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static uint64_t load64(const unsigned char *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static uint64_t fold(uint64_t lane, uint64_t word)
{
    return rotl(lane ^ (word * A), 29) * B;
}

/* Every bit of the input reaches every bit of the output. */
static uint64_t finish(uint64_t x)
{
    x = (x ^ (x >> 32)) * C;
    x = (x ^ (x >> 29)) * D;
    return x ^ (x >> 32);
}

static void add_blocks(uint64_t lane[4], const unsigned char *at, size_t blocks)
{
    uint64_t a = lane[0], b = lane[1], c = lane[2], d = lane[3];
    for (; blocks; blocks--, at += 32) {
        a = fold(a, load64(at));
        b = fold(b, load64(at + 8));
        c = fold(c, load64(at + 16));
        d = fold(d, load64(at + 24));
    }
    lane[0] = a, lane[1] = b, lane[2] = c, lane[3] = d;
}

void sl_hash_begin(sl_hasher *hasher, uint64_t seed)
{
    *hasher = (sl_hasher){.lane = {seed ^ A, seed + B, seed ^ C, seed + D}};
}

void sl_hash_add(sl_hasher *hasher, const void *bytes, size_t length)
{
    const unsigned char *at = bytes;
    size_t held = hasher->length & 31;
    hasher->length += length;
    if (held) {
        size_t take = length < 32 - held ? length : 32 - held;
        memcpy(hasher->tail + held, at, take);
        at += take, length -= take;
        if (held + take < 32)
            return;
        add_blocks(hasher->lane, hasher->tail, 1);
    }
    add_blocks(hasher->lane, at, length / 32);
    if (length & 31)
        memcpy(hasher->tail, at + (length & ~(size_t) 31), length & 31);
}

/* The rest is padded with zeroes; the length tells it from real ones. */
uint64_t sl_hash_end(const sl_hasher *hasher)
{
    uint64_t lane[4];
    memcpy(lane, hasher->lane, sizeof lane);
    size_t held = hasher->length & 31;
    if (held) {
        unsigned char block[32] = {0};
        memcpy(block, hasher->tail, held);
        add_blocks(lane, block, 1);
    }
    uint64_t hash = finish(hasher->length + D);
    for (int i = 0; i < 4; i++)
        hash = fold(hash, finish(lane[i] + (uint64_t) i));
    return finish(hash);
}

uint64_t sl_hash64(const void *bytes, size_t length, uint64_t seed)
{
    sl_hasher hasher;
    sl_hash_begin(&hasher, seed);
    sl_hash_add(&hasher, bytes, length);
    return sl_hash_end(&hasher);
}
