/* Attributes of image. */
#ifndef SL_OPS_IMAGE_H
#define SL_OPS_IMAGE_H

#include "ops/op.h"

#define SL_MAX_CHANNELS 4

struct SL_ATTRS_TYPE sl_image_attrs {
    int32_t dtype; /* of the activations, an sl_dtype */
    float scale[SL_MAX_CHANNELS], bias[SL_MAX_CHANNELS];
};
SL_ATTRS_OF(image)

#endif
