/*
 * AdamW with 8-bit moments against what its codes promise: a stored moment is one of the two levels around the exact value, the mean over
 * many roundings is the exact value (of second moments: except the smallest, which are never rounded to zero), and a parameter moves as
 * in AdamW with the decoded moments. Beside it, a run on a quadratic that AdamW solves.
 */
#include "optim/codes.h"
#include "update_launch.h"

enum { COUNT = 3 * 64 + 17 };

static float scale_of(const void *state, int64_t i)
{
    float scale;
    memcpy(&scale, (const char *) state + i / 64 * 68, 4);
    return scale;
}

static int code_of(const void *state, int64_t i)
{
    return ((const uint8_t *) state)[i / 64 * 68 + 4 + i % 64];
}

static double first_at(const void *state, int64_t i)
{
    const int code = code_of(state, i), level = code & 127;
    return (code & 128 ? -1.0 : 1.0) * level * level * (double) scale_of(state, i);
}

static double second_at(const void *state, int64_t i)
{
    const double root = (double) code_of(state, i) * code_of(state, i) * (double) scale_of(state, i);
    return root * root;
}

static void create(update_launch *u, bool bf16)
{
    update_launch_create(u, SL_OPTIMIZER_ADAMW8BIT, bf16,
                         (sl_update){.weight_decay = 0.1f, .decayed = COUNT / 2, .stream = 5, .stochastic = true},
                         COUNT);
    for (int64_t i = 0; i < COUNT; i++) { /* magnitudes over four decades, as in one block of a real layer */
        u->gradient[i] = (float) (noise_at(1, i) * pow(10, -4 * (double) (i % 7) / 6));
        u->parameter[i] = (float) noise_at(2, i);
    }
}

/* From zero moments, one update: m = (1 - beta1) g, v = (1 - beta2) g^2, and the parameter moves by lr g / (|g| + eps). */
TEST(first_update)
{
    update_launch u;
    create(&u, false);
    float before[COUNT];
    memcpy(before, u.parameter, sizeof before);
    update_launch_run(&u, SL_OPTIMIZER_ADAMW8BIT, 0.01f, 1);
    for (int64_t i = 0; i < COUNT; i++) {
        const double g = (double) u.gradient[i], p = (double) before[i] * (i < COUNT / 2 ? 1 - 0.01 * 0.1 : 1);
        const double m = 0.1 * g, root = sqrt(0.05) * fabs(g);
        const double m_scale = (double) scale_of(u.state[0], i), root_scale = (double) scale_of(u.state[1], i);
        const double m_level = sqrt(fabs(m) / m_scale), root_level = sqrt(root / root_scale);
        CHECK_NEAR((double) u.parameter[i], p - 0.01 * g / (fabs(g) + 1e-8), 1e-6);
        CHECK(fabs((double) (code_of(u.state[0], i) & 127) - m_level) < 1.001 && m_level <= 127.001);
        CHECK(fabs((double) code_of(u.state[1], i) - root_level) < 1.001 && root_level <= 255.001);
        CHECK(code_of(u.state[1], i) > 0);
        CHECK_I64(code_of(u.state[0], i) >> 7,
                  g < 0 && (code_of(u.state[0], i) & 127) == 0 ? code_of(u.state[0], i) >> 7 : g < 0);
    }
    for (int64_t i = COUNT; i < 4 * 64; i++) /* behind the last element */
        CHECK(code_of(u.state[0], i) == 0 && code_of(u.state[1], i) == 0);
    update_launch_destroy(&u);
}

/* A second update starts from the decoded moments. */
TEST(parameters_follow_decoded_moments)
{
    update_launch u;
    create(&u, false);
    update_launch_run(&u, SL_OPTIMIZER_ADAMW8BIT, 0.01f, 1);
    double m[COUNT], v[COUNT], p[COUNT];
    for (int64_t i = 0; i < COUNT; i++) {
        m[i] = first_at(u.state[0], i);
        v[i] = second_at(u.state[1], i);
        p[i] = (double) u.parameter[i];
        u.gradient[i] = (float) noise_at(3, i);
    }
    update_launch_run(&u, SL_OPTIMIZER_ADAMW8BIT, 0.01f, 2);
    for (int64_t i = 0; i < COUNT; i++) {
        const double g = (double) u.gradient[i];
        const double m2 = 0.9 * m[i] + 0.1 * g, v2 = 0.95 * v[i] + 0.05 * g * g;
        const double want =
            p[i] * (i < COUNT / 2 ? 1 - 0.001 : 1) - 0.01 * (m2 / (1 - 0.81)) / (sqrt(v2 / (1 - 0.9025)) + 1e-8);
        CHECK_NEAR((double) u.parameter[i], want, 2e-6);
    }
    update_launch_destroy(&u);
}

