/*
 * How CUDA's kernels divide tensors and add up their sums (device/cuda/kernels/pieces.h), step by step on the CPU: the pieces of a launch cover
 * every tensor once, and the sum of shares, warps and the warps' sums is the tree of ops/reduce.h, to the bit.
 */
#include <string.h>

#include "core/mem.h"
#include "device/cuda/kernels/pieces.h"
#include "test.h"

enum { THREADS = 256, WARP = 32, MOST_BLOCKS = 1 << 20 };

static void check_cover(const struct sl_lamb_attrs *attrs, sl_dtype dtype)
{
    int64_t next = 0;
    for (int t = 0; t < attrs->tensors; t++) {
        const int64_t before = next;
        for (int64_t start = 0; start < (int64_t) attrs->count[t]; start += SL_PIECE) {
            const sl_piece at = sl_lamb_piece(attrs, dtype, next++);
            CHECK_I64(at.tensor, t);
            CHECK_I64(at.first, sl_lamb_first(attrs, dtype, t));
            CHECK_I64(at.count, (int64_t) attrs->count[t]);
            CHECK_I64(at.pieces, before);
            CHECK_I64(at.start, start);
        }
    }
    CHECK_I64(sl_lamb_pieces(attrs), next);
}

TEST(pieces_cover_every_tensor)
{
    static const uint32_t counts[] = {1, SL_PIECE - 1, SL_PIECE, SL_PIECE + 1, 5 * SL_PIECE, 127, 3 * SL_PIECE - 5, 64};
    for (int tensors = 1; tensors <= SL_MAX_UPDATE_TENSORS; tensors++)
        for (int turn = 0; turn < SL_MAX_UPDATE_TENSORS; turn++) {
            struct sl_lamb_attrs attrs = {.tensors = (uint8_t) tensors};
            for (int k = 0; k < tensors; k++)
                attrs.count[k] = counts[(k + turn) % SL_MAX_UPDATE_TENSORS];
            check_cover(&attrs, SL_F32);
            check_cover(&attrs, SL_BF16);
        }
    const struct sl_lamb_attrs largest = {.tensors = 2, .count = {UINT32_MAX, UINT32_MAX}};
    check_cover(&largest, SL_BF16);
}

/* Of one tensor, as sum_piece() and sum_pieces() of pieces.cuh add up the sums of its blocks. */
static float kernel_sum(const float *blocks, int64_t count, float *pieces)
{
    const int64_t n = (count + 1) / 2, share = sl_sum_share(n, THREADS);
    const int threads = (int) ((n + share - 1) / share);
    float part[THREADS] = {0}, warps[SL_PAIRS];
    CHECK(share * THREADS >= n && threads <= THREADS);
    for (int64_t k = 0; k < n; k++)
        pieces[k] = blocks[2 * k] + (2 * k + 1 < count ? blocks[2 * k + 1] : 0.0f);
    for (int64_t t = 0; t * share < n; t++)
        part[t] = sl_sum_part(pieces, 1, t * share, (t + 1) * share < n ? (t + 1) * share : n);
    for (int warp = 0; warp < SL_PAIRS; warp++) {
        float *lanes = part + (ptrdiff_t) warp * WARP;
        for (int step = 1; step < WARP; step *= 2)
            for (int lane = 0; lane + step < WARP; lane++) /* ascending: what is read has not been added to yet */
                if (lane + step < threads - warp * WARP)
                    lanes[lane] += lanes[lane + step];
        warps[warp] = lanes[0];
    }
    return sl_add_pairs(warps, (threads + WARP - 1) / WARP);
}

TEST(sums_are_the_tree)
{
    float *blocks, *pieces;
    uint32_t random = 1;
    CHECK_OK(sl_alloc(&blocks, MOST_BLOCKS, sizeof *blocks));
    CHECK_OK(sl_alloc(&pieces, MOST_BLOCKS, sizeof *pieces));
    for (int64_t i = 0; i < MOST_BLOCKS; i++) {
        random = random * 1664525u + 1013904223u;
        blocks[i] = (float) (random >> 8) * 0x1p-20f;
    }
    for (int64_t count = 1; count <= MOST_BLOCKS; count += count < 700 ? 1 : count / 3) {
        sl_sum_tree tree = {.blocks = 0};
        for (int64_t i = 0; i < count; i++)
            sl_sum_tree_add(&tree, blocks[i]);
        const float want = sl_sum_tree_end(&tree), got = kernel_sum(blocks, count, pieces);
        CHECK_MSG(memcmp(&want, &got, sizeof want) == 0, "%lld blocks: %.9g, not %.9g", (long long) count, (double) got,
                  (double) want);
    }
    sl_free(blocks);
    sl_free(pieces);
}

/* Of planning without a GPU. */
TEST(estimate_covers_the_sums)
{
    for (int64_t n = 1; n < (int64_t) 1 << 32; n = n * 3 + 1) {
        struct sl_lamb_attrs attrs = {.tensors = SL_MAX_UPDATE_TENSORS};
        sl_launch launch = {.op = SL_OP_LAMB};
        for (int k = 0; k < SL_MAX_UPDATE_TENSORS; k++)
            attrs.count[k] = (uint32_t) n;
        launch.in[0].type = sl_type_1d(SL_F32, sl_lamb_first(&attrs, SL_F32, SL_MAX_UPDATE_TENSORS - 1) + n);
        memcpy(&launch.attrs, &attrs, sizeof attrs);
        CHECK(sl_op(SL_OP_LAMB)->estimate_workspace(&launch) >= (size_t) sl_lamb_pieces(&attrs) * 2 * sizeof(float));
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(pieces_cover_every_tensor);
    RUN(sums_are_the_tree);
    RUN(estimate_covers_the_sums);
    return test_end();
}
