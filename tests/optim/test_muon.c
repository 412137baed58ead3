/*
 * Muon's reference in f64, in two ways that share nothing with it. A matrix U S V^T with known singular values S becomes U f(S) V^T, where
 * f applies phi(s) = a s + b s^3 + c s^5 five times to s / |S|: no matrix is iterated. For any other matrix the iteration itself in
 * f64, as X (a I + b X^T X + c (X^T X)^2) for every shape.
 *
 * phi's slope is at most a = 3.4445 at zero, so an error of a small singular value grows 485-fold at most; between .68 and 1.14 it is
 * between -1.2 and 1.8. Rounding in f32 begins at 6e-8 of a norm of 1, that in bf16 at 2e-3.
 */
#include "update_launch.h"

static const double a = 3.4445, b = -4.7750, c = 2.0315;

static double phi(double s)
{
    return s * (a + s * s * (b + s * s * c));
}

static double five_times(double s)
{
    for (int i = 0; i < 5; i++)
        s = phi(s);
    return s;
}

/* What phi maps [interval[0], interval[1]] to: the ends and the extrema between them, where phi' is zero. */
static void map_interval(double interval[2])
{
    double low = fmin(phi(interval[0]), phi(interval[1])), high = fmax(phi(interval[0]), phi(interval[1]));
    for (int sign = -1; sign <= 1; sign += 2) {
        const double s = sqrt((-3 * b + sign * sqrt(9 * b * b - 20 * a * c)) / (10 * c));
        if (s <= interval[0] || s >= interval[1])
            continue;
        low = fmin(low, phi(s));
        high = fmax(high, phi(s));
    }
    interval[0] = low;
    interval[1] = high;
}

typedef struct shape {
    int64_t rows, columns, matrices;
} shape;
static const shape shapes[] = {{24, 24, 1}, {16, 40, 1}, {40, 16, 1}, {12, 33, 3}, {33, 12, 2}, {1, 50, 1}, {50, 1, 2}};

static int64_t shorter(shape s)
{
    return SL_MIN(s.rows, s.columns);
}

/* n orthonormal vectors of `length`, one after the other: Gram-Schmidt, twice. */
static void orthonormal(uint64_t seed, int64_t n, int64_t length, double *out)
{
    for (int64_t i = 0; i < n; i++) {
        double *x = out + i * length, squares = 0;
        for (int64_t k = 0; k < length; k++)
            x[k] = noise_at(seed, i * length + k);
        for (int64_t j = 0; j < 2 * i; j++) {
            const double *y = out + j % i * length;
            double dot = 0;
            for (int64_t k = 0; k < length; k++)
                dot += x[k] * y[k];
            for (int64_t k = 0; k < length; k++)
                x[k] -= dot * y[k];
        }
        for (int64_t k = 0; k < length; k++)
            squares += x[k] * x[k];
        for (int64_t k = 0; k < length; k++)
            x[k] /= sqrt(squares);
    }
}

/* U diag(s) V^T */
static void compose(shape at, const double *u, const double *s, const double *v, double *out)
{
    memset(out, 0, (size_t) (at.rows * at.columns) * sizeof *out);
    for (int64_t k = 0; k < shorter(at); k++)
        for (int64_t i = 0; i < at.rows; i++)
            for (int64_t j = 0; j < at.columns; j++)
                out[i * at.columns + j] += s[k] * u[k * at.rows + i] * v[k * at.columns + j];
}

static double frobenius(const double *x, int64_t count)
{
    double squares = 0;
    for (int64_t i = 0; i < count; i++)
        squares += x[i] * x[i];
    return sqrt(squares);
}

static double *zeros(int64_t count)
{
    double *x = calloc((size_t) count, sizeof *x);
    REQUIRE(x);
    return x;
}

/* out[m, n] += x[m, k] y[k, n] */
static void multiply(int64_t m, int64_t n, int64_t k, const double *x, const double *y, double *out)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t l = 0; l < k; l++)
            for (int64_t j = 0; j < n; j++)
                out[i * n + j] += x[i * k + l] * y[l * n + j];
}

