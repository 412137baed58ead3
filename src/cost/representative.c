/* Signatures that stand for others while costs are measured. */
#include <math.h>

#include "cost/internal.h"

#define PROBE_SECONDS 0.02 /* a signature of about this time shows whether the cache is still valid */

size_t sl_typical_piece(const sl_program *program)
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

int32_t sl_heaviest_signature(const sl_program *p, const sl_costs *c, bool on_host)
{
    int32_t best = -1;
    double most = 0;
    for (int32_t k = 0; k < p->n_signatures; k++) {
        double seconds = (on_host ? c->host_s[k] : c->device_s[k]) * (double) p->signatures[k].count;
        sl_launch launch;
        sl_costs_launch(p, k, &launch);
        bool suits = on_host || sl_op(launch.op)->category == SL_CAT_DOT_PRODUCT;
        if (!suits || !isfinite(seconds) || sl_signature_shrink(&launch) != 1 || seconds <= most)
            continue;
        most = seconds;
        best = k;
    }
    return best;
}

/* The one nearest to PROBE_SECONDS. */
int32_t sl_probe_signature(const sl_program *p, const sl_costs *c, const bool *known)
{
    int32_t best = -1;
    double nearest = log(10); /* beyond a factor of ten it is no evidence */
    for (int32_t k = 0; k < p->n_signatures; k++) {
        sl_launch launch;
        sl_costs_launch(p, k, &launch);
        double distance = fabs(log(c->device_s[k] / PROBE_SECONDS));
        if (!known[k] || sl_op(launch.op)->category != SL_CAT_DOT_PRODUCT || !(distance < nearest))
            continue;
        nearest = distance;
        best = k;
    }
    return best;
}

/* Of the signatures that represent a category the one with most arithmetic in one launch, or with least; -1: there is none. */
static int32_t extreme_signature(const sl_program *p, sl_category category, bool most)
{
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

/* The warm-up load: a large matmul and a short attention, which draws less power. Behind matmuls alone, matmuls were predicted up to a
 * tenth too slow. */
int sl_choose_warmups(const sl_program *p, const sl_costs *c, sl_warmup warmups[SL_MOST_WARMUPS])
{
    const double share = attention_share(p);
    const int32_t signatures[SL_MOST_WARMUPS] = {extreme_signature(p, SL_CAT_DOT_PRODUCT, true),
                                                 extreme_signature(p, SL_CAT_ATTENTION, false)};
    int n = 0;
    for (int i = 0; i < SL_MOST_WARMUPS && signatures[0] >= 0; i++) {
        if (signatures[i] < 0)
            continue;
        sl_costs_launch(p, signatures[i], &warmups[n].launch);
        warmups[n].launch.workspace_bytes = c->workspace[SL_TIER_DEVICE][signatures[i]];
        warmups[n].sequences = sl_signature_sequences(p, signatures[i]);
        warmups[n].share = i ? share : 1 - share;
        n++;
    }
    return n;
}

bool sl_slice_ends(const sl_program *p, int32_t signature, int32_t ends[2])
{
    sl_launch own, other;
    int64_t alike = 0, least = INT64_MAX, most = -1;
    sl_costs_launch(p, signature, &own);
    for (int32_t k = 0; k < p->n_signatures; k++) {
        sl_costs_launch(p, k, &other);
        const int64_t before = sl_signature_slice_offset(&other);
        if (!sl_signature_are_slices(&own, &other) ||
            sl_signature_sequences(p, k) != sl_signature_sequences(p, signature))
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
