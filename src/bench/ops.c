/*
 * `sluice bench ops`: every op on a device, at the shapes a model gives it: time, GB/s, FLOP/s, and its share of the
 * roofline (the time that arithmetic or memory would take at the least, over the time it took). Before an op's speed is
 * reported the device runs the op's own test cases and is compared with the reference.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/guard.h"
#include "bench/machine.h"
#include "bench/roofline.h"
#include "ops/fill.h"
#include "ops/shapes.h"

enum { GUARD_CASES = 2 };

static const sl_option options[] = {
    {"ops", "NAME,NAME,...", SL_OPT_STRING, NULL, "Ops", "only ops whose names contain one of these"},
    {"kernels", "best|all", SL_OPT_CHOICE, "best", "Ops",
     "all: the CPU's kernels of every instruction set, not only the best"},
    {"tokens", "N", SL_OPT_I64, NULL, "Ops", "rows of the operands; default by device"},
};

/* ---- the guard: the op's own cases, device against reference ---- */

/* As the conformance test has it: f32 by-products of a bf16 launch are held to ten times f32's figure. */
static double tolerance_of(const sl_launch *launch, int k)
{
    const sl_op_def *def = sl_op(launch->op);
    bool bf16 = launch->in[0].type.dtype == SL_BF16;
    bool by_product = launch->out[k].type.dtype == SL_F32 && !(def->can_accumulate >> k & 1u);
    return bf16 && by_product ? 10 * def->tolerance[0] : def->tolerance[bf16];
}

/* Runs `want` (filled, in host memory) on the device and the reference, and compares. */
static sl_status compare(sl_rig *rig, sl_launch *want, unsigned char *result, double *excess)
{
    const sl_op_def *def = sl_op(want->op);
    sl_launch got = *want;
    double seconds;
    rig->used = 0;
    for (int i = 0; i < SL_MAX_IN + SL_MAX_OUT; i++)
        (i < SL_MAX_IN ? &got.in[i] : &got.out[i - SL_MAX_IN])->data = NULL;
    SL_TRY(sl_rig_place(rig, &got));
    for (int i = 0; i < SL_MAX_IN + SL_MAX_OUT; i++) {
        const sl_operand *to = i < SL_MAX_IN ? &got.in[i] : &got.out[i - SL_MAX_IN];
        const sl_operand *from = i < SL_MAX_IN ? &want->in[i] : &want->out[i - SL_MAX_IN];
        if (to->type.rank)
            SL_TRY(sl_rig_write(rig, to, from->data));
    }
    SL_TRY(sl_rig_run(rig, &got, 1, &seconds));
    def->reference(want);
    for (int k = 0; k < def->n_out; k++) {
        if (!want->out[k].type.rank)
            continue;
        sl_operand out = {result, want->out[k].type};
        SL_TRY(sl_rig_read(rig, &got.out[k], result));
        double error = sl_guard_error(&out, &want->out[k]), allowed = tolerance_of(want, k);
        *excess = SL_MAX(*excess, allowed > 0 ? error / allowed : error > 0 ? 2 : 0);
    }
    return SL_OK;
}

static sl_status check_case(sl_rig *rig, sl_op_id op, const sl_op_case *op_case, double *excess, bool *ran)
{
    sl_launch want;
    unsigned char *memory;
    SL_TRY(sl_op_case_launch(op, op_case, &want));
    if (rig->timer.class->supports(rig->timer.device, &want) != SL_OK)
        return SL_OK;
    size_t bytes = sl_launch_bytes(&want), workspace = sl_op(op)->workspace ? sl_op(op)->workspace(&want) : 0;
    SL_TRY(sl_alloc_aligned(&memory, 2 * bytes + workspace + SL_ALIGN, 1, SL_ALIGN));
    sl_launch_place(&want, memory, workspace);
    sl_status status = sl_op_fill(&want, 1, op_case);
    if (status == SL_OK)
        status = compare(rig, &want, memory + bytes + workspace, excess);
    sl_free(memory);
    *ran = true;
    return status;
}

/* Largest error over the first cases of this dtype, in units of what is allowed; negative: no case could be run. */
static sl_status check_op(sl_rig *rig, sl_op_id op, sl_dtype dtype, double *excess)
{
    const sl_op_def *def = sl_op(op);
    double worst = 0;
    int done = 0;
    bool ran = false;
    for (int64_t c = 0; c < def->n_cases && done < GUARD_CASES; c++) {
        if (def->cases[c].in[0].dtype != dtype || def->cases[c].not_finite)
            continue;
        SL_TRY(check_case(rig, op, &def->cases[c], &worst, &ran));
        done++;
    }
    *excess = ran ? worst : -1;
    return SL_OK;
}

/* ---- timing ---- */

