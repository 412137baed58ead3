/*
 * The loops around the register tile, in the manner of Goto and BLIS:
 *
 *   for columns of C in blocks of nb
 *     for rows of C in blocks of mb                       (only cut when k is)
 *       for k in blocks of kb
 *         pack B[kb, nb]                                  shared; parallel over panels
 *         for work tiles of C[mb, nb]                     parallel, taken dynamically
 *           for k in blocks of kc within kb
 *             pack A[tile rows, kc], where it must be     the thread's own
 *             for panels of B: for panels of A            B panel in L1; A block, B block and sums of the tile in L2
 *               C tile [mr, nr] += A panel * B panel      registers
 *           C = sums + bias + residual                    behind the last k
 *
 * C is summed in f32 in the workspace and written once, at the end: one rounding for bf16, one place for bias, residual
 * and accumulation, no masks in the inner loop. While k fits one block (kb = k) a work tile's sums live in the thread's
 * own scratch; else those of all tiles of mb x nb are kept, which is why mb is bounded then.
 *
 * Few rows (m) leave little work per packed element of B, and half of what a thread reads of the shared block lies in another
 * core's cache. So where A needs no packing of its own a thread takes a stripe of columns instead and packs it for itself:
 *
 *   for stripes of C, sc columns                          parallel, taken dynamically
 *     for k in blocks of kb
 *       pack B[kb, sc]                                    the thread's own, still in L2 when it is used
 *       for work tiles of C[m, sc]: as above
 *
 * The price is that every stripe reads A again, from beyond L2 if A is large.
 *
 * Work tiles are wide in both directions because what a tile reads beyond L2, per multiply-add, goes with 1/rows +
 * 1/columns; and small enough that a block has some twenty of them for the threads to share.
 *
 * Not taken: packing all of A and B first (workspace as large as the operands); splitting k over threads (the sum's
 * order would depend on the thread count); writing f32 sums straight into C (adding a gradient to a large C product by
 * product rounds worse than adding the sum).
 */
#include "device/cpu/gemm.h"

typedef struct blocking {
    int64_t nb, mb, kb, kc; /* multiples of nr, mr, kc, k_step, or the whole */
    int64_t tile_rows, tile_columns;
    int64_t tile_floats; /* f32 sums of a work tile */
    int64_t group;       /* work tiles side by side that one thread takes together, so as to pack A once for them */
    size_t a_bytes;      /* packed A of a thread */
    size_t b_bytes;      /* packed B */
    size_t sums;         /* work tiles whose sums are kept, 0: one per thread */
    bool striped;        /* nb is a stripe; packed B and kept sums are each thread's own */
} blocking;

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Cuts `total` into equal blocks of at most about `limit`, multiples of `step`. */
static int64_t even_block(int64_t total, int64_t limit, int64_t step)
{
    const int64_t blocks = SL_DIV_UP(total, limit);
    return SL_ROUND_UP(SL_DIV_UP(total, blocks), step);
}

/* Stripes pay while there are some for every thread; their number is made even among the threads. */
static bool choose_stripes(const sl_gemm_isa *isa, const sl_gemm *gemm, int64_t threads, blocking *cut)
{
    if (gemm->a.transposed || gemm->m > isa->stripe_rows[gemm->b.transposed])
        return false;
    const int64_t panels = SL_DIV_UP(gemm->n, isa->nr), wide = isa->stripe_columns / isa->nr;
    const int64_t stripes = SL_ROUND_UP(SL_DIV_UP(panels, wide), threads);
    if (stripes > panels || (threads > 1 && stripes < 2 * threads))
        return false;
    cut->striped = true;
    cut->nb = SL_DIV_UP(panels, stripes) * isa->nr;
    return true;
}

