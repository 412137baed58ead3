/* Standard normal numbers from Philox blocks, by Box-Muller: pure functions of (key, block, stream), the same on every machine. */
#ifndef SL_CORE_NORMAL_H
#define SL_CORE_NORMAL_H

#include <stdint.h>

/* Four numbers for each of `blocks` consecutive blocks from `block` on. */
void sl_normal_fill(uint64_t key, uint64_t block, uint64_t stream, int64_t blocks, float *out);

#endif
