/*
 * Costs by measurement. Kinds and links that the cache does not know are timed on a device opened for the purpose, with just
 * enough memory for the largest of them; afterwards that memory is gone again.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "core/mem.h"
#include "core/pool.h"
#include "core/text.h"
#include "cost/cost.h"
#include "cost/internal.h"

#define HEAVY_SHARE 0.02                 /* of a step's compute: signatures above this are timed a second time... */
#define HEAVY_BYTES ((size_t) 128 << 20) /* ...unless drawing their operands or running them takes too long */
#define HEAVY_SECONDS 0.2
#define PROBE_SECONDS 0.02 /* a signature of about this time tells whether the cache still holds */
#define PROBE_TOLERANCE 0.2

typedef struct job {
    const sl_program *program;
    const sl_measure_config *config;
    sl_costs *costs;
    sl_measure_cache *cache;
    sl_region *region;
    const char **keys; /* by signature */
    bool *known;       /* by signature */
    sl_measured machine;
    bool machine_known;
    char machine_key[32];
    size_t piece;
    bool hot; /* measured under load */
    sl_bench bench;
} job;

/* ---- signatures ---- */

/* Takes a signature's times from the cache, if it has them. */
static bool recall(job *j, int32_t signature)
{
    double figures[2], *host_s = &j->costs->host_s[signature];
    bool known = sl_measure_cache_get(j->cache, j->keys[signature], figures, 2) && isfinite(figures[0]) &&
                 isfinite(figures[1]) == isfinite(*host_s);
    if (known)
        j->costs->device_s[signature] = figures[0], *host_s = figures[1];
    return known;
}

/* What the cache knows; what the device says of workspaces; host_s is 0 for signatures that may run beside host memory and are not
 * known yet. */
static sl_status look_up(job *j, sl_device *device)
{
    const sl_program *p = j->program;
    sl_text key = {0};
    for (int32_t k = 0; k < p->n_signatures; k++) {
        sl_launch launch;
        sl_costs_launch(p, k, &launch);
        bool host = p->tasks[p->signatures[k].example].host_allowed;
        j->costs->host_s[k] = host ? 0 : INFINITY;
        j->costs->workspace[SL_TIER_DEVICE][k] = device->class->workspace(device, &launch, SL_STREAM_COMPUTE);
        j->costs->workspace[SL_TIER_HOST][k] = host ? device->class->workspace(device, &launch, SL_STREAM_HOST) : 0;
        key.length = 0;
        sl_signature_describe(&key, &launch, sl_signature_sequences(p, k));
        if (j->costs->workspace[SL_TIER_DEVICE][k])
            sl_text_printf(&key, " ~%zu", j->costs->workspace[SL_TIER_DEVICE][k]);
        if (host)
            sl_text_printf(&key, " host"); /* both times are known */
        sl_status status = sl_text_status(&key);
        if (status == SL_OK)
            status = sl_region_strdup(j->region, key.data, &j->keys[k]);
        if (status != SL_OK) {
            sl_text_free(&key);
            return status;
        }
        j->known[k] = recall(j, k);
    }
    sl_text_free(&key);
    snprintf(j->machine_key, sizeof j->machine_key, "links beside compute %zu", j->piece);
    j->machine_known = sl_measure_cache_get(j->cache, j->machine_key, (double *) &j->machine, SL_MEASURED_FIGURES);
    return SL_OK;
}

static void keep_quiet(const job *j, bool on)
{
    if (j->config->quiet)
        j->config->quiet(j->config->context, on);
}

static sl_status time_signature(job *j, int32_t signature, double seconds[2])
{
    const sl_costs *c = j->costs;
    sl_launch launch;
    bool host = isfinite(c->host_s[signature]);
    sl_costs_launch(j->program, signature, &launch);
    double scale = sl_signature_shrink(&launch);
    SL_TRY(sl_bench_fill(&j->bench, &launch, sl_signature_sequences(j->program, signature)));
    sl_bench_place(&j->bench, &launch, SL_TIER_DEVICE, c->workspace[SL_TIER_DEVICE][signature]);
    SL_TRY(sl_bench_time(&j->bench, &launch, SL_STREAM_COMPUTE, &seconds[0]));
    seconds[0] *= scale;
    seconds[1] = INFINITY;
    if (!host)
        return SL_OK;
    sl_bench_place(&j->bench, &launch, SL_TIER_HOST, c->workspace[SL_TIER_HOST][signature]);
    keep_quiet(j, true);
    sl_status status = sl_bench_time(&j->bench, &launch, SL_STREAM_HOST, &seconds[1]);
    keep_quiet(j, false);
    seconds[1] *= scale;
    return status;
}

