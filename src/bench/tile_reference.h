/* The tiled algorithm in plain C, with its tile as a parameter: what a tile needs on chip, what it saves off chip (F1,
 * F5). */
#ifndef SL_BENCH_TILE_REFERENCE_H
#define SL_BENCH_TILE_REFERENCE_H

#include "bench/attention_case.h"
#include "core/pool.h"

#define SL_ON_CHIP_BYTES ((size_t) 227 << 10) /* shared memory of one block on Hopper */

/* Bytes one tile of queries keeps available: its queries, a tile of K and of V, their scores, the output and two numbers
 * a row. */
size_t sl_tile_scratch(int64_t tile, int64_t dim);
/* Bytes that come from and go to main memory: K and V once per tile of queries (half of them, causal), q and o once. */
double sl_tile_traffic(const sl_attention_shape *shape, int64_t tile);

/* o[items][seqlen][dim] and lse[items][seqlen] in f32. SL_E_DOES_NOT_FIT where a tile needs more than `limit`. */
sl_status sl_tile_forward(const sl_attention_shape *shape, const sl_attention_data *data, int64_t tile, size_t limit,
                          sl_pool *pool, float *o, float *lse);

#endif
