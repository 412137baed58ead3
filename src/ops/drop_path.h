/* Attributes of drop_path, and which samples it keeps: shared by the reference and the kernels. */
#ifndef SL_OPS_DROP_PATH_H
#define SL_OPS_DROP_PATH_H

#include "ops/noise.h"

struct SL_ATTRS_TYPE sl_drop_path_attrs {
    float probability;
    uint32_t stream;     /* which dropout of the model this is: drop_path and dropout count together */
    int64_t sample_rows; /* rows of a sample */
    int64_t first;       /* the chunk's first sample in the whole batch; set by the program */
};
SL_ATTRS_OF(drop_path)

/* 1 / (1 - p) for a row whose sample is kept, else 0. */
static inline SL_HD float sl_drop_path_factor(const struct sl_drop_path_attrs *a, const sl_step_params *step,
                                              int64_t row)
{
    const int64_t sample = a->first + row / a->sample_rows;
    return sl_dropout_uniform(step, a->stream, sample) >= a->probability ? 1 / (1 - a->probability) : 0;
}

#endif
