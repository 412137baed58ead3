/*
 * `sluice bench attention`: naive against tiled over grids of lengths and head dimensions, forward, backward and both,
 * with the memory each takes. What does not fit is a row too. No speed without a check: a few rows of the output and of
 * the gradient are held against exact arithmetic.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/attention_case.h"
#include "bench/bench.h"
#include "bench/guard.h"
#include "bench/machine.h"
#include "bench/published.h"
#include "bench/tile_reference.h"
#include "core/clock.h"

enum { MOST = 16 };
#define PARTS "grid,long,tiles,leaderboard"

static const sl_option options[] = {
    {"seqlens", "N,N,...", SL_OPT_STRING, NULL, "Attention",
     "lengths; default: 256,1024,4096 on a CPU, 256 to 16384 on a GPU"},
    {"dims", "N,N,...", SL_OPT_STRING, NULL, "Attention", "head dimensions; default: 16,32,64,128 (64 on a CPU)"},
    {"dtypes", "NAME,...", SL_OPT_STRING, "f32,bf16", "Attention", "f32, bf16"},
    {"batch", "N", SL_OPT_I64, NULL, "Attention", "sequences of the grid; default: 8"},
    {"causal", NULL, SL_OPT_FLAG, "false", "Attention", "the grid with a causal mask"},
    {"device-mem", "BYTES", SL_OPT_BYTES, NULL, "Attention", "memory that may be used; default: what the device has"},
    {"parts", "NAME,...", SL_OPT_STRING, PARTS, "Attention",
     "grid: naive against tiled; long: one causal sequence of growing length, tiled; tiles: queries per launch; "
     "leaderboard: 16 "
     "heads of 16384 x 64, causal, bf16, forward and backward"},
    {"cell-seconds", "S", SL_OPT_F64, NULL, "Attention",
     "most seconds spent on timing one cell; what takes longer for a single pass (and more than one second) is left "
     "out"},
    SL_OPTION_PUBLISHED,
};

typedef struct bench {
    const sl_bench_job *job;
    sl_results *results;
    sl_rig rig;
    int64_t seqlens[MOST], n_seqlens, dims[MOST], n_dims, batch;
    sl_dtype dtypes[2];
    int n_dtypes;
    double cell_s;
    double both_s; /* > 0: forward and backward together, a second of warming up and this many of runs */
    bool gpu;
    struct {
        sl_attention_shape shape;
        double pass_s;
    } last[2]; /* naive, tiled: the last shape that ran, to foretell a longer one */
    /* The numbers of the last shape: both ways get the same. */
    sl_region *drawn;
    sl_attention_shape drawn_shape;
    sl_attention_data data;
} bench;

typedef struct cell {
    sl_stats forward, backward, both;
    double bytes, workspace, account, error;
    sl_status status;
    char why[160]; /* there are no times */
} cell;

static double tolerance_of(sl_dtype dtype)
{
    return dtype == SL_BF16 ? 2e-2 : 1e-4;
}

static sl_status time_case(bench *b, const sl_attention_case *c, cell *out)
{
    sl_launch *all;
    int64_t n = c->n_forward + c->n_backward;
    double limit = b->cell_s / 3;
    SL_TRY(sl_alloc(&all, n, sizeof *all));
    memcpy(all, c->forward, (size_t) c->n_forward * sizeof *all);
    memcpy(all + c->n_forward, c->backward, (size_t) c->n_backward * sizeof *all);
    const sl_bench_job *job = b->job;
    sl_status status = sl_rig_time(&b->rig, c->forward, c->n_forward, job->warmup, job->steps, limit, &out->forward);
    if (status == SL_OK)
        status = sl_rig_time(&b->rig, c->backward, c->n_backward, job->warmup, job->steps, limit, &out->backward);
    double pass_s = out->forward.median + out->backward.median;
    if (status == SL_OK && b->both_s > 0 && pass_s > 0)
        status = sl_rig_time(&b->rig, all, n, (int64_t) (1 / pass_s) + 1, (int64_t) (b->both_s / pass_s) + 1,
                             2 + 2 * b->both_s, &out->both);
    else if (status == SL_OK)
        status = sl_rig_time(&b->rig, all, n, job->warmup, job->steps, limit, &out->both);
    sl_free(all);
    return status;
}

