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
/* For timing, with so many packed sequences. */
sl_status sl_op_fill_timed(sl_launch *launch, int64_t sequences);

/* ---- for the `fill` of an op; `operand` numbers the random stream: inputs from 0, outputs from SL_MAX_IN ---- */

void sl_fill_normal(const sl_operand *x, uint64_t seed, int operand, float scale);
void sl_fill_squares(const sl_operand *x, uint64_t seed, int operand, float scale);
/* Uniform in [0, range). */
void sl_fill_index(const sl_operand *x, uint64_t seed, int operand, int64_t range);
/* What the rows of a loss count: positive numbers and some zeros; nothing where it is absent. */
void sl_fill_weights(const sl_operand *x, uint64_t seed, int operand);
/* Step parameters of a third step, for a loss over this many tokens. */
void sl_fill_step(const sl_operand *x, uint64_t seed, int64_t tokens);
/* A gate that scales, or one that skips the step; nothing where it is absent. */
void sl_fill_gate(const sl_operand *gate, bool skip);
/* The mean (NULL: none, taken as zero) and 1 / root of the mean square of x's rows. */
void sl_fill_statistics(const sl_operand *x, const sl_operand *mean, const sl_operand *rstd, float eps);

#endif
