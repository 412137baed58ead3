/* The order of an epoch: a bijection for every n, key and epoch, and a shuffle worth the name. */
#include "core/mem.h"
#include "data/permute.h"
#include "test.h"

static bool is_bijection(int64_t n, uint64_t key, uint64_t epoch)
{
    unsigned char *seen;
    bool ok = true;
    CHECK_OK(sl_alloc(&seen, n, 1));
    for (int64_t i = 0; i < n; i++) {
        int64_t to = sl_permute(i, n, key, epoch);
        ok = ok && to >= 0 && to < n && !seen[to];
        if (ok)
            seen[to] = 1;
    }
    sl_free(seen);
    return ok;
}

TEST(bijective)
{
    for (int64_t n = 1; n <= 260; n++)
        for (uint64_t epoch = 0; epoch < 3; epoch++)
            CHECK_MSG(is_bijection(n, 7 * (uint64_t) n, epoch), "n %" PRId64 ", epoch %" PRIu64, n, epoch);
    CHECK(is_bijection(100003, 1, 5));
    CHECK(is_bijection(65536, 1, 5));
}

TEST(large_n_stays_inside)
{
    int64_t n = (INT64_C(1) << 61) + 12345;
    for (int64_t i = 0; i < 1000; i++) {
        int64_t to = sl_permute(n - 1 - i, n, 3, 0);
        CHECK(to >= 0 && to < n);
    }
}

/* Among 10,000 places, a random order keeps about one in place and no run of neighbours together. */
TEST(shuffles)
{
    int64_t n = 10000, fixed = 0, neighbours = 0, same_as_next_epoch = 0;
    double displacement = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t to = sl_permute(i, n, 42, 0);
        fixed += to == i;
        displacement += fabs((double) (to - i));
        neighbours += i + 1 < n && llabs(sl_permute(i + 1, n, 42, 0) - to) == 1;
        same_as_next_epoch += to == sl_permute(i, n, 42, 1);
    }
    CHECK_MSG(fixed < 10, "%" PRId64 " fixed", fixed);
    CHECK_MSG(neighbours < 15, "%" PRId64 " neighbours stayed so", neighbours);
    CHECK_MSG(same_as_next_epoch < 10, "%" PRId64 " the same in two epochs", same_as_next_epoch);
    CHECK_NEAR(displacement / (double) n, (double) n / 3, (double) n / 50); /* mean of |x - y| for uniform x, y */
}

TEST(depends_on_key)
{
    int64_t same = 0;
    for (int64_t i = 0; i < 1000; i++)
        same += sl_permute(i, 1000, 1, 0) == sl_permute(i, 1000, 2, 0);
    CHECK(same < 10);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(bijective);
    RUN(large_n_stays_inside);
    RUN(shuffles);
    RUN(depends_on_key);
    return test_end();
}
