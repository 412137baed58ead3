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
 * With AMX (few_rows), a GEMM is so fast that packing a weight for 256 rows takes a visible share of the time:
 *   - B stored along k (a forward GEMM): computes C^T = B^T A^T. Then the weight is read in place, and the few rows are the
 *     block that is packed, shared and small. Sums are transposed on their way to C.
 *   - k comes in pieces of few_kc, so that a panel of either operand stays in L1; stripes take one such piece at a time.
 *   - what the thread reads next is fetched between the tile instructions: the next k of its rows or of its stripe, or the first of
 *     the tile it will probably take.
 *
 * Work tiles are wide in both directions because what a tile reads beyond L2, per multiply-add, goes with 1/rows +
 * 1/columns; and small enough that a block has some twenty of them for the threads to share.
 *
 * Not taken: packing all of A and B first (workspace as large as the operands); splitting k over threads (the sum's
 * order would depend on the thread count); writing f32 sums straight into C (adding a gradient to a large C term by
 * term rounds worse than adding the sum).
 */
#include "device/cpu/gemm/gemm.h"
#include "ops/matmul.h"

#include <stdalign.h>

enum {
    STREAM_ELEMENTS = 1 << 19, /* of a C that no cache of one core keeps */
    TRANSPOSED_MAX = 32 * 32   /* sums of a register tile that is transposed */
};

