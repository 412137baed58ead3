#include "bench/peak.h"

#include <immintrin.h>
#define VF32 __m256
#define VF64 __m256d
#define SET_F32 _mm256_set1_ps
#define SET_F64 _mm256_set1_pd
#define FMA_F32 _mm256_fmadd_ps
#define FMA_F64 _mm256_fmadd_pd
#define STORE_F32 _mm256_storeu_ps
#define STORE_F64 _mm256_storeu_pd
#include "bench/peak_kernel.h"
const sl_peak_kernel sl_peak_avx2 = {peak_f32, peak_f64};
