/*
 * Costs by measurement. Signatures and links that are not in the cache are timed on a device that is opened with just enough memory
 * for the largest of them and closed afterwards.
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
#define HEAVY_BYTES ((size_t) 128 << 20) /* ...unless sampling their operands or running them takes too long */
#define HEAVY_SECONDS 0.2
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
    bool warm; /* measured under load */
    sl_timer timer;
} job;

/* ---- signatures ---- */

/* Reads a signature's times from the cache, if present. */
static bool recall(job *j, int32_t signature)
{
    double figures[2], *host_s = &j->costs->host_s[signature];
    bool known = sl_measure_cache_get(j->cache, j->keys[signature], figures, 2) && isfinite(figures[0]) &&
                 isfinite(figures[1]) == isfinite(*host_s);
    if (known)
        j->costs->device_s[signature] = figures[0], *host_s = figures[1];
    return known;
}

/* Fills in cached times and the device's workspaces. host_s is 0 for signatures that may run beside host memory and are not in the
 * cache. */
static sl_status look_up(job *j, sl_device *device)
{
    const sl_program *p = j->program;
    sl_text key = {0};
    for (int32_t k = 0; k < p->n_signatures; k++) {
        sl_launch launch;
        sl_costs_launch(p, k, &launch);
        bool host = p->tasks[p->signatures[k].example].host_allowed;
        j->costs->host_s[k] = host ? 0 : INFINITY;
        for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
            const sl_stream stream = sl_stream_on((sl_tier) tier);
            const bool runs = host || stream == SL_STREAM_COMPUTE;
            j->costs->workspace[tier][k] = runs ? device->class->workspace(device, &launch, stream) : 0;
        }
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

/* The signature's launch in a tier's memory, a very large update shortened. Returns the factor for its time. */
static double place_signature(const job *j, int32_t signature, sl_tier tier, sl_launch *launch)
{
    sl_costs_launch(j->program, signature, launch);
    const double scale = sl_signature_shrink(launch);
    sl_launch_place(launch, j->timer.arena[tier], j->costs->workspace[tier][signature]);
    return scale;
}

/* On the device, with operands; the host's arena has them in the same places. */
static sl_status load_signature(job *j, int32_t signature, sl_launch *launch, double *scale)
{
    *scale = place_signature(j, signature, SL_TIER_DEVICE, launch);
    return sl_timer_fill(&j->timer, launch, j->timer.arena[SL_TIER_HOST],
                         sl_signature_sequences(j->program, signature));
}

static sl_status time_signature(job *j, int32_t signature, double seconds[2])
{
    sl_launch launch;
    double scale;
    SL_TRY(load_signature(j, signature, &launch, &scale));
    SL_TRY(sl_timer_time(&j->timer, &launch, SL_STREAM_COMPUTE, &seconds[0]));
    seconds[0] *= scale;
    seconds[1] = INFINITY;
    if (!isfinite(j->costs->host_s[signature]))
        return SL_OK;
    place_signature(j, signature, SL_TIER_HOST, &launch);
    keep_quiet(j, true);
    sl_status status = sl_timer_time(&j->timer, &launch, SL_STREAM_HOST, &seconds[1]);
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

static sl_status measure_links(job *j)
{
    const sl_costs *c = j->costs;
    const int32_t load = sl_heaviest_signature(j->program, c, false), host = sl_heaviest_signature(j->program, c, true);
    sl_launch load_launch, host_launch;
    double scale;
    SL_TRY(sl_timer_links(&j->timer, j->piece, &j->machine));
    if (load < 0)
        return SL_OK;
    SL_TRY(load_signature(j, load, &load_launch, &scale));
    if (host >= 0) /* an update: any numbers will do, also those the load's operands leave behind */
        place_signature(j, host, SL_TIER_HOST, &host_launch);
    return sl_timer_slowdowns(&j->timer, &load_launch, c->device_s[load], host >= 0 ? &host_launch : NULL,
                              host >= 0 ? c->host_s[host] : 0, j->piece, &j->machine);
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
            most = SL_MAX(most, sl_launch_bytes(&launch) + workspace);
    }
    return most;
}

/* Mapping and pinning memory must not run concurrently: 3 s became 24 s. */
static sl_status open_scratch(job *j, size_t signature_bytes, size_t piece, bool warm)
{
    sl_warmup warmups[SL_MOST_WARMUPS] = {0};
    const sl_scratch_config config = {.device = j->config->device,
                                      .threads = j->config->threads,
                                      .signature_bytes = signature_bytes,
                                      .piece = piece,
                                      .most = j->config->most,
                                      .warmups = warmups,
                                      .n_warmups = warm ? sl_choose_warmups(j->program, j->costs, warmups) : 0};
    keep_quiet(j, true);
    sl_status status = sl_scratch_open(&config, &j->timer);
    keep_quiet(j, false);
    return status;
}

/* An accelerator's links depend on the host's memory: in a virtual machine that has just been started they reach two thirds of their
 * later speed. */
static sl_status doubt_links(job *j)
{
    sl_measured now;
    keep_quiet(j, true);
    sl_status status = sl_timer_links(&j->timer, j->piece, &now);
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

/* Cached figures may come from a busy, slower or different machine. One signature is timed again. If it disagrees, all are. */
static sl_status doubt(job *j)
{
    const int32_t signature = sl_probe_signature(j->program, j->costs, j->known);
    const bool links = j->warm && j->machine_known;
    size_t bytes = 0;
    if (signature < 0 && !links)
        return SL_OK;
    if (signature >= 0) {
        sl_launch launch;
        sl_costs_launch(j->program, signature, &launch);
        bytes = sl_launch_bytes(&launch) + j->costs->workspace[SL_TIER_DEVICE][signature];
    }
    SL_TRY(open_scratch(j, bytes, links ? j->piece : 0, j->warm && signature >= 0));
    sl_status status = signature >= 0 ? doubt_signature(j, signature) : SL_OK;
    if (status == SL_OK && links && j->machine_known)
        status = doubt_links(j);
    sl_timer_close(&j->timer);
    return status;
}

/* Signatures that cost the same as a measured one. */
static void recall_alike(job *j)
{
    for (int32_t k = 0; k < j->program->n_signatures; k++)
        if (!j->known[k])
            recall(j, k);
}

/* The signatures that make up most of a step, timed a second time some seconds later, so that a short disturbance does not
 * decide. An accelerator is not shared. */
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
            sl_launch_bytes(&launch) > HEAVY_BYTES || *known[0] > HEAVY_SECONDS)
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

static sl_status interpolate_slices(job *j, const bool *fresh)
{
    for (int32_t k = 0; k < j->program->n_signatures; k++) {
        int32_t ends[2];
        sl_launch at[3];
        if (!fresh[k] || !sl_slice_ends(j->program, k, ends))
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
    SL_TRY(open_scratch(j, largest_signature(j), j->piece, j->warm));
    bool *fresh;
    SL_TRY(sl_region_alloc(j->region, &fresh, j->program->n_signatures + 1, sizeof *fresh));
    for (int pass = 0; pass < 2; pass++)
        for (int32_t k = 0; k < j->program->n_signatures; k++) {
            int32_t ends[2];
            sl_launch launch;
            sl_costs_launch(j->program, k, &launch);
            if (sl_op(launch.op)->any_values != (pass == 0))
                continue;
            fresh[k] = !j->known[k] && !recall(j, k); /* a signature may equal one that has just been measured */
            if (fresh[k] && !sl_slice_ends(j->program, k, ends))
                SL_TRY(measure_signature(j, k));
        }
    SL_TRY(interpolate_slices(j, fresh));
    if (!j->machine_known)
        SL_TRY(measure_machine(j));
    if (!j->warm)
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
    j->warm = !hardware.shared_cores;
    SL_TRY(look_up(j, device));
    SL_TRY(measure_unknown(j));
    for (int link = 0; link < SL_LINK_COUNT; link++) {
        c->link_bytes_per_s[link] = j->machine.link[link];
        c->link_bytes_per_s_both[link] = j->machine.link_both[link];
    }
    c->link_latency_s = j->machine.latency_s;
    c->copy_slowdown = j->machine.copy_slowdown;
    c->host_slowdown = j->machine.host_slowdown;
    c->peak_flops = hardware.peak_flops[sl_policy_of(j->program->config.precision)->compute];
    snprintf(c->source, sizeof c->source, "measured %s", device->class->numerics(device));
    return SL_OK;
}

/* 0 means one thread per core this process may use, which differs between machines. The cache key is the resolved number. */
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
    job j = {.program = program, .config = config, .piece = sl_typical_piece(program)};
    sl_device *device;
    sl_status status;
    int threads = config->threads;
    sl_device_config idle = {.threads = threads, .max_commands = 1, .max_events = 1};
    SL_TRY(sl_device_open(config->device, &idle, &device)); /* without memory: for queries only */
    SL_TRY_GOTO(sl_region_create(&j.region), done);
    SL_TRY_GOTO(sl_costs_new(program->n_signatures, &j.costs), done);
    SL_TRY_GOTO(resolve_threads(&threads), done);
    SL_TRY_GOTO(sl_measure_cache_open(config->cache, device->class->numerics(device), threads, &j.cache), done);
    status = measure(&j, device);
    sl_measure_cache_close(j.cache); /* keeps what was measured even if something failed later */
done:
    sl_timer_close(&j.timer);
    sl_device_close(device);
    sl_region_destroy(j.region);
    if (status == SL_OK)
        *costs = j.costs;
    else
        sl_costs_destroy(j.costs);
    return status;
}
