/*
 * The loops around the register tile, in the manner of Goto and BLIS:
 *
 *   for columns of C in blocks of nb                      packed B block: shared, in L2/L3
 *     for rows of C in blocks of mb                       (only cut when k is)
 *       for k in blocks of kb
 *         pack B[kb, nb]                                  parallel over panels
 *         for row tiles of mb                             parallel, taken dynamically
 *           for k in blocks of kc within kb
 *             pack A[tile, kc]                            thread's own, stays in L2
 *             for panels of B: for panels of A            B panel in L1
 *               C tile [mr, nr] += A panel * B panel      registers
 *         C = tiles + bias + residual                     behind the last k
 *
 * C is summed in f32 tiles in the workspace and written once, at the end: one rounding for bf16, one place for bias, residual
 * and accumulation, no masks in the inner loop. While k fits one block (kb = k) a tile's sums live in the thread's own
 * scratch; else all tiles of mb x nb are kept, which is why mb is bounded then.
 *
 * Not taken: packing all of A and B first (workspace as large as the operands); splitting k over threads (the sum's order
 * would depend on the thread count); 2D work tiles (A would be packed once per column of tiles).
 */
#include "device/cpu/gemm.h"

/* Elements of a packed B block (f32: 4 MiB), its widest, and the rows of C kept when k is cut. */
#define BLOCK_ELEMENTS (1 << 20)
#define BLOCK_COLUMNS 768
#define BLOCK_ROWS 1024
#define BLOCK_K 1536

typedef struct blocking {
    int64_t nb, kb, mb;               /* block sizes: multiples of nr, kc, tile_rows (or the whole) */
    int64_t tile_rows;                /* rows of a work tile */
    int64_t tile_floats;              /* f32 sums of a work tile */
    size_t b_bytes, a_bytes, c_bytes; /* packed B; packed A per thread; sums per thread or, when k is cut, per block */
    bool k_cut;
} blocking;

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Cuts `total` into equal blocks of at most `limit`, rounded up to `step`. */
static int64_t even_block(int64_t total, int64_t limit, int64_t step)
{
    int64_t blocks = SL_DIV_UP(total, limit);
    return SL_ROUND_UP(SL_DIV_UP(total, blocks), step);
}

static blocking choose_blocking(const sl_gemm_isa *isa, const sl_gemm *gemm)
{
    blocking cut;
    const int64_t k = SL_ROUND_UP(gemm->k, isa->k_step);
    cut.nb = even_block(gemm->n, BLOCK_COLUMNS, isa->nr);
    cut.k_cut = k > BLOCK_K;
    cut.kb = cut.k_cut ? even_block(k, BLOCK_K, isa->kc) : k;
    cut.k_cut = cut.kb < k;
    cut.tile_rows = (int64_t) isa->mr * isa->panel_rows;
    cut.mb = cut.k_cut ? even_block(gemm->m, BLOCK_ROWS, cut.tile_rows) : SL_ROUND_UP(gemm->m, cut.tile_rows);
    cut.tile_floats = cut.tile_rows * cut.nb;
    cut.b_bytes = (size_t) (SL_ROUND_UP(cut.kb, isa->k_step) * cut.nb) * isa->packed_bytes;
    cut.a_bytes = (size_t) (cut.tile_rows * min64(isa->kc, cut.kb)) * isa->packed_bytes;
    cut.b_bytes = SL_ROUND_UP(cut.b_bytes, 64);
    cut.a_bytes = SL_ROUND_UP(cut.a_bytes, 64);
    cut.c_bytes = (size_t) cut.tile_floats * 4 * (size_t) (cut.k_cut ? cut.mb / cut.tile_rows : 1);
    return cut;
}

size_t sl_gemm_workspace(const sl_gemm_isa *isa, const sl_gemm *gemm, int threads)
{
    if (!gemm->m || !gemm->n || !gemm->k)
        return 0;
    const blocking cut = choose_blocking(isa, gemm);
    const size_t n = (size_t) threads;
    return cut.b_bytes + n * cut.a_bytes + (cut.k_cut ? 1 : n) * cut.c_bytes;
}

/* One block of the loops above, as the tile functions see it. */
typedef struct block {
    const sl_gemm_isa *isa;
    const sl_gemm *gemm;
    const blocking *cut;
    char *packed_b, *packed_a, *sums;
    int64_t column, columns, row, rows, k0, k_count;
} block;