static blocking choose_blocking(const sl_gemm_isa *isa, const sl_gemm *gemm, int threads)
{
    blocking cut = {0};
    cut.kc = even_block(gemm->k, isa->kc, isa->k_step);
    cut.kb = gemm->k <= isa->block_k ? SL_ROUND_UP(gemm->k, cut.kc) : even_block(gemm->k, isa->block_k, cut.kc);
    const int64_t columns = SL_MAX(isa->nr, isa->block_elements / cut.kb);
    if (!choose_stripes(isa, gemm, threads, &cut))
        cut.nb = even_block(gemm->n, SL_ROUND_UP(columns - isa->nr + 1, isa->nr), isa->nr);
    const bool k_cut = cut.kb < gemm->k;
    cut.mb = k_cut && !cut.striped ? even_block(gemm->m, isa->block_rows, isa->mr) : SL_ROUND_UP(gemm->m, isa->mr);
    cut.tile_rows = even_block(cut.mb, isa->tile_rows, isa->mr);
    cut.tile_columns = cut.striped ? cut.nb : even_block(cut.nb, isa->tile_columns, isa->nr);
    cut.tile_floats = cut.tile_rows * cut.tile_columns;
    cut.b_bytes = SL_ROUND_UP((size_t) (SL_ROUND_UP(cut.kb, isa->k_step) * cut.nb) * isa->packed_bytes, 64);
    cut.a_bytes = isa->a_bytes;
    cut.group = 1;
    if (gemm->a.transposed) { /* lies across k, so packing it is dear */
        const int64_t down = SL_DIV_UP(cut.mb, cut.tile_rows), across = SL_DIV_UP(cut.nb, cut.tile_columns);
        while (cut.group < across && down * SL_DIV_UP(across, cut.group + 1) >= (threads > 1 ? 3 * threads : 1))
            cut.group++;
        if (cut.group > 1)
            cut.a_bytes *= (size_t) SL_DIV_UP(cut.kb, cut.kc);
    }
    cut.sums = k_cut ? (size_t) (SL_DIV_UP(cut.mb, cut.tile_rows) * SL_DIV_UP(cut.nb, cut.tile_columns)) : 0;
    return cut;
}

size_t sl_gemm_workspace(const sl_gemm_isa *isa, const sl_gemm *gemm, int threads)
{
    if (!gemm->m || !gemm->n || !gemm->k)
        return 0;
    const blocking cut = choose_blocking(isa, gemm, threads);
    const size_t n = (size_t) threads, tile_bytes = (size_t) cut.tile_floats * 4;
    if (cut.striped)
        return n * (cut.b_bytes + cut.a_bytes + SL_MAX(cut.sums, (size_t) 1) * tile_bytes);
    return cut.b_bytes + n * cut.a_bytes + (cut.sums ? cut.sums : n) * tile_bytes;
}

/* One block of the loops above, as the tile functions see it. */
typedef struct block {
    const sl_gemm_isa *isa;
    const sl_gemm *gemm;
    const blocking *cut;
    char *packed_b, *packed_a;
    float *sums;
    int64_t column, columns, row, rows, k0, k_count;
} block;

/* Packed B: [kc block][panel][kc][nr]. */
static char *packed_panel(const block *at, int64_t k, int64_t column, int64_t count)
{
    const sl_gemm_isa *isa = at->isa;
    const int64_t before = k * SL_ROUND_UP(at->columns, isa->nr) + column * SL_ROUND_UP(count, isa->k_step);
    return at->packed_b + (size_t) before * isa->packed_bytes;
}

/* Tile = one panel of B, one kc deep. */
static void pack_b_tile(void *context, int64_t tile, int thread)
{
    (void) thread;
    const block *at = context;
    const sl_gemm_isa *isa = at->isa;
    const int64_t panels = SL_DIV_UP(at->columns, isa->nr);
    const int64_t k = tile / panels * at->cut->kc, count = min64(at->cut->kc, at->k_count - k);
    const int64_t column = tile % panels * isa->nr;
    isa->pack_b(&at->gemm->b, at->column + column, min64(isa->nr, at->columns - column), at->k0 + k, count,
                packed_panel(at, k, column, count));
}

/* One work tile, tile_rows x tile_columns. A is packed k block by k block into the same place; or, `groups`, each into its
 * own, and not again if `packed`. */
static void multiply_columns(const block *at, int64_t row, int64_t column, bool groups, bool packed, char *packed_a,
                             float *sums)
{
    const sl_gemm_isa *isa = at->isa;
    const blocking *cut = at->cut;
    const int64_t rows = min64(cut->tile_rows, at->rows - row),
                  columns = min64(cut->tile_columns, at->columns - column);
    const int64_t register_floats = (int64_t) isa->mr * isa->nr, panel_floats = SL_ROUND_UP(columns, isa->nr) * isa->mr;
    for (int64_t k = 0; k < at->k_count; k += cut->kc) {
        const int64_t count = min64(cut->kc, at->k_count - k);
        char *place = packed_a + (groups ? (size_t) (k / cut->kc) * isa->a_bytes : 0);
        const sl_gemm_rows a = isa->pack_a(&at->gemm->a, at->row + row, rows, at->k0 + k, count, place, packed);
        for (int64_t j = 0; j < columns; j += isa->nr)
            isa->multiply(rows, a, packed_panel(at, k, column + j, count), SL_ROUND_UP(count, isa->k_step),
                          at->k0 + k == 0, sums + j / isa->nr * register_floats, panel_floats);
    }
    if (at->k0 + at->k_count == at->gemm->k)
        isa->finish(at->gemm, at->row + row, rows, at->column + column, columns, sums);
}

