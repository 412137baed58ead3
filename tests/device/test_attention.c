/* The attention backward has three ways to gather dQ, chosen by shape (attention_bwd_kernel.h). The conformance cases
 * take the first two; an absent output takes the third. All must agree, with any number of threads. */
#include "core/bf16.h"
#include "core/mem.h"
#include "device/cpu/kernels/kernel.h"
#include "ops/attention.h"
#include "test.h"

enum { N = 200, M = 330, HEADS = 4, KV_HEADS = 2, DIM = 40, Q = N * HEADS * DIM, KV = M * 2 * KV_HEADS * DIM };

static float q[Q], kv[KV], o[Q], d_o[Q], lse[HEADS * N], dq[2][Q], dkv[2][KV];
static int32_t segments[] = {0, 150, 330, 330};

static void fill(float *to, int64_t count, uint32_t seed)
{
    for (int64_t i = 0; i < count; i++) {
        sl_rng4 bits = sl_philox(seed, (uint64_t) i, 0);
        to[i] = sl_rng_uniform(bits.v[0]) + sl_rng_uniform(bits.v[1]) - 1;
    }
}

static const sl_cpu_kernel *find(sl_op_id op, sl_isa isa)
{
    int64_t count;
    const sl_cpu_kernel *const *kernels = sl_cpu_kernels(&count);
    for (int64_t i = 0; i < count; i++)
        if (kernels[i]->op == op && kernels[i]->isa == isa)
            return kernels[i];
    return NULL;
}

static void run(const sl_cpu_kernel *kernel, sl_launch *launch, int threads)
{
    sl_pool *pool;
    CHECK_OK(sl_pool_create(threads, &pool));
    launch->op = kernel->op;
    launch->workspace_bytes = kernel->workspace(launch, threads);
    CHECK_OK(sl_alloc_aligned(&launch->workspace, launch->workspace_bytes, 1, 256));
    memset(launch->workspace, 0xff, launch->workspace_bytes); /* NaN: nothing may rely on what was there */
    kernel->run(launch, pool);
    sl_free(launch->workspace);
    sl_pool_destroy(pool);
}

/* Relative to the largest of a head's row: large gradients of other rows must not hide small ones. */
static double difference(const float *a, const float *b, int64_t count)
{
    double worst = 0;
    for (int64_t row = 0; row < count; row += DIM) {
        double most = 0, largest = 0;
        for (int64_t i = row; i < row + DIM; i++) {
            double d = fabs((double) a[i] - b[i]);
            most = d <= most ? most : d; /* a NaN stays */
            largest = fmax(largest, fabs(a[i]));
        }
        double off = most == 0 ? 0 : most / largest;
        worst = off <= worst ? worst : off;
    }
    return worst;
}

/* `window` 0, `cap` 0: none. */
static void check_ways(int64_t window, float cap)
{
    sl_isa best;
    CHECK_OK(sl_isa_detect(&best));
    fill(q, Q, 1);
    fill(kv, KV, 2);
    fill(d_o, Q, 3);
    sl_attrs attrs = {0};
    sl_attention_set(&attrs)->heads = HEADS;
    sl_attention_set(&attrs)->kv_heads = KV_HEADS;
    sl_attention_set(&attrs)->head_dim = DIM;
    sl_attention_set(&attrs)->causal = 1;
    sl_attention_set(&attrs)->q_offset = M - N;
    sl_attention_set(&attrs)->scale = 0.15f;
    sl_attention_set(&attrs)->window = window;
    sl_attention_set(&attrs)->cap = cap;
    const sl_type q_type = sl_type_2d(SL_F32, N, HEADS * DIM), kv_type = sl_type_2d(SL_F32, M, 2 * KV_HEADS * DIM);
    const sl_type lse_type = sl_type_2d(SL_F32, HEADS, N), segments_type = sl_type_1d(SL_I32, 4);
    for (sl_isa isa = SL_ISA_AVX2; isa <= best; isa++) {
        const sl_cpu_kernel *forward = find(SL_OP_ATTENTION, isa), *backward = find(SL_OP_ATTENTION_BWD, isa);
        if (!forward || !backward)
            continue;
        sl_launch launch = {.in = {{q, q_type}, {kv, kv_type}, {segments, segments_type}},
                            .out = {{o, q_type}, {lse, lse_type}},
                            .attrs = attrs};
        run(forward, &launch, 1);
        sl_launch both = {
            .in = {{d_o, q_type}, {q, q_type}, {kv, kv_type}, {o, q_type}, {lse, lse_type}, {segments, segments_type}},
            .out = {{dq[0], q_type}, {dkv[0], kv_type}},
            .attrs = attrs};
        run(backward, &both, 3);
        sl_launch one = both;
        one.out[0].data = dq[1];
        one.out[1].data = NULL;
        run(backward, &one, 2);
        one.out[0].data = NULL;
        one.out[1].data = dkv[1];
        run(backward, &one, 1);
        double dq_error = difference(dq[0], dq[1], Q), dkv_error = difference(dkv[0], dkv[1], KV);
        CHECK_MSG(dq_error < 2e-6, "%s: dq differs by %.2e", backward->name, dq_error);
        CHECK_MSG(dkv_error < 2e-6, "%s: dkv differs by %.2e", backward->name, dkv_error);
    }
}

TEST(ways_agree)
{
    check_ways(0, 0);
    check_ways(40, 0);
    check_ways(130, 0.6f);
    check_ways(0, 2);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(ways_agree);
    return test_end();
}
