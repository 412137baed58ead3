/* Names and conversions of element types. A type without a conversion is a broken invariant, never taken for another type. */
#include "tensor/dtype.h"

#include "core/bf16.h"
#include "core/status.h"

static const struct {
    const char *name, *file_name;
} dtypes[SL_DTYPE_COUNT] = {
#define SL_DTYPE(ID, name, bits, file_name, floating) {#name, file_name},
#include "tensor/dtypes.def"
#undef SL_DTYPE
};

const char *sl_dtype_name(sl_dtype dtype)
{
    return dtype >= 0 && dtype < SL_DTYPE_COUNT ? dtypes[dtype].name : "?";
}

const char *sl_dtype_file_name(sl_dtype dtype)
{
    SL_ASSERT(dtype >= 0 && dtype < SL_DTYPE_COUNT);
    return dtypes[dtype].file_name;
}

float sl_dtype_load(sl_dtype dtype, const void *array, int64_t i)
{
    switch (dtype) {
    case SL_F32:
        return ((const float *) array)[i];
    case SL_BF16:
        return sl_bf16_to_f32(((const sl_bf16 *) array)[i]);
    case SL_I32:
        return (float) ((const int32_t *) array)[i];
    case SL_U8:
        return (float) ((const uint8_t *) array)[i];
    case SL_DTYPE_COUNT:
        break;
    }
    SL_ASSERT(!"every dtype can be loaded");
    return 0;
}

void sl_dtype_store(sl_dtype dtype, void *array, int64_t i, float value)
{
    switch (dtype) {
    case SL_F32:
        ((float *) array)[i] = value;
        return;
    case SL_BF16:
        ((sl_bf16 *) array)[i] = sl_f32_to_bf16(value);
        return;
    case SL_I32:
        ((int32_t *) array)[i] = (int32_t) value;
        return;
    case SL_U8:
        ((uint8_t *) array)[i] = (uint8_t) value;
        return;
    case SL_DTYPE_COUNT:
        break;
    }
    SL_ASSERT(!"every dtype can be stored");
}
