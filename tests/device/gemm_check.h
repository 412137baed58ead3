/* A GEMM instruction set against sums in f64: all transpositions, odd sizes around the register tile and the blocks,
 * bias, residual, accumulation, both dtypes; nothing written outside C, padding never leaks NaN, and the same bits from
 * one, two and three threads. */
#ifndef SL_TESTS_DEVICE_GEMM_CHECK_H
#define SL_TESTS_DEVICE_GEMM_CHECK_H

#include "device/cpu/gemm/gemm.h"

#include "core/bf16.h"
#include "core/mem.h"
#include "test.h"

static uint64_t seed = 1;
static float random_float(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float) (int32_t) (seed >> 32) * 0x1p-31f;
}

static float get(const void *data, sl_dtype dtype, int64_t i)
{
    return dtype == SL_BF16 ? sl_bf16_to_f32(((const sl_bf16 *) data)[i]) : ((const float *) data)[i];
}
static void put(void *data, sl_dtype dtype, int64_t i, float x)
{
    if (dtype == SL_BF16)
        ((sl_bf16 *) data)[i] = sl_f32_to_bf16(x);
    else
        ((float *) data)[i] = x;
}

/* `rows` x `columns` values, `leading` apart; the gaps and a guard behind hold NaN, which would show in any sum. */
static void *matrix(int64_t rows, int64_t columns, int64_t leading, sl_dtype dtype)
{
    void *data;
    CHECK_OK(sl_alloc_aligned(&data, rows * leading + 64, sl_dtype_bytes(dtype), 64));
    for (int64_t i = 0; i < rows * leading + 64; i++)
        put(data, dtype, i, i / leading < rows && i % leading < columns ? random_float() : NAN);
    return data;
}

typedef struct shape {
    int64_t m, n, k;
} shape;

/* An element of C in double, and the sum of its terms' magnitudes, which is what its rounding errors are relative to. */
static double expected(const sl_gemm *gemm, int64_t i, int64_t j, const void *before, double *magnitude)
{
    const int64_t at = i * gemm->c_leading + j;
    const double extras[] = {gemm->bias ? (double) get(gemm->bias, gemm->c_dtype, j) : 0,
                             gemm->residual ? (double) get(gemm->residual, gemm->c_dtype, at) : 0,
                             gemm->accumulate ? (double) get(before, gemm->c_dtype, at) : 0};
    double sum = extras[0] + extras[1] + extras[2];
    *magnitude = fabs(extras[0]) + fabs(extras[1]) + fabs(extras[2]);
    for (int64_t k = 0; k < gemm->k; k++) {
        const int64_t a = gemm->a.transposed ? k * gemm->a.leading + i : i * gemm->a.leading + k;
        const int64_t b = gemm->b.transposed ? j * gemm->b.leading + k : k * gemm->b.leading + j;
        const double term = (double) get(gemm->a.data, gemm->a.dtype, a) * (double) get(gemm->b.data, gemm->b.dtype, b);
        sum += term;
        *magnitude += fabs(term);
    }
    return sum;
}

static void run_guarded(const sl_gemm_isa *isa, const sl_gemm *gemm, sl_pool *pool)
{
    const size_t bytes = sl_gemm_workspace(isa, gemm, sl_pool_threads(pool));
    unsigned char *workspace;
    CHECK_OK(sl_alloc_aligned(&workspace, bytes + 64, 1, 256));
    memset(workspace, 0xff, bytes + 64); /* NaN everywhere, and the guard */
    sl_gemm_run(isa, gemm, workspace, pool);
    for (size_t i = bytes; i < bytes + 64; i++)
        CHECK(workspace[i] == 0xff);
    sl_free(workspace);
}

