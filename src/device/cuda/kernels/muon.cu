/*
 * Muon: the operations of optim/muon.h, for all matrices of a launch at once: sums of squares of u, the factor of each matrix, momentum and
 * X, fifteen batched products, and the parameters. Nothing waits for the host, so a matrix whose u is not finite, and every matrix of a
 * skipped step, goes through the products as zeros: its factor is NaN, and what belongs to it is not written.
 */
#include "device/cuda/kernels/pieces.cuh"
#include "optim/muon.h"

/* The launch's shape, and its workspace: two of X, A and B, the factors and the sums, then what the library wants. */
struct shape {
    int64_t rows, columns, matrices, each, all, shorter, pieces; /* pieces: of one matrix */
    sl_dtype dtype;
    size_t x_bytes, square_bytes, factor_bytes, sum_bytes;
};

static shape shape_of(const sl_launch *launch)
{
    const struct sl_muon_attrs *a = sl_muon_attrs(&launch->attrs);
    shape s = {};
    s.rows = a->rows, s.columns = a->columns, s.matrices = a->matrices;
    s.each = s.rows * s.columns, s.all = s.each * s.matrices, s.shorter = SL_MIN(s.rows, s.columns);
    s.pieces = sl_pieces(s.each);
    s.dtype = launch->in[0].type.dtype;
    const size_t width = sl_dtype_bytes(s.dtype);
    s.x_bytes = sl_cuda_align((size_t) s.all * width);
    s.square_bytes = sl_cuda_align((size_t) (s.shorter * s.shorter * s.matrices) * width);
    s.factor_bytes = sl_cuda_align((size_t) s.matrices * sizeof(float));
    s.sum_bytes = sl_cuda_align((size_t) (s.pieces * s.matrices) * sizeof(float));
    return s;
}

/* ---- element by element ---- */

template <typename P, typename M>
__global__ void __launch_bounds__(SUM_THREADS, SUM_BLOCKS)
    muon_sums_kernel(const __grid_constant__ sl_attrs attrs, const P *__restrict__ g,
                     const sl_step_params *__restrict__ step, const float *__restrict__ gate, const M *__restrict__ m,
                     float *__restrict__ sums, int64_t each, int64_t pieces)
{
    if (sl_gate_skips(gate))
        return;
    const sl_muon_scalars s = sl_muon_prepare(&attrs, step, gate);
    const int64_t matrix = blockIdx.x / pieces, start = (blockIdx.x - matrix * pieces) * SL_PIECE;
    const int64_t first = matrix * each + start;
    sum_piece<1>(each - start, sums + blockIdx.x, [&](int i, int end, float(&x)[1][AT_ONCE]) {
        raw<P, 1> from_g[AT_ONCE];
        raw<M, 1> from_m[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            from_g[j] = load_one(g + first, i + j * SL_SUM_LANES, end);
            from_m[j] = load_one(m + first, i + j * SL_SUM_LANES, end);
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            float momentum = from_m[j][0];
            x[0][j] = sl_muon_element(&s, from_g[j][0], &momentum);
        }
    });
}

__global__ void __launch_bounds__(THREADS)
    muon_factors_kernel(const float *__restrict__ gate, const float *__restrict__ sums, float *__restrict__ factors,
                        int64_t pieces)
{
    float squares[1] = {NAN};
    if (!sl_gate_skips(gate))
        sum_pieces<1>(sums + blockIdx.x * pieces, pieces, squares);
    if (threadIdx.x == 0)
        factors[blockIdx.x] = sl_muon_normalize(squares[0]);
}

/* The factors of elements i to i + 7, NaN behind the last. True: one of them at least is updated. */
__device__ __forceinline__ bool factors_of(const float *factors, int64_t i, int64_t each, int64_t all,
                                           float (&factor)[EACH])
{
    const int64_t matrix = i / each, end = (matrix + 1) * each;
    bool any = false;
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        factor[j] = i + j >= all ? NAN : factors[i + j < end ? matrix : (i + j) / each];
        any |= !isnan(factor[j]);
    }
    return any;
}

