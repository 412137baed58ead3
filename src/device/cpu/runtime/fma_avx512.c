#include "device/cpu/runtime/throughput.h"

#include <immintrin.h>
#define VF32 __m512
#define VF64 __m512d
#define SET_F32 _mm512_set1_ps
#define SET_F64 _mm512_set1_pd
#define FMA_F32 _mm512_fmadd_ps
#define FMA_F64 _mm512_fmadd_pd
#define STORE_F32 _mm512_storeu_ps
#define STORE_F64 _mm512_storeu_pd
#include "device/cpu/runtime/fma_kernel.h"
const sl_fma_kernel sl_fma_avx512 = {fma_f32, fma_f64};
