/* Element types. dtypes.def lists them; everything that depends on the type of an element asks here. */
#ifndef SL_TENSOR_DTYPE_H
#define SL_TENSOR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum sl_dtype {
#define SL_DTYPE(ID, name, bits, file_name, floating) SL_##ID,
#include "tensor/dtypes.def"
#undef SL_DTYPE
    SL_DTYPE_COUNT
} sl_dtype;

const char *sl_dtype_name(sl_dtype dtype);
const char *sl_dtype_file_name(sl_dtype dtype); /* in safetensors files */

static inline size_t sl_dtype_bytes(sl_dtype dtype)
{
    static const unsigned char bytes[SL_DTYPE_COUNT] = {
#define SL_DTYPE(ID, name, bits, file_name, floating) (bits) / 8,
#include "tensor/dtypes.def"
#undef SL_DTYPE
    };
    return bytes[dtype];
}

static inline bool sl_dtype_is_float(sl_dtype dtype)
{
    static const bool is_float[SL_DTYPE_COUNT] = {
#define SL_DTYPE(ID, name, bits, file_name, floating) floating,
#include "tensor/dtypes.def"
#undef SL_DTYPE
    };
    return is_float[dtype];
}

/* Element i of an array, as f32: exact for every floating-point type. */
float sl_dtype_load(sl_dtype dtype, const void *array, int64_t i);
/* The nearest value of the type, ties to even. */
void sl_dtype_store(sl_dtype dtype, void *array, int64_t i, float value);

#endif
