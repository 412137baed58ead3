/* The contract's scopes for NVIDIA's profilers. */
#ifndef SL_DEVICE_CUDA_NVTX_H
#define SL_DEVICE_CUDA_NVTX_H

#include "device/device.h"

bool sl_cuda_scope(sl_device *device, sl_scope level, const char *name);

#endif
