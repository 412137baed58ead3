/* What the files of measured costs share: measure.c and representative.c (which signatures), signature.c (what they are), scratch.c (on
 * which memory), kernel_timer.c (how), cache.c (kept where). */
#ifndef SL_COST_INTERNAL_H
#define SL_COST_INTERNAL_H

#include "core/text.h"
#include "cost/cost.h"
#include "cost/kernel_timer.h"

/* ---- signature.c: what signatures' times depend on ---- */

/* All of it, readable: op, types, accumulate bits, sequences, attributes as words. */
void sl_signature_describe(sl_text *key, const sl_launch *launch, int64_t sequences);
/* Attention's time depends on how many sequences the chunk packs, which its types do not show; 0 for others. */
int64_t sl_signature_sequences(const sl_program *program, int32_t signature);
/* Cuts a very large update down, all that differ in length alone to the same part; returns by how much its time must be multiplied. */
double sl_signature_shrink(sl_launch *launch);
/* Kinds that cost the same although they are two: cut to the same part, say. */
bool sl_signature_same(const sl_launch *a, const sl_launch *b);
/* Attention of slices of one sequence: signatures that differ in what lies before the slice alone. Their times are on a straight line. */
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
        *warmups; /* each launch with the bytes of its workspace; signatures are timed behind them, as in a step */
    int n_warmups;
} sl_scratch_config;
sl_status sl_scratch_open(const sl_scratch_config *config, sl_timer *timer);

/* ---- representative.c: signatures that stand for others ---- */

/* Bytes of an object that moves: what a plan copies at a time. The mean over bytes, not over objects. */
size_t sl_typical_piece(const sl_program *program);
/* For compute, or for host work: the matrix product, or update, with most time in all; -1: there is none, here and below. */
int32_t sl_heaviest_signature(const sl_program *program, const sl_costs *costs, bool on_host);
/* Of the signatures `known`, a matrix product long enough to be timed well. */
int32_t sl_probe_signature(const sl_program *program, const sl_costs *costs, const bool *known);
/* What keeps an accelerator as hot as a step does. */
int sl_choose_warmups(const sl_program *program, const sl_costs *costs, sl_warmup warmups[SL_MOST_WARMUPS]);
/* Of a sequence in many slices the first and the last stand for those between: the ends of the line a signature is on; false: it is an
 * end itself, or there is no line. */
bool sl_slice_ends(const sl_program *program, int32_t signature, int32_t ends[2]);

/* ---- cache.c ---- */

/* A file of JSON lines, one per device numerics, threads and signature. Lines it cannot read are left out with a warning; a file that
 * cannot be written costs a warning too: everything in it can be measured again. */
typedef struct sl_measure_cache sl_measure_cache;
sl_status sl_measure_cache_open(const char *path, const char *numerics, int threads, sl_measure_cache **cache);
/* False: unknown. `figures` are `count` numbers. */
bool sl_measure_cache_get(const sl_measure_cache *cache, const char *key, double *figures, int count);
sl_status sl_measure_cache_put(sl_measure_cache *cache, const char *key, const double *figures, int count);
/* Forgets what this device and thread count had. */
void sl_measure_cache_clear(sl_measure_cache *cache);
/* Writes what is new and frees. */
void sl_measure_cache_close(sl_measure_cache *cache);

#endif
