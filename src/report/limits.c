/*
 * Shares of time rather than a tree of rules: a step that is half arithmetic and half waiting says so. Ops are evaluated by their
 * intensity and not by the speed they reached, since a slow kernel above the ridge is still limited by arithmetic, its own.
 * Without measurements (a run that has not written its end) the plan's busy and waiting times serve instead, and the time of
 * recomputation follows from its share of the arithmetic.
 */
#include "report/limits.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/op.h"
#include "report/scale.h"

const char *const sl_bound_names[SL_BOUND_COUNT] = {"compute", "memory bandwidth", "memory size",
                                                    "I/O",     "communication",    "overhead"};
const char *const sl_bound_colors[SL_BOUND_COUNT] = {"b-compute", "b-bandwidth",     "b-size",
                                                     "b-io",      "b-communication", "b-overhead"};

static const char *const meanings[SL_BOUND_COUNT] = {
    "goes into arithmetic",
    "goes into ops that move bytes with little arithmetic on each",
    "goes into recomputing what the device memory could not keep",
    "goes into files: reading data, writing checkpoints",
    "goes into waiting for copies between host and device memory",
    "is neither work nor a wait that was seen: gaps between launches, and the host's own part",
};

static const char *const advice[SL_BOUND_COUNT] = {
    NULL, /* depends on how much of the peak is reached: advise_compute */
    "Fuse or enlarge small ops; larger chunks (--chunk-tokens) put more arithmetic on each byte of weights.",
    "Give more --device-mem, or more --host-mem to keep activations in; smaller --chunks-per-round needs less.",
    "Put the data on a faster disk, or checkpoint less often (--checkpoint-every).",
    "Give more --device-mem, or more tokens per step so that each copied byte is used more often.",
    "Larger chunks (--chunk-tokens) or a larger model: the launches are too small for this machine.",
};

bool sl_below_ridge(const sl_log_hardware *hw, double flops, double bytes)
{
    if (!(hw->peak_flops > 0 && hw->memory_bandwidth > 0))
        return false;
    return flops * hw->memory_bandwidth < bytes * hw->peak_flops;
}

sl_bound sl_bound_of_plan(const char *limit)
{
    static const struct {
        const char *word;
        sl_bound bound;
    } words[] = {{"compute", SL_BOUND_COMPUTE},        {"link in", SL_BOUND_COMMUNICATION},
                 {"link out", SL_BOUND_COMMUNICATION}, {"host compute", SL_BOUND_BANDWIDTH},
                 {"device bytes", SL_BOUND_SIZE},      {"host bytes", SL_BOUND_SIZE}};
    for (int64_t i = 0; limit && i < SL_COUNT(words); i++)
        if (strcmp(words[i].word, limit) == 0)
            return words[i].bound;
    return SL_BOUND_COUNT;
}

/* What a log could mean: nothing below 0, and no sums that overflow. */
static double known(double value)
{
    return isfinite(value) && value > 0 ? fmin(value, 1e15) : 0;
}

static void add_waits(const sl_figures *f, double *seconds)
{
    seconds[SL_BOUND_COMMUNICATION] += known(f->wait_s[1]) + known(f->wait_s[2]);
    seconds[SL_BOUND_BANDWIDTH] += known(f->wait_s[3]);
}

static void add_ops(const sl_run_log *log, double *seconds)
{
    for (int64_t i = 0; i < log->n_ops; i++) {
        const sl_log_op *op = &log->ops[i];
        if (op->stream != 0)
            continue;
        double again = fmin(known(op->recomputed_s), known(op->measured_s));
        seconds[SL_BOUND_SIZE] += again;
        seconds[sl_below_ridge(&log->hardware, op->flops, op->bytes) ? SL_BOUND_BANDWIDTH : SL_BOUND_COMPUTE] +=
            known(op->measured_s) - again;
    }
}

/* Of a mean step: files stall now and then, so the last step alone tells little. */
static double files_s(const sl_run_log *log)
{
    double data = 0;
    int64_t n = 0;
    for (int64_t i = log->n_steps > 1; i < log->n_steps; i++, n++)
        data += known(log->steps[i].data_s);
    return (n ? data / (double) n : 0) + (log->n_steps ? known(log->checkpoint_s) / (double) log->n_steps : 0);
}

static void add_plan(const sl_run_log *log, double *seconds)
{
    double busy = known(log->predicted.busy_s[0]), again = known(log->predicted.recompute_fraction);
    sl_bound bound = sl_bound_of_plan(log->limit);
    double recompute = busy * again / (1 + again);
    seconds[SL_BOUND_SIZE] += recompute;
    seconds[bound == SL_BOUND_BANDWIDTH ? SL_BOUND_BANDWIDTH : SL_BOUND_COMPUTE] += busy - recompute;
    add_waits(&log->predicted, seconds);
}

static bool is_gemm(const sl_log_op *op)
{
    const sl_op_def *def = op->stream == 0 ? sl_op_find(op->name) : NULL;
    return def && def->category == SL_CAT_DOT_PRODUCT && def->representative;
}

