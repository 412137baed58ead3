/* The vectorised exp of AVX-512 and AVX2 against libm's in f64: floats of all magnitudes and signs, the ends of the
 * range, NaN and infinities; less than one unit in the last place, denormal results included. */
#include "test.h"

/* exp_isa.c, compiled for each. */
void exp_avx512(const float x[16], float y[16]);
void exp_avx2(const float x[16], float y[16]);

/* Units in the last place, of the smallest denormal where the result is smaller. */
static double error_of(float x, float y)
{
    const double want = exp((double) x);
    if (isnan(x) || (float) want == INFINITY)
        return isnan(x) ? (isnan(y) ? 0 : 1e9) : (y == INFINITY ? 0 : 1e9);
    int exponent;
    frexp(want, &exponent);
    return fabs((double) y - want) / fmax(ldexp(1, exponent - 24), 0x1p-149);
}

static void check_exp(const char *name, void (*fn)(const float *, float *))
{
    double worst = 0;
    float at = 0;
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += 16 * 1021) {
        float x[16], y[16];
        for (uint64_t i = 0; i < 16; i++) {
            const uint32_t word = (uint32_t) (bits + i * 1021);
            memcpy(&x[i], &word, 4);
        }
        fn(x, y);
        for (int i = 0; i < 16; i++)
            if (error_of(x[i], y[i]) > worst)
                worst = error_of(x[i], y[i]), at = x[i];
    }
    const float ends[16] = {0,          -0.0f,      INFINITY, -INFINITY, NAN,  88.72283f, 88.72284f, 89,
                            -87.33654f, -87.33655f, -103.9f,  -103.98f,  -104, -200,      1,         -1};
    float y[16];
    fn(ends, y);
    for (int i = 0; i < 16; i++)
        if (error_of(ends[i], y[i]) > worst)
            worst = error_of(ends[i], y[i]), at = ends[i];
    CHECK_MSG(y[0] == 1 && y[1] == 1 && y[3] == 0 && y[13] == 0, "%s: exp(0) is %g, exp(-inf) %g", name, (double) y[0],
              (double) y[3]);
    CHECK_MSG(worst < 1, "%s: %.3g units wrong at %.9g", name, worst, (double) at);
}

TEST(avx512)
{
#ifdef SL_HAVE_AVX512
    if (__builtin_cpu_supports("avx512f"))
        check_exp("avx512", exp_avx512);
#endif
}

TEST(avx2)
{
#ifdef SL_HAVE_AVX2
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        check_exp("avx2", exp_avx2);
#endif
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(avx512);
    RUN(avx2);
    return test_end();
}