/* Seconds of a pass, predicted from the last, shorter one of the same kind; 0: there is none. */
static double foretell(const bench *b, const sl_attention_shape *s, bool naive)
{
    const sl_attention_shape *had = &b->last[naive].shape;
    if (had->batch != s->batch || had->heads != s->heads || had->dim != s->dim || had->causal != s->causal ||
        had->dtype != s->dtype || had->seqlen >= s->seqlen)
        return 0;
    return b->last[naive].pass_s * sl_attention_flops(s, false) / sl_attention_flops(had, false);
}

static sl_status draw(bench *b, const sl_attention_shape *s)
{
    const sl_attention_shape *had = &b->drawn_shape;
    if (b->drawn && had->batch == s->batch && had->heads == s->heads && had->seqlen == s->seqlen &&
        had->dim == s->dim && had->dtype == s->dtype)
        return SL_OK;
    sl_region_destroy(b->drawn);
    b->drawn = NULL;
    SL_TRY(sl_region_create(&b->drawn));
    sl_status status = sl_attention_draw(b->drawn, s, 7, &b->data);
    b->drawn_shape = *s;
    if (status != SL_OK) {
        sl_region_destroy(b->drawn);
        b->drawn = NULL;
    }
    return status;
}

/* Not fitting and not being supported are answers too. */
static bool is_answer(const cell *c)
{
    return c->status == SL_E_DOES_NOT_FIT || c->status == SL_E_UNSUPPORTED || c->why[0];
}

static sl_status measure_case(bench *b, const sl_attention_case *c, bool naive, cell *out)
{
    out->bytes = (double) c->bytes;
    out->workspace = (double) c->workspace_bytes;
    SL_TRY(time_case(b, c, out));
    b->last[naive].shape = c->shape;
    b->last[naive].pass_s = out->forward.median + out->backward.median;
    return sl_attention_check(&b->rig, c, &b->data, &out->error);
}

/* One shape in one way. */
static sl_status run_case(bench *b, const sl_attention_shape *s, bool naive, int64_t rows, cell *out)
{
    sl_region *region;
    sl_attention_case c;
    *out = (cell){.account = sl_attention_account(s, naive, true)};
    b->rig.used = b->rig.peak = 0;
    double pass_s = foretell(b, s, naive);
    if (pass_s > SL_MAX(b->cell_s, 1)) {
        snprintf(out->why, sizeof out->why, "left out: about %.2g s a pass", pass_s);
        return SL_OK;
    }
    if (out->account > (double) b->rig.bytes) {
        snprintf(out->why, sizeof out->why, "out of memory");
        return SL_OK;
    }
    SL_TRY(draw(b, s));
    SL_TRY(sl_region_create(&region));
    out->status = naive ? sl_attention_naive(&b->rig, region, s, &b->data, &c)
                        : sl_attention_tiled(&b->rig, region, s, rows, &b->data, &c);
    sl_status status = out->status;
    if (out->status == SL_E_DOES_NOT_FIT)
        snprintf(out->why, sizeof out->why, "out of memory");
    else if (out->status == SL_E_UNSUPPORTED)
        snprintf(out->why, sizeof out->why, "not on this device: %.120s", sl_error_message());
    else if (out->status == SL_OK)
        status = measure_case(b, &c, naive, out);
    sl_region_destroy(region);
    return is_answer(out) ? SL_OK : status;
}

static const char *verdict(bench *b, const sl_attention_shape *s, const char *way, cell *c)
{
    char what[160];
    if (c->why[0])
        return c->why;
    snprintf(what, sizeof what, "%s attention, %lld x %lld x %lld x %lld, %s", way, (long long) s->batch,
             (long long) s->heads, (long long) s->seqlen, (long long) s->dim, sl_dtype_name(s->dtype));
    return sl_guard(b->results, what, c->error, tolerance_of(s->dtype)) ? "right" : "wrong";
}

