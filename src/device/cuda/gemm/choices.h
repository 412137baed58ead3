/* Library algorithms picked by measuring. A choice fixes bits, so it is made once per shape, device and library version, kept in a
 * file for later runs, and written into the folder of every run that uses it: a resumed run takes its own choices first. */
#ifndef SL_DEVICE_CUDA_CHOICES_H
#define SL_DEVICE_CUDA_CHOICES_H

#include "device/cuda/runtime/cuda.h"

/* The device contract's `remember`. Either may be NULL. */
void sl_cuda_choices_files(const char *run, const char *cache);
/* The algorithm chosen for a product on this device, if there is one. */
bool sl_cuda_choice_find(const char *machine, const sl_cuda_gemm *gemm, cublasLtMatmulAlgo_t *algo);
/* Not measured (for want of memory): for this run alone. */
void sl_cuda_choice_add(const char *machine, const sl_cuda_gemm *gemm, const cublasLtMatmulAlgo_t *algo, bool measured);
/* As its twin, where that is chosen. */
bool sl_cuda_choice_follow(const char *machine, const sl_cuda_gemm *gemm, const sl_cuda_gemm *twin,
                           cublasLtMatmulAlgo_t *algo);

#endif