/* FIRST: momentum and X. Else: the parameters from X. W: type of what is updated: momentum; parameters or their master. */
template <typename P, typename W, bool FIRST, bool MASTER, bool NOISY>
__global__ void __launch_bounds__(THREADS)
    muon_kernel(const __grid_constant__ sl_attrs attrs, const P *__restrict__ g,
                const sl_step_params *__restrict__ step, const float *__restrict__ gate,
                const float *__restrict__ factors, P *x, W *state, P *p, int64_t each, int64_t all, bool wide)
{
    __shared__ __align__(16) uint16_t deal[NOISY ? THREADS / SL_NOISE_LANES * GROUP : 1];
    uint16_t *group = deal + (NOISY ? threadIdx.x / SL_NOISE_LANES * GROUP : 0);
    const sl_muon_scalars s = sl_muon_prepare(&attrs, step, gate);
    const uint64_t counter_hi = sl_noise_counter_hi(sl_muon_attrs(&attrs)->stream, step->step);
    for (int64_t base = (int64_t) blockIdx.x * THREADS * EACH; base < all;
         base += (int64_t) gridDim.x * THREADS * EACH) {
        const int64_t i = base + threadIdx.x * EACH;
        float factor[EACH], vx[EACH], vs[EACH];
        const bool any = factors_of(factors, i, each, all, factor);
        const raw<W, EACH> from = read8(state, i, all, wide);
        const raw<P, EACH> from_x = FIRST ? read8(g, i, all, wide) : read8((const P *) x, i, all);
        if constexpr (NOISY) {
            put_noise(sl_noise_seed(step), counter_hi, FIRST ? 2 : 1, i / SL_NOISE_BLOCK, group);
            __syncwarp();
        }
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            vs[j] = from[j];
            if (FIRST)
                vx[j] = __fmul_rn(sl_muon_element(&s, from_x[j], &vs[j]), factor[j]);
            else
                vs[j] = __fmaf_rn(-s.rate, from_x[j], __fmul_rn(vs[j], s.decay));
            if (isnan(factor[j]))
                vx[j] = 0, vs[j] = from[j];
        }
        if (FIRST)
            write8(x, i, all, vx);
        if constexpr (NOISY) {
            const uint4 noise = take_noise(FIRST, group);
            __syncwarp(); /* free for the next round */
            if (any)
                write8_noisy(state, i, all, vs, noise, wide);
        } else if (any) {
            write8(state, i, all, vs, wide);
            if (MASTER)
                write8(p, i, all, vs, wide);
        }
    }
}

/* ---- products ---- */

struct products {
    sl_cuda_gemm gram, square, poly; /* X X^T, A A, B X; of a tall matrix X^T X, A A, X B */
};

static sl_cuda_gemm product(const shape &s, int64_t m, int64_t n, int64_t k, bool trans_a, bool trans_b, bool add)
{
    sl_cuda_gemm gemm;
    memset(&gemm, 0, sizeof gemm);
    gemm.m = m, gemm.n = n, gemm.k = k;
    gemm.lda = trans_a ? m : k, gemm.ldb = trans_b ? k : n, gemm.ldc = n;
    gemm.trans_a = trans_a, gemm.trans_b = trans_b, gemm.add = add;
    gemm.in = gemm.out = (int32_t) s.dtype;
    gemm.batch = s.matrices;
    return gemm;
}

static products products_of(const shape &s)
{
    const bool wide = s.rows <= s.columns;
    const int64_t n = s.shorter;
    return {product(s, n, n, wide ? s.columns : s.rows, !wide, wide, false), product(s, n, n, n, false, false, true),
            product(s, s.rows, s.columns, n, false, false, true)};
}

static sl_status prepare(sl_cuda *cuda, const sl_launch *launch)
{
    const products p = products_of(shape_of(launch));
    SL_TRY(sl_cuda_gemm_prepare(cuda, &p.gram));
    SL_TRY(sl_cuda_gemm_prepare(cuda, &p.square));
    return sl_cuda_gemm_prepare(cuda, &p.poly);
}

