/* Normal numbers: against Box-Muller in f64, their moments, and that a part is the same as the whole. */
#include <math.h>
#include <string.h>

#include "core/normal.h"
#include "core/rng.h"
#include "test.h"

enum { BLOCKS = 100003 };
static float values[4 * BLOCKS];

TEST(formula)
{
    double worst = 0;
    sl_normal_fill(7, 5, 9, BLOCKS, values);
    for (int64_t b = 0; b < BLOCKS; b++) {
        sl_rng4 r = sl_philox(7, (uint64_t) (5 + b), 9);
        for (int k = 0; k < 4; k += 2) {
            double u = ((double) r.v[k] + 0.5) / 4294967296.0, angle = 6.283185307179586 * r.v[k + 1] / 4294967296.0;
            double radius = sqrt(-2 * log(u));
            worst = fmax(worst, fabs((double) values[4 * b + k] - radius * cos(angle)));
            worst = fmax(worst, fabs((double) values[4 * b + k + 1] - radius * sin(angle)));
        }
    }
    CHECK(worst < 4e-5); /* an f32 u next to 1 knows its distance from 1 to 6e-8 */
}

TEST(moments)
{
    double n = 4 * BLOCKS, sum = 0, squares = 0, fourths = 0;
    sl_normal_fill(1, 0, 2, BLOCKS, values);
    for (int64_t i = 0; i < 4 * BLOCKS; i++) {
        double x = (double) values[i];
        sum += x, squares += x * x, fourths += x * x * x * x;
    }
    CHECK(fabs(sum / n) < 4 / sqrt(n));
    CHECK(fabs(squares / n - 1) < 4 * sqrt(2 / n));
    CHECK(fabs(fourths / n - 3) < 4 * sqrt(96 / n));
}

TEST(parts)
{
    float part[4 * 70];
    sl_normal_fill(3, 0, 4, 1000, values);
    for (int64_t first = 0; first < 900; first += 37) {
        sl_normal_fill(3, (uint64_t) first, 4, 1 + first % 70, part);
        CHECK(memcmp(part, values + 4 * first, (size_t) (1 + first % 70) * 16) == 0);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(formula);
    RUN(moments);
    RUN(parts);
    return test_end();
}
