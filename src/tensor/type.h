/* Types of tensors: element type and dimensions. Tensors are dense and row-major. */
#ifndef SL_TENSOR_TYPE_H
#define SL_TENSOR_TYPE_H

#include "tensor/dtype.h"

#define SL_MAX_RANK 3
/* rank 0: the operand is absent. A scalar is rank 1, dim {1}. */
typedef struct sl_type {
    sl_dtype dtype;
    int32_t rank;
    int64_t dim[SL_MAX_RANK];
} sl_type;

static inline int64_t sl_type_count(const sl_type *type)
{
    int64_t count = type->rank ? 1 : 0;
    for (int32_t i = 0; i < type->rank; i++)
        count *= type->dim[i];
    return count;
}
static inline size_t sl_type_bytes(const sl_type *type)
{
    return (size_t) sl_type_count(type) * sl_dtype_bytes(type->dtype);
}
static inline sl_type sl_type_1d(sl_dtype dtype, int64_t n)
{
    sl_type type = {dtype, 1, {n, 0, 0}};
    return type;
}
static inline sl_type sl_type_2d(sl_dtype dtype, int64_t rows, int64_t columns)
{
    sl_type type = {dtype, 2, {rows, columns, 0}};
    return type;
}

#endif