static sl_cell ms(const char *evaluated, double seconds)
{
    return strcmp(evaluated, "right") == 0 ? sl_cell_number(1e3 * seconds) : sl_cell_none();
}

static sl_cell mib(const cell *c)
{
    return c->bytes > 0 ? sl_cell_number(c->bytes / (1 << 20)) : sl_cell_none();
}

/* ---- B11, B12: the grid ---- */

static const char grid_columns[] =
    "dtype dim seqlen way forward_ms:ms.3 forward_std_ms:ms.3 backward_ms:ms.3 both_ms:ms.3 forward_tflops:TFLOP/s.3 "
    "memory_mib:MiB.2 accounted_mib:MiB.2 workspace_mib:MiB.2 speed_up:.2* verdict";

static void grid_row(bench *b, sl_table *t, const sl_attention_shape *s, const char *way, cell *c, double naive_forward)
{
    const char *evaluated = verdict(b, s, way, c);
    bool right = strcmp(evaluated, "right") == 0;
    SL_ROW(t, sl_dtype_name(s->dtype), s->dim, s->seqlen, way, ms(evaluated, c->forward.mean),
           ms(evaluated, c->forward.std), ms(evaluated, c->backward.mean), ms(evaluated, c->both.mean),
           sl_cell_if(right, 1e-12 * sl_attention_flops(s, false) / c->forward.median), mib(c), c->account / (1 << 20),
           sl_cell_if(c->bytes > 0, c->workspace / (1 << 20)),
           sl_cell_if(right && naive_forward > 0, naive_forward / c->forward.median), evaluated);
}

static sl_status grid_table(bench *b)
{
    bool causal = sl_options_flag(b->job->options, "causal");
    char title[160];
    snprintf(title, sizeof title, "Naive and tiled attention, batch %lld, one head%s", (long long) b->batch,
             causal ? ", causal" : "");
    sl_table *t = sl_results_table(b->results, "grid", title, grid_columns);
    for (int e = 0; e < b->n_dtypes; e++)
        for (int64_t d = 0; d < b->n_dims; d++)
            for (int64_t l = 0; l < b->n_seqlens; l++) {
                sl_attention_shape s = {b->batch, 1, b->seqlens[l], b->dims[d], causal, b->dtypes[e]};
                cell naive, tiled;
                sl_bench_progress(b->job, "%s, dim %lld, length %lld", sl_dtype_name(s.dtype), (long long) s.dim,
                                  (long long) s.seqlen);
                SL_TRY(run_case(b, &s, true, 0, &naive));
                SL_TRY(run_case(b, &s, false, 0, &tiled));
                grid_row(b, t, &s, "naive", &naive, 0);
                grid_row(b, t, &s, "tiled", &tiled, naive.forward.median);
            }
    if (sl_options_flag(b->job->options, "published"))
        sl_published_attention(b->results);
    return SL_OK;
}

/* ---- F3: memory over length ---- */

static sl_status long_table(bench *b)
{
    sl_table *t =
        sl_results_table(b->results, "long",
                         "One causal sequence: time grows with its square, tiled memory with its length", grid_columns);
    int64_t last = b->job->quick ? 1024 : b->gpu ? 131072 : 8192;
    for (int e = 0; e < b->n_dtypes; e++)
        for (int64_t length = 128; length <= last; length *= 2) {
            sl_attention_shape s = {1, 1, length, 64, true, b->dtypes[e]};
            cell naive, tiled;
            sl_bench_progress(b->job, "one sequence of %lld, %s", (long long) length, sl_dtype_name(s.dtype));
            SL_TRY(run_case(b, &s, true, 0, &naive));
            SL_TRY(run_case(b, &s, false, 0, &tiled));
            grid_row(b, t, &s, "naive", &naive, 0);
            grid_row(b, t, &s, "tiled", &tiled, naive.forward.median);
        }
    return SL_OK;
}

/* ---- F5: tiles ---- */

