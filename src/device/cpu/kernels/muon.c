/*
 * Muon on the GEMM driver, one matrix after the other. Products take nearly all of the time: an element costs thousands of
 * flops, so what is done element by element is plain C.
 *
 * The driver adds a residual but scales nothing, so the polynomial's coefficients are applied between two products, from sums in f32:
 *     A = X X^T (rounded)    G = A A (f32)    B = b A + c G (rounded)    Y = B X (f32)    X = a X + Y (rounded)
 */
#include "optim/muon.h"

#include "core/bf16.h"
#include "device/cpu/gemm/gemm.h"
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/optimizer_job.h"
#include "device/cpu/kernels/tiles.h"
#include "ops/reduce.h"

typedef struct muon_job {
    sl_muon_scalars s;
    optimizer_job all; /* of one matrix */
    int64_t first;     /* its first element in the launch, which its noise counts from */
    sl_dtype dtype;    /* of x, a and b */
    void *x, *a, *b;
    float *y; /* sums of [rows, columns] or of [shorter, shorter] */
    void *packed;
    float normalize;
} muon_job;

static float get(const void *data, int64_t i, bool bf16)
{
    return bf16 ? sl_bf16_to_f32(((const sl_bf16 *) data)[i]) : ((const float *) data)[i];
}

static void put(void *data, int64_t i, float value, bool bf16)
{
    if (bf16)
        ((sl_bf16 *) data)[i] = sl_f32_to_bf16(value);
    else
        ((float *) data)[i] = value;
}

static void put_noisy(const muon_job *job, void *data, int64_t i, float value, bool bf16, int which)
{
    if (bf16 && job->all.stochastic)
        ((sl_bf16 *) data)[i] =
            sl_f32_to_bf16_stochastic(value, sl_rounding_noise(job->all.step, job->all.stream, which, job->first + i));
    else
        put(data, i, value, bf16);
}

/* u into y, and its sum of squares by block into what `a` will be. */
static void momentum_tile(void *context, int64_t tile, int thread)
{
    const muon_job *job = context;
    const int64_t first = tile * SL_SUM_BLOCK, end = SL_MIN(first + SL_SUM_BLOCK, job->all.count);
    float lane[SL_SUM_LANES] = {0};
    (void) thread;
    for (int64_t i = first; i < end; i++) {
        float m = get(job->all.state[0], i, job->all.state_bf16), *sum = &lane[(i - first) % SL_SUM_LANES];
        job->y[i] = sl_muon_element(&job->s, get(job->all.g, i, job->all.g_bf16), &m);
        *sum = fmaf(job->y[i], job->y[i], *sum);
    }
    ((float *) job->x)[tile] = sl_sum_fold(lane);
}

static void normalize_tile(void *context, int64_t tile, int thread)
{
    const muon_job *job = context;
    (void) thread;
    for (int64_t i = tile * TILE_ELEMENTS; i < SL_MIN((tile + 1) * TILE_ELEMENTS, job->all.count); i++) {
        float m = get(job->all.state[0], i, job->all.state_bf16);
        sl_muon_element(&job->s, get(job->all.g, i, job->all.g_bf16), &m);
        put_noisy(job, job->all.state[0], i, m, job->all.state_bf16, 1);
        put(job->x, i, job->y[i] * job->normalize, job->dtype == SL_BF16);
    }
}

/* to = beta * with + alpha * y */
typedef struct blend {
    const muon_job *job;
    const void *with;
    void *to;
    int64_t count;
    float alpha, beta;
} blend;

static void blend_tile(void *context, int64_t tile, int thread)
{
    const blend *b = context;
    const bool bf16 = b->job->dtype == SL_BF16;
    (void) thread;
    for (int64_t i = tile * TILE_ELEMENTS; i < SL_MIN((tile + 1) * TILE_ELEMENTS, b->count); i++)
        put(b->to, i, fmaf(b->beta, get(b->with, i, bf16), b->alpha * b->job->y[i]), bf16);
}

static void parameter_tile(void *context, int64_t tile, int thread)
{
    const muon_job *job = context;
    const optimizer_job *all = &job->all;
    (void) thread;
    for (int64_t i = tile * TILE_ELEMENTS; i < SL_MIN((tile + 1) * TILE_ELEMENTS, all->count); i++) {
        float p = all->master ? all->master[i] : get(all->p, i, all->p_bf16);
        p = fmaf(-job->s.rate, get(job->x, i, job->dtype == SL_BF16), p * job->s.decay);
        if (all->master) {
            all->master[i] = p;
            put(all->p, i, p, all->p_bf16);
        } else {
            put_noisy(job, all->p, i, p, all->p_bf16, 0);
        }
    }
}

/* c [m,n] = op(a) op(b) */
static sl_gemm product(int64_t m, int64_t n, int64_t k, sl_gemm_matrix a, sl_gemm_matrix b, void *c, sl_dtype c_dtype)
{
    return (sl_gemm){.m = m, .n = n, .k = k, .a = a, .b = b, .c = c, .c_leading = n, .c_dtype = c_dtype};
}

typedef struct products {
    sl_gemm gram, square, poly; /* X X^T, A A, B X; of a tall matrix X^T X, A A, X B */
} products;