/* Tile = `group` work tiles side by side. */
static void multiply_tile(void *context, int64_t tile, int thread)
{
    const block *at = context;
    const blocking *cut = at->cut;
    const int64_t down = SL_DIV_UP(at->rows, cut->tile_rows), across = SL_DIV_UP(at->columns, cut->tile_columns);
    const int64_t i = tile % down, first = tile / down * cut->group, end = min64(first + cut->group, across);
    char *packed_a = at->packed_a + (size_t) thread * cut->a_bytes;
    if (at->isa->enter)
        at->isa->enter();
    for (int64_t j = first; j < end; j++)
        multiply_columns(at, i * cut->tile_rows, j * cut->tile_columns, cut->group > 1, j > first, packed_a,
                         at->sums + (cut->sums ? j * down + i : thread) * cut->tile_floats);
    if (at->isa->leave)
        at->isa->leave();
}

/* Tile = a stripe. `at` is the thread's own: its memory stands for the shared one, and it is thread 0 of it. */
static void stripe_tile(void *context, int64_t tile, int thread)
{
    block at = *(const block *) context;
    const blocking *cut = at.cut;
    const size_t sums = SL_MAX(cut->sums, (size_t) 1) * (size_t) cut->tile_floats * 4;
    at.packed_b += (size_t) thread * (cut->b_bytes + cut->a_bytes + sums);
    at.packed_a = at.packed_b + cut->b_bytes;
    at.sums = (float *) (void *) (at.packed_a + cut->a_bytes);
    at.column = tile * cut->nb;
    at.columns = min64(cut->nb, at.gemm->n - at.column);
    at.rows = at.gemm->m;
    for (at.k0 = 0; at.k0 < at.gemm->k; at.k0 += cut->kb) {
        at.k_count = min64(cut->kb, at.gemm->k - at.k0);
        for (int64_t i = 0; i < SL_DIV_UP(at.columns, at.isa->nr) * SL_DIV_UP(at.k_count, cut->kc); i++)
            pack_b_tile(&at, i, 0);
        for (int64_t i = 0; i < SL_DIV_UP(at.rows, cut->tile_rows); i++)
            multiply_tile(&at, i, 0);
    }
}

/* k = 0, never asked for by a model, is a product too: C = bias + residual (+ C). */
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
    const size_t threads = (size_t) sl_pool_threads(pool);
    const blocking cut = choose_blocking(isa, gemm, (int) threads);
    block at = {.isa = isa, .gemm = gemm, .cut = &cut, .packed_b = workspace};
    if (cut.striped) {
        sl_pool_run(pool, stripe_tile, &at, SL_DIV_UP(gemm->n, cut.nb));
        return;
    }
    at.packed_a = at.packed_b + cut.b_bytes;
    at.sums = (float *) (void *) (at.packed_a + threads * cut.a_bytes);
    for (at.column = 0; at.column < gemm->n; at.column += cut.nb) {
        at.columns = min64(cut.nb, gemm->n - at.column);
        const int64_t panels = SL_DIV_UP(at.columns, isa->nr);
        const int64_t groups = SL_DIV_UP(SL_DIV_UP(at.columns, cut.tile_columns), cut.group);
        for (at.row = 0; at.row < gemm->m; at.row += cut.mb) {
            at.rows = min64(cut.mb, gemm->m - at.row);
            for (at.k0 = 0; at.k0 < gemm->k; at.k0 += cut.kb) {
                at.k_count = min64(cut.kb, gemm->k - at.k0);
                sl_pool_run(pool, pack_b_tile, &at, panels * SL_DIV_UP(at.k_count, cut.kc));
                sl_pool_run(pool, multiply_tile, &at, SL_DIV_UP(at.rows, cut.tile_rows) * groups);
            }
        }
    }
}
