/*
 * The order of sums: how sum, sum_squares and grad_gate add up, to the bit, on every device.
 *
 *   1. The elements are cut into blocks of SL_SUM_BLOCK (the last one shorter).
 *   2. In a block, lane l of SL_SUM_LANES starts at +0 and takes elements l, l + SL_SUM_LANES, l + 2*SL_SUM_LANES, ... in this
 *      order, in f32:   sum: lane = lane + x      sum_squares: lane = fma(x, x, lane)
 *      Elements past the end add nothing (adding +0 gives the same bits).
 *   3. The lanes are folded by halves: for half = 32, 16, 8, 4, 2, 1: lane[l] += lane[l + half], l < half. Lane 0 is the block's sum.
 *   4. The block sums are added in pairs of neighbours, level by level: s'[i] = s[2i] + s[2i+1]; an odd last one moves up as it is.
 *
 * 64 lanes are four 16-wide or eight 8-wide registers: enough to hide the latency of an addition. A piece of 2^k whole
 * blocks is a subtree of its own, so threads may take such pieces and only their sums are stored.
 */
#ifndef SL_OPS_REDUCE_H
#define SL_OPS_REDUCE_H

#include "core/rng.h" /* SL_HD */

#define SL_SUM_BLOCK 4096
#define SL_SUM_LANES 64

/* Step 3. */
static inline SL_HD float sl_sum_fold(float lane[SL_SUM_LANES])
{
    for (int half = SL_SUM_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

/* Step 4, one block sum at a time: waiting[k] is the sum of a finished subtree of 2^k blocks. Zero-initialise. */
typedef struct sl_sum_tree {
    float waiting[52];
    int64_t blocks;
} sl_sum_tree;

static inline SL_HD void sl_sum_tree_add(sl_sum_tree *tree, float block)
{
    int level = 0;
    for (int64_t bits = tree->blocks++; bits & 1; bits >>= 1)
        block = tree->waiting[level++] + block;
    tree->waiting[level] = block;
}

static inline SL_HD float sl_sum_tree_end(const sl_sum_tree *tree)
{
    float sum = 0;
    int found = 0, level = 0;
    for (int64_t bits = tree->blocks; bits; bits >>= 1, level++)
        if (bits & 1)
            sum = found++ ? tree->waiting[level] + sum : tree->waiting[level];
    return sum;
}

#endif
