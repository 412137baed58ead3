/* GEMM on the CPU: C = op(A) op(B) + bias + residual (+ C). One driver (gemm.c) for all instruction sets; a
 * sl_gemm_isa is what differs: the register tile, how operands are packed for it, and the loops around it. The matmul
 * and loss head kernels are thin callers. */
#ifndef SL_DEVICE_CPU_GEMM_H
#define SL_DEVICE_CPU_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/pool.h"
#include "ops/op.h"

/* A matrix in memory; `leading` elements lie between the starts of two rows as stored. `transposed`: stored [columns,
 * rows]. */
typedef struct sl_gemm_matrix {
    const void *data;
    int64_t leading;
    sl_dtype dtype;
    bool transposed;
} sl_gemm_matrix;

typedef struct sl_gemm {
    int64_t m, n, k;
    sl_gemm_matrix a, b; /* op(A) [m,k], op(B) [k,n]; f32 or bf16, both the same */
    void *c;             /* [m,n] */
    int64_t c_leading;
    sl_dtype c_dtype;
    bool accumulate;      /* C += instead of C = */
    const void *bias;     /* [n] of c_dtype, or NULL */
    const void *residual; /* [m,n] of c_dtype, rows c_leading apart, or NULL */
} sl_gemm;

/* Rows of A as multiply reads them. */
typedef struct sl_gemm_rows {
    const void *data;
    int64_t stride; /* elements from row to row; or, `across`, from k to k */
    bool across;
} sl_gemm_rows;

/* Memory that a thread will read soon, fetched a few lines at a time between tile instructions. */
typedef struct sl_gemm_fetch {
    const char *at;    /* the next line */
    int64_t row_lines; /* 64-byte lines of a row */
    int64_t skip;      /* bytes from behind a row to the next */
    int64_t in_row;    /* lines left of this row */
    int64_t rows;      /* rows left, this one included */
    int pace;          /* lines to ask for at a time */
} sl_gemm_fetch;

/* What an instruction set brings. B is packed in panels of nr columns, k outermost, padded with zeros to full panels
 * and to k_step; how the rows of a work tile of A are packed is its own affair. Sums of C are f32 tiles [mr][nr],
 * contiguous. */
typedef struct sl_gemm_isa {
    int mr, nr;                  /* register tile */
    int k_step;                  /* packed k is a multiple of this */
    int kc;                      /* most k of one pass over a register tile: a panel of B stays in L1 */
    int few_rows;                /* GEMMs of at most so many rows are blocked as gemm.c describes; 0: none */
    int few_kc;                  /* kc of those */
    int tile_rows, tile_columns; /* most of a work tile, about */
    int stripe_rows[2];          /* most rows of C for which threads take stripes; [1]: B is stored along k */
    int stripe_columns;          /* of a stripe, about, at least */
    int few_columns;             /* of a stripe of few rows, at most; */
    int stripe_sums;             /* and its sums, about */
    int block_k;                 /* most k packed of B at once */
    int block_rows;              /* most rows whose sums are kept when k is cut */
    int64_t block_elements;      /* of packed B, about */
    size_t packed_bytes;         /* of one packed element */
    size_t a_bytes;              /* packed A of a work tile, at most */
    /* Makes rows [first, first + rows) of op(A), k in [k0, k0 + count), ready for multiply: packed, or as they lie.
     * `again`: the same rows and k were packed there before. */
    sl_gemm_rows (*pack_a)(const sl_gemm_matrix *a, int64_t first, int64_t rows, int64_t k0, int64_t count,
                           void *packed, bool again);
    /* Packs the panel of op(B) whose first column is `first`, `width` of them present. */
    void (*pack_b)(const sl_gemm_matrix *b, int64_t first, int64_t width, int64_t k0, int64_t count, void *packed);
    /* `rows` rows of A, b: one panel, `count` (a multiple of k_step) deep. tiles: the sums, `tile_stride` floats from
     * one mr rows to the next; started from zero when `fresh`. `fetch`: to be asked for meanwhile, if the set does. */
    void (*multiply)(int64_t rows, sl_gemm_rows a, const void *b, int64_t count, bool fresh, float *tiles,
                     int64_t tile_stride, sl_gemm_fetch *fetch);
    /* Writes rows [row, row + rows) x columns [column, column + columns) of C, at most nr columns, from tiles `tile_stride`
     * floats apart. `stream`: C is not read soon. */
    void (*finish)(const sl_gemm *gemm, bool stream, int64_t row, int64_t rows, int64_t column, int64_t columns,
                   const float *tiles, int64_t tile_stride);
    /* Transposes the sums of a register tile, where mr = nr; needed for few rows alone. */
    void (*transpose)(const float *from, float *to);
    /* Around a thread's run of multiply and finish calls (AMX tile configuration, streamed stores); may be NULL. */
    void (*enter)(void);
    void (*leave)(void);
} sl_gemm_isa;

extern const sl_gemm_isa sl_gemm_avx2, sl_gemm_avx512, sl_gemm_amx;

/* Bytes that a GEMM needs at most; looks at sizes, dtypes and transpositions only. */
size_t sl_gemm_workspace(const sl_gemm_isa *isa, const sl_gemm *gemm, int threads);
/* `workspace` is 64-byte aligned. Every element of C is one chain of fused multiply-adds in ascending k (per k pair on
 * AMX), whatever the sizes of tiles and blocks, so neither they nor the thread count touch its bits. */
void sl_gemm_run(const sl_gemm_isa *isa, const sl_gemm *gemm, void *workspace, sl_pool *pool);

/* The GEMM of a matmul launch. */
sl_gemm sl_gemm_of_matmul(const sl_launch *launch);

/* What kernels made of GEMMs can run: AMX multiplies bf16 alone. NULL: everything. */
static inline bool sl_gemm_takes_bf16(const sl_launch *launch)
{
    return launch->in[0].type.dtype == SL_BF16;
}
#ifdef __AMX_BF16__
#define SL_GEMM_SUPPORTS sl_gemm_takes_bf16
#else
#define SL_GEMM_SUPPORTS NULL
#endif

#endif