/* How fast the run's own GEMMs were while they ran, as a share of the peak; NaN: not known. */
static double gemm_share(const sl_run_log *log)
{
    double flops = 0, seconds = 0;
    for (int64_t i = 0; i < log->n_ops; i++)
        if (is_gemm(&log->ops[i])) {
            flops += known(log->ops[i].flops);
            seconds += known(log->ops[i].measured_s);
        }
    return seconds > 0 && log->hardware.peak_flops > 0 ? flops / seconds / log->hardware.peak_flops : (double) NAN;
}

/*
 * A step that is limited by arithmetic can still use little of the machine. Two ratios tell where the rest is:
 *
 *   GEMM rate / peak    what the kernels leave. Large GEMMs sustain 0.65 to 0.95 of the peak on the machines we measured
 *                       (`sluice system`), so under 0.6 kernels or machine are at fault.
 *   step rate / GEMM    what everything beside the GEMMs costs. A step cannot be faster than its GEMMs, so this is
 *                       its own measure; from 0.75 there is little to gain.
 */
static void advise_compute(const sl_run_log *log, char *out, size_t size)
{
    const double good_kernels = 0.6, good_step = 0.75;
    double gemm = gemm_share(log), mfu = isfinite(log->measured.mfu) ? log->measured.mfu : log->predicted.mfu;
    double hfu = isfinite(log->measured.hfu) ? log->measured.hfu : fmax(mfu, 0);
    char a[32], b[32];
    if (!isfinite(gemm) || !(mfu > 0)) {
        snprintf(out, size, "Faster: lower precision, or kernels nearer to the roof (see the roofline).");
        return;
    }
    int length =
        snprintf(out, size, "The run reaches %s of the peak arithmetic (MFU), its matrix multiplications alone %s. ",
                 sl_show_as(mfu, SL_SHARE, a), sl_show_as(gemm, SL_SHARE, b));
    const char *rest = gemm < good_kernels
                           ? "Most is left by the kernels: look for other programs on the machine, small or odd shapes "
                             "(larger --chunk-tokens), or a clock below the nominal one."
                       : hfu < good_step * gemm
                           ? "Ops beside the matrix multiplications take the difference: the table of ops names them."
                           : "That is close to what its kernels can do: faster only with lower precision or better "
                             "kernels (see the roofline).";
    if (length > 0 && (size_t) length < size)
        snprintf(out + length, size - (size_t) length, "%s", rest);
}

/* Far slower than its own measured costs say: no advice on the job helps before that is understood. */
static void advise(const sl_run_log *log, sl_verdict *v)
{
    const double far = 1.25;
    double ratio = sl_log_median_step(log) / log->predicted.step_s;
    char times[32];
    if (v->measured && ratio > far && log->costs && strncmp(log->costs, "measured", 8) == 0)
        snprintf(v->advice, sizeof v->advice,
                 "A step took %s times as long as predicted from measured costs: look first for what else used the "
                 "machine, or did when they were measured. %s",
                 sl_show(ratio, times), v->limit == SL_BOUND_COMPUTE ? "" : advice[v->limit]);
    else if (v->limit == SL_BOUND_COMPUTE)
        advise_compute(log, v->advice, sizeof v->advice);
    else
        snprintf(v->advice, sizeof v->advice, "%s", advice[v->limit]);
}

bool sl_limits(const sl_run_log *log, sl_verdict *v)
{
    const sl_log_step *last = log->n_steps ? &log->steps[log->n_steps - 1] : NULL;
    double whole = known(log->predicted.step_s); /* what the parts so far are of */
    char share[32];
    *v = (sl_verdict){.measured = log->n_ops > 0};
    if (v->measured) { /* all of the last step */
        add_ops(log, v->seconds);
        add_waits(&log->measured, v->seconds);
        whole = last ? known(last->seconds) - known(last->data_s) : 0;
    } else
        add_plan(log, v->seconds);
    for (int i = 0; i < SL_BOUND_COUNT; i++)
        v->step_s += v->seconds[i];
    v->seconds[SL_BOUND_OVERHEAD] = fmax(whole - v->step_s, 0);
    v->seconds[SL_BOUND_IO] = v->measured ? files_s(log) : 0;
    v->step_s += v->seconds[SL_BOUND_OVERHEAD] + v->seconds[SL_BOUND_IO];
    if (!(v->step_s > 0))
        return false;
    for (int i = 0; i < SL_BOUND_COUNT; i++)
        if (v->seconds[i] > v->seconds[v->limit])
            v->limit = (sl_bound) i;
    snprintf(v->sentence, sizeof v->sentence, "Limited by %s: %s of a step's time %s%s.", sl_bound_names[v->limit],
             sl_show_as(v->seconds[v->limit] / v->step_s, SL_SHARE, share), meanings[v->limit],
             v->measured ? "" : " (predicted)");
    advise(log, v);
    return true;
}