/* x[rows, columns], by X (a I + b G + c G^2) with G = X^T X, whatever the shape. */
static void iterate(shape at, double *x)
{
    const int64_t r = at.rows, n = at.columns;
    const double norm = frobenius(x, r * n);
    double *turned = zeros(n * r), *gram = zeros(n * n), *poly = zeros(n * n), *next = zeros(r * n);
    for (int64_t i = 0; i < r * n; i++)
        x[i] /= fmax(norm, 1e-7);
    for (int step = 0; step < 5; step++) {
        for (int64_t i = 0; i < r; i++)
            for (int64_t j = 0; j < n; j++)
                turned[j * r + i] = x[i * n + j];
        memset(gram, 0, (size_t) (n * n) * sizeof *gram);
        memset(poly, 0, (size_t) (n * n) * sizeof *poly);
        memset(next, 0, (size_t) (r * n) * sizeof *next);
        multiply(n, n, r, turned, x, gram);
        multiply(n, n, n, gram, gram, poly);
        for (int64_t i = 0; i < n * n; i++)
            poly[i] = c * poly[i] + b * gram[i] + (i % (n + 1) == 0 ? a : 0);
        multiply(r, n, n, x, poly, next);
        memcpy(x, next, (size_t) (r * n) * sizeof *x);
    }
    free(turned);
    free(gram);
    free(poly);
    free(next);
}

/* Eigenvalues of a symmetric matrix, by Jacobi rotations. */
static void eigenvalues(int64_t n, double *m, double *out)
{
    for (int sweep = 0; sweep < 30; sweep++)
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++) {
                const double angle = 0.5 * atan2(2 * m[p * n + q], m[q * n + q] - m[p * n + p]);
                const double co = cos(angle), si = sin(angle);
                for (int64_t k = 0; k < n; k++) {
                    const double x = m[k * n + p], y = m[k * n + q];
                    m[k * n + p] = co * x - si * y;
                    m[k * n + q] = si * x + co * y;
                }
                for (int64_t k = 0; k < n; k++) {
                    const double x = m[p * n + k], y = m[q * n + k];
                    m[p * n + k] = co * x - si * y;
                    m[q * n + k] = si * x + co * y;
                }
            }
    for (int64_t i = 0; i < n; i++)
        out[i] = m[i * n + i];
}

/* Singular values of the direction that the update took. */
static void singular_values(shape at, const double *x, double *out)
{
    const int64_t s = shorter(at), l = SL_MAX(at.rows, at.columns);
    const bool wide = at.rows <= at.columns;
    double *gram = zeros(s * s);
    for (int64_t i = 0; i < s; i++)
        for (int64_t j = 0; j < s; j++)
            for (int64_t k = 0; k < l; k++)
                gram[i * s + j] += wide ? x[i * l + k] * x[j * l + k] : x[k * s + i] * x[k * s + j];
    eigenvalues(s, gram, out);
    for (int64_t i = 0; i < s; i++)
        out[i] = sqrt(fmax(out[i], 0));
    free(gram);
}

/* ---- launches ---- */

static const float rate = 0.25f, scale = 3, decay = 0.125f;

static void create(update_launch *u, shape at, bool bf16, bool decayed)
{
    sl_update_tensor tensors[SL_MAX_UPDATE_TENSORS];
    for (int64_t i = 0; i < at.matrices; i++)
        tensors[i] = (sl_update_tensor){at.rows, at.columns, decayed};
    update_launch_create(u, SL_OPTIMIZER_MUON, bf16,
                         (sl_update){.weight_decay = decay, .n_tensors = (int) at.matrices, .tensors = tensors},
                         at.rows * at.columns * at.matrices);
}

/* The learning rate at which a parameter moves by X itself: the step is lr * .2 sqrt(max(rows, columns)) X. */
static float unit_rate(shape at)
{
    return (float) (1 / (0.2 * sqrt((double) SL_MAX(at.rows, at.columns))));
}

