/*
 * LAMB against its formula in f64, written from Apex's FusedLAMB (the update of one step from the same f32 state):
 *     g = g / max(1, |all g| / clip)     m = b1 m + (1-b1) g     v = b2 v + (1-b2) g^2
 *     u = (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps) + wd p     p = p - lr |p|/|u| u
 * and p - lr u for tensors without weight decay, or where a norm is zero. A sum may cancel, so the error of a result is relative to the
 * magnitudes of what was added.
 */
#include "update_launch.h"

enum { MOST_TENSORS = SL_MAX_UPDATE_TENSORS };
static const double allowed = 1e-6;

typedef struct tensor {
    int64_t count;
    bool decayed;
    double p, g; /* magnitudes */
} tensor;

typedef struct trial {
    const char *name;
    tensor tensors[MOST_TENSORS];
    double weight_decay, learning_rate, clip;
    bool with_state; /* moments that are not those of a first step */
} trial;

/* New values, and the magnitudes that their errors are relative to. */
typedef struct expected {
    double p, m, v, p_size, m_size;
} expected;

static int64_t first_of(const trial *c, int k)
{
    return k == 0 ? 0 : (first_of(c, k - 1) + c->tensors[k - 1].count + 63) / 64 * 64; /* 256 bytes of f32 */
}

static int tensors_of(const trial *c)
{
    int n = 0;
    while (n < MOST_TENSORS && c->tensors[n].count)
        n++;
    return n;
}

