/* Times one GEMM at a time, ours or a library's, as read from standard input. bench/peers/gemm_torch.py writes the requests, so that
 * our time, the libraries' and PyTorch's for a shape are measured in turn, in one run. Built by bench/gemm.sh.
 *
 * A request is a line "LIBRARY DTYPE TRANS_A TRANS_B M N K THREADS SECONDS"; LIBRARY is sluice-avx2, sluice-avx512,
 * sluice-amx, openblas, onednn or peak (register-only multiply-adds: what the cores could do at best). The answer is
 * "GFLOP/s", or 0 where the library is not there or has no such product. Operands are random: on zeros some machines
 * run faster. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if __has_include(<dnnl.h>)
#include <dnnl.h>
#define HAVE_ONEDNN 1
#else
#define HAVE_ONEDNN 0
#endif

#include "core/bf16.h"
#include "core/clock.h"
#include "core/mem.h"
#include "device/cpu/gemm/gemm.h"

typedef struct request {
    char library[32], dtype[8];
    int trans_a, trans_b, threads;
    long m, n, k;
    double seconds;
    void *a, *b, *c, *workspace;
    sl_pool *pool;
} request;

static void fail(const char *what)
{
    fprintf(stderr, "gemm: %s\n", what);
    exit(1);
}

/* Huge pages where the system grants them, as the device's arena has; aligned to one, as any part of a large arena is
 * about. */
static void *must_alloc(size_t bytes)
{
    const size_t page = (size_t) 2 << 20, whole = SL_ROUND_UP(bytes + 64, page);
    void *out;
    if (sl_alloc_aligned(&out, whole, 1, page) != SL_OK)
        fail(sl_error_message());
    madvise(out, whole, MADV_HUGEPAGE);
    return out;
}

static bool is_bf16(const request *ask)
{
    return strcmp(ask->dtype, "bf16") == 0;
}

static void *random_matrix(const request *ask, long count)
{
    static uint32_t state = 1;
    void *out = must_alloc((size_t) count * 4);
    for (long i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        float x = (float) (int32_t) state * 0x1p-31f;
        if (is_bf16(ask))
            ((sl_bf16 *) out)[i] = sl_f32_to_bf16(x);
        else
            ((float *) out)[i] = x;
    }
    return out;
}

/* ---- ours ---- */
static const sl_gemm_isa *isa_of(const char *library)
{
    __builtin_cpu_init();
    if (strcmp(library, "sluice-avx2") == 0)
        return &sl_gemm_avx2;
    if (strcmp(library, "sluice-avx512") == 0 && __builtin_cpu_supports("avx512bw"))
        return &sl_gemm_avx512;
#ifdef GEMM_AMX
    if (strcmp(library, "sluice-amx") == 0 && syscall(SYS_arch_prctl, 0x1023, 18) == 0)
        return &sl_gemm_amx;
#endif
    return NULL;
}

static sl_gemm gemm_of(const request *ask)
{
    const sl_dtype dtype = is_bf16(ask) ? SL_BF16 : SL_F32;
    sl_gemm gemm = {.m = ask->m, .n = ask->n, .k = ask->k, .c = ask->c, .c_leading = ask->n, .c_dtype = dtype};
    gemm.a = (sl_gemm_matrix){ask->a, ask->trans_a ? ask->m : ask->k, dtype, ask->trans_a};
    gemm.b = (sl_gemm_matrix){ask->b, ask->trans_b ? ask->k : ask->n, dtype, ask->trans_b};
    return gemm;
}

static bool run_sluice(request *ask)
{
    const sl_gemm_isa *isa = isa_of(ask->library);
    if (!isa)
        return false;
    sl_gemm gemm = gemm_of(ask);
    if (!ask->pool && sl_pool_create(ask->threads, &ask->pool) != SL_OK)
        fail(sl_error_message());
    if (!ask->workspace)
        ask->workspace = must_alloc(sl_gemm_workspace(isa, &gemm, ask->threads));
    sl_gemm_run(isa, &gemm, ask->workspace, ask->pool);
    return true;
}

