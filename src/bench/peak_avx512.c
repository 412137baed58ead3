#include "bench/peak.h"

#include <immintrin.h>
#define VF32 __m512
#define VF64 __m512d
#define SET_F32 _mm512_set1_ps
#define SET_F64 _mm512_set1_pd
#define FMA_F32 _mm512_fmadd_ps
#define FMA_F64 _mm512_fmadd_pd
#define STORE_F32 _mm512_storeu_ps
#define STORE_F64 _mm512_storeu_pd
#include "bench/peak_kernel.h"
const sl_peak_kernel sl_peak_avx512 = {peak_f32, peak_f64};
