/* Sampling: what each option leaves to choose from, that draws have the right shares, and that they depend on seed and number alone. */
#include "test.h"
#include "text/sampler.h"

enum { WORDS = 6, DRAWS = 20000 };
static const float logits[WORDS] = {0.0f, 2.0f, 1.0f, -1.0f, 2.0f, -3.0f};

static void count(const sl_sampling *sampling, double share[WORDS])
{
    sl_sampler *sampler;
    int32_t token;
    memset(share, 0, WORDS * sizeof *share);
    CHECK_OK(sl_sampler_create(sampling, WORDS, &sampler));
    for (int64_t i = 0; i < DRAWS; i++) {
        CHECK_OK(sl_sampler_next(sampler, logits, i, &token));
        REQUIRE(token >= 0 && token < WORDS);
        share[token] += 1.0 / DRAWS;
    }
    sl_sampler_destroy(sampler);
}

static void check_shares(const sl_sampling *sampling, const double *weight)
{
    double share[WORDS], sum = 0;
    count(sampling, share);
    for (int i = 0; i < WORDS; i++)
        sum += weight[i];
    for (int i = 0; i < WORDS; i++) {
        CHECK_NEAR(share[i], weight[i] / sum, 0.015);
        CHECK(weight[i] > 0 || share[i] == 0);
    }
}

/* Four equally likely draws of the largest: the lowest id wins. */
TEST(greedy)
{
    double share[WORDS];
    count(&(const sl_sampling){.temperature = 0, .top_p = 1, .seed = 1}, share);
    CHECK_NEAR(share[1], 1, 1e-9);
    count(&(const sl_sampling){.temperature = 1, .top_k = 1, .top_p = 1, .seed = 1}, share);
    CHECK_NEAR(share[1], 1, 1e-9);
}

TEST(temperature)
{
    static const double temperatures[] = {0.5, 1, 3};
    for (int t = 0; t < 3; t++) {
        double weight[WORDS];
        for (int i = 0; i < WORDS; i++)
            weight[i] = exp((double) logits[i] / temperatures[t]);
        check_shares(&(const sl_sampling){.temperature = temperatures[t], .top_p = 1, .seed = 7}, weight);
    }
}

TEST(top_k)
{
    const double e = exp(1), two[WORDS] = {0, 1, 0, 0, 1, 0}, three[WORDS] = {0, e, 1, 0, e, 0};
    check_shares(&(const sl_sampling){.temperature = 1, .top_k = 2, .top_p = 1, .seed = 2}, two);
    check_shares(&(const sl_sampling){.temperature = 1, .top_k = 3, .top_p = 1, .seed = 3}, three);
    double all[WORDS];
    for (int i = 0; i < WORDS; i++)
        all[i] = exp((double) logits[i]);
    check_shares(&(const sl_sampling){.temperature = 1, .top_k = 100, .top_p = 1, .seed = 4}, all);
}

/* Shares of .396, .396, .146, .054, .02, .003 in order. */
TEST(top_p)
{
    const double e = exp(1), one[WORDS] = {0, 1, 0, 0, 0, 0}, two[WORDS] = {0, 1, 0, 0, 1, 0},
                 three[WORDS] = {0, e, 1, 0, e, 0};
    check_shares(&(const sl_sampling){.temperature = 1, .top_p = 0.01, .seed = 5}, one);
    check_shares(&(const sl_sampling){.temperature = 1, .top_p = 0.7, .seed = 5}, two);
    check_shares(&(const sl_sampling){.temperature = 1, .top_p = 0.9, .seed = 6}, three);
    /* of the two that top_k leaves */
    check_shares(&(const sl_sampling){.temperature = 1, .top_k = 2, .top_p = 0.6, .seed = 6}, two);
}

/* A large vocabulary: the candidates are found without sorting all of it. */
TEST(many_words)
{
    enum { MANY = 5000 };
    static float many[MANY];
    sl_sampler *sampler;
    int32_t token;
    for (int i = 0; i < MANY; i++)
        many[i] = (float) ((i * 7919) % MANY) * -0.002f;
    for (int64_t k = 1; k < 60; k += 7) {
        CHECK_OK(sl_sampler_create(&(const sl_sampling){.temperature = 1, .top_k = k, .top_p = 1, .seed = 9}, MANY,
                                   &sampler));
        for (int64_t i = 0; i < 300; i++) {
            CHECK_OK(sl_sampler_next(sampler, many, i, &token));
            CHECK((token * 7919) % MANY < k);
        }
        sl_sampler_destroy(sampler);
    }
}

TEST(draws_depend_on_seed_and_number)
{
    sl_sampler *a, *b;
    int32_t first, second;
    int differ = 0;
    CHECK_OK(sl_sampler_create(&(const sl_sampling){.temperature = 1, .top_p = 1, .seed = 11}, WORDS, &a));
    CHECK_OK(sl_sampler_create(&(const sl_sampling){.temperature = 1, .top_p = 1, .seed = 12}, WORDS, &b));
    for (int64_t i = 0; i < 50; i++) {
        CHECK_OK(sl_sampler_next(a, logits, 49 - i, &first));
        CHECK_OK(sl_sampler_next(a, logits, 49 - i, &second));
        CHECK_I64(first, second);
        CHECK_OK(sl_sampler_next(b, logits, 49 - i, &second));
        differ += first != second;
    }
    CHECK(differ > 10);
    sl_sampler_destroy(a);
    sl_sampler_destroy(b);
}

TEST(refusals)
{
    const float broken[3] = {1, NAN, 0}, infinite[3] = {1, INFINITY, 0};
    sl_sampler *s;
    int32_t token;
    CHECK_FAILS(sl_sampler_create(&(const sl_sampling){.temperature = -1, .top_p = 1}, 3, &s), SL_E_USAGE);
    CHECK_FAILS(sl_sampler_create(&(const sl_sampling){.temperature = NAN, .top_p = 1}, 3, &s), SL_E_USAGE);
    CHECK_FAILS(sl_sampler_create(&(const sl_sampling){.top_p = 0}, 3, &s), SL_E_USAGE);
    CHECK_FAILS(sl_sampler_create(&(const sl_sampling){.top_p = 1.5}, 3, &s), SL_E_USAGE);
    CHECK_FAILS(sl_sampler_create(&(const sl_sampling){.top_p = 1, .top_k = -1}, 3, &s), SL_E_USAGE);
    CHECK_OK(sl_sampler_create(&(const sl_sampling){.temperature = 1, .top_p = 1}, 3, &s));
    CHECK_FAILS(sl_sampler_next(s, broken, 0, &token), SL_E_NOT_FINITE);
    CHECK_FAILS(sl_sampler_next(s, infinite, 0, &token), SL_E_NOT_FINITE);
    sl_sampler_destroy(s);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(greedy);
    RUN(temperature);
    RUN(top_k);
    RUN(top_p);
    RUN(many_words);
    RUN(draws_depend_on_seed_and_number);
    RUN(refusals);
    return test_end();
}
