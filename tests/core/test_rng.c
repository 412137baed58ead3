/* Philox against the published known answers, and bf16 rounding against arithmetic. */
#include "core/rng.h"

#include "core/bf16.h"
#include "test.h"

/* Random123's kat_vectors, philox4x32 with 10 and 7 rounds: counter words 0..3, key words 0..1. */
TEST(philox_known_answers)
{
    static const struct {
        uint64_t key, low, high;
        uint32_t want[4], want_7[4];
    } cases[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}, {0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}},
        {UINT64_MAX,
         UINT64_MAX,
         UINT64_MAX,
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
         {0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}},
        {0x299f31d0a4093822,
         0x85a308d3243f6a88,
         0x0370734413198a2e,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
         {0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}},
    };
    for (int64_t i = 0; i < SL_COUNT(cases); i++) {
        sl_rng4 got = sl_philox(cases[i].key, cases[i].low, cases[i].high);
        sl_rng4 got_7 = sl_philox_rounds(cases[i].key, cases[i].low, cases[i].high, 7);
        for (int k = 0; k < 4; k++) {
            CHECK_U64(got.v[k], cases[i].want[k]);
            CHECK_U64(got_7.v[k], cases[i].want_7[k]);
        }
    }
}

TEST(uniform_covers_its_range)
{
    CHECK(sl_rng_uniform(0) == 0.0f);
    CHECK(sl_rng_uniform(UINT32_MAX) < 1.0f);
    double sum = 0, squares = 0;
    enum { N = 100000 };
    for (uint64_t i = 0; i < N; i++) {
        double u = sl_rng_uniform(sl_philox(3, i, 0).v[1]);
        sum += u, squares += u * u;
    }
    CHECK_NEAR(sum / N, 0.5, 0.005);
    CHECK_NEAR(squares / N, 1.0 / 3, 0.005);
}

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

/* All 65,536 values survive the way to f32 and back, NaNs as NaNs. */
TEST(bf16_round_trip)
{
    for (uint32_t i = 0; i < 65536; i++) {
        float x = sl_bf16_to_f32((sl_bf16) i);
        sl_bf16 back = sl_f32_to_bf16(x);
        if (isnan(x) ? !isnan(sl_bf16_to_f32(back)) : back != i)
            CHECK_MSG(false, "0x%04x comes back as 0x%04x", i, back);
        if (isfinite(x) && sl_f32_to_bf16_stochastic(x, 0xffff) != i)
            CHECK_MSG(false, "0x%04x is not left alone by stochastic rounding", i);
    }
}

/* Between every two neighbours: below the middle goes down, above it up, the middle itself to the even one. */
TEST(bf16_rounds_to_nearest_even)
{
    for (uint32_t i = 0; i < 0x7f80; i++) {
        static const uint32_t parts[] = {1, 0x7fff, 0x8000, 0x8001, 0xffff};
        for (int64_t k = 0; k < SL_COUNT(parts); k++)
            for (uint32_t sign = 0; sign < 2; sign++) {
                uint32_t low = i | sign << 15;
                uint32_t want = parts[k] > 0x8000 || (parts[k] == 0x8000 && (i & 1)) ? low + 1 : low;
                sl_bf16 got = sl_f32_to_bf16(from_bits(low << 16 | parts[k]));
                if (got != want)
                    CHECK_MSG(false, "0x%04x%04x becomes 0x%04x, not 0x%04x", low, parts[k], got, want);
            }
    }
    CHECK_U64(sl_f32_to_bf16(from_bits(0x7f7fffff)), 0x7f80); /* the largest float overflows to infinity */
    CHECK(isnan(sl_bf16_to_f32(sl_f32_to_bf16(from_bits(0x7f800001)))));
    CHECK(isnan(sl_bf16_to_f32(sl_f32_to_bf16(from_bits(0xffffffff)))));
}

/* Over all 65,536 noises a value goes up exactly as often as the part cut off says: no bias at all. */
TEST(bf16_stochastic_is_unbiased)
{
    static const uint32_t values[] = {0x3f800001, 0x3f804000, 0x3f80c123, 0x3f80ffff,
                                      0xbf801234, 0x00012345, 0x42f6e979};
    for (int64_t i = 0; i < SL_COUNT(values); i++) {
        int64_t ups = 0;
        for (uint32_t noise = 0; noise < 65536; noise++) {
            sl_bf16 got = sl_f32_to_bf16_stochastic(from_bits(values[i]), noise | 0xabcd0000u);
            ups += got == (values[i] >> 16) + 1;
            if (got != values[i] >> 16 && got != (values[i] >> 16) + 1)
                CHECK_MSG(false, "0x%08x leaves its neighbours: 0x%04x", values[i], got);
        }
        CHECK_I64(ups, values[i] & 0xffff);
    }
    CHECK_U64(sl_f32_to_bf16_stochastic(INFINITY, 0xffff), 0x7f80);
    CHECK_U64(sl_f32_to_bf16_stochastic(-INFINITY, 0xffff), 0xff80);
    CHECK(isnan(sl_bf16_to_f32(sl_f32_to_bf16_stochastic(NAN, 0xffff))));
    static const uint32_t nans[] = {0x7f800001, 0x7fffffff, 0xff800001, 0xffffffff}; /* an addition would carry out */
    for (int64_t i = 0; i < SL_COUNT(nans); i++)
        for (uint32_t noise = 0; noise < 65536; noise += 0x5555)
            CHECK(isnan(sl_bf16_to_f32(sl_f32_to_bf16_stochastic(from_bits(nans[i]), noise))));
    CHECK_U64(sl_f32_to_bf16_stochastic(from_bits(0x7f7fffff), 0), 0x7f7f);
    CHECK_U64(sl_f32_to_bf16_stochastic(from_bits(0x7f7fffff), 1), 0x7f80); /* beyond the largest lies infinity */
    CHECK_U64(sl_f32_to_bf16_stochastic(from_bits(0xff7f8000), 0x8000), 0xff80);
    double sum = 0;
    enum { N = 200000 };
    for (uint64_t n = 0; n < N; n++)
        sum += sl_bf16_to_f32(sl_f32_to_bf16_stochastic(1.001f, sl_philox(1, n, 0).v[0]));
    CHECK_NEAR(sum / N, 1.001, 3e-5); /* with Philox's bits, five standard errors */
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(philox_known_answers);
    RUN(uniform_covers_its_range);
    RUN(bf16_round_trip);
    RUN(bf16_rounds_to_nearest_even);
    RUN(bf16_stochastic_is_unbiased);
    return test_end();
}
