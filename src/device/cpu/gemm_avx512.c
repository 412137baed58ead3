/* f32 products (bf16 widened) with AVX-512. L1 48 KiB: 128 deep, a panel of B takes 32 KiB, six rows of A 3. */
#define NV 4
#define KC 128
#define TILE_COLUMNS 384
#define GEMM_ISA sl_gemm_avx512
#include "device/cpu/gemm_kernel.h"
