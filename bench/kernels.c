/* Times the CPU kernels other than matrix products at the shapes of `small` (1024 tokens, d 768, f 2048, 12 heads of
 * 64) and a few others, against copying memory in the same run. Built and run by bench/kernels.sh.
 *
 *   kernels [THREADS [PART OF A NAME]]
 *
 * Memory-bound kernels: bytes they must move (the op's own count) per second, and as a share of memcpy over the same
 * working set with the same threads. Attention: GFLOP/s. The least of several times; operands are random. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/mem.h"
#include "device/cpu/kernels/kernel.h"
#include "ops/attention.h"
#include "ops/fill.h"
#include "ops/norm.h"
#include "optim/element.h"

static sl_pool *pool;
static int threads;

static void fail(const char *what)
{
    fprintf(stderr, "kernels: %s: %s\n", what, sl_error_message());
    exit(1);
}

static void *must_alloc(size_t bytes)
{
    void *out;
    if (sl_alloc_aligned(&out, bytes + 64, 1, 4096) != SL_OK)
        fail("memory");
    return out;
}

typedef struct copy_job {
    char *to;
    const char *from;
    size_t bytes;
} copy_job;

enum { COPY_TILE = 1 << 16 };

static void copy_tile(void *context, int64_t tile, int thread)
{
    (void) thread;
    const copy_job *job = context;
    size_t at = (size_t) tile * COPY_TILE;
    memcpy(job->to + at, job->from + at, SL_MIN((size_t) COPY_TILE, job->bytes - at));
}

/* Bytes per second, read and written counted both, with `total` bytes in all moved per pass. */
static double copy_speed(double total)
{
    copy_job job = {.bytes = (size_t) (total / 2)};
    job.to = must_alloc(job.bytes);
    char *from = must_alloc(job.bytes);
    memset(from, 1, job.bytes);
    job.from = from;
    double best = 1e9;
    for (int i = 0; i < 12; i++) {
        double start = sl_clock_s();
        sl_pool_run(pool, copy_tile, &job, (int64_t) ((job.bytes + COPY_TILE - 1) / COPY_TILE));
        double seconds = sl_clock_s() - start;
        best = SL_MIN(best, seconds);
    }
    sl_free(job.to);
    sl_free(from);
    return total / best;
}

static void measure(const char *label, sl_launch *launch)
{
    const sl_op_def *op = sl_op(launch->op);
    sl_isa isa;
    if (sl_isa_detect(&isa) != SL_OK)
        fail("instruction set");
    const sl_cpu_kernel *kernel = sl_cpu_kernel_find(launch, isa);
    if (!kernel) {
        printf("%-16s %-12s no kernel\n", op->name, label);
        return;
    }
    for (int i = 0; i < SL_MAX_IN; i++)
        if (launch->in[i].type.rank)
            launch->in[i].data = must_alloc(sl_type_bytes(&launch->in[i].type));
    for (int i = 0; i < SL_MAX_OUT; i++)
        if (launch->out[i].type.rank)
            launch->out[i].data = must_alloc(sl_type_bytes(&launch->out[i].type));
    if (sl_op_fill(launch, 1, NULL) != SL_OK)
        fail("fill");
    launch->workspace_bytes = kernel->workspace ? kernel->workspace(launch, threads) : 0;
    launch->workspace = must_alloc(launch->workspace_bytes);
    double best = 1e9;
    for (int i = 0; i < 20; i++) {
        double start = sl_clock_s();
        kernel->run(launch, pool);
        double seconds = sl_clock_s() - start;
        best = SL_MIN(best, seconds);
    }
    sl_work work;
    op->work(launch, &work);
    double bytes = work.read_bytes + work.write_bytes;
    if (op->category == SL_CAT_ATTENTION) {
        printf("%-16s %-12s %9.3f ms %8.1f GFLOP/s\n", op->name, label, best * 1e3, work.hardware_flops / best / 1e9);
    } else {
        double copy = copy_speed(bytes);
        printf("%-16s %-12s %9.3f ms %8.1f GB/s, memcpy %6.1f GB/s, ratio %.2f\n", op->name, label, best * 1e3,
               bytes / best / 1e9, copy / 1e9, bytes / best / copy);
    }
    for (int i = 0; i < SL_MAX_IN; i++)
        sl_free(launch->in[i].data);
    for (int i = 0; i < SL_MAX_OUT; i++)
        sl_free(launch->out[i].data);
    sl_free(launch->workspace);
}