/* A large update's time from one before it that is measured on the same part: the groups of a model differ in length alone. */
static bool follows_from_another(const job *j, int32_t signature, double seconds[2])
{
    sl_launch own, other;
    sl_costs_launch(j->program, signature, &own);
    const double scale = sl_signature_shrink(&own);
    for (int32_t k = 0; k < signature && scale != 1; k++) {
        sl_costs_launch(j->program, k, &other);
        const double others = sl_signature_shrink(&other);
        if (others == 1 || !sl_signature_same(&own, &other) ||
            isfinite(j->costs->host_s[k]) != isfinite(j->costs->host_s[signature]))
            continue;
        seconds[0] = j->costs->device_s[k] * scale / others;
        seconds[1] = j->costs->host_s[k] * scale / others;
        return true;
    }
    return false;
}

static sl_status measure_signature(job *j, int32_t signature)
{
    double seconds[2];
    if (!follows_from_another(j, signature, seconds))
        SL_TRY(time_signature(j, signature, seconds));
    j->costs->device_s[signature] = seconds[0];
    j->costs->host_s[signature] = seconds[1];
    return sl_measure_cache_put(j->cache, j->keys[signature], seconds, 2);
}

/* ---- the machine ---- */

/* Bytes of an object that moves: what a plan copies at a time. The mean over bytes, not over objects. */
static size_t typical_piece(const sl_program *program)
{
    double bytes = 0, squares = 0;
    for (int32_t i = 0; i < program->n_objects; i++) {
        double size = (double) program->objects[i].bytes;
        bytes += size;
        squares += size * size;
    }
    double piece = bytes > 0 ? squares / bytes : 0;
    int power = (int) log2(SL_MAX(piece, 1)); /* coarse, so that similar programs share a measurement */
    return (size_t) 1 << SL_MAX(20, SL_MIN(power, 24));
}

/* The signature that stands for compute, or for host work: the matrix product, or update, with most time in all. */
static int32_t heaviest(const job *j, bool on_host)
{
    int32_t best = -1;
    double most = 0;
    for (int32_t k = 0; k < j->program->n_signatures; k++) {
        double seconds =
            (on_host ? j->costs->host_s[k] : j->costs->device_s[k]) * (double) j->program->signatures[k].count;
        sl_launch launch;
        sl_costs_launch(j->program, k, &launch);
        bool suits = on_host || sl_op(launch.op)->category == SL_CAT_DOT_PRODUCT;
        if (!suits || !isfinite(seconds) || sl_signature_shrink(&launch) != 1 || seconds <= most)
            continue;
        most = seconds;
        best = k;
    }
    return best;
}

static sl_status measure_links(job *j)
{
    sl_bench *b = &j->bench;
    sl_costs *c = j->costs;
    int32_t load_signature = heaviest(j, false), host_signature = heaviest(j, true);
    sl_launch load, host;
    SL_TRY(sl_bench_links(b, j->piece, &j->machine));
    if (load_signature >= 0) {
        if (host_signature >= 0) { /* an update: any numbers will do, also those the load's operands leave behind */
            sl_costs_launch(j->program, host_signature, &host);
            sl_bench_place(b, &host, SL_TIER_HOST, c->workspace[SL_TIER_HOST][host_signature]);
        }
        sl_costs_launch(j->program, load_signature, &load);
        SL_TRY(sl_bench_fill(b, &load, sl_signature_sequences(j->program, load_signature)));
        sl_bench_place(b, &load, SL_TIER_DEVICE, c->workspace[SL_TIER_DEVICE][load_signature]);
        SL_TRY(sl_bench_slowdowns(b, &load, c->device_s[load_signature], host_signature >= 0 ? &host : NULL,
                                  host_signature >= 0 ? c->host_s[host_signature] : 0, j->piece, &j->machine));
    }
    return SL_OK;
}

static sl_status measure_machine(job *j)
{
    keep_quiet(j, true);
    sl_status status = measure_links(j);
    keep_quiet(j, false);
    SL_TRY(status);
    return sl_measure_cache_put(j->cache, j->machine_key, (const double *) &j->machine, SL_MEASURED_FIGURES);
}

/* Operands and workspace of the largest signature that may be run. */
static size_t largest_signature(const job *j)
{
    size_t most = 0;
    for (int32_t k = 0; k < j->program->n_signatures; k++) {
        sl_launch launch;
        sl_costs_launch(j->program, k, &launch);
        sl_signature_shrink(&launch);
        size_t workspace = SL_MAX(j->costs->workspace[SL_TIER_DEVICE][k], j->costs->workspace[SL_TIER_HOST][k]);
        if (!j->known[k] || !j->machine_known)
            most = SL_MAX(most, sl_bench_operand_bytes(&launch) + workspace);
    }
    return most;
}

