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

/* The step on either side of every place where the form changes. */
TEST(boundaries)
{
    sl_schedule cosine = {SL_SCHEDULE_COSINE, 1.0, 0.2, 10, 30, 0}, wsd = {SL_SCHEDULE_WSD, 1.0, 0.2, 10, 30, 5};
    CHECK_NEAR(sl_schedule_at(&cosine, 9), 0.9, 1e-15);
    CHECK_NEAR(sl_schedule_at(&cosine, 10), 1, 0);
    CHECK_NEAR(sl_schedule_at(&cosine, 11), 0.2 + 0.4 * (1 + cos(acos(-1.0) / 20)), 1e-12);
    CHECK_NEAR(sl_schedule_at(&cosine, 29), 0.2 + 0.4 * (1 + cos(acos(-1.0) * 19 / 20)), 1e-12);
    CHECK_NEAR(sl_schedule_at(&cosine, 30), 0.2, 0);
    CHECK_NEAR(sl_schedule_at(&cosine, 31), 0.2, 0);
    CHECK_NEAR(sl_schedule_at(&wsd, 11), 1, 0);
    CHECK_NEAR(sl_schedule_at(&wsd, 25), 1, 0);
    CHECK_NEAR(sl_schedule_at(&wsd, 26), 0.84, 1e-12);
    CHECK_NEAR(sl_schedule_at(&wsd, 29), 0.36, 1e-12);
    CHECK_NEAR(sl_schedule_at(&wsd, 30), 0.2, 0);
    cosine.warmup = 30; /* nothing else */
    CHECK_NEAR(sl_schedule_at(&cosine, 29), 29.0 / 30, 1e-15);
    CHECK_NEAR(sl_schedule_at(&cosine, 30), 1, 0);
    wsd.decay = 30, wsd.warmup = 0; /* down all the way */
    CHECK_NEAR(sl_schedule_at(&wsd, 1), 1 - 0.8 / 30, 1e-12);
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
    RUN(boundaries);
    RUN(one_step);
    return test_end();
}