static void shape_of(const sl_launch *launch, char out[64])
{
    int n = 0;
    out[0] = 0;
    for (int i = 0; i < 2 && launch->in[i].type.rank; i++) {
        const sl_type *t = &launch->in[i].type;
        n += snprintf(out + n, (size_t) (64 - n), "%s", i ? " " : "");
        for (int d = 0; d < t->rank && n < 60; d++)
            n += snprintf(out + n, (size_t) (64 - n), "%s%lld", d ? "x" : "", (long long) t->dim[d]);
    }
}

static sl_status time_variant(const sl_bench_job *job, sl_rig *rig, const sl_roofline *roofline, sl_op_variant *v,
                              bool good, const char *kernels, sl_table *t)
{
    sl_launch *launch = &v->launch;
    const sl_op_def *def = sl_op(launch->op);
    sl_dtype dtype = launch->in[0].type.dtype;
    sl_work work;
    sl_stats stats;
    char shape[64], why[160] = "out of memory";
    rig->used = 0;
    shape_of(launch, shape);
    sl_bench_progress(job, "%s, %s", v->name, sl_dtype_name(dtype));
    sl_status status = sl_rig_place(rig, launch);
    if (status == SL_E_UNSUPPORTED || status == SL_E_DOES_NOT_FIT) {
        if (status == SL_E_UNSUPPORTED)
            snprintf(why, sizeof why, "not on this device: %.120s", sl_error_message());
        SL_ROW(t, v->name, sl_category_name(def->category), sl_dtype_name(dtype), kernels, shape, sl_cell_none(),
               sl_cell_none(), sl_cell_none(), sl_cell_none(), sl_cell_none(), why);
        return SL_OK;
    }
    SL_TRY(status);
    SL_TRY(sl_rig_fill(rig, launch));
    SL_TRY(sl_rig_time(rig, launch, 1, job->warmup, job->steps, job->quick ? 0.15 : 2, &stats));
    def->work(launch, &work);
    double least = sl_roofline_seconds(roofline, dtype == SL_I32 ? SL_F32 : dtype, &work);
    bool timed = good && stats.median > 0;
    SL_ROW(t, v->name, sl_category_name(def->category), sl_dtype_name(dtype), kernels, shape,
           sl_cell_if(timed, 1e6 * stats.mean), sl_cell_if(timed, 1e6 * stats.std),
           sl_cell_if(timed, 1e-9 * (work.read_bytes + work.write_bytes) / stats.median),
           sl_cell_if(timed && work.flops > 0, 1e-9 * work.hardware_flops / stats.median),
           sl_cell_if(timed, 100 * least / stats.median), good ? "as the reference" : "differs");
    return SL_OK;
}

static sl_status bench_op(const sl_bench_job *job, sl_rig *rig, const sl_roofline *roofline, sl_op_id op,
                          sl_dtype dtype, const sl_op_sizes *sizes, sl_table *t, sl_results *results)
{
    sl_op_shapes shapes;
    double excess;
    char what[160];
    SL_TRY(sl_op_shapes_of(op, dtype, sizes, &shapes));
    if (shapes.count == 0)
        return SL_OK;
    SL_TRY(check_op(rig, op, dtype, &excess));
    snprintf(what, sizeof what, "%s, %s, %s (in units of its tolerance)", sl_op(op)->name, sl_dtype_name(dtype),
             rig->timer.class->numerics(rig->timer.device));
    bool good = sl_guard(results, what, SL_MAX(excess, 0), 1);
    for (int i = 0; i < shapes.count; i++)
        SL_TRY(time_variant(job, rig, roofline, &shapes.variants[i], good,
                            rig->timer.class->numerics(rig->timer.device), t));
    return SL_OK;
}

/* Before anything is measured: each item picks an op. */
static sl_status check_names(const sl_bench_job *job)
{
    if (!sl_options_is_set(job->options, "ops"))
        return SL_OK;
    const char *list = sl_options_string(job->options, "ops"), *first = list;
    char item[64];
    if (!sl_list_next(&first, item))
        return sl_fail(SL_E_USAGE, "--ops is empty: give parts of ops' names");
    while (sl_list_next(&list, item)) {
        int op = 0;
        while (op < SL_OP_COUNT && !strstr(sl_op((sl_op_id) op)->name, item))
            op++;
        if (op == SL_OP_COUNT)
            return sl_fail(SL_E_USAGE, "--ops: no op's name contains \"%s\"", item);
    }
    return SL_OK;
}

static bool wanted(const sl_bench_job *job, const char *name)
{
    const char *list = sl_options_is_set(job->options, "ops") ? sl_options_string(job->options, "ops") : NULL;
    char item[64];
    if (!list)
        return true;
    while (sl_list_next(&list, item))
        if (strstr(name, item))
            return true;
    return false;
}