/* A matrix product long enough to be timed well: of those known, the one nearest to PROBE_SECONDS. */
static int32_t probe_signature(const job *j)
{
    int32_t best = -1;
    double nearest = log(10); /* a factor of ten off tells nothing */
    for (int32_t k = 0; k < j->program->n_signatures; k++) {
        sl_launch launch;
        sl_costs_launch(j->program, k, &launch);
        double distance = fabs(log(j->costs->device_s[k] / PROBE_SECONDS));
        if (!j->known[k] || sl_op(launch.op)->category != SL_CAT_DOT_PRODUCT || !(distance < nearest))
            continue;
        nearest = distance;
        best = k;
    }
    return best;
}

/* Of the signatures that represent a category the one with most arithmetic in one launch, or with least; -1: there is none. */
static int32_t extreme_signature(const job *j, sl_category category, bool most)
{
    const sl_program *p = j->program;
    int32_t best = -1;
    for (int32_t k = 0; k < p->n_signatures; k++) {
        const sl_op_def *def = sl_op(p->tasks[p->signatures[k].example].op);
        if (def->representative && def->category == category &&
            (best < 0 || (p->signatures[k].work.flops > p->signatures[best].work.flops) == most))
            best = k;
    }
    return best;
}

/* The share of a step's arithmetic that is attention's. */
static double attention_share(const sl_program *p)
{
    double attention = 0, all = 0;
    for (int32_t k = 0; k < p->n_signatures; k++) {
        const sl_op_def *def = sl_op(p->tasks[p->signatures[k].example].op);
        double flops = (double) p->signatures[k].work.flops * (double) p->signatures[k].count;
        attention += def->category == SL_CAT_ATTENTION ? flops : 0;
        all += flops;
    }
    return all > 0 ? attention / all : 0;
}

/* What keeps an accelerator as hot as a step does: a large product and, since it gets less hot by it, a short attention. Behind
 * products alone products were predicted up to a tenth too slow. */
static int choose_warmups(const job *j, sl_warmup warmups[SL_MOST_WARMUPS])
{
    const double share = attention_share(j->program);
    const int32_t signatures[SL_MOST_WARMUPS] = {extreme_signature(j, SL_CAT_DOT_PRODUCT, true),
                                                 extreme_signature(j, SL_CAT_ATTENTION, false)};
    int n = 0;
    for (int i = 0; i < SL_MOST_WARMUPS && signatures[0] >= 0; i++) {
        if (signatures[i] < 0)
            continue;
        sl_costs_launch(j->program, signatures[i], &warmups[n].launch);
        warmups[n].workspace = j->costs->workspace[SL_TIER_DEVICE][signatures[i]];
        warmups[n].sequences = sl_signature_sequences(j->program, signatures[i]);
        warmups[n].share = i ? share : 1 - share;
        n++;
    }
    return n;
}

/* Memory is mapped and pinned here: with others at that, 3 s became 24. */
static sl_status open_bench(job *j, size_t signature_bytes, size_t piece, bool hot)
{
    const sl_bench_config config = {j->config->device, j->config->threads, signature_bytes, piece, j->config->most};
    sl_warmup warmups[SL_MOST_WARMUPS] = {0};
    int n = hot ? choose_warmups(j, warmups) : 0;
    keep_quiet(j, true);
    sl_status status = n ? sl_bench_open_warm(&j->bench, &config, warmups, n) : sl_bench_open(&j->bench, &config);
    keep_quiet(j, false);
    return status;
}

/* An accelerator's links are as fast as the host's memory is at the moment: in a virtual machine that has just been started, two thirds
 * of what they are minutes later. */
static sl_status doubt_links(job *j)
{
    sl_measured now;
    keep_quiet(j, true);
    sl_status status = sl_bench_links(&j->bench, j->piece, &now);
    keep_quiet(j, false);
    SL_TRY(status);
    for (int d = 0; d < 2; d++)
        if (fabs(log(now.link_both[d] / j->machine.link_both[d])) > PROBE_TOLERANCE) {
            sl_info("measured links no longer hold (copies %s: %.3g GB/s on file, %.3g now); measuring them again",
                    d ? "out" : "in", j->machine.link_both[d] * 1e-9, now.link_both[d] * 1e-9);
            j->machine_known = false;
            return SL_OK;
        }
    return SL_OK;
}

