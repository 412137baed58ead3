/* Attributes of mean_rows and its backward. */
#ifndef SL_OPS_MEAN_ROWS_H
#define SL_OPS_MEAN_ROWS_H

#include "ops/op.h"

struct SL_ATTRS_TYPE sl_mean_rows_attrs {
    int64_t sample_rows;  /* rows of a sample */
    int64_t first, count; /* of those, the ones that the mean is of */
};
SL_ATTRS_OF(mean_rows)

#endif