static size_t largest(const sl_op_sizes *s)
{
    size_t hidden = (size_t) s->n * (size_t) s->f * 4 * 5, head = (size_t) s->v * (size_t) s->d * 4 * 3;
    size_t scores = (size_t) s->n * (size_t) s->sequence * (size_t) s->h * 2; /* a library's attention backward */
    return SL_MAX(SL_MAX(hidden, head), (size_t) s->p * 20) + (size_t) s->n * (size_t) s->d * 4 * 8 + scores +
           ((size_t) 1 << 29);
}

static sl_status bench_device(const sl_bench_job *job, const sl_roofline *roofline, const sl_op_sizes *sizes,
                              sl_table *t, sl_results *results)
{
    sl_rig rig;
    SL_TRY(sl_rig_open_warm(job->device, job->threads, largest(sizes), &rig));
    sl_status status = SL_OK;
    for (int op = 0; op < SL_OP_COUNT && status == SL_OK; op++)
        for (int dtype = SL_F32; dtype <= SL_BF16 && status == SL_OK; dtype++)
            if (wanted(job, sl_op((sl_op_id) op)->name))
                status = bench_op(job, &rig, roofline, (sl_op_id) op, (sl_dtype) dtype, sizes, t, results);
    sl_rig_close(&rig);
    return status;
}

/* What this kind of device trains: an 8B model on a GPU, `small` on a CPU. */
static sl_status sizes_for(const sl_bench_job *job, sl_op_sizes *sizes)
{
    static const sl_op_sizes gpu = {8192, 4096, 4096, 32, 8, 128, 14336, 32768, 64 << 20},
                             cpu = {1024, 256, 768, 12, 12, 64, 3072, 10000, 4 << 20},
                             quick = {128, 64, 128, 4, 2, 32, 352, 512, 1 << 16};
    sl_hardware hardware;
    SL_TRY(sl_machine_hardware(job->device, job->threads, &hardware));
    *sizes = job->quick ? quick : hardware.shared_cores ? cpu : gpu;
    if (sl_options_is_set(job->options, "tokens")) {
        sizes->n = sl_options_i64(job->options, "tokens");
        if (sizes->n < 1)
            return sl_fail(SL_E_USAGE, "--tokens must be at least 1");
        sizes->sequence = SL_MIN(sizes->sequence, sizes->n);
        sizes->n = sizes->n / sizes->sequence * sizes->sequence;
    }
    return SL_OK;
}

static sl_status run(const sl_bench_job *job, sl_results *results)
{
    static const char *const sets[] = {"scalar", "avx2", "avx512", "amx"};
    sl_table *t = sl_results_table(results, "ops", "Every op, at the shapes a model gives it",
                                   "op category dtype kernels shape mean_us:us.1 std_us:us.1 gbps:GB/s.2 "
                                   "gflops:GFLOP/s.1 roofline_percent:%.1* verdict");
    bool all = strcmp(sl_options_string(job->options, "kernels"), "all") == 0 && strcmp(job->device, "cpu") == 0;
    sl_op_sizes sizes;
    sl_roofline roofline;
    SL_TRY(check_names(job));
    SL_TRY(sizes_for(job, &sizes));
    sl_bench_progress(job, "the roofline");
    SL_TRY(sl_roofline_measure(job->device, job->threads, job->quick, &roofline));
    sl_results_fact(results, "peak_flops", sl_cell_number(SL_MAX(roofline.flops[SL_F32], roofline.flops[SL_BF16])));
    sl_results_fact(results, "peak_flops_f32", sl_cell_number(roofline.flops[SL_F32]));
    sl_results_fact(results, "peak_flops_bf16", sl_cell_number(roofline.flops[SL_BF16]));
    sl_results_fact(results, "memory_bandwidth", sl_cell_number(roofline.bytes));
    sl_results_note(
        results,
        "The roofline: %.4g f32 and %.4g bf16 TFLOP/s, %.4g GB/s, measured; more than 100 %% of it: the operands "
        "were in the caches.",
        1e-12 * roofline.flops[SL_F32], 1e-12 * roofline.flops[SL_BF16], 1e-9 * roofline.bytes);
    if (!all)
        return bench_device(job, &roofline, &sizes, t, results);
    const char *before = getenv("SLUICE_ISA");
    sl_status status = SL_OK;
    for (int64_t i = 0; i < SL_COUNT(sets) && status == SL_OK; i++) {
        setenv("SLUICE_ISA", sets[i], 1);
        status = bench_device(job, &roofline, &sizes, t, results);
        if (status == SL_E_UNSUPPORTED)
            status = SL_OK; /* an instruction set this machine lacks */
    }
    if (before)
        setenv("SLUICE_ISA", before, 1);
    else
        unsetenv("SLUICE_ISA");
    return status;
}

const sl_bench_def sl_bench_ops = {
    .name = "ops",
    .question = "how fast is every kernel, and how near to what the machine could do",
    .options = options,
    .n_options = SL_COUNT(options),
    .warmup = 5,
    .steps = 50,
    .quick_warmup = 1,
    .quick_steps = 5,
    .run = run,
};