static void check_gemm(const char *name, const sl_gemm_isa *isa, shape size, int variant, sl_dtype dtype,
                       sl_dtype c_dtype)
{
    const bool ta = variant & 1, tb = variant & 2, extras = variant & 4, accumulate = variant & 8;
    const int64_t lda = (ta ? size.m : size.k) + 1 + variant % 3, ldb = (tb ? size.k : size.n) + 1 + variant % 2;
    void *a = matrix(ta ? size.k : size.m, ta ? size.m : size.k, lda, dtype);
    void *b = matrix(tb ? size.n : size.k, tb ? size.k : size.n, ldb, dtype);
    void *bias = matrix(1, size.n, size.n, c_dtype), *residual = matrix(size.m, size.n, size.n + 3, c_dtype);
    void *before = matrix(size.m, size.n, size.n + 3, c_dtype), *first = NULL;
    const size_t c_bytes = (size_t) (size.m * (size.n + 3) + 64) * sl_dtype_bytes(c_dtype);
    sl_gemm gemm = {.m = size.m, .n = size.n, .k = size.k, .a = {a, lda, dtype, ta}, .b = {b, ldb, dtype, tb}};
    gemm.c_leading = size.n + 3, gemm.c_dtype = c_dtype, gemm.accumulate = accumulate;
    if (extras)
        gemm.bias = bias, gemm.residual = residual;
    for (int threads = 1; threads <= 3; threads++) {
        sl_pool *pool;
        CHECK_OK(sl_pool_create(threads, &pool));
        CHECK_OK(sl_alloc_aligned(&gemm.c, c_bytes, 1, 64)); /* some rows are whole cache lines */
        memcpy(gemm.c, before, c_bytes);
        run_guarded(isa, &gemm, pool);
        sl_pool_destroy(pool);
        if (threads > 1) {
            CHECK_MSG(memcmp(first, gemm.c, c_bytes) == 0, "%s: %d threads give other bits", name, threads);
            sl_free(gemm.c);
        } else {
            first = gemm.c;
        }
    }
    const double rounding = c_dtype == SL_BF16 ? 0x1p-8 : 0x1p-23;
    int wrong = 0;
    for (int64_t i = 0; i < size.m; i++)
        for (int64_t j = 0; j < size.n + 3; j++) {
            const double got = (double) get(first, c_dtype, i * (size.n + 3) + j);
            if (j >= size.n) {
                wrong += !isnan(got);
                continue;
            }
            double magnitude;
            const double want = expected(&gemm, i, j, before, &magnitude), off = fabs(got - want);
            wrong += !(off <= rounding * fabs(want) + 1e-7 * (double) size.k + 2e-6 &&
                       off <= rounding * fabs(want) + 0x1p-21 * magnitude);
        }
    for (int64_t i = 0; i < 64; i++)
        wrong += !isnan(get(first, c_dtype, size.m * (size.n + 3) + i));
    CHECK_MSG(wrong == 0, "%s %s->%s %" PRId64 "x%" PRId64 "x%" PRId64 " variant %d: %d elements wrong", name,
              sl_dtype_name(dtype), sl_dtype_name(c_dtype), size.m, size.n, size.k, variant, wrong);
    sl_free(a), sl_free(b), sl_free(bias), sl_free(residual), sl_free(before), sl_free(first);
}

static inline void check_isa(const char *name, const sl_gemm_isa *isa, bool f32)
{
    static const shape shapes[] = {{1, 1, 1},   {1, 33, 7},   {14, 32, 256}, {15, 31, 257}, {13, 65, 31},
                                   {6, 16, 64}, {29, 50, 33}, {57, 770, 40}, {70, 96, 300}, {5, 3, 1600},
                                   {3, 2, 0},   {33, 40, 95}, {32, 40, 64},  {48, 33, 96},  {20, 900, 72}};
    for (int64_t s = 0; s < SL_COUNT(shapes); s++)
        for (int variant = 0; variant < 16; variant++) {
            if (f32)
                check_gemm(name, isa, shapes[s], variant, SL_F32, SL_F32);
            check_gemm(name, isa, shapes[s], variant, SL_BF16, SL_BF16);
            check_gemm(name, isa, shapes[s], variant, SL_BF16, SL_F32);
        }
    /* k cut into blocks, and rows with it. */
    check_gemm(name, isa, (shape){1030, 20, 1700}, 2, SL_BF16, SL_BF16);
    /* The same in stripes of columns. */
    for (int variant = 0; variant < 4; variant++)
        check_gemm(name, isa, (shape){70, 300, 1700}, variant, SL_BF16, SL_BF16);
    /* More rows than are few; a large C of a weight's gradient, streamed. */
    check_gemm(name, isa, (shape){516, 200, 70}, 0, SL_BF16, SL_BF16);
    check_gemm(name, isa, (shape){516, 200, 70}, 2, SL_BF16, SL_BF16);
    check_gemm(name, isa, (shape){1024, 520, 33}, 1, SL_BF16, SL_BF16);
}

#endif