/* The plain algorithm at several tiles, on the host: what the tile changes, and where it no longer fits on a chip. */
static sl_status reference_row(bench *b, const sl_attention_shape *s, int64_t tile, sl_pool *pool, float *o, float *lse,
                               double *p, sl_table *t)
{
    enum { RUNS = 3 };
    double times[RUNS], error = 0, *want = p + s->seqlen;
    sl_stats stats;
    char what[96];
    size_t scratch = sl_tile_scratch(tile, s->dim);
    for (int i = 0; i < RUNS; i++) {
        double start = sl_clock_s();
        sl_status status = sl_tile_forward(s, &b->data, tile, SL_ON_CHIP_BYTES, pool, o, lse);
        times[i] = sl_clock_s() - start;
        if (status == SL_E_DOES_NOT_FIT) {
            SL_ROW(t, tile, (double) scratch / 1024, sl_tile_traffic(s, tile) / (1 << 20), sl_cell_none(),
                   "out of on-chip memory");
            return SL_OK;
        }
        SL_TRY(status);
    }
    for (int i = 0; i < 4; i++) {
        int64_t row = (s->seqlen - 1) * (i + 1) / 4, item = (s->heads - 1) * i / 3;
        sl_attention_exact(s, &b->data, item, row, p, want, want + s->dim);
        for (int64_t c = 0; c < s->dim; c++)
            error = fmax(error, fabs((double) o[(item * s->seqlen + row) * s->dim + c] - want[c]));
    }
    sl_stats_of(times, RUNS, &stats);
    snprintf(what, sizeof what, "plain tiled attention, tile %lld", (long long) tile);
    bool right = sl_guard(b->results, what, error, 1e-5);
    SL_ROW(t, tile, (double) scratch / 1024, sl_tile_traffic(s, tile) / (1 << 20),
           sl_cell_if(right, 1e3 * stats.median), right ? "right" : "wrong");
    return SL_OK;
}

static sl_status reference_table(bench *b)
{
    static const int64_t tiles[] = {16, 32, 64, 128, 256};
    sl_attention_shape s = {1, 4, b->job->quick ? 256 : 1024, 64, true, SL_F32};
    sl_table *t = sl_results_table(
        b->results, "tile_reference",
        "Tiles of the plain algorithm, f32, 64 wide: memory on chip against traffic (Hopper's 227 KiB are the limit)",
        "tile on_chip_kib:KiB.1 traffic_mib:MiB.2* host_ms:ms.3 verdict");
    sl_region *region;
    sl_pool *pool;
    float *o, *lse;
    double *p;
    SL_TRY(draw(b, &s));
    SL_TRY(sl_region_create(&region));
    sl_status status = sl_pool_create(b->job->threads, &pool);
    if (status != SL_OK) {
        sl_region_destroy(region);
        return status;
    }
    SL_TRY_GOTO(sl_region_alloc(region, &o, s.heads * s.seqlen * s.dim, sizeof *o), done);
    SL_TRY_GOTO(sl_region_alloc(region, &lse, s.heads * s.seqlen, sizeof *lse), done);
    SL_TRY_GOTO(sl_region_alloc(region, &p, s.seqlen + 2 * s.dim, sizeof *p), done);
    for (int64_t i = 0; i < SL_COUNT(tiles); i++)
        SL_TRY_GOTO(reference_row(b, &s, tiles[i], pool, o, lse, p, t), done);
done:
    sl_pool_destroy(pool);
    sl_region_destroy(region);
    return status;
}

