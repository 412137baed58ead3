/* f32 products (bf16 widened) with AVX-512. L1 48 KiB: 256 deep, the panels of A and B take 14 + 32 KiB. */
#ifdef __AVX512F__
#define MR 14
#define KC 256
#define PANELS 4
#define GEMM_ISA sl_gemm_avx512
#include "device/cpu/gemm_kernel.h"
#else
typedef int gemm_avx512_is_empty;
#endif