static const char *filter = "";

/* A launch whose outputs come from the op's shape rule. */
static void time_op(sl_op_id id, const char *label, const sl_type *in, int n_in, const sl_attrs *attrs,
                    uint32_t accumulate)
{
    if (!strstr(sl_op(id)->name, filter))
        return;
    sl_launch launch = {.op = id, .accumulate = accumulate, .attrs = *attrs};
    sl_type out[SL_MAX_OUT] = {0};
    if (sl_op(id)->infer(attrs, in, out) != SL_OK)
        fail(sl_op(id)->name);
    for (int i = 0; i < n_in; i++)
        launch.in[i].type = in[i];
    for (int i = 0; i < SL_MAX_OUT; i++)
        launch.out[i].type = out[i];
    measure(label, &launch);
}

static void time_attention(sl_dtype t, const char *label, int64_t n, int64_t m, int64_t sequences, int heads,
                           int kv_heads, int dim)
{
    sl_attrs attrs = {0};
    sl_attention_set(&attrs)->heads = heads;
    sl_attention_set(&attrs)->kv_heads = kv_heads;
    sl_attention_set(&attrs)->head_dim = dim;
    sl_attention_set(&attrs)->causal = 1;
    sl_attention_set(&attrs)->q_offset = m - n;
    sl_attention_set(&attrs)->scale = 0.125f;
    sl_type q = sl_type_2d(t, n, (int64_t) heads * dim), kv = sl_type_2d(t, m, 2 * (int64_t) kv_heads * dim);
    sl_type segments = sl_type_1d(SL_I32, sequences + 1), lse = sl_type_2d(SL_F32, heads, n);
    time_op(SL_OP_ATTENTION, label, (const sl_type[]){q, kv, segments}, 3, &attrs, 0);
    time_op(SL_OP_ATTENTION_BWD, label, (const sl_type[]){q, q, kv, q, lse, segments}, 6, &attrs, 0);
}

static void time_norms(sl_dtype t, const char *label, int64_t n, int64_t d)
{
    sl_type x = sl_type_2d(t, n, d), w = sl_type_1d(t, d), row = sl_type_1d(SL_F32, n);
    sl_attrs attrs = {0};
    sl_norm_set(&attrs)->eps = 1e-5f;
    time_op(SL_OP_RMSNORM, label, (const sl_type[]){x, w}, 2, &attrs, 0);
    time_op(SL_OP_RMSNORM_BWD, label, (const sl_type[]){x, x, w, row}, 4, &attrs, 3);
    time_op(SL_OP_LAYERNORM, label, (const sl_type[]){x, w, w}, 3, &attrs, 0);
    time_op(SL_OP_LAYERNORM_BWD, label, (const sl_type[]){x, x, w, row, row}, 5, &attrs, 7);
}

static void time_elementwise(sl_dtype t, const char *label, int64_t n, int64_t d, int64_t f)
{
    sl_type x = sl_type_2d(t, n, d), s = sl_type_2d(t, n, f), gu = sl_type_2d(t, n, 2 * f);
    sl_type step = sl_type_1d(SL_I32, SL_STEP_WORDS), tokens = sl_type_1d(SL_I32, n);
    sl_attrs none = {0}, scale = {0}, dropout = {0}, tanh_form = {0}, rope = {0}, rows = {0};
    scale.scale.value = 0.5f;
    dropout.dropout.probability = 0.1f;
    tanh_form.gelu.tanh = 1;
    rope.rope.heads = (int32_t) (d / 64);
    rope.rope.kv_heads = (int32_t) (d / 64);
    rope.rope.head_dim = 64;
    rope.rope.style = SL_ROPE_HALF;
    rope.rope.theta = 10000;
    rows.embedding.rows = 10000;
    time_op(SL_OP_ADD, label, (const sl_type[]){x, x}, 2, &none, 0);
    time_op(SL_OP_SCALE, label, &x, 1, &scale, 0);
    time_op(SL_OP_CAST, label, &x, 1, &none, 0);
    time_op(SL_OP_DROPOUT, label, (const sl_type[]){x, step}, 2, &dropout, 0);
    time_op(SL_OP_SWIGLU, label, &gu, 1, &none, 0);
    time_op(SL_OP_SWIGLU_BWD, label, (const sl_type[]){s, gu}, 2, &none, 0);
    time_op(SL_OP_GELU, label, &s, 1, &none, 0);
    time_op(SL_OP_GELU_BWD, label, (const sl_type[]){s, s}, 2, &none, 0);
    time_op(SL_OP_GELU, label, &s, 1, &tanh_form, 0);
    time_op(SL_OP_GELU_BWD, label, (const sl_type[]){s, s}, 2, &tanh_form, 0);
    time_op(SL_OP_ROPE, label, (const sl_type[]){sl_type_2d(t, n, 3 * d), tokens}, 2, &rope, 0);
    time_op(SL_OP_ROPE_BWD, label, (const sl_type[]){x, sl_type_2d(t, n, 2 * d), tokens}, 3, &rope, 0);
    time_op(SL_OP_EMBEDDING, label, (const sl_type[]){sl_type_2d(t, 10000, d), tokens}, 2, &none, 0);
    time_op(SL_OP_EMBEDDING_BWD, label, (const sl_type[]){x, tokens}, 2, &rows, 0);
    time_op(SL_OP_EMBEDDING_BWD, label, (const sl_type[]){x, tokens}, 2, &rows, 1);
    time_op(SL_OP_BIAS_GRAD, label, &s, 1, &none, 1);
}

