/* The loss head's driver (head_loss.c), shared by the instruction sets; each brings its GEMMs and its softmax rows.
 */
#ifndef SL_DEVICE_CPU_HEAD_LOSS_H
#define SL_DEVICE_CPU_HEAD_LOSS_H

#include "device/cpu/gemm/gemm.h"
#include "device/cpu/kernels/kernel.h"
#include "ops/head_loss.h"

typedef struct sl_head_isa {
    const sl_gemm_isa *gemm;
    /* log(sum(exp(row))) - row[target] of one row of logits, under the soft cap where that is not 0; the row is used up. */
    double (*loss)(float *row, int64_t count, int64_t target, float cap);
    /* The same; and the row becomes (softmax - onehot(target)) * scale * slope of the cap in place, as f32 or, from the row's
     * start, as bf16. */
    double (*loss_and_gradient)(float *row, int64_t count, int64_t target, float scale, float cap, bool bf16);
} sl_head_isa;

size_t sl_head_loss_workspace(const sl_head_isa *isa, const sl_launch *launch, int threads);
void sl_head_loss_run(const sl_head_isa *isa, const sl_launch *launch, sl_pool *pool);

#endif