/* ---- OpenBLAS, loaded so that the bench builds without it ---- */
typedef void (*sgemm_fn)(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                         const float *b, int ldb, float beta, float *c, int ldc);

static bool run_openblas(request *ask)
{
    static sgemm_fn sgemm;
    static void (*set_threads)(int);
    if (!sgemm) {
        const char *path = getenv("GEMM_OPENBLAS");
        void *library = dlopen(path ? path : "libopenblas.so.0", RTLD_NOW);
        if (!library)
            return false;
        *(void **) &sgemm = dlsym(library, "cblas_sgemm");
        *(void **) &set_threads = dlsym(library, "openblas_set_num_threads");
    }
    if (is_bf16(ask) || !sgemm || !set_threads)
        return false;
    set_threads(ask->threads);
    sgemm(101, 111 + ask->trans_a, 111 + ask->trans_b, (int) ask->m, (int) ask->n, (int) ask->k, 1, ask->a,
          (int) (ask->trans_a ? ask->m : ask->k), ask->b, (int) (ask->trans_b ? ask->k : ask->n), 0, ask->c,
          (int) ask->n);
    return true;
}

/* ---- oneDNN (Debian's runs on TBB or OpenMP; its thread count is the process's, set by gemm.sh) ---- */
#if HAVE_ONEDNN
#define DNN(call) ((call) == dnnl_success ? (void) 0 : fail(#call))
static bool run_onednn(request *ask)
{
    static dnnl_engine_t engine;
    static dnnl_stream_t stream;
    static dnnl_primitive_t primitive;
    static dnnl_memory_t memory[3];
    if (!engine) {
        DNN(dnnl_engine_create(&engine, dnnl_cpu, 0));
        DNN(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags));
    }
    if (!ask->workspace) {
        const dnnl_data_type_t type = is_bf16(ask) ? dnnl_bf16 : dnnl_f32;
        dnnl_memory_desc_t desc[3];
        const dnnl_dims_t dims[3] = {{ask->m, ask->k}, {ask->k, ask->n}, {ask->m, ask->n}};
        DNN(dnnl_memory_desc_init_by_tag(&desc[0], 2, dims[0], type, ask->trans_a ? dnnl_ba : dnnl_ab));
        DNN(dnnl_memory_desc_init_by_tag(&desc[1], 2, dims[1], type, ask->trans_b ? dnnl_ba : dnnl_ab));
        DNN(dnnl_memory_desc_init_by_tag(&desc[2], 2, dims[2], type, dnnl_ab));
        dnnl_matmul_desc_t matmul;
        dnnl_primitive_desc_t chosen;
        DNN(dnnl_matmul_desc_init(&matmul, &desc[0], &desc[1], NULL, &desc[2]));
        if (dnnl_primitive_desc_create(&chosen, &matmul, NULL, engine, NULL) != dnnl_success)
            return false;
        DNN(dnnl_primitive_create(&primitive, chosen));
        void *data[3] = {ask->a, ask->b, ask->c};
        for (int i = 0; i < 3; i++)
            DNN(dnnl_memory_create(&memory[i], &desc[i], engine, data[i]));
        ask->workspace = must_alloc(1); /* marks it ready; the few hundred bytes of the primitive are left behind */
    }
    const dnnl_exec_arg_t args[3] = {
        {DNNL_ARG_SRC, memory[0]}, {DNNL_ARG_WEIGHTS, memory[1]}, {DNNL_ARG_DST, memory[2]}};
    DNN(dnnl_primitive_execute(primitive, stream, 3, args));
    DNN(dnnl_stream_wait(stream));
    return true;
}
#else
static bool run_onednn(request *ask)
{
    (void) ask;
    return false;
}
#endif

