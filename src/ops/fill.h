/* Operands with random content that is valid for their op: for the conformance test, and for timing kernels (on zeros they
 * run too fast). */
#ifndef SL_OPS_FILL_H
#define SL_OPS_FILL_H

#include "ops/op.h"

/* Operation, types, attributes and accumulate bits of a case; no data yet. */
sl_status sl_op_case_launch(sl_op_id op, const sl_op_case *op_case, sl_launch *launch);

/* Fills every present input, and every output that the launch reads, with values that depend on seed and place alone. All
 * data pointers are set and host-accessible. Operands that belong together do: norm statistics fit x, v is positive, a bf16
 * parameter is its master's nearest.
 * `op_case` NULL: for timing; ranges come from types and attributes, and attention_bwd gets plausible o and lse instead of
 * those of the forward (which the reference would take too long to compute). */
sl_status sl_op_fill(sl_launch *launch, uint64_t seed, const sl_op_case *op_case);

#endif
