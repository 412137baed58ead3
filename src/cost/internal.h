/* What the files of measured costs share: measure.c (which signatures), signature.c (what they are), kernel_timer.c (how),
 * cache.c (kept where). */
#ifndef SL_COST_INTERNAL_H
#define SL_COST_INTERNAL_H

#include "core/text.h"
#include "cost/cost.h"

/* The machine's figures, apart from signatures. */
typedef struct sl_measured {
    double link[2], link_both[2], latency_s, copy_slowdown, host_slowdown;
} sl_measured;
#define SL_MEASURED_FIGURES ((int) (sizeof(sl_measured) / sizeof(double)))

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

/* ---- kernel_timer.c: a device to measure on ---- */

/* Part of the load that signatures are timed behind. */
typedef struct sl_warmup {
    sl_launch launch;
    size_t workspace;
    int64_t sequences; /* attention's */
    double share;      /* of the load's time */
    int times;         /* launches of it before each timed one */
} sl_warmup;
enum { SL_MOST_WARMUPS = 2 };

typedef struct sl_bench {
    sl_device *device;
    const sl_device_class *class;
    unsigned char *arena[SL_TIER_COUNT];
    size_t scrub;       /* from here on: memory for copies */
    size_t scrub_bytes; /* copied through to clear the caches */
    int spread;         /* copies go round so many pieces of each tier, each way */
    size_t heat;        /* from here on: the operands of the warmups */
    sl_warmup warmups[SL_MOST_WARMUPS];
    int n_warmups;    /* 0: signatures are timed as they are */
    double drawing;   /* bytes of attention's operands drawn in a second, the last time */
    size_t prefilled; /* bytes from the start of the host arena on that hold any random numbers */
} sl_bench;

/* Memory for the operands and workspace of a signature, and for copies of `piece` bytes. */
typedef struct sl_bench_config {
    const char *device;
    int threads;
    size_t signature_bytes, piece;
    const size_t *most; /* by tier, 0: not limited; see sl_measure_config */
} sl_bench_config;
sl_status sl_bench_open(sl_bench *bench, const sl_bench_config *config);
/* The same, and signatures are timed behind a few milliseconds of load, as in a step: an accelerator that has been idle runs its first
 * products up to a fifth faster than its power allows for long. */
sl_status sl_bench_open_warm(sl_bench *bench, const sl_bench_config *config, const sl_warmup *warmups, int n_warmups);
size_t sl_bench_operand_bytes(const sl_launch *launch);
/* Random operands at the start of both tiers' memory. `sequences` > 0: attention's. */
sl_status sl_bench_fill(sl_bench *bench, sl_launch *launch, int64_t sequences);
/* Points a launch at a tier's operands, and at `workspace` bytes behind them. */
void sl_bench_place(const sl_bench *bench, sl_launch *launch, sl_tier tier, size_t workspace);
sl_status sl_bench_time(sl_bench *bench, const sl_launch *launch, sl_stream stream, double *seconds);
/* Rates and latency of copies of `piece` bytes, nothing else running. */
sl_status sl_bench_links(sl_bench *bench, size_t piece, sl_measured *measured);
/* Compute beside copies and beside host tasks (NULL: none); both launches are prepared and take load_s and host_s alone. The rates
 * of copies become those beside compute, for that is where they run. */
sl_status sl_bench_slowdowns(sl_bench *bench, const sl_launch *load, double load_s, const sl_launch *host,
                             double host_s, size_t piece, sl_measured *measured);

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