/* ---- peak: independent chains of multiply-adds, enough to fill the pipes ---- */
#if defined(__x86_64__)
#include <immintrin.h>
#define CHAINS 20
#define ROUNDS 2000
__attribute__((target("avx512f"))) static void chains(void *out, int64_t tile, int thread)
{
    (void) tile;
    __m512 sum[CHAINS], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-3f);
#pragma GCC unroll 20
    for (int i = 0; i < CHAINS; i++)
        sum[i] = _mm512_set1_ps((float) i);
    for (int r = 0; r < ROUNDS; r++) {
#pragma GCC unroll 20
        for (int i = 0; i < CHAINS; i++) {
            sum[i] = _mm512_fmadd_ps(sum[i], x, y);
            __asm__ volatile("" : "+v"(sum[i]));
        }
    }
#pragma GCC unroll 20
    for (int i = 1; i < CHAINS; i++)
        sum[0] = _mm512_add_ps(sum[0], sum[i]);
    _mm512_storeu_ps((float *) out + 16 * thread, sum[0]);
}
/* In units of the request's flops, so that the caller divides alike. */
static bool run_peak(request *ask)
{
    if (!__builtin_cpu_supports("avx512f"))
        return false;
    if (!ask->pool && sl_pool_create(ask->threads, &ask->pool) != SL_OK)
        fail(sl_error_message());
    sl_pool_run(ask->pool, chains, ask->c,
                (int64_t) (2.0 * (double) ask->m * (double) ask->n * (double) ask->k / (2.0 * 16 * CHAINS * ROUNDS)));
    return true;
}
#else
static bool run_peak(request *ask)
{
    (void) ask;
    return false;
}
#endif

static bool run_once(request *ask)
{
    if (strcmp(ask->library, "peak") == 0)
        return run_peak(ask);
    if (strcmp(ask->library, "openblas") == 0)
        return run_openblas(ask);
    if (strcmp(ask->library, "onednn") == 0)
        return run_onednn(ask);
    return run_sluice(ask);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

/* GEMM_CPU_TIME: count the time this process had, not the time that passed; for one thread on a busy machine. */
static double now(void)
{
    if (!getenv("GEMM_CPU_TIME"))
        return sl_clock_s();
    struct timespec spent;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
    return (double) spent.tv_sec + 1e-9 * (double) spent.tv_nsec;
}

/* Median time of a run over `seconds`; 0: no such product. */
static double median_time(request *ask)
{
    double times[1000];
    int count = 0;
    if (!run_once(ask))
        return 0;
    const double start = now();
    while (count < 1000 && (count < 3 || now() - start < ask->seconds)) {
        const double before = now();
        run_once(ask);
        times[count++] = now() - before;
    }
    qsort(times, (size_t) count, sizeof *times, by_value);
    return times[count / 2];
}

int main(void)
{
    char line[256];
    while (fgets(line, sizeof line, stdin)) {
        request ask = {0};
        if (sscanf(line, "%31s %7s %d %d %ld %ld %ld %d %lf", ask.library, ask.dtype, &ask.trans_a, &ask.trans_b,
                   &ask.m, &ask.n, &ask.k, &ask.threads, &ask.seconds) != 9)
            fail("a request is LIBRARY DTYPE TRANS_A TRANS_B M N K THREADS SECONDS");
        ask.a = random_matrix(&ask, ask.m * ask.k);
        ask.b = random_matrix(&ask, ask.k * ask.n);
        ask.c = must_alloc((size_t) (ask.m * ask.n) * 4 + 65536);
        memset(ask.c, 0, (size_t) (ask.m * ask.n) * 4);
        const double time = median_time(&ask);
        printf("%.3f\n", time > 0 ? 2e-9 * (double) ask.m * (double) ask.n * (double) ask.k / time : 0.0);
        fflush(stdout);
        sl_free(ask.a), sl_free(ask.b), sl_free(ask.c), sl_free(ask.workspace);
        sl_pool_destroy(ask.pool);
    }
    return 0;
}
