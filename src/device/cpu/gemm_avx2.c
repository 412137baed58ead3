/* f32 products (bf16 widened) with AVX2 and FMA. L1 32 KiB: 256 deep, a panel of B takes 16 KiB, six rows of A 6. */
#define NV 2
#define KC 256
#define TILE_COLUMNS 384
#define GEMM_ISA sl_gemm_avx2
#include "device/cpu/gemm_kernel.h"
