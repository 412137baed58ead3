/* Attributes of slice and slice_bwd: where the slice begins, and the size of the output: of the slice for slice, of the whole matrix
 * for slice_bwd. */
#ifndef SL_OPS_SLICE_H
#define SL_OPS_SLICE_H

#include "ops/op.h"

struct SL_ATTRS_TYPE sl_slice_attrs {
    int64_t first_row, first_column;
    int64_t rows, columns;
};
SL_ATTRS_OF(slice)

#endif