/* The mean over steps, whose noise is independent, against the exact value. The steps of a level bound the variance. */
TEST(rounding_is_unbiased)
{
    enum { TRIALS = 4000 };
    double sums[2][COUNT] = {{0}};
    update_launch u;
    create(&u, false);
    for (int64_t t = 1; t <= TRIALS; t++) {
        for (int k = 0; k < 2; k++)
            memset(u.state[k], 0, 4 * 68);
        update_launch_run(&u, SL_OPTIMIZER_ADAMW8BIT, 0, t);
        for (int64_t i = 0; i < COUNT; i++) {
            sums[0][i] += first_at(u.state[0], i) / TRIALS;
            sums[1][i] += second_at(u.state[1], i) / TRIALS;
        }
    }
    for (int64_t i = 0; i < COUNT; i++) {
        const double g = (double) u.gradient[i], m = 0.1 * g, v = 0.05 * g * g;
        const double m_scale = (double) scale_of(u.state[0], i), root_scale = (double) scale_of(u.state[1], i);
        const double low = floor(sqrt(fabs(m) / m_scale)), root_low = floor(sqrt(sqrt(v) / root_scale));
        const double gap = (2 * low + 1) * m_scale;
        const double v_gap = (pow(root_low + 1, 4) - pow(root_low, 4)) * root_scale * root_scale;
        CHECK_NEAR(sums[0][i], m, 5 * 0.5 * gap / sqrt(TRIALS) + gap * 0x1p-15);
        if (root_low >= 1) /* below it, up to the first level */
            CHECK_NEAR(sums[1][i], v, 5 * 0.5 * v_gap / sqrt(TRIALS) + v_gap * 0x1p-15);
    }
    update_launch_destroy(&u);
}

/* A gradient that is not finite, or whose square is not, keeps its block and no other. */
TEST(blocks_that_are_not_finite_stay)
{
    static const float bad[] = {NAN, INFINITY, 1e25f};
    for (int64_t kind = 0; kind < SL_COUNT(bad); kind++) {
        update_launch u;
        create(&u, false);
        update_launch_run(&u, SL_OPTIMIZER_ADAMW8BIT, 0.01f, 1);
        uint8_t states[2][4 * 68];
        float before[COUNT];
        for (int k = 0; k < 2; k++)
            memcpy(states[k], u.state[k], sizeof states[k]);
        memcpy(before, u.parameter, sizeof before);
        u.gradient[70] = bad[kind];
        update_launch_run(&u, SL_OPTIMIZER_ADAMW8BIT, 0.01f, 2);
        for (int k = 0; k < 2; k++)
            for (int block = 0; block < 4; block++)
                CHECK_I64(memcmp((const char *) u.state[k] + block * 68, states[k] + block * 68, 68) == 0, block == 1);
        CHECK(memcmp(u.parameter + 64, before + 64, 64 * sizeof(float)) == 0);
        CHECK(u.parameter[63] != before[63] && u.parameter[128] != before[128]);
        update_launch_destroy(&u);
    }
}

/* A quadratic with curvatures over two decades and noisy gradients: moments that freeze or vanish would not reach the minimum. */
static double solve(sl_optimizer optimizer)
{
    update_launch u;
    double loss = 0;
    update_launch_create(&u, optimizer, false, (sl_update){.stream = 5, .stochastic = true}, COUNT);
    for (int64_t i = 0; i < COUNT; i++)
        u.parameter[i] = (float) noise_at(2, i);
    for (int64_t t = 1; t <= 600; t++) {
        for (int64_t i = 0; i < COUNT; i++)
            u.gradient[i] = (float) (pow(10, -2 * (double) (i % 5) / 4) *
                                     ((double) u.parameter[i] + 0.3 * noise_at((uint64_t) (t + 10), i)));
        update_launch_run(&u, optimizer, 0.01f * (float) (601 - t) / 600, t);
    }
    for (int64_t i = 0; i < COUNT; i++)
        loss += (double) u.parameter[i] * (double) u.parameter[i] / COUNT;
    update_launch_destroy(&u);
    return loss;
}

TEST(solves_what_adamw_solves)
{
    const double wide = solve(SL_OPTIMIZER_ADAMW), codes = solve(SL_OPTIMIZER_ADAMW8BIT);
    printf("mean square from the minimum: AdamW %.3g, 8 bits %.3g\n", wide, codes);
    CHECK(wide < 1e-2 && codes < 1.5 * wide);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(first_update);
    RUN(parameters_follow_decoded_moments);
    RUN(rounding_is_unbiased);
    RUN(blocks_that_are_not_finite_stay);
    RUN(solves_what_adamw_solves);
    return test_end();
}
