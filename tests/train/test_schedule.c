/* Learning rates against their closed forms. */
#include "test.h"
#include "train/schedule.h"

TEST(constant)
{
    sl_schedule s = {SL_SCHEDULE_CONSTANT, 0.5, 0.1, 4, 100, 0};
    CHECK_NEAR(sl_schedule_at(&s, 1), 0.125, 1e-15);
    CHECK_NEAR(sl_schedule_at(&s, 4), 0.5, 1e-15);
    CHECK_NEAR(sl_schedule_at(&s, 5), 0.5, 0);
    CHECK_NEAR(sl_schedule_at(&s, 100), 0.5, 0);
    s.warmup = 0;
    CHECK_NEAR(sl_schedule_at(&s, 1), 0.5, 0);
}

TEST(cosine)
{
    sl_schedule s = {SL_SCHEDULE_COSINE, 1.0, 0.1, 10, 110, 0};
    for (int64_t t = 1; t <= 10; t++)
        CHECK_NEAR(sl_schedule_at(&s, t), (double) t / 10, 1e-15);
    CHECK_NEAR(sl_schedule_at(&s, 60), 0.55, 1e-12);                            /* half way: the mean */
    CHECK_NEAR(sl_schedule_at(&s, 35), 0.1 + 0.9 * (1 + sqrt(0.5)) / 2, 1e-12); /* a quarter: cos 45 degrees */
    CHECK_NEAR(sl_schedule_at(&s, 110), 0.1, 0);
    CHECK_NEAR(sl_schedule_at(&s, 200), 0.1, 0);
    for (int64_t t = 11; t < 110; t++)
        CHECK(sl_schedule_at(&s, t + 1) < sl_schedule_at(&s, t));
}

TEST(wsd)
{
    sl_schedule s = {SL_SCHEDULE_WSD, 1.0, 0.0, 5, 100, 20};
    CHECK_NEAR(sl_schedule_at(&s, 5), 1, 0);
    CHECK_NEAR(sl_schedule_at(&s, 80), 1, 0);
    CHECK_NEAR(sl_schedule_at(&s, 81), 0.95, 1e-12);
    CHECK_NEAR(sl_schedule_at(&s, 90), 0.5, 1e-12);
    CHECK_NEAR(sl_schedule_at(&s, 100), 0, 0);
}

TEST(one_step)
{
    sl_schedule s = {SL_SCHEDULE_COSINE, 1.0, 0.25, 0, 1, 0};
    CHECK_NEAR(sl_schedule_at(&s, 1), 0.25, 0);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(constant);
    RUN(cosine);
    RUN(wsd);
    RUN(one_step);
    return test_end();
}