/* 7 million parameters, a layer of `small`. */
static void time_optimizers(void)
{
    const int64_t count = 7077888;
    for (int policy = 0; policy < 3; policy++) {
        static const char *const names[] = {"f32", "bf16", "bf16-master"};
        sl_launch launch = {.op = SL_OP_ADAMW};
        sl_dtype t = policy ? SL_BF16 : SL_F32, state = policy == 1 ? SL_BF16 : SL_F32;
        sl_adamw_set(&launch.attrs)->beta1 = 0.9f;
        sl_adamw_set(&launch.attrs)->beta2 = 0.999f;
        sl_adamw_set(&launch.attrs)->eps = 1e-8f;
        sl_adamw_set(&launch.attrs)->weight_decay = 0.1f;
        sl_adamw_set(&launch.attrs)->decayed = count;
        sl_adamw_set(&launch.attrs)->stochastic = policy == 1;
        launch.in[0].type = launch.out[0].type = sl_type_1d(t, count);
        launch.in[1].type = sl_type_1d(SL_I32, SL_STEP_WORDS);
        launch.out[1].type = launch.out[2].type = sl_type_1d(state, count);
        if (policy == 2)
            launch.out[3].type = sl_type_1d(SL_F32, count);
        if (strstr("adamw", filter))
            measure(names[policy], &launch);
    }
    sl_attrs none = {0};
    sl_type f32 = sl_type_1d(SL_F32, count), bf16 = sl_type_1d(SL_BF16, count);
    time_op(SL_OP_SUM_SQUARES, "f32", &f32, 1, &none, 0);
    time_op(SL_OP_SUM_SQUARES, "bf16", &bf16, 1, &none, 0);
}

int main(int argc, char **argv)
{
    threads = argc > 1 ? atoi(argv[1]) : 0;
    if (argc > 2)
        filter = argv[2];
    if (sl_pool_create(threads, &pool) != SL_OK)
        fail("pool");
    threads = sl_pool_threads(pool);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        sl_dtype t = bf16 ? SL_BF16 : SL_F32;
        const char *label = bf16 ? "bf16" : "f32";
        time_attention(t, bf16 ? "bf16 4x256" : "f32 4x256", 1024, 1024, 4, 12, 12, 64);
        time_attention(t, bf16 ? "bf16 4x64" : "f32 4x64", 256, 256, 4, 12, 12, 64);
        time_attention(t, bf16 ? "bf16 1024" : "f32 1024", 1024, 1024, 1, 12, 12, 64);
        time_attention(t, bf16 ? "bf16 gqa 128" : "f32 gqa 128", 1024, 2048, 1, 32, 8, 128);
        time_attention(t, bf16 ? "bf16 slice" : "f32 slice", 1024, 16384, 1, 4, 2, 32);
        time_norms(t, label, 1024, 768);
        time_elementwise(t, label, 1024, 768, 2048);
    }
    time_optimizers();
    sl_pool_destroy(pool);
    return 0;
}