static double norm_of(const double *x, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

static void formula(const update_launch *now, const trial *c, int k, double scale, int64_t t, expected *want)
{
    const double b1 = (double) now->options[0], b2 = (double) now->options[1], eps = (double) now->options[2];
    const double decay = c->tensors[k].decayed ? (double) (float) c->weight_decay : 0;
    const double lr = (double) (float) c->learning_rate;
    const int64_t first = first_of(c, k), count = c->tensors[k].count;
    double *u = malloc((size_t) count * sizeof *u), *p = malloc((size_t) count * sizeof *p);
    REQUIRE(u && p);
    for (int64_t i = 0; i < count; i++) {
        const double g = (double) now->gradient[first + i] * scale, m = (double) now->state[0][first + i];
        expected *to = &want[first + i];
        p[i] = (double) now->parameter[first + i];
        to->m = b1 * m + (1 - b1) * g;
        to->m_size = b1 * fabs(m) + (1 - b1) * fabs(g);
        to->v = b2 * (double) now->state[1][first + i] + (1 - b2) * g * g;
        const double root = sqrt(to->v / (1 - pow(b2, (double) t))) + eps, bias = 1 - pow(b1, (double) t);
        u[i] = to->m / bias / root + decay * p[i];
        to->p_size = to->m_size / bias / root + decay * fabs(p[i]);
    }
    const double p_norm = norm_of(p, count), u_norm = norm_of(u, count);
    const double rate = decay != 0 && p_norm > 0 && u_norm > 0 ? lr * p_norm / u_norm : lr;
    for (int64_t i = 0; i < count; i++) {
        want[first + i].p = p[i] - rate * u[i];
        want[first + i].p_size *= rate;
    }
    free(u);
    free(p);
}

static void fill(update_launch *u, const trial *c)
{
    for (int k = 0; k < tensors_of(c); k++)
        for (int64_t i = first_of(c, k); i < first_of(c, k) + c->tensors[k].count; i++) {
            u->parameter[i] = (float) (c->tensors[k].p * noise_at(1, i));
            if (!c->with_state)
                continue;
            u->state[0][i] = (float) (c->tensors[k].g * noise_at(2, i));
            u->state[1][i] = (float) pow(c->tensors[k].g * noise_at(3, i), 2);
        }
}

/* A gradient for step t; the factor of clipping as sum_squares and grad_gate compute it goes to the launch, the formula's is returned. */
static double next_gradient(update_launch *u, const trial *c, int64_t t)
{
    double squares = 0;
    float sum = 0;
    for (int k = 0; k < tensors_of(c); k++)
        for (int64_t i = first_of(c, k); i < first_of(c, k) + c->tensors[k].count; i++) {
            u->gradient[i] = (float) (c->tensors[k].g * noise_at((uint64_t) (10 + t), i));
            squares += (double) u->gradient[i] * (double) u->gradient[i];
        }
    if (c->clip == 0)
        return 1;
    u->step.clip = (float) c->clip;
    u->launch.in[2] = (sl_operand){u->gate, sl_type_1d(SL_F32, 4)};
    sl_launch norm = {.op = SL_OP_SUM_SQUARES, .in = {u->launch.in[0]}, .out = {{&sum, sl_type_1d(SL_F32, 1)}}};
    sl_launch gate = {
        .op = SL_OP_GRAD_GATE, .in = {{&sum, sl_type_1d(SL_F32, 1)}, u->launch.in[1]}, .out = {u->launch.in[2]}};
    sl_op(SL_OP_SUM_SQUARES)->reference(&norm);
    sl_op(SL_OP_GRAD_GATE)->reference(&gate);
    return 1 / fmax(1, sqrt(squares) / c->clip);
}

static void compare(const update_launch *u, const expected *all, const trial *c, int64_t t)
{
    for (int k = 0; k < tensors_of(c); k++)
        for (int64_t i = first_of(c, k); i < first_of(c, k) + c->tensors[k].count; i++) {
            const expected *want = &all[i];
            const double error = fabs((double) u->parameter[i] - want->p), half_ulp = ldexp(fabs(want->p), -24);
            CHECK_MSG(error <= allowed * want->p_size + half_ulp,
                      "%s, step %lld, tensor %d, element %lld: %.9g, not %.9g", c->name, (long long) t, k,
                      (long long) i, (double) u->parameter[i], want->p);
            CHECK_NEAR(u->state[0][i], want->m, allowed * want->m_size);
            CHECK_NEAR(u->state[1][i], want->v, allowed * want->v + 1e-44); /* a subnormal's unit */
        }
}

static void check(const trial *c, int64_t first_step, int64_t steps)
{
    const int n = tensors_of(c);
    const int64_t count = first_of(c, n - 1) + c->tensors[n - 1].count;
    sl_update_tensor tensors[MOST_TENSORS];
    update_launch u;
    expected *want = calloc((size_t) count, sizeof *want);
    REQUIRE(want);
    for (int k = 0; k < n; k++)
        tensors[k] = (sl_update_tensor){c->tensors[k].count, 1, c->tensors[k].decayed};
    update_launch_create(&u, SL_OPTIMIZER_LAMB, false,
                         (sl_update){.weight_decay = (float) c->weight_decay, .n_tensors = n, .tensors = tensors},
                         count);
    fill(&u, c);
    for (int64_t t = first_step; t < first_step + steps; t++) {
        const double scale = next_gradient(&u, c, t);
        for (int k = 0; k < n; k++)
            formula(&u, c, k, scale, t, want);
        update_launch_run(&u, SL_OPTIMIZER_LAMB, (float) c->learning_rate, t);
        compare(&u, want, c, t);
    }
    for (int k = 0; k + 1 < n; k++) /* padding */
        for (int64_t i = first_of(c, k) + c->tensors[k].count; i < first_of(c, k + 1); i++)
            CHECK(u.parameter[i] == 0 && u.state[0][i] == 0 && u.state[1][i] == 0);
    update_launch_destroy(&u);
    free(want);
}

#define USUAL .weight_decay = 0.05, .learning_rate = 4e-3
static const trial trials[] = {
    {"one tensor", {{5000, true, 0.1, 0.01}}, USUAL},
    {"several tensors", {{100, true, 1, 1}, {63, false, 1, 1e-3}, {8192, true, 0.02, 1e-5}, {1, true, 3, 2}}, USUAL},
    {"eight tensors",
     {{64, 1, 1, 1},
      {65, 0, 1, 1},
      {1, 1, 1, 1},
      {7, 1, 9, 1},
      {128, 0, 1, 9},
      {5, 1, 1, 0.1},
      {3, 1, 1, 1},
      {4, 0, 1, 1}},
     USUAL},
    {"many blocks", {{300007, true, 0.02, 1e-4}}, USUAL},
    {"no weight decay", {{1000, true, 0.1, 0.01}, {500, false, 0.1, 0.01}}, .learning_rate = 4e-3},
    {"large weight decay and rate", {{1000, true, 0.1, 0.01}}, .weight_decay = 0.9, .learning_rate = 0.5},
    {"zero parameters", {{1000, true, 0, 0.01}, {10, false, 0, 0.01}}, USUAL},
    {"zero gradients", {{1000, true, 0.1, 0}, {10, false, 0.1, 0}}, USUAL},
    {"zero everywhere", {{100, true, 0, 0}}, USUAL},
    {"gradients far below epsilon", {{1000, true, 0.1, 1e-12}}, USUAL},
    {"large numbers", {{1000, true, 1e5, 1e6}}, USUAL},
    {"clipped", {{1000, true, 0.1, 1}, {500, false, 0.1, 3}}, USUAL, .clip = 1},
    {"clipped hard", {{1000, true, 0.1, 1e4}}, USUAL, .clip = 0.01},
    {"below the clip", {{1000, true, 0.1, 1e-3}}, USUAL, .clip = 1},
    {"moments of earlier steps", {{1000, true, 0.1, 0.01}, {77, false, 0.1, 1}}, USUAL, .with_state = true},
};

TEST(first_steps)
{
    for (int64_t i = 0; i < SL_COUNT(trials); i++) {
        check(&trials[i], 1, 1);
        check(&trials[i], 1, 10);
    }
}

/* Bias corrections over a thousand steps, each compared from the state that f32 has reached. */
TEST(a_thousand_steps)
{
    for (int64_t i = 0; i < SL_COUNT(trials); i++)
        if (trials[i].tensors[0].count <= 5000)
            check(&trials[i], 1, 1000);
}

TEST(later_steps)
{
    for (int64_t i = 0; i < SL_COUNT(trials); i++) {
        check(&trials[i], 10, 1);
        check(&trials[i], 1000, 3);
        check(&trials[i], 1000000, 1);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(first_steps);
    RUN(a_thousand_steps);
    RUN(later_steps);
    return test_end();
}
