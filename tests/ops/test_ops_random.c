/* Random numbers in ops: dropout by place, and the noise of stochastic rounding. */
#include "core/bf16.h"
#include "ops/dropout.h"
#include "ops/noise.h"
#include "ops/operands.h"

/* Dropout belongs to an element's place: two chunks draw what the whole draws; about p of all fall. */
TEST(dropout_places)
{
    enum { ROWS = 40, COLUMNS = 50 };
    static float x[ROWS * COLUMNS], whole[ROWS * COLUMNS], parts[ROWS * COLUMNS];
    sl_step_params step = {.step = 5, .seed_lo = 1, .seed_hi = 2};
    int64_t dropped = 0;
    for (int64_t i = 0; i < SL_COUNT(x); i++)
        x[i] = 1;
    sl_launch launch = {
        .op = SL_OP_DROPOUT, .in = {f32(x, ROWS, COLUMNS), step_operand(&step)}, .out = {f32(whole, ROWS, COLUMNS)}};
    sl_dropout_set(&launch.attrs)->probability = 0.25f;
    sl_dropout_set(&launch.attrs)->stream = 3;
    run(&launch);
    launch.in[0] = f32(x, 13, COLUMNS);
    launch.out[0] = f32(parts, 13, COLUMNS);
    run(&launch);
    sl_dropout_set(&launch.attrs)->first_row = 13;
    launch.in[0] = f32(x, ROWS - 13, COLUMNS);
    launch.out[0] = f32(parts + 13 * COLUMNS, ROWS - 13, COLUMNS);
    run(&launch);
    CHECK(memcmp(whole, parts, sizeof whole) == 0);
    for (int64_t i = 0; i < SL_COUNT(x); i++) {
        dropped += whole[i] == 0;
        CHECK(whole[i] == 0 || whole[i] == 1 / 0.75f);
    }
    CHECK_NEAR((double) dropped / SL_COUNT(x), 0.25, 0.04);
}

/* Stochastic rounding is right on average: a second moment that rounding to nearest would freeze moves as it should. */
TEST(stochastic_rounding)
{
    enum { COUNT = 4096 };
    static sl_bf16 g[COUNT], p[COUNT], m[COUNT], v[COUNT];
    sl_step_params step = {.learning_rate = 0, .corrections = {{1, 1}}, .step = 1, .seed_lo = 9};
    sl_type type = sl_type_1d(SL_BF16, COUNT);
    sl_launch launch = {
        .op = SL_OP_ADAMW, .in = {{g, type}, step_operand(&step)}, .out = {{p, type}, {m, type}, {v, type}}};
    sl_adamw_set(&launch.attrs)->beta1 = 0.9f;
    sl_adamw_set(&launch.attrs)->beta2 = 0.999f;
    sl_adamw_set(&launch.attrs)->eps = 1e-8f;
    for (int stochastic = 0; stochastic <= 1; stochastic++) {
        double mean = 0;
        sl_adamw_set(&launch.attrs)->stochastic = stochastic;
        for (int64_t i = 0; i < COUNT; i++)
            g[i] = sl_f32_to_bf16(0), v[i] = sl_f32_to_bf16(1), p[i] = m[i] = 0;
        run(&launch);
        for (int64_t i = 0; i < COUNT; i++)
            mean += (double) sl_bf16_to_f32(v[i]) / COUNT;
        CHECK_NEAR(mean, stochastic ? 0.999 : 1, stochastic ? 2e-4 : 0);
    }
}

/* The deal of the noise, as noise.h says: which of Philox's words 0..3 (bits 0..3) are summed for each tensor's four. */
static const uint8_t noise_sums[SL_NOISE_TENSORS][4] = {{1, 2, 4, 8}, {9, 6, 7, 11}, {13, 14, 5, 10}};

TEST(noise_deal)
{
    sl_step_params step = {.step = 7, .seed_lo = 3, .seed_hi = 4};
    uint64_t key = (uint64_t) 4 << 32 | 3, high = (uint64_t) 5 << 32 | 7;
    for (int which = 0; which < SL_NOISE_TENSORS; which++)
        for (int64_t element = 0; element < 3 * SL_NOISE_BLOCK; element++) {
            int64_t block = element / 128, k = element % 128 / 16, lane = element % 16;
            sl_rng4 words = sl_philox_rounds(key, (uint64_t) (block * 16 + lane), high, 7);
            uint32_t word = 0;
            for (int w = 0; w < 4; w++)
                word ^= noise_sums[which][k % 4] >> w & 1 ? words.v[w] : 0;
            CHECK_U64(sl_rounding_noise(&step, 5, which, element), k < 4 ? word & 0xffff : word >> 16);
        }
}

/* Whether sums of Philox's words are linearly independent: no choice of them adds up to nothing. */
static bool independent(const uint8_t *sums, int count)
{
    for (int chosen = 1; chosen < 1 << count; chosen++) {
        int sum = 0;
        for (int i = 0; i < count; i++)
            sum ^= chosen >> i & 1 ? sums[i] : 0;
        if (!sum)
            return false;
    }
    return true;
}

/* A tensor's noises are independent, an element's three are, and any two are. */
TEST(noise_independence)
{
    for (int which = 0; which < SL_NOISE_TENSORS; which++)
        CHECK(independent(noise_sums[which], 4));
    for (int w = 0; w < 4; w++)
        CHECK(independent((const uint8_t[]){noise_sums[0][w], noise_sums[1][w], noise_sums[2][w]}, 3));
    for (int i = 0; i < 4 * SL_NOISE_TENSORS; i++)
        for (int j = 0; j < i; j++)
            CHECK(independent((const uint8_t[]){noise_sums[i / 4][i % 4], noise_sums[j / 4][j % 4]}, 2));
}

/* And so they are when drawn. Noises are compared at places `apart` of two tensors: n products of two uniform numbers of mean 0
 * and variance 1/12 have a mean of 0 and a deviation of 1/12/sqrt(n); their own means and variances likewise. */
TEST(noise_statistics)
{
    enum { COUNT = 1 << 16 };
    sl_step_params step = {.step = 3, .seed_lo = 11};
    static float noise[SL_NOISE_TENSORS + 1][COUNT]; /* the last: the parameter's of the next step */
    for (int which = 0; which <= SL_NOISE_TENSORS; which++) {
        step.step = which < SL_NOISE_TENSORS ? 3 : 4;
        for (int64_t i = 0; i < COUNT; i++)
            noise[which][i] = ((float) sl_rounding_noise(&step, 8, which % SL_NOISE_TENSORS, i) + 0.5f) / 65536 - 0.5f;
    }
    static const int64_t aparts[] = {0, 1, 15, 16, 32, 48, 64, 80, 96, 112, 128};
    const double deviation = 1 / 12.0 / sqrt(COUNT);
    for (int s = 0; s <= SL_NOISE_TENSORS; s++)
        for (int t = 0; t <= s; t++)
            for (int64_t a = 0; a < SL_COUNT(aparts); a++) {
                double sum = 0, product = 0;
                for (int64_t i = 0; i < COUNT; i++) {
                    sum += (double) noise[s][i];
                    product += (double) noise[s][i] * (double) noise[t][(i + aparts[a]) % COUNT];
                }
                CHECK_NEAR(sum / COUNT, 0, 4.5 * sqrt(12) * deviation);
                CHECK_NEAR(product / COUNT, s == t && !aparts[a] ? 1 / 12.0 : 0, 4.5 * deviation);
            }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(dropout_places);
    RUN(stochastic_rounding);
    RUN(noise_deal);
    RUN(noise_independence);
    RUN(noise_statistics);
    return test_end();
}