/* Tile = one panel of B, one kc deep. */
static void pack_b_tile(void *context, int64_t tile, int thread)
{
    (void) thread;
    const block *at = context;
    const sl_gemm_isa *isa = at->isa;
    const int64_t panels = SL_DIV_UP(at->columns, isa->nr);
    const int64_t depth = tile / panels, panel = tile % panels;
    const int64_t k = depth * isa->kc, count = min64(isa->kc, at->k_count - k);
    const int64_t column = panel * isa->nr;
    const int64_t before = k * panels * isa->nr + column * SL_ROUND_UP(count, isa->k_step);
    isa->pack_b(&at->gemm->b, at->column + column, min64(isa->nr, at->columns - column), at->k0 + k, count,
                at->packed_b + (size_t) before * isa->packed_bytes);
}

static void multiply_tile(void *context, int64_t tile, int thread)
{
    const block *at = context;
    const sl_gemm_isa *isa = at->isa;
    const blocking *cut = at->cut;
    const int64_t row = tile * cut->tile_rows, rows = min64(cut->tile_rows, at->rows - row);
    const int64_t panels = SL_DIV_UP(at->columns, isa->nr), tile_size = (int64_t) isa->mr * isa->nr;
    char *packed_a = at->packed_a + (size_t) thread * cut->a_bytes;
    float *sums = (float *) (void *) at->sums + (cut->k_cut ? tile : thread) * cut->tile_floats;
    if (isa->enter)
        isa->enter();
    for (int64_t k = 0; k < at->k_count; k += isa->kc) {
        const int64_t count = min64(isa->kc, at->k_count - k), padded = SL_ROUND_UP(count, isa->k_step);
        for (int64_t i = 0; i < rows; i += isa->mr)
            isa->pack_a(&at->gemm->a, at->row + row + i, min64(isa->mr, rows - i), at->k0 + k, count,
                        packed_a + (size_t) (i * padded) * isa->packed_bytes);
        for (int64_t j = 0; j < panels; j++) {
            const int64_t before = k * panels * isa->nr + j * isa->nr * padded;
            isa->multiply(rows, packed_a, at->packed_b + (size_t) before * isa->packed_bytes, padded, at->k0 + k == 0,
                          sums + j * tile_size, panels * tile_size);
        }
    }
    if (isa->leave)
        isa->leave();
    if (at->k0 + at->k_count == at->gemm->k)
        isa->finish(at->gemm, at->row + row, rows, at->column, at->columns, sums);
}

/* Nothing to sum (k = 0 is never asked for by a model, but is a valid product): C = bias + residual (+ C). */
static void finish_empty(const sl_gemm_isa *isa, const sl_gemm *gemm)
{
    static const float zeros[64 * 64];
    for (int64_t i = 0; i < gemm->m; i += isa->mr)
        for (int64_t j = 0; j < gemm->n; j += isa->nr)
            isa->finish(gemm, i, min64(isa->mr, gemm->m - i), j, min64(isa->nr, gemm->n - j), zeros);
}

void sl_gemm_run(const sl_gemm_isa *isa, const sl_gemm *gemm, void *workspace, sl_pool *pool)
{
    if (!gemm->m || !gemm->n)
        return;
    if (!gemm->k) {
        finish_empty(isa, gemm);
        return;
    }
    const blocking cut = choose_blocking(isa, gemm);
    const size_t threads = (size_t) (pool ? sl_pool_threads(pool) : 1);
    block at = {.isa = isa, .gemm = gemm, .cut = &cut, .packed_b = workspace};
    at.packed_a = at.packed_b + cut.b_bytes;
    at.sums = at.packed_a + threads * cut.a_bytes;
    for (at.column = 0; at.column < gemm->n; at.column += cut.nb) {
        at.columns = min64(cut.nb, gemm->n - at.column);
        const int64_t panels = SL_DIV_UP(at.columns, isa->nr);
        for (at.row = 0; at.row < gemm->m; at.row += cut.mb) {
            at.rows = min64(cut.mb, gemm->m - at.row);
            for (at.k0 = 0; at.k0 < gemm->k; at.k0 += cut.kb) {
                at.k_count = min64(cut.kb, gemm->k - at.k0);
                sl_pool_run(pool, pack_b_tile, &at, panels * SL_DIV_UP(at.k_count, isa->kc));
                sl_pool_run(pool, multiply_tile, &at, SL_DIV_UP(at.rows, cut.tile_rows));
            }
        }
    }
}