/* What an update with this gradient subtracts from a parameter of zeros. */
static void direction(shape at, const double *gradient, bool bf16, double *out)
{
    const int64_t count = at.rows * at.columns * at.matrices;
    update_launch u;
    create(&u, at, bf16, false);
    for (int64_t i = 0; i < count; i++)
        u.gradient[i] = (float) gradient[i];
    update_launch_run(&u, SL_OPTIMIZER_MUON, unit_rate(at), 1);
    for (int64_t i = 0; i < count; i++)
        out[i] = -(double) u.parameter[i];
    update_launch_destroy(&u);
}

/* ---- tests ---- */

TEST(interval_of_the_polynomial)
{
    double interval[2] = {0.01, 1}, low = 2, high = 0;
    for (int i = 0; i < 5; i++)
        map_interval(interval);
    for (double s = 0.01; s <= 1; s += 1e-5) {
        low = fmin(low, five_times(s));
        high = fmax(high, five_times(s));
    }
    CHECK(low >= interval[0] && high <= interval[1]);
    CHECK(interval[0] > 0.68 && interval[0] < 0.69 && interval[1] > 1.13 && interval[1] < 1.14);
}

/* Each matrix of a launch has its own singular values, from 1 down to 0.05. In bf16 X, A and B are rounded to 8 bits in each iteration,
 * which moves singular values by as much as the norm of the rounded bits, 2^-9 |X|. */
static void check_known(shape at, bool bf16)
{
    const int64_t n = shorter(at), count = at.rows * at.columns;
    const double tolerance = bf16 ? 0.02 : 1e-6;
    double *gradient = zeros(count * at.matrices), *want = zeros(count * at.matrices),
           *got = zeros(count * at.matrices), *u = zeros(n * at.rows), *v = zeros(n * at.columns), *s = zeros(n),
           *values = zeros(n);
    for (int64_t k = 0; k < at.matrices; k++) {
        orthonormal((uint64_t) (2 * k + 1), n, at.rows, u);
        orthonormal((uint64_t) (2 * k + 2), n, at.columns, v);
        for (int64_t j = 0; j < n; j++)
            s[j] = 1 - 0.95 * (double) j / (double) n;
        const double norm = frobenius(s, n);
        compose(at, u, s, v, gradient + k * count);
        for (int64_t j = 0; j < n; j++)
            s[j] = five_times(s[j] / norm);
        compose(at, u, s, v, want + k * count);
    }
    direction(at, gradient, bf16, got);
    double interval[2] = {0.01, 1}, worst = 0, out = 0; /* the least is 0.05 of a norm below 5 */
    for (int step = 0; step < 5; step++)
        map_interval(interval);
    for (int64_t j = 0; j < count * at.matrices; j++)
        worst = fmax(worst, fabs(got[j] - want[j]));
    for (int64_t k = 0; k < at.matrices; k++) {
        singular_values(at, got + k * count, values);
        for (int64_t j = 0; j < n; j++)
            out = fmax(out, fmax(interval[0] - values[j], values[j] - interval[1]));
    }
    CHECK_MSG(worst <= tolerance, "[%lld, %lld]: an element is off by %.3g", (long long) at.rows,
              (long long) at.columns, worst);
    CHECK_MSG(out <= tolerance, "[%lld, %lld]: a singular value is %.3g outside of [%.6f, %.6f]", (long long) at.rows,
              (long long) at.columns, out, interval[0], interval[1]);
    free(gradient), free(want), free(got), free(u), free(v), free(s), free(values);
}

TEST(known_singular_values)
{
    for (int64_t i = 0; i < SL_COUNT(shapes); i++) {
        check_known(shapes[i], false);
        check_known(shapes[i], true);
    }
}

