/* Shared by the files of measured costs: measure.c and representative.c select signatures, signature.c compares them, scratch.c
 * provides memory, kernel_timer.c times launches, cache.c stores results. */
#ifndef SL_COST_INTERNAL_H
#define SL_COST_INTERNAL_H

#include "core/text.h"
#include "cost/cost.h"
#include "cost/kernel_timer.h"

/* ---- signature.c: what signatures' times depend on ---- */

/* The complete key as text: op, types, accumulate bits, sequences, attributes as words. */
void sl_signature_describe(sl_text *key, const sl_launch *launch, int64_t sequences);
/* Attention's time depends on how many sequences the chunk packs, which its types do not show; 0 for others. */
int64_t sl_signature_sequences(const sl_program *program, int32_t signature);
/* Shortens a very large update. Updates that differ only in length get the same part. Returns the factor for its time. */
double sl_signature_shrink(sl_launch *launch);
/* Different signatures with the same cost, such as updates shortened to the same part. */
bool sl_signature_same(const sl_launch *a, const sl_launch *b);
/* Attention of slices of one sequence: signatures that differ only in the number of earlier tokens. Their times lie on a straight line. */
bool sl_signature_are_slices(const sl_launch *a, const sl_launch *b);
/* Tokens of the sequence before the slice; 0 for ops whose time does not depend on it. */
int64_t sl_signature_slice_offset(const sl_launch *launch);

/* ---- scratch.c: a device to measure on, with operands at the start of both tiers' memory ---- */

/* Memory for the operands and workspace of a signature, and for copies of `piece` bytes. */
typedef struct sl_scratch_config {
    const char *device;
    int threads;
    size_t signature_bytes, piece;
    const size_t *most; /* by tier, 0: not limited; see sl_measure_config */
    const sl_warmup
        *warmups; /* each launch with the bytes of its workspace; they run before a timed signature, as in a step */
    int n_warmups;
} sl_scratch_config;
sl_status sl_scratch_open(const sl_scratch_config *config, sl_timer *timer);

/* ---- representative.c: signatures that stand for others ---- */

/* Bytes of an object that moves: what a plan copies at a time. The mean over bytes, not over objects. */
size_t sl_typical_piece(const sl_program *program);
/* For compute the matmul, for host work the update, with the largest total time; -1: none, here and below. */
int32_t sl_heaviest_signature(const sl_program *program, const sl_costs *costs, bool on_host);
/* Of the signatures `known`, a matmul long enough for an accurate time. */
int32_t sl_probe_signature(const sl_program *program, const sl_costs *costs, const bool *known);
/* The warm-up load that brings an accelerator to the steady state of a step. */
int sl_choose_warmups(const sl_program *program, const sl_costs *costs, sl_warmup warmups[SL_MOST_WARMUPS]);
/* Of a sequence in many slices only the first and the last are measured: the ends of the line on which the signature lies. False: the
 * signature is an end itself, or there is no line. */
bool sl_slice_ends(const sl_program *program, int32_t signature, int32_t ends[2]);

/* ---- cache.c ---- */

/* A file of JSON lines, one per device numerics, threads and signature. Lines that cannot be parsed are ignored with a warning. A file that
 * cannot be written causes a warning only, because everything in it can be measured again. */
typedef struct sl_measure_cache sl_measure_cache;
sl_status sl_measure_cache_open(const char *path, const char *numerics, int threads, sl_measure_cache **cache);
/* False: unknown. `figures` are `count` numbers. */
bool sl_measure_cache_get(const sl_measure_cache *cache, const char *key, double *figures, int count);
sl_status sl_measure_cache_put(sl_measure_cache *cache, const char *key, const double *figures, int count);
/* Removes all entries of this device and thread count. */
void sl_measure_cache_clear(sl_measure_cache *cache);
/* Writes new entries and frees the cache. */
void sl_measure_cache_close(sl_measure_cache *cache);

#endif
