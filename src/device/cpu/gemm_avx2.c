/* f32 products (bf16 widened) with AVX2 and FMA. L1 32 KiB: 256 deep, the panels of A and B take 6 + 16 KiB. */
#ifdef __AVX2__
#define MR 6
#define KC 256
#define PANELS 8
#define GEMM_ISA sl_gemm_avx2
#include "device/cpu/gemm_kernel.h"
#else
typedef int gemm_avx2_is_empty;
#endif