static sl_status doubt_signature(job *j, int32_t signature)
{
    double seconds[2];
    sl_launch launch;
    SL_TRY(time_signature(j, signature, seconds));
    if (fabs(log(seconds[0] / j->costs->device_s[signature])) <= PROBE_TOLERANCE)
        return SL_OK;
    sl_costs_launch(j->program, signature, &launch);
    sl_info("measured costs no longer hold (%s: %.3g s on file, %.3g s now); measuring again", sl_op(launch.op)->name,
            j->costs->device_s[signature], seconds[0]);
    sl_measure_cache_clear(j->cache);
    memset(j->known, 0, (size_t) j->program->n_signatures * sizeof *j->known);
    j->machine_known = false;
    return SL_OK;
}

/* Figures on file may come from a machine that was busy, or slower, or another one. One signature is timed again; if it disagrees
 * everything is. */
static sl_status doubt(job *j)
{
    const int32_t signature = probe_signature(j);
    const bool links = j->hot && j->machine_known;
    size_t bytes = 0;
    if (signature < 0 && !links)
        return SL_OK;
    if (signature >= 0) {
        sl_launch launch;
        sl_costs_launch(j->program, signature, &launch);
        bytes = sl_bench_operand_bytes(&launch) + j->costs->workspace[SL_TIER_DEVICE][signature];
    }
    SL_TRY(open_bench(j, bytes, links ? j->piece : 0, j->hot && signature >= 0));
    sl_status status = signature >= 0 ? doubt_signature(j, signature) : SL_OK;
    if (status == SL_OK && links && j->machine_known)
        status = doubt_links(j);
    sl_device_close(j->bench.device);
    j->bench.device = NULL;
    return status;
}

/* Kinds that look like one that was measured. */
static void recall_alike(job *j)
{
    for (int32_t k = 0; k < j->program->n_signatures; k++)
        if (!j->known[k])
            recall(j, k);
}

/* The signatures that make up most of a step, timed once more some seconds later: a moment in which something else had the machine
 * must not decide. An accelerator is not shared. */
static sl_status measure_heavy(job *j, const bool *fresh)
{
    const sl_program *p = j->program;
    double total = 0, seconds[2];
    for (int32_t k = 0; k < p->n_signatures; k++)
        total += j->costs->device_s[k] * (double) p->signatures[k].count;
    for (int32_t k = 0; k < p->n_signatures; k++) {
        sl_launch launch;
        sl_costs_launch(p, k, &launch);
        double *known[2] = {&j->costs->device_s[k], &j->costs->host_s[k]};
        if (!fresh[k] || *known[0] * (double) p->signatures[k].count < HEAVY_SHARE * total ||
            sl_bench_operand_bytes(&launch) > HEAVY_BYTES || *known[0] > HEAVY_SECONDS)
            continue;
        SL_TRY(time_signature(j, k, seconds));
        for (int where = 0; where < 2; where++)
            *known[where] = 0.5 * (*known[where] + seconds[where]);
        seconds[0] = *known[0], seconds[1] = *known[1];
        SL_TRY(sl_measure_cache_put(j->cache, j->keys[k], seconds, 2));
    }
    recall_alike(j);
    return SL_OK;
}

/* ---- slices: a sequence of 131,072 tokens has 64 of them, of which the first and the last are measured ---- */

/* The ends of the line a signature is on; false: it is an end itself, or there is no line. */
static bool slice_ends(const job *j, int32_t signature, int32_t ends[2])
{
    sl_launch own, other;
    int64_t alike = 0, least = INT64_MAX, most = -1;
    sl_costs_launch(j->program, signature, &own);
    for (int32_t k = 0; k < j->program->n_signatures; k++) {
        sl_costs_launch(j->program, k, &other);
        const int64_t before = sl_signature_slice_offset(&other);
        if (!sl_signature_are_slices(&own, &other) ||
            sl_signature_sequences(j->program, k) != sl_signature_sequences(j->program, signature))
            continue;
        alike++;
        if (before < least)
            least = before, ends[0] = k;
        if (before > most)
            most = before, ends[1] = k;
    }
    const int64_t before = sl_signature_slice_offset(&own);
    return alike > 3 && before > least && before < most;
}