static sl_status tile_table(bench *b)
{
    int64_t heads = b->job->quick ? 2 : 16, length = b->job->quick ? 512 : b->gpu ? 16384 : 2048;
    sl_attention_shape s = {1, heads, length, 64, true, SL_BF16};
    char title[160];
    snprintf(title, sizeof title,
             "Queries per launch, %lld heads of %lld x 64, causal, bf16 (kernels choose their own tiles within)",
             (long long) heads, (long long) length);
    sl_table *t =
        sl_results_table(b->results, "tiles", title,
                         "queries launches forward_ms:ms.3 backward_ms:ms.3 both_ms:ms.3* memory_mib:MiB.2 verdict");
    for (int64_t queries = 16, next; queries <= length; queries = next) { /* the last row: all of them in one launch */
        next = queries == length ? length + 1 : SL_MIN(queries * (queries < 256 ? 2 : 4), length);
        cell c;
        int64_t launches = length / queries;
        sl_bench_progress(b->job, "%lld queries per launch", (long long) queries);
        if (launches > (b->gpu ? 16 : 1024)) {
            c = (cell){.why = "left out: a GPU's library prepares every length anew"};
        } else {
            SL_TRY(run_case(b, &s, false, queries, &c));
        }
        const char *evaluated = verdict(b, &s, "sliced", &c);
        SL_ROW(t, queries, launches, ms(evaluated, c.forward.mean), ms(evaluated, c.backward.mean),
               ms(evaluated, c.both.mean), mib(&c), evaluated);
    }
    return reference_table(b);
}

/* ---- F4: the leaderboard's shape ---- */

static sl_status leaderboard_row(bench *b, const sl_attention_shape *s, const char *way, sl_table *t)
{
    char shape[64];
    double work = sl_attention_flops(s, false) + sl_attention_flops(s, true);
    cell c;
    snprintf(shape, sizeof shape, "16 x %lld x 64", (long long) s->seqlen);
    sl_bench_progress(b->job, "%s, %s", shape, way);
    SL_TRY(run_case(b, s, false, 0, &c));
    const char *evaluated = verdict(b, s, "tiled", &c);
    SL_ROW(t, shape, way, "this machine", ms(evaluated, c.forward.median), ms(evaluated, c.backward.median),
           ms(evaluated, c.both.mean), ms(evaluated, c.both.std), ms(evaluated, c.both.median),
           sl_cell_if(strcmp(evaluated, "right") == 0, 1e-12 * work / c.both.median), mib(&c), evaluated);
    return SL_OK;
}

/* On a GPU with the published protocol: a second of warming up, ten of runs. A library may want gigabytes for a
 * backward without atomics; rows where it gets less show what that costs. */
static sl_status leaderboard_runs(bench *b, sl_table *t)
{
    static const struct {
        const char *way;
        size_t workspace;
    } less[] = {{"tiled, workspace of 4 GiB at most", (size_t) 4 << 30},
                {"tiled, workspace of 1 GiB at most", (size_t) 1 << 30}};
    bool whole = b->gpu && !b->job->quick;
    /* Minutes on a CPU: a quarter of the length there. */
    sl_attention_shape s = {1, 16, b->job->quick ? 512 : b->gpu ? 16384 : 4096, 64, true, SL_BF16};
    b->both_s = whole ? 10 : 0;
    sl_status status = leaderboard_row(b, &s, "tiled", t);
    b->rig.nondeterministic = true;
    if (whole && status == SL_OK)
        status = leaderboard_row(b, &s, "tiled, sums in any order", t);
    b->rig.nondeterministic = false;
    b->both_s = whole ? 1 : 0;
    for (int64_t i = 0; i < SL_COUNT(less) && whole && status == SL_OK; i++) {
        b->rig.workspace_limit = less[i].workspace;
        status = leaderboard_row(b, &s, less[i].way, t);
    }
    b->rig.workspace_limit = 0;
    b->both_s = 0;
    return status;
}

static sl_status leaderboard_table(bench *b)
{
    sl_table *t = sl_results_table(b->results, "leaderboard",
                                   "16 heads of 16384 x 64, causal, bf16, forward and backward (1.92 TFLOP)",
                                   "shape way hardware forward_ms:ms.3 backward_ms:ms.3 both_ms:ms.3* std_ms:ms.3 "
                                   "median_ms:ms.3 tflops:TFLOP/s.1 memory_mib:MiB.1 verdict");
    SL_TRY(leaderboard_runs(b, t));
    const sl_attention_shape shape = {1, 16, 16384, 64, true, SL_BF16};
    if (sl_options_flag(b->job->options, "published"))
        sl_published_leaderboard(t, sl_attention_flops(&shape, false) + sl_attention_flops(&shape, true));
    return SL_OK;
}

