/* "Always keep a baseline" (S13): before a speed is reported, the output is held against a baseline's. A fast kernel
 * with another result is no fast kernel, so its speed is withheld and the command fails. */
#ifndef SL_BENCH_GUARD_H
#define SL_BENCH_GUARD_H

#include "bench/results.h"
#include "ops/op.h"

/* Largest |got - want| relative to the largest |want|; infinite where one is NaN or infinite and the other is not the
 * same. */
double sl_guard_error(const sl_operand *got, const sl_operand *want);
double sl_guard_error_f32(const float *got, const float *want, int64_t count);

/* True: within tolerance. False: the results remember a refusal that names what, how far and how far is allowed. */
bool sl_guard(sl_results *results, const char *what, double error, double tolerance);

#endif
