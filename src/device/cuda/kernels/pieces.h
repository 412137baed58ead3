/*
 * How thread blocks divide tensors whose sums follow ops/reduce.h. A piece is two blocks of a sum, hence a subtree, and is what one
 * thread block adds up. The sums of a tensor's pieces become one by
 *
 *     a share of neighbouring pieces per thread    32 threads to a warp    8 warps
 *
 * where each level is made of whole subtrees, because shares are powers of two.
 */
#ifndef SL_DEVICE_CUDA_PIECES_H
#define SL_DEVICE_CUDA_PIECES_H

#include "ops/reduce.h"
#include "optim/lamb.h"

enum { SL_PIECE = 2 * SL_SUM_BLOCK, SL_PAIRS = 8 };

static inline SL_HD int64_t sl_pieces(int64_t count)
{
    return (count + SL_PIECE - 1) / SL_PIECE;
}

/* Piece k of a launch of several tensors. */
typedef struct sl_piece {
    int tensor;
    int64_t first, count; /* the tensor's first element, and how many it has */
    int64_t pieces;       /* before the tensor */
    int64_t start;        /* the piece's first element in the tensor */
} sl_piece;

static inline SL_HD sl_piece sl_lamb_piece(const struct sl_lamb_attrs *attrs, sl_dtype parameter, int64_t k)
{
    sl_piece at = {0, 0, (int64_t) attrs->count[0], 0, 0};
    while (at.tensor + 1 < attrs->tensors && k >= at.pieces + sl_pieces(at.count)) {
        at.pieces += sl_pieces(at.count);
        at.first = sl_update_next(parameter, at.first + at.count);
        at.count = (int64_t) attrs->count[++at.tensor];
    }
    at.start = (k - at.pieces) * SL_PIECE;
    return at;
}

static inline SL_HD int64_t sl_lamb_pieces(const struct sl_lamb_attrs *attrs)
{
    int64_t pieces = 0;
    for (int k = 0; k < attrs->tensors; k++)
        pieces += sl_pieces((int64_t) attrs->count[k]);
    return pieces;
}

/* Adds neighbours in pairs, level by level; an odd last one moves up as it is. */
static inline SL_HD float sl_add_pairs(float s[SL_PAIRS], int count)
{
    for (int step = 1; step < SL_PAIRS; step *= 2)
        for (int i = 0; i < SL_PAIRS; i += 2 * step)
            if (i + step < count)
                s[i] += s[i + step];
    return s[0];
}

/* Sums per thread. */
static inline SL_HD int64_t sl_sum_share(int64_t sums, int threads)
{
    int64_t share = SL_PAIRS;
    while (share * threads < sums)
        share *= 2;
    return share;
}

/* The tree's sum of [first, end), which lie `stride` apart; first is a multiple of the share, and there are no more than that. */
static inline SL_HD float sl_sum_part(const float *sums, int stride, int64_t first, int64_t end)
{
    sl_sum_tree tree;
    tree.blocks = 0;
    for (; first < end; first += SL_PAIRS) {
        const int count = (int) (end - first < SL_PAIRS ? end - first : SL_PAIRS);
        float s[SL_PAIRS];
        for (int i = 0; i < SL_PAIRS; i++)
            s[i] = i < count ? sums[(first + i) * stride] : 0;
        sl_sum_tree_add(&tree, sl_add_pairs(s, count));
    }
    return sl_sum_tree_end(&tree);
}

#endif