static products products_of(const struct sl_muon_attrs *attrs, const muon_job *job)
{
    const bool wide = attrs->rows <= attrs->columns;
    const int64_t r = attrs->rows, c = attrs->columns, s = wide ? r : c, l = wide ? c : r;
    const sl_gemm_matrix x = {job->x, c, job->dtype, false}, turned = {job->x, c, job->dtype, true};
    const sl_gemm_matrix a = {job->a, s, job->dtype, false}, b = {job->b, s, job->dtype, false};
    return (products){.gram = product(s, s, l, wide ? x : turned, wide ? turned : x, job->a, job->dtype),
                      .square = product(s, s, s, a, a, job->y, SL_F32),
                      .poly = product(r, c, s, wide ? b : x, wide ? x : b, job->y, SL_F32)};
}

static void orthogonalize(const struct sl_muon_attrs *attrs, const muon_job *job, sl_pool *pool)
{
    const products p = products_of(attrs, job);
    blend to_b = {job, job->a, job->b, p.square.m * p.square.n, SL_MUON_C, SL_MUON_B};
    blend to_x = {job, job->x, job->x, job->all.count, 1, SL_MUON_A};
    for (int i = 0; i < SL_MUON_ITERATIONS; i++) {
        sl_gemm_run(&SL_ISA_SYMBOL(sl_gemm), &p.gram, job->packed, pool);
        sl_gemm_run(&SL_ISA_SYMBOL(sl_gemm), &p.square, job->packed, pool);
        sl_pool_run(pool, blend_tile, &to_b, tile_count(to_b.count, TILE_ELEMENTS));
        sl_gemm_run(&SL_ISA_SYMBOL(sl_gemm), &p.poly, job->packed, pool);
        sl_pool_run(pool, blend_tile, &to_x, tile_count(to_x.count, TILE_ELEMENTS));
    }
}

/* Bytes of the workspace's parts: X, which has space for a sum per block at first, A, B and Y; packed operands follow. */
typedef struct layout {
    size_t x, square, y;
} layout;

static layout lay_out(const struct sl_muon_attrs *attrs, sl_dtype dtype)
{
    const size_t n = (size_t) (attrs->rows * attrs->columns), width = sl_dtype_bytes(dtype), line = 64;
    const size_t s = (size_t) SL_MIN(attrs->rows, attrs->columns),
                 sums = SL_DIV_UP(n, (size_t) SL_SUM_BLOCK) * sizeof(float);
    return (layout){SL_ROUND_UP(SL_MAX(n * width, sums), line), SL_ROUND_UP(s * s * width, line),
                    SL_ROUND_UP(n * sizeof(float), line)};
}

static void update_matrix(const sl_launch *launch, sl_pool *pool, int64_t matrix)
{
    const struct sl_muon_attrs *attrs = sl_muon_attrs(&launch->attrs);
    const int64_t count = attrs->rows * attrs->columns, tiles = tile_count(count, TILE_ELEMENTS);
    muon_job job = {.s = sl_muon_prepare(&launch->attrs, launch->in[1].data, launch->in[2].data),
                    .all = optimizer_job_of(launch, 1, matrix * count, count, attrs->stream, attrs->stochastic),
                    .first = matrix * count,
                    .dtype = launch->in[0].type.dtype};
    const layout at = lay_out(attrs, job.dtype);
    job.x = launch->workspace, job.a = (char *) job.x + at.x, job.b = (char *) job.a + at.square;
    job.y = (float *) (void *) ((char *) job.b + at.square), job.packed = (char *) job.y + at.y;
    const int64_t blocks = tile_count(count, SL_SUM_BLOCK);
    sl_sum_tree tree = {0};
    sl_pool_run(pool, momentum_tile, &job, blocks);
    for (int64_t i = 0; i < blocks; i++)
        sl_sum_tree_add(&tree, ((const float *) job.x)[i]);
    job.normalize = sl_muon_normalize(sl_sum_tree_end(&tree));
    if (isnan(job.normalize))
        return;
    sl_pool_run(pool, normalize_tile, &job, tiles);
    orthogonalize(attrs, &job, pool);
    sl_pool_run(pool, parameter_tile, &job, tiles);
}

static void muon_run(const sl_launch *launch, sl_pool *pool)
{
    for (int64_t k = 0; k < sl_muon_attrs(&launch->attrs)->matrices && !sl_gate_skips(launch->in[2].data); k++)
        update_matrix(launch, pool, k);
}

static size_t muon_workspace(const sl_launch *launch, int threads)
{
    const struct sl_muon_attrs *attrs = sl_muon_attrs(&launch->attrs);
    const muon_job job = {.dtype = launch->in[0].type.dtype};
    const layout at = lay_out(attrs, job.dtype);
    const products p = products_of(attrs, &job);
    const sl_gemm *all[] = {&p.gram, &p.square, &p.poly};
    size_t packed = 0;
    for (int i = 0; i < 3; i++)
        packed = SL_MAX(packed, sl_gemm_workspace(&SL_ISA_SYMBOL(sl_gemm), all[i], threads));
    return at.x + 2 * at.square + at.y + packed;
}

SL_CPU_KERNEL(muon, SL_OP_MUON, .supports = SL_GEMM_SUPPORTS, .workspace = muon_workspace, .run = muon_run);