/* From and to *x, with `other` as large. */
static sl_status orthogonalize(sl_cuda *cuda, const shape &s, void **x, void *other, void *a, void *b, void *space,
                               cudaStream_t stream)
{
    const products p = products_of(s);
    const bool wide = s.rows <= s.columns;
    for (int i = 0; i < SL_MUON_ITERATIONS; i++) {
        SL_TRY(sl_cuda_gemm_scaled(cuda, &p.gram, 1, 0, *x, *x, NULL, a, space, stream));
        SL_TRY(sl_cuda_gemm_scaled(cuda, &p.square, SL_MUON_C, SL_MUON_B, a, a, a, b, space, stream));
        SL_TRY(
            sl_cuda_gemm_scaled(cuda, &p.poly, 1, SL_MUON_A, wide ? b : *x, wide ? *x : b, *x, other, space, stream));
        void *next = other;
        other = *x, *x = next;
    }
    return SL_OK;
}

/* ---- the op ---- */

template <typename P, typename M, bool MASTER, bool NOISY>
static sl_status update(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    typedef typename std::conditional<MASTER, float, P>::type W;
    const shape s = shape_of(launch);
    const P *g = (const P *) launch->in[0].data;
    const sl_step_params *step = (const sl_step_params *) launch->in[1].data;
    const float *gate = (const float *) launch->in[2].data;
    P *p = (P *) launch->out[0].data;
    M *m = (M *) launch->out[1].data;
    W *weights = MASTER ? (W *) launch->out[2].data : (W *) p;
    char *space = (char *) launch->workspace;
    void *x = space, *other = space += s.x_bytes, *a = space += s.x_bytes, *b = space += s.square_bytes;
    float *factors = (float *) (space += s.square_bytes), *sums = (float *) (space += s.factor_bytes);
    space += s.sum_bytes;
    const bool aligned = sl_cuda_aligned(g, p, m, weights);
    const int blocks = sl_cuda_blocks(cuda, s.all, THREADS * EACH);
    muon_sums_kernel<P, M><<<(unsigned) (s.pieces * s.matrices), SUM_THREADS, 0, stream>>>(launch->attrs, g, step, gate,
                                                                                           m, sums, s.each, s.pieces);
    muon_factors_kernel<<<(unsigned) s.matrices, THREADS, 0, stream>>>(gate, sums, factors, s.pieces);
    muon_kernel<P, M, true, false, NOISY><<<blocks, THREADS, 0, stream>>>(launch->attrs, g, step, gate, factors,
                                                                          (P *) x, m, NULL, s.each, s.all, aligned);
    SL_CUDA_LAUNCHED();
    SL_TRY(orthogonalize(cuda, s, &x, other, a, b, space, stream));
    muon_kernel<P, W, false, MASTER, NOISY><<<blocks, THREADS, 0, stream>>>(
        launch->attrs, g, step, gate, factors, (P *) x, weights, p, s.each, s.all, aligned);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

static sl_status muon_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    DISPATCH_UPDATE(launch, 1, sl_muon_attrs(&launch->attrs)->stochastic,
                    return (update<P, M, MASTER, NOISY>(cuda, launch, stream)));
}

static sl_status muon_supports(sl_cuda *cuda, const sl_launch *launch)
{
    SL_TRY(supports_update(launch, 1));
    return prepare(cuda, launch);
}

static size_t muon_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    const shape s = shape_of(launch);
    const products p = products_of(s);
    prepare(cuda, launch); /* planning calls this first; `supports` reports what fails */
    return 2 * (s.x_bytes + s.square_bytes) + s.factor_bytes + s.sum_bytes + sl_cuda_gemm_workspace(&p.gram);
}
extern "C" const sl_cuda_kernel sl_cuda_muon = {SL_OP_MUON, muon_supports, muon_workspace, muon_run};