/* ---- */

static sl_status parse_dtypes(const char *list, bench *b)
{
    char item[64];
    while (sl_list_next(&list, item)) {
        bool bf16 = strcmp(item, "bf16") == 0;
        if ((!bf16 && strcmp(item, "f32") != 0) || b->n_dtypes == 2)
            return sl_fail(SL_E_USAGE, "--dtypes: give f32, bf16 or both, with a comma");
        b->dtypes[b->n_dtypes++] = bf16 ? SL_BF16 : SL_F32;
    }
    return SL_OK;
}

static sl_status open_rig(bench *b)
{
    const sl_options *o = b->job->options;
    sl_hardware hardware;
    SL_TRY(sl_machine_hardware(b->job->device, b->job->threads, &hardware));
    b->gpu = !hardware.shared_cores;
    double bytes =
        b->gpu ? 0.9 * (double) hardware.memory_bytes[SL_TIER_DEVICE] : 0.5 * (double) sl_machine_available_bytes();
    if (b->job->quick && !b->gpu)
        bytes = 12 << 20; /* small enough for the naive way to meet its end */
    if (sl_options_is_set(o, "device-mem"))
        bytes = (double) sl_options_bytes(o, "device-mem");
    return sl_rig_open(b->job->device, b->job->threads, (size_t) bytes, &b->rig);
}

static sl_status resolve(bench *b)
{
    const sl_options *o = b->job->options;
    bool quick = b->job->quick;
    const char *seqlens = sl_options_string_or(o, "seqlens",
                                               quick    ? "128,512"
                                               : b->gpu ? "256,1024,4096,8192,16384"
                                                        : "256,1024,4096");
    const char *dims = sl_options_string_or(o, "dims", quick ? "16,64" : b->gpu ? "16,32,64,128" : "64");
    b->batch = sl_options_i64_or(o, "batch", quick ? 2 : 8);
    b->cell_s = sl_options_is_set(o, "cell-seconds") ? sl_options_f64(o, "cell-seconds") : quick ? 0.1 : 6;
    if (b->batch < 1 || b->batch > 4096 || !(b->cell_s > 0))
        return sl_fail(SL_E_USAGE, "--batch must be from 1 to 4096, --cell-seconds more than 0");
    SL_TRY(sl_list_i64("seqlens", seqlens, 1, MOST, b->seqlens, &b->n_seqlens));
    SL_TRY(sl_list_i64("dims", dims, 1, MOST, b->dims, &b->n_dims));
    return parse_dtypes(sl_options_string(o, "dtypes"), b);
}

static sl_status run_parts(bench *b)
{
    static const struct {
        const char *name;
        sl_status (*make)(bench *b);
    } parts[] = {{"grid", grid_table}, {"long", long_table}, {"tiles", tile_table}, {"leaderboard", leaderboard_table}};
    const char *list = sl_options_string(b->job->options, "parts");
    char item[64];
    while (sl_list_next(&list, item))
        for (int64_t i = 0; i < SL_COUNT(parts); i++)
            if (strcmp(parts[i].name, item) == 0)
                SL_TRY(parts[i].make(b));
    return SL_OK;
}

static sl_status run(const sl_bench_job *job, sl_results *results)
{
    bench b = {.job = job, .results = results};
    SL_TRY(sl_list_check("parts", sl_options_string(job->options, "parts"), PARTS));
    SL_TRY(open_rig(&b));
    sl_status status = resolve(&b);
    if (status == SL_OK)
        status = run_parts(&b);
    if (!b.gpu)
        sl_results_note(
            results,
            "On the CPU the naive way's softmax is the plain reference, one thread: speed-ups over it flatter.");
    sl_region_destroy(b.drawn);
    sl_rig_close(&b.rig);
    return status;
}

const sl_bench_def sl_bench_attention = {
    .name = "attention",
    .question = "what does tiled attention save over naive, in time and memory",
    .options = options,
    .n_options = SL_COUNT(options),
    .warmup = 10,
    .steps = 100,
    .quick_warmup = 1,
    .quick_steps = 5,
    .run = run,
};