typedef struct blocking {
    int64_t nb, mb, kb, kc; /* multiples of nr, mr, kc, k_step, or the whole */
    int64_t tile_rows, tile_columns;
    int64_t tile_floats; /* f32 sums of a work tile */
    int64_t group;       /* work tiles side by side that one thread takes together, so as to pack A once for them */
    size_t a_bytes;      /* packed A of a thread */
    size_t b_bytes;      /* packed B */
    size_t sums;         /* work tiles whose sums are kept, 0: one per thread */
    bool striped;        /* nb is a stripe; packed B and kept sums are each thread's own */
    bool stream;         /* C is large and not read soon */
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

static bool is_few(const sl_gemm_isa *isa, const sl_gemm *gemm)
{
    return !gemm->a.transposed && gemm->m <= isa->few_rows;
}

/* Stripes pay while there are some for every thread; their number is made even among the threads. */
static bool choose_stripes(const sl_gemm_isa *isa, const sl_gemm *gemm, int64_t threads, blocking *cut)
{
    if (gemm->a.transposed || gemm->m > isa->stripe_rows[gemm->b.transposed])
        return false;
    const bool few = is_few(isa, gemm);
    const int64_t columns = few ? min64(isa->few_columns, isa->stripe_sums / gemm->m) : 0;
    const int64_t panels = SL_DIV_UP(gemm->n, isa->nr), wide = SL_MAX(columns, isa->stripe_columns) / isa->nr;
    int64_t stripes = SL_ROUND_UP(SL_DIV_UP(panels, wide), threads);
    if (few && threads > 1)
        stripes = SL_MAX(stripes, 2 * threads);
    if (stripes > panels || (threads > 1 && stripes < 2 * threads))
        return false;
    cut->striped = true;
    cut->nb = SL_DIV_UP(panels, stripes) * isa->nr;
    return true;
}

/* Work tiles; smaller ones of a transposed GEMM where a thread would have less than three. */
static void choose_tiles(const sl_gemm_isa *isa, bool transposed, int64_t threads, blocking *cut)
{
    int64_t rows = isa->tile_rows, columns = isa->tile_columns;
    while (transposed && rows > isa->mr && SL_DIV_UP(cut->mb, rows) < 3 * threads)
        rows /= 2;
    while (transposed && columns > 2 * isa->nr && SL_DIV_UP(cut->mb, rows) * SL_DIV_UP(cut->nb, columns) < 3 * threads)
        columns /= 2;
    cut->tile_rows = even_block(cut->mb, rows, isa->mr);
    cut->tile_columns = cut->striped ? cut->nb : even_block(cut->nb, columns, isa->nr);
    cut->tile_floats = cut->tile_rows * cut->tile_columns;
}

static blocking choose_blocking(const sl_gemm_isa *isa, const sl_gemm *gemm, bool transposed, int threads)
{
    blocking cut = {0};
    const bool striped = !transposed && choose_stripes(isa, gemm, threads, &cut);
    const bool few = transposed || (striped && is_few(isa, gemm));
    cut.kc = even_block(gemm->k, few ? isa->few_kc : isa->kc, isa->k_step);
    if (few && striped)
        cut.kb = cut.kc;
    else
        cut.kb = gemm->k <= isa->block_k ? SL_ROUND_UP(gemm->k, cut.kc) : even_block(gemm->k, isa->block_k, cut.kc);
    const int64_t columns = SL_MAX(isa->nr, isa->block_elements / cut.kb);
    if (!striped)
        cut.nb = even_block(gemm->n, SL_ROUND_UP(columns - isa->nr + 1, isa->nr), isa->nr);
    const bool k_cut = cut.kb < gemm->k;
    cut.mb = k_cut && !striped ? even_block(gemm->m, isa->block_rows, isa->mr) : SL_ROUND_UP(gemm->m, isa->mr);
    choose_tiles(isa, transposed, threads, &cut);
    cut.b_bytes = SL_ROUND_UP((size_t) (SL_ROUND_UP(cut.kb, isa->k_step) * cut.nb) * isa->packed_bytes, 64);
    cut.a_bytes = isa->a_bytes;
    cut.group = 1;
    if (gemm->a.transposed) { /* lies across k, so packing it is expensive */
        const int64_t down = SL_DIV_UP(cut.mb, cut.tile_rows), across = SL_DIV_UP(cut.nb, cut.tile_columns);
        while (cut.group < across && down * SL_DIV_UP(across, cut.group + 1) >= (threads > 1 ? 3 * threads : 1))
            cut.group++;
        if (cut.group > 1)
            cut.a_bytes *= (size_t) SL_DIV_UP(cut.kb, cut.kc);
    }
    cut.sums = k_cut ? (size_t) (SL_DIV_UP(cut.mb, cut.tile_rows) * SL_DIV_UP(cut.nb, cut.tile_columns)) : 0;
    cut.stream = gemm->a.transposed && !gemm->accumulate && gemm->m * gemm->n >= STREAM_ELEMENTS;
    return cut;
}

/* C^T = B^T A^T. C itself belongs to the original GEMM. */
static bool transpose_gemm(const sl_gemm_isa *isa, const sl_gemm *gemm, sl_gemm *transposed)
{
    *transposed = *gemm;
    if (!is_few(isa, gemm) || !gemm->b.transposed)
        return false;
    transposed->m = gemm->n, transposed->n = gemm->m;
    transposed->a = gemm->b, transposed->a.transposed = false;
    transposed->b = gemm->a, transposed->b.transposed = true;
    return true;
}

size_t sl_gemm_workspace(const sl_gemm_isa *isa, const sl_gemm *gemm, int threads)
{
    if (!gemm->m || !gemm->n || !gemm->k)
        return 0;
    sl_gemm actual;
    const bool transposed = transpose_gemm(isa, gemm, &actual);
    const blocking cut = choose_blocking(isa, &actual, transposed, threads);
    const size_t n = (size_t) threads, tile_bytes = (size_t) cut.tile_floats * 4;
    if (cut.striped)
        return n * (cut.b_bytes + cut.a_bytes + SL_MAX(cut.sums, (size_t) 1) * tile_bytes);
    return cut.b_bytes + n * cut.a_bytes + (cut.sums ? cut.sums : n) * tile_bytes;
}

/* One block of the loops above, as the tile functions see it. */
typedef struct block {
    const sl_gemm_isa *isa;
    const sl_gemm *gemm;
    const sl_gemm *original; /* the GEMM that `gemm` is the transpose of; else NULL */
    const blocking *cut;
    int threads;
    sl_gemm_fetch *stripe_fetch; /* the next k of the stripe; NULL: not in stripes */
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

/* Sums of one panel's columns to C. */
static void finish_panel(const block *at, int64_t row, int64_t rows, int64_t column, int64_t columns,
                         const float *tiles, int64_t tile_stride)
{
    const sl_gemm_isa *isa = at->isa;
    if (!at->original) {
        isa->finish(at->gemm, at->cut->stream, row, rows, column, columns, tiles, tile_stride);
        return;
    }
    alignas(64) float sums[TRANSPOSED_MAX];
    SL_ASSERT(isa->mr * isa->nr <= TRANSPOSED_MAX);
    for (int64_t i = 0; i < rows; i += isa->mr, tiles += tile_stride) {
        isa->transpose(tiles, sums);
        isa->finish(at->original, false, column, columns, row + i, min64(isa->mr, rows - i), sums, 0);
    }
}

/* `rows` rows of `bytes`, `stride` apart, to be fetched within `times` asks. */
static sl_gemm_fetch fetch_rows(const void *from, int64_t stride, int64_t rows, int64_t bytes, int64_t times)
{
    sl_gemm_fetch fetch = {.at = from, .rows = bytes > 0 ? rows : 0};
    fetch.row_lines = fetch.in_row = SL_DIV_UP(bytes, 64);
    fetch.skip = stride - fetch.row_lines * 64;
    fetch.pace = (int) SL_DIV_UP(fetch.row_lines * fetch.rows, SL_MAX(times, 1));
    return fetch;
}

/* What comes after rows [row, ..) and k [k, k + count) of A: their next k, else the beginning of the tile that this thread
 * will probably take, all others taking one meanwhile. */
static sl_gemm_fetch next_of_a(const block *at, int64_t row, int64_t k, int64_t count, int64_t times)
{
    const sl_gemm_matrix *a = &at->gemm->a;
    const int64_t bytes = (int64_t) sl_dtype_bytes(a->dtype), rows = at->cut->tile_rows;
    const bool tile_ends = a->transposed || k + count >= at->k_count;
    const int64_t to_row = tile_ends ? row + at->threads * rows : row, to_k = at->k0 + (tile_ends ? 0 : k + count);
    const int64_t height = min64(rows, at->rows - to_row), depth = min64(at->cut->kc, at->gemm->k - to_k);
    if (height <= 0)
        return (sl_gemm_fetch){0};
    const char *data = a->data;
    if (a->transposed)
        return fetch_rows(data + (to_k * a->leading + at->row + to_row) * bytes, a->leading * bytes, depth,
                          height * bytes, times);
    return fetch_rows(data + ((at->row + to_row) * a->leading + to_k) * bytes, a->leading * bytes, height,
                      depth * bytes, times);
}

/* One work tile, tile_rows x tile_columns. A is packed k block by k block into the same place; or, `groups`, each into its
 * own, and not again if `packed`. Behind the last k a panel's sums go to C while they are in L1; if that is behind the
 * first too, all panels have their sums in one place. */
static void multiply_columns(const block *at, int64_t row, int64_t column, bool groups, bool packed, char *packed_a,
                             float *sums)
{
    const sl_gemm_isa *isa = at->isa;
    const blocking *cut = at->cut;
    const int64_t rows = min64(cut->tile_rows, at->rows - row),
                  columns = min64(cut->tile_columns, at->columns - column);
    const int64_t register_floats = (int64_t) isa->mr * isa->nr;
    const bool once = cut->kc >= at->gemm->k;
    const int64_t next_panel = once ? 0 : register_floats;
    const int64_t panel_floats = once ? register_floats : SL_DIV_UP(columns, isa->nr) * register_floats;
    for (int64_t k = 0; k < at->k_count; k += cut->kc) {
        const int64_t count = min64(cut->kc, at->k_count - k), deep = SL_ROUND_UP(count, isa->k_step);
        char *place = packed_a + (groups ? (size_t) (k / cut->kc) * isa->a_bytes : 0);
        const sl_gemm_rows a = isa->pack_a(&at->gemm->a, at->row + row, rows, at->k0 + k, count, place, packed);
        const int64_t times = deep / isa->k_step * SL_DIV_UP(rows, isa->mr) * SL_DIV_UP(columns, isa->nr);
        sl_gemm_fetch own = {0};
        if (isa->few_rows && !at->stripe_fetch && !packed)
            own = next_of_a(at, row, k, count, times);
        sl_gemm_fetch *fetch = at->stripe_fetch ? at->stripe_fetch : &own;
        float *tiles = sums;
        for (int64_t j = 0; j < columns; j += isa->nr, tiles += next_panel) {
            isa->multiply(rows, a, packed_panel(at, k, column + j, count), deep, at->k0 + k == 0, tiles, panel_floats,
                          fetch);
            if (at->k0 + k + count == at->gemm->k)
                finish_panel(at, at->row + row, rows, at->column + column + j, min64(isa->nr, columns - j), tiles,
                             panel_floats);
        }
    }
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

/* B's next k of the stripe, or the first k of the stripe that this thread will probably take. */
static sl_gemm_fetch next_of_stripe(const block *at)
{
    const blocking *cut = at->cut;
    const sl_gemm_matrix *b = &at->gemm->b;
    const bool ends = at->k0 + at->k_count >= at->gemm->k;
    const int64_t k = ends ? 0 : at->k0 + at->k_count, column = at->column + (ends ? at->threads * cut->nb : 0);
    const int64_t depth = min64(cut->kb, at->gemm->k - k), width = min64(cut->nb, at->gemm->n - column);
    if (!at->isa->few_rows || b->transposed || width <= 0)
        return (sl_gemm_fetch){0};
    const int64_t bytes = (int64_t) sl_dtype_bytes(b->dtype), steps = SL_DIV_UP(at->k_count, at->isa->k_step);
    return fetch_rows((const char *) b->data + (k * b->leading + column) * bytes, b->leading * bytes, depth,
                      width * bytes, steps * SL_DIV_UP(at->rows, at->isa->mr) * SL_DIV_UP(at->columns, at->isa->nr));
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
    sl_gemm_fetch fetch = {0};
    at.stripe_fetch = &fetch;
    for (at.k0 = 0; at.k0 < at.gemm->k; at.k0 += cut->kb) {
        at.k_count = min64(cut->kb, at.gemm->k - at.k0);
        for (int64_t i = 0; i < SL_DIV_UP(at.columns, at.isa->nr) * SL_DIV_UP(at.k_count, cut->kc); i++)
            pack_b_tile(&at, i, 0);
        fetch = next_of_stripe(&at);
        for (int64_t i = 0; i < SL_DIV_UP(at.rows, cut->tile_rows); i++)
            multiply_tile(&at, i, 0);
    }
}

/* k = 0, which no model uses, is valid too: C = bias + residual (+ C). */
static void finish_empty(const sl_gemm_isa *isa, const sl_gemm *gemm)
{
    static const float zeros[64 * 64];
    for (int64_t i = 0; i < gemm->m; i += isa->mr)
        for (int64_t j = 0; j < gemm->n; j += isa->nr)
            isa->finish(gemm, false, i, min64(isa->mr, gemm->m - i), j, min64(isa->nr, gemm->n - j), zeros, 0);
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
    sl_gemm actual;
    const bool transposed = transpose_gemm(isa, gemm, &actual);
    const blocking cut = choose_blocking(isa, &actual, transposed, (int) threads);
    block at = {.isa = isa, .gemm = &actual, .cut = &cut, .threads = (int) threads, .packed_b = workspace};
    if (transposed)
        at.original = gemm;
    gemm = &actual;
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

sl_gemm sl_gemm_of_matmul(const sl_launch *launch)
{
    const sl_operand *a = &launch->in[0], *b = &launch->in[1], *bias = &launch->in[2], *residual = &launch->in[3];
    const bool trans_a = sl_matmul_attrs(&launch->attrs)->trans_a, trans_b = sl_matmul_attrs(&launch->attrs)->trans_b;
    sl_gemm gemm = {
        .m = a->type.dim[trans_a ? 1 : 0],
        .n = b->type.dim[trans_b ? 0 : 1],
        .k = a->type.dim[trans_a ? 0 : 1],
        .a = {a->data, a->type.dim[1], a->type.dtype, trans_a},
        .b = {b->data, b->type.dim[1], b->type.dtype, trans_b},
        .c = launch->out[0].data,
        .c_leading = b->type.dim[trans_b ? 0 : 1],
        .c_dtype = launch->out[0].type.dtype,
        .accumulate = launch->accumulate & 1,
        .bias = bias->type.rank ? bias->data : NULL,
        .residual = residual->type.rank ? residual->data : NULL,
    };
    return gemm;
}