/* Ten updates of random gradients of growing size with momentum, weight decay and a scale. The error is relative to the size of a step. */
TEST(random_matrices)
{
    for (int64_t i = 0; i < SL_COUNT(shapes); i++) {
        const shape at = shapes[i];
        const int64_t count = at.rows * at.columns, all = count * at.matrices;
        double *m = zeros(all), *x = zeros(all);
        update_launch u;
        create(&u, at, false, true);
        u.options[1] = scale;
        CHECK_STR(sl_optimizer_of(SL_OPTIMIZER_MUON)->options[1].name, "muon-scale");
        sl_update_tensor tensors[SL_MAX_UPDATE_TENSORS];
        for (int64_t k = 0; k < at.matrices; k++)
            tensors[k] = (sl_update_tensor){at.rows, at.columns, true};
        const sl_update update = {
            .options = u.options, .weight_decay = decay, .n_tensors = (int) at.matrices, .tensors = tensors};
        sl_optimizer_of(SL_OPTIMIZER_MUON)->set_attrs(&update, &u.launch.attrs);
        for (int64_t j = 0; j < all; j++)
            u.parameter[j] = (float) noise_at(99, j);
        for (int t = 1; t <= 10; t++) {
            const double momentum = (double) u.options[0];
            float *before = malloc((size_t) all * sizeof *before);
            REQUIRE(before);
            memcpy(before, u.parameter, (size_t) all * sizeof *before);
            for (int64_t j = 0; j < all; j++) {
                u.gradient[j] = (float) (pow(10, t - 5) * noise_at((uint64_t) t, j));
                m[j] = momentum * (double) u.state[0][j] + (1 - momentum) * (double) u.gradient[j];
                x[j] = momentum * m[j] + (1 - momentum) * (double) u.gradient[j];
            }
            for (int64_t k = 0; k < at.matrices; k++)
                iterate(at, x + k * count);
            update_launch_run(&u, SL_OPTIMIZER_MUON, rate, t);
            const double step = (double) rate * (double) scale * 0.2 * sqrt((double) SL_MAX(at.rows, at.columns));
            for (int64_t j = 0; j < all; j++) {
                const double want = (double) before[j] * (1 - (double) rate * (double) decay) - step * x[j];
                CHECK_NEAR(u.parameter[j], want, 2e-6 * step + 6e-8 * fabs(want));
                CHECK_NEAR(u.state[0][j], m[j], 2e-7 * pow(10, t - 5));
            }
            free(before);
        }
        update_launch_destroy(&u);
        free(m), free(x);
    }
}

/* A gradient of zeros moves nothing but the decay, and its size does not matter. */
TEST(zeros_and_sizes)
{
    const shape at = {16, 40, 1};
    const int64_t count = at.rows * at.columns;
    double *gradient = zeros(count), *small = zeros(count), *large = zeros(count);
    direction(at, gradient, false, small);
    for (int64_t i = 0; i < count; i++) {
        CHECK(small[i] == 0);
        gradient[i] = 1e-4 * noise_at(5, i);
    }
    direction(at, gradient, false, small);
    for (int64_t i = 0; i < count; i++)
        gradient[i] *= 1048576;
    direction(at, gradient, false, large);
    for (int64_t i = 0; i < count; i++)
        CHECK_NEAR(large[i], small[i], 1e-6);
    free(gradient), free(small), free(large);
}

/* The root mean square of a step is about .2 of the learning rate whatever the shape, which AdamW's is too. */
TEST(steps_of_adamw_size)
{
    for (int64_t i = 0; i < SL_COUNT(shapes); i++) {
        const shape at = shapes[i];
        const int64_t count = at.rows * at.columns * at.matrices;
        double *gradient = zeros(count), *x = zeros(count);
        for (int64_t j = 0; j < count; j++)
            gradient[j] = noise_at(7, j);
        direction(at, gradient, false, x);
        const double rms = frobenius(x, count) / sqrt((double) count) / (double) unit_rate(at);
        CHECK_MSG(rms > 0.2 * 0.6 && rms < 0.2 * 1.1346, "[%lld, %lld]: %.3f", (long long) at.rows,
                  (long long) at.columns, rms);
        free(gradient), free(x);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(interval_of_the_polynomial);
    RUN(known_singular_values);
    RUN(random_matrices);
    RUN(zeros_and_sizes);
    RUN(steps_of_adamw_size);
    return test_end();
}
