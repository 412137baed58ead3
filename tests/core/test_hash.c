/* The hash: the same for any way of cutting the bytes, fixed by vectors, and different for different bytes. */
#include "core/hash.h"

#include "core/rng.h"
#include "test.h"

static void fill(unsigned char *bytes, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        bytes[i] = (unsigned char) sl_philox(7, (uint64_t) i, 0).v[0];
}

TEST(cutting_changes_nothing)
{
    enum { MOST = 300 };
    unsigned char bytes[MOST];
    fill(bytes, MOST);
    for (size_t length = 0; length <= MOST; length++) {
        uint64_t whole = sl_hash64(bytes, length, 5);
        for (size_t piece = 1; piece <= 70; piece++) {
            sl_hasher hasher;
            sl_hash_begin(&hasher, 5);
            for (size_t at = 0; at < length; at += piece)
                sl_hash_add(&hasher, bytes + at, SL_MIN(piece, length - at));
            sl_hash_add(&hasher, bytes, 0);
            if (sl_hash_end(&hasher) != whole)
                CHECK_MSG(false, "length %zu in pieces of %zu", length, piece);
        }
        sl_hasher hasher;
        sl_hash_begin(&hasher, 5);
        sl_hash_add(&hasher, bytes, length / 3);
        CHECK(sl_hash_end(&hasher) == sl_hash64(bytes, length / 3, 5)); /* looking in the middle disturbs nothing */
        sl_hash_add(&hasher, bytes + length / 3, length - length / 3);
        CHECK(sl_hash_end(&hasher) == whole);
    }
}

/* These may never change: checkpoints hold such sums. */
TEST(vectors)
{
    unsigned char bytes[100];
    for (int i = 0; i < 100; i++)
        bytes[i] = (unsigned char) i;
    CHECK_U64(sl_hash64("", 0, 0), 0x6c0585494ed0447b);
    CHECK_U64(sl_hash64("a", 1, 0), 0x353d660b0f0321e9);
    CHECK_U64(sl_hash64("sluice", 6, 0), 0x6d6d607c55970047);
    CHECK_U64(sl_hash64(bytes, 32, 0), 0xbf0eb1ad1f7c863c);
    CHECK_U64(sl_hash64(bytes, 100, 0), 0xeff265238956d5ed);
    CHECK_U64(sl_hash64(bytes, 100, 1), 0x77d4203092ff0607);
}

/* Each flipped bit changes about half of the result's, and no two single flips, lengths or seeds collide. */
TEST(every_bit_matters)
{
    unsigned char bytes[96];
    fill(bytes, 96);
    uint64_t base = sl_hash64(bytes, 96, 0);
    double flipped = 0;
    static uint64_t seen[96 * 8 + 200];
    int64_t count = 0;
    for (int bit = 0; bit < 96 * 8; bit++) {
        bytes[bit / 8] ^= (unsigned char) (1 << bit % 8);
        seen[count++] = sl_hash64(bytes, 96, 0);
        bytes[bit / 8] ^= (unsigned char) (1 << bit % 8);
        int changed = __builtin_popcountll(seen[count - 1] ^ base);
        CHECK_MSG(changed >= 10, "bit %d changes only %d bits", bit, changed);
        flipped += changed;
    }
    CHECK_NEAR(flipped / (96 * 8), 32, 0.6);
    static const unsigned char zeroes[100];
    for (size_t length = 0; length < 100; length++)
        seen[count++] = sl_hash64(zeroes, length, 0);
    for (uint64_t seed = 1; seed <= 100; seed++)
        seen[count++] = sl_hash64(zeroes, 99, seed);
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < i; j++)
            if (seen[i] == seen[j])
                CHECK_MSG(false, "%d and %d collide", (int) i, (int) j);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(cutting_changes_nothing);
    RUN(vectors);
    RUN(every_bit_matters);
    return test_end();
}
