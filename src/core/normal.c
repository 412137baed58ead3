/*
 * An 8B model draws eight billion of these before its first step, so the work is laid out for vector units: batches of blocks, no
 * branches, no libm. All of it is plain IEEE arithmetic without contraction, so the clones for wider units give the same bits.
 *
 *     ln u        u = 2^e m with m in [sqrt(1/2), sqrt 2):  e ln 2 + 2 artanh((m - 1) / (m + 1)), five terms
 *     sin, cos    quarter turns taken off as integers, the rest in [-pi/4, pi/4] by Taylor; both to about 3e-8
 */
#include "core/normal.h"

#include <math.h>
#include <string.h>

#include "core/rng.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define FOR_EACH_ISA __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_ISA
#endif

enum { BATCH = 64 };

/* -ln u for u = (bits + 1/2) / 2^32, never negative. */
static inline float minus_log(uint32_t bits)
{
    float u = ((float) bits + 0.5f) * 0x1p-32f;
    uint32_t word;
    memcpy(&word, &u, sizeof word);
    int32_t shifted = (int32_t) (word - 0x3f3504f3u) >> 23; /* exponent with m centred on 1 */
    uint32_t centred = word - ((uint32_t) shifted << 23);
    float m;
    memcpy(&m, &centred, sizeof m);
    float s = (m - 1) / (m + 1), q = s * s;
    float artanh = s * (1 + q * (1.0f / 3 + q * (1.0f / 5 + q * (1.0f / 7 + q * (1.0f / 9)))));
    float value = -((float) shifted * 0.6931471805599453f + 2 * artanh);
    return value > 0 ? value : 0;
}

/* cos and sin of 2 pi bits / 2^32. */
static inline void turn(uint32_t bits, float *cosine, float *sine)
{
    uint32_t quarter = (bits + 0x20000000u) >> 30;
    float x = (float) (int32_t) (bits - (quarter << 30)) * (6.283185307179586f * 0x1p-32f), q = x * x;
    float s = x * (1 + q * (-1.0f / 6 + q * (1.0f / 120 + q * (-1.0f / 5040 + q * (1.0f / 362880)))));
    float c = 1 + q * (-0.5f + q * (1.0f / 24 + q * (-1.0f / 720 + q * (1.0f / 40320))));
    float a = quarter & 1 ? s : c, b = quarter & 1 ? c : s;
    *cosine = (quarter + 1) & 2 ? -a : a;
    *sine = quarter & 2 ? -b : b;
}

/* A batch of Philox blocks, word by word. */
typedef struct words {
    uint32_t v[4][BATCH];
} words;

FOR_EACH_ISA
static void draw_words(uint64_t key, uint64_t block, uint64_t stream, words *w)
{
    for (int i = 0; i < BATCH; i++) {
        sl_rng4 r = sl_philox(key, block + (uint64_t) i, stream);
        w->v[0][i] = r.v[0];
        w->v[1][i] = r.v[1];
        w->v[2][i] = r.v[2];
        w->v[3][i] = r.v[3];
    }
}

FOR_EACH_ISA
static void box_muller(const words *w, float *out)
{
    float z[4][BATCH];
    for (int h = 0; h < 4; h += 2)
        for (int i = 0; i < BATCH; i++) {
            float radius = sqrtf(2 * minus_log(w->v[h][i])), c, s;
            turn(w->v[h + 1][i], &c, &s);
            z[h][i] = radius * c;
            z[h + 1][i] = radius * s;
        }
    for (int i = 0; i < BATCH; i++)
        for (int k = 0; k < 4; k++)
            out[4 * i + k] = z[k][i];
}

void sl_normal_fill(uint64_t key, uint64_t block, uint64_t stream, int64_t blocks, float *out)
{
    words w;
    float drawn[4 * BATCH];
    for (int64_t done = 0; done < blocks; done += BATCH) {
        int64_t n = blocks - done < BATCH ? blocks - done : BATCH;
        draw_words(key, block + (uint64_t) done, stream, &w);
        box_muller(&w, drawn);
        memcpy(out + 4 * done, drawn, (size_t) n * 4 * sizeof *out);
    }
}
