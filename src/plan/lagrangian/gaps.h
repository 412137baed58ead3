/* The gaps of a large program that need a decision, for demand.c, lagrangian.c and knapsack.c: see gaps.c. */
#ifndef SL_PLAN_GAPS_H
#define SL_PLAN_GAPS_H

#include "plan/internal.h"

enum { SL_BUCKETS = 1024 }; /* of a step's time, at most */

/* A gap that needs a decision: long enough for an eviction, or droppable. */
typedef struct sl_gap_info {
    int32_t entry, from, to; /* tasks strictly between hold it when kept */
    int32_t gone, come;      /* when evicted: it has left before task `gone`, comes back from task `come` on */
    int32_t group;           /* droppable: by producer; -1 */
    int32_t earlier;         /* gap of the same content before it; -1 */
    int32_t next;            /* gap of the same group; -1 */
    double bytes, out_s, in_s;
    double short_s;     /* by how much the gap is too short for leaving and coming back */
    double keep, evict; /* costs at the current prices */
    double density;     /* worth of keeping it, per byte and second */
    double spread;      /* factor that lets equal gaps choose differently */
    bool written;       /* content was written in this step: no copy in host memory yet */
    bool temporary;     /* an eviction takes host memory */
} sl_gap_info;

/* A task that can run a second time: all its outputs are saved, or all are dropped. */
typedef struct sl_drop_group {
    double seconds; /* to recompute */
    double save;    /* cheapest way to save all of it, at the current prices */
    double value;   /* seconds per byte saved, coarsely */
    double spread;
    int32_t first; /* gap */
    bool drop;
} sl_drop_group;

typedef struct sl_gaps {
    const sl_analysis *a;
    const uint8_t *on_host;   /* by task */
    const uint8_t *placement; /* by object: sl_tier of persistent ones */
    sl_gap_info *list;
    sl_drop_group *groups;
    int32_t count, n_groups;
    double *fixed;   /* by task: device bytes of operands, workspace and gaps that are always kept */
    double *start_s; /* by task, n_tasks + 1 */
    double *extra_s; /* by task: recomputations before it */
    int32_t *bucket; /* by task: when it starts */
    int n_buckets;
    double bucket_s; /* length of a bucket */
} sl_gaps;

/* All memory is the region's; on_host and placement must stay as they are. */
sl_status sl_gaps_list(sl_region *region, const sl_analysis *analysis, const uint8_t *on_host, const uint8_t *placement,
                       sl_gaps *gaps);
/* Computes when tasks start and evicted objects leave and return, recomputations (`drop`) included, since they give the links time. */
void sl_gaps_time(sl_gaps *gaps);
/* Whether leaving in this gap takes a copy to host memory, or one is there already. */
bool sl_gaps_leaves_dirty(const sl_gaps *gaps, const sl_gap_info *gap, const uint8_t *gap_choice);

#endif