static sl_status interpolate_slices(job *j, const bool *fresh)
{
    for (int32_t k = 0; k < j->program->n_signatures; k++) {
        int32_t ends[2];
        sl_launch at[3];
        if (!fresh[k] || !slice_ends(j, k, ends))
            continue;
        sl_costs_launch(j->program, k, &at[2]);
        for (int e = 0; e < 2; e++)
            sl_costs_launch(j->program, ends[e], &at[e]);
        const double first = (double) sl_signature_slice_offset(&at[0]),
                     last = (double) sl_signature_slice_offset(&at[1]);
        const double share = ((double) sl_signature_slice_offset(&at[2]) - first) / (last - first);
        double seconds[2] = {0, INFINITY}, *costs = j->costs->device_s;
        seconds[0] = costs[k] = costs[ends[0]] + share * (costs[ends[1]] - costs[ends[0]]);
        SL_TRY(sl_measure_cache_put(j->cache, j->keys[k], seconds, 2));
    }
    return SL_OK;
}

static sl_status measure_unknown(job *j)
{
    SL_TRY(doubt(j));
    bool all = j->machine_known;
    for (int32_t k = 0; k < j->program->n_signatures; k++)
        all &= j->known[k];
    if (all)
        return SL_OK;
    SL_TRY(open_bench(j, largest_signature(j), j->piece, j->hot));
    bool *fresh;
    SL_TRY(sl_region_alloc(j->region, &fresh, j->program->n_signatures + 1, sizeof *fresh));
    for (int pass = 0; pass < 2; pass++)
        for (int32_t k = 0; k < j->program->n_signatures; k++) {
            int32_t ends[2];
            sl_launch launch;
            sl_costs_launch(j->program, k, &launch);
            if (sl_op(launch.op)->any_values != (pass == 0))
                continue;
            fresh[k] = !j->known[k] && !recall(j, k); /* a signature may look like one measured a moment ago */
            if (fresh[k] && !slice_ends(j, k, ends))
                SL_TRY(measure_signature(j, k));
        }
    SL_TRY(interpolate_slices(j, fresh));
    if (!j->machine_known)
        SL_TRY(measure_machine(j));
    if (!j->hot)
        return measure_heavy(j, fresh);
    recall_alike(j);
    return SL_OK;
}

static sl_status measure(job *j, sl_device *device)
{
    SL_TRY(sl_region_alloc(j->region, &j->keys, j->program->n_signatures + 1, sizeof *j->keys));
    SL_TRY(sl_region_alloc(j->region, &j->known, j->program->n_signatures + 1, sizeof *j->known));
    sl_costs *c = j->costs;
    sl_hardware hardware;
    device->class->hardware(device, &hardware);
    j->hot = !hardware.shared_cores;
    SL_TRY(look_up(j, device));
    SL_TRY(measure_unknown(j));
    for (int d = 0; d < 2; d++) {
        c->link_bytes_per_s[d] = j->machine.link[d];
        c->link_bytes_per_s_both[d] = j->machine.link_both[d];
    }
    c->link_latency_s = j->machine.latency_s;
    c->copy_slowdown = j->machine.copy_slowdown;
    c->host_slowdown = j->machine.host_slowdown;
    c->peak_flops = hardware.peak_flops[sl_policy_of(j->program->config.precision)->compute];
    snprintf(c->source, sizeof c->source, "measured %s", device->class->numerics(device));
    return SL_OK;
}

/* 0 means one thread per core this process may use, which is not the same everywhere: costs are filed under the number. */
static sl_status resolve_threads(int *threads)
{
    sl_pool *pool;
    SL_TRY(sl_pool_create(*threads, &pool));
    *threads = sl_pool_threads(pool);
    sl_pool_destroy(pool);
    return SL_OK;
}

sl_status sl_costs_measure(const sl_program *program, const sl_measure_config *config, sl_costs **costs)
{
    job j = {.program = program, .config = config, .piece = typical_piece(program)};
    sl_device *device;
    sl_status status;
    int threads = config->threads;
    sl_device_config idle = {.threads = threads, .max_commands = 1, .max_events = 1};
    SL_TRY(sl_device_open(config->device, &idle, &device)); /* without memory: to ask, not to run */
    SL_TRY_GOTO(sl_region_create(&j.region), done);
    SL_TRY_GOTO(sl_costs_new(program->n_signatures, &j.costs), done);
    SL_TRY_GOTO(resolve_threads(&threads), done);
    SL_TRY_GOTO(sl_measure_cache_open(config->cache, device->class->numerics(device), threads, &j.cache), done);
    status = measure(&j, device);
    sl_measure_cache_close(j.cache); /* keeps what was measured even if something failed later */
done:
    sl_device_close(j.bench.device);
    sl_device_close(device);
    sl_region_destroy(j.region);
    if (status == SL_OK)
        *costs = j.costs;
    else
        sl_costs_destroy(j.costs);
    return status;
}
